/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/table/table-internal.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

enum { BYTES_MAX_SHIFT = 62, CRC_BYTES = 4 };

struct table *table_new(void)
{
	struct table *t = calloc(1, sizeof(*t));

	if (t)
		t->notes = open_memstream(&t->source, &t->source_size);
	if (t && !t->notes) {
		free(t);
		return NULL;
	}
	return t;
}

void table_free(struct table *t)
{
	if (!t)
		return;
	if (t->notes)
		fclose(t->notes);
	for (uint32_t i = 0; i < t->ngroups; i++) {
		free(t->groups[i].params);
		free(t->groups[i].ranks);
		free(t->groups[i].hypers);
	}
	free(t->groups);
	for (uint32_t i = 0; i < t->nfiles; i++) {
		free(t->files[i].name);
		close(t->files[i].fd);
	}
	free(t->files);
	free(t->tensors);
	free(t->states);
	free(t->pieces);
	free(t->flats);
	free(t->partitions);
	free(t->parts);
	free(t->segments);
	free(t->entries);
	free(t->numbers);
	free(t->strings);
	free(t->keys);
	free(t->shown);
	free(t->source);
	free(t);
}

int table_refuse(struct table *t, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->why, sizeof(t->why), fmt, ap);
	va_end(ap);
	return rc;
}

/* ---- room ---- */

/* Makes room for one more element in an array of n, whose pointer is at `array`. */
static int make_room(void *array, uint32_t n, size_t size)
{
	void **at = array, *bigger;

	if (n && (n < 16 || (n & (n - 1))))
		return 0;
	if (n > UINT32_MAX / 2)
		return -ENOSPC;
	bigger = reallocarray(*at, n ? (size_t)n * 2 : 16, size);
	if (!bigger)
		return -ENOMEM;
	*at = bigger;
	return 0;
}

/* Makes room for `more` elements behind the n of an array that has room for *have. */
static int reserve(void *array, uint64_t *have, uint64_t n, uint64_t more, size_t size)
{
	void **at = array, *bigger;
	uint64_t want = u64_max(*have ? *have * 2 : 256, n + more);

	if (n + more <= *have)
		return 0;
	if (n + more > UINT32_MAX)
		return -ENOSPC;
	bigger = reallocarray(*at, want, size);
	if (!bigger)
		return -ENOMEM;
	*at = bigger;
	*have = want;
	return 0;
}

/* Returns the text's place in strings. */
static int64_t add_string(struct table *t, const char *text)
{
	uint64_t length = strlen(text) + 1, at = t->strings_size;
	int rc = reserve(&t->strings, &t->strings_room, at, length, 1);

	if (rc)
		return rc;
	memcpy(t->strings + at, text, length);
	t->strings_size += length;
	return (int64_t)at;
}

/* Returns the place in numbers of those that were added. */
static int64_t add_numbers(struct table *t, const uint64_t *numbers, uint32_t n)
{
	uint64_t at = t->nnumbers;
	int rc = reserve(&t->numbers, &t->numbers_room, at, n + 1, sizeof(*numbers));

	if (rc)
		return rc;
	if (n)
		memcpy(t->numbers + at, numbers, n * sizeof(*numbers));
	t->nnumbers += n;
	return (int64_t)at;
}

/* ---- files ---- */

int table_add_file(struct table *t, const char *name, int fd, const struct stat *st)
{
	int rc = t->nfiles == TABLE_FILES_MAX
			 ? -ENOSPC
			 : make_room(&t->files, t->nfiles, sizeof(*t->files));
	char *copy = rc ? NULL : strdup(name);

	if (!copy) {
		close(fd);
		return rc ? rc : -ENOMEM;
	}
	t->files[t->nfiles] = (struct table_file){ .name = copy,
						   .fd = fd,
						   .dev = st->st_dev,
						   .ino = st->st_ino,
						   .size = (uint64_t)st->st_size,
						   .mtime = st->st_mtim };
	return (int)t->nfiles++;
}

int table_need_ranks(struct table *t, uint32_t nranks)
{
	if (nranks > TABLE_RANKS_MAX)
		return table_refuse(t, -EINVAL, "%u ranks are too many", nranks);
	t->nranks = nranks > t->nranks ? nranks : t->nranks;
	return 0;
}

/* Returns true if count elements from base on are in the file. */
static int check_place(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		       uint64_t count, enum frag_dtype dtype)
{
	uint64_t bytes;

	assert(file < t->nfiles);
	if (rank >= TABLE_RANKS_MAX)
		return table_refuse(t, -EINVAL, "rank %u is too high", rank);
	if (!u64_mul(count, frag_dtype_size(dtype), &bytes) || !u64_add(bytes, base, &bytes) ||
	    bytes > t->files[file].size)
		return table_refuse(t, -EINVAL, "%s ends before its data do",
				    t->files[file].name);
	return table_need_ranks(t, rank + 1);
}

static bool is_inside(uint64_t at, uint64_t size, uint64_t end)
{
	return size <= end && at <= end - size;
}

int table_add_entry(struct table *t, const struct table_entry *e)
{
	uint64_t end;
	int rc;

	assert(e->file < t->nfiles);
	end = t->files[e->file].size;
	if (!is_inside(e->at, e->size, end) ||
	    !is_inside(e->crc_in_directory, CRC_BYTES, end) ||
	    !is_inside(e->crc_in_descriptor, CRC_BYTES, end))
		return table_refuse(t, -EINVAL, "%s ends before its entries do",
				    t->files[e->file].name);
	if (!e->size)
		return 0;
	rc = make_room(&t->entries, t->nentries, sizeof(*e));
	if (rc)
		return rc;
	t->entries[t->nentries++] = *e;
	return 0;
}

/* ---- tensors ---- */

static int count_elements(const struct table_spec *s, uint64_t *numel)
{
	uint64_t n = 1;

	if (s->ndim > FRAG_DIMS_MAX || !frag_dtype_size(s->dtype))
		return -EINVAL;
	for (uint32_t d = 0; d < s->ndim; d++) {
		if (!s->shape[d]) { /* whatever the others are */
			*numel = 0;
			return 0;
		}
		if (!u64_mul(n, s->shape[d], &n))
			return -EINVAL;
	}
	*numel = n;
	return n >> (BYTES_MAX_SHIFT - 3) ? -EINVAL : 0;
}

int table_begin_part(struct table *t, const char *name)
{
	struct table_part part = { .groups = t->ngroups, .ranks = t->nranks };
	int64_t at = add_string(t, name);
	int rc = t->nparts == TABLE_PARTS_MAX
			 ? table_refuse(t, -EINVAL, "there are more than %d parts",
					TABLE_PARTS_MAX)
			 : make_room(&t->parts, t->nparts, sizeof(part));

	if (rc || at < 0)
		return rc ? rc : (int)at;
	part.name = (uint32_t)at;
	t->parts[t->nparts++] = part;
	return 0;
}

static int64_t add_names(struct table *t, struct table_tensor *x, const char *name,
			 const char *coordinate)
{
	int64_t first = add_string(t, name), second;

	if (first < 0)
		return first;
	if (t->nparts)
		x->part = (uint16_t)(t->nparts - 1);
	if (t->nparts && !coordinate) {
		x->name = (uint32_t)first;
		x->coordinate = t->parts[x->part].name;
		return 0;
	}
	second = add_string(t, coordinate ? coordinate : "");
	x->name = (uint32_t)first;
	x->coordinate = (uint32_t)second;
	return second < 0 ? second : 0;
}

static int append_tensor(struct table *t, const struct table_tensor *x)
{
	int rc = t->ntensors >= FRAG_PARAMS_MAX
			 ? -ENOSPC
			 : make_room(&t->tensors, t->ntensors, sizeof(*t->tensors));

	if (rc)
		return rc;
	t->tensors[t->ntensors] = *x;
	return (int)t->ntensors++;
}

int table_add_tensor(struct table *t, const struct table_spec *s)
{
	struct table_tensor x = { .alias = TABLE_NONE,
				  .group = TABLE_NONE,
				  .dtype = (uint8_t)s->dtype,
				  .ndim = (uint8_t)s->ndim,
				  .buffer = s->buffer,
				  .frozen = s->frozen };
	int64_t rc;

	if (strlen(s->name) > FRAG_NAME_MAX ||
	    (s->coordinate && strlen(s->coordinate) > FRAG_KEY_MAX))
		return table_refuse(t, -EINVAL, "the name %.60s... is too long", s->name);
	if (count_elements(s, &x.numel))
		return table_refuse(t, -EINVAL, "%.150s: no tensor has such a shape", s->name);
	rc = add_names(t, &x, s->name, s->coordinate);
	if (!rc)
		rc = add_numbers(t, s->shape, s->ndim);
	if (rc < 0)
		return (int)rc;
	x.shape = (uint32_t)rc;
	return append_tensor(t, &x);
}

int table_add_alias(struct table *t, const char *name, uint32_t of)
{
	struct table_tensor x;
	int64_t rc;

	assert(of < t->ntensors);
	x = t->tensors[of];
	if (x.alias == TABLE_NONE)
		x.alias = of;
	x.group = TABLE_NONE;
	if (strlen(name) > FRAG_NAME_MAX)
		return table_refuse(t, -EINVAL, "the name %.60s... is too long", name);
	rc = add_string(t, name);
	if (rc < 0)
		return (int)rc;
	x.name = (uint32_t)rc;
	return append_tensor(t, &x);
}

/* ---- states ---- */

/* Returns the number of a key of states, which is added where it has none. */
static int add_key(struct table *t, const char *key)
{
	if (strlen(key) > FRAG_KEY_MAX)
		return table_refuse(t, -EINVAL, "the key %.40s... is too long", key);
	for (uint32_t i = t->nkeys; i-- > 0;)
		if (!strcmp(t->keys[i], key))
			return (int)i;
	if (t->nkeys == TABLE_KEYS_MAX)
		return table_refuse(t, -EINVAL, "there are more than %d kinds of states",
				    TABLE_KEYS_MAX);
	if (make_room(&t->keys, t->nkeys, sizeof(*t->keys)))
		return -ENOMEM;
	strcpy(t->keys[t->nkeys], key);
	return (int)t->nkeys++;
}

static int append_row(struct table *t, const char *key, struct table_state s)
{
	int rc = add_key(t, key);

	if (rc < 0)
		return rc;
	s.key = (uint16_t)rc;
	rc = make_room(&t->states, t->nstates, sizeof(*t->states));
	if (rc)
		return rc;
	t->states[t->nstates] = s;
	return (int)t->nstates++;
}

static int append_state(struct table *t, const char *key, struct table_state s)
{
	assert(t->ntensors && t->tensors[t->ntensors - 1].alias == TABLE_NONE);
	s.tensor = t->ntensors - 1;
	s.shown = s.stored;
	return append_row(t, key, s);
}

int table_widen(struct table *t, const struct table_state *of)
{
	struct table_state s = *of;

	s.shown = FRAG_F32;
	return append_row(t, "fp32", s);
}

int table_add_widened(struct table *t)
{
	struct table_state newest = t->states[t->nstates - 1];

	return table_widen(t, &newest);
}

int table_add_state(struct table *t, const char *key, enum frag_dtype dtype)
{
	if (!frag_dtype_size(dtype))
		return table_refuse(t, -EINVAL, "the state %s has no dtype", key);
	return append_state(t, key,
			    (struct table_state){ .kind = TABLE_INTERVALS,
						  .first = t->npieces,
						  .stored = (uint8_t)dtype });
}

const char *table_own_key(enum frag_dtype dtype)
{
	return dtype == FRAG_F32 ? "fp32" : dtype_lp_key(dtype);
}

int table_add_copy(struct table *t, enum frag_dtype dtype)
{
	int rc = table_add_state(t, TABLE_COPY_KEY, dtype);

	if (rc >= 0)
		t->states[rc].copy = true;
	return rc;
}

int table_add_copy_of(struct table *t, uint32_t tensor, enum frag_dtype dtype)
{
	struct table_state s = { .kind = TABLE_INTERVALS,
				 .first = t->npieces,
				 .tensor = tensor,
				 .stored = (uint8_t)dtype,
				 .shown = (uint8_t)dtype,
				 .copy = true };

	assert(tensor < t->ntensors && t->tensors[tensor].alias == TABLE_NONE);
	return append_row(t, TABLE_COPY_KEY, s);
}

int table_add_scalar(struct table *t, const char *key, enum frag_dtype dtype)
{
	int rc = table_add_state(t, key, dtype);

	if (rc >= 0)
		t->states[rc].scalar = true;
	return rc;
}

void table_drop_state(struct table *t)
{
	const struct table_state *s = &t->states[--t->nstates];

	assert(s->kind == TABLE_INTERVALS || s->kind == TABLE_BOXES);
	t->npieces = s->first;
}

bool table_has_states(const struct table *t)
{
	return t->nstates && t->states[t->nstates - 1].tensor == t->ntensors - 1;
}

void table_drop_tensor(struct table *t)
{
	assert(t->ntensors && !table_has_states(t) &&
	       t->tensors[t->ntensors - 1].group == TABLE_NONE);
	t->ntensors--;
}

static int append_piece(struct table *t, const struct table_piece *p)
{
	struct table_state *s = &t->states[t->nstates - 1];
	int rc = check_place(t, p->file, p->rank, p->base, p->count, s->stored);

	if (!rc)
		rc = make_room(&t->pieces, t->npieces, sizeof(*t->pieces));
	if (rc)
		return rc;
	t->pieces[t->npieces++] = *p;
	s->n++;
	return 0;
}

int table_add_interval(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		       uint64_t first, uint64_t count)
{
	struct table_piece p = { file, rank, base, first, count };

	assert(t->nstates && t->states[t->nstates - 1].kind == TABLE_INTERVALS);
	return count ? append_piece(t, &p) : 0;
}

int table_add_box(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		  const uint64_t *offsets, const uint64_t *sizes)
{
	const struct table_tensor *x = &t->tensors[t->ntensors - 1];
	struct box b = { x->ndim, table_shape(t, x), offsets, sizes };
	struct table_piece p = { .file = file, .rank = rank, .base = base };
	int64_t at;

	assert(t->nstates &&
	       (!t->states[t->nstates - 1].n || t->states[t->nstates - 1].kind == TABLE_BOXES));
	for (uint32_t d = 0; d < x->ndim; d++)
		if (!sizes[d])
			return 0;
	if (!box_is_inside(&b))
		return table_refuse(t, -EINVAL, "%.150s: a piece is outside of its shape",
				    table_string(t, x->name));
	p.count = box_count(&b);
	at = add_numbers(t, offsets, x->ndim);
	if (at >= 0) {
		p.first = (uint64_t)at;
		at = add_numbers(t, sizes, x->ndim);
	}
	t->states[t->nstates - 1].kind = TABLE_BOXES;
	return at < 0 ? (int)at : append_piece(t, &p);
}

/* ---- vectors ---- */

int table_add_flat(struct table *t, enum frag_dtype dtype)
{
	int rc = make_room(&t->flats, t->nflats, sizeof(*t->flats));

	if (rc)
		return rc;
	assert(frag_dtype_size(dtype));
	t->flats[t->nflats] =
		(struct table_flat){ .first = t->nsegments, .dtype = (uint8_t)dtype };
	return (int)t->nflats++;
}

int table_add_segment(struct table *t, uint32_t file, uint32_t rank, uint64_t base,
		      uint64_t count)
{
	struct table_flat *f = &t->flats[t->nflats - 1];
	int rc = check_place(t, file, rank, base, count, f->dtype);

	if (!count || rc)
		return rc;
	rc = make_room(&t->segments, t->nsegments, sizeof(*t->segments));
	if (rc)
		return rc;
	t->segments[t->nsegments++] = (struct table_piece){ file, rank, base, f->count, count };
	f->n++;
	return u64_add(f->count, count, &f->count) ? 0 : -EOVERFLOW;
}

int table_add_flat_state(struct table *t, const char *key, uint32_t flat, uint64_t start)
{
	assert(flat < t->nflats);
	return append_state(t, key,
			    (struct table_state){ .kind = TABLE_FLAT,
						  .first = flat,
						  .start = start,
						  .stored = t->flats[flat].dtype });
}

int table_add_equal_state(struct table *t, const char *key, uint32_t first, uint32_t nranks,
			  uint64_t start)
{
	assert(nranks && first < t->nflats && nranks <= t->nflats - first);
	return append_state(t, key,
			    (struct table_state){ .kind = TABLE_EQUAL,
						  .first = first,
						  .n = nranks,
						  .start = start,
						  .stored = t->flats[first].dtype });
}

/* ---- param groups of the optimizer, and the ranks' partitions ---- */

int table_add_group(struct table *t, const char *kind, uint32_t shards, uint32_t replicas,
		    uint32_t sub_groups, const uint32_t *ranks)
{
	struct table_group g = { .shards = shards,
				 .replicas = replicas,
				 .sub_groups = sub_groups,
				 .nranks = shards * replicas };
	int rc = t->ngroups == FRAG_GROUPS_MAX ? -ENOSPC
					       : make_room(&t->groups, t->ngroups, sizeof(g));

	assert(shards && replicas && shards <= TABLE_RANKS_MAX / replicas);
	for (uint32_t i = 0; i < g.nranks && !rc; i++)
		rc = ranks[i] >= TABLE_RANKS_MAX
			     ? table_refuse(t, -EINVAL, "a rank is too high")
			     : table_need_ranks(t, ranks[i] + 1);
	if (rc)
		return rc;
	g.ranks = calloc(g.nranks, sizeof(*ranks));
	if (!g.ranks)
		return -ENOMEM;
	memcpy(g.ranks, ranks, g.nranks * sizeof(*ranks));
	snprintf(g.kind, sizeof(g.kind), "%s", kind);
	t->groups[t->ngroups] = g;
	return (int)t->ngroups++;
}

int table_add_member(struct table *t, uint32_t group, uint32_t tensor)
{
	struct table_group *g = &t->groups[group];
	int rc = make_room(&g->params, g->nparams, sizeof(*g->params));

	assert(group < t->ngroups && tensor < t->ntensors);
	if (rc)
		return rc;
	if (t->tensors[tensor].group != TABLE_NONE)
		return table_refuse(t, -EINVAL, "%.150s is in two groups",
				    table_string(t, t->tensors[tensor].name));
	t->tensors[tensor].group = group;
	t->tensors[tensor].position = g->nparams;
	g->params[g->nparams++] = tensor;
	return 0;
}

int table_add_hyper(struct table *t, uint32_t group, const char *name, double value)
{
	struct table_group *g = &t->groups[group];
	int rc = make_room(&g->hypers, g->nhypers, sizeof(*g->hypers));

	assert(group < t->ngroups);
	if (rc)
		return rc;
	if (!*name || strlen(name) > FRAG_KEY_MAX)
		return table_refuse(t, -EINVAL, "the hyper-parameter %.40s... is too long",
				    name);
	for (uint32_t i = 0; i < g->nhypers; i++)
		if (!strcmp(g->hypers[i].name, name))
			return table_refuse(t, -EINVAL, "group %u has two hyper-parameters %s",
					    group, name);
	strcpy(g->hypers[g->nhypers].name, name);
	g->hypers[g->nhypers++].value = value;
	return 0;
}

int table_add_partition(struct table *t, const char *key, enum frag_dtype dtype,
			const struct table_partition *of, uint32_t file, uint64_t base,
			uint64_t count)
{
	struct table_partition p = *of;
	int flat = table_add_flat(t, dtype), number, rc;

	if (flat < 0)
		return flat;
	rc = table_add_segment(t, file, of->rank, base, count);
	if (rc)
		return rc;
	number = add_key(t, key);
	if (number < 0)
		return number;
	rc = make_room(&t->partitions, t->npartitions, sizeof(p));
	if (rc)
		return rc;
	p.state = (struct table_state){ .kind = TABLE_FLAT,
					.tensor = TABLE_NONE,
					.first = (uint32_t)flat,
					.key = (uint16_t)number,
					.stored = (uint8_t)dtype,
					.shown = (uint8_t)dtype };
	t->partitions[t->npartitions++] = p;
	return 0;
}

/* ---- what .frag/source says ---- */

void table_set_step(struct table *t, uint64_t step)
{
	t->has_step = true;
	t->step = step;
}

void table_note(struct table *t, const char *fmt, ...)
{
	CLEANUP(free) char *line = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&line, fmt, ap) < 0)
		line = NULL;
	va_end(ap);
	/* Names of files may have characters that would end the line. */
	for (const char *at = line ? line : "?"; *at; at++)
		fputc((unsigned char)*at < ' ' || *at == 127 ? '?' : *at, t->notes);
	fputc('\n', t->notes);
}

void table_skip(struct table *t, const char *name, const char *fmt, ...)
{
	CLEANUP(free) char *why = NULL;
	va_list ap;

	if (t->nskipped++ >= TABLE_NOTES_MAX)
		return;
	va_start(ap, fmt);
	if (vasprintf(&why, fmt, ap) < 0)
		why = NULL;
	va_end(ap);
	table_note(t, "skipped %s: %s", name, why ? why : "?");
}

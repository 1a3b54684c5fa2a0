/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table.h"

#include "engine/base/dtype.h"
#include "engine/base/one-line.h"
#include "engine/checkpoint/table/box.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* The key of a state that table_add_copy() made; no state that is shown has it. */
#define TABLE_COPY_KEY "(copy)"

static int compare_partition(const struct table_partition *p, uint32_t rank, uint32_t group,
			     uint32_t sub)
{
	if (p->rank != rank)
		return p->rank < rank ? -1 : 1;
	if (p->group != group)
		return p->group < group ? -1 : 1;
	return (p->sub > sub) - (p->sub < sub);
}

static struct box box_at(const struct table *t, const struct table_state *s,
			 const uint64_t *offsets)
{
	const struct table_tensor *x = &t->tensors[s->tensor];

	return (struct box){ x->ndim, table_shape(t, x), offsets, offsets + x->ndim };
}

static struct box piece_box(const struct table *t, const struct table_state *s,
			    const struct table_piece *p)
{
	return box_at(t, s, t->numbers + p->first);
}

/* Returns how many elements of an equal state each rank has room for. */
static uint64_t share_of(const struct table *t, const struct table_state *s)
{
	return u64_div_ceil(t->tensors[s->tensor].numel, s->n);
}

/* BYTES_MAX_SHIFT: elements of 8 bytes have less than 2^62 bytes in all */
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

/* Makes room for one more element in an array of n, whose pointer is at `array`.  The room is
 * 16, and doubles at each power of two, so that n alone says it.
 */
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

/* Adds a text to strings; returns its place there, or -errno. */
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

/* Adds n numbers; returns the place of the first, or -errno. */
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
						   .mtime = st->st_mtim,
						   .changed_ns = timespec_ns(&st->st_mtim) };
	return (int)t->nfiles++;
}

int table_need_ranks(struct table *t, uint32_t nranks)
{
	if (nranks > TABLE_RANKS_MAX)
		return table_refuse(t, -EINVAL, "%u ranks are too many", nranks);
	t->nranks = nranks > t->nranks ? nranks : t->nranks;
	return 0;
}

/* Checks that count elements from base on are in the file, and notes the rank.
 * -EINVAL: the file is shorter, or the rank too high.
 */
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
		if (!s->shape[d]) { /* the other dimensions may be of any size */
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

/* Returns the number of a key, which is added if it is new, or -errno. */
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

/* Adds a state fp32 with the pieces of the state `of`. */
static int widen(struct table *t, const struct table_state *of)
{
	struct table_state s = *of;

	s.shown = FRAG_F32;
	return append_row(t, "fp32", s);
}

int table_add_widened(struct table *t)
{
	struct table_state newest = t->states[t->nstates - 1];

	return widen(t, &newest);
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

int table_add_whole(struct table *t, uint32_t file)
{
	int flat, rc;

	if (t->whole.stored)
		return 0;
	flat = table_add_flat(t, FRAG_U8);
	if (flat < 0)
		return flat;
	rc = table_add_segment(t, file, 0, 0, t->files[file].size);
	if (rc)
		return rc;
	t->whole = (struct table_state){ .kind = TABLE_FLAT,
					 .tensor = TABLE_NONE,
					 .first = (uint32_t)flat,
					 .stored = FRAG_U8,
					 .shown = FRAG_U8 };
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
	one_line_put(t->notes, line ? line : "?");
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

/* ---- finding ---- */

/* Returns the tensor that has the states: for an alias, the tensor that it names. */
static const struct table_tensor *own(const struct table *t, uint32_t tensor)
{
	const struct table_tensor *x = &t->tensors[tensor];

	return x->alias == TABLE_NONE ? x : &t->tensors[x->alias];
}

const struct table_state *table_states(const struct table *t, uint32_t tensor, uint32_t *n)
{
	const struct table_tensor *x = own(t, tensor);

	*n = x->nstates;
	return t->states + x->states;
}

const struct table_state *table_find_state(const struct table *t, uint32_t tensor,
					   const char *key)
{
	uint32_t n;
	const struct table_state *s = table_states(t, tensor, &n);

	for (; n; n--, s++)
		if (!strcmp(t->keys[s->key], key))
			return s;
	return NULL;
}

const struct table_state *table_copies(const struct table *t, uint32_t tensor, uint32_t *n)
{
	const struct table_tensor *x = own(t, tensor);

	*n = x->ncopies;
	return t->states + x->states + x->nstates;
}

const struct table_partition *table_partitions(const struct table *t, uint32_t rank,
					       uint32_t group, uint32_t sub, uint32_t *n)
{
	const struct table_partition *all = t->partitions;
	uint64_t first = LOWER_BOUND(t->npartitions, i,
				     compare_partition(&all[i], rank, group, sub) < 0);

	for (*n = 0; first + *n < t->npartitions; ++*n)
		if (compare_partition(&all[first + *n], rank, group, sub))
			break;
	return all + first;
}

uint64_t table_numel(const struct table *t, const struct table_state *s)
{
	if (s->scalar)
		return 1;
	return s->tensor == TABLE_NONE ? t->flats[s->first].count : t->tensors[s->tensor].numel;
}

static bool ends_before(const struct table_entry *e, uint32_t file, uint64_t at)
{
	return e->file < file || (e->file == file && e->at + e->size <= at);
}

const struct table_entry *table_find_entry(const struct table *t, uint32_t file, uint64_t at)
{
	uint64_t i = LOWER_BOUND(t->nentries, k, ends_before(&t->entries[k], file, at));

	return i < t->nentries ? &t->entries[i] : NULL;
}

/* ---- walking ---- */

struct runs_walk {
	const struct table *table;
	const struct table_state *state;
	uint64_t first, end; /* elements of the state */
	size_t size;         /* of an element */
	table_see see;
	void *arg;
};

/* Calls see for the part of a run that lies in [w->first, w->end). */
static int see_part(const struct runs_walk *w, struct table_run run)
{
	uint64_t skip = w->first > run.first ? w->first - run.first : 0;

	if (skip >= run.count || run.first >= w->end)
		return 0;
	run.base += skip * w->size;
	run.first += skip;
	run.count = u64_min(run.count - skip, w->end - run.first);
	return w->see(w->arg, &run);
}

/* Walks elements [from, to) of n pieces in order; `from` is element `first` of the state. */
static int walk_pieces(const struct runs_walk *w, const struct table_piece *p, uint32_t n,
		       uint64_t from, uint64_t to, uint64_t first)
{
	uint64_t i = LOWER_BOUND(n, k, p[k].first + p[k].count <= from);
	int rc = 0;

	for (; i < n && p[i].first < to && !rc; i++) {
		uint64_t begin = u64_max(from, p[i].first);
		uint64_t end = u64_min(to, p[i].first + p[i].count);
		uint64_t base = p[i].base + (begin - p[i].first) * w->size;

		rc = see_part(w, (struct table_run){ p[i].file, p[i].rank, base,
						     first + begin - from, end - begin, NULL });
	}
	return rc;
}

static int walk_boxes(const struct runs_walk *w)
{
	const struct table_piece *p = w->table->pieces + w->state->first;
	int rc = 0;

	for (uint32_t i = 0; i < w->state->n && !rc; i++, p++) {
		struct box b = piece_box(w->table, w->state, p);
		uint64_t from = box_below(&b, w->first), to = box_below(&b, w->end);
		struct table_run run = { p->file, p->rank,   p->base + from * w->size,
					 from,    to - from, b.offsets };

		if (from < to)
			rc = w->see(w->arg, &run);
	}
	return rc;
}

/* Walks elements [from, to) of a vector; `from` is element `first` of the state. */
static int walk_flat(const struct runs_walk *w, uint32_t flat, uint64_t from, uint64_t to,
		     uint64_t first)
{
	const struct table_flat *f = &w->table->flats[flat];

	return walk_pieces(w, w->table->segments + f->first, f->n, from, to, first);
}

static int walk_shard(const struct runs_walk *w, uint32_t shard)
{
	const struct table_state *s = w->state;
	uint64_t share = share_of(w->table, s), first = shard * share;
	uint64_t numel = w->table->tensors[s->tensor].numel;

	if (first >= numel)
		return 0;
	return walk_flat(w, s->first + shard, s->start,
			 s->start + u64_min(share, numel - first), first);
}

static int walk_equal(const struct runs_walk *w)
{
	uint64_t share = share_of(w->table, w->state);
	int rc = 0;

	for (uint64_t i = w->first / share; i * share < w->end && !rc; i++)
		rc = walk_shard(w, (uint32_t)i);
	return rc;
}

int table_walk(const struct table *t, const struct table_state *s, uint64_t first,
	       uint64_t count, table_see see, void *arg)
{
	struct runs_walk w = {
		t, s, first, first + count, frag_dtype_size(s->stored), see, arg
	};

	assert(w.end <= table_numel(t, s));
	if (!count)
		return 0;
	switch ((enum table_kind)s->kind) {
	case TABLE_INTERVALS:
		return walk_pieces(&w, t->pieces + s->first, s->n, first, w.end, first);
	case TABLE_BOXES:
		return walk_boxes(&w);
	case TABLE_FLAT:
		return walk_flat(&w, s->first, s->start + first, s->start + w.end, first);
	default:
		return walk_equal(&w);
	}
}

/* ---- what a rank holds ---- */

struct filter {
	uint32_t rank;
	table_see see;
	void *arg;
};

static int see_rank(void *arg, const struct table_run *run)
{
	const struct filter *f = arg;

	return run->rank == f->rank ? f->see(f->arg, run) : 0;
}

int table_walk_rank(const struct table *t, const struct table_state *s, uint32_t rank,
		    table_see see, void *arg)
{
	uint64_t numel = table_numel(t, s);
	struct runs_walk w = { t, s, 0, numel, frag_dtype_size(s->stored), see, arg };
	struct filter filter = { rank, see, arg };

	if (s->kind == TABLE_EQUAL && numel) {
		const struct table_flat *f = &t->flats[s->first];
		uint32_t first = f->n ? t->segments[f->first].rank : 0;

		return rank < first || rank - first >= s->n ? 0 : walk_shard(&w, rank - first);
	}
	return table_walk(t, s, 0, numel, see_rank, &filter);
}

static int add_count(void *arg, const struct table_run *run)
{
	*(uint64_t *)arg += run->count;
	return 0;
}

uint64_t table_rank_count(const struct table *t, const struct table_state *s, uint32_t rank)
{
	uint64_t count = 0;

	table_walk_rank(t, s, rank, add_count, &count);
	return count;
}

/* ---- all ---- */

static bool is_whole(const struct table *t, uint32_t flat)
{
	return t->whole.stored && flat == t->whole.first;
}

uint64_t table_bytes(const struct table *t)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < t->nflats; i++)
		/* not t->whole: the states in its file are counted */
		for (uint32_t k = 0; k < t->flats[i].n && !is_whole(t, i); k++)
			bytes += t->segments[t->flats[i].first + k].count *
				 frag_dtype_size(t->flats[i].dtype);
	for (uint32_t i = 0; i < t->nstates; i++) {
		const struct table_state *s = &t->states[i];

		/* a widened state shares the pieces of the stored one */
		if ((s->kind == TABLE_INTERVALS || s->kind == TABLE_BOXES) &&
		    s->shown == s->stored)
			bytes += table_numel(t, s) * frag_dtype_size(s->stored);
	}
	return bytes;
}

/* The most comparisons of boxes with each other, over all states.  A mesh of ranks needs far
 * fewer.
 */
enum { COMPARISONS_MAX = 1 << 26 };

static int refuse_state(struct table *t, const struct table_state *s, const char *what)
{
	return table_refuse(t, -EINVAL, "%.150s: %s %s",
			    table_string(t, t->tensors[s->tensor].name), t->keys[s->key], what);
}

/* ---- every element once ---- */

static int compare_pieces(const void *a, const void *b)
{
	const struct table_piece *p = a, *q = b;

	return (p->first > q->first) - (p->first < q->first);
}

static int check_intervals(struct table *t, const struct table_state *s)
{
	struct table_piece *p = s->n ? t->pieces + s->first : NULL;
	uint64_t at = 0, numel = table_numel(t, s);

	if (s->n)
		qsort(p, s->n, sizeof(*p), compare_pieces);
	for (uint32_t i = 0; i < s->n; i++) {
		if (p[i].first > at)
			return refuse_state(t, s, "has a hole");
		if (p[i].first < at)
			return refuse_state(t, s, "has elements twice");
		if (!u64_add(at, p[i].count, &at))
			return -EINVAL;
	}
	if (at > numel)
		return refuse_state(t, s, "has more elements than its shape");
	return at < numel ? refuse_state(t, s, "has fewer elements than its shape") : 0;
}

/* Turns a state's boxes into intervals if each has adjacent elements, as shards of the first
 * dimension have.  Returns false if one has not.
 */
static bool make_intervals(struct table *t, struct table_state *s)
{
	struct table_piece *p = t->pieces + s->first;
	uint64_t run;

	for (uint32_t i = 0; i < s->n; i++) {
		struct box b = piece_box(t, s, &p[i]);

		if (!box_is_interval(&b))
			return false;
	}
	for (uint32_t i = 0; i < s->n; i++) {
		struct box b = piece_box(t, s, &p[i]);

		p[i].first = box_element(&b, 0, &run);
	}
	s->kind = TABLE_INTERVALS;
	return true;
}

static int compare_boxes(const void *a, const void *b, void *arg)
{
	const uint64_t *numbers = arg;
	uint64_t p = numbers[((const struct table_piece *)a)->first];
	uint64_t q = numbers[((const struct table_piece *)b)->first];

	return (p > q) - (p < q);
}

/* Boxes that are inside the shape, disjoint, and have as many elements as it has, cover it. */
static int check_boxes(struct table *t, const struct table_state *s, uint64_t *comparisons)
{
	struct table_piece *p = t->pieces + s->first;
	uint64_t total = 0;

	qsort_r(p, s->n, sizeof(*p), compare_boxes, t->numbers);
	for (uint32_t i = 0; i < s->n; i++) {
		struct box a = piece_box(t, s, &p[i]);

		if (!u64_add(total, p[i].count, &total))
			return -EINVAL;
		for (uint32_t j = i + 1; j < s->n; j++) {
			struct box b = piece_box(t, s, &p[j]);

			/* sorted by their first offsets: no later box overlaps a */
			if (b.offsets[0] >= a.offsets[0] + a.sizes[0])
				break;
			if (++*comparisons > COMPARISONS_MAX)
				return refuse_state(t, s, "is cut into too many pieces");
			if (box_overlaps(&a, &b))
				return refuse_state(t, s, "has elements twice");
		}
	}
	return total == t->tensors[s->tensor].numel ? 0 : refuse_state(t, s, "has a hole");
}

static int check_flat(struct table *t, const struct table_state *s)
{
	uint64_t end;

	if (!u64_add(s->start, t->tensors[s->tensor].numel, &end) ||
	    end > t->flats[s->first].count)
		return refuse_state(t, s, "is longer than what the ranks' files hold");
	return 0;
}

/* Checks that the ranks' vectors are alike and in order, once for all states that are cut out
 * of them.
 */
static int check_shards(struct table *t, const struct table_state *s)
{
	struct table_flat *f = t->flats + s->first;
	uint32_t rank = f->n ? t->segments[f->first].rank : 0;
	uint64_t least = f->count;

	for (uint32_t i = 0; i < s->n; i++) {
		least = u64_min(least, f[i].count);
		if (f[i].dtype != f->dtype)
			return refuse_state(t, s, "has another dtype on another rank");
		for (uint32_t j = 0; j < f[i].n; j++)
			if (t->segments[f[i].first + j].rank != rank + i)
				return refuse_state(t, s, "has its ranks in another order");
	}
	f->least = least;
	f->of = s->n;
	return 0;
}

static int check_equal(struct table *t, const struct table_state *s)
{
	struct table_flat *f = t->flats + s->first;
	uint64_t end;
	int rc = f->of == s->n ? 0 : check_shards(t, s);

	if (rc)
		return rc;
	if (!u64_add(s->start, share_of(t, s), &end) || end > f->least)
		return refuse_state(t, s, "is longer than what a rank's file holds");
	return 0;
}

static int check_states(struct table *t)
{
	uint64_t comparisons = 0;
	int rc = 0;

	for (uint32_t i = 0; i < t->nstates && !rc; i++) {
		struct table_state *s = &t->states[i];

		if (s->kind == TABLE_FLAT)
			rc = check_flat(t, s);
		else if (s->kind == TABLE_EQUAL)
			rc = check_equal(t, s);
		else if (s->kind == TABLE_BOXES && !make_intervals(t, s))
			rc = check_boxes(t, s, &comparisons);
		else
			rc = check_intervals(t, s);
	}
	return rc;
}

/* ---- zip entries ---- */

static int compare_entries(const void *a, const void *b)
{
	const struct table_entry *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

static bool is_same(const struct table_entry *a, const struct table_entry *b)
{
	return a->file == b->file && a->at == b->at && a->size == b->size &&
	       a->crc_in_directory == b->crc_in_directory &&
	       a->crc_in_descriptor == b->crc_in_descriptor;
}

static bool touches_data(const struct table *t, uint32_t file, uint64_t crc)
{
	const struct table_entry *e = table_find_entry(t, file, crc);

	return e && e->file == file && e->at < crc + CRC_BYTES;
}

static int check_entry(struct table *t, const struct table_entry *e)
{
	const char *name = t->files[e->file].name;

	if (e + 1 < t->entries + t->nentries && e[1].file == e->file &&
	    e->at + e->size > e[1].at)
		return table_refuse(t, -EINVAL, "%s: two entries overlap", name);
	if (touches_data(t, e->file, e->crc_in_directory) ||
	    (e->crc_in_descriptor && touches_data(t, e->file, e->crc_in_descriptor)))
		return table_refuse(t, -EINVAL, "%s: an entry has its CRC among data", name);
	return 0;
}

static int finish_entries(struct table *t)
{
	uint32_t n = 0;
	int rc = 0;

	if (t->nentries)
		qsort(t->entries, t->nentries, sizeof(*t->entries), compare_entries);
	for (uint32_t i = 0; i < t->nentries; i++)
		if (!n || !is_same(&t->entries[n - 1], &t->entries[i]))
			t->entries[n++] = t->entries[i];
	t->nentries = n;
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = check_entry(t, &t->entries[i]);
	return rc;
}

/* ---- fp32 where there is no master ---- */

/* Returns true if the state is to be shown as fp32 too.  A buffer's integers are counts, of no
 * use as float32.
 */
static bool widens(const struct table_tensor *x, const struct table_state *own)
{
	return !dtype_convert(FRAG_F32, NULL, own->stored, NULL, 0) &&
	       (!x->buffer || dtype_is_float(own->stored));
}

/* Adds fp32, made of the model's own copy, to tensors without it.  The states of a tensor are
 * adjacent.
 */
static int widen_states(struct table *t)
{
	uint32_t n = t->nstates, end;
	int rc = 0;

	for (uint32_t i = 0; i < n && rc >= 0; i = end) {
		const struct table_state *own = NULL;
		const struct table_tensor *x = &t->tensors[t->states[i].tensor];
		bool master = false;

		for (end = i; end < n && t->states[end].tensor == t->states[i].tensor; end++) {
			const char *key = t->keys[t->states[end].key];

			master |= !strcmp(key, "fp32");
			if (!strcmp(key, dtype_lp_key(x->dtype)))
				own = &t->states[end];
		}
		if (!master && own && widens(x, own))
			rc = widen(t, own);
	}
	return rc < 0 ? rc : 0;
}

/* ---- order ---- */

static int compare_states(const void *a, const void *b, void *arg)
{
	const struct table_state *s = a, *o = b;
	const struct table *t = arg;

	if (s->tensor != o->tensor)
		return s->tensor < o->tensor ? -1 : 1;
	if (s->copy != o->copy)
		return s->copy ? 1 : -1;
	return strcmp(t->keys[s->key], t->keys[o->key]);
}

static int sort_states(struct table *t)
{
	if (t->nstates)
		qsort_r(t->states, t->nstates, sizeof(*t->states), compare_states, t);
	for (uint32_t i = 0; i < t->nstates; i++) {
		const struct table_state *s = &t->states[i];
		struct table_tensor *x = &t->tensors[s->tensor];

		if (!x->nstates && !x->ncopies)
			x->states = i;
		if (s->copy) {
			x->ncopies++;
			continue;
		}
		if (i && s[-1].tensor == s->tensor && s[-1].key == s->key)
			return refuse_state(t, s, "is there twice");
		x->nstates++;
	}
	return 0;
}

static int compare_tensors(const void *a, const void *b, void *arg)
{
	const struct table *t = arg;
	const struct table_tensor *x = &t->tensors[*(const uint32_t *)a];
	const struct table_tensor *y = &t->tensors[*(const uint32_t *)b];
	int order = strcmp(table_string(t, x->name), table_string(t, y->name));

	return order ? order
		     : strcmp(table_string(t, x->coordinate), table_string(t, y->coordinate));
}

static int check_names(struct table *t)
{
	CLEANUP(free) uint32_t *by = calloc((size_t)t->ntensors + 1, sizeof(*by));

	if (!by)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->ntensors; i++)
		by[i] = i;
	qsort_r(by, t->ntensors, sizeof(*by), compare_tensors, t);
	for (uint32_t i = 1; i < t->ntensors; i++) {
		if (!compare_tensors(&by[i - 1], &by[i], t))
			return table_refuse(t, -EINVAL, "two tensors have the name %.150s",
					    table_string(t, t->tensors[by[i]].name));
	}
	return 0;
}

/* Numbers the tensors: parameters first, then buffers, each in the source's order. */
static int number(struct table *t)
{
	uint32_t n = 0;

	t->shown = calloc((size_t)t->ntensors + 1, sizeof(*t->shown));
	if (!t->shown)
		return -ENOMEM;
	for (int buffers = 0; buffers < 2; buffers++) {
		for (uint32_t i = 0; i < t->ntensors; i++) {
			if (t->tensors[i].buffer != buffers)
				continue;
			t->tensors[i].shown = n;
			t->shown[n++] = i;
		}
		if (!buffers)
			t->nparams = n;
	}
	return 0;
}

/* Tensors were added part by part, so each part's numbers are consecutive. */
static void finish_parts(struct table *t)
{
	uint32_t params = 0, buffers = t->nparams;

	for (uint32_t i = 0; i < t->ntensors && t->nparts; i++) {
		struct table_part *p = &t->parts[t->tensors[i].part];

		t->tensors[i].buffer ? p->nbuffers++ : p->nparams++;
	}
	for (uint32_t i = 0; i < t->nparts; i++) {
		struct table_part *p = &t->parts[i], *next = i + 1 < t->nparts ? p + 1 : NULL;

		p->params = params;
		p->buffers = buffers;
		params += p->nparams;
		buffers += p->nbuffers;
		p->ngroups = (next ? next->groups : t->ngroups) - p->groups;
		p->nranks = (next ? next->ranks : t->nranks) - p->ranks;
	}
}

static int compare_hypers(const void *a, const void *b)
{
	return strcmp(((const struct table_hyper *)a)->name,
		      ((const struct table_hyper *)b)->name);
}

static int finish_groups(struct table *t)
{
	/* an alias has the group and the position of its tensor, which alone is a member */
	for (uint32_t i = 0; i < t->ntensors; i++) {
		struct table_tensor *x = &t->tensors[i];

		if (x->alias == TABLE_NONE)
			continue;
		x->group = t->tensors[x->alias].group;
		x->position = t->tensors[x->alias].position;
	}
	for (uint32_t i = 0; i < t->ngroups; i++) {
		struct table_group *g = &t->groups[i];

		for (uint32_t j = 0; j < g->nparams; j++) {
			if (t->tensors[g->params[j]].buffer)
				return table_refuse(t, -EINVAL, "group %u has a buffer in it",
						    i);
			g->params[j] = t->tensors[g->params[j]].shown;
		}
		if (g->nhypers)
			qsort(g->hypers, g->nhypers, sizeof(*g->hypers), compare_hypers);
	}
	return 0;
}

static int compare_partitions(const void *a, const void *b, void *arg)
{
	const struct table_partition *p = a, *q = b;
	const struct table *t = arg;
	int order = compare_partition(p, q->rank, q->group, q->sub);

	return order ? order : strcmp(t->keys[p->state.key], t->keys[q->state.key]);
}

static int sort_partitions(struct table *t)
{
	if (t->npartitions)
		qsort_r(t->partitions, t->npartitions, sizeof(*t->partitions),
			compare_partitions, t);
	for (uint32_t i = 1; i < t->npartitions; i++)
		if (!compare_partitions(&t->partitions[i - 1], &t->partitions[i], t))
			return table_refuse(t, -EINVAL, "a partition of rank %u has %s twice",
					    t->partitions[i].rank,
					    t->keys[t->partitions[i].state.key]);
	return 0;
}

static int finish_notes(struct table *t)
{
	bool failed;

	if (t->nskipped > TABLE_NOTES_MAX)
		fprintf(t->notes, "skipped %u more\n", t->nskipped - TABLE_NOTES_MAX);
	failed = ferror(t->notes); /* there was no memory for the text */
	failed |= fclose(t->notes) != 0;
	t->notes = NULL;
	return failed ? -ENOMEM : 0;
}

int table_finish(struct table *t)
{
	int rc = check_states(t);

	if (!rc)
		rc = widen_states(t);
	if (!rc)
		rc = sort_states(t);
	if (!rc)
		rc = finish_entries(t);
	if (!rc)
		rc = check_names(t);
	if (!rc)
		rc = number(t);
	if (!rc)
		finish_parts(t);
	if (!rc)
		rc = finish_groups(t);
	if (!rc)
		rc = sort_partitions(t);
	if (!rc)
		rc = finish_notes(t);
	t->finished = !rc;
	return rc;
}

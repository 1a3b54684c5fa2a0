/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/table/table-internal.h"

#include <errno.h>
#include <string.h>

/* Comparisons of boxes with each other, over all states: what a mesh of ranks needs is far
 * below.
 */
enum { COMPARISONS_MAX = 1 << 26, CRC_BYTES = 4 };

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

/* Boxes whose elements are neighbours, as those of one dimension's shards, are intervals. */
static bool make_intervals(struct table *t, struct table_state *s)
{
	struct table_piece *p = t->pieces + s->first;
	uint64_t run;

	for (uint32_t i = 0; i < s->n; i++) {
		struct box b = table_piece_box(t, s, &p[i]);

		if (!box_is_interval(&b))
			return false;
	}
	for (uint32_t i = 0; i < s->n; i++) {
		struct box b = table_piece_box(t, s, &p[i]);

		p[i].first = box_element(&b, 0, &run);
	}
	s->kind = TABLE_INTERVALS;
	return true;
}

struct sorting {
	const struct table *table;
	const struct table_state *state;
};

static int compare_boxes(const void *a, const void *b, void *arg)
{
	const uint64_t *numbers = ((const struct sorting *)arg)->table->numbers;
	uint64_t p = numbers[((const struct table_piece *)a)->first];
	uint64_t q = numbers[((const struct table_piece *)b)->first];

	return (p > q) - (p < q);
}

/* Boxes that are inside, apart from each other and together as many as the shape has cover it.
 */
static int check_boxes(struct table *t, const struct table_state *s, uint64_t *comparisons)
{
	struct table_piece *p = t->pieces + s->first;
	struct sorting sorting = { t, s };
	uint64_t total = 0;

	qsort_r(p, s->n, sizeof(*p), compare_boxes, &sorting);
	for (uint32_t i = 0; i < s->n; i++) {
		struct box a = table_piece_box(t, s, &p[i]);

		if (!u64_add(total, p[i].count, &total))
			return -EINVAL;
		for (uint32_t j = i + 1; j < s->n; j++) {
			struct box b = table_piece_box(t, s, &p[j]);

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
	if (!u64_add(s->start, table_share(t, s), &end) || end > f->least)
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

/* A buffer's integers count something: they have no use as float32. */
static bool widens(const struct table_tensor *x, const struct table_state *own)
{
	return !dtype_convert(FRAG_F32, NULL, own->stored, NULL, 0) &&
	       (!x->buffer || dtype_is_float(own->stored));
}

/* Adds fp32 to tensors without it, made of the model's own copy.  The states of a tensor stand
 * together.
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
			rc = table_widen(t, own);
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

/* Parameters first, then buffers, each in the source's order. */
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

/* Tensors were added part by part, so that each part's numbers are neighbours. */
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
	/* An alias has the group of the other name, which alone is a member, and its place. */
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
	int order = table_compare_partition(p, q->rank, q->group, q->sub);

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
	failed = ferror(t->notes); /* no memory for the text */
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

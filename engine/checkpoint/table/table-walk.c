/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-internal.h"

#include <string.h>

/* ---- finding ---- */

/* Returns the tensor that has the states: the other one of an alias. */
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
				     table_compare_partition(&all[i], rank, group, sub) < 0);

	for (*n = 0; first + *n < t->npartitions; ++*n)
		if (table_compare_partition(&all[first + *n], rank, group, sub))
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

struct walk {
	const struct table *table;
	const struct table_state *state;
	uint64_t first, end; /* elements of the state */
	size_t size;         /* of one */
	table_see see;
	void *arg;
};

/* The part of a piece, `count` elements from `first` on, that is walked. */
static int see_part(const struct walk *w, struct table_run run)
{
	uint64_t skip = w->first > run.first ? w->first - run.first : 0;

	if (skip >= run.count || run.first >= w->end)
		return 0;
	run.base += skip * w->size;
	run.first += skip;
	run.count = u64_min(run.count - skip, w->end - run.first);
	return w->see(w->arg, &run);
}

/* Elements [from, to) of n pieces in order, which are those from `first` on of the state. */
static int walk_pieces(const struct walk *w, const struct table_piece *p, uint32_t n,
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

static int walk_boxes(const struct walk *w)
{
	const struct table_piece *p = w->table->pieces + w->state->first;
	int rc = 0;

	for (uint32_t i = 0; i < w->state->n && !rc; i++, p++) {
		struct box b = table_piece_box(w->table, w->state, p);
		uint64_t from = box_below(&b, w->first), to = box_below(&b, w->end);
		struct table_run run = { p->file, p->rank,   p->base + from * w->size,
					 from,    to - from, b.offsets };

		if (from < to)
			rc = w->see(w->arg, &run);
	}
	return rc;
}

/* Elements [from, to) of a vector, which are those from `first` on of the state. */
static int walk_flat(const struct walk *w, uint32_t flat, uint64_t from, uint64_t to,
		     uint64_t first)
{
	const struct table_flat *f = &w->table->flats[flat];

	return walk_pieces(w, w->table->segments + f->first, f->n, from, to, first);
}

static int walk_shard(const struct walk *w, uint32_t shard)
{
	const struct table_state *s = w->state;
	uint64_t share = table_share(w->table, s), first = shard * share;
	uint64_t numel = w->table->tensors[s->tensor].numel;

	if (first >= numel)
		return 0;
	return walk_flat(w, s->first + shard, s->start,
			 s->start + u64_min(share, numel - first), first);
}

static int walk_equal(const struct walk *w)
{
	uint64_t share = table_share(w->table, w->state);
	int rc = 0;

	for (uint64_t i = w->first / share; i * share < w->end && !rc; i++)
		rc = walk_shard(w, (uint32_t)i);
	return rc;
}

int table_walk(const struct table *t, const struct table_state *s, uint64_t first,
	       uint64_t count, table_see see, void *arg)
{
	struct walk w = { t, s, first, first + count, frag_dtype_size(s->stored), see, arg };

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
	struct walk w = { t, s, 0, numel, frag_dtype_size(s->stored), see, arg };
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

uint64_t table_bytes(const struct table *t)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < t->nflats; i++)
		for (uint32_t k = 0; k < t->flats[i].n; k++)
			bytes += t->segments[t->flats[i].first + k].count *
				 frag_dtype_size(t->flats[i].dtype);
	for (uint32_t i = 0; i < t->nstates; i++) {
		const struct table_state *s = &t->states[i];

		/* A widened state has its pieces from the stored one. */
		if ((s->kind == TABLE_INTERVALS || s->kind == TABLE_BOXES) &&
		    s->shown == s->stored)
			bytes += table_numel(t, s) * frag_dtype_size(s->stored);
	}
	return bytes;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/arena-internal.h"
#include "engine/base/vec.h"

#include <errno.h>

/* A part of the range, block or hole, with the sums over the parts before it. */
struct plan_item {
	uint32_t block;
	uint32_t pinned_before;
	uint64_t used_before, free_before;
};

struct plan_items {
	struct plan_item *items; /* n, and one more, with the sums over all parts */
	uint32_t n;
};

/* [start, start + want) and the items it touches. */
struct plan_window {
	uint64_t start, cost;
	uint32_t first, last;
};

struct plan_windows {
	struct plan_window cheapest[ARENA_WINDOWS];
	unsigned n;
};

static const struct arena_block *part(const struct arena *a, const struct plan_items *s,
				      uint32_t i)
{
	return &a->blocks[s->items[i].block];
}

static bool is_hole(const struct arena *a, const struct plan_items *s, uint32_t i)
{
	return part(a, s, i)->kind == ARENA_HOLE;
}

static int list_items(const struct arena *a, struct plan_items *s)
{
	struct plan_item sum = { 0 };

	s->items = malloc((a->nblocks + a->nholes + 1) * sizeof(*s->items));
	if (!s->items)
		return -ENOMEM;
	s->n = 0;
	for (uint32_t at = a->first; at != ARENA_NONE; at = a->blocks[at].next) {
		const struct arena_block *b = &a->blocks[at];

		sum.block = at;
		s->items[s->n++] = sum;
		sum.pinned_before += b->pins != 0;
		*(b->kind == ARENA_HOLE ? &sum.free_before : &sum.used_before) += b->size;
	}
	s->items[s->n] = sum;
	return 0;
}

/* ---- what to do ---- */

static int add_move(struct arena *a, uint32_t block, uint64_t to)
{
	struct arena_plan *p = &a->plan;
	struct arena_block *b = &a->blocks[block];

	if (!vec_grow(&p->moves, p->nmoves, &p->allocated, sizeof(*p->moves)))
		return -ENOMEM;
	p->moves[p->nmoves++] =
		(struct arena_move){ arena_handle_of(a, block), b->start, to, b->size };
	p->units += b->size;
	b->planned = true;
	return 0;
}

static void forget_all(struct arena *a)
{
	arena_plan_forget(a);
	a->plan.nmoves = 0;
	a->plan.units = 0;
}

static int begin_plan(struct arena *a, struct plan_items *s)
{
	struct arena_plan *p = &a->plan;

	if (p->active)
		return -EBUSY;
	p->nmoves = p->done = 0;
	p->units = p->minimum = 0;
	return list_items(a, s);
}

static int end_plan(struct arena *a, struct plan_items *s, int rc)
{
	if (rc || !a->plan.nmoves)
		forget_all(a);
	free(s->items);
	return rc;
}

/* Slides the blocks among items [first, last] down into the holes there, none past a pinned
 * one.
 */
static int slide(struct arena *a, const struct plan_items *s, uint32_t first, uint32_t last)
{
	uint64_t room = 0;
	int rc = 0;

	a->plan.active = true;
	for (uint32_t i = first; i <= last && !rc; i++) {
		const struct arena_block *b = part(a, s, i);

		if (b->kind == ARENA_HOLE) {
			room += b->size;
			arena_turn(a, s->items[i].block, ARENA_CLEARED);
		} else if (b->pins) {
			room = 0;
		} else if (room) {
			rc = add_move(a, s->items[i].block, b->start - room);
		}
	}
	return rc;
}

int arena_plan_pack(struct arena *a)
{
	struct plan_items s;
	int rc = begin_plan(a, &s);

	if (rc)
		return rc;
	rc = slide(a, &s, 0, s.n - 1);
	a->plan.minimum = a->plan.units;
	return end_plan(a, &s, rc);
}

/* ---- a run of neighbours ---- */

struct hole_run {
	uint32_t first, last; /* holes */
	uint64_t cost;        /* UINT64_MAX: there is none */
};

/* Finds the run of neighbours, without a pinned block, whose holes are enough and whose blocks
 * have the fewest units.
 */
static struct hole_run cheapest_run(const struct arena *a, const struct plan_items *s,
				    uint64_t want)
{
	struct hole_run best = { .cost = UINT64_MAX };
	uint32_t first = 0;

	for (uint32_t last = 0; last < s->n; last++) {
		const struct plan_item *end = &s->items[last + 1];

		if (part(a, s, last)->pins)
			first = last + 1;
		if (!is_hole(a, s, last))
			continue;
		while (!is_hole(a, s, first) ||
		       (first < last &&
			end->free_before - s->items[first + 1].free_before >= want))
			first++;
		if (end->free_before - s->items[first].free_before < want ||
		    end->used_before - s->items[first].used_before >= best.cost)
			continue;
		best.cost = end->used_before - s->items[first].used_before;
		best.first = first;
		best.last = last;
	}
	return best;
}

/* ---- windows ---- */

static void keep_if_cheap(struct plan_windows *w, const struct plan_window *window)
{
	unsigned at = w->n;

	while (at && w->cheapest[at - 1].cost > window->cost)
		at--;
	if (at == ARENA_WINDOWS)
		return;
	if (w->n < ARENA_WINDOWS)
		w->n++;
	for (unsigned i = w->n - 1; i > at; i--)
		w->cheapest[i] = w->cheapest[i - 1];
	w->cheapest[at] = *window;
}

static void weigh(const struct plan_items *s, struct plan_windows *w, uint64_t start,
		  uint32_t first, uint32_t last)
{
	const struct plan_item *from = &s->items[first], *to = &s->items[last + 1];
	struct plan_window window = { start, to->used_before - from->used_before, first, last };

	if (to->pinned_before == from->pinned_before)
		keep_if_cheap(w, &window);
}

/* A window touches the least when it begins where a part does: further down it begins in the
 * part before, further up it touches more above.  Windows that end where a part does leave
 * other places to move to.
 */
static void list_windows(const struct arena *a, const struct plan_items *s, uint64_t want,
			 struct plan_windows *w)
{
	uint32_t first = 0, last = 0;

	w->n = 0;
	for (uint32_t i = 0; i < s->n && part(a, s, i)->start <= a->size - want; i++) {
		while (arena_end_of(part(a, s, last)) < part(a, s, i)->start + want)
			last++;
		weigh(s, w, part(a, s, i)->start, i, last);
	}
	for (uint32_t i = 0; i < s->n; i++) {
		uint64_t top = arena_end_of(part(a, s, i));

		if (top < want)
			continue;
		while (arena_end_of(part(a, s, first)) <= top - want)
			first++;
		weigh(s, w, top - want, first, i);
	}
}

/* Clears the part of the hole that lies in the window. */
static int clear_hole(struct arena *a, uint32_t hole, uint64_t from, uint64_t to)
{
	uint64_t start = a->blocks[hole].start;
	uint32_t below;

	if (start < from && arena_cut(a, hole, from - start, ARENA_HOLE, &below))
		return -ENOMEM;
	if (arena_end_of(&a->blocks[hole]) <= to) {
		arena_turn(a, hole, ARENA_CLEARED);
		return 0;
	}
	if (!arena_cut(a, hole, to - u64_max(start, from), ARENA_CLEARED, &below))
		return 0;
	arena_give_up(a, hole);
	return -ENOMEM;
}

/* A block on the window's edge slides out of the window where the hole beyond is large enough.
 * Returns 1 if it does.
 */
static int slide_out(struct arena *a, uint32_t block, uint64_t from, uint64_t to)
{
	const struct arena_block *b = &a->blocks[block];
	bool down = b->start < from;
	uint32_t hole = down ? b->prev : b->next;
	uint64_t least = down ? arena_end_of(b) - from : to - b->start;
	int rc;

	if ((!down && arena_end_of(b) <= to) || hole == ARENA_NONE ||
	    a->blocks[hole].kind != ARENA_HOLE || a->blocks[hole].size < least)
		return 0;
	arena_turn(a, hole, ARENA_CLEARED);
	rc = add_move(a, block,
		      down ? a->blocks[hole].start : arena_end_of(&a->blocks[hole]) - b->size);
	return rc ? rc : 1;
}

/* -EAGAIN: no hole has room for the block. */
static int move_out(struct arena *a, uint32_t block)
{
	uint64_t size = a->blocks[block].size;
	uint32_t target = arena_holes_best(a, size);
	int rc;

	if (target == ARENA_NONE)
		return -EAGAIN;
	if (a->blocks[target].size == size)
		arena_turn(a, target, ARENA_TARGET);
	else if (arena_cut(a, target, size, ARENA_TARGET, &target))
		return -ENOMEM;
	rc = add_move(a, block, a->blocks[target].start);
	if (!rc)
		a->blocks[block].target = target;
	return rc;
}

struct sized {
	uint64_t size;
	uint32_t block;
};

static int by_size_down(const void *x, const void *y)
{
	const struct sized *p = x, *q = y;

	return p->size < q->size ? 1 : p->size > q->size ? -1 : 0;
}

/* Best fit, the largest block first. */
static int move_all_out(struct arena *a, struct sized *blocks, uint32_t n)
{
	int rc = 0;

	qsort(blocks, n, sizeof(*blocks), by_size_down);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = move_out(a, blocks[i].block);
	return rc;
}

/* -EAGAIN: a block finds no place elsewhere. */
static int clear_window(struct arena *a, const struct plan_items *s,
			const struct plan_window *w, uint64_t want)
{
	CLEANUP(free) struct sized *blocks = malloc((w->last - w->first + 1) * sizeof(*blocks));
	uint32_t n = 0;
	int rc = blocks ? 0 : -ENOMEM;

	a->plan.active = true;
	for (uint32_t i = w->first; i <= w->last && !rc; i++)
		if (is_hole(a, s, i))
			rc = clear_hole(a, s->items[i].block, w->start, w->start + want);
	for (uint32_t i = w->first; i <= w->last && !rc; i++) {
		const struct arena_block *b = part(a, s, i);

		if (b->kind != ARENA_USED)
			continue;
		rc = slide_out(a, s->items[i].block, w->start, w->start + want);
		if (!rc)
			blocks[n++] = (struct sized){ b->size, s->items[i].block };
		else if (rc > 0)
			rc = 0;
	}
	return rc ? rc : move_all_out(a, blocks, n);
}

/* ---- the cheaper of both ---- */

/* Holes that clear_window cut and forget_all merged again may have other records. */
static void look_again(const struct arena *a, struct plan_items *s)
{
	uint32_t at = a->first;

	for (uint32_t i = 0; i < s->n; i++, at = a->blocks[at].next)
		s->items[i].block = at;
}

/* -EAGAIN: no window that costs less than limit can be cleared. */
static int try_windows(struct arena *a, struct plan_items *s, const struct plan_windows *w,
		       uint64_t want, uint64_t limit)
{
	for (unsigned i = 0; i < w->n && w->cheapest[i].cost < limit; i++) {
		int rc = clear_window(a, s, &w->cheapest[i], want);

		if (rc != -EAGAIN)
			return rc;
		forget_all(a);
		look_again(a, s);
	}
	return -EAGAIN;
}

static int choose(struct arena *a, struct plan_items *s, uint64_t want)
{
	struct hole_run run = cheapest_run(a, s, want);
	struct plan_windows windows;
	int rc;

	list_windows(a, s, want, &windows);
	a->plan.minimum = windows.n ? windows.cheapest[0].cost : run.cost;
	rc = try_windows(a, s, &windows, want, run.cost);
	if (rc != -EAGAIN)
		return rc;
	return run.cost == UINT64_MAX ? -EBUSY : slide(a, s, run.first, run.last);
}

int arena_plan(struct arena *a, uint64_t want)
{
	struct plan_items s;
	int rc;

	if (!want)
		return -EINVAL;
	/* in this order: rounding up the first want could overflow */
	if (want > arena_total_free(a) ||
	    u64_div_ceil(want, a->align) * a->align > arena_total_free(a))
		return -ENOSPC;
	rc = begin_plan(a, &s);
	if (rc)
		return rc;
	want = u64_div_ceil(want, a->align) * a->align;
	return end_plan(a, &s, arena_largest_contiguous(a) >= want ? 0 : choose(a, &s, want));
}

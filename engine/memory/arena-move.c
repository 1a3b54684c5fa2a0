/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/arena-internal.h"

#include <errno.h>

/* ---- the end of a plan ---- */

/* Lets the plan end behind the move that is under way, and keeps only the hole `keep` reserved.
 */
static void cut_short(struct arena *a, uint32_t keep)
{
	struct arena_plan *p = &a->plan;
	uint32_t last = p->done + p->moving;

	for (uint32_t i = last; i < p->nmoves; i++) {
		uint32_t block = arena_block_of(a, p->moves[i].block);

		if (block == ARENA_NONE)
			continue;
		a->blocks[block].planned = false;
		a->blocks[block].target = ARENA_NONE;
	}
	for (uint32_t at = a->first; at != ARENA_NONE && a->reserved; at = a->blocks[at].next)
		if (a->blocks[at].kind >= ARENA_CLEARED && at != keep)
			at = arena_give_up(a, at);
	p->nmoves = last;
	p->active = p->moving;
}

void arena_plan_forget(struct arena *a)
{
	assert(!a->plan.moving);
	cut_short(a, ARENA_NONE);
}

/* Returns the hole that the half-moved block moves into; ARENA_NONE: no block is half moved. */
static uint32_t hole_of_move(const struct arena *a)
{
	const struct arena_move *m;
	const struct arena_block *b;

	if (!a->plan.moving) /* the last move may be done: then no other is behind it */
		return ARENA_NONE;
	m = &a->plan.moves[a->plan.done];
	b = &a->blocks[(uint32_t)m->block];
	if (b->target != ARENA_NONE)
		return b->target;
	return m->to < m->from ? b->prev : b->next;
}

/* Returns true if one hole would have size units with only `keep` reserved. */
static bool would_fit(const struct arena *a, uint64_t size, uint32_t keep)
{
	uint64_t run = 0;

	for (uint32_t at = a->first; at != ARENA_NONE && run < size; at = a->blocks[at].next)
		run = a->blocks[at].kind == ARENA_USED || at == keep ? 0
								     : run + a->blocks[at].size;
	return run >= size;
}

bool arena_plan_yield(struct arena *a, uint64_t size)
{
	uint32_t keep = a->plan.active ? hole_of_move(a) : ARENA_NONE;

	if (!a->plan.active || !would_fit(a, size, keep))
		return false;
	cut_short(a, keep);
	return true;
}

/* ---- one move ---- */

/* Blocks may have been released since the plan was made: the block slides as far as there is
 * room.
 */
static void aim(struct arena *a, struct arena_move *m)
{
	const struct arena_block *b = &a->blocks[(uint32_t)m->block];
	const struct arena_block *hole;

	if (b->target != ARENA_NONE)
		return;
	hole = &a->blocks[m->to < m->from ? b->prev : b->next];
	assert(hole->kind == ARENA_CLEARED);
	m->to = m->to < m->from ? hole->start : arena_end_of(hole) - b->size;
}

/* -EBUSY: the block of the move is pinned. */
static int begin_move(struct arena *a)
{
	struct arena_plan *p = &a->plan;
	struct arena_move *m = &p->moves[p->done];
	uint32_t block = arena_block_of(a, m->block);

	if (block == ARENA_NONE) {
		p->done++;
		return 0;
	}
	if (a->blocks[block].pins)
		return -EBUSY;
	aim(a, m);
	p->copied = 0;
	p->moving = true;
	return 0;
}

static void end_move(struct arena *a)
{
	struct arena_plan *p = &a->plan;
	struct arena_move *m = &p->moves[p->done];
	uint32_t block = (uint32_t)m->block;
	struct arena_block *b = &a->blocks[block];
	uint32_t hole = b->target;

	if (hole == ARENA_NONE)
		hole = m->to < m->from ? b->prev : b->next;
	arena_swap(a, block, hole);
	b->planned = false;
	b->target = ARENA_NONE;
	p->moving = false;
	p->done++;
	a->reserved -= a->blocks[hole].size;
	arena_free_as(a, hole, ARENA_CLEARED);
}

/* ---- the steps ---- */

/* A block that slides up is copied from its end, since its old and new place overlap. */
static void next_part(const struct arena *a, struct arena_copy *copy)
{
	const struct arena_plan *p = &a->plan;
	const struct arena_move *m = &p->moves[p->done];
	bool up = m->to > m->from && a->blocks[(uint32_t)m->block].target == ARENA_NONE;
	uint64_t offset = up ? m->size - p->copied - p->copying : p->copied;

	*copy = (struct arena_copy){ m->from + offset, m->to + offset, p->copying };
}

int arena_next_copy(struct arena *a, uint64_t most, struct arena_copy *copy)
{
	struct arena_plan *p = &a->plan;

	while (p->active && !p->moving) {
		int rc = p->done < p->nmoves ? begin_move(a) : 0;

		if (rc || (!p->moving && p->done == p->nmoves))
			arena_plan_forget(a);
		if (rc)
			return rc;
	}
	if (!p->active)
		return 0;
	p->copying = u64_min(most, p->moves[p->done].size - p->copied);
	next_part(a, copy);
	return 1;
}

void arena_copied(struct arena *a)
{
	struct arena_plan *p = &a->plan;

	assert(p->moving && p->copying);
	p->copied += p->copying;
	p->copying = 0;
	if (p->copied == p->moves[p->done].size)
		end_move(a);
}

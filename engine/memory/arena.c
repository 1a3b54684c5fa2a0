/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/arena-internal.h"

#include <errno.h>
#include <string.h>

/* ---- records, in a list in the order of start ---- */

static_assert(sizeof(struct arena_block) == 64, "a record is a line of the cache");

static int grow(struct arena *a)
{
	uint32_t most = a->blocks_max ? a->blocks_max : ARENA_NONE;
	uint64_t wanted = a->allocated ? (uint64_t)a->allocated * 2 : 64;
	struct arena_block *blocks;

	wanted = u64_min(wanted, most);
	if (wanted == a->allocated)
		return -ENOMEM;
	/* not realloc, which may lose the alignment */
	blocks = aligned_alloc(sizeof(*blocks), wanted * sizeof(*blocks));
	if (!blocks)
		return -ENOMEM;
	if (a->top)
		memcpy(blocks, a->blocks, a->top * sizeof(*blocks));
	free(a->blocks);
	a->blocks = blocks;
	a->allocated = (uint32_t)wanted;
	return 0;
}

static int new_record(struct arena *a, uint32_t *record)
{
	if (a->unused != ARENA_NONE) {
		*record = a->unused;
		a->unused = a->blocks[*record].next;
		return 0;
	}
	if (a->top == a->allocated && grow(a))
		return -ENOMEM;
	*record = a->top++;
	a->blocks[*record] = (struct arena_block){ .params = ARENA_NONE, .target = ARENA_NONE };
	return 0;
}

static void join(struct arena *a, uint32_t before, uint32_t after)
{
	if (before == ARENA_NONE)
		a->first = after;
	else
		a->blocks[before].next = after;
	if (after != ARENA_NONE)
		a->blocks[after].prev = before;
}

static void drop_record(struct arena *a, uint32_t record)
{
	struct arena_block *b = &a->blocks[record];

	join(a, b->prev, b->next);
	b->kind = ARENA_UNUSED;
	b->next = a->unused;
	a->unused = record;
}

static void exchange(struct arena *a, uint32_t x, uint32_t y)
{
	struct arena_block bx = a->blocks[x], by = a->blocks[y];

	if (by.next == x) {
		exchange(a, y, x);
	} else if (bx.next == y) {
		join(a, bx.prev, y);
		join(a, y, x);
		join(a, x, by.next);
	} else {
		join(a, bx.prev, y);
		join(a, y, bx.next);
		join(a, by.prev, x);
		join(a, x, by.next);
	}
}

void arena_swap(struct arena *a, uint32_t block, uint32_t hole)
{
	struct arena_block *b = &a->blocks[block], *h = &a->blocks[hole];
	uint64_t lower = u64_min(b->start, h->start);

	exchange(a, block, hole);
	if (b->next == hole) {
		b->start = lower;
		h->start = arena_end_of(b);
	} else if (h->next == block) {
		h->start = lower;
		b->start = arena_end_of(h);
	} else {
		uint64_t start = b->start;

		assert(b->size == h->size);
		b->start = h->start;
		h->start = start;
	}
}

/* ---- holes of any kind ---- */

static void count_hole(struct arena *a, uint32_t hole)
{
	if (a->blocks[hole].kind == ARENA_HOLE)
		arena_holes_add(a, hole);
	else
		a->reserved += a->blocks[hole].size;
}

static void discount_hole(struct arena *a, uint32_t hole)
{
	if (a->blocks[hole].kind == ARENA_HOLE)
		arena_holes_remove(a, hole);
	else
		a->reserved -= a->blocks[hole].size;
}

void arena_turn(struct arena *a, uint32_t hole, enum arena_kind kind)
{
	discount_hole(a, hole);
	a->blocks[hole].kind = kind;
	count_hole(a, hole);
}

int arena_cut(struct arena *a, uint32_t hole, uint64_t size, enum arena_kind kind,
	      uint32_t *front)
{
	struct arena_block *f, *h;

	if (new_record(a, front))
		return -ENOMEM;
	f = &a->blocks[*front];
	h = &a->blocks[hole];
	assert(size < h->size);
	discount_hole(a, hole);
	f->start = h->start;
	f->size = size;
	f->kind = (uint8_t)kind;
	join(a, h->prev, *front);
	join(a, *front, hole);
	h->start += size;
	h->size -= size;
	count_hole(a, hole);
	if (kind != ARENA_USED)
		count_hole(a, *front);
	return 0;
}

/* Merges the hole behind a block into the block, which is counted as no hole for the moment. */
static void absorb_next(struct arena *a, uint32_t block)
{
	uint32_t next = a->blocks[block].next;

	discount_hole(a, next);
	a->blocks[block].size += a->blocks[next].size;
	drop_record(a, next);
}

uint32_t arena_free_as(struct arena *a, uint32_t block, enum arena_kind kind)
{
	struct arena_block *b = &a->blocks[block];

	if (b->next != ARENA_NONE && a->blocks[b->next].kind == kind)
		absorb_next(a, block);
	if (b->prev != ARENA_NONE && a->blocks[b->prev].kind == kind) {
		uint32_t prev = b->prev;

		discount_hole(a, prev);
		a->blocks[prev].size += b->size;
		drop_record(a, block);
		block = prev;
	}
	a->blocks[block].kind = (uint8_t)kind;
	count_hole(a, block);
	return block;
}

uint32_t arena_give_up(struct arena *a, uint32_t hole)
{
	discount_hole(a, hole);
	return arena_free_as(a, hole, ARENA_HOLE);
}

/* ---- the arena ---- */

int arena_init(struct arena *a, const struct arena_options *o)
{
	uint32_t whole;

	if (!o->size || !o->align || o->size % o->align)
		return -EINVAL;
	*a = (struct arena){ .size = o->size,
			     .align = o->align,
			     .blocks_max = o->blocks_max,
			     .tie = o->tie,
			     .unused = ARENA_NONE,
			     .first = ARENA_NONE };
	arena_holes_init(a);
	if (new_record(a, &whole))
		return -ENOMEM;
	a->blocks[whole].size = a->size;
	join(a, ARENA_NONE, whole);
	join(a, whole, ARENA_NONE);
	arena_free_as(a, whole, ARENA_HOLE);
	return 0;
}

void arena_fini(struct arena *a)
{
	arena_params_fini(a);
	free(a->plan.moves);
	free(a->blocks);
	*a = (struct arena){ .first = ARENA_NONE };
}

static void use(struct arena *a, uint32_t block)
{
	struct arena_block *b = &a->blocks[block];

	b->kind = ARENA_USED;
	/* 0 is passed over, so that no handle is 0 */
	if (!++b->generation)
		b->generation = 1;
	a->nblocks++;
	a->used += b->size;
	a->used_max = u64_max(a->used_max, a->used);
}

int arena_alloc(struct arena *a, uint64_t size, uint64_t *block)
{
	uint64_t rounded;
	uint32_t at;

	if (!size)
		return -EINVAL;
	if (size > a->size)
		return -ENOSPC;
	rounded = u64_div_ceil(size, a->align) * a->align;
	if (rounded > a->size - a->used)
		return -ENOSPC;
	at = arena_holes_best(a, rounded);
	if (at == ARENA_NONE)
		return -EAGAIN;
	if (a->blocks[at].size == rounded)
		arena_holes_remove(a, at);
	else if (arena_cut(a, at, rounded, ARENA_USED, &at))
		return -ENOMEM;
	use(a, at);
	*block = arena_handle_of(a, at);
	return 0;
}

/* Takes a block that is released out of the plan, which may have half moved it. */
static void leave_plan(struct arena *a, uint32_t block)
{
	struct arena_block *b = &a->blocks[block];

	if (b->target != ARENA_NONE)
		arena_give_up(a, b->target);
	if (arena_half_moved(a) == block) {
		a->plan.moving = false;
		a->plan.done++;
	}
	b->target = ARENA_NONE;
	b->planned = false;
}

/* Prefetches both neighbours at once: their cache misses would come one after the other. */
static void fetch_neighbours(const struct arena *a, uint32_t block)
{
	const struct arena_block *b = &a->blocks[block];

	if (b->next != ARENA_NONE)
		__builtin_prefetch(&a->blocks[b->next], 1);
	if (b->prev != ARENA_NONE)
		__builtin_prefetch(&a->blocks[b->prev], 1);
}

int arena_release(struct arena *a, uint64_t handle)
{
	uint32_t block = arena_block_of(a, handle);
	enum arena_kind kind;

	if (block == ARENA_NONE)
		return -ENOENT;
	if (a->blocks[block].pins)
		return -EBUSY;
	fetch_neighbours(a, block);
	/* the plan keeps the place of a block that it was to move */
	kind = a->blocks[block].planned ? ARENA_CLEARED : ARENA_HOLE;
	leave_plan(a, block);
	arena_params_forget(a, block);
	a->used -= a->blocks[block].size;
	a->nblocks--;
	arena_free_as(a, block, kind);
	return 0;
}

int arena_pin(struct arena *a, uint64_t handle)
{
	uint32_t block = arena_block_of(a, handle);

	if (block == ARENA_NONE)
		return -ENOENT;
	if (arena_half_moved(a) == block)
		return -EAGAIN;
	a->blocks[block].pins++;
	return 0;
}

int arena_unpin(struct arena *a, uint64_t handle)
{
	uint32_t block = arena_block_of(a, handle);

	if (block == ARENA_NONE)
		return -ENOENT;
	if (!a->blocks[block].pins)
		return -EINVAL;
	a->blocks[block].pins--;
	return 0;
}

/* ---- what is where ---- */

int arena_size(const struct arena *a, uint64_t handle, uint64_t *size)
{
	uint32_t block = arena_block_of(a, handle);

	if (block == ARENA_NONE)
		return -ENOENT;
	*size = a->blocks[block].size;
	return 0;
}

static void find_half_moved(const struct arena *a, uint64_t offset, uint64_t *at, uint64_t *run)
{
	const struct arena_move *m = &a->plan.moves[a->plan.done];
	bool up = m->to > m->from && a->blocks[(uint32_t)m->block].target == ARENA_NONE;
	uint64_t border = up ? m->size - a->plan.copied : a->plan.copied;
	bool moved = up ? offset >= border : offset < border;

	*at = (moved ? m->to : m->from) + offset;
	*run = (offset < border ? border : m->size) - offset;
}

int arena_find(const struct arena *a, uint64_t handle, uint64_t offset, uint64_t *at,
	       uint64_t *run)
{
	uint32_t block = arena_block_of(a, handle);
	const struct arena_block *b;

	if (block == ARENA_NONE)
		return -ENOENT;
	b = &a->blocks[block];
	if (offset >= b->size)
		return -EINVAL;
	if (arena_half_moved(a) == block) {
		find_half_moved(a, offset, at, run);
		return 0;
	}
	*at = b->start + offset;
	*run = b->size - offset;
	return 0;
}

uint64_t arena_total_free(const struct arena *a)
{
	return a->size - a->used;
}

uint64_t arena_max_allocated(const struct arena *a)
{
	return a->used_max;
}

uint64_t arena_largest_contiguous(const struct arena *a)
{
	uint32_t hole = arena_holes_largest(a);

	return hole == ARENA_NONE ? 0 : a->blocks[hole].size;
}

bool arena_next_part(const struct arena *a, uint32_t *cursor, struct arena_part *part)
{
	uint32_t at = *cursor ? a->blocks[*cursor - 1].next : a->first;
	const struct arena_block *b;

	if (at == ARENA_NONE)
		return false;
	b = &a->blocks[at];
	*part = (struct arena_part){ .start = b->start,
				     .size = b->size,
				     .kind = (enum arena_kind)b->kind,
				     .block =
					     b->kind == ARENA_USED ? arena_handle_of(a, at) : 0,
				     .pins = b->pins };
	*cursor = at + 1;
	return true;
}

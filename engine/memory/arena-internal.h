/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_ARENA_INTERNAL_H
#define ENGINE_MEMORY_ARENA_INTERNAL_H

/* Internals of the arena. */

#include "engine/memory/arena.h"

static inline uint64_t arena_handle_of(const struct arena *a, uint32_t block)
{
	return (uint64_t)a->blocks[block].generation << 32 | block;
}

/* Returns the record of a handle; ARENA_NONE: no such block (any more). */
static inline uint32_t arena_block_of(const struct arena *a, uint64_t handle)
{
	uint32_t block = (uint32_t)handle;

	if (block >= a->top || a->blocks[block].kind != ARENA_USED ||
	    a->blocks[block].generation != handle >> 32)
		return ARENA_NONE;
	return block;
}

static inline uint64_t arena_end_of(const struct arena_block *b)
{
	return b->start + b->size;
}

/* Returns the block that is half moved; ARENA_NONE: none. */
static inline uint32_t arena_half_moved(const struct arena *a)
{
	return a->plan.moving ? arena_block_of(a, a->plan.moves[a->plan.done].block)
			      : ARENA_NONE;
}

/* ---- arena-holes.c: the holes by size ---- */

/* Holes lie in bins by the seven leading bits of their size, so that a bin's holes are all
 * smaller than the next one's, and small ones of one size have a bin for themselves.  Holes of
 * equal size are a pairing heap by their tie; the tops of a bin's heaps are a treap by size,
 * whose priority is a hash of the size.
 */

static inline unsigned arena_hole_bin(uint64_t size)
{
	unsigned exponent = 63 - (unsigned)__builtin_clzll(size);

	if (exponent < 6)
		return (unsigned)size;
	return (exponent - 5) * 64 + (unsigned)(size >> (exponent - 6) & 63);
}

static inline uint64_t arena_hole_priority(uint64_t size)
{
	size *= 0x9e3779b97f4a7c15u;
	return (size ^ size >> 32) * 0xd6e8feb86659fd93u;
}

void arena_holes_init(struct arena *a);
void arena_holes_add(struct arena *a, uint32_t hole);
void arena_holes_remove(struct arena *a, uint32_t hole);
/* Returns the smallest hole of at least size; ARENA_NONE: none. */
uint32_t arena_holes_best(const struct arena *a, uint64_t size);
uint32_t arena_holes_largest(const struct arena *a);

/* ---- arena.c: the records, in order of start ---- */

/* Cuts the first size units, less than all, off a hole: they become a record of that kind.
 * -ENOMEM.
 */
int arena_cut(struct arena *a, uint32_t hole, uint64_t size, enum arena_kind kind,
	      uint32_t *front);
/* Turns a hole into one of another kind; it does not merge with its neighbours. */
void arena_turn(struct arena *a, uint32_t hole, enum arena_kind kind);
/* Makes a block, which is counted nowhere any more, a hole of that kind, merged with neighbours
 * of the kind.  Returns the record.
 */
uint32_t arena_free_as(struct arena *a, uint32_t block, enum arena_kind kind);
/* Turns a hole that the plan reserved into an ARENA_HOLE, merged with its neighbours; returns
 * the record.
 */
uint32_t arena_give_up(struct arena *a, uint32_t hole);
/* Exchanges a block and a hole that is its neighbour, or of its size. */
void arena_swap(struct arena *a, uint32_t block, uint32_t hole);

/* ---- arena-move.c ---- */

/* Ends the plan, and turns the holes that it reserved into ARENA_HOLEs.  No block is half
 * moved.
 */
void arena_plan_forget(struct arena *a);

/* ---- arena-params.c ---- */

void arena_params_fini(struct arena *a);
void arena_params_forget(struct arena *a, uint32_t block);

#endif

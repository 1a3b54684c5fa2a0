/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/memory/arena-look.h"

#include "engine/memory/arena-internal.h"

#include <errno.h>

uint64_t arena_attainable(const struct arena *a)
{
	uint64_t most = 0, room = 0;

	for (uint32_t at = a->first; at != ARENA_NONE; at = a->blocks[at].next) {
		const struct arena_block *b = &a->blocks[at];

		room = b->pins ? 0 : room + (b->kind == ARENA_USED ? 0 : b->size);
		most = u64_max(most, room);
	}
	return most;
}

int arena_plan_drop(struct arena *a)
{
	if (a->plan.moving)
		return -EAGAIN;
	if (a->plan.active)
		arena_plan_forget(a);
	return 0;
}

enum { FREE = 1, TAKEN = 2, PINNED = 4 };

static unsigned shade(const struct arena_block *b)
{
	if (b->kind != ARENA_USED)
		return FREE;
	return b->pins ? TAKEN | PINNED : TAKEN;
}

static char letter(unsigned shades)
{
	if (shades & PINNED)
		return '#';
	return shades == FREE ? '.' : shades == TAKEN ? '|' : ':';
}

int arena_print(const struct arena *a, unsigned resolution, FILE *to)
{
	uint32_t at = a->first;

	for (unsigned i = 0; i < resolution; i++) {
		uint64_t begin = (uint64_t)((unsigned __int128)a->size * i / resolution);
		uint64_t end = (uint64_t)((unsigned __int128)a->size * (i + 1) / resolution);
		unsigned shades = 0;

		while (arena_end_of(&a->blocks[at]) <= begin)
			at = a->blocks[at].next;
		shades = shade(&a->blocks[at]);
		while (arena_end_of(&a->blocks[at]) < end) {
			at = a->blocks[at].next;
			shades |= shade(&a->blocks[at]);
		}
		putc(letter(shades), to);
	}
	putc('\n', to);
	return ferror(to) ? -EIO : 0;
}

static bool params_are_right(const struct arena *a, uint32_t block, uint32_t *count)
{
	uint32_t prev = ARENA_NONE;

	for (uint32_t i = a->blocks[block].params; i != ARENA_NONE;
	     prev = i, i = a->params.all[i].sibling) {
		const struct arena_param *p = &a->params.all[i];

		if (p->block != block || p->prev != prev ||
		    p->offset + p->size > a->blocks[block].size)
			return false;
		++*count;
	}
	return true;
}

static bool is_right(const struct arena *a, uint32_t at)
{
	const struct arena_block *b = &a->blocks[at];
	const struct arena_block *next = b->next == ARENA_NONE ? NULL : &a->blocks[b->next];

	if (!b->size || b->start % a->align || b->size % a->align || b->kind == ARENA_UNUSED)
		return false;
	if (b->kind != ARENA_USED && (b->pins || b->planned || b->params != ARENA_NONE))
		return false;
	if (b->kind >= ARENA_CLEARED && !a->plan.active)
		return false;
	if (b->target != ARENA_NONE &&
	    (a->blocks[b->target].kind != ARENA_TARGET || a->blocks[b->target].size != b->size))
		return false;
	return arena_end_of(b) == (next ? next->start : a->size) &&
	       (!next || next->kind != b->kind || b->kind == ARENA_USED ||
		b->kind == ARENA_TARGET) &&
	       (!next || next->prev == at);
}

/* The way down the bin's tree, which is in order and below greater priorities, leads to a hole
 * of that size; ARENA_NONE: it does not.
 */
static uint32_t top_of(const struct arena *a, uint64_t size)
{
	uint32_t at = a->bins[arena_hole_bin(size)];
	uint64_t above = UINT64_MAX;

	while (at != ARENA_NONE) {
		const struct arena_block *b = &a->blocks[at];

		if (!b->on_top || arena_hole_priority(b->size) > above)
			return ARENA_NONE;
		if (b->size == size)
			return at;
		above = arena_hole_priority(b->size);
		at = b->size < size ? b->right : b->left;
	}
	return ARENA_NONE;
}

/* The hole above it in the heap, whose child it is or a sibling of it; ARENA_NONE: the links
 * are damaged.
 */
static uint32_t parent_of(const struct arena *a, uint32_t hole)
{
	for (uint64_t n = 0; n < a->nholes; n++) {
		const struct arena_block *b = &a->blocks[hole];
		uint32_t left = b->left;

		if (b->on_top || (b->right != ARENA_NONE && a->blocks[b->right].left != hole))
			return ARENA_NONE;
		if (a->blocks[left].child == hole)
			return left;
		if (a->blocks[left].right != hole)
			return ARENA_NONE;
		hole = left;
	}
	return ARENA_NONE;
}

/* The hole is below the top of its size, which the tree leads to, in the order of ties. */
static bool is_found(const struct arena *a, uint32_t hole)
{
	const struct arena_block *h = &a->blocks[hole];
	uint32_t top = top_of(a, h->size), at = hole;

	for (uint64_t n = 0; n < a->nholes && at != ARENA_NONE && at != top; n++) {
		uint32_t parent = parent_of(a, at);

		if (parent != ARENA_NONE && (a->blocks[parent].tie > a->blocks[at].tie ||
					     a->blocks[parent].size != h->size))
			return false;
		at = parent;
	}
	return at != ARENA_NONE && at == top;
}

static bool holes_are_right(const struct arena *a)
{
	uint64_t units = 0, count = 0;

	for (uint32_t at = a->first; at != ARENA_NONE; at = a->blocks[at].next) {
		if (a->blocks[at].kind != ARENA_HOLE)
			continue;
		if (!is_found(a, at))
			return false;
		units += a->blocks[at].size;
		count++;
	}
	for (unsigned bin = 0; bin < ARENA_BINS; bin++)
		if ((a->bins[bin] != ARENA_NONE) != (a->bin_is_used[bin / 64] >> bin % 64 & 1))
			return false;
	for (unsigned word = 0; word < ARENA_BIN_WORDS; word++)
		if ((a->bin_is_used[word] != 0) != (a->word_is_used >> word & 1))
			return false;
	return units == a->holes && count == a->nholes;
}

bool arena_check(const struct arena *a)
{
	uint64_t used = 0, reserved = 0;
	uint32_t params = 0;

	if (a->first == ARENA_NONE || a->blocks[a->first].start)
		return false;
	for (uint32_t at = a->first; at != ARENA_NONE; at = a->blocks[at].next) {
		const struct arena_block *b = &a->blocks[at];

		if (!is_right(a, at) || !params_are_right(a, at, &params))
			return false;
		used += b->kind == ARENA_USED ? b->size : 0;
		reserved += b->kind >= ARENA_CLEARED ? b->size : 0;
	}
	return used == a->used && reserved == a->reserved && params == a->params.count &&
	       used + reserved + a->holes == a->size && used <= a->used_max &&
	       holes_are_right(a);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/arena-internal.h"

void arena_holes_init(struct arena *a)
{
	for (unsigned i = 0; i < ARENA_BINS; i++)
		a->bins[i] = ARENA_NONE;
}

/* Divides a tree into what is before hole and what is after it. */
static void split(struct arena *a, uint32_t root, const struct arena_block *hole,
		  uint32_t *before, uint32_t *after)
{
	while (root != ARENA_NONE) {
		struct arena_block *b = &a->blocks[root];

		if (arena_hole_is_before(b, hole)) {
			*before = root;
			before = &b->right;
			root = b->right;
		} else {
			*after = root;
			after = &b->left;
			root = b->left;
		}
	}
	*before = *after = ARENA_NONE;
}

void arena_holes_add(struct arena *a, uint32_t hole)
{
	struct arena_block *h = &a->blocks[hole];
	unsigned bin = arena_hole_bin(h->size);
	uint32_t *link = &a->bins[bin];

	h->tie = a->tie == ARENA_OLDEST ? a->age++ : h->start;
	while (*link != ARENA_NONE && arena_hole_priority(*link) > arena_hole_priority(hole)) {
		struct arena_block *b = &a->blocks[*link];

		link = arena_hole_is_before(b, h) ? &b->right : &b->left;
	}
	split(a, *link, h, &h->left, &h->right);
	*link = hole;
	a->bin_is_used[bin / 64] |= (uint64_t)1 << bin % 64;
	a->holes += h->size;
	a->nholes++;
}

static void merge(struct arena *a, uint32_t before, uint32_t after, uint32_t *link)
{
	while (before != ARENA_NONE && after != ARENA_NONE) {
		if (arena_hole_priority(before) > arena_hole_priority(after)) {
			*link = before;
			link = &a->blocks[before].right;
			before = *link;
		} else {
			*link = after;
			link = &a->blocks[after].left;
			after = *link;
		}
	}
	*link = before != ARENA_NONE ? before : after;
}

void arena_holes_remove(struct arena *a, uint32_t hole)
{
	struct arena_block *h = &a->blocks[hole];
	unsigned bin = arena_hole_bin(h->size);
	uint32_t *link = &a->bins[bin];

	while (*link != hole) {
		struct arena_block *b = &a->blocks[*link];

		link = arena_hole_is_before(b, h) ? &b->right : &b->left;
	}
	merge(a, h->left, h->right, link);
	if (a->bins[bin] == ARENA_NONE)
		a->bin_is_used[bin / 64] &= ~((uint64_t)1 << bin % 64);
	a->holes -= h->size;
	a->nholes--;
}

/* ARENA_BINS: none from there on. */
static unsigned used_bin_from(const struct arena *a, unsigned bin)
{
	for (unsigned word = bin / 64; word < ARENA_BINS / 64; word++) {
		uint64_t bits = a->bin_is_used[word];

		if (word == bin / 64)
			bits &= UINT64_MAX << bin % 64;
		if (bits)
			return word * 64 + (unsigned)__builtin_ctzll(bits);
	}
	return ARENA_BINS;
}

static uint32_t best_of_bin(const struct arena *a, unsigned bin, uint64_t size)
{
	uint32_t best = ARENA_NONE;

	for (uint32_t hole = a->bins[bin]; hole != ARENA_NONE;) {
		const struct arena_block *h = &a->blocks[hole];

		if (h->size >= size)
			best = hole;
		hole = h->size >= size ? h->left : h->right;
	}
	return best;
}

uint32_t arena_holes_best(const struct arena *a, uint64_t size)
{
	unsigned bin = arena_hole_bin(size);
	uint32_t best = best_of_bin(a, bin, size);

	if (best != ARENA_NONE)
		return best;
	bin = bin + 1 < ARENA_BINS ? used_bin_from(a, bin + 1) : ARENA_BINS;
	return bin < ARENA_BINS ? best_of_bin(a, bin, size) : ARENA_NONE;
}

uint32_t arena_holes_largest(const struct arena *a)
{
	uint32_t hole = ARENA_NONE;

	for (unsigned word = ARENA_BINS / 64; word-- && hole == ARENA_NONE;)
		if (a->bin_is_used[word])
			hole = a->bins[word * 64 + 63 -
				       (unsigned)__builtin_clzll(a->bin_is_used[word])];
	while (hole != ARENA_NONE && a->blocks[hole].right != ARENA_NONE)
		hole = a->blocks[hole].right;
	return hole;
}

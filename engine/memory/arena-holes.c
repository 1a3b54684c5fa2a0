/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/arena-internal.h"

/* Holes lie in bins by the three leading bits of their size, so that a bin's holes are all
 * smaller than the next one's; a bin is a treap in the order of size and tie, the priority of a
 * hole is a hash of its record's number.
 */

static unsigned bin_of(uint64_t size)
{
	unsigned exponent = 63 - (unsigned)__builtin_clzll(size);

	if (exponent < 2)
		return (unsigned)size;
	return exponent * 4 + (unsigned)(size >> (exponent - 2) & 3);
}

static uint32_t priority(uint32_t hole)
{
	hole = (hole ^ hole >> 16) * 0x85ebca6bu;
	hole = (hole ^ hole >> 13) * 0xc2b2ae35u;
	return hole ^ hole >> 16;
}

static bool is_before(const struct arena_block *b, const struct arena_block *c)
{
	return b->size != c->size ? b->size < c->size : b->tie < c->tie;
}

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

		if (is_before(b, hole)) {
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
	unsigned bin = bin_of(h->size);
	uint32_t *link = &a->bins[bin];

	h->tie = a->tie == ARENA_OLDEST ? a->age++ : h->start;
	while (*link != ARENA_NONE && priority(*link) > priority(hole)) {
		struct arena_block *b = &a->blocks[*link];

		link = is_before(b, h) ? &b->right : &b->left;
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
		if (priority(before) > priority(after)) {
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
	unsigned bin = bin_of(h->size);
	uint32_t *link = &a->bins[bin];

	while (*link != hole) {
		struct arena_block *b = &a->blocks[*link];

		link = is_before(b, h) ? &b->right : &b->left;
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
	unsigned bin = bin_of(size);
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

/* Whether the way down a hole's tree finds it, in order and below greater priorities. */
static bool is_found(const struct arena *a, uint32_t hole)
{
	const struct arena_block *h = &a->blocks[hole];
	unsigned bin = bin_of(h->size);
	uint32_t at = a->bins[bin], above = ARENA_NONE;

	while (at != ARENA_NONE && at != hole) {
		if (above != ARENA_NONE && priority(above) < priority(at))
			return false;
		above = at;
		at = is_before(&a->blocks[at], h) ? a->blocks[at].right : a->blocks[at].left;
	}
	return at == hole && a->bin_is_used[bin / 64] >> bin % 64 & 1;
}

bool arena_holes_check(const struct arena *a)
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
	return units == a->holes && count == a->nholes;
}

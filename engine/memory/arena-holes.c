/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/arena-internal.h"

void arena_holes_init(struct arena *a)
{
	for (unsigned i = 0; i < ARENA_BINS; i++)
		a->bins[i] = ARENA_NONE;
}

static void mark_used(struct arena *a, unsigned bin)
{
	a->bin_is_used[bin / 64] |= (uint64_t)1 << bin % 64;
	a->word_is_used |= (uint64_t)1 << bin / 64;
}

static void mark_empty(struct arena *a, unsigned bin)
{
	a->bin_is_used[bin / 64] &= ~((uint64_t)1 << bin % 64);
	if (!a->bin_is_used[bin / 64])
		a->word_is_used &= ~((uint64_t)1 << bin / 64);
}

/* ---- holes of equal size: a pairing heap, the first of them on top ---- */

/* In the heap a hole's `right` is its next sibling, and `left` its previous sibling or, of the
 * first sibling, its parent.
 */

static bool is_first_child(const struct arena *a, uint32_t hole)
{
	return a->blocks[a->blocks[hole].left].child == hole;
}

/* Puts hole y, which has no siblings, below x. */
static void adopt(struct arena *a, uint32_t x, uint32_t y)
{
	struct arena_block *parent = &a->blocks[x], *child = &a->blocks[y];

	child->left = x;
	child->right = parent->child;
	if (parent->child != ARENA_NONE)
		a->blocks[parent->child].left = y;
	parent->child = y;
}

/* Melds two heaps, and returns the top of the result. */
static uint32_t meld(struct arena *a, uint32_t x, uint32_t y)
{
	if (a->blocks[y].tie < a->blocks[x].tie) {
		adopt(a, y, x);
		return y;
	}
	adopt(a, x, y);
	return x;
}

/* Melds siblings in pairs, and these from the last to the first; returns the top. */
static uint32_t meld_siblings(struct arena *a, uint32_t first)
{
	uint32_t pairs = ARENA_NONE, top;

	while (first != ARENA_NONE) {
		uint32_t x = first, y = a->blocks[x].right;

		first = y;
		if (y != ARENA_NONE) {
			first = a->blocks[y].right;
			x = meld(a, x, y);
		}
		a->blocks[x].right = pairs;
		pairs = x;
	}
	top = pairs;
	if (top == ARENA_NONE)
		return top;
	pairs = a->blocks[top].right;
	while (pairs != ARENA_NONE) {
		uint32_t next = a->blocks[pairs].right;

		top = meld(a, top, pairs);
		pairs = next;
	}
	return top;
}

/* Takes a hole out that is not on top; those below it take its place. */
static void leave_heap(struct arena *a, uint32_t hole)
{
	const struct arena_block *h = &a->blocks[hole];
	uint32_t top = meld_siblings(a, h->child), next = h->right;
	uint32_t *link =
		is_first_child(a, hole) ? &a->blocks[h->left].child : &a->blocks[h->left].right;

	if (top != ARENA_NONE) {
		*link = top;
		a->blocks[top].left = h->left;
		a->blocks[top].right = next;
		if (next != ARENA_NONE)
			a->blocks[next].left = top;
	} else {
		*link = next;
		if (next != ARENA_NONE)
			a->blocks[next].left = h->left;
	}
}

/* ---- a bin: a treap of the tops ---- */

/* Returns the link to the hole of that size in its bin's tree; *link is ARENA_NONE: none. */
static uint32_t *find_size(struct arena *a, uint64_t size)
{
	uint32_t *link = &a->bins[arena_hole_bin(size)];

	while (*link != ARENA_NONE && a->blocks[*link].size != size) {
		struct arena_block *b = &a->blocks[*link];

		link = b->size < size ? &b->right : &b->left;
	}
	return link;
}

/* Puts hole `by`, of equal size, in the place that *link has in the tree. */
static void replace(struct arena *a, uint32_t *link, uint32_t by)
{
	struct arena_block *old = &a->blocks[*link], *new = &a->blocks[by];

	new->left = old->left;
	new->right = old->right;
	new->on_top = true;
	old->on_top = false;
	*link = by;
}

/* Divides a tree into sizes below `size` and those above. */
static void split(struct arena *a, uint32_t root, uint64_t size, uint32_t *before,
		  uint32_t *after)
{
	while (root != ARENA_NONE) {
		struct arena_block *b = &a->blocks[root];

		if (b->size < size) {
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

static void add_to_tree(struct arena *a, uint32_t hole)
{
	struct arena_block *h = &a->blocks[hole];
	unsigned bin = arena_hole_bin(h->size);
	uint32_t *link = &a->bins[bin];

	if (*link == ARENA_NONE)
		mark_used(a, bin);
	while (*link != ARENA_NONE &&
	       arena_hole_priority(a->blocks[*link].size) > arena_hole_priority(h->size)) {
		struct arena_block *b = &a->blocks[*link];

		link = b->size < h->size ? &b->right : &b->left;
	}
	split(a, *link, h->size, &h->left, &h->right);
	h->on_top = true;
	*link = hole;
}

static void merge(struct arena *a, uint32_t before, uint32_t after, uint32_t *link)
{
	while (before != ARENA_NONE && after != ARENA_NONE) {
		struct arena_block *b = &a->blocks[before], *c = &a->blocks[after];

		if (arena_hole_priority(b->size) > arena_hole_priority(c->size)) {
			*link = before;
			link = &b->right;
			before = *link;
		} else {
			*link = after;
			link = &c->left;
			after = *link;
		}
	}
	*link = before != ARENA_NONE ? before : after;
}

static void remove_top(struct arena *a, uint32_t hole)
{
	struct arena_block *h = &a->blocks[hole];
	uint32_t *link = find_size(a, h->size), next = meld_siblings(a, h->child);

	if (next != ARENA_NONE) {
		replace(a, link, next);
		return;
	}
	h->on_top = false;
	merge(a, h->left, h->right, link);
	if (a->bins[arena_hole_bin(h->size)] == ARENA_NONE)
		mark_empty(a, arena_hole_bin(h->size));
}

void arena_holes_add(struct arena *a, uint32_t hole)
{
	struct arena_block *h = &a->blocks[hole];
	uint32_t *link = find_size(a, h->size);

	h->tie = a->tie == ARENA_OLDEST ? a->age++ : h->start;
	h->child = ARENA_NONE;
	a->holes += h->size;
	a->nholes++;
	if (*link == ARENA_NONE) {
		add_to_tree(a, hole);
	} else if (h->tie < a->blocks[*link].tie) {
		uint32_t top = *link;

		replace(a, link, hole);
		adopt(a, hole, top);
	} else {
		adopt(a, *link, hole);
	}
}

void arena_holes_remove(struct arena *a, uint32_t hole)
{
	if (a->blocks[hole].on_top)
		remove_top(a, hole);
	else
		leave_heap(a, hole);
	a->holes -= a->blocks[hole].size;
	a->nholes--;
}

/* Returns the first bin after `bin` that has a hole; ARENA_BINS: none.  Two shifts, since one
 * by 64 is undefined.
 */
static unsigned used_bin_after(const struct arena *a, unsigned bin)
{
	unsigned word = bin / 64;
	uint64_t bits = a->bin_is_used[word] & UINT64_MAX << bin % 64 << 1;

	if (!bits) {
		uint64_t words = a->word_is_used & UINT64_MAX << word << 1;

		if (!words)
			return ARENA_BINS;
		word = (unsigned)__builtin_ctzll(words);
		bits = a->bin_is_used[word];
	}
	return word * 64 + (unsigned)__builtin_ctzll(bits);
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
	bin = used_bin_after(a, bin);
	return bin < ARENA_BINS ? best_of_bin(a, bin, size) : ARENA_NONE;
}

uint32_t arena_holes_largest(const struct arena *a)
{
	uint32_t hole;
	unsigned word;

	if (!a->word_is_used)
		return ARENA_NONE;
	word = 63 - (unsigned)__builtin_clzll(a->word_is_used);
	hole = a->bins[word * 64 + 63 - (unsigned)__builtin_clzll(a->bin_is_used[word])];
	while (a->blocks[hole].right != ARENA_NONE)
		hole = a->blocks[hole].right;
	return hole;
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_ARENA_H
#define ENGINE_MEMORY_ARENA_H

/* An allocator of blocks in one contiguous range.  Arithmetic only: it deals in units (elements
 * or bytes, the caller's choice), touches no memory and copies nothing.
 *
 *	0       start                                                                 size
 *	|  used  |....hole....|  used  |  used, pinned  |..hole..|  used  |.....hole......|
 *
 * A block takes the front of the smallest hole that holds it.  Calls take O(log blocks) on
 * average over them, unless a comment says O(blocks).  A call that fails has changed nothing.
 * No locking.
 *
 * Compaction is planned, then stepped: a plan is a list of moves, made in copies of bounded
 * size; other calls may come between them.  The plan reserves the room that it clears and the
 * places that it moves blocks to, so that no block allocated meanwhile can spoil it.
 *
 *	rc = arena_plan(&a, want);
 *	while (arena_next_copy(&a, most, &copy) == 1) {
 *		memmove(base + copy.to, base + copy.from, copy.size);
 *		arena_copied(&a);
 *	}
 */

#include "engine/base/base.h"

/* Choice between holes of equal size. */
enum arena_tie {
	ARENA_LOWEST, /* takes the hole of the lowest start */
	ARENA_OLDEST, /* takes the hole that has had its size longest, as DeepSpeed's dict */
};

enum arena_kind {
	ARENA_UNUSED, /* the record is free */
	ARENA_HOLE,
	ARENA_USED,
	ARENA_CLEARED, /* a hole that the plan clears */
	ARENA_TARGET,  /* a hole that a block of the plan will move to */
};

enum { ARENA_NONE = UINT32_MAX, ARENA_BIN_WORDS = 59, ARENA_BINS = 64 * ARENA_BIN_WORDS };

struct arena_block { /* a line of the cache */
	uint64_t start, size;
	uint64_t tie;         /* of a hole: its order among those of equal size */
	uint32_t prev, next;  /* in the order of start; next also links free records */
	uint32_t left, right; /* of a hole: in its bin's tree, or in the heap of its size */
	uint32_t child;       /* of a hole: the first hole below it in the heap of its size */
	uint32_t generation;
	uint32_t pins;
	uint32_t params; /* the first parameter assigned to the block */
	uint32_t target; /* the hole that the plan moves the block to; ARENA_NONE: it slides */
	uint8_t kind;
	bool on_top;  /* of a hole: it is in the tree, with the others of its size below it */
	bool planned; /* the plan moves it */
};

/* A parameter, in a hash table of chains. */
struct arena_param {
	uint64_t param;
	uint64_t offset, size; /* in the block */
	uint32_t block;
	uint32_t chain;         /* the next of equal hash */
	uint32_t sibling, prev; /* the next and the previous in the same block */
};

struct arena_params {
	struct arena_param *all;
	uint32_t *heads;
	uint32_t count, allocated, top, unused, nheads;
};

struct arena_move {
	uint64_t block; /* its handle */
	uint64_t from, to, size;
};

struct arena_plan {
	struct arena_move *moves; /* [0, done) have been made; kept until the next plan */
	uint32_t nmoves, allocated, done;
	uint64_t units;   /* of all moves */
	uint64_t minimum; /* no plan for such a hole can move less */
	uint64_t copied;  /* of moves[done], units at their new place */
	uint64_t copying; /* handed out by arena_next_copy */
	bool active, moving;
};

struct arena_options {
	uint64_t size;
	uint64_t align;      /* > 0; of starts and sizes; divides size */
	uint32_t blocks_max; /* records: blocks and holes; 0: no bound but 2^32 */
	enum arena_tie tie;
};

struct arena {
	uint64_t size, align;
	uint64_t used, used_max; /* units in blocks now; most ever */
	/* units in ARENA_HOLEs, and in holes of the plan; with used: size */
	uint64_t holes, reserved;
	uint64_t nblocks, nholes;   /* how many */
	uint64_t age;               /* next tie of ARENA_OLDEST */
	struct arena_block *blocks; /* records */
	uint32_t top, allocated, blocks_max, unused, first;
	enum arena_tie tie;
	uint32_t bins[ARENA_BINS];             /* roots */
	uint64_t bin_is_used[ARENA_BIN_WORDS]; /* a bit for each bin */
	uint64_t word_is_used;                 /* a bit for each word of bin_is_used */
	struct arena_params params;
	struct arena_plan plan;
};

/* -EINVAL: no size, no align, or align does not divide size.
 * -ENOMEM.
 */
int arena_init(struct arena *a, const struct arena_options *options);
void arena_fini(struct arena *a);

/* Allocates size units, rounded up to align.  A handle is never 0 and never used again.
 * -EINVAL: size is 0.
 * -ENOSPC: less is free.
 * -EAGAIN: enough is free, but not in one piece; a plan may help.
 * -ENOMEM: no record.
 */
int arena_alloc(struct arena *a, uint64_t size, uint64_t *block);
/* Frees a block; parameters assigned to it are then assigned to no block.
 * -ENOENT: no such block (any more).
 * -EBUSY: the block is pinned.
 */
int arena_release(struct arena *a, uint64_t block);

/* A pinned block neither moves nor can be released.  Pins are counted.
 * -ENOENT: no such block.
 * -EAGAIN: the block is half moved; ask again after its last copy.
 * -EINVAL: the block is not pinned.
 */
int arena_pin(struct arena *a, uint64_t block);
int arena_unpin(struct arena *a, uint64_t block);

/* Finds unit `offset` of a block, and how many units follow in one piece: all up to the block's
 * end, unless the block is being moved.
 * -ENOENT: no such block.
 * -EINVAL: offset is outside the block.
 */
int arena_find(const struct arena *a, uint64_t block, uint64_t offset, uint64_t *at,
	       uint64_t *run);
/* Gives the size of a block, rounded up.  -ENOENT: no such block. */
int arena_size(const struct arena *a, uint64_t block, uint64_t *size);

/* Assigns units [offset, offset + size) of the block to param, any number.
 * -EEXIST: param is assigned already.
 * -ENOENT: no such block.
 * -EINVAL: the units are outside the block.
 * -ENOMEM.
 */
int arena_assign(struct arena *a, uint64_t param, uint64_t block, uint64_t offset,
		 uint64_t size);
/* Takes param from its block.  -ENOENT: param is not assigned. */
int arena_unassign(struct arena *a, uint64_t param);
/* Gives the units of param; arena_find(block, offset) finds them.  -ENOENT: param is not
 * assigned.
 */
int arena_param(const struct arena *a, uint64_t param, uint64_t *block, uint64_t *offset,
		uint64_t *size);
/* Gives the first parameter of a block, then the next; *cursor is 0 at first.  false: no more.
 */
bool arena_param_of(const struct arena *a, uint64_t block, uint32_t *cursor, uint64_t *param);

uint64_t arena_total_free(const struct arena *a);
uint64_t arena_max_allocated(const struct arena *a);
/* Returns the largest size that arena_alloc can give now. */
uint64_t arena_largest_contiguous(const struct arena *a);
/* Plans to make one hole of at least want units by moving few; moves nothing where there is
 * such a hole.  To clear a window [x, x + want) all blocks in it must move; the window of
 * fewest used units is a lower bound: plan.minimum.  The cheapest ARENA_WINDOWS windows are
 * tried in order: their blocks, largest first, each go to the hole that fits best; the first
 * window whose blocks all find room is taken.  Else neighbours slide together, in the run of
 * fewest used units: no plan that keeps the blocks' order moves less.  O(blocks log blocks).
 * -EINVAL: want is 0.
 * -ENOSPC: less is free.
 * -EBUSY: another plan runs, or pinned blocks are in the way.
 * -ENOMEM.
 */
enum { ARENA_WINDOWS = 32 };
int arena_plan(struct arena *a, uint64_t want);
/* Plans to slide every block down, in order, as DeepSpeed does.  Pinned blocks stay, and no
 * block slides past one.
 * -EBUSY: another plan runs.
 * -ENOMEM.
 */
int arena_plan_pack(struct arena *a);

struct arena_copy {
	uint64_t from, to, size; /* the ranges may overlap: copy as memmove does */
};

/* Gives the next copy to make, of at most `most` units (> 0); the next call must be
 * arena_copied.  1: there is a copy; 0: the plan is done, or there is none.
 * -EBUSY: the next block was pinned meanwhile; the plan is dropped.
 */
int arena_next_copy(struct arena *a, uint64_t most, struct arena_copy *copy);
void arena_copied(struct arena *a);
/* Ends the plan early if that makes a hole of size units; the move of a half-moved block goes
 * on.  Returns true if the plan was ended.  O(blocks).
 */
bool arena_plan_yield(struct arena *a, uint64_t size);

struct arena_part {
	uint64_t start, size;
	enum arena_kind kind;
	uint64_t block; /* its handle; 0: of no block */
	uint32_t pins;
};

/* Gives the parts of the range, in order of start; *cursor is 0 at first.  No other call may
 * come between.  false: no more.
 */
bool arena_next_part(const struct arena *a, uint32_t *cursor, struct arena_part *part);

#endif

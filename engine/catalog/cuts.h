/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_CUTS_H
#define ENGINE_CATALOG_CUTS_H

/* How a parameter is cut into boxes, one for each shard of its group: by one cut after the
 * other, each of which divides what the cuts before have left along one dimension, as
 * torch.chunk does.  Arithmetic only: no I/O, no threads.
 *
 * File order is C order of the whole parameter, which users see.  Stored order is box after
 * box, each in C order: layouts, tables of states, views and staged edits count elements in it,
 * so that what a shard holds is one run.
 *
 *   a parameter of 2 x 6 elements, cut in 3 along dimension 1; the numbers are file order:
 *
 *     0  1 | 2  3 | 4  5
 *     6  7 | 8  9 | 10 11      stored order: 0 1 6 7 | 2 3 8 9 | 4 5 10 11
 */

#include "engine/base/base.h"
#include "engine/frag.h"

struct cuts {
	uint32_t ndim, n;
	uint64_t numel;
	struct frag_cut *cut; /* [n] */
	uint64_t shape[];     /* [ndim] */
};

struct cuts_box {
	uint32_t shard;
	uint64_t start; /* stored order, of its first element */
	uint64_t numel; /* 0: the shard has no element */
	uint64_t from[FRAG_DIMS_MAX], size[FRAG_DIMS_MAX]; /* [ndim] */
};

/* The result is freed by free().  Errors go to *rc:
 * -EINVAL: a dimension is none of the shape's; a cut makes no part, or all of them together
 * make more than FRAG_WORLD_MAX; n is above FRAG_CUTS_MAX.
 * -ENOMEM.
 */
struct cuts *cuts_new(const struct frag_cut *cut, uint32_t n, uint32_t ndim,
		      const uint64_t *shape, uint64_t numel, int *rc);
/* NULL equals NULL alone. */
bool cuts_are_equal(const struct cuts *a, const struct cuts *b);
/* The number of boxes. */
uint32_t cuts_parts(const struct cuts *c);
/* Returns true if stored order is file order. */
bool cuts_keep_order(const struct cuts *c);

/* The number of elements of the largest box, which is the first: torch.chunk makes no later
 * part larger.
 */
uint64_t cuts_largest(const struct cuts *c);

void cuts_box(const struct cuts *c, uint32_t shard, struct cuts_box *box);
/* Sets *box to the box that has element `at` of stored order; at < numel. */
void cuts_find(const struct cuts *c, uint64_t at, struct cuts_box *box);

/* Calls `see` for each box with elements of [first, end) of file order, in stored order: they
 * are elements [from, to) of the box.  Returns the first result of `see` that is not 0.
 */
typedef int (*cuts_see)(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to);
int cuts_walk(const struct cuts *c, uint64_t first, uint64_t end, cuts_see see, void *arg);

/* Both copy elements [from, to) of a box, which lie one after the other in `stored`; `file` has
 * those of file order from `first` on.
 */
void cuts_to_file(const struct cuts *c, const struct cuts_box *box, uint64_t from, uint64_t to,
		  size_t element, const void *stored, void *file, uint64_t first);
void cuts_from_file(const struct cuts *c, const struct cuts_box *box, uint64_t from,
		    uint64_t to, size_t element, void *stored, const void *file,
		    uint64_t first);

#endif

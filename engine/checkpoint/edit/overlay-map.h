/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_OVERLAY_MAP_H
#define ENGINE_CHECKPOINT_EDIT_OVERLAY_MAP_H

/* Bytes laid over those of a table's files: which ranges of which file are read elsewhere.
 *
 *	file 0	......XXXXX.......YYYY......	. the file's own
 *	file 1	ZZ..........................	X, Y, Z in the layer's
 *
 * Changes only while nobody looks.
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/table/table.h"

struct layer_range {
	uint64_t offset, size; /* bytes in the file */
	uint64_t at;           /* where they are in the layer's */
	uint32_t file;
};

struct layer {
	int fd;             /* where its bytes are; the owner's */
	struct list ranges; /* struct layer_range: by file and offset, apart from each other */
};

void layer_fini(struct layer *l);

static inline uint32_t layer_count(const struct layer *l)
{
	return l->ranges.count;
}

static inline const struct layer_range *layer_get(const struct layer *l, uint32_t i)
{
	return (const struct layer_range *)l->ranges.items + i;
}

/* *out, empty before: what is to be seen where `above`, in the same order, lies over `below`. */
int layer_merge(struct list *out, const struct list *below, const struct list *above);

/* Bytes that lie together. */
struct layer_run {
	int fd;
	uint64_t at, size;
};

/* Those from `offset` on, at most size > 0; without a layer all are the file's.  O(log ranges). */
struct layer_run layer_find(const struct layer *l, const struct table *t, uint32_t file,
			    uint64_t offset, uint64_t size);
/* -EIO: the file ends before. */
int layer_read(const struct layer *l, const struct table *t, uint32_t file, uint64_t offset,
	       void *to, uint64_t size);

#endif

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

struct overlay_map_range {
	uint64_t offset, size; /* bytes in the file */
	uint64_t at;           /* where they are in the layer's */
	uint32_t file;
};

struct overlay_map {
	int fd; /* where its bytes are; the owner's */
	struct vec
		ranges; /* struct overlay_map_range: by file and offset, apart from each other */
};

void overlay_map_fini(struct overlay_map *l);

static inline uint32_t overlay_map_count(const struct overlay_map *l)
{
	return l->ranges.count;
}

static inline const struct overlay_map_range *overlay_map_get(const struct overlay_map *l,
							      uint32_t i)
{
	return (const struct overlay_map_range *)l->ranges.items + i;
}

/* *out, empty before: what is to be seen where `above`, in the same order, lies over `below`.
 */
int overlay_map_merge(struct vec *out, const struct vec *below, const struct vec *above);

/* Bytes that lie together. */
struct overlay_map_run {
	int fd;
	uint64_t at, size;
};

/* Those from `offset` on, at most size > 0; without a layer all are the file's.  O(log ranges).
 */
struct overlay_map_run overlay_map_find(const struct overlay_map *l, const struct table *t,
					uint32_t file, uint64_t offset, uint64_t size);
/* -EIO: the file ends before. */
int overlay_map_read(const struct overlay_map *l, const struct table *t, uint32_t file,
		     uint64_t offset, void *to, uint64_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_OVERLAY_MAP_H
#define ENGINE_CHECKPOINT_EDIT_OVERLAY_MAP_H

/* The map of an overlay: which ranges of a table's files are read from the overlay's log
 * instead.
 *
 *	file 0	......XXXXX.......YYYY......	. read from the file
 *	file 1	ZZ..........................	X, Y, Z read from the log
 *
 * No lock: the map may change only while nobody reads it.
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/table/table.h"

struct overlay_map_range {
	uint64_t offset, size; /* bytes in the file */
	uint64_t at;           /* where the bytes are in the log */
	uint32_t file;
};

struct overlay_map {
	int fd;            /* the log; borrowed */
	struct vec ranges; /* struct overlay_map_range, by file and offset, disjoint */
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

/* Fills *out, which is empty, with the ranges of `above` and those parts of `below` that the
 * ranges of `above` do not cover.  All are sorted by file and offset.
 * -ENOMEM.
 */
int overlay_map_merge(struct vec *out, const struct vec *below, const struct vec *above);

/* Adjacent bytes of one file. */
struct overlay_map_run {
	int fd;
	uint64_t at, size;
};

/* Returns where the bytes of a file from `offset` on are to be read, at most size (> 0), in
 * O(log ranges).  l NULL: in the file.
 */
struct overlay_map_run overlay_map_find(const struct overlay_map *l, const struct table *t,
					uint32_t file, uint64_t offset, uint64_t size);
/* Reads bytes of a file through the map.  -EIO: the file ends before. */
int overlay_map_read(const struct overlay_map *l, const struct table *t, uint32_t file,
		     uint64_t offset, void *to, uint64_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_SLOT_MAP_H
#define ENGINE_BASE_SLOT_MAP_H

/* A table of items by handles.  A handle has the number of a slot in its low 16 bits and the
 * slot's generation in its high 16, which changes with each use of the slot, so that an old
 * handle does not find a new item.  The free slot that was unused longest is taken first.
 * UINT32_MAX is never a handle.  No locking.
 */

#include "engine/base/base.h"

enum { SLOT_MAP_MAX = 65536 };

struct slot {
	void *item;          /* NULL: free */
	uint32_t next;       /* in the list of free slots */
	uint16_t generation; /* high bits of the slot's present handle, or of its next one */
};

struct slot_map {
	struct slot *slots;
	uint32_t size;  /* allocated */
	uint32_t top;   /* ever used */
	uint32_t max;   /* at most SLOT_MAP_MAX */
	uint32_t count; /* in use */
	uint32_t first_free, last_free;
	bool second; /* its handles are of the second kind */
};

void slot_map_init(struct slot_map *s, uint32_t max);
void slot_map_fini(struct slot_map *s);

/* Handles are of two kinds, so that handles of two tables can be told apart: bit 16, the lowest
 * of the generation.  The handles of an empty table are of the first kind, unless this is
 * called.
 */
void slot_map_set_second(struct slot_map *s);
static inline bool slot_map_is_second(uint32_t number)
{
	return number != UINT32_MAX && (number >> 16 & 1);
}

/* Keeps item, which is not NULL.
 * -ENFILE: max slots are in use.
 * -ENOMEM.
 */
int slot_map_add(struct slot_map *s, void *item, uint32_t *number);
/* NULL: the handle is not, or no longer, in use. */
void *slot_map_get(const struct slot_map *s, uint32_t number);
void slot_map_remove(struct slot_map *s, uint32_t number);

/* Returns the item of the first slot in use from *slot on, and sets *slot behind it; NULL:
 * none.
 */
void *slot_map_next(const struct slot_map *s, uint32_t *slot);

#endif

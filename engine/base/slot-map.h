/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_SLOT_MAP_H
#define ENGINE_BASE_SLOT_MAP_H

/* Numbers for things that come and go.  A number is a slot in its low 16 bits and how often the
 * slot was used before in its high 16, so that an old number does not mean a new thing: the
 * freed slot longest unused is taken first.  UINT32_MAX is never one.  No locking.
 */

#include "engine/base/base.h"

enum { SLOT_MAP_MAX = 65536 };

struct slot {
	void *item;          /* NULL: free */
	uint32_t next;       /* of the free ones */
	uint16_t generation; /* of the number that is, or will be, given for it */
};

struct slot_map {
	struct slot *slots;
	uint32_t size;  /* allocated */
	uint32_t top;   /* ever used */
	uint32_t max;   /* at most SLOT_MAP_MAX */
	uint32_t count; /* in use */
	uint32_t first_free, last_free;
};

void slot_map_init(struct slot_map *s, uint32_t max);
void slot_map_fini(struct slot_map *s);

/* -ENFILE: max are in use; -ENOMEM.  Keeps item, which is not NULL. */
int slot_map_add(struct slot_map *s, void *item, uint32_t *number);
/* NULL: no such number (any more). */
void *slot_map_get(const struct slot_map *s, uint32_t number);
void slot_map_remove(struct slot_map *s, uint32_t number);

/* Item of the first slot in use from *slot on, which is set behind it; NULL: none. */
void *slot_map_next(const struct slot_map *s, uint32_t *slot);

#endif

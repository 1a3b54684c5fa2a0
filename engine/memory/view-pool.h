/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_VIEW_POOL_H
#define ENGINE_MEMORY_VIEW_POOL_H

/* Memory for what views keep, in huge pages where it is large, lent and taken back: pages that were
 * touched once need not be cleared by the kernel again while a trainer waits.  The caller locks.
 */

#include "engine/base/base.h"

/* Lies right before a room's bytes, so that a reader of this process's memory sees whose they are: it copies
 * bytes, then the label.
 */
struct room_label {
	uint64_t view[2];
	_Atomic uint64_t complete; /* all bytes of the view are there */
};

struct room {
	struct room *next;
	uint8_t *bytes;
	uint64_t capacity;
	void *map;
	size_t mapped;
	uint64_t idle_ms; /* since when nobody has it */
};

struct rooms {
	struct room *idle;
	uint64_t lent, kept; /* bytes: with views, idle */
	uint64_t max;        /* of both */
};

void rooms_init(struct rooms *rooms, uint64_t bytes_max);
void rooms_fini(struct rooms *rooms);

/* At least size bytes, labelled view, not complete.  -ENOMEM: more than there is for all; or the machine
 * has none; -EAGAIN: too much is lent.
 */
int rooms_lend(struct rooms *rooms, uint64_t size, const uint64_t view[2], struct room **out);
void rooms_take_back(struct rooms *rooms, struct room *room, uint64_t now);
/* Frees what has been idle since before. */
void rooms_trim(struct rooms *rooms, uint64_t before);

static inline struct room_label *room_label(const struct room *room)
{
	return (struct room_label *)(void *)room->bytes - 1;
}

#endif

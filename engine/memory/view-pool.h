/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_VIEW_POOL_H
#define ENGINE_MEMORY_VIEW_POOL_H

/* Memory for what views keep, in huge pages where it is large, lent and taken back: pages that
 * were touched once need not be cleared by the kernel again while a trainer waits.  The caller
 * locks.
 */

#include "engine/base/base.h"

/* Lies right before a room's bytes, so that a reader of this process's memory sees whose they
 * are: it copies bytes, then the label.
 */
struct view_label {
	uint64_t view[2];
	_Atomic uint64_t complete; /* all bytes of the view are there */
};

struct view_buffer {
	struct view_buffer *next;
	uint8_t *bytes;
	uint64_t capacity;
	void *map;
	size_t mapped;
	uint64_t idle_ms; /* since when nobody has it */
};

struct view_pool {
	struct view_buffer *idle;
	uint64_t lent, kept; /* bytes: with views, idle */
	uint64_t max;        /* of both */
};

void view_pool_init(struct view_pool *rooms, uint64_t bytes_max);
void view_pool_fini(struct view_pool *rooms);

/* At least size bytes, labelled view, not complete.  -ENOMEM: more than there is for all; or
 * the machine has none; -EAGAIN: too much is lent.
 */
int view_pool_get(struct view_pool *rooms, uint64_t size, const uint64_t view[2],
		  struct view_buffer **out);
void view_pool_put(struct view_pool *rooms, struct view_buffer *room, uint64_t now);
/* Frees what has been idle since before. */
void view_pool_trim(struct view_pool *rooms, uint64_t before);

static inline struct view_label *view_pool_label(const struct view_buffer *room)
{
	return (struct view_label *)(void *)room->bytes - 1;
}

#endif

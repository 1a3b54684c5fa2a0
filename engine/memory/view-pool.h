/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_VIEW_POOL_H
#define ENGINE_MEMORY_VIEW_POOL_H

/* A pool of buffers for bytes that views preserve, in huge pages where they are large.
 * Returned buffers are kept for a while, because the kernel would have to clear new pages while
 * a trainer waits.  The caller locks.
 */

#include "engine/base/base.h"
#include "engine/base/queue.h"

/* The label right before a buffer's bytes says which view they belong to.  A one-sided reader
 * copies the bytes, then the label, and so knows whether they are still that view's.
 */
struct view_label {
	uint64_t view[2];
	_Atomic uint64_t complete; /* 1: all bytes of the view are there */
};

struct view_buffer {
	LIST_ENTRY(view_buffer) next;
	uint8_t *bytes;
	uint64_t capacity;
	void *map;
	size_t mapped;
	uint64_t idle_ms; /* when the buffer was returned */
};

struct view_pool {
	LIST_HEAD(, view_buffer) idle;
	uint64_t lent, kept; /* bytes: with views, idle */
	uint64_t max;        /* of lent and kept, together */
};

void view_pool_init(struct view_pool *pool, uint64_t bytes_max);
void view_pool_fini(struct view_pool *pool);

/* Lends a buffer of at least size bytes, labelled `view`, not complete.
 * -ENOMEM: more than bytes_max, or the machine has no memory.
 * -EAGAIN: too much is lent.
 */
int view_pool_get(struct view_pool *pool, uint64_t size, const uint64_t view[2],
		  struct view_buffer **out);
void view_pool_put(struct view_pool *pool, struct view_buffer *buffer, uint64_t now);
/* Frees the buffers that were returned before that time. */
void view_pool_trim(struct view_pool *pool, uint64_t before);

static inline struct view_label *view_pool_label(const struct view_buffer *buffer)
{
	return (struct view_label *)(void *)buffer->bytes - 1;
}

#endif

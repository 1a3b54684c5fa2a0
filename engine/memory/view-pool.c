/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/view-pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE = 2 << 20, SMALL = 4096 };

void view_pool_init(struct view_pool *pool, uint64_t bytes_max)
{
	*pool = (struct view_pool){ .max = bytes_max };
	LIST_INIT(&pool->idle);
}

static void free_buffer(struct view_pool *pool, struct view_buffer *buffer)
{
	LIST_REMOVE(buffer, next);
	pool->kept -= buffer->capacity;
	munmap(buffer->map, buffer->mapped);
	free(buffer);
}

void view_pool_fini(struct view_pool *pool)
{
	view_pool_trim(pool, UINT64_MAX);
}

void view_pool_trim(struct view_pool *pool, uint64_t before)
{
	struct view_buffer *buffer, *next;

	LIST_FOREACH_SAFE (buffer, &pool->idle, next, next)
		if (buffer->idle_ms < before)
			free_buffer(pool, buffer);
}

static uint64_t unit_of(uint64_t size)
{
	return size < HUGE ? SMALL : HUGE;
}

/* The bytes begin at a whole page; the label is the end of the page before. */
static struct view_buffer *new_buffer(uint64_t capacity)
{
	struct view_buffer *buffer = calloc(1, sizeof(*buffer));
	uint64_t unit = unit_of(capacity);

	if (!buffer)
		return NULL;
	buffer->capacity = capacity;
	buffer->mapped = capacity + 2 * unit;
	buffer->map = mmap(NULL, buffer->mapped, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer->map == MAP_FAILED) {
		free(buffer);
		return NULL;
	}
	buffer->bytes = (uint8_t *)buffer->map + 2 * unit - (uintptr_t)buffer->map % unit;
	if (unit == HUGE)
		madvise(buffer->bytes, capacity, MADV_HUGEPAGE);
	return buffer;
}

/* Takes the smallest idle buffer that has the capacity, and not more than twice of it; NULL:
 * none.
 */
static struct view_buffer *take_idle(struct view_pool *pool, uint64_t capacity)
{
	struct view_buffer *best = NULL, *buffer;

	LIST_FOREACH (buffer, &pool->idle, next)
		if (buffer->capacity >= capacity && buffer->capacity / 2 <= capacity &&
		    (!best || buffer->capacity < best->capacity))
			best = buffer;
	if (!best)
		return NULL;
	LIST_REMOVE(best, next);
	pool->kept -= best->capacity;
	return best;
}

int view_pool_get(struct view_pool *pool, uint64_t size, const uint64_t view[2],
		  struct view_buffer **out)
{
	uint64_t capacity = u64_div_ceil(size, unit_of(size)) * unit_of(size);
	struct view_buffer *buffer;

	if (size > pool->max)
		return -ENOMEM;
	/* the only buffer may be rounded up to more than the bound */
	if (pool->lent && pool->lent + capacity > pool->max)
		return -EAGAIN;
	buffer = take_idle(pool, capacity);
	while (!buffer && !LIST_EMPTY(&pool->idle) &&
	       pool->lent + pool->kept + capacity > pool->max)
		free_buffer(pool, LIST_FIRST(&pool->idle));
	if (!buffer && !(buffer = new_buffer(capacity)))
		return -ENOMEM;
	pool->lent += buffer->capacity;
	*view_pool_label(buffer) = (struct view_label){ { view[0], view[1] }, 0 };
	*out = buffer;
	return 0;
}

void view_pool_put(struct view_pool *pool, struct view_buffer *buffer, uint64_t now)
{
	/* before the buffer is lent again: a one-sided reader looks at the label last */
	atomic_store(&view_pool_label(buffer)->complete, 0);
	memset(view_pool_label(buffer)->view, 0, sizeof(view_pool_label(buffer)->view));
	pool->lent -= buffer->capacity;
	pool->kept += buffer->capacity;
	buffer->idle_ms = now;
	LIST_INSERT_HEAD(&pool->idle, buffer, next);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/view-pool.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE = 2 << 20, SMALL = 4096 };

void view_pool_init(struct view_pool *rooms, uint64_t bytes_max)
{
	*rooms = (struct view_pool){ .max = bytes_max };
}

static void free_room(struct view_pool *rooms, struct view_buffer **at)
{
	struct view_buffer *room = *at;

	*at = room->next;
	rooms->kept -= room->capacity;
	munmap(room->map, room->mapped);
	free(room);
}

void view_pool_fini(struct view_pool *rooms)
{
	view_pool_trim(rooms, UINT64_MAX);
}

void view_pool_trim(struct view_pool *rooms, uint64_t before)
{
	for (struct view_buffer **at = &rooms->idle; *at;) {
		if ((*at)->idle_ms < before)
			free_room(rooms, at);
		else
			at = &(*at)->next;
	}
}

static uint64_t unit_of(uint64_t size)
{
	return size < HUGE ? SMALL : HUGE;
}

/* Its bytes begin at a whole unit; the label has the end of the one before. */
static struct view_buffer *new_room(uint64_t capacity)
{
	struct view_buffer *room = calloc(1, sizeof(*room));
	uint64_t unit = unit_of(capacity);

	if (!room)
		return NULL;
	room->capacity = capacity;
	room->mapped = capacity + 2 * unit;
	room->map = mmap(NULL, room->mapped, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room->map == MAP_FAILED) {
		free(room);
		return NULL;
	}
	room->bytes = (uint8_t *)room->map + 2 * unit - (uintptr_t)room->map % unit;
	if (unit == HUGE)
		madvise(room->bytes, capacity, MADV_HUGEPAGE);
	return room;
}

/* The smallest idle one that will do, if it is not a waste. */
static struct view_buffer *take_idle(struct view_pool *rooms, uint64_t capacity)
{
	struct view_buffer **best = NULL, *room;

	for (struct view_buffer **at = &rooms->idle; *at; at = &(*at)->next)
		if ((*at)->capacity >= capacity && (*at)->capacity / 2 <= capacity &&
		    (!best || (*at)->capacity < (*best)->capacity))
			best = at;
	if (!best)
		return NULL;
	room = *best;
	*best = room->next;
	rooms->kept -= room->capacity;
	return room;
}

int view_pool_get(struct view_pool *rooms, uint64_t size, const uint64_t view[2],
		  struct view_buffer **out)
{
	uint64_t capacity = u64_div_ceil(size, unit_of(size)) * unit_of(size);
	struct view_buffer *room;

	if (size > rooms->max)
		return -ENOMEM;
	if (capacity > rooms->max - rooms->lent && rooms->lent)
		return -EAGAIN;
	room = take_idle(rooms, capacity);
	while (!room && rooms->idle && rooms->lent + rooms->kept + capacity > rooms->max)
		free_room(rooms, &rooms->idle);
	if (!room && !(room = new_room(capacity)))
		return -ENOMEM;
	rooms->lent += room->capacity;
	*view_pool_label(room) = (struct view_label){ { view[0], view[1] }, 0 };
	*out = room;
	return 0;
}

void view_pool_put(struct view_pool *rooms, struct view_buffer *room, uint64_t now)
{
	atomic_store(&view_pool_label(room)->complete, 0);
	memset(view_pool_label(room)->view, 0, sizeof(view_pool_label(room)->view));
	rooms->lent -= room->capacity;
	rooms->kept += room->capacity;
	room->idle_ms = now;
	room->next = rooms->idle;
	rooms->idle = room;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/slot-map.h"
#include "engine/base/vec.h"

#include <assert.h>
#include <errno.h>

enum { NO_SLOT = UINT32_MAX };

void slot_map_init(struct slot_map *s, uint32_t max)
{
	assert(max <= SLOT_MAP_MAX);
	*s = (struct slot_map){ .max = max, .first_free = NO_SLOT, .last_free = NO_SLOT };
}

void slot_map_fini(struct slot_map *s)
{
	free(s->slots);
	slot_map_init(s, s->max);
}

void slot_map_set_second(struct slot_map *s)
{
	assert(!s->top);
	s->second = true;
}

static uint32_t take_free(struct slot_map *s)
{
	uint32_t slot = s->first_free;

	s->first_free = s->slots[slot].next;
	if (s->first_free == NO_SLOT)
		s->last_free = NO_SLOT;
	return slot;
}

int slot_map_add(struct slot_map *s, void *item, uint32_t *number)
{
	uint32_t slot;

	assert(item);
	if (s->first_free != NO_SLOT) {
		slot = take_free(s);
	} else {
		if (s->top == s->max)
			return -ENFILE;
		if (!vec_grow(&s->slots, s->top, &s->size, sizeof(*s->slots)))
			return -ENOMEM;
		slot = s->top++;
		s->slots[slot].generation = s->second;
	}
	s->slots[slot].item = item;
	s->count++;
	*number = (uint32_t)s->slots[slot].generation << 16 | slot;
	return 0;
}

void *slot_map_get(const struct slot_map *s, uint32_t number)
{
	uint32_t slot = number & 0xffff;

	if (slot >= s->top || s->slots[slot].generation != number >> 16)
		return NULL;
	return s->slots[slot].item;
}

/* Never 0xffff, so that UINT32_MAX is no handle; by two, so that bit 0, the kind, stays. */
static uint16_t next_generation(uint16_t generation)
{
	return generation + 2 < 0xffff ? (uint16_t)(generation + 2) : generation & 1;
}

void slot_map_remove(struct slot_map *s, uint32_t number)
{
	uint32_t slot = number & 0xffff;

	if (!slot_map_get(s, number))
		return;
	s->slots[slot].item = NULL;
	s->slots[slot].next = NO_SLOT;
	s->slots[slot].generation = next_generation(s->slots[slot].generation);
	if (s->last_free == NO_SLOT)
		s->first_free = slot;
	else
		s->slots[s->last_free].next = slot;
	s->last_free = slot;
	s->count--;
}

void *slot_map_next(const struct slot_map *s, uint32_t *slot)
{
	while (*slot < s->top) {
		void *item = s->slots[(*slot)++].item;

		if (item)
			return item;
	}
	return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_VEC_H
#define ENGINE_BASE_VEC_H

/* An array of items of one size, which grows by doubling; the caller frees items. */

#include "engine/base/base.h"

struct vec {
	void *items;
	uint32_t count, room;
};

/* Appends an item of `size` bytes, of any content, and returns it; NULL: no memory. */
static inline void *vec_add(struct vec *l, size_t size)
{
	uint32_t room = l->room ? 2 * l->room : 16;

	if (l->count == l->room) {
		void *items = room > l->room ? reallocarray(l->items, room, size) : NULL;

		if (!items)
			return NULL;
		l->items = items;
		l->room = room;
	}
	return (char *)l->items + l->count++ * size;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_VEC_H
#define ENGINE_BASE_VEC_H

/* Arrays of items of one size, which grow by doubling; the caller frees items. */

#include "engine/base/base.h"

struct vec {
	void *items;
	uint32_t count, room;
};

/* Makes room for one more item behind the `count` of an array of any type; `items` is the
 * address of its pointer.  False: no memory; the array is as it was.
 */
static inline bool vec_grow(void *items, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 16;
	void *grown;

	if (count < *room)
		return true;
	grown = more > *room ? reallocarray(*(void **)items, more, size) : NULL;
	if (!grown)
		return false;
	*(void **)items = grown;
	*room = more;
	return true;
}

/* Appends an item of `size` bytes, of any content, and returns it; NULL: no memory. */
static inline void *vec_add(struct vec *l, size_t size)
{
	return vec_grow(&l->items, l->count, &l->room, size)
		       ? (char *)l->items + l->count++ * size
		       : NULL;
}

#endif

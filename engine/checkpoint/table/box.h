/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_TABLE_BOX_H
#define ENGINE_CHECKPOINT_TABLE_BOX_H

/* A box of a tensor: offsets and sizes in each dimension.  Elements of boxes and tensors are
 * numbered in C order, so a range of the tensor's elements has one range of the box's in it.
 * Arithmetic only.
 */

#include "engine/base/base.h"

struct box {
	uint32_t ndim;
	const uint64_t *shape; /* of the tensor; its product fits 63 bits */
	const uint64_t *offsets;
	const uint64_t *sizes; /* at least 1 */
};

bool box_is_inside(const struct box *b);
uint64_t box_count(const struct box *b);
bool box_overlaps(const struct box *a, const struct box *b);

/* Returns how many of the box's elements come before the tensor's element `element`. */
uint64_t box_below(const struct box *b, uint64_t element);

/* Returns the number in the tensor of the box's element `index`.  *run: so many elements from
 * there on are adjacent both in the box and in the tensor.
 */
uint64_t box_element(const struct box *b, uint64_t index, uint64_t *run);

/* Returns true if all elements of the box are adjacent in the tensor. */
bool box_is_interval(const struct box *b);

#endif

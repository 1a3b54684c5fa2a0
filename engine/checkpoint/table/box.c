/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/box.h"

bool box_is_inside(const struct box *b)
{
	for (uint32_t d = 0; d < b->ndim; d++) {
		uint64_t end;

		if (!b->sizes[d] || !u64_add(b->offsets[d], b->sizes[d], &end) ||
		    end > b->shape[d])
			return false;
	}
	return true;
}

uint64_t box_count(const struct box *b)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < b->ndim; d++)
		n *= b->sizes[d];
	return n;
}

bool box_overlaps(const struct box *a, const struct box *b)
{
	for (uint32_t d = 0; d < a->ndim; d++) {
		if (a->offsets[d] + a->sizes[d] <= b->offsets[d] ||
		    b->offsets[d] + b->sizes[d] <= a->offsets[d])
			return false;
	}
	return true;
}

uint64_t box_below(const struct box *b, uint64_t element)
{
	uint64_t below = 0, outer = 1, inner = box_count(b);

	for (uint32_t d = 0; d < b->ndim; d++)
		outer *= b->shape[d];
	if (element >= outer)
		return inner;
	for (uint32_t d = 0; d < b->ndim; d++) {
		uint64_t at;

		outer /= b->shape[d];
		inner /= b->sizes[d];
		at = element / outer;
		element %= outer;
		if (at < b->offsets[d])
			return below;
		if (at >= b->offsets[d] + b->sizes[d])
			return below + b->sizes[d] * inner;
		below += (at - b->offsets[d]) * inner;
	}
	return below;
}

/* Returns how many elements of the box are adjacent in the tensor, from the box's first element
 * on.
 */
static uint64_t row(const struct box *b)
{
	uint64_t n = 1;

	for (uint32_t d = b->ndim; d-- > 0;) {
		n *= b->sizes[d];
		if (b->sizes[d] != b->shape[d])
			break;
	}
	return n;
}

uint64_t box_element(const struct box *b, uint64_t index, uint64_t *run)
{
	uint64_t element = 0, stride = 1, in_row = row(b);

	*run = in_row - index % in_row;
	for (uint32_t d = b->ndim; d-- > 0;) {
		element += (b->offsets[d] + index % b->sizes[d]) * stride;
		index /= b->sizes[d];
		stride *= b->shape[d];
	}
	return element;
}

bool box_is_interval(const struct box *b)
{
	uint64_t run;

	box_element(b, 0, &run);
	return run == box_count(b);
}

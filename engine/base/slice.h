/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_SLICE_H
#define ENGINE_BASE_SLICE_H

/* NumPy's basic slicing of an array in C order: integers, START:STOP:STEP, "..." and "()", as
 * in [0:16,:], [-1], [...,::-2].  Arithmetic only.  Any thread.
 */

#include "engine/base/base.h"
#include "engine/frag.h"

struct slice_axis {
	uint64_t count;
	/* from one element of the slice to the next, in elements of the array */
	int64_t stride;
};

struct slice_dim {     /* the indices along a dimension of the array that are in a slice */
	uint64_t size; /* of the dimension */
	uint64_t start, count;
	int64_t step; /* 1 where count is at most 1 */
};

struct slice {
	uint32_t ndims; /* of the array, as are dims */
	struct slice_dim dims[FRAG_DIMS_MAX];
	uint64_t first; /* number in the array of the slice's first element */
	uint64_t numel;
	uint32_t ndim;
	uint64_t shape[FRAG_DIMS_MAX];
	/* The axes that the slice's elements are walked along, as few as possible: each has at
	 * least two elements, and no two neighbours can be joined.  Not used where numel is 0.
	 */
	uint32_t naxes;
	struct slice_axis axes[FRAG_DIMS_MAX];
};

/* Sets *s to the whole array; ndim <= FRAG_DIMS_MAX. */
void slice_all(struct slice *s, const uint64_t *shape, uint32_t ndim);

/* Parses a slice, brackets included, of an array of that shape; *end is behind it.
 * -EINVAL: the text does not begin with a slice.
 * -ERANGE: an index is out of range, or there are more items than axes.
 */
int slice_parse(struct slice *s, const char *text, const char **end, const uint64_t *shape,
		uint32_t ndim);

/* A run: elements of a slice whose numbers in the array are equally far apart. */
struct slice_run {
	uint64_t first; /* in the array */
	uint64_t count;
	int64_t step; /* from one element to the next; 1 where count is 1 */
};

/* Returns the longest run that begins with element number k of the slice; k < numel. */
struct slice_run slice_run(const struct slice *s, uint64_t k);

/* Returns true if the elements are a range of the array. */
bool slice_is_range(const struct slice *s);

/* Sets *out to the part of a slice that is in a box of its array, as a slice of that box, in
 * rising order: element number k + 1 of *out lies behind element number k.  from NULL: the
 * whole array.
 */
void slice_in_box(const struct slice *s, const uint64_t *from, const uint64_t *size,
		  struct slice *out);
/* Returns true if the axes make a slice in rising order, whose elements have numbers less than
 * INT64_MAX.  For axes from outside.
 */
bool slice_rises(const struct slice *s);
/* Returns how many elements of a slice in rising order have a number in the array less than
 * `at`.
 */
uint64_t slice_count_before(const struct slice *s, uint64_t at);

#endif

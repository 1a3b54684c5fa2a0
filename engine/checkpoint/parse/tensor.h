/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TENSOR_H
#define ENGINE_CHECKPOINT_PARSE_TENSOR_H

/* A tensor: its shape and strides, and the bytes of a storage that it spans.  Arithmetic only.
 */

#include "engine/checkpoint/parse/parse-error.h"
#include "engine/frag.h"

struct tensor {
	enum frag_dtype dtype;
	uint32_t ndim;
	uint64_t shape[FRAG_DIMS_MAX], stride[FRAG_DIMS_MAX]; /* elements */
	uint64_t numel;
	uint64_t bytes;  /* of all elements */
	uint64_t extent; /* bytes, first element to the end of the last; 0: none */
	bool contiguous; /* in C order without gaps: extent == bytes */
};

/* Computes numel, bytes, extent and contiguous from dtype, ndim, shape and stride, the numbers
 * in which are below 2^63.
 * -EBADMSG: elements or bytes exceed 2^62, or the last element lies beyond any memory.
 */
int tensor_measure(struct tensor *t, struct parse_error *error);

/* Returns true if both have the same shape. */
bool tensor_is_shaped_as(const struct tensor *t, const struct tensor *other);

#endif

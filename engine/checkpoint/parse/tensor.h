/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_TENSOR_H
#define ENGINE_CHECKPOINT_PARSE_TENSOR_H

/* Where the elements of a tensor lie among the bytes of its storage.  Arithmetic only. */

#include "engine/checkpoint/parse/parse-error.h"
#include "engine/frag.h"

struct tensor {
	enum frag_dtype dtype;
	uint32_t ndim;
	uint64_t shape[FRAG_DIMS_MAX], stride[FRAG_DIMS_MAX]; /* elements */
	uint64_t numel;
	uint64_t bytes; /* of all elements */
	uint64_t
		extent; /* bytes from the first to the end of the last; 0 when there are none */
	bool contiguous; /* row after row, without gaps: extent is bytes */
};

/* From dtype, ndim, shape and stride, all below 2^63, fills in the rest.
 * -EBADMSG: more elements or bytes than 2^62, or the last of them is beyond any memory.
 */
int tensor_measure(struct tensor *t, struct parse_error *error);

/* The same number and sizes of dimensions. */
bool tensor_is_shaped_as(const struct tensor *t, const struct tensor *other);

#endif

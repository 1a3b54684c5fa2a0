/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/tensor.h"

#include <errno.h>
#include <string.h>

static const uint64_t limit = (uint64_t)1 << 62;

static bool is_contiguous(const struct tensor *t)
{
	uint64_t wanted = 1;

	for (uint32_t i = t->ndim; i--;) {
		if (t->shape[i] == 1)
			continue;
		if (t->stride[i] != wanted)
			return false;
		wanted *= t->shape[i];
	}
	return true;
}

int tensor_measure(struct tensor *t, struct parse_error *error)
{
	uint64_t last = 0, step; /* last: the place of the last element, in elements */
	size_t size = frag_dtype_size(t->dtype);
	bool fits = true;

	t->numel = t->bytes = t->extent = 0;
	t->contiguous = true;
	for (uint32_t i = 0; i < t->ndim; i++)
		if (!t->shape[i])
			return 0;
	t->numel = 1;
	for (uint32_t i = 0; i < t->ndim && fits; i++)
		fits = u64_mul(t->numel, t->shape[i], &t->numel) &&
		       u64_mul(t->shape[i] - 1, t->stride[i], &step) &&
		       u64_add(last, step, &last);
	if (!fits || !u64_mul(t->numel, size, &t->bytes) || t->bytes >= limit ||
	    !u64_mul(last + 1, size, &t->extent) || last >= limit || t->extent >= limit)
		return parse_error_set(error, -EBADMSG, "a tensor of impossible size");
	t->contiguous = is_contiguous(t);
	return 0;
}

bool tensor_is_shaped_as(const struct tensor *t, const struct tensor *other)
{
	return t->ndim == other->ndim &&
	       !memcmp(t->shape, other->shape, t->ndim * sizeof(*t->shape));
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_CATALOG_PADDING_H
#define TESTS_UNIT_CATALOG_PADDING_H

#include "engine/catalog/layout.h"

/* The elements of the shard's partition of a sub-group that belong to no parameter. */
static inline uint64_t layout_padding(const struct layout *l, uint32_t shard, uint32_t sub)
{
	struct layout_fragment f;
	uint64_t padding;

	if (shard >= l->shards || sub >= l->nsubs)
		return 0;
	padding = l->partition_numel[sub];
	for (uint32_t i = 0; i < l->nparams; i++)
		if (layout_sub(l, i) == sub && layout_on_shard(l, i, shard, &f))
			padding -= f.numel;
	return padding;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* A table of states from a rank that lies: decoded, searched, resolved. */

#include "engine/catalog/states.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static void resolve(const struct state_row *row)
{
	uint64_t bytes = row->numel * frag_dtype_size(row->dtype), sum = 0;
	struct iovec parts[8];
	int n = states_resolve(row, 0, bytes, parts, 8);

	assert(bytes / (frag_dtype_size(row->dtype) ? frag_dtype_size(row->dtype) : 1) ==
		       row->numel ||
	       row->kind == STATE_NONE);
	for (int i = 0; i < n; i++)
		sum += parts[i].iov_len;
	assert(n < 0 || sum == bytes);
	states_resolve(row, bytes / 2 + 1, bytes / 3, parts, 8);
	assert(states_resolve(row, bytes, 1, parts, 8) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct states *s;

	if (states_decode(&s, data, size))
		return 0;
	for (uint32_t i = 0; i < s->nrows && i < 256; i++) {
		const struct state_row *row = &s->rows[i];

		if (row->kind == STATE_NONE)
			continue;
		assert(states_find(s, row->kind, row->index, row->sub, row->key) == (int)i);
		resolve(row);
	}
	for (uint32_t i = 0; i < s->ngroup_rows; i++)
		assert(s->group_rows[i] < s->nrows);
	states_free(s);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/outcome-log.h"

#include <string.h>

struct decision *decisions_find(struct decisions *o, const uint64_t transaction[2])
{
	uint64_t n = u64_min(o->n, DECISIONS_MAX);

	for (uint64_t i = 0; i < n; i++)
		if (!memcmp(o->ring[i].transaction, transaction,
			    sizeof(o->ring[i].transaction)))
			return &o->ring[i];
	return NULL;
}

void decisions_add(struct decisions *o, const uint64_t transaction[2], bool committed)
{
	o->ring[o->n++ % DECISIONS_MAX] = (struct decision){
		.transaction = { transaction[0], transaction[1] },
		.committed = committed,
	};
}

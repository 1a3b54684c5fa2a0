/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/outcome-log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int outcome_log_init(struct outcome_log *o)
{
	/* calloc would clear, and so touch, memory that the heap has used before */
	*o = (struct outcome_log){ .ring = malloc(OUTCOME_LOG_MAX * sizeof(*o->ring)) };
	return o->ring ? 0 : -ENOMEM;
}

void outcome_log_fini(struct outcome_log *o)
{
	free(o->ring);
}

struct outcome_entry *outcome_log_find(struct outcome_log *o, const uint64_t transaction[2])
{
	uint64_t n = u64_min(o->n, OUTCOME_LOG_MAX);

	for (uint64_t i = 0; i < n; i++)
		if (!memcmp(o->ring[i].transaction, transaction,
			    sizeof(o->ring[i].transaction)))
			return &o->ring[i];
	return NULL;
}

void outcome_log_add(struct outcome_log *o, const uint64_t transaction[2], bool committed)
{
	o->ring[o->n++ % OUTCOME_LOG_MAX] = (struct outcome_entry){
		.transaction = { transaction[0], transaction[1] },
		.committed = committed,
	};
}

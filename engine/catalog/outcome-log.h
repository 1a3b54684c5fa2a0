/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_OUTCOME_LOG_H
#define ENGINE_CATALOG_OUTCOME_LOG_H

/* The outcomes of the newest transactions: a ring.  Not locked. */

#include "engine/base/base.h"

enum { OUTCOME_LOG_MAX = 2048 };

struct outcome_entry {
	uint64_t transaction[2];
	bool committed;
	int status; /* of applying it: here, or, with its coordinator, on all ranks */
};

struct outcome_log {
	uint64_t n;                 /* outcomes added, ever */
	struct outcome_entry *ring; /* [OUTCOME_LOG_MAX] */
};

/* The ring's pages take memory once they are used.  -ENOMEM. */
int outcome_log_init(struct outcome_log *o);
void outcome_log_fini(struct outcome_log *o);

/* NULL: the transaction is not remembered; else valid until the next outcome_log_add. */
struct outcome_entry *outcome_log_find(struct outcome_log *o, const uint64_t transaction[2]);
void outcome_log_add(struct outcome_log *o, const uint64_t transaction[2], bool committed);

#endif

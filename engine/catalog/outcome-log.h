/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_OUTCOME_LOG_H
#define ENGINE_CATALOG_OUTCOME_LOG_H

/* What became of the newest transactions: a ring.  Not locked. */

#include "engine/base/base.h"

enum { DECISIONS_MAX = 512 };

struct decision {
	uint64_t transaction[2];
	bool committed;
	int status; /* of applying it; a coordinator's: on all ranks */
};

struct decisions {
	struct decision ring[DECISIONS_MAX];
	uint64_t n; /* ever */
};

/* NULL: it is not among them; else good until the next decisions_add. */
struct decision *decisions_find(struct decisions *o, const uint64_t transaction[2]);
void decisions_add(struct decisions *o, const uint64_t transaction[2], bool committed);

#endif

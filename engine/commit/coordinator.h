/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_COORDINATOR_H
#define ENGINE_COMMIT_COORDINATOR_H

/* One boundary for an edit or a freeze.  The coordinator, the lowest live rank, asks all ranks
 * for the promise not to pass boundary N without the decision; when all have promised, the edit
 * is accepted; when the first rank arrives at N, it is decided and all are told; until then its
 * writer may cancel it.  A freeze is an edit without bytes, at which the trainers stand; edits
 * that come meanwhile name the same boundary.
 *
 * A coordinator that dies: whoever waits asks all live ranks.  One that knows the decision
 * settles it; when none does, all of them having promised to take no more from the dead one, it
 * is aborted.  It may live, though: it commits its own part last, when another has taken the
 * decision, and aborts when all refuse.
 *
 * Engine thread of a rank, with the lock.
 */

#include "engine/node/node.h"

struct coordinator {
	struct coordinator_transaction *transactions;
	uint64_t boundary; /* the highest N asked for: later edits come no earlier */
	uint64_t order;    /* of the transaction that was accepted last */
};

void coordinator_free(struct engine *e);

void coordinator_commit(struct engine *e, uint32_t peer, uint64_t request,
			const struct wire_commit *commit, const void *ranks, size_t size);
void coordinator_cancel(struct engine *e, const uint64_t transaction[2]);
/* Whether this rank is its coordinator, and it is not over on all. */
bool coordinator_coordinates(struct engine *e, const uint64_t transaction[2]);
/* A rank waits for the decision.  What it is, when no DECIDE is on its way to that rank. */
enum wire_outcome coordinator_arrived(struct engine *e, uint32_t rank,
				      const uint64_t transaction[2]);
void coordinator_turn(struct engine *e, uint64_t now);

#endif

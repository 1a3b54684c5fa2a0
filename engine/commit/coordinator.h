/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_COORDINATOR_H
#define ENGINE_COMMIT_COORDINATOR_H

/* The coordinator of the two-phase commit, the lowest live rank.  It asks all ranks for the
 * promise not to pass boundary N without the decision, and tells the writer when all have
 * promised (ACCEPTED).  It decides, and tells all, when the first rank arrives at N; until then
 * the writer may cancel.  A freeze is an edit without bytes, at whose N the trainers stand;
 * edits that come meanwhile name the same boundary.
 *
 *     .----- a rank comes -----.
 *     v                        |
 *   VOTING --all promise--> ACCEPTED --one is at N--> COMMITTING --one takes it--> COMMITTED
 *     |                        |                          |
 *     '--- refused, cancelled -+----- all refuse it ------'----------------------> ABORTED
 *
 * A watch is a freeze with a condition.  It is decided when all ranks wait at N and have said
 * what they found there: they stand where the condition holds, else are asked for the promise
 * of N + 1, which lets them go on.  A job has one watch at a time.
 *
 * A coordinator that is held for dead may live: the other ranks then abort without it
 * (termination.h), and refuse its decision.  So in COMMITTING all but its own rank are told; it
 * commits its own part last, when another rank has taken the decision, and aborts when all
 * refuse.
 *
 * Engine thread of a rank, with the lock.
 */

#include "engine/node/node.h"

struct coordinator {
	LIST_HEAD(, coordinator_transaction) transactions;
	uint64_t boundary; /* the highest N asked for: later edits come no earlier */
	uint64_t order;    /* of the last transaction that ranks were asked about */
};

/* Takes COMMIT and its tail; answers by ACK, ACCEPTED and APPLIED. */
void coordinator_commit(struct engine *e, uint32_t peer, uint64_t request,
			const struct wire_commit *commit, const void *tail, size_t size);
/* Takes CANCEL: aborts the transaction, if it is not decided yet. */
void coordinator_cancel(struct engine *e, const uint64_t transaction[2]);
/* Returns true if this rank coordinates the transaction, which is not over on all ranks. */
bool coordinator_coordinates(struct engine *e, const uint64_t transaction[2]);
/* Takes ARRIVED: a rank waits for the decision.  Returns the decision; UNDECIDED too while
 * DECIDE is on its way to that rank.
 */
enum wire_outcome coordinator_arrived(struct engine *e, uint32_t rank,
				      const uint64_t transaction[2]);
/* Takes CHECKED: a rank waits at a boundary of a watch.  Returns the decision as
 * coordinator_arrived does; UNDECIDED too while other ranks have not come.
 */
enum wire_outcome coordinator_checked(struct engine *e, uint32_t rank,
				      const struct wire_checked *checked,
				      const struct wire_found *found);
void coordinator_turn(struct engine *e, uint64_t now);
void coordinator_free(struct engine *e);

#endif

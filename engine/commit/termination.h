/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_TERMINATION_H
#define ENGINE_COMMIT_TERMINATION_H

/* Cooperative termination of the two-phase commit: when a coordinator is lost, an engine that
 * needs its decision asks all ranks (OUTCOME -> KNOWN).
 *
 *   COMMITTED    that rank knows the decision; this settles the question
 *   COORDINATED  for that rank the coordinator lives: the question is asked again later
 *   ABORTED      that rank knows the decision, or has promised nothing and never will
 *   UNDECIDED    that rank has promised, and is fenced from now on: it takes no decision from
 *                the lost coordinator any more
 *
 * When all live ranks have answered, none of them COMMITTED or COORDINATED, the transaction is
 * aborted.  A rank asks about what it has promised.  The writer of a transaction asks too, and
 * then tells the holders in the coordinator's place.  Engine thread, with the lock.
 */

#include "engine/node/node.h"
#include "engine/node/rpc.h"

enum termination_state { TERMINATION_NEW, TERMINATION_ASKING, TERMINATION_TELLING };

struct termination {
	uint64_t transaction[2];
	uint32_t *holders; /* [world] not 0: that rank has not applied it; NULL: no writer's */
	enum termination_state state;
	unsigned outstanding; /* answers */
	uint64_t asked_ms;    /* when the ranks were asked, or told, last */
	bool again;           /* a rank is to be asked, or told, once more */
	bool committed;       /* a rank has answered COMMITTED */
};

/* Asks all ranks until the decision is known.  A writer's then tells its holders to commit,
 * until each has applied its part.
 * 0: committed.
 * -EIO: aborted.
 * -EAGAIN: not over yet.
 */
int termination_turn(struct engine *e, struct termination *t, uint64_t now);

/* A rank asks about each edit, round and freeze that it has promised and whose coordinator is
 * lost, and tells the coordinator where its trainer waits for the decision (ARRIVED).
 */
void termination_turn_orphans(struct engine *e, uint64_t now);
void termination_free_orphans(struct engine *e);

/* An rpc_done: gives this rank the decision that a coordinator's answer (KNOWN) has. */
bool termination_on_known(struct engine *e, void *owner, uint64_t rank,
			  const struct answer *answer);

/* Returns this rank's answer to OUTCOME. */
enum wire_outcome termination_outcome(struct engine *e, const uint64_t transaction[2]);

#endif

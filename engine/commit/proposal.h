/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_PROPOSAL_H
#define ENGINE_COMMIT_PROPOSAL_H

/* The client of a coordinator (coordinator.h): asks for one boundary, on which all ranks agree,
 * for what its owner proposes: the bytes of a transaction, the sends of a round, or a freeze.
 *
 *                           .-----------------> SETTLED: the coordinator said how it ended
 *   NEW --COMMIT--> ASKED --+--> ACCEPTED --.
 *                           '---------------+-> LOST: nothing is heard from the coordinator
 *
 * COMMIT goes again to the same coordinator when it, or its answer, may have been lost: another
 * coordinator would decide the same proposal once more.  From COMMIT on only the coordinator
 * can end a proposal, since it alone knows whether a cancel came in time.
 *
 * The owner fills commit and holders, and frees holders; rpc_forget(e, proposal) ends the wait
 * for answers.  Engine thread, with the lock.
 */

#include "engine/node/node.h"

enum proposal_state {
	PROPOSAL_NEW,
	PROPOSAL_ASKED,
	PROPOSAL_ACCEPTED, /* all ranks have promised; a cancel may still come in time */
	PROPOSAL_LOST,     /* the decision is not known here: termination.h */
	PROPOSAL_SETTLED,
};

struct proposal {
	struct wire_commit
		commit; /* its transaction, and what is proposed; count: of holders */
	const struct wire_condition *condition; /* of a watch; NULL: this is none */
	uint32_t *holders; /* [world] not 0: that rank has a part; NULL: none has */
	enum proposal_state state;
	uint32_t coordinator; /* the rank that was asked, from ASKED on */
	uint64_t agreed;      /* ACCEPTED: the boundary to which all ranks must come */
	int status;        /* SETTLED: 0, or why it failed; LOST: why the coordinator is lost */
	uint64_t boundary; /* SETTLED: where it was applied; 0: nowhere, or not known */
	bool repeat;       /* COMMIT is to be sent again */
	bool cancel_sent;  /* CANCEL followed the last COMMIT */
};

/* Asks the lowest live rank.  On error the proposal stays NEW:
 * -EAGAIN: the message queue is full; the caller asks again later.
 * -EIO: no rank lives.
 * -ENOMEM
 */
int proposal_ask(struct engine *e, struct proposal *p);
/* Repeats a lost COMMIT; cancel: sends CANCEL, once, as long as the outcome is not known.  At
 * each turn from ASKED on.
 */
void proposal_turn(struct engine *e, struct proposal *p, bool cancel);
/* Tells the coordinator, once, that the proposal is not wanted any more. */
void proposal_cancel(struct engine *e, struct proposal *p);
/* Tells all holders to drop their parts of a proposal that is NEW. */
void proposal_withdraw(struct engine *e, const struct proposal *p);

static inline bool proposal_is_over(const struct proposal *p)
{
	return p->state >= PROPOSAL_LOST;
}

#endif

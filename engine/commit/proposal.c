/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/commit/proposal.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <string.h>

static void end_proposal(struct proposal *p, enum proposal_state state, int status)
{
	p->state = state;
	p->status = wire_status(status);
}

static bool is_lost(const struct answer *answer)
{
	return !answer->type && (answer->status == -EIO || answer->status == -ETIMEDOUT);
}

static bool on_verdict(struct engine *e, void *owner, uint64_t coordinator,
		       const struct answer *answer)
{
	struct proposal *p = owner;
	struct wire_applied applied = { .status = answer->status ? answer->status : -EIO };
	struct wire_accepted accepted;

	if (answer->type == WIRE_ACCEPTED && !answer->status) {
		memcpy(&accepted, answer->body, sizeof(accepted));
		p->state = PROPOSAL_ACCEPTED;
		p->agreed = accepted.boundary;
		return true; /* APPLIED, or a refusal, follows */
	}
	if (answer->status == -EAGAIN) {
		p->repeat = true;
		return false;
	}
	if (answer->type == WIRE_APPLIED && !answer->status)
		memcpy(&applied, answer->body, sizeof(applied));
	p->boundary = applied.generation; /* which has the boundary */
	end_proposal(p, is_lost(answer) ? PROPOSAL_LOST : PROPOSAL_SETTLED, applied.status);
	return false;
}

static int send_commit(struct engine *e, struct proposal *p)
{
	CLEANUP(free) uint32_t *ranks = malloc((e->world + 1) * sizeof(*ranks));
	uint32_t n = 0;

	if (!ranks)
		return -ENOMEM;
	for (uint32_t rank = 0; p->holders && rank < e->world; rank++)
		if (p->holders[rank])
			ranks[n++] = rank;
	p->commit.count = n;
	if (p->condition)
		return peers_call(e, p->coordinator, WIRE_COMMIT, &p->commit, p->condition,
				  sizeof(*p->condition), on_verdict, p, p->coordinator);
	return peers_call(e, p->coordinator, WIRE_COMMIT, &p->commit, ranks, n * sizeof(*ranks),
			  on_verdict, p, p->coordinator);
}

int proposal_ask(struct engine *e, struct proposal *p)
{
	int rc;

	p->coordinator = peers_first_live(e);
	rc = p->coordinator == WIRE_OBSERVER ? -EIO : send_commit(e, p);
	if (!rc)
		p->state = PROPOSAL_ASKED;
	return rc;
}

static void ask_again(struct engine *e, struct proposal *p)
{
	int rc = send_commit(e, p);

	p->repeat = rc == -EAGAIN || rc == -ENOMEM;
	/* A coordinator that had not heard of the proposal has ignored the CANCEL. */
	p->cancel_sent &= p->repeat;
	if (rc && !p->repeat)
		end_proposal(p, PROPOSAL_LOST, rc);
}

void proposal_turn(struct engine *e, struct proposal *p, bool cancel)
{
	assert(node_is_engine_thread(e));
	if (p->repeat && !proposal_is_over(p))
		ask_again(e, p);
	if (cancel && !proposal_is_over(p))
		proposal_cancel(e, p);
}

void proposal_cancel(struct engine *e, struct proposal *p)
{
	struct wire_transaction body;

	memcpy(body.transaction, p->commit.transaction, sizeof(body.transaction));
	if (!p->cancel_sent)
		peers_call(e, p->coordinator, WIRE_CANCEL, &body, NULL, 0, NULL, NULL, 0);
	p->cancel_sent = true;
}

void proposal_withdraw(struct engine *e, const struct proposal *p)
{
	struct wire_decide decide = { .commit = 0 };

	memcpy(decide.transaction, p->commit.transaction, sizeof(decide.transaction));
	for (uint32_t rank = 0; p->holders && rank < e->world; rank++)
		if (p->holders[rank])
			peers_call(e, rank, WIRE_DECIDE, &decide, NULL, 0, NULL, NULL, 0);
}

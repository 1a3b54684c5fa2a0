/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/commit/outcome.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <string.h>

enum { RETRY_MS = 100 };

static void sent(struct outcome *o, int rc)
{
	o->outstanding += !rc;
	o->again |= rc == -EAGAIN;
}

/* ---- is it decided? ---- */

static bool on_known(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct outcome *o = owner;
	struct wire_known known;

	o->outstanding--;
	o->again |= answer->status == -EAGAIN;
	if (answer->status || answer->type != WIRE_KNOWN)
		return false;
	memcpy(&known, answer->body, sizeof(known));
	o->again |= known.outcome == WIRE_COORDINATED;
	o->committed |= known.outcome == WIRE_COMMITTED;
	return false;
}

static void ask(struct engine *e, struct outcome *o)
{
	struct wire_transaction body = { { o->transaction[0], o->transaction[1] } };

	for (uint32_t rank = 0; rank < e->world; rank++)
		sent(o, peers_call(e, rank, WIRE_OUTCOME, &body, NULL, 0, on_known, o, rank));
}

/* ---- is it applied? ---- */

static bool on_applied(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer)
{
	struct outcome *o = owner;

	if (answer->type == WIRE_ACK && !answer->status)
		return true; /* APPLIED follows */
	o->outstanding--;
	/* what it has promised to the lost one it settles itself */
	if (answer->status == -EAGAIN || answer->status == -EACCES || answer->status == -ESTALE)
		o->again = true;
	else
		o->holders[rank] = 0;
	return false;
}

static void tell(struct engine *e, struct outcome *o)
{
	struct wire_decide decide = { { o->transaction[0], o->transaction[1] }, 1, 0 };

	for (uint32_t rank = 0; rank < e->world; rank++)
		if (o->holders[rank])
			sent(o, peers_call(e, rank, WIRE_DECIDE, &decide, NULL, 0, on_applied,
					   o, rank));
}

int outcome_turn(struct engine *e, struct outcome *o, uint64_t now)
{
	bool answered = o->retry_ms && !o->again;

	if (o->outstanding || now < o->retry_ms)
		return -EAGAIN;
	if (answered && o->telling == o->committed)
		return o->committed ? 0 : -EIO;
	o->again = false;
	o->telling = o->committed;
	o->retry_ms = now + RETRY_MS;
	if (o->telling)
		tell(e, o);
	else
		ask(e, o);
	return -EAGAIN;
}

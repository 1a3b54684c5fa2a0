/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/commit/coordinator-internal.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <string.h>

enum wire_outcome coordinator_outcome(struct engine *e, const uint64_t transaction[2])
{
	uint32_t coordinator = participant_coordinator(&e->edits, transaction);

	if (coordinator < e->world &&
	    !peers_reach(e, coordinator)) /* from now on it is pinged */
		return WIRE_COORDINATED;
	return participant_outcome(&e->edits, transaction);
}

/* One question to all live ranks about one edit. */
struct inquiry {
	struct inquiry *next;
	uint64_t transaction[2];
	unsigned outstanding;
	bool again; /* one could not be asked, or waits for the coordinator yet */
	uint64_t asked_ms;
	enum wire_outcome outcome;
};

static bool on_known(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct inquiry *q = owner;
	struct wire_known known;

	q->outstanding--;
	q->again |= answer->status == -EAGAIN;
	if (answer->status || answer->type != WIRE_KNOWN)
		return false;
	memcpy(&known, answer->body, sizeof(known));
	q->again |= known.outcome == WIRE_COORDINATED;
	if (known.outcome ==
	    WIRE_COMMITTED) /* over an ABORTED of one that was not asked to promise */
		q->outcome = WIRE_COMMITTED;
	return false;
}

static bool is_asked(const struct engine *e, const uint64_t transaction[2])
{
	for (const struct inquiry *q = e->inquiries; q; q = q->next)
		if (!memcmp(q->transaction, transaction, sizeof(q->transaction)))
			return true;
	return false;
}

static void inquire(struct engine *e, const uint64_t transaction[2])
{
	struct wire_transaction body = { { transaction[0], transaction[1] } };
	struct inquiry *q = calloc(1, sizeof(*q));

	if (!q)
		return;
	memcpy(q->transaction, transaction, sizeof(q->transaction));
	q->asked_ms = monotonic_ms();
	q->next = e->inquiries;
	e->inquiries = q;
	for (uint32_t rank = 0; rank < e->world; rank++) {
		int rc = peers_call(e, rank, WIRE_OUTCOME, &body, NULL, 0, on_known, q, rank);

		q->outstanding += !rc;
		q->again |= rc == -EAGAIN;
	}
}

static void resolve(struct engine *e, const struct inquiry *q)
{
	bool committed = q->outcome == WIRE_COMMITTED;

	log_warn("an edit or freeze whose coordinator died is %s",
		 committed ? "committed: another rank knew" : "aborted");
	participant_resolve(&e->edits, q->transaction, committed);
}

static void turn_inquiries(struct engine *e, uint64_t now)
{
	for (struct inquiry **at = &e->inquiries; *at;) {
		struct inquiry *q = *at;

		if (q->outstanding || (q->again && now < q->asked_ms + COORDINATOR_TELL_MS)) {
			at = &q->next;
			continue;
		}
		if (!q->again || q->outcome == WIRE_COMMITTED)
			resolve(e, q);
		*at = q->next;
		free(q);
	}
}

/* ---- what the trainer's thread waits for ---- */

struct orphans {
	struct engine *e;
	uint64_t now;
	uint64_t found[8][2];
	unsigned n;
	struct {
		uint64_t transaction[2];
		uint32_t coordinator;
	} arrived[8];
	unsigned narrived;
};

static bool see_prepared(void *arg, struct edit *edit)
{
	struct orphans *o = arg;
	const struct peer *p = &o->e->peers[edit->coordinator];

	if ((p->state == ENGINE_RANK_LOST || edit->fenced) && o->n < ARRAY_SIZE(o->found))
		memcpy(o->found[o->n++], edit->transaction, sizeof(edit->transaction));
	if (edit->arrived && o->now >= edit->told_ms + COORDINATOR_TELL_MS &&
	    o->narrived < ARRAY_SIZE(o->arrived)) {
		edit->told_ms = o->now;
		memcpy(o->arrived[o->narrived].transaction, edit->transaction,
		       sizeof(edit->transaction));
		o->arrived[o->narrived++].coordinator = edit->coordinator;
	}
	return false;
}

static bool on_arrival_heard(struct engine *e, void *owner, uint64_t rank,
			     const struct answer *answer)
{
	struct wire_known known;

	if (!answer->status && answer->type == WIRE_KNOWN) {
		memcpy(&known, answer->body, sizeof(known));
		participant_hear(&e->edits, known.transaction, known.outcome == WIRE_COMMITTED);
	}
	return false;
}

static void turn_prepared(struct engine *e, uint64_t now)
{
	struct orphans o = { .e = e, .now = now };

	participant_each_prepared(&e->edits, see_prepared, &o);
	for (unsigned i = 0; i < o.narrived; i++) {
		struct wire_transaction body;

		memcpy(body.transaction, o.arrived[i].transaction, sizeof(body.transaction));
		peers_call(e, o.arrived[i].coordinator, WIRE_ARRIVED, &body, NULL, 0,
			   on_arrival_heard, NULL, o.arrived[i].coordinator);
	}
	for (unsigned i = 0; i < o.n; i++)
		if (!is_asked(e, o.found[i]))
			inquire(e, o.found[i]);
}

void coordinator_adopt_turn(struct engine *e, uint64_t now)
{
	turn_prepared(e, now);
	turn_inquiries(e, now);
}

void coordinator_adopt_free(struct engine *e)
{
	while (e->inquiries) {
		struct inquiry *q = e->inquiries;

		e->inquiries = q->next;
		free(q);
	}
}

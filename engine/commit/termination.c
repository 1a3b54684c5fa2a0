/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/commit/termination.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { RETRY_MS = 200 }; /* between two OUTCOME, two DECIDE, or two ARRIVED */

static void sent(struct termination *t, int rc)
{
	t->outstanding += !rc;
	t->again |= rc == -EAGAIN;
}

/* ---- asking for the decision ---- */

static bool on_known(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct termination *t = owner;
	struct wire_known known;

	t->outstanding--;
	t->again |= answer->status == -EAGAIN;
	if (answer->status || answer->type != WIRE_KNOWN)
		return false;
	memcpy(&known, answer->body, sizeof(known));
	t->again |= known.outcome == WIRE_COORDINATED;
	/* COMMITTED outweighs ABORTED, the answer of a rank that was not asked to promise */
	t->committed |= known.outcome == WIRE_COMMITTED;
	return false;
}

static void ask(struct engine *e, struct termination *t)
{
	struct wire_transaction body = { { t->transaction[0], t->transaction[1] } };

	for (uint32_t rank = 0; rank < e->world; rank++)
		sent(t, peers_call(e, rank, WIRE_OUTCOME, &body, NULL, 0, on_known, t, rank));
}

/* ---- telling the holders ---- */

static bool on_applied(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer)
{
	struct termination *t = owner;

	if (answer->type == WIRE_ACK && !answer->status)
		return true; /* APPLIED follows */
	t->outstanding--;
	/* a rank that has promised to the lost coordinator settles that itself first */
	if (answer->status == -EAGAIN || answer->status == -EACCES || answer->status == -ESTALE)
		t->again = true;
	else
		t->holders[rank] = 0;
	return false;
}

static void tell(struct engine *e, struct termination *t)
{
	struct wire_decide decide = { { t->transaction[0], t->transaction[1] }, 1, 0 };

	for (uint32_t rank = 0; rank < e->world; rank++)
		if (t->holders[rank])
			sent(t, peers_call(e, rank, WIRE_DECIDE, &decide, NULL, 0, on_applied,
					   t, rank));
}

int termination_turn(struct engine *e, struct termination *t, uint64_t now)
{
	assert(node_is_engine_thread(e));
	if (t->outstanding || (t->again && now < t->asked_ms + RETRY_MS))
		return -EAGAIN;
	if (t->state == TERMINATION_TELLING && !t->again)
		return 0;
	if (t->state == TERMINATION_ASKING && (t->committed || !t->again)) {
		if (!t->committed || !t->holders)
			return t->committed ? 0 : -EIO;
		t->state = TERMINATION_TELLING;
	} else if (t->state == TERMINATION_NEW) {
		t->state = TERMINATION_ASKING;
	}
	t->again = false;
	t->asked_ms = now;
	if (t->state == TERMINATION_TELLING)
		tell(e, t);
	else
		ask(e, t);
	return -EAGAIN;
}

enum wire_outcome termination_outcome(struct engine *e, const uint64_t transaction[2])
{
	uint32_t coordinator = participant_coordinator(&e->participant, transaction);

	/* peers_reach: a coordinator that is linked here is pinged from now on */
	if (coordinator < e->world && !peers_reach(e, coordinator))
		return WIRE_COORDINATED;
	return participant_outcome(&e->participant, transaction);
}

/* ---- a rank's promises ---- */

/* An edit, round or freeze that this rank has promised and whose coordinator is lost. */
struct orphan {
	LIST_ENTRY(orphan) link;
	struct termination termination;
	bool waits; /* see_prepared has seen it in this turn: it is still undecided */
};

static void see_orphan(struct engine *e, const uint64_t transaction[2])
{
	struct orphan *o;

	LIST_FOREACH (o, &e->commit.orphans, link)
		if (!memcmp(o->termination.transaction, transaction, 2 * sizeof(*transaction)))
			break;
	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return; /* seen again at the next turn */
		memcpy(o->termination.transaction, transaction,
		       sizeof(o->termination.transaction));
		LIST_INSERT_HEAD(&e->commit.orphans, o, link);
	}
	o->waits = true;
}

/* Edits at whose boundary the trainer waits: their coordinators are told, outside the
 * participant's lock.
 */
struct arrivals {
	struct engine *e;
	uint64_t now;
	struct {
		uint64_t transaction[2];
		uint32_t coordinator;
	} found[8];
	unsigned n;
};

static void see_prepared(void *arg, struct edit *edit)
{
	struct arrivals *a = arg;
	const struct peer *p = &a->e->peers[edit->coordinator];

	if (p->state == ENGINE_RANK_LOST || edit->state == EDIT_FENCED)
		see_orphan(a->e, edit->transaction);
	if (edit->arrival && !edit->watch && a->now >= edit->told_ms + RETRY_MS &&
	    a->n < ARRAY_SIZE(a->found)) {
		edit->told_ms = a->now;
		memcpy(a->found[a->n].transaction, edit->transaction,
		       sizeof(edit->transaction));
		a->found[a->n++].coordinator = edit->coordinator;
	}
}

bool termination_on_known(struct engine *e, void *owner, uint64_t rank,
			  const struct answer *answer)
{
	struct wire_known known;

	if (!answer->status && answer->type == WIRE_KNOWN) {
		memcpy(&known, answer->body, sizeof(known));
		participant_hear(&e->participant, known.transaction,
				 known.outcome == WIRE_COMMITTED);
	}
	return false;
}

static void tell_arrivals(struct engine *e, const struct arrivals *a)
{
	for (unsigned i = 0; i < a->n; i++) {
		struct wire_transaction body;

		memcpy(body.transaction, a->found[i].transaction, sizeof(body.transaction));
		peers_call(e, a->found[i].coordinator, WIRE_ARRIVED, &body, NULL, 0,
			   termination_on_known, NULL, a->found[i].coordinator);
	}
}

/* Returns true if the orphan has its decision. */
static bool turn_orphan(struct engine *e, struct orphan *o, uint64_t now)
{
	struct termination *t = &o->termination;
	int rc;

	if (!o->waits && !t->outstanding)
		return true; /* the coordinator is back, and has decided */
	rc = termination_turn(e, t, now);
	o->waits = false;
	if (rc == -EAGAIN)
		return false;
	log_warn("an edit or freeze whose coordinator died is %s",
		 rc ? "aborted" : "committed: another rank knew");
	participant_resolve(&e->participant, t->transaction, !rc);
	return true;
}

void termination_turn_orphans(struct engine *e, uint64_t now)
{
	struct arrivals a = { .e = e, .now = now };
	struct orphan *o, *next;

	participant_each_prepared(&e->participant, see_prepared, &a);
	tell_arrivals(e, &a);
	LIST_FOREACH_SAFE (o, &e->commit.orphans, link, next) {
		if (turn_orphan(e, o, now)) {
			LIST_REMOVE(o, link);
			free(o);
		}
	}
}

void termination_free_orphans(struct engine *e)
{
	struct orphan *o;

	while ((o = LIST_FIRST(&e->commit.orphans))) {
		LIST_REMOVE(o, link);
		free(o);
	}
}

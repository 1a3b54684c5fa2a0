/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/lease.h"
#include "engine/commit/freezes.h"
#include "engine/commit/proposal.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <string.h>

enum { RENEW_MS = 1000 };

/* A freeze: NEW -> ASKED -> HELD -> OVER.  A thaw: NEW -> THAWING -> OVER. */
enum freeze_phase { FREEZE_NEW, FREEZE_ASKED, FREEZE_HELD, FREEZE_THAWING, FREEZE_OVER };

struct freeze {
	LIST_ENTRY(freeze) link;
	struct engine_freeze *asked; /* NULL: its result has been told */
	struct proposal proposal;
	uint64_t incarnation; /* of the job that is frozen */
	enum freeze_phase phase;
	uint32_t ms; /* 0: a thaw */
	bool cancelled;
	uint64_t deadline_ms; /* until HELD: for its boundary; then: the end of the freeze */
	uint64_t renewed_ms;
	unsigned outstanding; /* answers to THAW */
	bool held, ended;     /* some rank said so to the last RENEW, or to THAW */
	int result;
};

static void tell(struct freeze *f, int result, struct engine_freeze **finished)
{
	if (!f->asked)
		return;
	f->asked->id = f->proposal.commit.transaction[1];
	f->asked->result = result;
	f->asked->next = *finished;
	*finished = f->asked;
	f->asked = NULL;
}

static bool say(struct engine *e, struct freeze *f, uint32_t rank, enum wire_type type,
		rpc_done done)
{
	struct wire_thaw body = { .origin = f->proposal.commit.origin };

	/* RENEW's body is the transaction alone, with which that of THAW begins */
	memcpy(body.transaction, f->proposal.commit.transaction, sizeof(body.transaction));
	return !peers_call(e, rank, type, &body, NULL, 0, done, done ? f : NULL, rank);
}

/* Returns how many ranks were asked. */
static unsigned say_to_all(struct engine *e, struct freeze *f, enum wire_type type,
			   rpc_done done)
{
	unsigned n = 0;

	for (uint32_t rank = 0; rank < e->world; rank++)
		n += say(e, f, rank, type, done);
	return n;
}

static bool on_thawed(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct freeze *f = owner;

	f->outstanding--;
	f->ended |= answer->status == -ENOENT;
	if (answer->status == -EAGAIN)
		f->outstanding += say(e, f, (uint32_t)rank, WIRE_THAW, on_thawed);
	return false;
}

static bool on_renewed(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer)
{
	struct freeze *f = owner;

	f->held |= !answer->status;
	f->ended |= answer->status == -ENOENT;
	return false;
}

/* ---- asking ---- */

static void ask(struct engine *e, struct freeze *f)
{
	int rc = proposal_ask(e, &f->proposal);

	if (!rc)
		f->phase = FREEZE_ASKED;
	else if (rc != -EAGAIN)
		f->result = rc;
}

/* Ends the freeze on every rank, whatever the coordinator decides: a rank that misses THAW ends
 * it when RENEW stays away.
 */
static void give_up(struct engine *e, struct freeze *f)
{
	rpc_forget(e, f);
	if (f->proposal.state != PROPOSAL_NEW) {
		proposal_cancel(e, &f->proposal);
		say_to_all(e, f, WIRE_THAW, NULL);
	}
	f->phase = FREEZE_OVER;
}

static void turn_asking(struct engine *e, struct freeze *f, uint64_t now,
			struct engine_freeze **finished)
{
	if (f->phase == FREEZE_NEW && !f->cancelled && !f->result)
		ask(e, f);
	else if (f->phase == FREEZE_ASKED)
		proposal_turn(e, &f->proposal, false);
	if (f->phase == FREEZE_ASKED && proposal_is_over(&f->proposal)) {
		f->result = f->proposal.status;
		f->phase = f->result ? FREEZE_ASKED : FREEZE_HELD;
	}
	if (f->cancelled && !f->result)
		f->result = -ECANCELED;
	if (f->phase < FREEZE_HELD && !f->result && f->asked &&
	    peers_find_trainer(e, f->asked->thread) != WIRE_OBSERVER)
		f->result = -EDEADLK;
	if (f->phase < FREEZE_HELD && now >= f->deadline_ms && !f->result)
		f->result = -ETIMEDOUT;
	if (f->result)
		give_up(e, f);
	else if (f->phase == FREEZE_HELD)
		f->deadline_ms = now + f->ms;
	if (f->phase >= FREEZE_HELD)
		tell(f, f->result, finished);
}

/* ---- holding ---- */

static void renew(struct engine *e, struct freeze *f, uint64_t now)
{
	if (now < f->renewed_ms + RENEW_MS)
		return;
	if (f->phase == FREEZE_HELD && f->ended && !f->held)
		f->phase = FREEZE_OVER; /* another process has thawed it */
	f->renewed_ms = now;
	f->held = f->ended = false;
	/* until HELD answers say nothing: a rank that has not been asked yet knows no freeze */
	say_to_all(e, f, WIRE_RENEW, f->phase == FREEZE_HELD ? on_renewed : NULL);
}

/* ---- thawing ---- */

static void forget_held(struct engine *e, const uint64_t transaction[2])
{
	struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link)
		if (f->phase == FREEZE_HELD &&
		    (!transaction[1] || f->proposal.commit.transaction[1] == transaction[1]))
			f->phase = FREEZE_OVER;
}

static void turn_thaw(struct engine *e, struct freeze *f, struct engine_freeze **finished)
{
	if (f->phase == FREEZE_NEW) {
		forget_held(e, f->proposal.commit.transaction);
		f->outstanding = say_to_all(e, f, WIRE_THAW, on_thawed);
		f->phase = FREEZE_THAWING;
	}
	if (f->outstanding && !f->cancelled)
		return;
	f->phase = FREEZE_OVER;
	if (f->outstanding)
		f->result = -ECANCELED;
	else if (f->ended && f->proposal.commit.transaction[1])
		f->result = -ETIMEDOUT;
	tell(f, f->result, finished);
}

static void turn_freeze(struct engine *e, struct freeze *f, uint64_t now,
			struct engine_freeze **finished)
{
	if (f->phase < FREEZE_HELD || f->asked)
		turn_asking(e, f, now, finished);
	if (f->phase == FREEZE_ASKED || f->phase == FREEZE_HELD)
		renew(e, f, now);
	if (f->phase == FREEZE_HELD &&
	    (now >= f->deadline_ms || f->incarnation != e->job.incarnation))
		f->phase = FREEZE_OVER;
}

static void remove_freeze(struct engine *e, struct freeze *f)
{
	LIST_REMOVE(f, link);
	rpc_forget(e, f);
	rpc_forget(e, &f->proposal);
	free(f);
}

void freezes_turn(struct engine *e, uint64_t now, struct engine_freeze **finished)
{
	struct freeze *f, *next;

	LIST_FOREACH_SAFE (f, &e->commit.freezes, link, next) {
		if (f->ms)
			turn_freeze(e, f, now, finished);
		else
			turn_thaw(e, f, finished);
		if (f->phase == FREEZE_OVER)
			remove_freeze(e, f);
	}
}

void freezes_finish(struct engine_freeze *finished)
{
	struct engine_freeze *next;

	for (struct engine_freeze *f = finished; f; f = next) {
		next = f->next;
		f->done(f, f->result);
	}
}

void freezes_abandon(struct engine *e)
{
	struct engine_freeze *finished = NULL;
	struct freeze *f, *next;

	LIST_FOREACH_SAFE (f, &e->commit.freezes, link, next) {
		if (f->ms)
			give_up(e, f);
		tell(f, -ECANCELED, &finished);
		remove_freeze(e, f);
	}
	freezes_finish(finished);
}

/* ---- what there is ---- */

void freezes_describe(struct engine *e, FILE *out)
{
	const struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link)
		if (f->ms && f->phase < FREEZE_HELD)
			fprintf(out, "freeze of %u s: waiting for its boundary\n",
				f->ms / 1000);
}

void freezes_tell(struct engine *e, FILE *out)
{
	uint64_t now = monotonic_ms();
	const struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link)
		if (f->phase == FREEZE_HELD && f->deadline_ms > now)
			fprintf(out, "frozen, for %llu s at most\n",
				(unsigned long long)u64_div_ceil(f->deadline_ms - now, 1000));
}

/* ---- the door ---- */

static struct freeze *freeze_new(struct engine *e, struct engine_freeze *asked)
{
	struct freeze *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->asked = asked;
	f->ms = asked->ms;
	f->proposal.commit.freeze_ms = asked->ms;
	node_origin(e, &f->proposal.commit.origin);
	f->incarnation = e->job.incarnation;
	if (asked->ms) {
		f->proposal.commit.transaction[0] = e->job.engine_id;
		f->proposal.commit.transaction[1] = ++e->commit.newest;
		f->deadline_ms = monotonic_ms() + asked->ms;
	} else if (asked->id) {
		f->proposal.commit.transaction[0] = e->job.engine_id;
		f->proposal.commit.transaction[1] = asked->id;
	}
	return f;
}

void freezes_start(struct engine *e, struct engine_freeze *asked)
{
	struct freeze *f = NULL;

	pthread_mutex_lock(&e->lock);
	if (e->write.allowed && asked->ms <= LEASE_MAX_MS)
		f = freeze_new(e, asked);
	if (f)
		LIST_INSERT_HEAD(&e->commit.freezes, f, link);
	pthread_mutex_unlock(&e->lock);
	if (f)
		node_wake(e);
	else
		asked->done(asked, !e->write.allowed          ? -EROFS
				   : asked->ms > LEASE_MAX_MS ? -EINVAL
							      : -ENOMEM);
}

void freezes_cancel(struct engine *e, struct engine_freeze *asked)
{
	struct freeze *f;

	pthread_mutex_lock(&e->lock);
	LIST_FOREACH (f, &e->commit.freezes, link)
		if (f->asked == asked)
			f->cancelled = true;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/catalog/condition.h"
#include "engine/catalog/lease.h"
#include "engine/commit/freezes.h"
#include "engine/commit/proposal.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { RENEW_MS = 1000 };

/* A freeze, or a watch, whose result is told while it is ASKED: NEW -> ASKED -> HELD -> OVER.
 * A thaw: NEW -> THAWING -> OVER.
 */
enum freeze_state { FREEZE_NEW, FREEZE_ASKED, FREEZE_HELD, FREEZE_THAWING, FREEZE_OVER };

struct freeze {
	LIST_ENTRY(freeze) link;
	struct engine_freeze *asked; /* NULL: its result has been told */
	struct proposal proposal;
	uint64_t number;      /* transaction[1] of the first proposal: the asker's number */
	uint64_t incarnation; /* of the job that is frozen */
	enum freeze_state state;
	uint32_t ms; /* 0: a thaw */
	bool cancelled;
	/* until HELD: of waiting for the boundary; then: of the freeze; a thaw: of sending */
	uint64_t deadline_ms;
	uint64_t renewed_ms;
	bool *untold;         /* [world] of a thaw: THAW is yet to be sent to that rank */
	unsigned outstanding; /* answers to THAW */
	bool held, ended;     /* as a rank has answered the last RENEW, or THAW */
	int result;
	bool watches; /* `condition` is that of a watch */
	bool kept;    /* goes on without holders, until `off` */
	unsigned holders;
	struct wire_condition condition;
};

static void tell(struct freeze *f, int result, struct engine_freeze **finished)
{
	if (!f->asked)
		return;
	f->asked->id = f->number;
	f->asked->result = result;
	f->asked->next = *finished;
	*finished = f->asked;
	f->asked = NULL;
}

static int say(struct engine *e, struct freeze *f, uint32_t rank, enum wire_type type,
	       rpc_done done)
{
	struct wire_thaw body = { .origin = f->proposal.commit.origin };

	/* RENEW's body is the transaction alone, with which that of THAW begins */
	memcpy(body.transaction, f->proposal.commit.transaction, sizeof(body.transaction));
	return peers_call(e, rank, type, &body, NULL, 0, done, done ? f : NULL, rank);
}

static void say_to_all(struct engine *e, struct freeze *f, enum wire_type type, rpc_done done)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		say(e, f, rank, type, done);
}

static bool on_thawed(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct freeze *f = owner;

	f->outstanding--;
	f->ended |= answer->status == -ENOENT;
	f->untold[rank] = answer->status == -EAGAIN;
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

/* Checks that a watch has something to look at.
 * -EAGAIN: a table of states is on its way.
 */
static int check_condition(struct engine *e, const struct wire_condition *c)
{
	struct engine_address address = { .kind = ENGINE_PARAM };
	struct engine_state state;
	uint32_t n = 0;
	int rc = -ENOENT, some;

	memcpy(address.key, c->key, sizeof(address.key));
	for (uint32_t i = 0; i < e->catalog->nparams; i++) {
		if (!condition_names(c, catalog_name(e->catalog, i)))
			continue;
		n++;
		address.param = i;
		some = rc ? plan_describe(e, &address, 0, &state) : 0;
		rc = some == -ENOENT ? rc : some;
		if (rc && rc != -ENOENT)
			return rc;
	}
	return !rc && c->quantity == WIRE_NORM && n > WIRE_FOUND_MAX ? -E2BIG : rc;
}

static bool is_ending(const struct freeze *f)
{
	return f->cancelled || (f->watches && !f->kept && !f->holders);
}

/* Returns true if this engine has the event that the condition held.  The freeze is decided
 * then, though the coordinator's answer may still be on its way.
 */
static bool has_broken(const struct engine *e, const struct freeze *f)
{
	return event_log_has_break(e, f->proposal.commit.transaction);
}

/* Ends the watches that this one replaces.
 * -EAGAIN: one of them has not ended yet.
 */
static int replace(const struct engine *e, struct freeze *f)
{
	int rc = 0;

	/* the list begins with the newest */
	for (struct freeze *old = LIST_NEXT(f, link); old; old = LIST_NEXT(old, link))
		if (old->watches && old->state < FREEZE_HELD) {
			old->cancelled |= !has_broken(e, old);
			rc = -EAGAIN;
		}
	return rc;
}

/* Returns the older watch of the same condition, which f can share; NULL: none. */
static struct freeze *find_twin(struct freeze *f)
{
	struct freeze *old = f;

	while ((old = LIST_NEXT(old, link)))
		if (old->watches && old->state < FREEZE_HELD && !is_ending(old) &&
		    !old->result && old->ms == f->ms &&
		    !memcmp(&old->condition, &f->condition, sizeof(f->condition)))
			break;
	return old;
}

/* Gives f's holders to the older watch once all ranks watch that.  Until then it may be
 * refused, and f must be asked for itself.
 */
static void share(struct freeze *f, struct freeze *old)
{
	if (old->asked || old->proposal.state != PROPOSAL_ACCEPTED)
		return;
	old->holders += f->holders;
	old->kept |= f->kept;
	f->number = old->number;
	f->state = FREEZE_OVER;
}

/* Returns true if a watch that all ranks knew is to be asked for again after this error, since
 * the job may be started again.
 */
static bool waits_for_job(int rc)
{
	return rc == -EIO || rc == -ETIMEDOUT || rc == -ENOMEM;
}

static void ask(struct engine *e, struct freeze *f)
{
	struct freeze *twin = f->watches ? find_twin(f) : NULL;
	bool anew = !f->asked;
	int rc = 0;

	if (twin) {
		share(f, twin);
		return;
	}
	if (f->watches)
		rc = check_condition(e, &f->condition); /* the job may be a new one */
	if (!rc && f->watches)
		rc = replace(e, f);
	if (!rc)
		rc = proposal_ask(e, &f->proposal);
	if (!rc) {
		f->state = FREEZE_ASKED;
		f->incarnation = e->job.incarnation;
	} else if (rc != -EAGAIN && !(anew && waits_for_job(rc))) {
		f->result = rc;
	}
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
	f->state = FREEZE_OVER;
}

/* Returns true if the coordinator is lost, and a next one can be asked: of the same job, or,
 * for a watch that all ranks knew, of one that is started again; or if a rank has given the
 * watch up, because it held the coordinator for lost.
 */
static bool is_lost(const struct engine *e, const struct freeze *f)
{
	bool given_up =
		f->proposal.state == PROPOSAL_SETTLED && f->proposal.status == -ECANCELED;

	return (f->proposal.state == PROPOSAL_LOST || given_up) && !f->cancelled &&
	       (!f->asked || f->incarnation == e->job.incarnation);
}

/* Makes the proposal anew, under an id of which no rank has heard. */
static void ask_anew(struct engine *e, struct freeze *f)
{
	struct wire_commit commit = f->proposal.commit;

	rpc_forget(e, &f->proposal);
	commit.transaction[1] = ++e->commit.newest;
	f->proposal = (struct proposal){ .commit = commit, .condition = &f->condition };
	f->state = FREEZE_NEW;
}

/* Tells the asker when all ranks watch.  A watch that ends later has no asker: the log says so,
 * and an event, if no rank adds one.
 */
static void turn_watch(struct engine *e, struct freeze *f, struct engine_freeze **finished)
{
	char text[CONDITION_TEXT_MAX];

	if (f->state == FREEZE_ASKED && f->proposal.state == PROPOSAL_ACCEPTED) {
		f->deadline_ms = UINT64_MAX;
		tell(f, 0, finished);
	}
	if (!f->result || f->asked || f->result == -ECANCELED)
		return;
	condition_print(&f->condition, text);
	log_warn("%s is not watched any more: %s", text, condition_why_not(f->result));
	if (!f->proposal.agreed) /* no rank has an event, as none has watched */
		event_log_break(e, &(struct event_break){
					   .id = { f->proposal.commit.transaction[0],
						   f->proposal.commit.transaction[1] },
					   .condition = text,
					   .why = condition_why_not(f->result),
				   });
}

static void turn_asking(struct engine *e, struct freeze *f, uint64_t now,
			struct engine_freeze **finished)
{
	f->cancelled |= is_ending(f) && !has_broken(e, f);
	if (f->state == FREEZE_NEW && !f->cancelled && !f->result)
		ask(e, f);
	else if (f->state == FREEZE_ASKED)
		proposal_turn(e, &f->proposal, false);
	if (f->state == FREEZE_ASKED && f->watches && is_lost(e, f))
		ask_anew(e, f);
	if (f->state == FREEZE_ASKED && proposal_is_over(&f->proposal)) {
		f->result = f->proposal.status;
		f->state = f->result ? FREEZE_ASKED : FREEZE_HELD;
	}
	if (f->cancelled && !f->result)
		f->result = -ECANCELED;
	if (f->state < FREEZE_HELD && !f->result && f->asked && !f->watches &&
	    peers_find_trainer(e, f->asked->thread) != WIRE_OBSERVER)
		f->result = -EDEADLK;
	if (f->state < FREEZE_HELD && now >= f->deadline_ms && !f->result)
		f->result = -ETIMEDOUT;
	if (f->watches)
		turn_watch(e, f, finished);
	if (f->result)
		give_up(e, f);
	else if (f->state == FREEZE_HELD)
		f->deadline_ms = now + f->ms;
	if (f->state >= FREEZE_HELD)
		tell(f, f->result, finished);
}

/* ---- holding ---- */

static void renew(struct engine *e, struct freeze *f, uint64_t now)
{
	if (now < f->renewed_ms + RENEW_MS)
		return;
	if (f->state == FREEZE_HELD && f->ended && !f->held)
		f->state = FREEZE_OVER; /* another process has thawed the job */
	f->renewed_ms = now;
	f->held = f->ended = false;
	/* before HELD answers are ignored: a rank without PREPARE knows of no freeze */
	say_to_all(e, f, WIRE_RENEW, f->state == FREEZE_HELD ? on_renewed : NULL);
}

/* ---- thawing ---- */

static void forget_held(struct engine *e, const uint64_t transaction[2])
{
	struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link)
		if (f->state == FREEZE_HELD &&
		    (!transaction[1] || f->proposal.commit.transaction[1] == transaction[1]))
			f->state = FREEZE_OVER;
}

/* Sends THAW to the ranks that are yet to be told, but for those that are lost.  Returns true
 * if a rank's queue is full, or there is no memory: without THAW that rank would stand on, as
 * long as who froze it renews the freeze, and all others would wait for it.
 */
static bool say_thaw(struct engine *e, struct freeze *f)
{
	bool left = false;

	for (uint32_t rank = 0; rank < e->world; rank++) {
		int rc = f->untold[rank] ? say(e, f, rank, WIRE_THAW, on_thawed) : -EALREADY;

		f->outstanding += !rc;
		f->untold[rank] = rc == -EAGAIN || rc == -ENOMEM;
		left |= f->untold[rank];
	}
	return left;
}

static void turn_thaw(struct engine *e, struct freeze *f, uint64_t now,
		      struct engine_freeze **finished)
{
	bool left;

	if (f->state == FREEZE_NEW) {
		forget_held(e, f->proposal.commit.transaction);
		memset(f->untold, true, e->world * sizeof(*f->untold));
		f->deadline_ms = now + e->timeout_ms;
		f->state = FREEZE_THAWING;
	}
	left = say_thaw(e, f);
	if ((f->outstanding || (left && now < f->deadline_ms)) && !f->cancelled)
		return;
	f->state = FREEZE_OVER;
	if (f->outstanding || (left && f->cancelled))
		f->result = -ECANCELED;
	else if (left)
		f->result = -EIO;
	else if (f->ended && f->proposal.commit.transaction[1])
		f->result = -ETIMEDOUT;
	tell(f, f->result, finished);
}

static void turn_freeze(struct engine *e, struct freeze *f, uint64_t now,
			struct engine_freeze **finished)
{
	if (f->state < FREEZE_HELD || f->asked)
		turn_asking(e, f, now, finished);
	if (f->state == FREEZE_ASKED || f->state == FREEZE_HELD)
		renew(e, f, now);
	if (f->state == FREEZE_HELD &&
	    (now >= f->deadline_ms || f->incarnation != e->job.incarnation))
		f->state = FREEZE_OVER;
}

static void remove_freeze(struct engine *e, struct freeze *f)
{
	LIST_REMOVE(f, link);
	rpc_forget(e, f);
	rpc_forget(e, &f->proposal);
	free(f->untold);
	free(f);
}

void freezes_turn(struct engine *e, uint64_t now, struct engine_freeze **finished)
{
	struct freeze *f, *next;

	assert(node_is_engine_thread(e));
	LIST_FOREACH_SAFE (f, &e->commit.freezes, link, next) {
		if (f->ms)
			turn_freeze(e, f, now, finished);
		else
			turn_thaw(e, f, now, finished);
		if (f->state == FREEZE_OVER)
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

/* ---- texts ---- */

static bool watches_on(const struct freeze *f)
{
	return f->watches && !f->asked && !is_ending(f) && f->state < FREEZE_HELD;
}

void freezes_describe(struct engine *e, FILE *out)
{
	const struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link)
		if (f->ms && !f->watches && f->state < FREEZE_HELD)
			fprintf(out, "freeze of %u s: waiting for its boundary\n",
				f->ms / 1000);
}

void freezes_tell(struct engine *e, FILE *out)
{
	uint64_t now = monotonic_ms();
	const struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link)
		if (f->state == FREEZE_HELD && f->deadline_ms > now)
			fprintf(out, "frozen, for %llu s at most\n",
				(unsigned long long)u64_div_ceil(f->deadline_ms - now, 1000));
}

void freezes_tell_watch(struct engine *e, FILE *out)
{
	char text[CONDITION_TEXT_MAX];
	const struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link)
		if (watches_on(f)) {
			condition_print(&f->condition, text);
			fprintf(out, "break %s for %u\n", text, f->ms / 1000);
		}
}

/* ---- the door ---- */

static struct freeze *freeze_new(struct engine *e, struct engine_freeze *asked, uint32_t ms)
{
	struct freeze *f = calloc(1, sizeof(*f));

	if (f && !ms)
		f->untold = calloc(e->world, sizeof(*f->untold));
	if (!f || (!ms && !f->untold)) {
		free(f);
		return NULL;
	}
	f->asked = asked;
	f->ms = ms;
	f->proposal.commit.freeze_ms = ms;
	node_origin(e, &f->proposal.commit.origin);
	f->incarnation = e->job.incarnation;
	if (ms) {
		f->proposal.commit.transaction[0] = e->job.engine_id;
		f->proposal.commit.transaction[1] = ++e->commit.newest;
		f->deadline_ms = monotonic_ms() + ms;
	} else if (asked->id) {
		f->proposal.commit.transaction[0] = e->job.engine_id;
		f->proposal.commit.transaction[1] = asked->id;
	}
	f->number = f->proposal.commit.transaction[1];
	return f;
}

static int start_freeze(struct engine *e, struct engine_freeze *asked)
{
	struct freeze *f = freeze_new(e, asked, asked->ms);

	if (f)
		LIST_INSERT_HEAD(&e->commit.freezes, f, link);
	return f ? 0 : -ENOMEM;
}

/* number: the watch that one of its holders ends; 0: all watches end. */
static void end_watches(struct engine *e, uint64_t number)
{
	struct freeze *f;

	LIST_FOREACH (f, &e->commit.freezes, link) {
		if (!f->watches || f->state >= FREEZE_HELD || (number && f->number != number))
			continue;
		f->holders = number && f->holders ? f->holders - 1 : 0;
		f->kept &= number != 0;
	}
}

/* Starts a watch, which ends an older one, or shares it, unless it is refused. */
static int start_watch(struct engine *e, struct engine_freeze *asked,
		       const struct wire_condition *condition, uint32_t ms)
{
	struct freeze *f = freeze_new(e, asked, ms);

	if (!f)
		return -ENOMEM;
	f->watches = true;
	f->kept = !asked->held;
	f->holders = asked->held;
	f->condition = *condition;
	f->proposal.condition = &f->condition;
	f->deadline_ms = monotonic_ms() + 2 * (uint64_t)e->timeout_ms;
	LIST_INSERT_HEAD(&e->commit.freezes, f, link);
	return 0;
}

void freezes_start(struct engine *e, struct engine_freeze *asked)
{
	bool watch = asked->watch, ends = watch && !*asked->watch;
	struct wire_condition condition;
	uint32_t ms = 0;
	int rc = 0;

	if (watch && !ends)
		rc = condition_parse(asked->watch, &condition, &ms);
	pthread_mutex_lock(&e->lock);
	if (!e->write.allowed)
		rc = -EROFS;
	else if (!watch && asked->ms > LEASE_MAX_MS)
		rc = -EINVAL;
	else if (!rc && ends)
		end_watches(e, asked->id);
	else if (!rc)
		rc = watch ? start_watch(e, asked, &condition, ms) : start_freeze(e, asked);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
	if (rc || ends)
		asked->done(asked, rc);
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

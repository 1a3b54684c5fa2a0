/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/rank/participant-internal.h"

#include <errno.h>
#include <string.h>

enum { LATE_MS = 500 }; /* the coordinator asks again within that for a freeze that is late */

int participant_init(struct participant *s, uint64_t bytes_max)
{
	int rc;

	*s = (struct participant){ .bytes_max = bytes_max };
	pthread_mutex_init(&s->lock, NULL);
	thread_cond_init(&s->changed);
	TAILQ_INIT(&s->list);
	TAILQ_INIT(&s->aborted);
	STAILQ_INIT(&s->spare);
	atomic_store(&s->lowest, UINT64_MAX);
	rc = outcome_log_init(&s->decided);
	return rc ? rc : outcome_log_init(&s->forbidden);
}

void participant_free_piece(struct participant *s, struct edit_piece *piece)
{
	free(piece->compute);
	if (piece->size != WIRE_CHUNK) {
		free(piece);
		return;
	}
	STAILQ_INSERT_HEAD(&s->spare, piece, link);
	s->spare_ms = monotonic_ms();
}

static void free_pieces(struct participant *s, struct edit *e)
{
	struct edit_piece *piece;

	while ((piece = STAILQ_FIRST(&e->pieces))) {
		STAILQ_REMOVE_HEAD(&e->pieces, link);
		participant_free_piece(s, piece);
	}
	free(e->buffer);
	e->buffer = NULL;
}

static void free_spare(struct participant *s)
{
	struct edit_piece *piece;

	while ((piece = STAILQ_FIRST(&s->spare))) {
		STAILQ_REMOVE_HEAD(&s->spare, link);
		free(piece);
	}
}

void participant_trim(struct participant *s, uint64_t before)
{
	LOCKED(&s->lock);
	if (s->spare_ms < before)
		free_spare(s);
}

static void free_edit(struct participant *s, struct edit *e)
{
	free_pieces(s, e);
	free(e->round);
	if (e->watch)
		free(e->watch->found);
	free(e->watch);
	free(e);
}

void participant_free_edit(struct participant *s, struct edit *e)
{
	LOCKED(&s->lock);
	if (e)
		free_edit(s, e);
}

void participant_fini(struct participant *s)
{
	struct edit *e, *next;

	TAILQ_CONCAT(&s->list, &s->aborted, link);
	TAILQ_FOREACH_SAFE (e, &s->list, link, next)
		free_edit(s, e);
	free_spare(s);
	outcome_log_fini(&s->decided);
	outcome_log_fini(&s->forbidden);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
}

struct edit *participant_find(struct participant *s, const uint64_t transaction[2])
{
	struct edit *e;

	TAILQ_FOREACH (e, &s->list, link)
		if (!memcmp(e->transaction, transaction, sizeof(e->transaction)))
			return e;
	return NULL;
}

static void take_out(struct participant *s, struct edit *e)
{
	TAILQ_REMOVE(&s->list, e, link);
	s->count--;
	s->bytes -= e->cost;
}

static void abort_edit(struct participant *s, struct edit *e, int status, const char *why)
{
	take_out(s, e);
	free_pieces(s, e);
	e->state = EDIT_ABORTED;
	e->status = status;
	e->why = why;
	TAILQ_INSERT_HEAD(&s->aborted, e, link);
}

struct edit *participant_find_or_add(struct participant *s, const uint64_t transaction[2])
{
	struct edit *e = participant_find(s, transaction);

	if (!e && s->count < PARTICIPANT_EDITS_MAX && (e = calloc(1, sizeof(*e)))) {
		memcpy(e->transaction, transaction, sizeof(e->transaction));
		STAILQ_INIT(&e->pieces);
		TAILQ_INSERT_TAIL(&s->list, e, link);
		s->count++;
	}
	return e;
}

enum wire_outcome participant_known(struct participant *s, const uint64_t transaction[2])
{
	const struct edit *e = participant_find(s, transaction);
	const struct outcome_entry *o = outcome_log_find(&s->decided, transaction);

	/* newer outcomes may have taken the entry's place in the log */
	if (e && (e->state == EDIT_DECIDED || e->state == EDIT_APPLIED))
		return WIRE_COMMITTED;
	if (o)
		return o->committed ? WIRE_COMMITTED : WIRE_ABORTED;
	return outcome_log_find(&s->forbidden, transaction) ? WIRE_ABORTED : WIRE_UNDECIDED;
}

void participant_signal(struct participant *s)
{
	s->changes++;
	pthread_cond_broadcast(&s->changed);
}

static bool is_bound(const struct edit *e)
{
	return participant_is_undecided(e) || e->state == EDIT_DECIDED;
}

/* The trainer reads `lowest` alone, without the lock, to see whether it has to look. */
void participant_set_lowest(struct participant *s)
{
	uint64_t lowest = UINT64_MAX;
	const struct edit *e;

	TAILQ_FOREACH (e, &s->list, link)
		if (is_bound(e))
			lowest = u64_min(lowest, e->boundary);
	atomic_store_explicit(&s->lowest, lowest, memory_order_seq_cst);
}

int participant_check_pieces(const struct edit *e, struct registry *r)
{
	const struct edit_piece *p;
	int rc;

	STAILQ_FOREACH (p, &e->pieces, link)
		if ((rc = p->compute ? compute_check(p->compute, r)
				     : registry_check(r, p->epoch, p->row, p->offset, p->size)))
			return rc;
	return 0;
}

/* Once a freeze at b, or at an earlier boundary, is promised, the trainer leaves b by
 * participant_look alone.
 */
bool participant_stand_at(struct participant *s, uint64_t b)
{
	const struct edit *freeze = participant_find(s, s->lease.transaction);

	return lease_lasts(&s->lease, monotonic_ms()) &&
	       (s->lease.standing || (freeze && is_bound(freeze) && freeze->boundary <= b));
}

/* Ends a watch's check at this boundary: the promise of a later one lets the trainer go on. */
static void end_check(struct participant *s, struct edit *e)
{
	free(e->watch->found);
	e->watch->found = NULL;
	e->arrival = EDIT_NOT_ARRIVED;
	participant_signal(s);
}

/* The trainer stores the boundary that it enters, then loads lowest; this function stores
 * lowest, then loads the boundary: one of the two sees the other's store.
 */
static int promise_boundary(struct participant *s, struct registry *r, struct edit *e,
			    uint64_t boundary)
{
	uint64_t entered;

	e->told_ms = 0; /* the coordinator asks anew */
	if (e->state == EDIT_PREPARED && e->boundary == boundary)
		return 0; /* repeated; the trainer may be there, and not have looked yet */
	e->state = EDIT_PREPARED;
	e->boundary = boundary;
	participant_set_lowest(s);
	entered = atomic_load_explicit(&r->control->boundary, memory_order_seq_cst);
	if (e->watch && e->arrival && entered < boundary) {
		end_check(s, e);
		return 0;
	}
	if (e->arrival || entered < boundary ||
	    (entered == boundary && !e->freeze_ms && participant_stand_at(s, boundary)))
		return 0;
	e->state = EDIT_STAGED;
	participant_set_lowest(s);
	return -EAGAIN;
}

/* Under the lock. */
static void note(struct participant *s, const uint64_t transaction[2], int status)
{
	struct outcome_entry *o = outcome_log_find(&s->decided, transaction);

	if (o && !o->status)
		o->status = status;
}

void participant_note(struct participant *s, const uint64_t transaction[2], int status)
{
	LOCKED(&s->lock);
	note(s, transaction, status);
}

/* Checks that a boundary to come can be in that window of gradients. */
static int check_window(const struct edit *e, struct registry *r, const struct wire_prepare *p)
{
	if (e->has_grad ? !(p->window & 1) : p->window && !(p->window & 1))
		return -EINVAL;
	return p->window && !p->or_later && atomic_load(&r->control->grads) > p->window
		       ? -ENODATA
		       : 0;
}

static bool freezes_twice(const struct participant *s, const struct wire_prepare *p,
			  uint64_t now)
{
	return p->freeze_ms && lease_lasts(&s->lease, now) &&
	       !lease_is_held(&s->lease, p->transaction);
}

bool participant_freezes(struct participant *s)
{
	LOCKED(&s->lock);
	return lease_lasts(&s->lease, monotonic_ms());
}

static int add_watch(struct edit *e, const struct wire_condition *condition, uint64_t now)
{
	if (!condition || e->watch)
		return 0;
	e->watch = calloc(1, sizeof(*e->watch));
	if (!e->watch)
		return -ENOMEM;
	e->watch->condition = *condition;
	e->watch->heard_ms = now;
	return 0;
}

int participant_prepare(struct participant *s, struct registry *r, const struct wire_prepare *p,
			const struct wire_condition *watch, uint64_t now)
{
	enum wire_outcome known;
	struct edit *e;
	int rc;

	LOCKED(&s->lock);
	e = participant_find(s, p->transaction);
	known = participant_known(s, p->transaction);
	if (known != WIRE_UNDECIDED || (e && e->state == EDIT_FENCED))
		return known == WIRE_COMMITTED ? -EBUSY : -ECANCELED;
	if (!watch && freezes_twice(s, p, now))
		return -EBUSY;
	if (p->holder && !e)
		return -ENOENT;
	if (!e) { /* nothing was staged here; should a check below fail, only its coordinator
		   * ends it, because it has an order: abort_staged
		   */
		e = participant_find_or_add(s, p->transaction);
		if (!e)
			return -ENOSPC;
		e->coordinator = p->coordinator;
		e->order = p->order;
		e->touched_ms = now;
	}
	if (e->state > EDIT_PREPARED)
		return -EBUSY;
	if (p->round ? !STAILQ_EMPTY(&e->pieces) : e->round != NULL)
		return -EINVAL;
	rc = participant_check_pieces(e, r);
	if (!rc)
		rc = check_window(e, r, p);
	if (!rc)
		rc = add_watch(e, watch, now);
	if (rc)
		return rc;
	e->freeze_ms = p->freeze_ms;
	e->is_round = p->round;
	e->holder = p->holder;
	e->window = p->window;
	e->or_later = p->or_later;
	e->coordinator = p->coordinator;
	e->order = p->order;
	e->touched_ms = now;
	rc = promise_boundary(s, r, e, p->boundary);
	/* a refused freeze has the lease for LATE_MS: its coordinator may never ask again */
	if (p->freeze_ms && !watch)
		lease_promise(&s->lease, p->transaction,
			      rc ? now - LEASE_SILENT_MS + LATE_MS : now);
	if (!rc)
		e->origin = p->origin;
	return rc;
}

/* A watch that holds takes the lease on all ranks, even from another freeze.  An undecided
 * freeze then ends with -EBUSY.
 */
static void settle_lease(struct participant *s, const struct edit *e, bool commit)
{
	if (e->watch && commit)
		lease_promise(&s->lease, e->transaction, monotonic_ms());
	if (!e->freeze_ms || !lease_is_held(&s->lease, e->transaction))
		return;
	if (commit)
		s->lease.until_ms = monotonic_ms() + u64_min(e->freeze_ms, LEASE_MAX_MS);
	else
		lease_end(&s->lease);
}

/* Under the lock.  An edit that its writer takes back before this rank has promised is not
 * reported: it is freed at once.
 */
static void settle(struct participant *s, struct edit *e, bool commit, int why)
{
	outcome_log_add(&s->decided, e->transaction, commit);
	settle_lease(s, e, commit);
	if (commit) {
		e->state = EDIT_DECIDED;
	} else if (e->state == EDIT_STAGED) {
		take_out(s, e);
		free_edit(s, e);
	} else {
		abort_edit(s, e, why, e->why);
	}
	participant_set_lowest(s);
	participant_signal(s);
}

int participant_decide(struct participant *s, const uint64_t transaction[2], bool commit,
		       int why, uint32_t peer, uint64_t request)
{
	enum wire_outcome known;
	struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	known = participant_known(s, transaction);
	if (known && commit != (known == WIRE_COMMITTED))
		return -ENOENT;
	if (known && !e)
		return -EALREADY;
	if (!known && (!e || (commit && !participant_is_undecided(e))))
		return -ENOENT;
	if (!known && e->state == EDIT_FENCED)
		return -ESTALE;
	e->peer = peer;
	e->request = request;
	if (!known) /* the coordinator may repeat a decision */
		settle(s, e, commit, why);
	return 0;
}

enum wire_outcome participant_recall(struct participant *s, const uint64_t transaction[2],
				     int *status)
{
	const struct outcome_entry *decided;

	LOCKED(&s->lock);
	decided = outcome_log_find(&s->decided, transaction);
	if (status && decided)
		*status = decided->status;
	return participant_known(s, transaction);
}

static const char orphaned[] = "its coordinator died";

/* Forbids a transaction that this rank has not promised: without its vote no coordinator can
 * commit it.
 */
static void forbid(struct participant *s, struct edit *e, const uint64_t transaction[2],
		   const char *why)
{
	outcome_log_add(&s->forbidden, transaction, false);
	if (e)
		abort_edit(s, e, -EIO, why);
}

enum wire_outcome participant_outcome(struct participant *s, const uint64_t transaction[2])
{
	enum wire_outcome outcome;
	struct edit *e;

	LOCKED(&s->lock);
	outcome = participant_known(s, transaction);
	e = participant_find(s, transaction);
	if (e && participant_is_undecided(e) && outcome == WIRE_UNDECIDED)
		e->state = EDIT_FENCED;
	else if (outcome == WIRE_UNDECIDED)
		forbid(s, e, transaction, orphaned);
	return outcome;
}

bool participant_forbid(struct participant *s, const uint64_t transaction[2])
{
	enum wire_outcome known;
	struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	known = participant_known(s, transaction);
	if (known == WIRE_COMMITTED || (e && e->state != EDIT_STAGED))
		return false;
	if (known == WIRE_UNDECIDED)
		forbid(s, e, transaction, NULL);
	return true;
}

void participant_drop(struct participant *s, const uint64_t transaction[2])
{
	struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	if (e && e->state == EDIT_STAGED) {
		outcome_log_add(&s->forbidden, transaction, false);
		take_out(s, e);
		free_edit(s, e);
	}
}

uint32_t participant_coordinator(struct participant *s, const uint64_t transaction[2])
{
	const struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	return e && e->state == EDIT_PREPARED ? e->coordinator : UINT32_MAX;
}

static void resolve(struct participant *s, const uint64_t transaction[2], bool commit,
		    bool coordinated)
{
	struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	if (e && (coordinated ? e->state == EDIT_PREPARED : participant_is_undecided(e))) {
		e->peer = EDIT_PEER_NONE;
		e->why = coordinated ? NULL : orphaned;
		settle(s, e, commit, coordinated ? -ECANCELED : -EIO);
	}
}

void participant_resolve(struct participant *s, const uint64_t transaction[2], bool commit)
{
	resolve(s, transaction, commit, false);
}

void participant_hear(struct participant *s, const uint64_t transaction[2], bool commit)
{
	resolve(s, transaction, commit, true);
}

void participant_each_prepared(struct participant *s, participant_see see, void *arg)
{
	struct edit *e;

	LOCKED(&s->lock);
	TAILQ_FOREACH (e, &s->list, link)
		if (participant_is_undecided(e))
			see(arg, e);
}

/* Under the lock.  Aborts the lost writer's staged edits, unless a coordinator has given them
 * an order, and edits last touched before `before`.
 */
static unsigned abort_staged(struct participant *s, uint32_t writer, uint64_t before,
			     const char *why)
{
	struct edit *e, *next;
	unsigned n = 0;

	TAILQ_FOREACH_SAFE (e, &s->list, link, next) {
		bool lost = e->writer == writer && !e->order;

		if (e->state == EDIT_STAGED && (lost || e->touched_ms < before)) {
			forbid(s, e, e->transaction, why);
			n++;
		}
	}
	return n;
}

void participant_touch(struct participant *s, uint32_t writer, uint64_t now)
{
	struct edit *e;

	LOCKED(&s->lock);
	TAILQ_FOREACH (e, &s->list, link)
		if (e->state == EDIT_STAGED && e->writer == writer && !e->order &&
		    now < e->staged_ms + PARTICIPANT_TOUCH_MS)
			e->touched_ms = now;
}

unsigned participant_expire(struct participant *s, uint64_t before)
{
	LOCKED(&s->lock);
	return abort_staged(s, EDIT_PEER_NONE, before,
			    "its writer went silent before it asked for a boundary");
}

unsigned participant_lose_writer(struct participant *s, uint32_t writer)
{
	LOCKED(&s->lock);
	return abort_staged(s, writer, 0, "its writer was lost before it asked for a boundary");
}

struct edit *participant_take_over(struct participant *s)
{
	struct edit *e;

	LOCKED(&s->lock);
	e = TAILQ_FIRST(&s->aborted);
	if (e) {
		TAILQ_REMOVE(&s->aborted, e, link);
		return e;
	}
	TAILQ_FOREACH (e, &s->list, link) {
		if (e->state == EDIT_APPLIED) {
			take_out(s, e);
			/* from here on the log alone answers a decision that is repeated */
			if (!outcome_log_find(&s->decided, e->transaction))
				outcome_log_add(&s->decided, e->transaction, true);
			note(s, e->transaction, e->status);
			break;
		}
	}
	return e;
}

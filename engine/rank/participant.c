/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/rank/participant-internal.h"

#include <errno.h>
#include <string.h>

void participant_init(struct participant *s, uint64_t bytes_max)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_init(&s->lock, NULL);
	thread_cond_init(&s->changed);
	s->bytes_max = bytes_max;
	atomic_store(&s->lowest, UINT64_MAX);
}

static void free_pieces(struct edit *e)
{
	struct edit_piece *next;

	for (struct edit_piece *p = e->first; p; p = next) {
		next = p->next;
		free(p);
	}
	e->first = e->last = NULL;
}

void edit_free(struct edit *e)
{
	if (e) {
		free_pieces(e);
		free(e->round);
	}
	free(e);
}

static void free_list(struct edit *e)
{
	struct edit *next;

	for (; e; e = next) {
		next = e->next;
		edit_free(e);
	}
}

void participant_fini(struct participant *s)
{
	free_list(s->list);
	free_list(s->aborted);
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
}

struct edit **participant_find(struct participant *s, const uint64_t transaction[2])
{
	struct edit **at = &s->list;

	while (*at && memcmp((*at)->transaction, transaction, sizeof((*at)->transaction)))
		at = &(*at)->next;
	return at;
}

/* The caller's. */
static struct edit *take_out(struct participant *s, struct edit **at)
{
	struct edit *e = *at;

	*at = e->next;
	s->count--;
	s->bytes -= e->cost;
	return e;
}

static void abort_edit(struct participant *s, struct edit **at, int status, const char *why)
{
	struct edit *e = take_out(s, at);

	free_pieces(e);
	e->state = EDIT_ABORTED;
	e->status = status;
	e->why = why;
	e->next = s->aborted;
	s->aborted = e;
}

struct edit *participant_find_or_add(struct participant *s, const uint64_t transaction[2])
{
	struct edit **at = participant_find(s, transaction);

	if (!*at && s->count < PARTICIPANT_EDITS_MAX && (*at = calloc(1, sizeof(**at)))) {
		memcpy((*at)->transaction, transaction, sizeof((*at)->transaction));
		s->count++;
	}
	return *at;
}

enum wire_outcome participant_known(struct participant *s, const uint64_t transaction[2])
{
	const struct outcome_entry *o = outcome_log_find(&s->decided, transaction);

	if (o)
		return o->committed ? WIRE_COMMITTED : WIRE_ABORTED;
	return outcome_log_find(&s->forbidden, transaction) ? WIRE_ABORTED : WIRE_UNDECIDED;
}

static bool bars(const struct edit *e)
{
	return e->state == EDIT_PREPARED || e->state == EDIT_DECIDED;
}

/* Under the lock, after any change: the trainer looks at this alone. */
void participant_set_lowest(struct participant *s)
{
	uint64_t lowest = UINT64_MAX;

	for (const struct edit *e = s->list; e; e = e->next)
		if (bars(e))
			lowest = u64_min(lowest, e->boundary);
	atomic_store_explicit(&s->lowest, lowest, memory_order_seq_cst);
}

int participant_check_pieces(const struct edit *e, struct registry *r)
{
	int rc = 0;

	for (const struct edit_piece *p = e->first; p && !rc; p = p->next)
		rc = registry_check(r, p->epoch, p->row, p->offset, p->size);
	return rc;
}

/* From the promise to freeze at b, or before, on the trainer does not leave b but by
 * participant_look.
 */
bool participant_stand_at(struct participant *s, uint64_t b)
{
	const struct edit *freeze = *participant_find(s, s->hold.transaction);

	return lease_lasts(&s->hold, monotonic_ms()) &&
	       (s->hold.standing || (freeze && bars(freeze) && freeze->boundary <= b));
}

/* The trainer stores the boundary it enters, then looks at lowest; we store lowest, then look
 * at the boundary: one of the two sees the other.
 */
static int promise_boundary(struct participant *s, struct registry *r, struct edit *e,
			    uint64_t boundary)
{
	uint64_t entered;

	e->state = EDIT_PREPARED;
	e->boundary = boundary;
	participant_set_lowest(s);
	entered = atomic_load_explicit(&r->control->boundary, memory_order_seq_cst);
	if (e->arrived || entered < boundary ||
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
	pthread_mutex_lock(&s->lock);
	note(s, transaction, status);
	pthread_mutex_unlock(&s->lock);
}

/* Whether a boundary to come can be in that window of gradients. */
static int check_window(const struct edit *e, struct registry *r, uint64_t window)
{
	if (e->has_grad ? !(window & 1) : window && !(window & 1))
		return -EINVAL;
	return window && atomic_load(&r->control->grads) > window ? -ENODATA : 0;
}

static bool freezes_twice(const struct participant *s, const struct edit_promise *p,
			  uint64_t now)
{
	return p->freeze_ms && lease_lasts(&s->hold, now) &&
	       !lease_is_held(&s->hold, p->transaction);
}

static int prepare(struct participant *s, struct registry *r, const struct edit_promise *p,
		   uint64_t now)
{
	struct edit *e = *participant_find(s, p->transaction);
	enum wire_outcome known = participant_known(s, p->transaction);
	int rc;

	if (known != WIRE_UNDECIDED || (e && e->fenced))
		return known == WIRE_COMMITTED ? -EBUSY : -ECANCELED;
	if (freezes_twice(s, p, now))
		return -EBUSY;
	if (p->holder && !e)
		return -ENOENT;
	if (!e) { /* nothing of it was staged here: its coordinator has the word from now on */
		e = participant_find_or_add(s, p->transaction);
		if (!e)
			return -ENOSPC;
		e->coordinator = p->coordinator;
		e->order = p->order;
		e->touched_ms = now;
	}
	if (e->state > EDIT_PREPARED)
		return -EBUSY;
	if (p->round ? e->first != NULL : e->round != NULL)
		return -EINVAL;
	rc = participant_check_pieces(e, r);
	if (!rc)
		rc = check_window(e, r, p->window);
	if (rc)
		return rc;
	if (p->freeze_ms)
		lease_promise(&s->hold, p->transaction, now);
	e->freeze_ms = p->freeze_ms;
	e->is_round = p->round;
	e->holder = p->holder;
	e->window = p->window;
	e->coordinator = p->coordinator;
	e->order = p->order;
	e->touched_ms = now;
	return promise_boundary(s, r, e, p->boundary);
}

int participant_prepare(struct participant *s, struct registry *r,
			const struct edit_promise *promise, uint64_t now)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = prepare(s, r, promise, now);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

static void settle_hold(struct participant *s, const struct edit *e, bool commit)
{
	if (!e->freeze_ms || !lease_is_held(&s->hold, e->transaction))
		return;
	if (commit)
		s->hold.until_ms = monotonic_ms() + u64_min(e->freeze_ms, LEASE_MAX_MS);
	else
		lease_end(&s->hold);
}

/* Under the lock.  What its writer takes back before anybody promised is nobody's to know. */
static void settle(struct participant *s, struct edit **at, bool commit, int why)
{
	outcome_log_add(&s->decided, (*at)->transaction, commit);
	settle_hold(s, *at, commit);
	if (commit)
		(*at)->state = EDIT_DECIDED;
	else if ((*at)->state == EDIT_STAGED)
		edit_free(take_out(s, at));
	else
		abort_edit(s, at, why, (*at)->why);
	participant_set_lowest(s);
	pthread_cond_broadcast(&s->changed);
}

static int decide(struct participant *s, const uint64_t transaction[2], bool commit, int why,
		  uint32_t peer, uint64_t request)
{
	struct edit **at = participant_find(s, transaction);
	enum wire_outcome known = participant_known(s, transaction);

	if (known) { /* told again */
		if (commit != (known == WIRE_COMMITTED))
			return -ENOENT;
		if (!*at)
			return -EALREADY;
		(*at)->peer = peer;
		(*at)->request = request;
		return 0;
	}
	if (!*at || (commit && (*at)->state != EDIT_PREPARED))
		return -ENOENT;
	if ((*at)->fenced)
		return -ESTALE;
	(*at)->peer = peer;
	(*at)->request = request;
	settle(s, at, commit, why);
	return 0;
}

int participant_decide(struct participant *s, const uint64_t transaction[2], bool commit,
		       int why, uint32_t peer, uint64_t request)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = decide(s, transaction, commit, why, peer, request);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

enum wire_outcome participant_recall(struct participant *s, const uint64_t transaction[2],
				     int *status)
{
	const struct outcome_entry *decided;
	enum wire_outcome outcome;

	pthread_mutex_lock(&s->lock);
	outcome = participant_known(s, transaction);
	decided = outcome_log_find(&s->decided, transaction);
	if (status && decided)
		*status = decided->status;
	pthread_mutex_unlock(&s->lock);
	return outcome;
}

static const char orphaned[] = "its coordinator died";

/* What is not promised here, and never will be: then nobody commits it. */
static void forbid(struct participant *s, struct edit **at, const uint64_t transaction[2],
		   const char *why)
{
	outcome_log_add(&s->forbidden, transaction, false);
	if (*at)
		abort_edit(s, at, -EIO, why);
}

enum wire_outcome participant_outcome(struct participant *s, const uint64_t transaction[2])
{
	enum wire_outcome outcome;
	struct edit **at;

	pthread_mutex_lock(&s->lock);
	outcome = participant_known(s, transaction);
	at = participant_find(s, transaction);
	if (*at && (*at)->state != EDIT_STAGED && outcome == WIRE_UNDECIDED)
		(*at)->fenced = true;
	else if (outcome == WIRE_UNDECIDED)
		forbid(s, at, transaction, orphaned);
	pthread_mutex_unlock(&s->lock);
	return outcome;
}

bool participant_forbid(struct participant *s, const uint64_t transaction[2])
{
	enum wire_outcome known;
	struct edit **at;
	bool may;

	pthread_mutex_lock(&s->lock);
	at = participant_find(s, transaction);
	known = participant_known(s, transaction);
	may = known != WIRE_COMMITTED && (!*at || (*at)->state == EDIT_STAGED);
	if (may && known == WIRE_UNDECIDED)
		forbid(s, at, transaction, NULL);
	pthread_mutex_unlock(&s->lock);
	return may;
}

void participant_drop(struct participant *s, const uint64_t transaction[2])
{
	struct edit **at;

	pthread_mutex_lock(&s->lock);
	at = participant_find(s, transaction);
	if (*at && (*at)->state == EDIT_STAGED) {
		outcome_log_add(&s->forbidden, transaction, false);
		edit_free(take_out(s, at));
	}
	pthread_mutex_unlock(&s->lock);
}

uint32_t participant_coordinator(struct participant *s, const uint64_t transaction[2])
{
	uint32_t coordinator;
	struct edit *e;

	pthread_mutex_lock(&s->lock);
	e = *participant_find(s, transaction);
	coordinator =
		e && e->state == EDIT_PREPARED && !e->fenced ? e->coordinator : UINT32_MAX;
	pthread_mutex_unlock(&s->lock);
	return coordinator;
}

static void resolve(struct participant *s, const uint64_t transaction[2], bool commit,
		    bool coordinated)
{
	struct edit **at;

	pthread_mutex_lock(&s->lock);
	at = participant_find(s, transaction);
	if (*at && (*at)->state == EDIT_PREPARED && !(coordinated && (*at)->fenced)) {
		(*at)->peer = EDIT_PEER_NONE;
		(*at)->why = coordinated ? NULL : orphaned;
		settle(s, at, commit, coordinated ? -ECANCELED : -EIO);
	}
	pthread_mutex_unlock(&s->lock);
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
	pthread_mutex_lock(&s->lock);
	for (struct edit *e = s->list; e; e = e->next)
		if (e->state == EDIT_PREPARED && see(arg, e))
			break;
	pthread_mutex_unlock(&s->lock);
}

/* Under the lock.  What was asked for a boundary is its coordinator's to end. */
static unsigned abort_staged(struct participant *s, uint32_t writer, uint64_t before,
			     const char *why)
{
	unsigned n = 0;

	for (struct edit **at = &s->list; *at;) {
		const struct edit *e = *at;

		bool lost = e->writer == writer && !e->order;

		if (e->state != EDIT_STAGED || (!lost && e->touched_ms >= before)) {
			at = &(*at)->next;
			continue;
		}
		forbid(s, at, e->transaction, why);
		n++;
	}
	return n;
}

unsigned participant_expire(struct participant *s, uint64_t before)
{
	unsigned n;

	pthread_mutex_lock(&s->lock);
	n = abort_staged(s, EDIT_PEER_NONE, before,
			 "its writer went silent before it asked for a boundary");
	pthread_mutex_unlock(&s->lock);
	return n;
}

unsigned participant_lose_writer(struct participant *s, uint32_t writer)
{
	unsigned n;

	pthread_mutex_lock(&s->lock);
	n = abort_staged(s, writer, 0, "its writer was lost before it asked for a boundary");
	pthread_mutex_unlock(&s->lock);
	return n;
}

static struct edit **find_over(struct participant *s)
{
	struct edit **at = &s->list;

	while (*at && (*at)->state != EDIT_APPLIED)
		at = &(*at)->next;
	return at;
}

struct edit *participant_take_over(struct participant *s)
{
	struct edit *taken, **at;

	pthread_mutex_lock(&s->lock);
	taken = s->aborted;
	if (taken) {
		s->aborted = taken->next;
	} else if (*(at = find_over(s))) {
		taken = take_out(s, at);
		note(s, taken->transaction, taken->status);
	}
	pthread_mutex_unlock(&s->lock);
	return taken;
}

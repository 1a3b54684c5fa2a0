/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The trainer's thread applies edits, and stands for freezes, at a boundary. */

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/rank/participant-internal.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static int write_piece(const struct edit_piece *p, struct registry *r, uint8_t *buffer)
{
	return p->compute ? compute_apply(p->compute, r, buffer)
			  : registry_write(r, p->epoch, p->row, p->offset, p->data, p->size);
}

static bool follows(const struct edit_piece *p)
{
	return p->compute && p->compute->follows;
}

static int write_pieces(const struct edit *e, struct registry *r)
{
	const struct edit_piece *p;
	int rc = 0, status;

	/* Low-precision copies are made of masters that are as the edit leaves them. */
	for (int late = 0; late < 2; late++) {
		STAILQ_FOREACH (p, &e->pieces, link) {
			status = follows(p) == late ? write_piece(p, r, e->buffer) : 0;
			if (status)
				rc = status;
		}
	}
	return rc;
}

/* Windows after which an edit of gradients of any window gives up: a trainer that passes no
 * boundary in any would let its writer wait for ever.  1000 take minutes, and no trainer that
 * passes boundaries in some windows leaves out so many.
 */
enum { WINDOWS_MAX = 1000 };

/* Returns true if the edit is one of gradients whose window is yet to come; then all ranks put
 * it off alike.
 */
static bool is_early(const struct edit *e, uint64_t grads)
{
	/* grads counts the beginning and the end of each window */
	if (!e->window || !e->or_later || grads > e->window + 2 * WINDOWS_MAX)
		return e->window && grads < e->window;
	return grads < e->window || !(grads & 1);
}

/* Returns true if the edit's window of gradients has passed; the edit is not early. */
static bool is_too_late(const struct edit *e, uint64_t grads)
{
	return e->window && (e->or_later ? !(grads & 1) : grads != e->window);
}

static void apply(struct edit *e, struct registry *r, uint64_t grads)
{
	e->status = is_too_late(e, grads) ? -ENODATA : participant_check_pieces(e, r);
	if (!e->status)
		e->status = write_pieces(e, r);
	if (e->status && e->bytes) /* a rank that holds none of the bytes loses none */
		log_warn("an edit of %llu bytes was not applied, or not all of it: %s",
			 (unsigned long long)e->bytes, strerror(-e->status));
}

static bool before(const struct edit *a, const struct edit *b)
{
	if (a->boundary != b->boundary)
		return a->boundary < b->boundary;
	if (a->order != b->order)
		return a->order < b->order;
	return memcmp(a->transaction, b->transaction, sizeof(a->transaction)) < 0;
}

/* Returns the next edit in the order in which all ranks apply them: by boundary, then as they
 * came to the coordinator.
 */
static struct edit *next_decided(struct participant *s, uint64_t b)
{
	struct edit *e, *next = NULL;

	TAILQ_FOREACH (e, &s->list, link)
		if (e->state == EDIT_DECIDED && !e->freeze_ms && e->boundary <= b &&
		    (!next || before(e, next)))
			next = e;
	return next;
}

/* Marks the undecided edits at whose boundary the trainer is.  Returns true if one of them is
 * no watch.
 */
static bool arrive(struct participant *s, uint64_t b)
{
	struct edit *e;
	bool any = false;

	TAILQ_FOREACH (e, &s->list, link) {
		if (!participant_is_undecided(e) || e->boundary > b)
			continue;
		if (!e->arrival)
			e->arrival = EDIT_ARRIVED;
		any |= !e->watch;
	}
	return any;
}

/* Applies decided freezes: the trainer stands here from now on, or, inside a step, at the next
 * boundary, on every rank alike.
 */
static void stand(struct participant *s, uint64_t b, bool whole)
{
	struct edit *e;

	TAILQ_FOREACH (e, &s->list, link) {
		if (e->state != EDIT_DECIDED || !e->freeze_ms || e->boundary > b)
			continue;
		if (!whole) {
			e->boundary = b + 1;
			continue;
		}
		e->state = EDIT_APPLIED;
		if (lease_is_held(&s->lease, e->transaction) &&
		    lease_lasts(&s->lease, monotonic_ms())) {
			s->lease.standing = true;
			s->stay = (struct participant_stay){
				.transaction = { e->transaction[0], e->transaction[1] },
				.boundary = b,
				.until_ms = s->lease.until_ms,
			};
		} else {
			/* the freeze was over before the trainer came, or a watch has the lease
			 */
			e->status =
				lease_lasts(&s->lease, monotonic_ms()) ? -EBUSY : -ETIMEDOUT;
		}
	}
	participant_set_lowest(s);
}

static bool stands(struct participant *s)
{
	if (!s->lease.standing)
		return false;
	if (lease_lasts(&s->lease, monotonic_ms()))
		return true;
	s->lease = (struct lease){ 0 };
	return false;
}

/* Under the lock.  Returns an undecided watch of that arrival; NULL: there is none. */
static struct edit *find_watch(struct participant *s, enum edit_arrival arrival)
{
	struct edit *e;

	TAILQ_FOREACH (e, &s->list, link)
		if (e->watch && participant_is_undecided(e) && e->arrival == arrival)
			break;
	return e;
}

enum participant_next participant_look(struct participant *s, uint64_t b, bool whole)
{
	struct edit *next;

	assert(thread_may_be_trainer());
	LOCKED(&s->lock);
	s->looked_at = s->changes;
	if (arrive(s, b))
		return PARTICIPANT_UNDECIDED;
	while ((next = next_decided(s, b)) && next->is_round && !whole)
		next->boundary = b + 1; /* inside a step, on every rank alike */
	if (next)
		return next->is_round ? PARTICIPANT_ROUND : PARTICIPANT_DECIDED;
	stand(s, b, whole);
	if (stands(s))
		return PARTICIPANT_FROZEN;
	/* Edits may name b until its freeze has ended; from here on none can be promised for b.
	 * So the trainer checks a watch last, and never waits for it with an edit to apply.
	 */
	if (find_watch(s, EDIT_ARRIVED))
		return PARTICIPANT_CHECK;
	return find_watch(s, EDIT_CHECKED) ? PARTICIPANT_UNDECIDED : PARTICIPANT_GO;
}

/* Under the lock. */
static void give_check(const struct edit *e, struct participant_check *out)
{
	*out = (struct participant_check){ .transaction = { e->transaction[0],
							    e->transaction[1] },
					   .boundary = e->boundary,
					   .coordinator = e->coordinator,
					   .watch = *e->watch };
}

bool participant_to_check(struct participant *s, struct participant_check *out)
{
	struct edit *e;

	assert(thread_may_be_trainer());
	LOCKED(&s->lock);
	e = find_watch(s, EDIT_ARRIVED);
	if (e)
		give_check(e, out);
	return e;
}

void participant_checked(struct participant *s, struct participant_check *check)
{
	struct edit *e;

	assert(thread_may_be_trainer());
	LOCKED(&s->lock);
	e = participant_find(s, check->transaction);
	if (!e || !e->watch || !participant_is_undecided(e) || !e->arrival ||
	    e->boundary != check->boundary) {
		free(check->watch.found); /* the watch was decided, or waits again */
		return;
	}
	e->arrival = EDIT_CHECKED;
	e->watch->step = check->watch.step;
	e->watch->status = check->watch.status;
	e->watch->count = check->watch.count;
	e->watch->found = check->watch.found;
	e->told_ms = 0;
}

bool participant_take_check(struct participant *s, uint64_t before, uint64_t now,
			    struct participant_check *out)
{
	struct edit *e;
	size_t size;

	LOCKED(&s->lock);
	TAILQ_FOREACH (e, &s->list, link)
		if (e->watch && e->state == EDIT_PREPARED && e->arrival == EDIT_CHECKED &&
		    (!e->told_ms || e->told_ms < before))
			break;
	if (!e)
		return false;
	give_check(e, out);
	size = e->watch->count * sizeof(*e->watch->found);
	out->watch.found = malloc(size + 1);
	if (!out->watch.found)
		return false; /* asked for again at the next turn */
	if (size)
		memcpy(out->watch.found, e->watch->found, size);
	e->told_ms = now;
	return true;
}

bool participant_watch_lasts(struct participant *s, const uint64_t transaction[2])
{
	const struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	return e && e->watch && participant_is_undecided(e) &&
	       monotonic_ms() < e->watch->heard_ms + LEASE_SILENT_MS;
}

bool participant_frozen_at(struct participant *s, uint64_t b)
{
	LOCKED(&s->lock);
	return participant_stand_at(s, b);
}

/* Under the lock. */
static bool lasts(const struct participant *s, const uint64_t transaction[2])
{
	bool any = !transaction[0] && !transaction[1];

	return lease_lasts(&s->lease, monotonic_ms()) &&
	       (any || lease_is_held(&s->lease, transaction));
}

int participant_renew(struct participant *s, const uint64_t transaction[2])
{
	struct edit *e;

	LOCKED(&s->lock);
	e = participant_find(s, transaction);
	if (e && e->watch && participant_is_undecided(e)) {
		e->watch->heard_ms = monotonic_ms();
		return 0;
	}
	if (!lasts(s, transaction))
		return -ENOENT;
	s->lease.heard_ms = monotonic_ms();
	return 0;
}

int participant_thaw(struct participant *s, const uint64_t transaction[2],
		     const struct wire_origin *by)
{
	LOCKED(&s->lock);
	if (!lasts(s, transaction))
		return -ENOENT;
	s->stay.thawed = lease_is_held(&s->lease, s->stay.transaction);
	s->stay.by = *by;
	lease_end(&s->lease);
	participant_signal(s);
	return 0;
}

bool participant_take_thawed(struct participant *s, struct participant_stay *out)
{
	LOCKED(&s->lock);
	if (!s->stay.boundary || (lease_is_held(&s->lease, s->stay.transaction) &&
				  lease_lasts(&s->lease, monotonic_ms())))
		return false;
	*out = s->stay;
	s->stay.boundary = 0;
	return true;
}

/* Returns the next edit to apply; NULL: there is none, or its window of gradients is yet to
 * come.  The caller uses it without the lock: once it is decided only this thread changes it.
 */
static struct edit *begin_next(struct participant *s, uint64_t b, uint64_t grads)
{
	struct edit *e;

	LOCKED(&s->lock);
	e = next_decided(s, b);
	if (!e || !is_early(e, grads))
		return e;
	e->boundary = b + 1; /* on every rank alike */
	participant_set_lowest(s);
	return NULL;
}

static void end_one(struct participant *s, struct edit *e)
{
	LOCKED(&s->lock);
	e->state = EDIT_APPLIED;
	participant_set_lowest(s);
}

bool participant_apply(struct participant *s, struct registry *r, uint64_t b, uint64_t grads)
{
	struct edit *e = begin_next(s, b, grads);

	assert(thread_may_be_trainer());
	if (!e)
		return false;
	apply(e, r, grads); /* without the lock: it may wait for a disk */
	end_one(s, e);
	s->applied++;
	return true;
}

void participant_apply_round(struct participant *s, uint64_t b, uint64_t grads,
			     participant_launch launch, void *arg)
{
	struct edit *e = begin_next(s, b, grads);

	assert(thread_may_be_trainer());
	if (!e)
		return;
	e->status = e->window && grads != e->window ? -ENODATA : launch(arg, e);
	end_one(s, e);
}

void participant_wait(struct participant *s, unsigned ms)
{
	struct timespec t = thread_in_ms(ms);

	LOCKED(&s->lock);
	if (s->changes == s->looked_at)
		pthread_cond_timedwait(&s->changed, &s->lock, &t);
}

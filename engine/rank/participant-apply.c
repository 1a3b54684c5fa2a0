/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The trainer's thread applies edits, and stands for freezes, at a boundary. */

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/rank/participant-internal.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static int write_pieces(const struct edit *e, struct registry *r)
{
	const struct edit_piece *p;
	int rc = 0, status;

	STAILQ_FOREACH (p, &e->pieces, link) {
		status = registry_write(r, p->epoch, p->row, p->offset, p->data, p->size);
		if (status)
			rc = status;
	}
	return rc;
}

static void apply(struct edit *e, struct registry *r, uint64_t grads)
{
	e->status = e->window && grads != e->window ? -ENODATA : participant_check_pieces(e, r);
	if (!e->status)
		e->status = write_pieces(e, r);
	if (e->status)
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

/* The next in the order that all ranks apply in: by boundary, then as they came to the
 * coordinator.
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

static bool arrive(struct participant *s, uint64_t b)
{
	struct edit *e;
	bool any = false;

	TAILQ_FOREACH (e, &s->list, link) {
		if (e->state != EDIT_PREPARED || e->boundary > b)
			continue;
		e->arrived = true;
		any = true;
	}
	return any;
}

/* Freezes that are decided: the trainer stands here from now on, or, inside a step, at the next
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
			e->status = -ETIMEDOUT; /* over before the trainer came here */
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

enum participant_next participant_look(struct participant *s, uint64_t b, bool whole)
{
	struct edit *next;

	LOCKED(&s->lock);
	if (arrive(s, b))
		return PARTICIPANT_UNDECIDED;
	while ((next = next_decided(s, b)) && next->is_round && !whole)
		next->boundary = b + 1; /* inside a step, on every rank alike */
	if (next)
		return next->is_round ? PARTICIPANT_ROUND : PARTICIPANT_DECIDED;
	stand(s, b, whole);
	return stands(s) ? PARTICIPANT_FROZEN : PARTICIPANT_GO;
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
	LOCKED(&s->lock);
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
	pthread_cond_broadcast(&s->changed);
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

/* NULL: its window of gradients is yet to come.  The edit is used without the lock: once it is
 * decided only this thread changes it.
 */
static struct edit *begin_next(struct participant *s, uint64_t b, uint64_t grads)
{
	struct edit *e;

	LOCKED(&s->lock);
	e = next_decided(s, b);
	if (!e || !e->window || grads >= e->window)
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

	if (!e)
		return false;
	apply(e, r, grads); /* without the lock: it may wait for a disk */
	end_one(s, e);
	return true;
}

void participant_apply_round(struct participant *s, uint64_t b, uint64_t grads,
			     participant_launch launch, void *arg)
{
	struct edit *e = begin_next(s, b, grads);

	if (!e)
		return;
	e->status = e->window && grads != e->window ? -ENODATA : launch(arg, e);
	end_one(s, e);
}

void participant_wait(struct participant *s, unsigned ms)
{
	struct timespec t = thread_in_ms(ms);

	LOCKED(&s->lock);
	pthread_cond_timedwait(&s->changed, &s->lock, &t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* What the trainer's thread does with edits and freezes at a boundary. */

#include "engine/edits-internal.h"
#include "engine/log.h"
#include "engine/thread.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static int write_pieces(const struct edit *e, struct registry *r)
{
	int rc = 0, status;

	for (const struct edit_piece *p = e->first; p; p = p->next) {
		status = registry_write(r, p->epoch, p->row, p->offset, p->data, p->size);
		if (status)
			rc = status;
	}
	return rc;
}

static void apply(struct edit *e, struct registry *r, uint64_t grads)
{
	e->status = e->window && grads != e->window ? -ENODATA : edits_check_pieces(e, r);
	if (!e->status)
		e->status = write_pieces(e, r);
	if (e->status)
		log_warn("an edit of %llu bytes was not applied: %s",
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

/* The next in the order that all ranks apply in: by boundary, then as they came to the coordinator. */
static struct edit *next_decided(struct edits *s, uint64_t b)
{
	struct edit *next = NULL;

	for (struct edit *e = s->list; e; e = e->next)
		if (e->state == EDIT_DECIDED && !e->freeze_ms && e->boundary <= b &&
		    (!next || before(e, next)))
			next = e;
	return next;
}

static bool arrive(struct edits *s, uint64_t b)
{
	bool any = false;

	for (struct edit *e = s->list; e; e = e->next) {
		if (e->state != EDIT_PREPARED || e->boundary > b)
			continue;
		e->arrived = true;
		any = true;
	}
	return any;
}

/* Freezes that are decided: the trainer stands here from now on, or, inside a step, at the next boundary, on
 * every rank alike.
 */
static void stand(struct edits *s, uint64_t b, bool whole)
{
	for (struct edit *e = s->list; e; e = e->next) {
		if (e->state != EDIT_DECIDED || !e->freeze_ms || e->boundary > b)
			continue;
		if (!whole) {
			e->boundary = b + 1;
			continue;
		}
		e->state = EDIT_APPLIED;
		if (hold_is(&s->hold, e->transaction) && hold_lasts(&s->hold, monotonic_ms()))
			s->hold.standing = true;
		else
			e->status = -ETIMEDOUT; /* over before the trainer came here */
	}
	edits_set_lowest(s);
}

static bool stands(struct edits *s)
{
	if (!s->hold.standing)
		return false;
	if (hold_lasts(&s->hold, monotonic_ms()))
		return true;
	s->hold = (struct hold){ 0 };
	return false;
}

static enum edits_next look(struct edits *s, uint64_t b, bool whole)
{
	if (arrive(s, b))
		return EDITS_UNDECIDED;
	if (next_decided(s, b))
		return EDITS_DECIDED;
	stand(s, b, whole);
	return stands(s) ? EDITS_FROZEN : EDITS_GO;
}

enum edits_next edits_look(struct edits *s, uint64_t b, bool whole)
{
	enum edits_next next;

	pthread_mutex_lock(&s->lock);
	next = look(s, b, whole);
	pthread_mutex_unlock(&s->lock);
	return next;
}

bool edits_frozen_at(struct edits *s, uint64_t b)
{
	bool frozen;

	pthread_mutex_lock(&s->lock);
	frozen = edits_stand_at(s, b);
	pthread_mutex_unlock(&s->lock);
	return frozen;
}

/* Under the lock. */
static bool lasts(const struct edits *s, const uint64_t transaction[2])
{
	bool any = !transaction[0] && !transaction[1];

	return hold_lasts(&s->hold, monotonic_ms()) && (any || hold_is(&s->hold, transaction));
}

int edits_keep(struct edits *s, const uint64_t transaction[2])
{
	int rc = -ENOENT;

	pthread_mutex_lock(&s->lock);
	if (lasts(s, transaction)) {
		s->hold.heard_ms = monotonic_ms();
		rc = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int edits_thaw(struct edits *s, const uint64_t transaction[2])
{
	int rc = -ENOENT;

	pthread_mutex_lock(&s->lock);
	if (lasts(s, transaction)) {
		hold_end(&s->hold);
		pthread_cond_broadcast(&s->changed);
		rc = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

bool edits_pass(struct edits *s, struct registry *r, uint64_t b, uint64_t grads)
{
	struct edit *e;
	bool applied;

	pthread_mutex_lock(&s->lock);
	e = next_decided(s, b);
	applied = e && !(e->window && grads < e->window);
	if (e && !applied)
		e->boundary = b + 1; /* on every rank alike */
	pthread_mutex_unlock(&s->lock);
	if (applied) /* without the lock: it may take a disk, and what is decided nobody else touches */
		apply(e, r, grads);
	pthread_mutex_lock(&s->lock);
	if (applied)
		e->state = EDIT_APPLIED;
	edits_set_lowest(s);
	pthread_mutex_unlock(&s->lock);
	return applied;
}

void edits_wait(struct edits *s, unsigned ms)
{
	struct timespec t = thread_in_ms(ms);

	pthread_mutex_lock(&s->lock);
	pthread_cond_timedwait(&s->changed, &s->lock, &t);
	pthread_mutex_unlock(&s->lock);
}

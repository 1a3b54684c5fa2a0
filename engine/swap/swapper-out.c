/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <string.h>

/* ---- room in the container ---- */

/* Readers lose it, for good. */
static void give_up(struct place *p, struct place_version *v)
{
	struct place_body *b = v->body;

	v->given_up = true;
	v->body = NULL;
	p->figures.given_up++;
	place_body_unref(b);
}

static bool has_extent(const struct place_version *v)
{
	return v && v->body && v->body->written;
}

static bool is_in_spare(const struct place_version *v)
{
	return v && v->body && v->body->memory && v->body->kind == PLACE_SPARE &&
	       !v->body->writing;
}

typedef bool (*has_room_of)(const struct place_version *v);

static bool is_body_of(const struct place_body *b, const struct place_version *v)
{
	return v && v->body == b;
}

/* To give it up makes no room when the slice itself has the same bytes, under other patches. */
static bool is_for_readers(const struct place_slice *slice, const struct place_version *v)
{
	return !v->slots && !is_body_of(v->body, slice->current) &&
	       !is_body_of(v->body, slice->next);
}

static bool give_up_held(struct place *p, has_room_of has)
{
	for (struct place_hold *h = p->oldest; h; h = h->next)
		for (uint64_t i = 0; i < h->n; i++)
			if (has(h->versions[i]) &&
			    is_for_readers(&h->state->slices[h->first + i], h->versions[i])) {
				give_up(p, h->versions[i]);
				return true;
			}
	return false;
}

/* Of this generation, where the next is there: one that nobody needs for its own. */
static bool give_up_current(struct place *p, has_room_of has)
{
	for (struct place_slice *s = p->first_changed; s; s = s->changed)
		if (has(s->current) && (!s->next || s->next->body != s->current->body)) {
			give_up(p, s->current);
			s->lost = true;
			return true;
		}
	return false;
}

/* Readers end soon. */
static bool wait_for_dying(struct place *p)
{
	struct timespec end = thread_in_ms(place_patience(p));
	unsigned dying = p->dying;

	while (dying && p->dying >= dying)
		if (place_wait_until(p, &end))
			return false;
	return dying;
}

/* It may be of what has been sent once more since. */
static bool wait_for_writing(struct place *p)
{
	struct timespec end = thread_in_ms(place_patience(p));
	unsigned writing = p->writing;

	while (writing && p->writing >= writing)
		if (place_wait_until(p, &end))
			return false;
	return writing;
}

static uint64_t freed(struct place *p)
{
	uint64_t n;

	pthread_mutex_lock(&p->lock);
	n = p->freed;
	pthread_mutex_unlock(&p->lock);
	return n;
}

/* Or some has been made since so many extents were freed. */
static bool make_room(struct place *p, uint64_t freed_before)
{
	bool made;

	pthread_mutex_lock(&p->lock);
	made = p->freed != freed_before || give_up_held(p, has_extent) ||
	       give_up_current(p, has_extent) || wait_for_dying(p) || wait_for_writing(p);
	pthread_mutex_unlock(&p->lock);
	return made;
}

/* The same of ordinary memory, where what could not be written may be held by readers alone. */
static void make_spare(struct place *p, uint64_t bytes)
{
	pthread_mutex_lock(&p->lock);
	while (bytes <= p->spare_limit && p->spare > p->spare_limit - bytes &&
	       (give_up_held(p, is_in_spare) || give_up_current(p, is_in_spare) ||
		wait_for_dying(p)))
		;
	pthread_mutex_unlock(&p->lock);
}

static int new_extent(struct place_body *b)
{
	struct place *p = b->place;
	uint64_t before;
	int rc;

	do {
		before = freed(p);
		rc = swap_extent_new(p->file, b->slice, b->bytes, &b->extent);
	} while (rc == -ENOSPC && make_room(p, before));
	return rc;
}

/* ---- writing ---- */

/* Under the lock, but for the line. */
static void say(struct place *p, struct place_failure *failure)
{
	if (!failure->unsaid)
		return;
	pthread_mutex_unlock(&p->lock);
	place_say(p, failure);
	pthread_mutex_lock(&p->lock);
}

static void on_written(struct swap_io *io, int rc)
{
	struct place_body *b = container_of(io, struct place_body, io);
	struct place_failure failure = { 0 };
	struct place *p = b->place;

	pthread_mutex_lock(&p->lock);
	b->writing = false;
	place_idle(p, b->state->kind, PLACE_OUT);
	if (rc)
		place_body_fail(b, rc, &failure);
	else
		place_body_wrote(b);
	say(p, &failure);
	place_body_unref(b);
	p->writing--; /* from here on it may be closed */
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void submit(struct place_body *b)
{
	struct place *p = b->place;

	pthread_mutex_lock(&p->lock);
	place_body_writes(b);
	pthread_mutex_unlock(&p->lock);
	b->io = (struct swap_io){ .extent = b->extent,
				  .what = DISK_WRITE,
				  .slab = b->kind == PLACE_PINNED ? place_slab_of(p, b->memory)
								  : DISK_NO_SLAB,
				  .bytes = b->bytes,
				  .memory = b->memory,
				  .done = on_written };
	swap_submit(p->file, &b->io);
}

int place_body_write(struct place_body *b)
{
	int rc = new_extent(b);

	if (!rc)
		submit(b);
	return rc;
}

int place_version_of(struct place *p, struct place_slice *slice, void *memory,
		     enum place_memory kind, struct place_version **out)
{
	struct place_body *b = place_body_new(slice, p, memory, kind);
	struct place_version *v = b ? place_version_new(b, 0) : NULL;
	int rc = v ? 0 : -ENOMEM;

	if (v && kind != PLACE_SMALL) {
		rc = place_body_write(b);
		if (rc && kind == PLACE_PINNED)
			make_spare(p, b->bytes);
		rc = rc && place_body_keep(b, rc) ? 0 : rc;
	}
	if (!rc) {
		*out = v;
		return 0;
	}
	free(v);
	if (b) {
		pthread_mutex_lock(&p->lock);
		place_body_forget(b);
		pthread_mutex_unlock(&p->lock);
	}
	return rc;
}

/* ---- flushing ---- */

/* The caller's reference, of one that this flush has not tried yet. */
static struct place_body *next_to_try(struct place *p, uint64_t flush)
{
	struct place_body *b = p->unwritten;

	while (b && (b->tried == flush || b->writing))
		b = b->next_unwritten;
	if (b) {
		b->tried = flush;
		b->refs++;
	}
	return b;
}

void place_try_again(struct place *p)
{
	struct place_body *b;
	uint64_t flush;

	pthread_mutex_lock(&p->lock);
	flush = ++p->flushes;
	while ((b = next_to_try(p, flush))) {
		struct place_failure failure;
		int rc;

		pthread_mutex_unlock(&p->lock);
		rc = place_body_write(b);
		pthread_mutex_lock(&p->lock);
		if (rc) {
			b->error = rc;
			place_failed(b, rc, "not written", &failure);
			say(p, &failure);
		}
		place_body_unref(b);
	}
	pthread_mutex_unlock(&p->lock);
}

static int wait_for_all(struct place *p, const struct timespec *end)
{
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	while (p->writing && !rc)
		rc = place_wait_until(p, end);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

static int flush(struct place *p, const struct timespec *end)
{
	int settled = place_settle(p, NULL), rc = wait_for_all(p, end);

	if (!rc) {
		place_try_again(p);
		rc = wait_for_all(p, end);
	}
	pthread_mutex_lock(&p->lock);
	if (!rc && p->unwritten)
		rc = p->unwritten->error;
	pthread_mutex_unlock(&p->lock);
	return rc ? rc : settled;
}

void place_end_by(struct place *p, uint64_t until_ms)
{
	p->until_ms = until_ms;
}

int place_flush(struct place *p, uint64_t wait_ms)
{
	struct timespec end = thread_in_ms(wait_ms);
	int rc;

	place_end_by(p, monotonic_ms() + wait_ms);
	rc = flush(p, &end);
	place_end_by(p, 0);
	return rc;
}

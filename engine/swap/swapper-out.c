/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <string.h>

/* ---- room in the container ---- */

/* Readers lose it, for good. */
static void give_up(struct swapper *p, struct swapper_version *v)
{
	struct swapper_block *b = v->body;

	v->given_up = true;
	v->body = NULL;
	p->figures.given_up++;
	swapper_block_unref(b);
}

static bool has_extent(const struct swapper_version *v)
{
	return v && v->body && v->body->written;
}

static bool is_in_spare(const struct swapper_version *v)
{
	return v && v->body && v->body->memory && v->body->kind == SWAPPER_SPARE &&
	       !v->body->writing;
}

typedef bool (*has_room_of)(const struct swapper_version *v);

static bool is_body_of(const struct swapper_block *b, const struct swapper_version *v)
{
	return v && v->body == b;
}

/* To give it up makes no room when the slice itself has the same bytes, under other patches. */
static bool is_for_readers(const struct swapper_slice *slice, const struct swapper_version *v)
{
	return !v->slots && !is_body_of(v->body, slice->current) &&
	       !is_body_of(v->body, slice->next);
}

static bool give_up_held(struct swapper *p, has_room_of has)
{
	for (struct swapper_pin *h = p->oldest; h; h = h->next)
		for (uint64_t i = 0; i < h->n; i++)
			if (has(h->versions[i]) &&
			    is_for_readers(&h->state->slices[h->first + i], h->versions[i])) {
				give_up(p, h->versions[i]);
				return true;
			}
	return false;
}

/* Of this generation, where the next is there: one that nobody needs for its own. */
static bool give_up_current(struct swapper *p, has_room_of has)
{
	for (struct swapper_slice *s = p->first_changed; s; s = s->changed)
		if (has(s->current) && (!s->next || s->next->body != s->current->body)) {
			give_up(p, s->current);
			s->lost = true;
			return true;
		}
	return false;
}

/* Readers end soon. */
static bool wait_for_dying(struct swapper *p)
{
	struct timespec end = thread_in_ms(swapper_patience(p));
	unsigned dying = p->dying;

	while (dying && p->dying >= dying)
		if (swapper_wait_until(p, &end))
			return false;
	return dying;
}

/* It may be of what has been sent once more since. */
static bool wait_for_writing(struct swapper *p)
{
	struct timespec end = thread_in_ms(swapper_patience(p));
	unsigned writing = p->writing;

	while (writing && p->writing >= writing)
		if (swapper_wait_until(p, &end))
			return false;
	return writing;
}

static uint64_t freed(struct swapper *p)
{
	uint64_t n;

	pthread_mutex_lock(&p->lock);
	n = p->freed;
	pthread_mutex_unlock(&p->lock);
	return n;
}

/* Or some has been made since so many extents were freed. */
static bool make_room(struct swapper *p, uint64_t freed_before)
{
	bool made;

	pthread_mutex_lock(&p->lock);
	made = p->freed != freed_before || give_up_held(p, has_extent) ||
	       give_up_current(p, has_extent) || wait_for_dying(p) || wait_for_writing(p);
	pthread_mutex_unlock(&p->lock);
	return made;
}

/* The same of ordinary memory, where what could not be written may be held by readers alone. */
static void make_spare(struct swapper *p, uint64_t bytes)
{
	pthread_mutex_lock(&p->lock);
	while (bytes <= p->spare_limit && p->spare > p->spare_limit - bytes &&
	       (give_up_held(p, is_in_spare) || give_up_current(p, is_in_spare) ||
		wait_for_dying(p)))
		;
	pthread_mutex_unlock(&p->lock);
}

static int new_extent(struct swapper_block *b)
{
	struct swapper *p = b->place;
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
static void say(struct swapper *p, struct swapper_failure *failure)
{
	if (!failure->unsaid)
		return;
	pthread_mutex_unlock(&p->lock);
	swapper_say(p, failure);
	pthread_mutex_lock(&p->lock);
}

static void on_written(struct swap_io *io, int rc)
{
	struct swapper_block *b = container_of(io, struct swapper_block, io);
	struct swapper_failure failure = { 0 };
	struct swapper *p = b->place;

	pthread_mutex_lock(&p->lock);
	b->writing = false;
	swapper_idle(p, b->state->kind, SWAPPER_OUT);
	if (rc)
		swapper_block_fail(b, rc, &failure);
	else
		swapper_block_wrote(b);
	say(p, &failure);
	swapper_block_unref(b);
	p->writing--; /* from here on it may be closed */
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void submit(struct swapper_block *b)
{
	struct swapper *p = b->place;

	pthread_mutex_lock(&p->lock);
	swapper_block_writes(b);
	pthread_mutex_unlock(&p->lock);
	b->io = (struct swap_io){ .extent = b->extent,
				  .what = DISK_WRITE,
				  .slab = b->kind == SWAPPER_PINNED
						  ? swapper_slab_of(p, b->memory)
						  : DISK_NO_SLAB,
				  .bytes = b->bytes,
				  .memory = b->memory,
				  .done = on_written };
	swap_submit(p->file, &b->io);
}

int swapper_block_write(struct swapper_block *b)
{
	int rc = new_extent(b);

	if (!rc)
		submit(b);
	return rc;
}

int swapper_version_of(struct swapper *p, struct swapper_slice *slice, void *memory,
		       enum swapper_memory kind, struct swapper_version **out)
{
	struct swapper_block *b = swapper_block_new(slice, p, memory, kind);
	struct swapper_version *v = b ? swapper_version_new(b, 0) : NULL;
	int rc = v ? 0 : -ENOMEM;

	if (v && kind != SWAPPER_SMALL) {
		rc = swapper_block_write(b);
		if (rc && kind == SWAPPER_PINNED)
			make_spare(p, b->bytes);
		rc = rc && swapper_block_keep(b, rc) ? 0 : rc;
	}
	if (!rc) {
		*out = v;
		return 0;
	}
	free(v);
	if (b) {
		pthread_mutex_lock(&p->lock);
		swapper_block_forget(b);
		pthread_mutex_unlock(&p->lock);
	}
	return rc;
}

/* ---- flushing ---- */

/* The caller's reference, of one that this flush has not tried yet. */
static struct swapper_block *next_to_try(struct swapper *p, uint64_t flush)
{
	struct swapper_block *b = p->unwritten;

	while (b && (b->tried == flush || b->writing))
		b = b->next_unwritten;
	if (b) {
		b->tried = flush;
		b->refs++;
	}
	return b;
}

void swapper_try_again(struct swapper *p)
{
	struct swapper_block *b;
	uint64_t flush;

	pthread_mutex_lock(&p->lock);
	flush = ++p->flushes;
	while ((b = next_to_try(p, flush))) {
		struct swapper_failure failure;
		int rc;

		pthread_mutex_unlock(&p->lock);
		rc = swapper_block_write(b);
		pthread_mutex_lock(&p->lock);
		if (rc) {
			b->error = rc;
			swapper_failed(b, rc, "not written", &failure);
			say(p, &failure);
		}
		swapper_block_unref(b);
	}
	pthread_mutex_unlock(&p->lock);
}

static int wait_for_all(struct swapper *p, const struct timespec *end)
{
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	while (p->writing && !rc)
		rc = swapper_wait_until(p, end);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

static int flush(struct swapper *p, const struct timespec *end)
{
	int settled = swapper_settle(p, NULL), rc = wait_for_all(p, end);

	if (!rc) {
		swapper_try_again(p);
		rc = wait_for_all(p, end);
	}
	pthread_mutex_lock(&p->lock);
	if (!rc && p->unwritten)
		rc = p->unwritten->error;
	pthread_mutex_unlock(&p->lock);
	return rc ? rc : settled;
}

void swapper_end_by(struct swapper *p, uint64_t until_ms)
{
	p->until_ms = until_ms;
}

int swapper_flush(struct swapper *p, uint64_t wait_ms)
{
	struct timespec end = thread_in_ms(wait_ms);
	int rc;

	swapper_end_by(p, monotonic_ms() + wait_ms);
	rc = flush(p, &end);
	swapper_end_by(p, 0);
	return rc;
}

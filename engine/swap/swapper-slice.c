/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- waiting ---- */

uint64_t place_patience(const struct place *p)
{
	uint64_t now = monotonic_ms();

	if (!p->until_ms)
		return p->wait_ms;
	return u64_min(p->wait_ms, p->until_ms > now ? p->until_ms - now : 0);
}

int place_wait_until(struct place *p, const struct timespec *end)
{
	return -pthread_cond_timedwait(&p->changed, &p->lock, end);
}

/* ---- buffers ---- */

uint16_t place_slab_of(struct place *p, const void *buffer)
{
	return (uint16_t)pinned_slab_of(p->pinned, buffer);
}

/* Under the lock: one will be returned. */
static int can_wait(struct place *p, uint64_t wait_ms)
{
	if (p->returning)
		return wait_ms ? 0 : -EAGAIN;
	for (const struct place_body *b = p->unwritten; b; b = b->next_unwritten)
		if (b->stuck)
			return b->error;
	return -ENOBUFS;
}

/* Under the lock.  What could not be written has all that others could have: perhaps it can be by now. */
static int free_stuck(struct place *p, uint64_t wait_ms)
{
	int rc = can_wait(p, wait_ms);

	if (!wait_ms || !p->stuck || p->returning)
		return rc;
	pthread_mutex_unlock(&p->lock);
	place_try_again(p);
	pthread_mutex_lock(&p->lock);
	return can_wait(p, wait_ms);
}

static int buffer_run(struct place *p, const struct place_state *s, unsigned n,
		      uint64_t wait_ms, void **buffers)
{
	struct timespec end = thread_in_ms(wait_ms);
	uint64_t since = monotonic_ns();
	bool waited = false;
	int rc;

	pthread_mutex_lock(&p->lock);
	while ((rc = n == 1 ? pinned_get(p->pinned, 0, buffers)
			    : pinned_get_run(p->pinned, n, buffers)) == -EAGAIN) {
		rc = waited ? can_wait(p, wait_ms) : free_stuck(p, wait_ms);
		if (rc)
			break;
		waited = true;
		rc = place_wait_until(p, &end);
		if (rc)
			break;
	}
	if (waited)
		place_timed(p, s, PLACE_NO_SLICE, PLACE_WAIT_OUT, 0, since);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

int place_buffer(struct place *p, const struct place_state *s, uint64_t wait_ms, void **buffer)
{
	return buffer_run(p, s, 1, wait_ms, buffer);
}

static void give_back(struct place *p, void *buffer)
{
	pinned_put(p->pinned, buffer);
	pthread_cond_broadcast(&p->changed);
}

/* ---- bringing in ---- */

/* Under the lock. */
static void forget(struct place_lent *l)
{
	if (l->buffer)
		give_back(l->place, l->buffer);
	place_version_unref(l->place, l->version);
	free(l);
}

static void count(struct place_lent *l, enum place_timed timed, uint64_t since)
{
	place_timed(l->place, l->slice->state, l->index, timed, l->bytes, since);
}

/* Under the lock. */
static void count_in(struct place_lent *l)
{
	count(l, PLACE_IN, l->since);
	l->slice->state->reads++;
}

/* Under the lock. */
static void is_there(struct place_lent *l, int rc)
{
	struct place *p = l->place;

	l->there = true;
	l->rc = rc;
	if (!rc && l->version)
		place_version_patch(l->version, 0, l->bytes, l->buffer);
	place_version_unref(p, l->version);
	l->version = NULL;
	if (l->abandoned) {
		p->returning--;
		forget(l);
	}
	pthread_cond_broadcast(&p->changed);
}

static void on_read(struct swap_io *io, int rc)
{
	struct place_lent *l = container_of(io, struct place_lent, io);
	struct place_body *body = l->body;
	struct place *p = l->place;

	pthread_mutex_lock(&p->lock);
	place_idle(p, body->state->kind, PLACE_IN);
	if (rc)
		place_not_read(body, io, rc, &l->failure);
	else
		count_in(l);
	is_there(l, rc);
	place_body_read_end(body, false); /* the state may go with it */
	p->bringing--;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void from_disk(struct place_lent *l)
{
	l->since = monotonic_ns();
	l->io = (struct swap_io){ .extent = l->body->extent,
				  .what = DISK_READ,
				  .slab = place_slab_of(l->place, l->buffer),
				  .bytes = l->bytes,
				  .memory = l->buffer,
				  .done = on_read };
	/* The trainer's, until it takes it back itself: l stays. */
	swap_submit(l->place->file, &l->io);
	pthread_mutex_lock(&l->place->lock);
	count(l, PLACE_SUBMIT_IN, l->since);
	pthread_mutex_unlock(&l->place->lock);
}

static void from_memory(struct place_lent *l)
{
	uint64_t since = monotonic_ns();

	memcpy(l->buffer, l->body->memory, l->bytes);
	pthread_mutex_lock(&l->place->lock);
	count(l, PLACE_FROM_MEMORY, since);
	place_body_read_end(l->body, true);
	is_there(l, 0);
	pthread_mutex_unlock(&l->place->lock);
}

static void from_nothing(struct place_lent *l)
{
	if (l->use & PLACE_READ)
		memset(l->buffer, 0, l->bytes);
	pthread_mutex_lock(&l->place->lock);
	is_there(l, 0);
	pthread_mutex_unlock(&l->place->lock);
}

static void start(struct place_lent *l)
{
	bool is_in_memory = false;

	pthread_mutex_lock(&l->place->lock);
	l->body = l->version ? l->version->body : NULL;
	if (l->body)
		is_in_memory = place_body_read(l->body);
	if (l->body && !is_in_memory) {
		l->place->bringing++;
		place_busy(l->place, l->body->state->kind, PLACE_IN);
	}
	pthread_mutex_unlock(&l->place->lock);
	if (!l->body)
		from_nothing(l);
	else if (is_in_memory)
		from_memory(l);
	else
		from_disk(l);
}

/* Under the lock.  The trainer is here, and has it nowhere else. */
static int lend(struct place_lent *l)
{
	struct place_slice *slice = l->slice;

	if (slice->lent)
		return -EBUSY;
	slice->lent = l;
	if (l->use & PLACE_READ) {
		l->version = place_newest(slice);
		place_version_ref(l->version);
	}
	return 0;
}

static int lent_new(struct place *p, struct place_state *s, uint64_t slice, unsigned use,
		    struct place_lent **out)
{
	struct place_lent *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->place = p;
	l->slice = &s->slices[slice];
	l->index = slice;
	l->bytes = place_slice_bytes(s, slice);
	l->use = use;
	pthread_mutex_lock(&p->lock);
	rc = lend(l);
	pthread_mutex_unlock(&p->lock);
	if (rc)
		free(l);
	else
		*out = l;
	return rc;
}

static void take_back(struct place *p, struct place_lent *l)
{
	pthread_mutex_lock(&p->lock);
	l->slice->lent = NULL;
	if (l->there || !l->buffer) {
		forget(l);
	} else {
		l->abandoned = true;
		p->returning++;
		swap_cancel(p->file, &l->io);
	}
	pthread_mutex_unlock(&p->lock);
}

int place_bring_slice(struct place *p, struct place_state *s, uint64_t slice, unsigned use,
		      uint64_t wait_ms, struct place_lent **lent)
{
	struct place_lent *l;
	void *buffer;
	int rc = lent_new(p, s, slice, use, &l);

	if (rc)
		return rc;
	rc = place_buffer(p, s, wait_ms, &buffer);
	if (rc) {
		take_back(p, l);
		return rc;
	}
	l->buffer = buffer;
	start(l);
	*lent = l;
	return 0;
}

int place_bring(struct place *p, struct place_state *s, uint64_t slice, unsigned use,
		uint64_t wait_ms, struct place_lent **lent)
{
	int rc = slice < s->nslices ? place_settle(p, s) : -EINVAL;

	if (rc)
		return rc;
	rc = place_bring_slice(p, s, slice, use, wait_ms, lent);
	if (rc != -ENOBUFS)
		return rc;
	/* Those in which gradients are collected can be had. */
	rc = place_settle(p, NULL);
	return rc ? rc : place_bring_slice(p, s, slice, use, wait_ms, lent);
}

static void return_all(struct place *p, struct place_lent **lent, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		take_back(p, lent[i]);
		lent[i] = NULL;
	}
}

/* All slices are lent, without buffers. */
static int lend_all(struct place *p, struct place_state *s, unsigned use,
		    struct place_lent **lent)
{
	for (unsigned i = 0; i < s->nslices; i++) {
		int rc = lent_new(p, s, i, use, &lent[i]);

		if (!rc)
			continue;
		return_all(p, lent, i);
		return rc;
	}
	return 0;
}

static int bring_all(struct place *p, struct place_state *s, unsigned use, uint64_t wait_ms,
		     struct place_lent **lent)
{
	unsigned n = (unsigned)s->nslices;
	CLEANUP(free) void **buffers = calloc(n, sizeof(*buffers));
	int rc = buffers ? lend_all(p, s, use, lent) : -ENOMEM;

	if (rc)
		return rc;
	rc = buffer_run(p, s, n, wait_ms, buffers);
	if (rc)
		return_all(p, lent, n);
	for (unsigned i = 0; i < n && !rc; i++) {
		lent[i]->buffer = buffers[i];
		start(lent[i]);
	}
	return rc;
}

int place_bring_all(struct place *p, struct place_state *s, unsigned use, uint64_t wait_ms,
		    struct place_lent **lent)
{
	struct pinned_figures f;
	int rc = place_settle(p, s);

	pinned_figures(p->pinned, &f);
	if (rc || s->nslices > f.count)
		return rc ? rc : -ENOBUFS;
	rc = bring_all(p, s, use, wait_ms, lent);
	if (rc != -ENOBUFS)
		return rc;
	rc = place_settle(p, NULL);
	return rc ? rc : bring_all(p, s, use, wait_ms, lent);
}

/* ---- in, and out again ---- */

static int wait_for(struct place *p, struct place_lent *l, uint64_t wait_ms)
{
	struct timespec end = thread_in_ms(wait_ms);
	uint64_t since = monotonic_ns();
	struct place_failure *failure;
	bool waited = false;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	while (!l->there && !rc) {
		waited = true;
		rc = place_wait_until(p, &end);
	}
	if (waited)
		place_timed(p, l->slice->state, l->index, PLACE_WAIT_IN, 0, since);
	rc = rc ? rc : l->rc;
	failure = l->there ? &l->failure : NULL;
	pthread_mutex_unlock(&p->lock);
	if (failure)
		place_say(p, failure);
	return rc;
}

int place_wait(struct place *p, struct place_lent *l, void **memory)
{
	int rc = wait_for(p, l, place_patience(p));

	if (!rc)
		*memory = l->buffer;
	return rc;
}

/* What never leaves memory needs no buffer. */
static int small_version(struct place *p, struct place_lent *l, struct place_version **v)
{
	void *memory = malloc(l->bytes);
	int rc;

	if (!memory)
		return -ENOMEM;
	memcpy(memory, l->buffer, l->bytes);
	pthread_mutex_lock(&p->lock);
	place_take(p, PLACE_SMALL, l->bytes);
	pthread_mutex_unlock(&p->lock);
	rc = place_version_of(p, l->slice, memory, PLACE_SMALL, v);
	if (!rc)
		return 0;
	free(memory);
	pthread_mutex_lock(&p->lock);
	place_give(p, PLACE_SMALL, l->bytes);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

int place_send(struct place *p, struct place_lent *l)
{
	struct place_slice *slice = l->slice;
	bool small = slice->state->small;
	struct place_version *v;
	int rc = wait_for(p, l, place_patience(p));
	uint64_t since = monotonic_ns();

	if (rc)
		return rc;
	rc = small ? small_version(p, l, &v)
		   : place_version_of(p, slice, l->buffer, PLACE_PINNED, &v);
	if (rc)
		return rc;
	pthread_mutex_lock(&p->lock);
	count(l, PLACE_SUBMIT_OUT, since);
	place_set_next(p, slice, v);
	slice->lent = NULL;
	if (!small)
		l->buffer = NULL;
	forget(l);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void place_return(struct place *p, struct place_lent *l)
{
	take_back(p, l);
}

static bool is_collected(const struct place_state *s, const struct place_lent *l)
{
	for (unsigned i = 0; i < PLACE_OPEN; i++)
		if (s->open[i] == l)
			return true;
	return false;
}

void *place_memory(struct place *p, struct place_state *s, uint64_t first, uint64_t numel)
{
	uint64_t from = first * s->element, end = from + numel * s->element;
	uint64_t slice = from / s->slice_bytes;
	uint8_t *memory = NULL;

	if (first > s->bytes / s->element || numel > s->bytes / s->element - first || !numel)
		return NULL;
	pthread_mutex_lock(&p->lock);
	for (uint64_t i = slice; i * s->slice_bytes < end; i++) {
		const struct place_lent *l = s->slices[i].lent;

		if (!l || !l->there || l->rc || is_collected(s, l) ||
		    (i > slice && l->buffer != memory + (i - slice) * s->slice_bytes)) {
			memory = NULL;
			break;
		}
		memory = i > slice ? memory : l->buffer;
	}
	pthread_mutex_unlock(&p->lock);
	return memory ? memory + from % s->slice_bytes : NULL;
}

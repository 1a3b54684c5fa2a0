/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- waiting ---- */

uint64_t swapper_patience(const struct swapper *p)
{
	uint64_t now = monotonic_ms();

	if (!p->until_ms)
		return p->wait_ms;
	return u64_min(p->wait_ms, p->until_ms > now ? p->until_ms - now : 0);
}

int swapper_wait_until(struct swapper *p, const struct timespec *end)
{
	return -pthread_cond_timedwait(&p->changed, &p->lock, end);
}

/* ---- buffers ---- */

uint16_t swapper_slab_of(struct swapper *p, const void *buffer)
{
	return (uint16_t)pinned_slab_of(p->pinned, buffer);
}

/* Under the lock: one will be returned. */
static int can_wait(struct swapper *p, uint64_t wait_ms)
{
	if (p->returning)
		return wait_ms ? 0 : -EAGAIN;
	for (const struct swapper_block *b = p->unwritten; b; b = b->next_unwritten)
		if (b->stuck)
			return b->error;
	return -ENOBUFS;
}

/* Under the lock.  What could not be written has all that others could have: perhaps it can be
 * by now.
 */
static int free_stuck(struct swapper *p, uint64_t wait_ms)
{
	int rc = can_wait(p, wait_ms);

	if (!wait_ms || !p->stuck || p->returning)
		return rc;
	pthread_mutex_unlock(&p->lock);
	swapper_try_again(p);
	pthread_mutex_lock(&p->lock);
	return can_wait(p, wait_ms);
}

static int buffer_run(struct swapper *p, const struct swapper_state *s, unsigned n,
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
		rc = swapper_wait_until(p, &end);
		if (rc)
			break;
	}
	if (waited)
		swapper_timed(p, s, SWAPPER_NO_SLICE, SWAPPER_WAIT_OUT, 0, since);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

int swapper_buffer(struct swapper *p, const struct swapper_state *s, uint64_t wait_ms,
		   void **buffer)
{
	return buffer_run(p, s, 1, wait_ms, buffer);
}

static void give_back(struct swapper *p, void *buffer)
{
	pinned_put(p->pinned, buffer);
	pthread_cond_broadcast(&p->changed);
}

/* ---- bringing in ---- */

/* Under the lock. */
static void forget(struct swapper_lent *l)
{
	if (l->buffer)
		give_back(l->place, l->buffer);
	swapper_version_unref(l->place, l->version);
	free(l);
}

static void count(struct swapper_lent *l, enum swapper_timed timed, uint64_t since)
{
	swapper_timed(l->place, l->slice->state, l->index, timed, l->bytes, since);
}

/* Under the lock. */
static void count_in(struct swapper_lent *l)
{
	count(l, SWAPPER_IN, l->since);
	l->slice->state->reads++;
}

/* Under the lock. */
static void is_there(struct swapper_lent *l, int rc)
{
	struct swapper *p = l->place;

	l->there = true;
	l->rc = rc;
	if (!rc && l->version)
		swapper_version_patch(l->version, 0, l->bytes, l->buffer);
	swapper_version_unref(p, l->version);
	l->version = NULL;
	if (l->abandoned) {
		p->returning--;
		forget(l);
	}
	pthread_cond_broadcast(&p->changed);
}

static void on_read(struct swap_io *io, int rc)
{
	struct swapper_lent *l = container_of(io, struct swapper_lent, io);
	struct swapper_block *body = l->body;
	struct swapper *p = l->place;

	pthread_mutex_lock(&p->lock);
	swapper_idle(p, body->state->kind, SWAPPER_IN);
	if (rc)
		swapper_not_read(body, io, rc, &l->failure);
	else
		count_in(l);
	is_there(l, rc);
	swapper_block_read_end(body, false); /* the state may go with it */
	p->bringing--;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

static void from_disk(struct swapper_lent *l)
{
	l->since = monotonic_ns();
	l->io = (struct swap_io){ .extent = l->body->extent,
				  .what = DISK_READ,
				  .slab = swapper_slab_of(l->place, l->buffer),
				  .bytes = l->bytes,
				  .memory = l->buffer,
				  .done = on_read };
	/* The trainer's, until it takes it back itself: l stays. */
	swap_submit(l->place->file, &l->io);
	pthread_mutex_lock(&l->place->lock);
	count(l, SWAPPER_SUBMIT_IN, l->since);
	pthread_mutex_unlock(&l->place->lock);
}

static void from_memory(struct swapper_lent *l)
{
	uint64_t since = monotonic_ns();

	memcpy(l->buffer, l->body->memory, l->bytes);
	pthread_mutex_lock(&l->place->lock);
	count(l, SWAPPER_FROM_MEMORY, since);
	swapper_block_read_end(l->body, true);
	is_there(l, 0);
	pthread_mutex_unlock(&l->place->lock);
}

static void from_nothing(struct swapper_lent *l)
{
	if (l->use & SWAPPER_READ)
		memset(l->buffer, 0, l->bytes);
	pthread_mutex_lock(&l->place->lock);
	is_there(l, 0);
	pthread_mutex_unlock(&l->place->lock);
}

static void start(struct swapper_lent *l)
{
	bool is_in_memory = false;

	pthread_mutex_lock(&l->place->lock);
	l->body = l->version ? l->version->body : NULL;
	if (l->body)
		is_in_memory = swapper_block_read(l->body);
	if (l->body && !is_in_memory) {
		l->place->bringing++;
		swapper_busy(l->place, l->body->state->kind, SWAPPER_IN);
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
static int lend(struct swapper_lent *l)
{
	struct swapper_slice *slice = l->slice;

	if (slice->lent)
		return -EBUSY;
	slice->lent = l;
	if (l->use & SWAPPER_READ) {
		l->version = swapper_newest(slice);
		swapper_version_ref(l->version);
	}
	return 0;
}

static int lent_new(struct swapper *p, struct swapper_state *s, uint64_t slice, unsigned use,
		    struct swapper_lent **out)
{
	struct swapper_lent *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->place = p;
	l->slice = &s->slices[slice];
	l->index = slice;
	l->bytes = swapper_slice_bytes(s, slice);
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

static void take_back(struct swapper *p, struct swapper_lent *l)
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

int swapper_swap_in_slice(struct swapper *p, struct swapper_state *s, uint64_t slice,
			  unsigned use, uint64_t wait_ms, struct swapper_lent **lent)
{
	struct swapper_lent *l;
	void *buffer;
	int rc = lent_new(p, s, slice, use, &l);

	if (rc)
		return rc;
	rc = swapper_buffer(p, s, wait_ms, &buffer);
	if (rc) {
		take_back(p, l);
		return rc;
	}
	l->buffer = buffer;
	start(l);
	*lent = l;
	return 0;
}

int swapper_swap_in(struct swapper *p, struct swapper_state *s, uint64_t slice, unsigned use,
		    uint64_t wait_ms, struct swapper_lent **lent)
{
	int rc = slice < s->nslices ? swapper_settle(p, s) : -EINVAL;

	if (rc)
		return rc;
	rc = swapper_swap_in_slice(p, s, slice, use, wait_ms, lent);
	if (rc != -ENOBUFS)
		return rc;
	/* Those in which gradients are collected can be had. */
	rc = swapper_settle(p, NULL);
	return rc ? rc : swapper_swap_in_slice(p, s, slice, use, wait_ms, lent);
}

static void return_all(struct swapper *p, struct swapper_lent **lent, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		take_back(p, lent[i]);
		lent[i] = NULL;
	}
}

/* All slices are lent, without buffers. */
static int lend_all(struct swapper *p, struct swapper_state *s, unsigned use,
		    struct swapper_lent **lent)
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

static int bring_all(struct swapper *p, struct swapper_state *s, unsigned use, uint64_t wait_ms,
		     struct swapper_lent **lent)
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

int swapper_swap_in_all(struct swapper *p, struct swapper_state *s, unsigned use,
			uint64_t wait_ms, struct swapper_lent **lent)
{
	struct pinned_figures f;
	int rc = swapper_settle(p, s);

	pinned_figures(p->pinned, &f);
	if (rc || s->nslices > f.count)
		return rc ? rc : -ENOBUFS;
	rc = bring_all(p, s, use, wait_ms, lent);
	if (rc != -ENOBUFS)
		return rc;
	rc = swapper_settle(p, NULL);
	return rc ? rc : bring_all(p, s, use, wait_ms, lent);
}

/* ---- in, and out again ---- */

static int wait_for(struct swapper *p, struct swapper_lent *l, uint64_t wait_ms)
{
	struct timespec end = thread_in_ms(wait_ms);
	uint64_t since = monotonic_ns();
	struct swapper_failure *failure;
	bool waited = false;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	while (!l->there && !rc) {
		waited = true;
		rc = swapper_wait_until(p, &end);
	}
	if (waited)
		swapper_timed(p, l->slice->state, l->index, SWAPPER_WAIT_IN, 0, since);
	rc = rc ? rc : l->rc;
	failure = l->there ? &l->failure : NULL;
	pthread_mutex_unlock(&p->lock);
	if (failure)
		swapper_say(p, failure);
	return rc;
}

int swapper_wait(struct swapper *p, struct swapper_lent *l, void **memory)
{
	int rc = wait_for(p, l, swapper_patience(p));

	if (!rc)
		*memory = l->buffer;
	return rc;
}

/* What never leaves memory needs no buffer. */
static int small_version(struct swapper *p, struct swapper_lent *l, struct swapper_version **v)
{
	void *memory = malloc(l->bytes);
	int rc;

	if (!memory)
		return -ENOMEM;
	memcpy(memory, l->buffer, l->bytes);
	pthread_mutex_lock(&p->lock);
	swapper_take(p, SWAPPER_SMALL, l->bytes);
	pthread_mutex_unlock(&p->lock);
	rc = swapper_version_of(p, l->slice, memory, SWAPPER_SMALL, v);
	if (!rc)
		return 0;
	free(memory);
	pthread_mutex_lock(&p->lock);
	swapper_give(p, SWAPPER_SMALL, l->bytes);
	pthread_mutex_unlock(&p->lock);
	return rc;
}

int swapper_swap_out(struct swapper *p, struct swapper_lent *l)
{
	struct swapper_slice *slice = l->slice;
	bool small = slice->state->small;
	struct swapper_version *v;
	int rc = wait_for(p, l, swapper_patience(p));
	uint64_t since = monotonic_ns();

	if (rc)
		return rc;
	rc = small ? small_version(p, l, &v)
		   : swapper_version_of(p, slice, l->buffer, SWAPPER_PINNED, &v);
	if (rc)
		return rc;
	pthread_mutex_lock(&p->lock);
	count(l, SWAPPER_SUBMIT_OUT, since);
	swapper_set_next(p, slice, v);
	slice->lent = NULL;
	if (!small)
		l->buffer = NULL;
	forget(l);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void swapper_return(struct swapper *p, struct swapper_lent *l)
{
	take_back(p, l);
}

static bool is_collected(const struct swapper_state *s, const struct swapper_lent *l)
{
	for (unsigned i = 0; i < SWAPPER_OPEN; i++)
		if (s->open[i] == l)
			return true;
	return false;
}

void *swapper_memory(struct swapper *p, struct swapper_state *s, uint64_t first, uint64_t numel)
{
	uint64_t from = first * s->element, end = from + numel * s->element;
	uint64_t slice = from / s->slice_bytes;
	uint8_t *memory = NULL;

	if (first > s->bytes / s->element || numel > s->bytes / s->element - first || !numel)
		return NULL;
	pthread_mutex_lock(&p->lock);
	for (uint64_t i = slice; i * s->slice_bytes < end; i++) {
		const struct swapper_lent *l = s->slices[i].lent;

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

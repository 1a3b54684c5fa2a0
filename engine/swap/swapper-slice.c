/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/swap/swapper-internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- waiting ---- */

uint64_t swapper_time_left_ms(const struct swapper *sw)
{
	uint64_t now = monotonic_ms();

	if (!sw->until_ms)
		return sw->wait_ms;
	return u64_min(sw->wait_ms, sw->until_ms > now ? sw->until_ms - now : 0);
}

int swapper_wait_changed(struct swapper *sw, const struct timespec *end)
{
	return -pthread_cond_timedwait(&sw->changed, &sw->lock, end);
}

/* ---- buffers ---- */

/* Under the lock.  0: a buffer will come back by itself. */
static int can_wait(struct swapper *sw, uint64_t wait_ms)
{
	const struct swapper_block *b;

	if (sw->returning)
		return wait_ms ? 0 : -EAGAIN;
	LIST_FOREACH (b, &sw->unwritten, in_unwritten)
		if (b->stuck)
			return b->error;
	return -ENOBUFS;
}

/* Under the lock; lets go of it.  Unwritten blocks have all buffers that could come back: the
 * disk may take them by now.
 */
static int free_stuck(struct swapper *sw, uint64_t wait_ms)
{
	int rc = can_wait(sw, wait_ms);

	if (!wait_ms || !sw->stuck || sw->returning)
		return rc;
	pthread_mutex_unlock(&sw->lock);
	swapper_retry_writes(sw);
	pthread_mutex_lock(&sw->lock);
	return can_wait(sw, wait_ms);
}

static int buffer_run(struct swapper *sw, const struct swapper_state *s, unsigned n,
		      uint64_t wait_ms, void **buffers)
{
	struct timespec end = thread_in_ms(wait_ms);
	struct phase_span span = { 0 };
	bool waited = false;
	uint64_t ns;
	int rc;

	pthread_mutex_lock(&sw->lock);
	while ((rc = n == 1 ? pinned_get(sw->pinned, 0, buffers)
			    : pinned_get_run(sw->pinned, n, buffers)) == -EAGAIN) {
		rc = waited ? can_wait(sw, wait_ms) : free_stuck(sw, wait_ms);
		if (rc)
			break;
		if (!waited)
			phase_begin(PHASE_SWAP_WAIT, &span);
		waited = true;
		rc = swapper_wait_changed(sw, &end);
		if (rc)
			break;
	}
	ns = phase_end(PHASE_SWAP_WAIT, &span, rc);
	if (waited)
		swapper_timer_add(sw, s, SWAPPER_NO_SLICE, SWAPPER_WAIT_OUT, 0, ns);
	pthread_mutex_unlock(&sw->lock);
	return rc;
}

int swapper_get_buffer(struct swapper *sw, const struct swapper_state *s, uint64_t wait_ms,
		       void **buffer)
{
	return buffer_run(sw, s, 1, wait_ms, buffer);
}

static void put_buffer(struct swapper *sw, void *buffer)
{
	pinned_put(sw->pinned, buffer);
	pthread_cond_broadcast(&sw->changed);
}

/* ---- swapping in ---- */

/* Under the lock. */
static void free_lent(struct swapper_lent *l)
{
	if (l->buffer)
		put_buffer(l->swapper, l->buffer);
	swapper_version_unref(l->swapper, l->version);
	free(l);
}

static void count(struct swapper_lent *l, enum swapper_timed timed, uint64_t ns)
{
	swapper_timer_add(l->swapper, l->slice->state, l->index, timed, l->bytes, ns);
}

/* Under the lock. */
static void count_swap_in(struct swapper_lent *l, uint64_t ns)
{
	count(l, SWAPPER_IN, ns);
	l->slice->state->reads++;
}

/* Under the lock. */
static void finish_swap_in(struct swapper_lent *l, int rc)
{
	struct swapper *sw = l->swapper;

	l->there = true;
	l->rc = rc;
	if (!rc && l->version)
		swapper_version_patch(l->version, 0, l->bytes, l->buffer);
	swapper_version_unref(sw, l->version);
	l->version = NULL;
	if (l->abandoned) {
		sw->returning--;
		free_lent(l);
	}
	pthread_cond_broadcast(&sw->changed);
}

static void on_read(struct swap_io *io, int rc)
{
	struct swapper_lent *l = container_of(io, struct swapper_lent, io);
	struct swapper_block *block = l->block;
	struct swapper *sw = l->swapper;
	uint64_t ns;

	pthread_mutex_lock(&sw->lock);
	swapper_timer_end(sw, block->state->kind, SWAPPER_IN);
	ns = phase_end(PHASE_SWAP_IN, &l->span, rc);
	if (rc)
		swapper_read_failed(block, io, rc, &l->failure);
	else
		count_swap_in(l, ns);
	finish_swap_in(l, rc);
	swapper_block_read_end(block, false); /* may free the state, too */
	sw->swapping_in--;
	pthread_cond_broadcast(&sw->changed);
	pthread_mutex_unlock(&sw->lock);
}

static void from_disk(struct swapper_lent *l)
{
	uint64_t since = monotonic_ns();

	l->io = (struct swap_io){ .extent = l->block->extent,
				  .what = DISK_READ,
				  .slab = (uint16_t)pinned_slab_of(l->swapper->pinned,
								   l->buffer),
				  .bytes = l->bytes,
				  .memory = l->buffer,
				  .done = on_read };
	/* on_read may end before the lock is taken again: l is the trainer's, and stays. */
	swap_file_submit(l->swapper->file, &l->io);
	pthread_mutex_lock(&l->swapper->lock);
	count(l, SWAPPER_SUBMIT_IN, monotonic_ns() - since);
	pthread_mutex_unlock(&l->swapper->lock);
}

static void from_memory(struct swapper_lent *l)
{
	uint64_t since = monotonic_ns();

	memcpy(l->buffer, l->block->memory, l->bytes);
	pthread_mutex_lock(&l->swapper->lock);
	count(l, SWAPPER_FROM_MEMORY, monotonic_ns() - since);
	swapper_block_read_end(l->block, true);
	finish_swap_in(l, 0);
	pthread_mutex_unlock(&l->swapper->lock);
}

static void swap_in_zeros(struct swapper_lent *l)
{
	if (l->use & SWAPPER_READ)
		memset(l->buffer, 0, l->bytes);
	pthread_mutex_lock(&l->swapper->lock);
	finish_swap_in(l, 0);
	pthread_mutex_unlock(&l->swapper->lock);
}

static void start(struct swapper_lent *l)
{
	bool is_in_memory = false;

	pthread_mutex_lock(&l->swapper->lock);
	l->block = l->version ? l->version->block : NULL;
	if (l->block)
		is_in_memory = swapper_block_read_begin(l->block);
	if (l->block && !is_in_memory) {
		l->swapper->swapping_in++;
		swapper_timer_begin(l->swapper, l->block->state->kind, SWAPPER_IN);
		phase_begin(PHASE_SWAP_IN, &l->span);
	}
	pthread_mutex_unlock(&l->swapper->lock);
	if (!l->block)
		swap_in_zeros(l);
	else if (is_in_memory)
		from_memory(l);
	else
		from_disk(l);
}

/* Under the lock. */
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

static int lent_new(struct swapper *sw, struct swapper_state *s, uint64_t slice, unsigned use,
		    struct swapper_lent **out)
{
	struct swapper_lent *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return -ENOMEM;
	l->swapper = sw;
	l->slice = &s->slices[slice];
	l->index = slice;
	l->bytes = swapper_slice_bytes(s, slice);
	l->use = use;
	pthread_mutex_lock(&sw->lock);
	rc = lend(l);
	pthread_mutex_unlock(&sw->lock);
	if (rc)
		free(l);
	else
		*out = l;
	return rc;
}

static void end_lent(struct swapper *sw, struct swapper_lent *l)
{
	pthread_mutex_lock(&sw->lock);
	l->slice->lent = NULL;
	if (l->there || !l->buffer) {
		free_lent(l);
	} else {
		l->abandoned = true;
		sw->returning++;
		swap_file_cancel(sw->file, &l->io);
	}
	pthread_mutex_unlock(&sw->lock);
}

static int swap_in_slice(struct swapper *sw, struct swapper_state *s, uint64_t slice,
			 unsigned use, uint64_t wait_ms, struct swapper_lent **lent)
{
	struct swapper_lent *l;
	void *buffer;
	int rc = lent_new(sw, s, slice, use, &l);

	if (rc)
		return rc;
	rc = swapper_get_buffer(sw, s, wait_ms, &buffer);
	if (rc) {
		end_lent(sw, l);
		return rc;
	}
	l->buffer = buffer;
	start(l);
	*lent = l;
	return 0;
}

int swapper_swap_in(struct swapper *sw, struct swapper_state *s, uint64_t slice, unsigned use,
		    uint64_t wait_ms, struct swapper_lent **lent)
{
	int rc = slice < s->nslices ? swapper_swap_out_puts(sw, s) : -EINVAL;

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	rc = swap_in_slice(sw, s, slice, use, wait_ms, lent);
	if (rc != -ENOBUFS)
		return rc;
	/* Puts may have the buffers: swapping them out gives these back. */
	rc = swapper_swap_out_puts(sw, NULL);
	return rc ? rc : swap_in_slice(sw, s, slice, use, wait_ms, lent);
}

static void return_all(struct swapper *sw, struct swapper_lent **lent, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		end_lent(sw, lent[i]);
		lent[i] = NULL;
	}
}

/* Lends all slices, as yet without buffers. */
static int lend_all(struct swapper *sw, struct swapper_state *s, unsigned use,
		    struct swapper_lent **lent)
{
	for (unsigned i = 0; i < s->nslices; i++) {
		int rc = lent_new(sw, s, i, use, &lent[i]);

		if (!rc)
			continue;
		return_all(sw, lent, i);
		return rc;
	}
	return 0;
}

static int try_swap_in_all(struct swapper *sw, struct swapper_state *s, unsigned use,
			   uint64_t wait_ms, struct swapper_lent **lent)
{
	unsigned n = (unsigned)s->nslices;
	CLEANUP(free) void **buffers = calloc(n, sizeof(*buffers));
	int rc = buffers ? lend_all(sw, s, use, lent) : -ENOMEM;

	if (rc)
		return rc;
	rc = buffer_run(sw, s, n, wait_ms, buffers);
	if (rc)
		return_all(sw, lent, n);
	for (unsigned i = 0; i < n && !rc; i++) {
		lent[i]->buffer = buffers[i];
		start(lent[i]);
	}
	return rc;
}

int swapper_swap_in_all(struct swapper *sw, struct swapper_state *s, unsigned use,
			uint64_t wait_ms, struct swapper_lent **lent)
{
	struct pinned_figures f;
	int rc = swapper_swap_out_puts(sw, s);

	pinned_figures(sw->pinned, &f);
	if (rc || s->nslices > f.count)
		return rc ? rc : -ENOBUFS;
	rc = try_swap_in_all(sw, s, use, wait_ms, lent);
	if (rc != -ENOBUFS)
		return rc;
	rc = swapper_swap_out_puts(sw, NULL);
	return rc ? rc : try_swap_in_all(sw, s, use, wait_ms, lent);
}

/* ---- waiting for a slice, and swapping out ---- */

static int wait_for(struct swapper *sw, struct swapper_lent *l, uint64_t wait_ms)
{
	struct timespec end = thread_in_ms(wait_ms);
	struct phase_span span = { 0 };
	struct swapper_failure *failure;
	bool waited = false;
	uint64_t ns;
	int rc = 0;

	pthread_mutex_lock(&sw->lock);
	while (!l->there && !rc) {
		if (!waited)
			phase_begin(PHASE_SWAP_WAIT, &span);
		waited = true;
		rc = swapper_wait_changed(sw, &end);
	}
	ns = phase_end(PHASE_SWAP_WAIT, &span, rc);
	if (waited)
		swapper_timer_add(sw, l->slice->state, l->index, SWAPPER_WAIT_IN, 0, ns);
	rc = rc ? rc : l->rc;
	failure = l->there ? &l->failure : NULL;
	pthread_mutex_unlock(&sw->lock);
	if (failure)
		swapper_log_failure(sw, failure);
	return rc;
}

int swapper_wait(struct swapper *sw, struct swapper_lent *l, void **memory)
{
	int rc = wait_for(sw, l, swapper_time_left_ms(sw));

	if (!rc)
		*memory = l->buffer;
	return rc;
}

/* A small state's version is in memory of its own, not in a pinned buffer. */
static int small_version(struct swapper *sw, struct swapper_lent *l, struct swapper_version **v)
{
	void *memory = malloc(l->bytes);
	int rc;

	if (!memory)
		return -ENOMEM;
	memcpy(memory, l->buffer, l->bytes);
	pthread_mutex_lock(&sw->lock);
	swapper_charge(sw, SWAPPER_SMALL, l->bytes);
	pthread_mutex_unlock(&sw->lock);
	rc = swapper_version_write(sw, l->slice, memory, SWAPPER_SMALL, v);
	if (!rc)
		return 0;
	free(memory);
	pthread_mutex_lock(&sw->lock);
	swapper_uncharge(sw, SWAPPER_SMALL, l->bytes);
	pthread_mutex_unlock(&sw->lock);
	return rc;
}

int swapper_swap_out(struct swapper *sw, struct swapper_lent *l)
{
	struct swapper_slice *slice = l->slice;
	bool small = slice->state->small;
	struct swapper_version *v;
	int rc = wait_for(sw, l, swapper_time_left_ms(sw));
	uint64_t since = monotonic_ns();

	assert(thread_may_be_trainer());
	if (rc)
		return rc;
	rc = small ? small_version(sw, l, &v)
		   : swapper_version_write(sw, slice, l->buffer, SWAPPER_PINNED, &v);
	if (rc)
		return rc;
	pthread_mutex_lock(&sw->lock);
	count(l, SWAPPER_SUBMIT_OUT, monotonic_ns() - since);
	swapper_set_next(sw, slice, v);
	slice->lent = NULL;
	if (!small)
		l->buffer = NULL;
	free_lent(l);
	pthread_mutex_unlock(&sw->lock);
	return 0;
}

void swapper_return(struct swapper *sw, struct swapper_lent *l)
{
	end_lent(sw, l);
}

static bool is_collected(const struct swapper_state *s, const struct swapper_lent *l)
{
	for (unsigned i = 0; i < SWAPPER_OPEN; i++)
		if (s->open[i] == l)
			return true;
	return false;
}

void *swapper_memory(struct swapper *sw, struct swapper_state *s, uint64_t first,
		     uint64_t numel)
{
	uint64_t from = first * s->element, end = from + numel * s->element;
	uint64_t slice = from / s->slice_bytes;
	uint8_t *memory = NULL;

	if (first > s->bytes / s->element || numel > s->bytes / s->element - first || !numel)
		return NULL;
	pthread_mutex_lock(&sw->lock);
	for (uint64_t i = slice; i * s->slice_bytes < end; i++) {
		const struct swapper_lent *l = s->slices[i].lent;

		if (!l || !l->there || l->rc || is_collected(s, l) ||
		    (i > slice && l->buffer != memory + (i - slice) * s->slice_bytes)) {
			memory = NULL;
			break;
		}
		memory = i > slice ? memory : l->buffer;
	}
	pthread_mutex_unlock(&sw->lock);
	return memory ? memory + from % s->slice_bytes : NULL;
}

/* ---- as the trainer has it ---- */

/* Reads a range of one slice. */
static int look(struct swapper *sw, struct swapper_state *s, uint64_t offset, uint64_t size,
		void *memory)
{
	struct swapper_lent *l = s->slices[offset / s->slice_bytes].lent;
	void *lent;
	int rc;

	/* a buffer that is lent only to be written has any content */
	if (!l || !(l->use & SWAPPER_READ))
		return swapper_read_unlent(sw, s, offset, size, memory);
	rc = swapper_wait(sw, l, &lent);
	if (!rc)
		memcpy(memory, (uint8_t *)lent + offset % s->slice_bytes, size);
	return rc;
}

int swapper_read_newest(struct swapper *sw, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory)
{
	uint64_t end;
	int rc = 0;

	assert(thread_may_be_trainer());
	if (!u64_add(offset, size, &end) || end > s->bytes)
		return -EINVAL;
	for (uint64_t n; offset < end && !rc; offset += n) {
		n = u64_min(end - offset, s->slice_bytes - offset % s->slice_bytes);
		rc = look(sw, s, offset, n, memory);
		memory = (uint8_t *)memory + n;
	}
	return rc;
}

/* ---- values that are put ---- */

/* Gradients are put parameter by parameter, the last first, so that many puts fill one slice:
 * it stays lent until others need the buffer.  A slice that was cleared begins as zeros, so
 * that elements which nothing is put to have no gradient of another step.
 */

static void use_first(struct swapper_state *s, unsigned i)
{
	struct swapper_lent *l = s->open[i];

	memmove(s->open + 1, s->open, i * sizeof(struct swapper_lent *));
	s->open[0] = l;
}

static int close_one(struct swapper *sw, struct swapper_state *s, unsigned i)
{
	int rc = s->open[i] ? swapper_swap_out(sw, s->open[i]) : 0;

	if (!rc)
		s->open[i] = NULL;
	return rc;
}

/* Makes s->open[0] that slice, swapped in. */
static int open_slice(struct swapper *sw, struct swapper_state *s, uint64_t slice)
{
	void *memory;
	int rc;

	for (unsigned i = 0; i < SWAPPER_OPEN; i++)
		if (s->open[i] && s->open[i]->index == slice) {
			use_first(s, i);
			return 0;
		}
	rc = close_one(sw, s, SWAPPER_OPEN - 1);
	if (rc)
		return rc;
	use_first(s, SWAPPER_OPEN - 1);
	rc = swap_in_slice(sw, s, slice, SWAPPER_READ | SWAPPER_WRITE, swapper_time_left_ms(sw),
			   &s->open[0]);
	if (rc == -ENOBUFS && !(rc = swapper_swap_out_puts(sw, NULL)))
		rc = swap_in_slice(sw, s, slice, SWAPPER_READ | SWAPPER_WRITE,
				   swapper_time_left_ms(sw), &s->open[0]);
	if (rc)
		return rc;
	rc = swapper_wait(sw, s->open[0], &memory);
	if (rc) {
		swapper_return(sw, s->open[0]);
		s->open[0] = NULL;
	}
	return rc;
}

static void add(float *to, const float *from, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] += from[i];
}

static int put(struct swapper *sw, struct swapper_state *s, uint64_t first,
	       const uint8_t *values, uint64_t numel, bool accumulate)
{
	uint64_t each = swapper_slice_numel(s);

	for (uint64_t gone = 0, n; gone < numel; gone += n) {
		uint64_t at = (first + gone) % each;
		const uint8_t *from = values + gone * s->element;
		int rc = open_slice(sw, s, (first + gone) / each);
		uint8_t *to;

		if (rc)
			return rc;
		n = u64_min(numel - gone, each - at);
		to = s->open[0]->buffer + at * s->element;
		if (accumulate)
			add((float *)to, (const float *)from, n);
		else
			memcpy(to, from, n * s->element);
	}
	return 0;
}

static int check(const struct swapper_state *s, uint64_t first, uint64_t numel)
{
	uint64_t end;

	return u64_add(first, numel, &end) && end <= s->bytes / s->element ? 0 : -EINVAL;
}

static int put_all(struct swapper *sw, struct swapper_state *s, uint64_t first,
		   const void *values, uint64_t numel, bool accumulate)
{
	int rc = check(s, first, numel);

	if (rc)
		return rc;
	pthread_mutex_lock(&sw->lock);
	sw->figures.puts++;
	pthread_mutex_unlock(&sw->lock);
	swapper_log_debug(sw, s, accumulate ? "add" : "put", first * s->element,
			  numel * s->element);
	return put(sw, s, first, values, numel, accumulate);
}

int swapper_put(struct swapper *sw, struct swapper_state *s, uint64_t first, const void *values,
		uint64_t numel)
{
	assert(thread_may_be_trainer());
	return put_all(sw, s, first, values, numel, false);
}

int swapper_accumulate(struct swapper *sw, struct swapper_state *s, uint64_t first,
		       const float *values, uint64_t numel)
{
	return s->element == sizeof(float) ? put_all(sw, s, first, values, numel, true)
					   : -EINVAL;
}

static int settle(struct swapper *sw, struct swapper_state *s)
{
	int rc = 0;

	for (unsigned i = 0; i < SWAPPER_OPEN; i++) {
		int one = close_one(sw, s, i);

		rc = rc ? rc : one;
	}
	return rc;
}

int swapper_swap_out_puts(struct swapper *sw, struct swapper_state *s)
{
	int rc = 0;

	if (s)
		return settle(sw, s);
	LIST_FOREACH (s, &sw->states, in_states) {
		int one = settle(sw, s);

		rc = rc ? rc : one;
	}
	return rc;
}

void swapper_drop_puts(struct swapper *sw, struct swapper_state *s)
{
	for (unsigned i = 0; i < SWAPPER_OPEN; i++)
		if (s->open[i]) {
			swapper_return(sw, s->open[i]);
			s->open[i] = NULL;
		}
}

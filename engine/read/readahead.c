/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/read/onesided-read.h"
#include "engine/read/readahead.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
	HUGE_PAGE = 2 << 20,
	SIZE_MIN = 64 << 10,
	FRESH_MS = 20,      /* a copy without a view may be shown for so long */
	PATIENCE_US = 1000, /* the longest wait of a reader for the worker */
	SLOW_STREAK =
		-32, /* requests without read-ahead for a reader that came too late for one */
};

struct readahead_pool {
	pthread_mutex_t lock;
	pthread_cond_t work; /* something queued, or stop */
	pthread_cond_t filled;
	pthread_t thread;
	bool stop;
	bool asleep;      /* the worker waits for work */
	unsigned waiting; /* readers that wait for `filled` */
	struct ahead *first, *last;
	void *spare[16]; /* buffers of READAHEAD_BUFFER */
	unsigned nspare;
};

static void *get_buffer(struct readahead_pool *p)
{
	void *buffer;

	if (p->nspare)
		return p->spare[--p->nspare];
	buffer = aligned_alloc(HUGE_PAGE, READAHEAD_BUFFER);
	if (buffer)
		madvise(buffer, READAHEAD_BUFFER, MADV_HUGEPAGE);
	return buffer;
}

static void put_buffer(struct readahead_pool *p, void *buffer)
{
	if (p->nspare < ARRAY_SIZE(p->spare))
		p->spare[p->nspare++] = buffer;
	else
		free(buffer);
}

void *readahead_buffer(struct engine *e)
{
	struct readahead_pool *p = e->read.ahead;
	void *buffer;

	if (!p)
		return aligned_alloc(HUGE_PAGE, READAHEAD_BUFFER);
	pthread_mutex_lock(&p->lock);
	buffer = get_buffer(p);
	pthread_mutex_unlock(&p->lock);
	return buffer;
}

void readahead_give(struct engine *e, void *buffer)
{
	struct readahead_pool *p = e->read.ahead;

	if (!p) {
		free(buffer);
		return;
	}
	pthread_mutex_lock(&p->lock);
	put_buffer(p, buffer);
	pthread_mutex_unlock(&p->lock);
}

static void empty(struct readahead_pool *p, struct ahead *s)
{
	if (s->buffer)
		put_buffer(p, s->buffer);
	s->buffer = NULL;
	s->state = AHEAD_EMPTY;
}

static void unqueue(struct readahead_pool *p, struct ahead *s)
{
	struct ahead **at = &p->first, *last = NULL;

	while (*at && *at != s) {
		last = *at;
		at = &(*at)->next_queued;
	}
	if (*at)
		*at = s->next_queued;
	if (p->last == s)
		p->last = last;
}

/* Called and returns with the lock, but wakes without it: the woken thread takes it. */
static void fill(struct readahead_pool *p, struct ahead *s)
{
	struct engine_file *f = s->file;
	bool wake;
	int rc;

	s->state = AHEAD_FILLING;
	s->edits = atomic_load(&f->engine->write.edits);
	pthread_mutex_unlock(&p->lock);
	rc = onesided_read(f->engine, f, s->offset, s->buffer, s->size, LOG_PLACE);
	pthread_mutex_lock(&p->lock);
	s->filled_ms = monotonic_ms();
	if (rc)
		empty(p, s);
	else
		s->state = AHEAD_READY;
	wake = p->waiting;
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_broadcast(&p->filled);
	pthread_mutex_lock(&p->lock);
}

static void *work(void *arg)
{
	struct readahead_pool *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		struct ahead *s = p->first;

		if (s) {
			unqueue(p, s);
			fill(p, s);
			continue;
		}
		p->asleep = true;
		pthread_cond_wait(&p->work, &p->lock);
		p->asleep = false;
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void init_locks(struct readahead_pool *p)
{
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	thread_cond_init(&p->filled);
}

int readahead_new(struct engine *e)
{
	struct readahead_pool *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	init_locks(p);
	rc = thread_start(&p->thread, work, p);
	if (rc) {
		free(p);
		return rc;
	}
	e->read.ahead = p;
	return 0;
}

void readahead_free(struct engine *e)
{
	struct readahead_pool *p = e->read.ahead;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	while (p->nspare)
		free(p->spare[--p->nspare]);
	free(p);
	e->read.ahead = NULL;
}

/* Waits for the worker's copy.  False: it is not there, since the worker seems to have lost its
 * core to the trainer.
 */
static bool wait_filled(struct readahead_pool *p, const struct ahead *s)
{
	struct timespec until;
	int rc = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += PATIENCE_US * 1000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	p->waiting++;
	while (s->state == AHEAD_FILLING && !rc)
		rc = pthread_cond_timedwait(&p->filled, &p->lock, &until);
	p->waiting--;
	return s->state != AHEAD_FILLING;
}

static struct ahead *find_buffered(struct engine_file *f, uint64_t offset, size_t size)
{
	for (unsigned i = 0; i < AHEAD_MAX; i++) {
		struct ahead *s = &f->ahead[i];

		if (s->state != AHEAD_EMPTY && s->offset == offset && s->size == size)
			return s;
	}
	return NULL;
}

/* Returns true if the bytes that were copied ahead may still be shown.  Those of a view do not
 * change; without one the job trains on, and this engine may have written.
 */
static bool is_fresh(struct engine_file *f, const struct ahead *s)
{
	if (atomic_load(&f->view_is_ready))
		return true;
	if (monotonic_ms() > s->filled_ms + FRESH_MS)
		f->sequence.streak = SLOW_STREAK;
	return f->sequence.streak >= 0 && s->edits == atomic_load(&f->engine->write.edits);
}

static bool take_buffer(struct readahead_pool *p, struct engine_file *f, uint64_t offset,
			size_t size, void **buffer)
{
	struct ahead *s = find_buffered(f, offset, size);
	bool taken = false;

	if (s && s->state == AHEAD_FILLING && !wait_filled(p, s))
		return false;
	/* during the wait another thread may have used the slot for another request */
	if (!s || s->offset != offset || s->size != size)
		return false;
	if (s->state == AHEAD_READY && is_fresh(f, s)) {
		void *given = *buffer;

		*buffer = s->buffer;
		s->buffer = given;
		taken = true;
	}
	if (s->state == AHEAD_QUEUED)
		unqueue(p, s);
	empty(p, s);
	return taken;
}

static void queue_one(struct readahead_pool *p, struct engine_file *f, uint64_t offset,
		      size_t size)
{
	struct ahead *s = NULL;

	for (unsigned i = 0; i < AHEAD_MAX && !s; i++)
		if (f->ahead[i].state == AHEAD_EMPTY)
			s = &f->ahead[i];
	if (!s || !(s->buffer = get_buffer(p)))
		return;
	s->next_queued = NULL;
	s->file = f;
	s->offset = offset;
	s->size = size;
	s->state = AHEAD_QUEUED;
	if (p->first)
		p->last->next_queued = s;
	else
		p->first = s;
	p->last = s;
}

/* Empties buffers that the reader has passed, or left by a seek.  Returns how many lie ahead.
 */
static unsigned drop_behind(struct readahead_pool *p, struct engine_file *f, uint64_t offset,
			    size_t size)
{
	unsigned ahead = 0;

	for (unsigned i = 0; i < AHEAD_MAX; i++) {
		struct ahead *s = &f->ahead[i];

		if (s->state == AHEAD_READY &&
		    (s->offset < offset + size || s->offset > offset + AHEAD_MAX * size))
			empty(p, s);
		ahead += s->state != AHEAD_EMPTY;
	}
	return ahead;
}

/* Half of the slots at a time: to wake the worker costs about as much as to copy 100 KiB. */
static void queue_next(struct readahead_pool *p, struct engine_file *f, uint64_t offset,
		       size_t size)
{
	if (drop_behind(p, f, offset, size) > AHEAD_MAX / 2)
		return;
	for (uint64_t ahead = 1; ahead <= AHEAD_MAX; ahead++) {
		uint64_t at = offset + ahead * size;

		if (at < f->bytes && !find_buffered(f, at, u64_min(size, f->bytes - at)))
			queue_one(p, f, at, u64_min(size, f->bytes - at));
	}
}

static void note(struct readahead_pool *p, struct engine_file *f, uint64_t offset, size_t size)
{
	if (sequence_goes_on(&f->sequence, offset, size) &&
	    atomic_load_explicit(&f->fast, memory_order_relaxed))
		queue_next(p, f, offset, size);
}

bool readahead_take(struct engine_file *f, uint64_t offset, size_t size, void **buffer)
{
	struct engine *e = f->engine;
	struct readahead_pool *p = e->read.ahead;
	bool taken, wake;

	if (!p || size < SIZE_MIN || !*buffer)
		return false;
	pthread_mutex_lock(&p->lock);
	taken = take_buffer(p, f, offset, size, buffer);
	note(p, f, offset, size);
	wake = p->asleep && p->first;
	pthread_mutex_unlock(&p->lock);
	if (wake)
		pthread_cond_signal(&p->work);
	atomic_fetch_add_explicit(taken ? &e->counters.readahead_hits
					: &e->counters.readahead_misses,
				  1, memory_order_relaxed);
	return taken;
}

void readahead_drop(struct engine_file *f)
{
	struct readahead_pool *p = f->engine->read.ahead;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < AHEAD_MAX; i++) {
		struct ahead *s = &f->ahead[i];

		if (s->state == AHEAD_QUEUED)
			unqueue(p, s);
		while (!wait_filled(p, s))
			;
		if (s->state != AHEAD_EMPTY)
			empty(p, s);
	}
	pthread_mutex_unlock(&p->lock);
}

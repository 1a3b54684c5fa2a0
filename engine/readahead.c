/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/grab.h"
#include "engine/readahead.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { SIZE_MIN = 64 << 10, FRESH_MS = 20, DEPTH = 2, STREAK_MIN = 2 };

struct readahead_pool {
	pthread_mutex_t lock;
	pthread_cond_t work; /* something queued, or stop */
	pthread_cond_t filled;
	pthread_t thread;
	bool stop;
	struct ahead *first, *last;
	void *spare[16]; /* buffers of ENGINE_READ_MAX */
	unsigned nspare;
};

static void *get_buffer(struct readahead_pool *p)
{
	void *buffer;

	if (p->nspare)
		return p->spare[--p->nspare];
	buffer = aligned_alloc(2 << 20, 2 << 20);
	if (buffer)
		madvise(buffer, 2 << 20, MADV_HUGEPAGE);
	return buffer;
}

static void put_buffer(struct readahead_pool *p, void *buffer)
{
	if (p->nspare < ARRAY_SIZE(p->spare))
		p->spare[p->nspare++] = buffer;
	else
		free(buffer);
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

/* Called and returns with the lock. */
static void fill(struct readahead_pool *p, struct ahead *s)
{
	struct engine_file *f = s->file;
	int rc;

	s->state = AHEAD_FILLING;
	s->edits = atomic_load(&f->engine->edit_count);
	pthread_mutex_unlock(&p->lock);
	rc = grab_now(f->engine, &f->address, f->is_grad, s->offset, s->buffer, s->size);
	pthread_mutex_lock(&p->lock);
	s->filled_ms = monotonic_ms();
	if (rc)
		empty(p, s);
	else
		s->state = AHEAD_READY;
	pthread_cond_broadcast(&p->filled);
}

static void *work(void *arg)
{
	struct readahead_pool *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		struct ahead *s = p->first;

		if (!s) {
			pthread_cond_wait(&p->work, &p->lock);
			continue;
		}
		unqueue(p, s);
		fill(p, s);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int readahead_new(struct engine *e)
{
	struct readahead_pool *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->filled, NULL);
	rc = pthread_create(&p->thread, NULL, work, p);
	if (rc) {
		free(p);
		return -rc;
	}
	e->readahead = p;
	return 0;
}

void readahead_free(struct engine *e)
{
	struct readahead_pool *p = e->readahead;

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
	e->readahead = NULL;
}

static struct ahead *find(struct engine_file *f, uint64_t offset, size_t size)
{
	for (unsigned i = 0; i < AHEAD_MAX; i++) {
		struct ahead *s = &f->ahead[i];

		if (s->state != AHEAD_EMPTY && s->state != AHEAD_SERVING && s->offset == offset &&
		    s->size == size)
			return s;
	}
	return NULL;
}

static bool is_fresh(const struct engine_file *f, const struct ahead *s)
{
	return monotonic_ms() <= s->filled_ms + FRESH_MS &&
	       s->edits == atomic_load(&f->engine->edit_count);
}

static struct ahead *take(struct readahead_pool *p, struct engine_file *f, uint64_t offset, size_t size)
{
	struct ahead *s = find(f, offset, size);

	while (s && s->state == AHEAD_FILLING)
		pthread_cond_wait(&p->filled, &p->lock); /* as long as a copy takes */
	if (!s || s->offset != offset || s->size != size)
		return NULL;
	if (s->state == AHEAD_READY && is_fresh(f, s)) {
		s->state = AHEAD_SERVING;
		return s;
	}
	if (s->state == AHEAD_QUEUED)
		unqueue(p, s);
	if (s->state == AHEAD_QUEUED || s->state == AHEAD_READY)
		empty(p, s);
	return NULL;
}

struct ahead *readahead_take(struct engine_file *f, uint64_t offset, size_t size)
{
	struct engine *e = f->engine;
	struct ahead *s;

	if (!e->readahead || size < SIZE_MIN)
		return NULL;
	pthread_mutex_lock(&e->readahead->lock);
	s = take(e->readahead, f, offset, size);
	pthread_mutex_unlock(&e->readahead->lock);
	if (s)
		atomic_fetch_add_explicit(&e->counters.readahead_hits, 1, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&e->counters.readahead_misses, 1, memory_order_relaxed);
	return s;
}

void readahead_served(struct ahead *s)
{
	struct readahead_pool *p = s->file->engine->readahead;

	pthread_mutex_lock(&p->lock);
	empty(p, s);
	pthread_mutex_unlock(&p->lock);
}

static void queue_one(struct readahead_pool *p, struct engine_file *f, uint64_t offset, size_t size)
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
	pthread_cond_signal(&p->work);
}

/* What an earlier place of this reader left behind. */
static void drop_behind(struct readahead_pool *p, struct engine_file *f, uint64_t offset, size_t size)
{
	for (unsigned i = 0; i < AHEAD_MAX; i++) {
		struct ahead *s = &f->ahead[i];

		if (s->state == AHEAD_READY &&
		    (s->offset < offset + size || s->offset >= offset + (DEPTH + 1) * size))
			empty(p, s);
	}
}

static void queue_next(struct readahead_pool *p, struct engine_file *f, uint64_t offset, size_t size)
{
	drop_behind(p, f, offset, size);
	for (uint64_t ahead = 1; ahead <= DEPTH; ahead++) {
		uint64_t at = offset + ahead * size;

		if (at < f->bytes && !find(f, at, u64_min(size, f->bytes - at)))
			queue_one(p, f, at, u64_min(size, f->bytes - at));
	}
}

void readahead_note(struct engine_file *f, uint64_t offset, size_t size)
{
	struct readahead_pool *p = f->engine->readahead;

	if (!p || size < SIZE_MIN)
		return;
	pthread_mutex_lock(&p->lock);
	f->streak = offset == f->next_offset ? f->streak + 1 : 0;
	f->next_offset = offset + size;
	if (f->streak >= STREAK_MIN && atomic_load_explicit(&f->fast, memory_order_relaxed))
		queue_next(p, f, offset, size);
	pthread_mutex_unlock(&p->lock);
}

void readahead_drop(struct engine_file *f)
{
	struct readahead_pool *p = f->engine->readahead;

	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	for (unsigned i = 0; i < AHEAD_MAX; i++) {
		struct ahead *s = &f->ahead[i];

		if (s->state == AHEAD_QUEUED)
			unqueue(p, s);
		while (s->state == AHEAD_FILLING)
			pthread_cond_wait(&p->filled, &p->lock);
		if (s->state != AHEAD_EMPTY)
			empty(p, s);
	}
	pthread_mutex_unlock(&p->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/device/device-queue.h"

#include <errno.h>

/* Pauses between queries of events. */
enum { PAUSE_MIN_US = 50, PAUSE_MAX_US = 1000 };

enum { DEFAULT_CHUNK = 4 << 20, DEFAULT_CHUNKS = 4, DEFAULT_MS = 10000 };
enum { PAGE = 4096, CHUNKS_MIN = 2, STAGING_MAX = 1 << 30 };

int device_options_check(struct device_options *options)
{
	struct device_options *o = options;

	o->chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
	o->chunks = o->chunks ? o->chunks : DEFAULT_CHUNKS;
	o->wait_ms = o->wait_ms ? o->wait_ms : DEFAULT_MS;
	o->stuck_ms = o->stuck_ms ? o->stuck_ms : DEFAULT_MS;
	if (o->chunk < DEVICE_CHUNK_MIN || o->chunks < CHUNKS_MIN ||
	    o->chunk > STAGING_MAX / o->chunks)
		return -EINVAL;
	o->chunk = o->chunk / PAGE * PAGE;
	return 0;
}

void device_queue_sizes(const struct device_io *io, uint64_t *from, uint64_t *to)
{
	uint64_t size = u64_min(io->size, UINT64_MAX / sizeof(uint32_t));
	size_t element = device_element_size(io->what);

	*from = size * element;
	*to = device_is_sums(io->what) ? 0
				       : size * (sizeof(uint32_t) + sizeof(uint16_t) - element);
}

/* ---- the thread ---- */

/* Waits until a request comes, or for pause_us.  Returns whether the queue is to stop. */
static bool take_what_came(struct device_queue *q, uint64_t pause_us)
{
	bool stop;

	pthread_mutex_lock(&q->lock);
	if (pause_us && STAILQ_EMPTY(&q->come)) {
		struct timespec until = thread_in_us(pause_us);

		pthread_cond_timedwait(&q->woken, &q->lock, &until);
	}
	while (!pause_us && STAILQ_EMPTY(&q->come) && !q->stop)
		pthread_cond_wait(&q->woken, &q->lock);
	STAILQ_CONCAT(&q->waiting, &q->come);
	stop = q->stop;
	pthread_mutex_unlock(&q->lock);
	return stop;
}

/* Returns 0 if the request begins; -EAGAIN: not yet; else the error that it ends with. */
static int may_begin(struct device_queue *q, struct device_io *io, bool stop)
{
	int rc;

	if (stop)
		return io->what == DEVICE_RELEASE ? 0 : -ECANCELED;
	rc = io->after ? q->ops->passed(q->device, io->after) : 0;
	if (rc == -EAGAIN && monotonic_ms() >= io->port.until_ms)
		return -ETIMEDOUT;
	return rc;
}

/* Requests that still wait keep their order. */
static void begin_some(struct device_queue *q, bool stop)
{
	struct device_ios still = STAILQ_HEAD_INITIALIZER(still);
	struct device_io *io;

	while ((io = STAILQ_TAKE(&q->waiting, port.next))) {
		int rc = may_begin(q, io, stop);

		if (rc == -EAGAIN)
			STAILQ_INSERT_TAIL(&still, io, port.next);
		/* a release frees memory, and begins also where its event has failed */
		else if (rc && io->what != DEVICE_RELEASE)
			io->done(io, rc);
		else
			q->ops->begin(q->device, io);
	}
	STAILQ_CONCAT(&q->waiting, &still);
}

static uint64_t next_pause(struct device_queue *q, bool under_way, uint64_t pause_us)
{
	if (under_way)
		return PAUSE_MIN_US;
	if (STAILQ_EMPTY(&q->waiting))
		return 0;
	return u64_min(u64_max(2 * pause_us, PAUSE_MIN_US), PAUSE_MAX_US);
}

static bool come_is_empty(struct device_queue *q)
{
	bool empty;

	pthread_mutex_lock(&q->lock);
	empty = STAILQ_EMPTY(&q->come);
	pthread_mutex_unlock(&q->lock);
	return empty;
}

static void *run(void *arg)
{
	struct device_queue *q = arg;
	bool stop = false, under_way = false;
	uint64_t pause_us = 0;

	while (!stop || under_way || !come_is_empty(q)) {
		stop = take_what_came(q, pause_us);
		begin_some(q, stop);
		under_way = q->ops->turn(q->device);
		pause_us = next_pause(q, under_way, pause_us);
	}
	return NULL;
}

/* ---- others ---- */

int device_queue_start(struct device_queue *q, const struct device_queue_ops *ops,
		       struct device *d, uint64_t wait_ms)
{
	int rc;

	*q = (struct device_queue){ .ops = ops, .device = d, .wait_ms = wait_ms };
	STAILQ_INIT(&q->come);
	STAILQ_INIT(&q->waiting);
	pthread_mutex_init(&q->lock, NULL);
	thread_cond_init(&q->woken);
	rc = thread_start(&q->thread, run, q);
	if (rc) {
		pthread_cond_destroy(&q->woken);
		pthread_mutex_destroy(&q->lock);
	}
	return rc;
}

void device_queue_stop(struct device_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_signal(&q->woken);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	assert(STAILQ_EMPTY(&q->come) && STAILQ_EMPTY(&q->waiting));
	pthread_cond_destroy(&q->woken);
	pthread_mutex_destroy(&q->lock);
}

void device_queue_submit(struct device_queue *q, struct device_io *io)
{
	uint64_t wait_ms = io->wait_ms ? io->wait_ms : q->wait_ms;

	if (!u64_add(monotonic_ms(), wait_ms, &io->port.until_ms))
		io->port.until_ms = UINT64_MAX;
	pthread_mutex_lock(&q->lock);
	STAILQ_INSERT_TAIL(&q->come, io, port.next);
	pthread_cond_signal(&q->woken);
	pthread_mutex_unlock(&q->lock);
}

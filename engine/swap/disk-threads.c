/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/swap/disk-queue.h"

#include <errno.h>
#include <pthread.h>

/* The disk for machines that forbid io_uring, as many containers do: threads that block. */

enum { THREADS = 4 }; /* by default */

struct disk {
	pthread_t threads[DISK_THREADS];
	unsigned nthreads;
	/* ends requests canceled before they began: all other threads may be stuck */
	pthread_t ender;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t queued, canceled;
	struct disk_queue queue;
	bool has_ender;
	bool stop;
};

static struct disk_io *wait_for_one(struct disk *d)
{
	struct disk_io *io;

	pthread_mutex_lock(&d->lock);
	while (TAILQ_EMPTY(&d->queue) && !d->stop)
		pthread_cond_wait(&d->queued, &d->lock);
	io = disk_queue_take(&d->queue);
	pthread_mutex_unlock(&d->lock);
	return io;
}

static ssize_t work(struct disk_io *io)
{
	if (io->canceled) {
		errno = ECANCELED;
		return -1;
	}
	switch (io->what) {
	case DISK_READ:
		return pread(io->fd, io->memory, io->size, (off_t)io->offset);
	case DISK_WRITE:
		return pwrite(io->fd, io->memory, io->size, (off_t)io->offset);
	default:
		return fdatasync(io->fd);
	}
}

static void end_io(struct disk *d, struct disk_io *io, int result)
{
	pthread_mutex_lock(&d->lock);
	io->at = DISK_ENDED;
	pthread_mutex_unlock(&d->lock);
	io->done(io, result);
}

static void *run(void *arg)
{
	struct disk *d = arg;
	struct disk_io *io;

	while ((io = wait_for_one(d))) {
		ssize_t n = work(io);

		end_io(d, io, n < 0 ? -errno : (int)n);
	}
	return NULL;
}

/* Under the lock. */
static struct disk_io *take_canceled(struct disk *d)
{
	struct disk_io *io;

	TAILQ_FOREACH (io, &d->queue, next)
		if (io->canceled) {
			TAILQ_REMOVE(&d->queue, io, next);
			break;
		}
	return io;
}

static struct disk_io *wait_for_canceled(struct disk *d)
{
	struct disk_io *io;

	pthread_mutex_lock(&d->lock);
	while (!(io = take_canceled(d)) && !d->stop)
		pthread_cond_wait(&d->canceled, &d->lock);
	pthread_mutex_unlock(&d->lock);
	return io;
}

static void *end_canceled(void *arg)
{
	struct disk *d = arg;
	struct disk_io *io;

	while ((io = wait_for_canceled(d)))
		end_io(d, io, -ECANCELED);
	return NULL;
}

static void threads_close(struct disk *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_broadcast(&d->queued);
	pthread_cond_broadcast(&d->canceled);
	pthread_mutex_unlock(&d->lock);
	for (unsigned i = 0; i < d->nthreads; i++)
		pthread_join(d->threads[i], NULL);
	if (d->has_ender)
		pthread_join(d->ender, NULL);
	assert(TAILQ_EMPTY(&d->queue));
	pthread_cond_destroy(&d->canceled);
	pthread_cond_destroy(&d->queued);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static unsigned count_threads(const struct disk_setup *setup)
{
	unsigned n = setup && setup->threads ? setup->threads : THREADS;

	if (setup && setup->depth && setup->depth < n)
		n = setup->depth;
	return n < DISK_THREADS ? n : DISK_THREADS;
}

static int threads_open(struct disk **out, struct disk_setup *setup)
{
	struct disk *d = calloc(1, sizeof(*d));
	unsigned n = count_threads(setup);
	int rc = 0;

	if (!d)
		return -ENOMEM;
	TAILQ_INIT(&d->queue);
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->queued, NULL);
	pthread_cond_init(&d->canceled, NULL);
	while (d->nthreads < n && !rc) {
		rc = thread_start(&d->threads[d->nthreads], run, d);
		d->nthreads += !rc;
	}
	if (!d->nthreads) {
		threads_close(d);
		return rc;
	}
	if (setup)
		setup->registered = false;
	*out = d;
	return 0;
}

static void threads_submit(struct disk *d, struct disk_io *io)
{
	pthread_mutex_lock(&d->lock);
	disk_queue_add(&d->queue, io);
	pthread_cond_signal(io->canceled && d->has_ender ? &d->canceled : &d->queued);
	pthread_mutex_unlock(&d->lock);
}

/* Under the lock.  Where no thread can be started, a worker ends canceled requests as it comes
 * to them.
 */
static void need_ender(struct disk *d)
{
	if (!d->has_ender)
		d->has_ender = !thread_start(&d->ender, end_canceled, d);
}

static void threads_cancel(struct disk *d, struct disk_io *io)
{
	pthread_mutex_lock(&d->lock);
	if (io->at == DISK_NOWHERE || io->at == DISK_QUEUED) {
		io->canceled = true;
		need_ender(d);
		pthread_cond_signal(&d->canceled);
	}
	pthread_mutex_unlock(&d->lock);
}

const struct disk_ops disk_threads = {
	.name = "threads",
	.open = threads_open,
	.close = threads_close,
	.submit = threads_submit,
	.cancel = threads_cancel,
};

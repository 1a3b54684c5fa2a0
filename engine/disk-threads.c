/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/disk.h"
#include "engine/thread.h"

#include <errno.h>
#include <pthread.h>

/* Where io_uring is forbidden, as it is in many containers. */

enum { THREADS = 4 }; /* as long as nobody says how many */

struct disk {
	pthread_t threads[DISK_THREADS];
	unsigned nthreads;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t queued;
	struct disk_io *first, *last;
	bool stop;
};

static struct disk_io *wait_for_one(struct disk *d)
{
	struct disk_io *io;

	pthread_mutex_lock(&d->lock);
	while (!d->first && !d->stop)
		pthread_cond_wait(&d->queued, &d->lock);
	io = d->first;
	if (io)
		d->first = io->next;
	pthread_mutex_unlock(&d->lock);
	return io;
}

static ssize_t work(struct disk_io *io)
{
	switch (io->what) {
	case DISK_READ:
		return pread(io->fd, io->memory, io->size, (off_t)io->offset);
	case DISK_WRITE:
		return pwrite(io->fd, io->memory, io->size, (off_t)io->offset);
	default:
		return fdatasync(io->fd);
	}
}

static void *run(void *arg)
{
	struct disk *d = arg;
	struct disk_io *io;

	while ((io = wait_for_one(d))) {
		ssize_t n = work(io);

		io->done(io, n < 0 ? -errno : (int)n);
	}
	return NULL;
}

static void threads_close(struct disk *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_cond_broadcast(&d->queued);
	pthread_mutex_unlock(&d->lock);
	for (unsigned i = 0; i < d->nthreads; i++)
		pthread_join(d->threads[i], NULL);
	assert(!d->first);
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
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->queued, NULL);
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
	io->next = NULL;
	pthread_mutex_lock(&d->lock);
	if (d->first)
		d->last->next = io;
	else
		d->first = io;
	d->last = io;
	pthread_cond_signal(&d->queued);
	pthread_mutex_unlock(&d->lock);
}

const struct disk_ops disk_threads = {
	.name = "threads",
	.open = threads_open,
	.close = threads_close,
	.submit = threads_submit,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/disk.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

/* Where io_uring is forbidden, as it is in many containers. */

enum { THREADS = 4 };

struct disk {
	pthread_t threads[THREADS];
	unsigned nthreads;
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t queued;
	struct disk_read *first, *last;
	bool stop;
};

static struct disk_read *wait_for_one(struct disk *d)
{
	struct disk_read *read;

	pthread_mutex_lock(&d->lock);
	while (!d->first && !d->stop)
		pthread_cond_wait(&d->queued, &d->lock);
	read = d->first;
	if (read)
		d->first = read->next;
	pthread_mutex_unlock(&d->lock);
	return read;
}

static void *run(void *arg)
{
	struct disk *d = arg;
	struct disk_read *read;

	while ((read = wait_for_one(d))) {
		ssize_t n = pread(read->fd, read->to, read->size, (off_t)read->offset);

		read->done(read, n < 0 ? -errno : (int)n);
	}
	return NULL;
}

static void pread_close(struct disk *d)
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

static int pread_open(struct disk **out)
{
	struct disk *d = calloc(1, sizeof(*d));
	sigset_t every, before;
	int rc = 0;

	if (!d)
		return -ENOMEM;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->queued, NULL);
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	while (d->nthreads < THREADS && !rc) {
		rc = pthread_create(&d->threads[d->nthreads], NULL, run, d);
		d->nthreads += !rc;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!d->nthreads) {
		pread_close(d);
		return -rc;
	}
	*out = d;
	return 0;
}

static void pread_submit(struct disk *d, struct disk_read *read)
{
	read->next = NULL;
	pthread_mutex_lock(&d->lock);
	if (d->first)
		d->last->next = read;
	else
		d->first = read;
	d->last = read;
	pthread_cond_signal(&d->queued);
	pthread_mutex_unlock(&d->lock);
}

const struct disk_ops disk_pread = {
	.name = "pread",
	.open = pread_open,
	.close = pread_close,
	.submit = pread_submit,
};

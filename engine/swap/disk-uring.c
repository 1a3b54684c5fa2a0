/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fork.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/swap/disk-queue.h"

#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>

/* One thread owns the ring: the kernel cancels the requests of a thread that ends, and threads
 * of FUSE come and go.  Others queue requests, and wake the owner by an eventfd that the ring
 * reads.
 */

enum { ENTRIES = 2 * DISK_DEPTH };

struct disk {
	struct io_uring ring;
	pthread_t thread;
	int wake_fd;
	uint64_t woken;           /* the ring reads wake_fd into it */
	struct disk_setup *setup; /* while it opens */
	unsigned inflight, depth;
	bool registered;
	bool listening;       /* a read of wake_fd is under way */
	pthread_mutex_t lock; /* of all below */
	pthread_cond_t started;
	struct disk_queue queue;
	LIST_HEAD(, disk_io) canceled; /* queued or under way; the ring was not asked yet */
	bool stop;
	bool ready;
	int status; /* of the ring, once ready */
};

static void wake(struct disk *d)
{
	uint64_t one = 1;

	if (write(d->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_error("eventfd: %s", strerror(errno));
}

/* ---- the thread ---- */

/* The data of entries that belong to no request. */
static char marks[2];
#define LISTENING ((void *)&marks[0])
#define CANCELING ((void *)&marks[1])

/* Newer kernels do the work of completions only when we ask, on our thread. */
static int make_ring(struct io_uring *ring)
{
	static const unsigned flags[] = { IORING_SETUP_SINGLE_ISSUER |
						  IORING_SETUP_DEFER_TASKRUN,
					  IORING_SETUP_COOP_TASKRUN, 0 };
	int rc = -EINVAL;

	for (size_t i = 0; i < ARRAY_SIZE(flags) && rc == -EINVAL; i++)
		rc = io_uring_queue_init(ENTRIES, ring, flags[i]);
	if (rc)
		return rc;
	/* a forked child keeps neither the ring nor the buffers that are registered with it */
	fork_close(ring->ring_fd);
	io_uring_ring_dontfork(ring);
	return 0;
}

/* In the thread that owns the ring. */
static void register_slabs(struct disk *d)
{
	int rc = io_uring_register_buffers(&d->ring, d->setup->slabs, d->setup->n);

	d->registered = d->setup->registered = !rc;
	if (rc)
		log_info("buffers are not registered with io_uring: %s", strerror(-rc));
}

static struct disk_io *take_queued(struct disk *d)
{
	struct disk_io *io;

	pthread_mutex_lock(&d->lock);
	io = disk_queue_take(&d->queue);
	pthread_mutex_unlock(&d->lock);
	return io;
}

static void listen_to_others(struct disk *d)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);

	io_uring_prep_read(sqe, d->wake_fd, &d->woken, sizeof(d->woken), 0);
	io_uring_sqe_set_data(sqe, LISTENING);
	d->listening = true;
}

static void prepare_slab(struct io_uring_sqe *sqe, struct disk_io *io)
{
	if (io->what == DISK_WRITE)
		io_uring_prep_write_fixed(sqe, io->fd, io->memory, io->size, io->offset,
					  io->slab);
	else
		io_uring_prep_read_fixed(sqe, io->fd, io->memory, io->size, io->offset,
					 io->slab);
}

static void prepare(struct disk *d, struct io_uring_sqe *sqe, struct disk_io *io)
{
	if (io->what == DISK_SYNC)
		io_uring_prep_fsync(sqe, io->fd, IORING_FSYNC_DATASYNC);
	else if (d->registered && io->slab != DISK_NO_SLAB)
		prepare_slab(sqe, io);
	else if (io->what == DISK_WRITE)
		io_uring_prep_write(sqe, io->fd, io->memory, io->size, io->offset);
	else
		io_uring_prep_read(sqe, io->fd, io->memory, io->size, io->offset);
}

/* DISK_DEPTH and the read of wake_fd are fewer than the ring has entries. */
static void start_queued(struct disk *d)
{
	struct disk_io *io;

	while (d->inflight < d->depth && (io = take_queued(d))) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);

		prepare(d, sqe, io);
		io_uring_sqe_set_data(sqe, io);
		d->inflight++;
	}
}

/* Under the lock: from now on uring_cancel does nothing to the request. */
static void leave(struct disk *d, struct disk_io *io)
{
	struct disk_io *canceled;

	io->at = DISK_ENDED;
	LIST_FOREACH (canceled, &d->canceled, next_canceled)
		if (canceled == io) {
			LIST_REMOVE(io, next_canceled);
			break;
		}
}

static void end_io(struct disk *d, struct disk_io *io, int result)
{
	pthread_mutex_lock(&d->lock);
	leave(d, io);
	pthread_mutex_unlock(&d->lock);
	io->done(io, io->canceled && result == -EINTR ? -ECANCELED : result);
}

/* ---- canceling ---- */

/* Under the lock.  Returns the next request that was canceled before it began, and asks the
 * ring to cancel those that had begun.
 */
static struct disk_io *take_canceled(struct disk *d)
{
	struct disk_io *io;

	while ((io = LIST_FIRST(&d->canceled))) {
		if (io->at == DISK_UNDERWAY &&
		    io_uring_sq_space_left(&d->ring) <= DISK_DEPTH + 1)
			return NULL; /* later: what is in the ring is submitted first */
		LIST_REMOVE(io, next_canceled);
		if (io->at == DISK_QUEUED) {
			TAILQ_REMOVE(&d->queue, io, next);
			return io;
		}
		struct io_uring_sqe *sqe = io_uring_get_sqe(&d->ring);

		io_uring_prep_cancel(sqe, io, 0);
		io_uring_sqe_set_data(sqe, CANCELING);
	}
	return NULL;
}

static void end_canceled(struct disk *d)
{
	struct disk_io *io;

	do {
		pthread_mutex_lock(&d->lock);
		io = take_canceled(d);
		pthread_mutex_unlock(&d->lock);
		if (io)
			end_io(d, io, -ECANCELED);
	} while (io);
}

static void reap(struct disk *d)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&d->ring, &cqe)) {
		void *data = io_uring_cqe_get_data(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&d->ring, cqe);
		if (data == LISTENING)
			d->listening = false;
		if (data == LISTENING || data == CANCELING)
			continue;
		d->inflight--;
		end_io(d, data, result);
	}
}

static bool stopped(struct disk *d)
{
	bool stop;

	pthread_mutex_lock(&d->lock);
	stop = d->stop;
	pthread_mutex_unlock(&d->lock);
	return stop;
}

static void tell_ready(struct disk *d, int status)
{
	pthread_mutex_lock(&d->lock);
	d->status = status;
	d->ready = true;
	pthread_cond_signal(&d->started);
	pthread_mutex_unlock(&d->lock);
}

static void *run(void *arg)
{
	struct disk *d = arg;
	int rc = make_ring(&d->ring);

	if (!rc && d->setup)
		register_slabs(d);
	tell_ready(d, rc);
	if (rc)
		return NULL;
	while (!stopped(d)) {
		if (!d->listening)
			listen_to_others(d);
		end_canceled(d);
		start_queued(d);
		/* -EAGAIN, -EINTR: what was not submitted stays in the ring. */
		io_uring_submit_and_wait(&d->ring, 1);
		reap(d);
	}
	fork_forget(d->ring.ring_fd);
	io_uring_queue_exit(&d->ring);
	return NULL;
}

/* ---- others ---- */

static int start_thread(struct disk *d)
{
	int rc = thread_start(&d->thread, run, d);

	if (rc)
		return rc;
	pthread_mutex_lock(&d->lock);
	while (!d->ready)
		pthread_cond_wait(&d->started, &d->lock);
	pthread_mutex_unlock(&d->lock);
	if (d->status)
		pthread_join(d->thread, NULL);
	return d->status;
}

static void disk_free(struct disk *d)
{
	close(d->wake_fd);
	pthread_cond_destroy(&d->started);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int uring_open(struct disk **out, struct disk_setup *setup)
{
	struct disk *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (d->wake_fd < 0) {
		rc = -errno;
		free(d);
		return rc;
	}
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->started, NULL);
	TAILQ_INIT(&d->queue);
	d->setup = setup;
	d->depth = setup && setup->depth ? setup->depth : DISK_DEPTH;
	d->depth = d->depth < DISK_DEPTH ? d->depth : DISK_DEPTH;
	rc = start_thread(d);
	if (rc) {
		disk_free(d);
		return rc;
	}
	*out = d;
	return 0;
}

static void uring_close(struct disk *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	pthread_mutex_unlock(&d->lock);
	wake(d);
	pthread_join(d->thread, NULL);
	assert(TAILQ_EMPTY(&d->queue) && !d->inflight);
	disk_free(d);
}

static void uring_submit(struct disk *d, struct disk_io *io)
{
	bool first;

	pthread_mutex_lock(&d->lock);
	first = TAILQ_EMPTY(&d->queue);
	disk_queue_add(&d->queue, io);
	if (io->canceled)
		LIST_INSERT_HEAD(&d->canceled, io, next_canceled);
	pthread_mutex_unlock(&d->lock);
	/* a queue that is not empty has woken the thread; the thread itself looks there next */
	if (first && !pthread_equal(pthread_self(), d->thread))
		wake(d);
}

static void uring_cancel(struct disk *d, struct disk_io *io)
{
	pthread_mutex_lock(&d->lock);
	if (!io->canceled && io->at != DISK_ENDED) {
		io->canceled = true;
		if (io->at != DISK_NOWHERE)
			LIST_INSERT_HEAD(&d->canceled, io, next_canceled);
	}
	pthread_mutex_unlock(&d->lock);
	wake(d);
}

const struct disk_ops disk_uring = {
	.name = "uring",
	.open = uring_open,
	.close = uring_close,
	.submit = uring_submit,
	.cancel = uring_cancel,
};

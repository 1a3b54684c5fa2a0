/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective/collective-nccl.h"

#include <errno.h>
#include <signal.h>

/* NCCL enqueues from a thread of its own, since a communicator that does not block is asked
 * for.  The trainer's thread waits for that, not for long: so its own operations come after
 * ours, on each rank, as NCCL wants it.
 */
enum { ENQUEUE_MS = 100, PAUSE_NS = 20000 };

static ncclResult_t enqueued(struct collective *c)
{
	uint64_t end = monotonic_ms() + ENQUEUE_MS;
	ncclResult_t r;

	while ((r = collective_nccl_poll(c)) == ncclInProgress && monotonic_ms() < end)
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	return r;
}

static void mark_if_enqueued(struct collective *c)
{
	ncclResult_t r = enqueued(c);

	if (r == ncclSuccess)
		collective_nccl_mark(c);
	else if (r != ncclInProgress)
		collective_nccl_refuse(c, "ncclCommGetAsyncError", r);
}

static ncclResult_t move(struct collective *c, const struct collective_move *m)
{
	if (m->to_peer)
		return c->nccl.Send(m->memory, m->size, ncclUint8, (int)m->peer, c->comm,
				    c->stream);
	return c->nccl.Recv(m->memory, m->size, ncclUint8, (int)m->peer, c->comm, c->stream);
}

static ncclResult_t move_all(struct collective *c, const struct collective_io *io)
{
	ncclResult_t r = c->nccl.GroupStart(), ended;

	if (r != ncclSuccess)
		return r;
	for (unsigned i = 0; i < io->nmoves && r == ncclSuccess; i++)
		if (io->moves[i].size)
			r = move(c, &io->moves[i]);
	ended = c->nccl.GroupEnd();
	return r == ncclSuccess ? ended : r;
}

static ncclResult_t gather_all(struct collective *c, const struct collective_io *io)
{
	return c->nccl.AllGather(io->from, io->to, io->size, ncclUint8, c->comm, c->stream);
}

/* Threads that NCCL starts take no signals of the trainer's. */
static ncclResult_t operate(struct collective *c, const struct collective_io *io)
{
	sigset_t every, before;
	ncclResult_t r;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	r = io->what == COLLECTIVE_MOVES ? move_all(c, io) : gather_all(c, io);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r == ncclInProgress ? ncclSuccess : r;
}

static int wait_for_event(struct collective *c, const struct collective_io *io)
{
	struct cuda *cuda = &c->options.device->cuda;
	int rc = io->after ? CUDA_CALL(cuda, StreamWaitEvent, c->stream, io->after->event, 0)
			   : 0;

	if (rc)
		collective_nccl_fail(c, rc, "the stream cannot wait for an event");
	return rc;
}

/* Under calls; the device is the current one. */
static int enqueue(struct collective *c, struct collective_io *io)
{
	ncclResult_t r;
	int rc = wait_for_event(c, io);

	if (rc)
		return rc;
	r = operate(c, io);
	if (r != ncclSuccess) {
		collective_nccl_refuse(c,
				       io->what == COLLECTIVE_MOVES ? "ncclSend, ncclRecv"
								    : "ncclAllGather",
				       r);
		return -EIO;
	}
	rc = collective_nccl_append(c, io);
	if (rc)
		return rc;
	c->unmarked = io;
	mark_if_enqueued(c);
	return 0;
}

/* NCCL takes nothing while it has not enqueued the last.  Under calls. */
static int be_ready(struct collective *c)
{
	if (!collective_nccl_state(c) && c->unmarked)
		mark_if_enqueued(c);
	if (!collective_nccl_state(c) && c->unmarked)
		collective_nccl_fail(c, -ETIMEDOUT,
				     "NCCL has not enqueued the last operation within %u ms",
				     ENQUEUE_MS);
	return collective_nccl_state(c);
}

static int launch_locked(struct collective *c, struct collective_io *io)
{
	struct device *d = c->options.device;
	int before, rc = be_ready(c);

	if (rc)
		return rc;
	rc = device_cuda_enter(d, c->options.number, &before);
	if (rc)
		return rc;
	rc = enqueue(c, io);
	device_cuda_leave(d, c->options.number, before);
	return rc;
}

int collective_nccl_launch(struct collective *c, struct collective_io *io)
{
	int rc = collective_io_check(&device_cuda, &c->options, c->about.nranks, io);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->calls);
	rc = launch_locked(c, io);
	pthread_mutex_unlock(&c->calls);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/collective/collective-nccl.h"

#include <errno.h>
#include <inttypes.h>

enum { PAGE = 4096, PAUSE_US = 50 }; /* between queries of an event */

void collective_nccl_refuse(struct collective *c, const char *call, ncclResult_t result)
{
	const char *more = c->nccl.GetLastError(c->comm);

	collective_nccl_fail(c, -EIO, "%s: %s%s%s", call, c->nccl.GetErrorString(result),
			     more && *more ? ": " : "", more ? more : "");
}

ncclResult_t collective_nccl_poll(struct collective *c)
{
	ncclResult_t state, r = c->nccl.CommGetAsyncError(c->comm, &state);

	return r == ncclSuccess ? state : r;
}

void collective_nccl_mark(struct collective *c)
{
	struct collective_io *io = c->unmarked;
	struct device_event *event;
	int rc = device_cuda_mark(c->options.device, c->options.number, c->stream, &event);

	c->unmarked = NULL;
	if (rc) {
		collective_nccl_fail(c, rc, "no event for the end of an operation");
		return;
	}
	pthread_mutex_lock(&c->lock);
	io->port.ended = event;
	pthread_mutex_unlock(&c->lock);
}

/* ---- the port's thread ---- */

/* While the trainer's thread is in a call this is left to the next turn. */
static void look_for_errors(struct collective *c)
{
	ncclResult_t r;

	if (pthread_mutex_trylock(&c->calls))
		return;
	r = collective_nccl_poll(c);
	if (r == ncclSuccess && c->unmarked)
		collective_nccl_mark(c);
	else if (r != ncclSuccess && r != ncclInProgress)
		collective_nccl_refuse(c, "ncclCommGetAsyncError", r);
	pthread_mutex_unlock(&c->calls);
}

static int has_passed(struct collective *c, struct device_event *event)
{
	return device_cuda_passed(c->options.device, event);
}

/* 0: the event `after` has passed. */
static int look_at_event(struct collective *c, struct collective_io *io)
{
	int rc = io->port.passed || !io->after ? 0 : has_passed(c, io->after);

	if (rc == -EAGAIN && monotonic_ms() >= io->port.until_ms)
		collective_nccl_fail(c, -ETIMEDOUT,
				     "the stream has not come there within %" PRIu64 " ms",
				     c->options.wait_ms);
	else if (rc && rc != -EAGAIN)
		collective_nccl_fail(c, rc, "device %d failed", c->options.number);
	if (!rc && !io->port.passed) {
		io->port.passed = true;
		io->port.until_ms = monotonic_ms() + collective_limit_ms(&c->options, io);
	}
	return rc;
}

/* 0: the operation has ended. */
static int look_at_end(struct collective *c, struct collective_io *io)
{
	struct device_event *ended;
	int rc;

	pthread_mutex_lock(&c->lock);
	ended = io->port.ended;
	pthread_mutex_unlock(&c->lock);
	rc = ended ? has_passed(c, ended) : -EAGAIN;
	if (rc == -EAGAIN && monotonic_ms() >= io->port.until_ms)
		collective_nccl_fail(c, -ETIMEDOUT,
				     "a peer has not done its part within %" PRIu64 " ms",
				     collective_limit_ms(&c->options, io));
	else if (rc && rc != -EAGAIN)
		collective_nccl_fail(c, rc, "device %d failed", c->options.number);
	return rc;
}

static void end(struct collective *c, struct collective_io *io)
{
	if (io->port.ended)
		device_cuda_unmark(c->options.device, io->port.ended);
	io->done(io, io->port.result);
}

static void look_at_launched(struct collective *c)
{
	struct collective_io *io;

	while ((io = collective_nccl_first(c)) && !look_at_event(c, io) && !look_at_end(c, io))
		end(c, collective_nccl_take(c, 0));
}

/* Returns whether it goes on. */
static bool wait_for_more(struct collective *c)
{
	struct timespec until = thread_in_us(PAUSE_US);
	bool on;

	pthread_mutex_lock(&c->lock);
	if (!STAILQ_EMPTY(&c->launched) && !c->about.state)
		pthread_cond_timedwait(&c->changed, &c->lock, &until);
	while (STAILQ_EMPTY(&c->launched) && !c->about.state && !c->stop)
		pthread_cond_wait(&c->changed, &c->lock);
	on = !c->about.state && !c->stop;
	pthread_mutex_unlock(&c->lock);
	return on;
}

static void operate(struct collective *c)
{
	while (wait_for_more(c)) {
		look_for_errors(c);
		look_at_launched(c);
	}
}

static void prepare_thread(struct collective *c)
{
	struct cuda *cuda = &c->cuda;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	int rc = CUDA_CALL(cuda, SetDevice, c->options.number);

	/* Else our queries of events would spoil a graph that the trainer captures. */
	if (!rc)
		rc = CUDA_CALL(cuda, ThreadExchangeStreamCaptureMode, &mode);
	if (rc)
		collective_nccl_fail(c, rc, "device %d cannot be chosen", c->options.number);
}

static void *run(void *arg)
{
	struct collective *c = arg;
	struct collective_io *io;

	prepare_thread(c);
	collective_nccl_run_errand(c, collective_nccl_open,
				   c->open_until_ms + c->options.end_ms);
	if (c->left)
		collective_nccl_fail(c, -ETIMEDOUT, "NCCL does not return from opening");
	operate(c);
	collective_nccl_let_go_in_time(c);
	while ((io = collective_nccl_take_rest(c)))
		end(c, io);
	return NULL;
}

/* ---- the port ---- */

static void free_collective(struct collective *c)
{
	free(c->warm);
	free(c);
}

/* Loads the device's runtime once more, for a table of our own. */
static int load_and_start(struct collective *c, unsigned rank, unsigned nranks)
{
	int rc = device_cuda_load(&c->cuda, c->options.device->options.library);

	if (rc)
		return rc;
	pthread_mutex_init(&c->calls, NULL);
	rc = collective_nccl_start(c, run, rank, nranks);
	if (rc) {
		pthread_mutex_destroy(&c->calls);
		device_cuda_unload(&c->cuda);
	}
	return rc;
}

static struct collective *new_collective(const struct collective_options *options,
					 unsigned nranks, const struct collective_id *id)
{
	struct collective *c = calloc(1, sizeof(*c));
	void *warm = c ? aligned_alloc(PAGE, collective_nccl_warm_size(nranks)) : NULL;

	if (!warm) {
		free(c);
		return NULL;
	}
	memset(warm, 0, collective_nccl_warm_size(nranks));
	c->warm = warm;
	c->options = *options;
	c->has_id = id;
	if (id)
		c->id = *id;
	return c;
}

static int nccl_port_open(struct collective **out, const struct collective_options *options,
			  unsigned rank, unsigned nranks, const struct collective_id *id)
{
	struct collective_options checked = *options;
	struct collective *c;
	int rc = collective_check(&checked, rank, nranks);

	if (rc || !checked.device || !device_cuda_of(checked.device, checked.number))
		return -EINVAL;
	c = new_collective(&checked, nranks, id);
	if (!c)
		return -ENOMEM;
	rc = load_and_start(c, rank, nranks);
	if (rc)
		free_collective(c);
	else
		*out = c;
	return rc;
}

static void nccl_close(struct collective *c)
{
	if (!collective_nccl_stop(c))
		return;
	device_cuda_unload(&c->cuda);
	pthread_mutex_destroy(&c->calls);
	free_collective(c);
}

const struct collective_ops collective_nccl = {
	.name = "nccl",
	.open = nccl_port_open,
	.close = nccl_close,
	.id = collective_nccl_id,
	.state = collective_nccl_state,
	.launch = collective_nccl_launch,
	.abort = collective_nccl_abort,
	.is_over = collective_nccl_is_over,
	.about = collective_nccl_about,
};

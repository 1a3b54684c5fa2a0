/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-nccl.h"
#include "engine/log.h"
#include "engine/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

enum { PAGE = 4096, PAUSE_US = 50 }; /* a device tells nobody: it is asked */

/* ---- failing ---- */

int nccl_state(struct collective *c)
{
	int state;

	pthread_mutex_lock(&c->lock);
	state = c->about.state;
	pthread_mutex_unlock(&c->lock);
	return state;
}

bool nccl_has_failed(struct collective *c)
{
	bool failed;

	pthread_mutex_lock(&c->lock);
	failed = collective_has_failed(&c->about);
	pthread_mutex_unlock(&c->lock);
	return failed;
}

static void say(const struct collective *c)
{
	bool asked_for = c->about.state == -ENODEV || c->about.state == -ECANCELED;

	log_line(asked_for ? LOG_INFO : LOG_WARN, "nccl: rank %u of %u: %s", c->about.rank,
		 c->about.nranks, c->about.error);
}

void nccl_fail(struct collective *c, int rc, const char *fmt, ...)
{
	va_list args;

	pthread_mutex_lock(&c->lock);
	if (!collective_has_failed(&c->about)) {
		va_start(args, fmt);
		vsnprintf(c->about.error, sizeof(c->about.error), fmt, args);
		va_end(args);
		c->about.state = rc;
		c->failed_ms = monotonic_ms();
		say(c);
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
}

void nccl_refuse(struct collective *c, const char *call, ncclResult_t result)
{
	const char *more = c->nccl.GetLastError(c->comm);

	nccl_fail(c, -EIO, "%s: %s%s%s", call, c->nccl.GetErrorString(result),
		  more && *more ? ": " : "", more ? more : "");
}

ncclResult_t nccl_poll(struct collective *c)
{
	ncclResult_t state, r = c->nccl.CommGetAsyncError(c->comm, &state);

	return r == ncclSuccess ? state : r;
}

void nccl_mark(struct collective *c)
{
	struct collective_io *io = c->unmarked;
	struct device_event *event;
	int rc = cuda_mark(c->options.device, c->options.number, c->stream, &event);

	c->unmarked = NULL;
	if (rc) {
		nccl_fail(c, rc, "no event for the end of an operation");
		return;
	}
	pthread_mutex_lock(&c->lock);
	io->port.ended = event;
	pthread_mutex_unlock(&c->lock);
}

/* ---- errands ---- */

static void *run_errand(void *arg)
{
	struct collective *c = arg;

	bool left;

	c->errand(c);
	pthread_mutex_lock(&c->lock);
	c->errand_over = true;
	left = c->left;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (left && c->errand == nccl_open)
		nccl_let_go(c);
	return NULL;
}

/* Opening ends soon after a failure. */
static uint64_t errand_until(const struct collective *c, uint64_t until_ms)
{
	if (c->errand == nccl_open && collective_has_failed(&c->about))
		return u64_min(c->failed_ms + c->options.end_ms, until_ms);
	return until_ms;
}

static void await_errand(struct collective *c, uint64_t until_ms)
{
	pthread_mutex_lock(&c->lock);
	for (uint64_t now = monotonic_ms(); !c->errand_over && now < errand_until(c, until_ms);
	     now = monotonic_ms()) {
		struct timespec until = thread_in_ms(errand_until(c, until_ms) - now);

		pthread_cond_timedwait(&c->changed, &c->lock, &until);
	}
	c->left = !c->errand_over;
	pthread_mutex_unlock(&c->lock);
}

static void do_errand(struct collective *c, void (*errand)(struct collective *c),
		      uint64_t until_ms)
{
	pthread_t thread;
	int rc;

	c->errand = errand;
	c->errand_over = false;
	rc = thread_start(&thread, run_errand, c);
	if (rc) {
		nccl_fail(c, rc, "no thread");
		c->left = c->comm;
		return;
	}
	await_errand(c, until_ms);
	if (c->left)
		pthread_detach(thread);
	else
		pthread_join(thread, NULL);
}

/* ---- the port's thread ---- */

static struct collective_io *first(struct collective *c)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = c->launched.first;
	pthread_mutex_unlock(&c->lock);
	return io;
}

/* The trainer's thread may be in a call: another time. */
static void look_for_errors(struct collective *c)
{
	ncclResult_t r;

	if (pthread_mutex_trylock(&c->calls))
		return;
	r = nccl_poll(c);
	if (r == ncclSuccess && c->unmarked)
		nccl_mark(c);
	else if (r != ncclSuccess && r != ncclInProgress)
		nccl_refuse(c, "ncclCommGetAsyncError", r);
	pthread_mutex_unlock(&c->calls);
}

static int has_passed(struct collective *c, struct device_event *event)
{
	return cuda_passed(c->options.device, event);
}

/* 0: its event has passed. */
static int look_at_event(struct collective *c, struct collective_io *io)
{
	int rc = io->port.passed || !io->after ? 0 : has_passed(c, io->after);

	if (rc == -EAGAIN && monotonic_ms() >= io->port.until_ms)
		nccl_fail(c, -ETIMEDOUT, "the stream has not come there within %" PRIu64 " ms",
			  c->options.wait_ms);
	else if (rc && rc != -EAGAIN)
		nccl_fail(c, rc, "device %d failed", c->options.number);
	if (!rc && !io->port.passed) {
		io->port.passed = true;
		io->port.until_ms = monotonic_ms() + collective_limit_ms(&c->options, io);
	}
	return rc;
}

/* 0: it has ended. */
static int look_at_end(struct collective *c, struct collective_io *io)
{
	struct device_event *ended;
	int rc;

	pthread_mutex_lock(&c->lock);
	ended = io->port.ended;
	pthread_mutex_unlock(&c->lock);
	rc = ended ? has_passed(c, ended) : -EAGAIN;
	if (rc == -EAGAIN && monotonic_ms() >= io->port.until_ms)
		nccl_fail(c, -ETIMEDOUT, "a peer has not done its part within %" PRIu64 " ms",
			  collective_limit_ms(&c->options, io));
	else if (rc && rc != -EAGAIN)
		nccl_fail(c, rc, "device %d failed", c->options.number);
	return rc;
}

static void end_first(struct collective *c, int result)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = collective_list_take(&c->launched);
	collective_count(&c->about, io, result);
	pthread_mutex_unlock(&c->lock);
	if (io->port.ended)
		cuda_unmark(c->options.device, io->port.ended);
	io->done(io, result);
}

static void look_at_launched(struct collective *c)
{
	struct collective_io *io;

	while ((io = first(c)) && !look_at_event(c, io) && !look_at_end(c, io))
		end_first(c, 0);
}

/* Returns whether it goes on. */
static bool wait_for_more(struct collective *c)
{
	struct timespec until = thread_in_us(PAUSE_US);
	bool on;

	pthread_mutex_lock(&c->lock);
	if (c->launched.first && !c->about.state)
		pthread_cond_timedwait(&c->changed, &c->lock, &until);
	while (!c->launched.first && !c->about.state && !c->stop)
		pthread_cond_wait(&c->changed, &c->lock);
	on = !c->about.state && !c->stop;
	pthread_mutex_unlock(&c->lock);
	return on;
}

/* What is launched from here on is refused.  Returns whether there was none. */
static bool end_rest(struct collective *c)
{
	bool none;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = c->left ? -EIO : c->about.state;
	none = !c->launched.first;
	c->told = none;
	pthread_mutex_unlock(&c->lock);
	if (!none)
		end_first(c, rc);
	return none;
}

static void operate(struct collective *c)
{
	while (wait_for_more(c)) {
		look_for_errors(c);
		look_at_launched(c);
	}
}

static void let_go(struct collective *c)
{
	do_errand(c, nccl_let_go, monotonic_ms() + c->options.end_ms);
	if (c->left)
		log_warn("nccl: rank %u of %u: it does not let go of what it was given within "
			 "%" PRIu64 " ms",
			 c->about.rank, c->about.nranks, c->options.end_ms);
}

static void prepare_thread(struct collective *c)
{
	struct cuda *cuda = &c->cuda;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	int rc = cuda_result(cuda, "cudaSetDevice", cuda->SetDevice(c->options.number));

	/* Else our looking at events would spoil what the trainer captures. */
	if (!rc)
		rc = cuda_result(cuda, "cudaThreadExchangeStreamCaptureMode",
				 cuda->ThreadExchangeStreamCaptureMode(&mode));
	if (rc)
		nccl_fail(c, rc, "device %d cannot be chosen", c->options.number);
}

static void *run(void *arg)
{
	struct collective *c = arg;

	prepare_thread(c);
	do_errand(c, nccl_open, c->open_until_ms + c->options.end_ms);
	if (c->left)
		nccl_fail(c, -ETIMEDOUT, "NCCL does not return from opening");
	operate(c);
	if (!c->left)
		let_go(c);
	while (!end_rest(c))
		;
	return NULL;
}

/* ---- the port ---- */

static int start(struct collective *c)
{
	int rc;

	pthread_mutex_init(&c->calls, NULL);
	pthread_mutex_init(&c->lock, NULL);
	thread_cond_init(&c->changed);
	c->open_until_ms = monotonic_ms() + c->options.open_ms;
	rc = thread_start(&c->thread, run, c);
	if (rc) {
		pthread_cond_destroy(&c->changed);
		pthread_mutex_destroy(&c->lock);
		pthread_mutex_destroy(&c->calls);
	}
	return rc;
}

static void free_collective(struct collective *c)
{
	free(c->warm);
	free(c);
}

/* The runtime is the device's: it is loaded. */
static int load_and_start(struct collective *c)
{
	int rc = cuda_load(&c->cuda, c->options.device->options.library);

	if (rc)
		return rc;
	rc = start(c);
	if (rc)
		cuda_unload(&c->cuda);
	return rc;
}

static struct collective *new_collective(const struct collective_options *options,
					 unsigned rank, unsigned nranks,
					 const struct collective_id *id)
{
	struct collective *c = calloc(1, sizeof(*c));
	void *warm = c ? aligned_alloc(PAGE, nccl_warm_size(nranks)) : NULL;

	if (!warm) {
		free(c);
		return NULL;
	}
	memset(warm, 0, nccl_warm_size(nranks));
	c->warm = warm;
	c->options = *options;
	c->about = (struct collective_about){
		.rank = rank, .nranks = nranks, .number = options->number, .state = -EINPROGRESS
	};
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

	if (rc || !checked.device || !cuda_device_of(checked.device, checked.number))
		return -EINVAL;
	c = new_collective(&checked, rank, nranks, id);
	if (!c)
		return -ENOMEM;
	rc = load_and_start(c);
	if (rc)
		free_collective(c);
	else
		*out = c;
	return rc;
}

/* The library may use it yet. */
static void leave_behind(struct collective *c)
{
	static struct collective *_Atomic left;

	c->next_left = atomic_exchange(&left, c);
}

static void stop(struct collective *c)
{
	bool busy;

	pthread_mutex_lock(&c->lock);
	busy = c->about.state == -EINPROGRESS || c->launched.first;
	pthread_mutex_unlock(&c->lock);
	if (busy)
		nccl_fail(c, -ECANCELED, "closed");
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
}

static void nccl_close(struct collective *c)
{
	stop(c);
	if (c->left) {
		leave_behind(c);
		return;
	}
	cuda_unload(&c->cuda);
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->calls);
	free_collective(c);
}

static int nccl_id(struct collective *c, struct collective_id *id)
{
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = c->has_id ? 0 : c->about.state;
	if (!rc)
		*id = c->id;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static void nccl_about(struct collective *c, struct collective_about *about)
{
	pthread_mutex_lock(&c->lock);
	*about = c->about;
	pthread_mutex_unlock(&c->lock);
}

static void nccl_abort(struct collective *c)
{
	nccl_fail(c, -ECANCELED, "aborted");
}

static bool nccl_is_over(struct collective *c)
{
	bool over;

	pthread_mutex_lock(&c->lock);
	over = c->told;
	pthread_mutex_unlock(&c->lock);
	return over;
}

const struct collective_ops collective_nccl = {
	.name = "nccl",
	.open = nccl_port_open,
	.close = nccl_close,
	.id = nccl_id,
	.state = nccl_state,
	.launch = nccl_launch,
	.abort = nccl_abort,
	.is_over = nccl_is_over,
	.about = nccl_about,
};

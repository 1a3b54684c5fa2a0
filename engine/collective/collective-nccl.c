/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/collective/collective-common.h"
#include "engine/collective/nccl.h"
#include "engine/device/device-cuda.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Collectives by NCCL, loaded at run time.
 *
 *   trainer's thread   launch: wait for `after`, group, event of its end  --> the port's stream
 *   the port's thread  opens (errand) ... polls: errors, events, deadlines ... lets go (errand)
 *   an errand          a thread for calls of NCCL that may never return: the port's thread
 *                      waits for it up to a deadline, and then leaves it
 */

enum {
	PAGE = 4096,
	OPEN_PAUSE_NS = 1000000, /* between polls while the communicator opens or ends */
	ENQUEUE_MS = 100,
	ENQUEUE_PAUSE_NS = 20000, /* between polls while NCCL enqueues */
	PAUSE_US = 50,            /* between queries of an event */
};

struct collective {
	struct collective_options options;
	/* Its own table: an errand that was left may return when the device's table is gone. */
	struct cuda cuda;
	struct nccl nccl;

	/* Held for NCCL's calls for comm, once that is ready, and for unmarked; before lock. */
	pthread_mutex_t calls;
	ncclComm_t comm; /* NULL: none */
	cudaStream_t stream;
	void *warm; /* memory for warming up */
	bool warm_is_pinned;
	struct collective_io *unmarked; /* launched, but not enqueued by NCCL yet; NULL: none */

	pthread_mutex_t lock; /* of all below; order: engine/node/node.h */
	pthread_cond_t changed;
	struct collective_about about;
	struct collective_id id;
	bool has_id, stop;
	bool told; /* done was called for all, and nothing can be launched any more */
	uint64_t open_until_ms, failed_ms;
	/* operations that have not ended; the first ends first */
	struct collective_ios launched;
	void (*errand)(struct collective *c);
	bool errand_over,
		left; /* left: an errand did not return in time, and may use all this */

	pthread_t thread;
	struct collective *next_left;
};

static void refuse(struct collective *c, const char *call, ncclResult_t result);
static ncclResult_t poll_nccl(struct collective *c);
static void mark(struct collective *c);
static void collective_nccl_about(struct collective *c, struct collective_about *about);
static void let_go(struct collective *c);

/* ---- failing ---- */

static int collective_nccl_state(struct collective *c)
{
	struct collective_about about;

	collective_nccl_about(c, &about);
	return about.state;
}

static bool has_failed(struct collective *c)
{
	int state = collective_nccl_state(c);

	return state && state != -EINPROGRESS;
}

/* Returns true if the newest warning of this process had that text: a communicator that is
 * opened again and again, and fails each time, is one warning.
 */
static bool is_repeated(const char *text)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char last[sizeof(((struct collective_about *)0)->error)];

	LOCKED(&lock);
	if (!strcmp(text, last))
		return true;
	snprintf(last, sizeof(last), "%s", text);
	return false;
}

static void say(const struct collective *c, int before)
{
	bool asked_for = c->about.state == -ENODEV || c->about.state == -ECANCELED;
	bool idle = !before && STAILQ_EMPTY(&c->launched);
	bool quiet = asked_for || idle || is_repeated(c->about.error);

	log_line(quiet ? LOG_INFO : LOG_WARN, "nccl: rank %u of %u: %s", c->about.rank,
		 c->about.nranks, c->about.error);
}

/* Makes the communicator fail with rc, and logs the text, unless it has failed before. */
static void fail(struct collective *c, int rc, const char *fmt, ...)
{
	va_list args;
	int before;

	pthread_mutex_lock(&c->lock);
	if (!collective_has_failed(&c->about)) {
		va_start(args, fmt);
		vsnprintf(c->about.error, sizeof(c->about.error), fmt, args);
		va_end(args);
		before = c->about.state;
		c->about.state = rc;
		c->failed_ms = monotonic_ms();
		say(c, before);
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
}

/* Makes the communicator ready at the end of opening, unless it has failed. */
static void collective_nccl_be_ready(struct collective *c)
{
	pthread_mutex_lock(&c->lock);
	if (c->about.state == -EINPROGRESS)
		c->about.state = 0;
	pthread_mutex_unlock(&c->lock);
}

/* Returns true if opening has failed or takes too long. */
static bool is_late(struct collective *c)
{
	return has_failed(c) || monotonic_ms() >= c->open_until_ms;
}

/* ---- errands ---- */

static void *errand_thread(void *arg)
{
	struct collective *c = arg;
	bool left;

	c->errand(arg);
	pthread_mutex_lock(&c->lock);
	c->errand_over = true;
	left = c->left;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	if (left && c->errand != let_go)
		let_go(arg);
	return NULL;
}

/* Opening ends soon after a failure. */
static uint64_t errand_until(const struct collective *c, uint64_t until_ms)
{
	if (c->errand != let_go && collective_has_failed(&c->about))
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

/* The port's thread: runs the errand in another thread, and waits for it until until_ms. */
static void run_errand(struct collective *c, void (*errand)(struct collective *c),
		       uint64_t until_ms)
{
	pthread_t thread;
	int rc;

	c->errand = errand;
	c->errand_over = false;
	rc = thread_start(&thread, errand_thread, c);
	if (rc) {
		fail(c, rc, "no thread");
		c->left = errand == let_go;
		return;
	}
	await_errand(c, until_ms);
	if (c->left)
		pthread_detach(thread);
	else
		pthread_join(thread, NULL);
}

/* Runs let_go as an errand of at most end_ms, unless an errand was left already.  A warning is
 * logged where this one is left.
 */
static void let_go_in_time(struct collective *c)
{
	if (c->left)
		return;
	run_errand(c, let_go, monotonic_ms() + c->options.end_ms);
	if (c->left)
		log_warn("nccl: rank %u of %u: it does not let go of what it was given within "
			 "%" PRIu64 " ms",
			 c->about.rank, c->about.nranks, c->options.end_ms);
}

/* ---- what is launched ---- */

/* Appends a launched operation.  Returns the communicator's error where the port's thread has
 * ended all operations and will end no other.
 */
static int append(struct collective *c, struct collective_io *io)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (c->told) {
		rc = c->about.state;
	} else {
		io->port.until_ms = monotonic_ms() + c->options.wait_ms;
		STAILQ_INSERT_TAIL(&c->launched, io, port.next);
		c->about.launched++;
		pthread_cond_broadcast(&c->changed);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* Returns the launched operation that ends first; NULL: none. */
static struct collective_io *first_launched(struct collective *c)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = STAILQ_FIRST(&c->launched);
	pthread_mutex_unlock(&c->lock);
	return io;
}

/* Under lock. */
static struct collective_io *take_io(struct collective *c, int result)
{
	struct collective_io *io = STAILQ_TAKE(&c->launched, port.next);

	if (io) {
		io->port.result = result;
		collective_count(&c->about, io, result);
	}
	return io;
}

/* Removes the first operation, which ended with that result; the caller calls done. */
static struct collective_io *take_launched(struct collective *c, int result)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = take_io(c, result);
	pthread_mutex_unlock(&c->lock);
	return io;
}

/* Removes the first operation, ended with the communicator's error; NULL: none, and none can be
 * appended any more.
 */
static struct collective_io *take_rest(struct collective *c)
{
	struct collective_io *io;

	pthread_mutex_lock(&c->lock);
	io = take_io(c, c->left ? -EIO : c->about.state);
	c->told = !io;
	pthread_mutex_unlock(&c->lock);
	return io;
}

/* ---- beginning and end ---- */

/* Starts the port's thread, with options that are checked.  -EAGAIN: no thread. */
static int start_thread(struct collective *c, void *(*run)(void *collective), unsigned rank,
			unsigned nranks)
{
	int rc;

	c->about.rank = rank;
	c->about.nranks = nranks;
	c->about.number = c->options.number;
	c->about.state = -EINPROGRESS;
	STAILQ_INIT(&c->launched);
	c->open_until_ms = monotonic_ms() + c->options.open_ms;
	pthread_mutex_init(&c->lock, NULL);
	thread_cond_init(&c->changed);
	rc = thread_start(&c->thread, run, c);
	if (rc) {
		pthread_cond_destroy(&c->changed);
		pthread_mutex_destroy(&c->lock);
	}
	return rc;
}

/* Keeps c for ever: an errand may still use it. */
static void leave_behind(struct collective *c)
{
	static struct collective *_Atomic left;

	c->next_left = atomic_exchange(&left, c);
}

static bool is_busy(struct collective *c)
{
	bool busy;

	pthread_mutex_lock(&c->lock);
	busy = c->about.state == -EINPROGRESS || !STAILQ_EMPTY(&c->launched);
	pthread_mutex_unlock(&c->lock);
	return busy;
}

/* Closes.  False: an errand was left, and the caller must not free c. */
static bool stop_thread(struct collective *c)
{
	if (is_busy(c))
		fail(c, -ECANCELED, "closed");
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_broadcast(&c->changed);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->thread, NULL);
	if (c->left) {
		leave_behind(c);
		return false;
	}
	pthread_cond_destroy(&c->changed);
	pthread_mutex_destroy(&c->lock);
	return true;
}

/* ---- the port ---- */

static int collective_nccl_id(struct collective *c, struct collective_id *id)
{
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = c->has_id ? 0 : c->about.state;
	if (!rc)
		*id = c->id;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static void collective_nccl_about(struct collective *c, struct collective_about *about)
{
	pthread_mutex_lock(&c->lock);
	*about = c->about;
	pthread_mutex_unlock(&c->lock);
}

static void collective_nccl_abort(struct collective *c)
{
	fail(c, -ECANCELED, "aborted");
}

static bool collective_nccl_is_over(struct collective *c)
{
	bool over;

	pthread_mutex_lock(&c->lock);
	over = c->told;
	pthread_mutex_unlock(&c->lock);
	return over;
}

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = OPEN_PAUSE_NS }, NULL);
}

/* ---- opening ---- */

static bool load(struct collective *c)
{
	char why[sizeof(c->about.error)];
	int rc = nccl_load(&c->nccl, c->options.library, why, sizeof(why));

	if (rc) {
		fail(c, rc, "%s", why);
		return false;
	}
	pthread_mutex_lock(&c->lock);
	c->about.version = c->nccl.version;
	pthread_mutex_unlock(&c->lock);
	return true;
}

static bool make_id(struct collective *c)
{
	static_assert(sizeof(ncclUniqueId) == sizeof(struct collective_id), "the same");
	ncclUniqueId id;
	ncclResult_t r;

	if (c->has_id)
		return true;
	r = c->nccl.GetUniqueId(&id);
	if (r != ncclSuccess) {
		refuse(c, "ncclGetUniqueId", r);
		return false;
	}
	pthread_mutex_lock(&c->lock);
	memcpy(&c->id, &id, sizeof(id));
	c->has_id = true;
	pthread_mutex_unlock(&c->lock);
	return true;
}

/* Bytes of memory for warming up, in whole pages: for each rank one to send, one to receive and
 * one to gather.
 */
static uint64_t warm_size(unsigned nranks)
{
	return u64_div_ceil(3 * (uint64_t)nranks, PAGE) * PAGE;
}

static int pin_warm(struct collective *c)
{
	int rc = CUDA_CALL(&c->cuda, HostRegister, c->warm, warm_size(c->about.nranks),
			   cudaHostRegisterPortable);

	c->warm_is_pinned = !rc;
	return rc;
}

static bool prepare(struct collective *c)
{
	struct cuda *cuda = &c->cuda;
	int rc = CUDA_CALL(cuda, SetDevice, c->options.number);

	if (!rc)
		rc = cuda_make_stream(&c->cuda, &c->stream);
	if (!rc)
		rc = pin_warm(c);
	if (rc)
		fail(c, rc, "device %d: no stream or no pinned memory", c->options.number);
	return !rc;
}

/* Waits until NCCL has done what `call` began, or opening is late. */
static bool settle(struct collective *c, const char *call, ncclResult_t r)
{
	while ((r == ncclSuccess || r == ncclInProgress) &&
	       (r = poll_nccl(c)) == ncclInProgress && !is_late(c))
		pause_shortly();
	if (r == ncclInProgress)
		fail(c, -ETIMEDOUT, "%s: not all ranks have come", call);
	else if (r != ncclSuccess)
		refuse(c, call, r);
	return r == ncclSuccess;
}

/* Few blocks of threads are enough: the communicator carries few bytes beside the trainer's. */
static bool connect(struct collective *c)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;
	ncclResult_t r;

	config.blocking = 0;
	config.minCTAs = 1;
	config.maxCTAs = 2;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	config.commName = "fragfs";
	config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
#endif
	memcpy(&id, &c->id, sizeof(id));
	r = c->nccl.CommInitRankConfig(&c->comm, (int)c->about.nranks, id, (int)c->about.rank,
				       &config);
	return settle(c, "ncclCommInitRankConfig", r);
}

static ncclResult_t greet(struct collective *c)
{
	uint8_t *to = c->warm, *from = to + c->about.nranks;
	ncclResult_t r = c->nccl.GroupStart(), ended;

	for (unsigned i = 0; i < c->about.nranks && r == ncclSuccess; i++) {
		r = c->nccl.Send(to + i, 1, ncclUint8, (int)i, c->comm, c->stream);
		if (r == ncclSuccess)
			r = c->nccl.Recv(from + i, 1, ncclUint8, (int)i, c->comm, c->stream);
	}
	ended = c->nccl.GroupEnd();
	return r == ncclSuccess ? ended : r;
}

static ncclResult_t gather(struct collective *c)
{
	uint8_t *from = c->warm;

	return c->nccl.AllGather(from, from + 2 * c->about.nranks, 1, ncclUint8, c->comm,
				 c->stream);
}

static int make_event(struct collective *c, cudaEvent_t *event)
{
	struct cuda *cuda = &c->cuda;
	int rc = CUDA_CALL(cuda, EventCreateWithFlags, event, cudaEventDisableTiming);

	if (rc)
		return rc;
	rc = CUDA_CALL(cuda, EventRecord, *event, c->stream);
	if (rc)
		cuda->EventDestroy(*event);
	return rc;
}

static bool await_stream(struct collective *c)
{
	struct cuda *cuda = &c->cuda;
	cudaEvent_t event;
	int rc = make_event(c, &event);

	if (!rc) {
		while ((rc = cuda_errno(cuda, cuda->EventQuery(event))) == -EAGAIN &&
		       !is_late(c))
			pause_shortly();
		cuda->EventDestroy(event);
	}
	if (rc)
		fail(c, rc == -EAGAIN ? -ETIMEDOUT : rc, "not all ranks have warmed up");
	return !rc;
}

/* Connects all pairs and loads NCCL's kernels, which it else does at their first use. */
static bool warm_up(struct collective *c)
{
	return settle(c, "ncclSend, ncclRecv", greet(c)) &&
	       settle(c, "ncclAllGather", gather(c)) && await_stream(c);
}

static bool be_ready(struct collective *c)
{
	collective_nccl_be_ready(c);
	return true;
}

static void collective_nccl_open(struct collective *c)
{
	static bool (*const steps[])(struct collective * c) = { load,    make_id, prepare,
								connect, warm_up, be_ready };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (has_failed(c) || !steps[i](c))
			return;
}

/* ---- letting go ---- */

/* Returns true if NCCL ended the communicator in time and without an error. */
static bool finalize(struct collective *c)
{
	/* let_go has end_ms: the other half is for CommDestroy or CommAbort */
	uint64_t end = monotonic_ms() + c->options.end_ms / 2;
	ncclResult_t r = c->nccl.CommFinalize(c->comm);

	while ((r == ncclSuccess || r == ncclInProgress) &&
	       (r = poll_nccl(c)) == ncclInProgress && monotonic_ms() < end)
		pause_shortly();
	return r == ncclSuccess;
}

static void let_go(struct collective *c)
{
	c->cuda.SetDevice(c->options.number);
	pthread_mutex_lock(&c->calls);
	if (c->comm && !has_failed(c) && finalize(c))
		c->nccl.CommDestroy(c->comm);
	else if (c->comm)
		c->nccl.CommAbort(c->comm);
	if (c->warm_is_pinned)
		c->cuda.HostUnregister(c->warm);
	if (c->stream)
		c->cuda.StreamDestroy(c->stream);
	pthread_mutex_unlock(&c->calls);
}

/* ---- launching: the trainer's thread ---- */

/* NCCL enqueues from a thread of its own, since a communicator that does not block is asked
 * for.  The trainer's thread waits for that, not for long: so its own operations come after
 * ours, on each rank, as NCCL wants it.
 */
static ncclResult_t enqueued(struct collective *c)
{
	uint64_t end = monotonic_ms() + ENQUEUE_MS;
	ncclResult_t r;

	while ((r = poll_nccl(c)) == ncclInProgress && monotonic_ms() < end)
		nanosleep(&(struct timespec){ .tv_nsec = ENQUEUE_PAUSE_NS }, NULL);
	return r;
}

static void mark_if_enqueued(struct collective *c)
{
	ncclResult_t r = enqueued(c);

	if (r == ncclSuccess)
		mark(c);
	else if (r != ncclInProgress)
		refuse(c, "ncclCommGetAsyncError", r);
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
		fail(c, rc, "the stream cannot wait for an event");
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
		refuse(c, io->what == COLLECTIVE_MOVES ? "ncclSend, ncclRecv" : "ncclAllGather",
		       r);
		return -EIO;
	}
	rc = append(c, io);
	if (rc)
		return rc;
	c->unmarked = io;
	mark_if_enqueued(c);
	return 0;
}

/* NCCL takes no operation while it has not enqueued the last one.  Under calls. */
static int is_ready_to_launch(struct collective *c)
{
	if (!collective_nccl_state(c) && c->unmarked)
		mark_if_enqueued(c);
	if (!collective_nccl_state(c) && c->unmarked)
		fail(c, -ETIMEDOUT, "NCCL has not enqueued the last operation within %u ms",
		     ENQUEUE_MS);
	return collective_nccl_state(c);
}

static int launch_locked(struct collective *c, struct collective_io *io)
{
	struct device *d = c->options.device;
	int before, rc = is_ready_to_launch(c);

	if (rc)
		return rc;
	rc = device_cuda_enter(d, c->options.number, &before);
	if (rc)
		return rc;
	rc = enqueue(c, io);
	device_cuda_leave(d, c->options.number, before);
	return rc;
}

static int collective_nccl_launch(struct collective *c, struct collective_io *io)
{
	int rc = collective_io_check(&device_cuda, &c->options, c->about.nranks, io);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->calls);
	rc = launch_locked(c, io);
	pthread_mutex_unlock(&c->calls);
	return rc;
}

/* Makes the communicator fail, with the library's own text. */
static void refuse(struct collective *c, const char *call, ncclResult_t result)
{
	const char *more = c->nccl.GetLastError(c->comm);

	fail(c, -EIO, "%s: %s%s%s", call, c->nccl.GetErrorString(result),
	     more && *more ? ": " : "", more ? more : "");
}

/* Returns ncclInProgress while NCCL enqueues, then ncclSuccess or an error.  Under calls. */
static ncclResult_t poll_nccl(struct collective *c)
{
	ncclResult_t state, r = c->nccl.CommGetAsyncError(c->comm, &state);

	return r == ncclSuccess ? state : r;
}

/* Records the event of the end of `unmarked`, which NCCL has enqueued.  Under calls. */
static void mark(struct collective *c)
{
	struct collective_io *io = c->unmarked;
	struct device_event *event;
	int rc = device_cuda_mark(c->options.device, c->options.number, c->stream, &event);

	c->unmarked = NULL;
	if (rc) {
		fail(c, rc, "no event for the end of an operation");
		return;
	}
	pthread_mutex_lock(&c->lock);
	io->port.ended = event;
	pthread_mutex_unlock(&c->lock);
}

/* ---- the port's thread ---- */

/* While the trainer's thread is in a call of NCCL, errors are left to the next turn. */
static void look_for_errors(struct collective *c)
{
	ncclResult_t r;

	if (pthread_mutex_trylock(&c->calls))
		return;
	r = poll_nccl(c);
	if (r == ncclSuccess && c->unmarked)
		mark(c);
	else if (r != ncclSuccess && r != ncclInProgress)
		refuse(c, "ncclCommGetAsyncError", r);
	pthread_mutex_unlock(&c->calls);
}

static int has_passed(struct collective *c, struct device_event *event)
{
	return device_cuda_passed(c->options.device, event);
}

/* Returns 0 if the event `after` has passed. */
static int look_at_event(struct collective *c, struct collective_io *io)
{
	int rc = io->port.passed || !io->after ? 0 : has_passed(c, io->after);

	if (rc == -EAGAIN && monotonic_ms() >= io->port.until_ms)
		fail(c, -ETIMEDOUT, "the stream has not come there within %" PRIu64 " ms",
		     c->options.wait_ms);
	else if (rc && rc != -EAGAIN)
		fail(c, rc, "device %d failed", c->options.number);
	if (!rc && !io->port.passed) {
		io->port.passed = true;
		io->port.until_ms = monotonic_ms() + collective_limit_ms(&c->options, io);
	}
	return rc;
}

/* Returns 0 if the operation has ended. */
static int look_at_end(struct collective *c, struct collective_io *io)
{
	struct device_event *ended;
	int rc;

	pthread_mutex_lock(&c->lock);
	ended = io->port.ended;
	pthread_mutex_unlock(&c->lock);
	rc = ended ? has_passed(c, ended) : -EAGAIN;
	if (rc == -EAGAIN && monotonic_ms() >= io->port.until_ms)
		fail(c, -ETIMEDOUT, "a peer has not done its part within %" PRIu64 " ms",
		     collective_limit_ms(&c->options, io));
	else if (rc && rc != -EAGAIN)
		fail(c, rc, "device %d failed", c->options.number);
	return rc;
}

static void end_collective(struct collective *c, struct collective_io *io)
{
	if (io->port.ended)
		device_cuda_unmark(c->options.device, io->port.ended);
	io->done(io, io->port.result);
}

static void look_at_launched(struct collective *c)
{
	struct collective_io *io;

	while ((io = first_launched(c)) && !look_at_event(c, io) && !look_at_end(c, io))
		end_collective(c, take_launched(c, 0));
}

/* Waits for an operation, or for its next look.  Returns true while the communicator goes on.
 */
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

static void watch_launched(struct collective *c)
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

	/* in another mode our queries of events would spoil a graph that the trainer captures
	 */
	if (!rc)
		rc = CUDA_CALL(cuda, ThreadExchangeStreamCaptureMode, &mode);
	if (rc)
		fail(c, rc, "device %d cannot be chosen", c->options.number);
}

static void *run(void *arg)
{
	struct collective *c = arg;
	struct collective_io *io;

	prepare_thread(c);
	run_errand(c, collective_nccl_open, c->open_until_ms + c->options.end_ms);
	if (c->left)
		fail(c, -ETIMEDOUT, "NCCL does not return from opening");
	watch_launched(c);
	let_go_in_time(c);
	while ((io = take_rest(c)))
		end_collective(c, io);
	return NULL;
}

/* ---- the port: opening ---- */

static void free_collective(struct collective *c)
{
	free(c->warm);
	free(c);
}

/* Loads the device's runtime once more, for a table of our own. */
static int load_and_start(struct collective *c, unsigned rank, unsigned nranks)
{
	int rc = cuda_load(&c->cuda, c->options.device->options.library);

	if (rc)
		return rc;
	pthread_mutex_init(&c->calls, NULL);
	rc = start_thread(c, run, rank, nranks);
	if (rc)
		pthread_mutex_destroy(&c->calls);
	return rc;
}

static struct collective *new_collective(const struct collective_options *options,
					 unsigned nranks, const struct collective_id *id)
{
	struct collective *c = calloc(1, sizeof(*c));
	void *warm = c ? aligned_alloc(PAGE, warm_size(nranks)) : NULL;

	if (!warm) {
		free(c);
		return NULL;
	}
	memset(warm, 0, warm_size(nranks));
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
	if (!stop_thread(c))
		return;
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

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective/collective-nccl.h"

#include <errno.h>

enum { PAUSE_NS = 1000000, PAGE = 4096 };

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
}

/* ---- opening ---- */

static bool load(struct collective *c)
{
	char why[sizeof(c->about.error)];
	int rc = collective_nccl_load(&c->nccl, c->options.library, why, sizeof(why));

	if (rc) {
		collective_nccl_fail(c, rc, "%s", why);
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
		collective_nccl_refuse(c, "ncclGetUniqueId", r);
		return false;
	}
	pthread_mutex_lock(&c->lock);
	memcpy(&c->id, &id, sizeof(id));
	c->has_id = true;
	pthread_mutex_unlock(&c->lock);
	return true;
}

/* The trainer's kernels go first. */
static int make_stream(struct collective *c)
{
	struct cuda *cuda = &c->cuda;
	int least, greatest;
	int rc = CUDA_CALL(cuda, DeviceGetStreamPriorityRange, &least, &greatest);

	if (rc)
		return rc;
	return CUDA_CALL(cuda, StreamCreateWithPriority, &c->stream, cudaStreamNonBlocking,
			 least);
}

uint64_t collective_nccl_warm_size(unsigned nranks)
{
	return u64_div_ceil(3 * (uint64_t)nranks, PAGE) * PAGE;
}

static int pin_warm(struct collective *c)
{
	int rc =
		CUDA_CALL(&c->cuda, HostRegister, c->warm,
			  collective_nccl_warm_size(c->about.nranks), cudaHostRegisterPortable);

	c->warm_is_pinned = !rc;
	return rc;
}

static bool prepare(struct collective *c)
{
	struct cuda *cuda = &c->cuda;
	int rc = CUDA_CALL(cuda, SetDevice, c->options.number);

	if (!rc)
		rc = make_stream(c);
	if (!rc)
		rc = pin_warm(c);
	if (rc)
		collective_nccl_fail(c, rc, "device %d: no stream or no pinned memory",
				     c->options.number);
	return !rc;
}

/* Until what was begun is done. */
static bool settle(struct collective *c, const char *call, ncclResult_t r)
{
	while ((r == ncclSuccess || r == ncclInProgress) &&
	       (r = collective_nccl_poll(c)) == ncclInProgress && !collective_nccl_is_late(c))
		pause_shortly();
	if (r == ncclInProgress)
		collective_nccl_fail(c, -ETIMEDOUT, "%s: not all ranks have come", call);
	else if (r != ncclSuccess)
		collective_nccl_refuse(c, call, r);
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
		while ((rc = device_cuda_errno(cuda, cuda->EventQuery(event))) == -EAGAIN &&
		       !collective_nccl_is_late(c))
			pause_shortly();
		cuda->EventDestroy(event);
	}
	if (rc)
		collective_nccl_fail(c, rc == -EAGAIN ? -ETIMEDOUT : rc,
				     "not all ranks have warmed up");
	return !rc;
}

/* Connections are made, and code is loaded, when they are first used. */
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

void collective_nccl_open(struct collective *c)
{
	static bool (*const steps[])(struct collective * c) = { load,    make_id, prepare,
								connect, warm_up, be_ready };

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		if (collective_nccl_has_failed(c) || !steps[i](c))
			return;
}

/* ---- letting go ---- */

/* Returns true if NCCL ended the communicator in time and without an error. */
static bool finalize(struct collective *c)
{
	uint64_t end = monotonic_ms() + c->options.end_ms / 2;
	ncclResult_t r = c->nccl.CommFinalize(c->comm);

	while ((r == ncclSuccess || r == ncclInProgress) &&
	       (r = collective_nccl_poll(c)) == ncclInProgress && monotonic_ms() < end)
		pause_shortly();
	return r == ncclSuccess;
}

void collective_nccl_let_go(struct collective *c)
{
	c->cuda.SetDevice(c->options.number);
	pthread_mutex_lock(&c->calls);
	if (c->comm && !collective_nccl_has_failed(c) && finalize(c))
		c->nccl.CommDestroy(c->comm);
	else if (c->comm)
		c->nccl.CommAbort(c->comm);
	if (c->warm_is_pinned)
		c->cuda.HostUnregister(c->warm);
	if (c->stream)
		c->cuda.StreamDestroy(c->stream);
	pthread_mutex_unlock(&c->calls);
}

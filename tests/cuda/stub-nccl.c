/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "tests/cuda/stub-nccl-hall.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { CALLS_MAX = 1 << 14, OPERATIONS_MAX = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all but the threads' own */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct nccl_stub_call *calls;
static unsigned ncalls;
static int left, version = NCCL_VERSION_CODE;
static pthread_t trainer;
static ncclConfig_t last_config;
static const char *hung;
static bool stalled;
static ncclResult_t broken;
static struct {
	const char *name;
	unsigned nth;
	ncclResult_t result;
} rule;

struct operation {
	bool to_peer;
	int peer;
	uint8_t *bytes;
	uint64_t size, done;
};

struct group {
	struct ncclComm *comm;
	cudaStream_t stream;
	unsigned n;
	struct operation operations[OPERATIONS_MAX];
};

struct ncclComm {
	struct hall *hall;
	int rank, nranks;
	char name[HALL_NAME];
	atomic_bool aborted;
	unsigned busy; /* threads and what they have enqueued */
	ncclResult_t state;
};

static _Thread_local struct group *current;
static _Thread_local unsigned depth;
static _Thread_local ncclResult_t group_error;

/* ---- tests ---- */

void nccl_stub_reset(void)
{
	pthread_mutex_lock(&lock);
	free(calls);
	calls = calloc(CALLS_MAX, sizeof(*calls));
	ncalls = 0;
	version = NCCL_VERSION_CODE;
	trainer = pthread_self();
	hung = NULL;
	stalled = false;
	broken = ncclSuccess;
	rule.name = NULL;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void nccl_stub_fail(const char *name, unsigned nth, ncclResult_t result)
{
	pthread_mutex_lock(&lock);
	rule.name = name;
	rule.nth = nth;
	rule.result = result;
	pthread_mutex_unlock(&lock);
}

void nccl_stub_hang(const char *name)
{
	pthread_mutex_lock(&lock);
	hung = name;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void nccl_stub_stall(bool stall)
{
	pthread_mutex_lock(&lock);
	stalled = stall;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void nccl_stub_break(ncclResult_t error)
{
	pthread_mutex_lock(&lock);
	broken = error;
	pthread_mutex_unlock(&lock);
}

void nccl_stub_version(int v)
{
	pthread_mutex_lock(&lock);
	version = v;
	pthread_mutex_unlock(&lock);
}

unsigned nccl_stub_calls(struct nccl_stub_call *to, unsigned n)
{
	unsigned there;

	pthread_mutex_lock(&lock);
	there = ncalls;
	memcpy(to, calls, u64_min(there, n) * sizeof(*to));
	pthread_mutex_unlock(&lock);
	return there;
}

unsigned nccl_stub_count(const char *name)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < ncalls; i++)
		n += !strcmp(calls[i].name, name);
	pthread_mutex_unlock(&lock);
	return n;
}

ncclConfig_t nccl_stub_config(void)
{
	ncclConfig_t config;

	pthread_mutex_lock(&lock);
	config = last_config;
	pthread_mutex_unlock(&lock);
	return config;
}

unsigned nccl_stub_left(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = left;
	pthread_mutex_unlock(&lock);
	return (unsigned)n;
}

/* ---- the CUDA runtime, whichever the process has ---- */

static void *cuda(const char *name)
{
	void *function = dlsym(RTLD_DEFAULT, name);
	void *library = function ? NULL : dlopen("libcudart.so.13", RTLD_NOW);

	if (library)
		function = dlsym(library, name);
	if (!function)
		abort();
	return function;
}

static int current_device(void)
{
	__typeof__(&cudaGetDevice) get;
	__typeof__(&cudaGetLastError) forget;
	int device = -1;

	*(void **)&get = cuda("cudaGetDevice");
	*(void **)&forget = cuda("cudaGetLastError");
	if (get(&device) != cudaSuccess)
		forget();
	return device;
}

static void enqueue(cudaStream_t stream, cudaHostFn_t function, void *arg)
{
	__typeof__(&cudaLaunchHostFunc) launch;

	*(void **)&launch = cuda("cudaLaunchHostFunc");
	if (launch(stream, function, arg) != cudaSuccess)
		abort();
}

/* ---- calls ---- */

static bool signals_come(void)
{
	sigset_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	return !sigismember(&blocked, SIGTERM);
}

/* Under lock. */
static ncclResult_t follow_rule(const char *name)
{
	if (!rule.name || strcmp(rule.name, name) || --rule.nth)
		return ncclSuccess;
	rule.name = NULL;
	return rule.result;
}

static ncclResult_t enter(const char *name, void *stream, uint64_t size, int peer)
{
	struct nccl_stub_call call = { .name = name,
				       .stream = stream,
				       .size = size,
				       .peer = peer,
				       .device = current_device(),
				       .signals = signals_come() };
	ncclResult_t result;

	pthread_mutex_lock(&lock);
	call.trainers = pthread_equal(trainer, pthread_self());
	if (calls && ncalls < CALLS_MAX)
		calls[ncalls++] = call;
	while (hung && !strcmp(hung, name))
		pthread_cond_wait(&changed, &lock);
	result = follow_rule(name);
	pthread_mutex_unlock(&lock);
	return result;
}

STUB_API const char *ncclGetErrorString(ncclResult_t result)
{
	return "an error of the stub";
}

STUB_API const char *ncclGetLastError(ncclComm_t comm)
{
	return comm ? "and more of it" : "";
}

STUB_API ncclResult_t ncclGetVersion(int *v)
{
	pthread_mutex_lock(&lock);
	*v = version;
	pthread_mutex_unlock(&lock);
	return enter("GetVersion", NULL, 0, -1);
}

STUB_API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	ncclResult_t r = enter("GetUniqueId", NULL, 0, -1);

	memset(id, 0, sizeof(*id));
	if (r == ncclSuccess && !hall_new(id->internal))
		r = ncclSystemError;
	return r;
}

/* ---- communicators ---- */

static void set_state(struct ncclComm *c, ncclResult_t state)
{
	pthread_mutex_lock(&lock);
	c->state = state;
	pthread_mutex_unlock(&lock);
}

static void count_busy(struct ncclComm *c, int n)
{
	pthread_mutex_lock(&lock);
	c->busy += (unsigned)n;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void start(void *(*run)(void *), void *arg)
{
	pthread_t thread;

	if (thread_start(&thread, run, arg))
		abort();
	pthread_detach(thread);
}

static void pause_shortly(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

static void *meet(void *arg)
{
	struct ncclComm *c = arg;

	while (!atomic_load(&c->aborted) && !hall_is_full(c->hall, c->nranks))
		pause_shortly();
	if (!c->rank)
		unlink(c->name);
	set_state(c, ncclSuccess);
	count_busy(c, -1);
	return NULL;
}

static struct ncclComm *new_comm(int nranks, const char *name, int rank)
{
	struct hall *hall = hall_enter(name, rank);
	struct ncclComm *c = hall ? calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return NULL;
	c->hall = hall;
	c->rank = rank;
	c->nranks = nranks;
	memcpy(c->name, name, sizeof(c->name));
	c->state = ncclInProgress;
	c->busy = 1;
	return c;
}

STUB_API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id,
					     int rank, ncclConfig_t *config)
{
	ncclResult_t r = enter("CommInitRankConfig", NULL, 0, rank);

	if (r != ncclSuccess)
		return r;
	if (config->blocking || nranks > STUB_RANKS_MAX)
		return ncclInvalidArgument;
	*comm = new_comm(nranks, id.internal, rank);
	if (!*comm)
		return ncclSystemError;
	pthread_mutex_lock(&lock);
	last_config = *config;
	left++;
	pthread_mutex_unlock(&lock);
	start(meet, *comm);
	return ncclInProgress;
}

STUB_API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
	pthread_mutex_lock(&lock);
	*state = c->state == ncclSuccess ? broken : c->state;
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

/* When its threads and what they have enqueued have ended. */
static void free_comm(struct ncclComm *c)
{
	pthread_mutex_lock(&lock);
	while (c->busy)
		pthread_cond_wait(&changed, &lock);
	left--;
	pthread_mutex_unlock(&lock);
	hall_leave(c->hall);
	free(c);
}

STUB_API ncclResult_t ncclCommAbort(ncclComm_t c)
{
	ncclResult_t r = enter("CommAbort", NULL, 0, -1);

	pthread_mutex_lock(&lock);
	atomic_store(&c->aborted, true);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	free_comm(c);
	return r;
}

STUB_API ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	return enter("CommFinalize", NULL, 0, -1);
}

STUB_API ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	ncclResult_t r = enter("CommDestroy", NULL, 0, -1);

	free_comm(c);
	return r;
}

/* ---- groups ---- */

/* Those with one peer in one direction come in order. */
static bool is_turn_of(const struct group *g, unsigned i)
{
	const struct operation *o = &g->operations[i];

	for (unsigned j = 0; j < i; j++) {
		const struct operation *before = &g->operations[j];

		if (before->peer == o->peer && before->to_peer == o->to_peer &&
		    before->done < before->size)
			return false;
	}
	return true;
}

static uint64_t go_on_with(struct group *g, unsigned i)
{
	struct operation *o = &g->operations[i];
	struct ncclComm *c = g->comm;
	uint64_t rest = o->size - o->done, n = 0;

	if (!rest || !is_turn_of(g, i))
		return 0;
	if (o->to_peer)
		n = hall_write(c->hall, c->rank, o->peer, o->bytes + o->done, rest);
	else
		n = hall_read(c->hall, o->peer, c->rank, o->bytes + o->done, rest);
	o->done += n;
	return n;
}

static bool is_done(const struct group *g)
{
	bool done = true;

	for (unsigned i = 0; i < g->n; i++)
		done &= g->operations[i].done == g->operations[i].size;
	return done;
}

/* In the stream's thread, as a kernel. */
static void CUDART_CB run_group(void *arg)
{
	struct group *g = arg;

	while (!is_done(g) && !atomic_load(&g->comm->aborted)) {
		uint64_t n = 0;

		for (unsigned i = 0; i < g->n; i++)
			n += go_on_with(g, i);
		if (!n)
			pause_shortly();
	}
	count_busy(g->comm, -1);
	free(g);
}

static void *enqueue_group(void *arg)
{
	struct group *g = arg;
	struct ncclComm *c = g->comm;

	pthread_mutex_lock(&lock);
	while (stalled && !atomic_load(&c->aborted))
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	count_busy(c, 1);
	enqueue(g->stream, run_group, g);
	set_state(c, ncclSuccess);
	count_busy(c, -1);
	return NULL;
}

static ncclResult_t begin_group(void)
{
	ncclResult_t r = enter("GroupStart", NULL, 0, -1);

	if (r == ncclSuccess && !depth++)
		group_error = ncclSuccess;
	return r;
}

STUB_API ncclResult_t ncclGroupStart(void);
STUB_API ncclResult_t ncclGroupStart(void)
{
	return begin_group();
}

static ncclResult_t launch_group(void)
{
	struct group *g = current;

	current = NULL;
	if (!g || group_error != ncclSuccess) {
		free(g);
		return group_error;
	}
	set_state(g->comm, ncclInProgress);
	count_busy(g->comm, 1);
	start(enqueue_group, g);
	return ncclInProgress;
}

STUB_API ncclResult_t ncclGroupEnd(void);
STUB_API ncclResult_t ncclGroupEnd(void)
{
	ncclResult_t r = enter("GroupEnd", NULL, 0, -1);

	if (r != ncclSuccess && group_error == ncclSuccess)
		group_error = r;
	return --depth ? group_error : launch_group();
}

static void add(ncclComm_t c, cudaStream_t stream, struct operation o)
{
	if (!current) {
		current = calloc(1, sizeof(*current));
		current->comm = c;
		current->stream = stream;
	}
	if (current->n == OPERATIONS_MAX || current->comm != c || current->stream != stream)
		abort();
	current->operations[current->n++] = o;
}

/* A communicator in progress takes nothing. */
static ncclResult_t check(ncclComm_t c, ncclResult_t r)
{
	pthread_mutex_lock(&lock);
	if (r == ncclSuccess && c->state != ncclSuccess)
		r = ncclInvalidUsage;
	pthread_mutex_unlock(&lock);
	if (r != ncclSuccess && depth)
		group_error = r;
	return r;
}

static ncclResult_t move(const char *name, struct operation o, ncclComm_t c,
			 cudaStream_t stream)
{
	ncclResult_t r = check(c, enter(name, stream, o.size, o.peer));

	if (r != ncclSuccess)
		return r;
	add(c, stream, o);
	return depth ? ncclSuccess : launch_group();
}

STUB_API ncclResult_t ncclSend(const void *bytes, size_t count, ncclDataType_t type, int peer,
			       ncclComm_t c, cudaStream_t stream)
{
	return move("Send", (struct operation){ true, peer, (uint8_t *)bytes, count, 0 }, c,
		    stream);
}

STUB_API ncclResult_t ncclRecv(void *bytes, size_t count, ncclDataType_t type, int peer,
			       ncclComm_t c, cudaStream_t stream)
{
	return move("Recv", (struct operation){ false, peer, bytes, count, 0 }, c, stream);
}

STUB_API ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
				    ncclDataType_t type, ncclComm_t c, cudaStream_t stream)
{
	ncclResult_t r = check(c, enter("AllGather", stream, count, -1));

	if (r != ncclSuccess)
		return r;
	for (int i = 0; i < c->nranks; i++) {
		uint8_t *place = (uint8_t *)to + (uint64_t)i * count;

		if (place == from)
			continue;
		add(c, stream, (struct operation){ true, i, (uint8_t *)from, count, 0 });
		add(c, stream, (struct operation){ false, i, place, count, 0 });
	}
	return depth ? ncclSuccess : launch_group();
}

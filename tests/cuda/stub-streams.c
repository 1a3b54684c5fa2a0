/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "tests/cuda/stub.h"

#include <string.h>
#include <unistd.h>

/* Streams are threads that do their work in order; a stream that is destroyed ends when it has.
 */

struct CUstream_st {
	struct stub_work *first, **end;
	bool destroyed;
	bool has_priority; /* the port's; a trainer makes its without */
	unsigned pending;
};

struct CUevent_st {
	struct CUevent_st *next;
	uint64_t recorded, done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool stalled;
static unsigned pending; /* work, of all streams */
static struct CUevent_st
	*events; /* all that ever were: a stream may still come to one that is destroyed */
static struct CUstream_st *default_stream[STUB_DEVICES];

/* ---- a stream's thread ---- */

/* Processes of their own stall the port's streams by a file. */
static bool is_stalled(cudaStream_t s)
{
	const char *file = getenv("STUB_STALL_FILE");

	return stalled || (file && s->has_priority && !access(file, F_OK));
}

static void wait_for_change(void)
{
	const struct timespec until = thread_in_ms(20);

	if (getenv("STUB_STALL_FILE"))
		pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until);
	else
		pthread_cond_wait(&changed, &lock);
}

static struct stub_work *next_work(cudaStream_t s)
{
	struct stub_work *w;

	pthread_mutex_lock(&lock);
	while (is_stalled(s) || (!s->first && !s->destroyed))
		wait_for_change();
	w = s->first;
	if (w)
		s->first = w->next;
	if (!s->first)
		s->end = &s->first;
	pthread_mutex_unlock(&lock);
	return w;
}

static void count_done(cudaStream_t s)
{
	pthread_mutex_lock(&lock);
	pending--;
	s->pending--;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void *run(void *arg)
{
	cudaStream_t s = arg;
	struct stub_work *w;

	while ((w = next_work(s))) {
		if (stub_error() == cudaSuccess)
			w->run(w);
		free(w);
		count_done(s);
	}
	free(s);
	return NULL;
}

static cudaStream_t new_stream(bool has_priority)
{
	cudaStream_t s = calloc(1, sizeof(*s));
	pthread_t thread;

	s->has_priority = has_priority;
	s->end = &s->first;
	if (thread_start(&thread, run, s))
		abort();
	pthread_detach(thread);
	return s;
}

/* Under lock. */
static cudaStream_t real_stream(cudaStream_t s)
{
	if (s)
		return s;
	if (!default_stream[stub_device()])
		default_stream[stub_device()] = new_stream(false);
	return default_stream[stub_device()];
}

/* Under lock. */
static void append(cudaStream_t stream, struct stub_work work)
{
	struct stub_work *w = malloc(sizeof(*w));
	cudaStream_t s = real_stream(stream);

	*w = work;
	w->next = NULL;
	*s->end = w;
	s->end = &w->next;
	pending++;
	s->pending++;
	pthread_cond_broadcast(&changed);
}

cudaError_t stub_enqueue(cudaStream_t stream, struct stub_work work)
{
	pthread_mutex_lock(&lock);
	append(stream, work);
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

void stub_stall(bool stall)
{
	pthread_mutex_lock(&lock);
	stalled = stall;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

void stub_drain(void)
{
	pthread_mutex_lock(&lock);
	while (pending)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

/* ---- streams ---- */

static cudaError_t create(cudaStream_t *s, unsigned flags, bool has_priority)
{
	cudaError_t error = stub_enter("StreamCreateWithPriority", NULL, flags, false);

	if (error != cudaSuccess)
		return error;
	stub_count_left(1);
	*s = new_stream(has_priority);
	return cudaSuccess;
}

STUB_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
	return create(s, flags, true);
}

STUB_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
	return create(s, flags, false);
}

STUB_API cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t error = stub_enter("StreamSynchronize", stream, 0, false);
	cudaStream_t s;

	pthread_mutex_lock(&lock);
	s = real_stream(stream);
	while (s->pending)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return error;
}

STUB_API cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	cudaError_t error = stub_enter("StreamDestroy", s, 0, false);

	if (error != cudaSuccess)
		return error;
	stub_count_left(-1);
	pthread_mutex_lock(&lock);
	s->destroyed = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

/* ---- events ---- */

STUB_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
	cudaError_t error = stub_enter("EventCreateWithFlags", NULL, flags, false);

	if (error != cudaSuccess)
		return error;
	stub_count_left(1);
	*event = calloc(1, sizeof(**event));
	pthread_mutex_lock(&lock);
	(*event)->next = events;
	events = *event;
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

/* It may have been recorded again since, in another stream. */
static void come_to(struct stub_work *w)
{
	pthread_mutex_lock(&lock);
	w->event->done = u64_max(w->event->done, w->generation);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

STUB_API cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	cudaError_t error = stub_enter("EventDestroy", NULL, 0, false);

	if (error != cudaSuccess)
		return error;
	stub_count_left(-1);
	return cudaSuccess;
}

STUB_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	cudaError_t error = stub_enter("EventRecord", stream, 0, false);

	if (error != cudaSuccess)
		return error;
	pthread_mutex_lock(&lock);
	append(stream, (struct stub_work){ .run = come_to,
					   .event = event,
					   .generation = ++event->recorded });
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

STUB_API cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cudaError_t error = stub_enter("EventQuery", NULL, 0, false);
	bool there;

	if (error == cudaSuccess)
		error = stub_error();
	if (error != cudaSuccess)
		return error;
	pthread_mutex_lock(&lock);
	there = event->done == event->recorded;
	pthread_mutex_unlock(&lock);
	return there ? cudaSuccess : cudaErrorNotReady;
}

static void wait_for(struct stub_work *w)
{
	pthread_mutex_lock(&lock);
	while (w->event->done < w->generation)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

STUB_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
	cudaError_t error = stub_enter("StreamWaitEvent", stream, 0, false);

	if (error != cudaSuccess)
		return error;
	pthread_mutex_lock(&lock);
	append(stream, (struct stub_work){ .run = wait_for,
					   .event = event,
					   .generation = event->recorded });
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

STUB_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	cudaError_t error =
		stub_enter("ThreadExchangeStreamCaptureMode", NULL, (uint64_t)*mode, false);

	if (error == cudaSuccess)
		*mode = stub_exchange_mode(*mode);
	return error;
}

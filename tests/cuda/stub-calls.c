/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/stub.h"

#include <pthread.h>
#include <string.h>

enum { CALLS_MAX = 1 << 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all but the threads' own */
static struct stub_call *calls;
static unsigned ncalls;
static pthread_t trainer;
static int left;
static bool contexts[STUB_DEVICES];
static bool capturing;
static unsigned spoilt;
static cudaError_t broken;
static struct {
	const char *name;
	unsigned nth;
	cudaError_t error;
	bool set, used;
} rule;

static _Thread_local int current;
static _Thread_local cudaError_t last;
static _Thread_local enum cudaStreamCaptureMode mode; /* global at first */

/* ---- tests ---- */

void stub_reset(void)
{
	pthread_mutex_lock(&lock);
	free(calls);
	calls = calloc(CALLS_MAX, sizeof(*calls));
	ncalls = 0;
	trainer = pthread_self();
	rule.set = rule.used = false;
	spoilt = 0;
	pthread_mutex_unlock(&lock);
}

void stub_fail(const char *name, unsigned nth, cudaError_t error)
{
	pthread_mutex_lock(&lock);
	rule.name = name;
	rule.nth = nth;
	rule.error = error;
	rule.set = true;
	rule.used = false;
	pthread_mutex_unlock(&lock);
}

bool stub_has_failed(void)
{
	bool used;

	pthread_mutex_lock(&lock);
	used = rule.used;
	pthread_mutex_unlock(&lock);
	return used;
}

void stub_break(cudaError_t error)
{
	pthread_mutex_lock(&lock);
	broken = error;
	pthread_mutex_unlock(&lock);
}

void stub_capture(bool is_capturing)
{
	pthread_mutex_lock(&lock);
	capturing = is_capturing;
	pthread_mutex_unlock(&lock);
}

unsigned stub_spoilt(void)
{
	unsigned n;

	pthread_mutex_lock(&lock);
	n = spoilt;
	pthread_mutex_unlock(&lock);
	return n;
}

unsigned stub_calls(struct stub_call *to, unsigned n)
{
	unsigned there;

	pthread_mutex_lock(&lock);
	there = ncalls;
	memcpy(to, calls, (there < n ? there : n) * sizeof(*to));
	pthread_mutex_unlock(&lock);
	return there;
}

unsigned stub_count(const char *name, bool trainers)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < ncalls; i++)
		n += !strcmp(calls[i].name, name) && calls[i].trainers == trainers;
	pthread_mutex_unlock(&lock);
	return n;
}

unsigned stub_left(void)
{
	int n;

	pthread_mutex_lock(&lock);
	n = left;
	pthread_mutex_unlock(&lock);
	return (unsigned)n;
}

bool stub_has_context(int device)
{
	bool has;

	pthread_mutex_lock(&lock);
	has = contexts[device];
	pthread_mutex_unlock(&lock);
	return has;
}

/* ---- the stub's files ---- */

static bool makes_context(const char *name)
{
	static const char *const without[] = { "GetDeviceCount", "GetDevice",
					       "DriverGetVersion" };

	for (size_t i = 0; i < ARRAY_SIZE(without); i++)
		if (!strcmp(name, without[i]))
			return false;
	return true;
}

static bool spoils(const char *name)
{
	static const char *const unsafe[] = { "EventQuery",     "Free",
					      "HostRegister",   "Malloc",
					      "HostUnregister", "StreamSynchronize" };

	for (size_t i = 0; i < ARRAY_SIZE(unsafe); i++)
		if (!strcmp(name, unsafe[i]))
			return mode != cudaStreamCaptureModeRelaxed;
	return false;
}

/* How often a thread polls depends on how fast the machine is. */
static bool is_poll(const char *name)
{
	return !strcmp(name, "EventQuery") || !strcmp(name, "SetDevice");
}

/* Under lock. */
static cudaError_t follow_rule(const char *name)
{
	if (!rule.set || (rule.name && strcmp(rule.name, name)) || --rule.nth)
		return cudaSuccess;
	rule.set = false;
	rule.used = true;
	return rule.error;
}

cudaError_t stub_enter(const char *name, void *stream, uint64_t size, bool pageable)
{
	cudaError_t error;

	pthread_mutex_lock(&lock);
	contexts[current] |= makes_context(name);
	if (calls && ncalls < CALLS_MAX && !is_poll(name))
		calls[ncalls++] =
			(struct stub_call){ name,     stream,
					    current,  size,
					    pageable, pthread_equal(trainer, pthread_self()) };
	error = follow_rule(name);
	if (error == cudaSuccess && capturing && spoils(name)) {
		spoilt++;
		error = cudaErrorStreamCaptureUnsupported;
	}
	pthread_mutex_unlock(&lock);
	if (error != cudaSuccess)
		last = error;
	return error;
}

enum cudaStreamCaptureMode stub_exchange_mode(enum cudaStreamCaptureMode to)
{
	enum cudaStreamCaptureMode was = mode;

	mode = to;
	return was;
}

int stub_device(void)
{
	return current;
}

cudaError_t stub_error(void)
{
	cudaError_t error;

	pthread_mutex_lock(&lock);
	error = broken;
	pthread_mutex_unlock(&lock);
	return error;
}

void stub_count_left(int n)
{
	pthread_mutex_lock(&lock);
	left += n;
	pthread_mutex_unlock(&lock);
}

/* ---- the runtime ---- */

STUB_API cudaError_t cudaGetDeviceCount(int *n)
{
	cudaError_t error = stub_enter("GetDeviceCount", NULL, 0, false);

	*n = error == cudaSuccess ? STUB_DEVICES : 0;
	return error;
}

STUB_API cudaError_t cudaDriverGetVersion(int *version)
{
	cudaError_t error = stub_enter("DriverGetVersion", NULL, 0, false);

	*version = error == cudaSuccess ? 12020 : 0;
	return error;
}

STUB_API cudaError_t cudaGetDevice(int *device)
{
	*device = current;
	return stub_enter("GetDevice", NULL, 0, false);
}

STUB_API cudaError_t cudaSetDevice(int device)
{
	int before = current;
	cudaError_t error;

	if (device < 0 || device >= STUB_DEVICES)
		return last = cudaErrorInvalidDevice;
	current = device;
	error = stub_enter("SetDevice", NULL, 0, false);
	if (error != cudaSuccess)
		current = before;
	return error;
}

STUB_API cudaError_t cudaGetLastError(void)
{
	cudaError_t error = last;

	last = cudaSuccess;
	return error;
}

STUB_API cudaError_t cudaPeekAtLastError(void)
{
	return last;
}

STUB_API const char *cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorInsufficientDriver ? "driver too old" : "an error of the stub";
}

STUB_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return stub_enter("DeviceGetStreamPriorityRange", NULL, 0, false);
}

STUB_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
					   enum cudaStreamCaptureStatus *status)
{
	cudaError_t error = stub_enter("StreamIsCapturing", stream, 0, false);

	pthread_mutex_lock(&lock);
	*status = capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
	pthread_mutex_unlock(&lock);
	return error;
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_STUB_H
#define TESTS_CUDA_STUB_H

/* The CUDA runtime's entry points that fragfs and its tests use, over ordinary memory: two
 * devices, streams that are threads, events, memory whose owner is known.  It records the calls
 * and fails as it is told.  Kernels are their C twins, by name.
 */

#include "engine/base/base.h"

#ifdef HAVE_CUDA
#include <cuda_runtime_api.h>

#define STUB_API __attribute__((visibility("default")))

enum { STUB_DEVICES = 2 };

struct stub_call {
	const char *name; /* without "cuda" */
	void *stream;     /* NULL where it has none */
	int device;       /* the current one */
	uint64_t size;
	bool pageable; /* a copy from or to host memory that is not registered */
	bool trainers; /* in the thread that reset the stub */
};

/* Forgets calls and rules; this thread is the trainer's. */
STUB_API void stub_reset(void);
/* The nth call from now on of that name, NULL: of any, 1: the next, returns error. */
STUB_API void stub_fail(const char *name, unsigned nth, cudaError_t error);
/* Whether that rule was used up. */
STUB_API bool stub_has_failed(void);
/* From here on all devices' work fails with that; cudaSuccess: no longer. */
STUB_API void stub_break(cudaError_t error);
/* Whether streams stand still; without one that a host function holds. */
STUB_API void stub_stall(bool stall);
/* Whether there are pools; at first there are. */
STUB_API void stub_pools(bool there);
/* The NUMA node next to each device; -1, the default: it is not known. */
STUB_API void stub_node(int number);
/* Until all streams have done all; the test's own time limit bounds it. */
STUB_API void stub_drain(void);
/* Streams are being captured, by a thread that forbids all others what could spoil that. */
STUB_API void stub_capture(bool capturing);
/* How often that was done, by threads that had not exchanged their mode. */
STUB_API unsigned stub_spoilt(void);
/* The first n calls since the last reset, but for EventQuery and SetDevice; returns how many
 * there were.
 */
STUB_API unsigned stub_calls(struct stub_call *calls, unsigned n);
STUB_API unsigned stub_count(const char *name, bool trainers);
/* Streams, events, registrations, libraries that there are. */
STUB_API unsigned stub_left(void);
/* Whether something has made that device's context. */
STUB_API bool stub_has_context(int device);

/* ---- between its files ---- */

/* The rule's error, or success, after recording. */
cudaError_t stub_enter(const char *name, void *stream, uint64_t size, bool pageable);
int stub_device(void);
/* In a stream's thread. */
cudaError_t stub_error(void);
void stub_count_left(int n);
/* This thread's; returns what it was. */
enum cudaStreamCaptureMode stub_exchange_mode(enum cudaStreamCaptureMode mode);
struct stub_work {
	struct stub_work *next;
	void (*run)(struct stub_work *w);
	void *to;
	const void *from;
	uint64_t size;
	int value;
	unsigned blocks;
	cudaHostFn_t function;
	cudaEvent_t event;
	uint64_t generation;
};
cudaError_t stub_enqueue(cudaStream_t stream, struct stub_work work);

#endif
#endif

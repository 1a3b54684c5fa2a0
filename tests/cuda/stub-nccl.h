/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_STUB_NCCL_H
#define TESTS_CUDA_STUB_NCCL_H

/* NCCL's entry points that fragfs uses, over the stub of the CUDA runtime: what is sent goes
 * through a file in TMPDIR that all ranks map, in one process or many, and the id has its name.
 * Communicators do not block, as ours: a thread enqueues, on the stream, what a group has.  It
 * records the calls and fails as it is told.
 */

#include "engine/base/base.h"

#ifdef HAVE_NCCL
#include <nccl.h>

#define STUB_API __attribute__((visibility("default")))

enum { STUB_RANKS_MAX = 8 };

struct nccl_stub_call {
	const char *name; /* without "nccl" */
	void *stream;     /* NULL where it has none */
	uint64_t size;
	int peer;      /* -1: none */
	int device;    /* the current one */
	bool trainers; /* in the thread that reset the stub */
	bool signals;  /* they are not all blocked */
};

/* Forgets calls, rules and all that follows; this thread is the trainer's. */
STUB_API void nccl_stub_reset(void);
/* The nth call from now on of that name, 1: the next, returns result. */
STUB_API void nccl_stub_fail(const char *name, unsigned nth, ncclResult_t result);
/* Calls of that name do not return; NULL: all do. */
STUB_API void nccl_stub_hang(const char *name);
/* Whether what groups have stays in progress: it is not enqueued. */
STUB_API void nccl_stub_stall(bool stall);
/* What communicators say from here on that do not say that they are in progress; ncclSuccess:
 * no longer.
 */
STUB_API void nccl_stub_break(ncclResult_t error);
STUB_API void nccl_stub_version(int version);
/* The first n calls since the last reset; returns how many there were. */
STUB_API unsigned nccl_stub_calls(struct nccl_stub_call *calls, unsigned n);
STUB_API unsigned nccl_stub_count(const char *name);
/* Of the last communicator. */
STUB_API ncclConfig_t nccl_stub_config(void);
/* Communicators that there are. */
STUB_API unsigned nccl_stub_left(void);

#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_GPU_H
#define TESTS_CUDA_GPU_H

/* What programs for a GPU use of the CUDA runtime besides the port: the first GPU of this
 * machine.
 */

#include "engine/base/base.h"

#ifdef HAVE_NCCL
#include "engine/collective/nccl.h"
#include "engine/collective/collective.h"

#include <cuda_runtime_api.h>

#define GPU_CALLS(X)                                                                           \
	X(Free)                                                                                \
	X(Malloc)                                                                              \
	X(Memcpy)                                                                              \
	X(MemcpyAsync)                                                                         \
	X(StreamCreateWithFlags)                                                               \
	X(StreamDestroy)                                                                       \
	X(StreamSynchronize)

struct gpu {
	struct device *device; /* number 0 is in use */
	struct nccl nccl;
#define GPU_FIELD(name) __typeof__(&cuda##name) name;
	GPU_CALLS(GPU_FIELD)
#undef GPU_FIELD
};

/* NULL, or why there is no GPU, or no NCCL. */
const char *gpu_open(struct gpu *gpu);
void gpu_close(struct gpu *gpu);

/* These end the program, with a line, when they cannot. */
void *gpu_alloc(struct gpu *gpu, uint64_t size);
void gpu_free(struct gpu *gpu, void *memory);
void gpu_copy(struct gpu *gpu, void *to, const void *from, uint64_t size);
void *gpu_pinned(struct gpu *gpu, uint64_t size);
void gpu_unpin(struct gpu *gpu, void *memory);
_Noreturn void gpu_give_up(const char *what, const char *why);

/* An operation, and what has become of it. */
struct gpu_part {
	struct collective_io io;
	_Atomic int result; /* -EINPROGRESS: not over */
};

/* What launch says. */
int gpu_launch(struct collective *c, struct gpu_part *p);
int gpu_wait(struct gpu_part *p);
/* Until it is ready or has failed. */
int gpu_ready(struct collective *c);

#endif
#endif

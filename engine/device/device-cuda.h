/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_CUDA_H
#define ENGINE_DEVICE_DEVICE_CUDA_H

/* Internals of device-cuda.
 *
 *   request --- issue: a chunk at a time, ---> the port's stream ---> land: its oldest chunk
 *               |      requests in turn        ring of chunks,                |
 *               |                              each with its event            |
 *        pageable memory --> staging --> device    device --> staging --> pageable memory
 */

#include "engine/device/cuda.h"
#include "engine/device/device-queue.h"

#ifdef HAVE_CUDA
#include "engine/memory/arena.h"
#include "engine/memory/pinned.h"

#include <stdatomic.h>

enum { CUDA_RING = 16, CUDA_KERNELS = 7 };

struct cuda_chunk {
	struct device_io *io;
	void *staging; /* a pinned buffer; NULL: the device reaches both ends itself */
	uint64_t offset, size;
	cudaEvent_t ended;
};

struct device_event {
	SLIST_ENTRY(device_event) next; /* where idle */
	cudaEvent_t event;
	int number;
};

struct cuda_pool { /* all 0 where options.keep is 0 */
	cudaStream_t stream;
	cudaMemPool_t pool; /* NULL: the driver has no pools */
	void *piece;        /* allocated in place of a pool; NULL: there was no room */
	struct arena rooms; /* blocks of piece; under the port's lock */
	bool is_written;    /* a stream may still write piece; under the port's lock */
};

struct cuda_device { /* fields are the port's thread's unless they say otherwise */
	int number;
	cudaStream_t stream;
	struct pinned *staging;
	struct device_ios begun; /* requests with chunks to issue */
	struct cuda_chunk ring[CUDA_RING];
	unsigned oldest, under_way;
	uint64_t progress_ms; /* when the oldest chunk became the oldest */
	bool lost;            /* the device failed, or makes no progress */
	bool has_kernels;
	SLIST_HEAD(, device_event) idle; /* under the port's lock */
	uint64_t kept;                   /* bytes; under the port's lock */
	struct cuda_pool pool;
};

struct device {
	struct cuda cuda;
	struct device_options options;
	struct device_queue queue;
	pthread_mutex_t lock;
	int ndevices;
	struct cuda_device *_Atomic *devices; /* [ndevices]; NULL: not in use */
	void *kernels;                        /* cudaLibrary_t; NULL: none */
	const void *kernel[CUDA_KERNELS];
	struct device *left; /* closed before, with a lost device */
};

/* Returns the device of that number; NULL: there is none, or it is not in use. */
struct cuda_device *device_cuda_of(struct device *d, int number);

int device_cuda_where(struct device *d, const void *memory, struct device_where *where);

/* Between these calls the device is this thread's current one.  -EIO. */
int device_cuda_enter(struct device *d, int number, int *before);
void device_cuda_leave(struct device *d, int number, int before);

/* Makes the device current in a thread of the port's, and the thread's capture mode relaxed:
 * else a query of an event would spoil a graph that the trainer captures.  -EIO.
 */
int device_cuda_choose(struct device *d, int number);

/* ---- device-cuda-copy.c: the port's thread ---- */

void device_cuda_begin(struct device *d, struct device_io *io);
bool device_cuda_turn(struct device *d);

/* ---- device-cuda-events.c ---- */

int device_cuda_mark(struct device *d, int number, void *stream, struct device_event **event);
void device_cuda_unmark(struct device *d, struct device_event *event);
int device_cuda_passed(struct device *d, struct device_event *event);
int device_cuda_preserve(struct device *d, int number, void *stream, const void *from,
			 uint64_t size, void *to, struct device_kept **kept);
void device_cuda_release(struct device *d, struct device_kept *kept);
/* The port's thread: frees preserved memory once the stream has passed its last use. */
void device_cuda_let_go(struct device *d, struct device_io *io);
void device_cuda_events_free(struct device *d, struct cuda_device *dev);
/* Marks a stream of the current device that is not captured. */
int device_cuda_record(struct device *d, struct cuda_device *dev, cudaStream_t stream,
		       struct device_event **event);

/* ---- device-cuda-pool.c; the device is the current one ---- */

/* -ENOMEM.
 * -EIO.
 */
int device_cuda_pool_open(struct device *d, struct cuda_device *dev);
void device_cuda_pool_close(struct device *d, struct cuda_device *dev);
/* Takes kept->size bytes, which this stream may write from here on.
 * -ENOSPC: more than options.keep would be taken.
 * -ENOMEM.
 * -EIO.
 */
int device_cuda_pool_take(struct device *d, struct cuda_device *dev, cudaStream_t stream,
			  struct device_kept *kept);
/* Gives back a block that nobody reads any more. */
void device_cuda_pool_give(struct device *d, struct cuda_device *dev,
			   const struct device_kept *kept);
/* Gives back a block that failed to be written; the stream may still have a copy to it queued.
 */
void device_cuda_pool_drop(struct device *d, struct cuda_device *dev, cudaStream_t stream,
			   const struct device_kept *kept);
/* Any thread: returns the bytes that are taken. */
uint64_t device_cuda_pool_kept(struct device *d, struct cuda_device *dev);

/* ---- device-cuda-kernels.c ---- */

/* Loads the kernels for the current device, where there are any; the log says why there are
 * none.
 */
void device_cuda_kernels_prepare(struct device *d, struct cuda_device *dev);
void device_cuda_kernels_unload(struct device *d);
/* Enqueues io's kernel on the device's stream; partial: for sums, a staging buffer.
 * -EINVAL.
 * -EIO.
 */
int device_cuda_kernel_launch(struct device *d, struct cuda_device *dev,
			      const struct device_io *io, void *partial);
/* Adds up the sums that a kernel left in partial. */
void device_cuda_kernel_sum(const struct device_io *io, const void *partial);

#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/device/device-cuda.h"

#include <errno.h>

/* A device's memory for what is preserved: of a pool of the port's, in the order of a stream in
 * which nothing ever waits; where the driver has no pools, one piece that is taken when
 * training has not begun yet, since taking such memory later could wait for kernels that wait
 * for other ranks.
 *
 *   the pool's stream      --- take, event ---------------------------------- give ---
 *                                     |                                        |
 *   the trainer's stream   ------- wait, copy, event --- ...        once that event has passed
 *                                                                   and none reads the copy
 */

enum { ALIGN = 256 };
/* bytes that stay in the pool when the trainer synchronizes; the driver gets the rest back */
#define STAYS (UINT64_C(32) << 20)

static uint64_t stays(const struct device *d)
{
	return u64_min(d->options.keep, STAYS);
}

/* Allocates and frees once: this shows whether the pool works, and fills it with the bytes that
 * stay there.
 */
static int try_pool(struct device *d, struct cuda_pool *p)
{
	uint64_t threshold = stays(d);
	struct cuda *c = &d->cuda;
	void *memory;
	int rc = CUDA_CALL(c, MemPoolSetAttribute, p->pool, cudaMemPoolAttrReleaseThreshold,
			   &threshold);

	if (!rc)
		rc = CUDA_CALL(c, MallocFromPoolAsync, &memory, threshold, p->pool, p->stream);
	if (!rc)
		rc = CUDA_CALL(c, FreeAsync, memory, p->stream);
	return rc;
}

static bool make_pool(struct device *d, struct cuda_device *dev)
{
	const struct cudaMemPoolProps props = { .allocType = cudaMemAllocationTypePinned,
						.location = { .type = cudaMemLocationTypeDevice,
							      .id = dev->number } };
	struct cuda_pool *p = &dev->pool;
	struct cuda *c = &d->cuda;
	int has = 0;

	if (CUDA_CALL(c, DeviceGetAttribute, &has, cudaDevAttrMemoryPoolsSupported,
		      dev->number) ||
	    !has || CUDA_CALL(c, MemPoolCreate, &p->pool, &props))
		return false;
	if (!try_pool(d, p))
		return true;
	CUDA_CALL(c, MemPoolDestroy, p->pool);
	p->pool = NULL;
	return false;
}

/* A device without room for the piece keeps nothing. */
static int make_piece(struct device *d, struct cuda_device *dev)
{
	const struct arena_options options = { .size = d->options.keep / ALIGN * ALIGN,
					       .align = ALIGN };
	struct cuda_pool *p = &dev->pool;
	int rc;

	if (!options.size || CUDA_CALL(&d->cuda, Malloc, &p->piece, options.size))
		return 0;
	rc = arena_init(&p->rooms, &options);
	if (!rc) {
		log_info("device %d has no memory pools: %llu bytes of it are taken at once",
			 dev->number, (unsigned long long)options.size);
		return 0;
	}
	CUDA_CALL(&d->cuda, Free, p->piece);
	p->piece = NULL;
	return rc;
}

int device_cuda_pool_open(struct device *d, struct cuda_device *dev)
{
	struct cuda *c = &d->cuda;
	int rc;

	if (!d->options.keep)
		return 0;
	rc = CUDA_CALL(c, StreamCreateWithFlags, &dev->pool.stream, cudaStreamNonBlocking);
	if (rc || make_pool(d, dev))
		return rc;
	rc = make_piece(d, dev);
	if (rc)
		CUDA_CALL(c, StreamDestroy, dev->pool.stream);
	return rc;
}

void device_cuda_pool_close(struct device *d, struct cuda_device *dev)
{
	struct cuda_pool *p = &dev->pool;
	struct cuda *c = &d->cuda;

	if (!d->options.keep)
		return;
	if (p->pool)
		CUDA_CALL(c, MemPoolDestroy, p->pool);
	if (p->piece && !p->is_written) /* cudaFree waits for what the stream writes */
		CUDA_CALL(c, Free, p->piece);
	if (p->piece)
		arena_fini(&p->rooms);
	CUDA_CALL(c, StreamDestroy, p->stream);
}

/* ---- taking and giving ---- */

/* Lets the stream wait for the allocation, which has been made: nothing waits in the pool's
 * stream.
 */
static int follow(struct device *d, struct cuda_device *dev, cudaStream_t stream)
{
	struct device_event *taken;
	int rc = device_cuda_record(d, dev, dev->pool.stream, &taken);

	if (rc)
		return rc;
	rc = CUDA_CALL(&d->cuda, StreamWaitEvent, stream, taken->event, 0);
	device_cuda_unmark(d, taken);
	return rc;
}

static int take_of_pool(struct device *d, struct cuda_device *dev, cudaStream_t stream,
			struct device_kept *kept)
{
	struct cuda_pool *p = &dev->pool;
	struct cuda *c = &d->cuda;
	int rc = cuda_errno(
		c, c->MallocFromPoolAsync(&kept->memory, kept->size, p->pool, p->stream));

	if (rc)
		return rc;
	rc = follow(d, dev, stream);
	if (rc)
		CUDA_CALL(c, FreeAsync, kept->memory, p->stream);
	return rc;
}

/* A room that is free has no reader, and its last user's event has passed: it can be reused at
 * once, by any stream.
 */
static int take_of_piece(struct device *d, struct cuda_device *dev, struct device_kept *kept)
{
	struct cuda_pool *p = &dev->pool;
	uint64_t at, run;
	int rc = -ENOMEM;

	pthread_mutex_lock(&d->lock);
	if (p->piece)
		rc = arena_alloc(&p->rooms, kept->size, &kept->port);
	if (!rc) {
		arena_find(&p->rooms, kept->port, 0, &at, &run);
		kept->memory = (uint8_t *)p->piece + at;
	}
	pthread_mutex_unlock(&d->lock);
	return rc == -EAGAIN ? -ENOSPC : rc;
}

static int reserve(struct device *d, struct cuda_device *dev, uint64_t size)
{
	int rc = 0;

	pthread_mutex_lock(&d->lock);
	if (size > d->options.keep - dev->kept)
		rc = -ENOSPC;
	else
		dev->kept += size;
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static void unreserve(struct device *d, struct cuda_device *dev, uint64_t size)
{
	pthread_mutex_lock(&d->lock);
	dev->kept -= size;
	pthread_mutex_unlock(&d->lock);
}

int device_cuda_pool_take(struct device *d, struct cuda_device *dev, cudaStream_t stream,
			  struct device_kept *kept)
{
	int rc = reserve(d, dev, kept->size);

	if (rc)
		return rc;
	rc = dev->pool.pool ? take_of_pool(d, dev, stream, kept) : take_of_piece(d, dev, kept);
	if (rc)
		unreserve(d, dev, kept->size);
	else
		kept->number = dev->number;
	return rc;
}

static void give_to_pool(struct device *d, struct cuda_pool *p, const struct device_kept *kept)
{
	struct cuda *c = &d->cuda;

	if (!CUDA_CALL(c, StreamWaitEvent, p->stream, kept->written->event, 0))
		CUDA_CALL(c, FreeAsync, kept->memory, p->stream);
}

static void give_to_piece(struct device *d, struct cuda_pool *p, const struct device_kept *kept)
{
	bool passed = d->cuda.EventQuery(kept->written->event) == cudaSuccess;

	d->cuda.GetLastError();
	pthread_mutex_lock(&d->lock);
	if (passed)
		arena_release(&p->rooms, kept->port);
	p->is_written |= !passed;
	pthread_mutex_unlock(&d->lock);
}

void device_cuda_pool_give(struct device *d, struct cuda_device *dev,
			   const struct device_kept *kept)
{
	if (dev->pool.pool)
		give_to_pool(d, &dev->pool, kept);
	else
		give_to_piece(d, &dev->pool, kept);
	unreserve(d, dev, kept->size);
}

void device_cuda_pool_drop(struct device *d, struct cuda_device *dev, cudaStream_t stream,
			   const struct device_kept *kept)
{
	struct cuda_pool *p = &dev->pool;
	struct cuda *c = &d->cuda;

	if (p->pool)
		CUDA_CALL(c, FreeAsync, kept->memory, stream);
	pthread_mutex_lock(&d->lock);
	p->is_written |= !p->pool;
	dev->kept -= p->pool ? kept->size : 0;
	pthread_mutex_unlock(&d->lock);
}

uint64_t device_cuda_pool_kept(struct device *d, struct cuda_device *dev)
{
	uint64_t kept;

	pthread_mutex_lock(&d->lock);
	kept = dev->kept;
	pthread_mutex_unlock(&d->lock);
	return kept;
}

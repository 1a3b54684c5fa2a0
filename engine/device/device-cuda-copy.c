/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/device/device-cuda.h"
#include "engine/device/device-sums.h"

#include <errno.h>
#include <string.h>

/* Requests take turns, a chunk each, so that a small one does not wait for a large one. */

static bool is_copy(const struct device_io *io)
{
	return io->what == DEVICE_COPY;
}

/* ---- beginning ---- */

enum side { SIDE_DEVICE, SIDE_PINNED, SIDE_PAGEABLE };

static int look_at(struct device *d, const struct device_io *io, const void *at,
		   enum side *side)
{
	struct device_where where;
	int rc = device_cuda_where(d, at, &where);

	if (rc)
		return rc;
	if (where.number != DEVICE_NONE && where.number != io->number)
		return -EFAULT;
	if (where.number != DEVICE_NONE)
		*side = SIDE_DEVICE;
	else
		*side = where.pinned ? SIDE_PINNED : SIDE_PAGEABLE;
	return 0;
}

/* The runtime knows of addresses, not of ranges: looks at the first byte and the last. */
static int look_at_range(struct device *d, const struct device_io *io, const void *at,
			 uint64_t size, enum side *side)
{
	const uint8_t *start = at;
	enum side last;
	int rc = look_at(d, io, start, side);

	if (!rc)
		rc = look_at(d, io, start + size - 1, &last);
	return rc || last == *side ? rc : -EFAULT;
}

static int look_at_copy(struct device *d, struct device_io *io)
{
	enum side from, to;
	int rc = look_at_range(d, io, io->from, io->size, &from);

	if (!rc)
		rc = look_at_range(d, io, io->to, io->size, &to);
	if (rc)
		return rc;
	io->port.from_pageable = from == SIDE_PAGEABLE;
	io->port.to_pageable = to == SIDE_PAGEABLE;
	return from == SIDE_DEVICE || to == SIDE_DEVICE ? 0 : -EFAULT;
}

static int look_at_memory(struct device *d, struct device_io *io)
{
	uint64_t from, to;
	enum side side = SIDE_DEVICE;
	int rc = 0;

	device_queue_sizes(io, &from, &to);
	if (from)
		rc = look_at_range(d, io, io->from, from, &side);
	if (!rc && to && side == SIDE_DEVICE)
		rc = look_at_range(d, io, io->to, to, &side);
	return rc || side == SIDE_DEVICE ? rc : -EFAULT;
}

static int prepare(struct device *d, struct cuda_device *dev, struct device_io *io)
{
	if (!dev)
		return -EINVAL;
	if (dev->lost)
		return -EIO;
	if (device_cuda_choose(d, dev->number))
		return -EIO;
	if (!is_copy(io) && !dev->has_kernels)
		return -ENOSYS;
	if (!io->size)
		return 0;
	return is_copy(io) ? look_at_copy(d, io) : look_at_memory(d, io);
}

/* Ends a request of size 0 without the device. */
static void end_empty(struct device_io *io)
{
	if (device_is_sums(io->what))
		device_sums_init(io->to);
	io->done(io, 0);
}

void device_cuda_begin(struct device *d, struct device_io *io)
{
	struct cuda_device *dev = device_cuda_of(d, io->number);
	int rc;

	if (io->what == DEVICE_RELEASE) {
		device_cuda_let_go(d, io);
		io->done(io, 0);
		return;
	}
	io->port.issued = 0;
	io->port.under_way = 0;
	io->port.result = 0;
	io->port.from_pageable = io->port.to_pageable = false;
	rc = prepare(d, dev, io);
	if (rc)
		io->done(io, rc);
	else if (!io->size)
		end_empty(io);
	else
		STAILQ_INSERT_TAIL(&dev->begun, io, port.next);
}

/* ---- issuing ---- */

static bool needs_staging(const struct device_io *io)
{
	return io->port.from_pageable || io->port.to_pageable || device_is_sums(io->what);
}

static int issue_copy(struct device *d, struct cuda_device *dev, struct cuda_chunk *c)
{
	const uint8_t *from = (const uint8_t *)c->io->from + c->offset;
	uint8_t *to = (uint8_t *)c->io->to + c->offset;

	if (c->io->port.from_pageable) {
		memcpy(c->staging, from, c->size);
		from = c->staging;
	}
	if (c->io->port.to_pageable)
		to = c->staging;
	return CUDA_CALL(&d->cuda, MemcpyAsync, to, from, c->size, cudaMemcpyDefault,
			 dev->stream);
}

static int issue(struct device *d, struct cuda_device *dev, struct cuda_chunk *c)
{
	return is_copy(c->io) ? issue_copy(d, dev, c)
			      : device_cuda_kernel_launch(d, dev, c->io, c->staging);
}

static void put_staging(struct cuda_device *dev, struct cuda_chunk *c)
{
	if (c->staging)
		pinned_put(dev->staging, c->staging);
	c->staging = NULL;
}

/* -EAGAIN: all staging buffers are under way. */
static int cut(struct device *d, struct cuda_device *dev, struct device_io *io,
	       struct cuda_chunk *c)
{
	uint64_t left = io->size - io->port.issued;

	c->io = io;
	c->offset = io->port.issued;
	c->size = is_copy(io) ? u64_min(left, d->options.chunk) : left;
	c->staging = NULL;
	return needs_staging(io) ? pinned_get(dev->staging, 0, &c->staging) : 0;
}

static void lose(struct cuda_device *dev, const char *why)
{
	if (!dev->lost)
		log_error("device %d is given up: %s", dev->number, why);
	dev->lost = true;
}

static bool all_landed(const struct device_io *io)
{
	return !io->port.under_way && (io->port.result || io->port.issued == io->size);
}

static void end_if_landed(struct device_io *io)
{
	if (all_landed(io))
		io->done(io, io->port.result);
}

/* The runtime refused the chunk, and nothing of it is on the stream.  -EINVAL: the memory was
 * freed since; that is the request's error alone.
 */
static void refuse(struct cuda_device *dev, struct cuda_chunk *c, int rc)
{
	put_staging(dev, c);
	if (rc != -EINVAL) {
		lose(dev, "it does not take requests");
		return;
	}
	STAILQ_REMOVE_HEAD(&dev->begun, port.next);
	c->io->port.result = -EFAULT;
	end_if_landed(c->io);
}

static void put_on_stream(struct device *d, struct cuda_device *dev, struct cuda_chunk *c)
{
	struct device_io *io = c->io;

	if (CUDA_CALL(&d->cuda, EventRecord, c->ended, dev->stream))
		lose(dev, "it does not take events");
	if (!dev->under_way++)
		dev->progress_ms = monotonic_ms();
	io->port.issued += c->size;
	io->port.under_way++;
	STAILQ_REMOVE_HEAD(&dev->begun, port.next);
	if (io->port.issued < io->size)
		STAILQ_INSERT_TAIL(&dev->begun, io, port.next);
}

/* Issues a chunk of the first request.  -EAGAIN: no staging buffer. */
static int issue_one(struct device *d, struct cuda_device *dev)
{
	struct cuda_chunk *c = &dev->ring[(dev->oldest + dev->under_way) % CUDA_RING];
	int rc = cut(d, dev, STAILQ_FIRST(&dev->begun), c);

	if (rc)
		return rc;
	rc = issue(d, dev, c);
	if (rc)
		refuse(dev, c, rc);
	else
		put_on_stream(d, dev, c);
	return 0;
}

static void issue_some(struct device *d, struct cuda_device *dev)
{
	while (!STAILQ_EMPTY(&dev->begun) && dev->under_way < CUDA_RING && !dev->lost)
		if (issue_one(d, dev))
			return;
}

/* ---- landing ---- */

static struct cuda_chunk *take_oldest(struct cuda_device *dev)
{
	struct cuda_chunk *c = &dev->ring[dev->oldest];

	dev->oldest = (dev->oldest + 1) % CUDA_RING;
	dev->under_way--;
	c->io->port.under_way--;
	return c;
}

static void land(struct cuda_device *dev)
{
	struct cuda_chunk *c = take_oldest(dev);
	struct device_io *io = c->io;

	if (device_is_sums(io->what))
		device_cuda_kernel_sum(io, c->staging);
	else if (io->port.to_pageable)
		memcpy((uint8_t *)io->to + c->offset, c->staging, c->size);
	put_staging(dev, c);
	dev->progress_ms = monotonic_ms();
	end_if_landed(io);
}

/* Lands the oldest chunk.  -EAGAIN: the chunk is still under way. */
static int land_one(struct device *d, struct cuda_device *dev)
{
	cudaError_t error;

	if (!dev->under_way)
		return -EAGAIN;
	error = d->cuda.EventQuery(dev->ring[dev->oldest].ended);
	if (error == cudaSuccess) {
		land(dev);
		return 0;
	}
	if (error != cudaErrorNotReady)
		lose(dev, d->cuda.GetErrorString(error));
	else if (monotonic_ms() - dev->progress_ms >= d->options.stuck_ms)
		lose(dev, "it does not go on");
	return cuda_errno(&d->cuda, error);
}

/* Staging buffers are not put back: a lost device may still write there. */
static void drop_all(struct cuda_device *dev)
{
	struct device_ios over = STAILQ_HEAD_INITIALIZER(over);
	struct device_io *io;

	while (dev->under_way) {
		io = take_oldest(dev)->io;
		if (all_landed(io))
			STAILQ_INSERT_TAIL(&over, io, port.next);
	}
	STAILQ_CONCAT(&over, &dev->begun);
	while ((io = STAILQ_TAKE(&over, port.next)))
		io->done(io, -EIO);
}

static bool turn_device(struct device *d, struct cuda_device *dev)
{
	if (!dev->under_way && STAILQ_EMPTY(&dev->begun))
		return false;
	if (device_cuda_choose(d, dev->number))
		lose(dev, "it cannot be chosen");
	do
		issue_some(d, dev);
	while (!dev->lost && !land_one(d, dev));
	if (dev->lost)
		drop_all(dev);
	return dev->under_way || !STAILQ_EMPTY(&dev->begun);
}

bool device_cuda_turn(struct device *d)
{
	bool more = false;

	for (int i = 0; i < d->ndevices; i++) {
		struct cuda_device *dev = device_cuda_of(d, i);

		more |= dev && turn_device(d, dev);
	}
	return more;
}

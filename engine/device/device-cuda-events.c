/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/device/device-cuda.h"

#include <errno.h>

/* Events and copies on the trainer's streams. */

/* ---- events ---- */

static struct device_event *take_idle(struct device *d, struct cuda_device *dev)
{
	struct device_event *e;

	pthread_mutex_lock(&d->lock);
	e = SLIST_FIRST(&dev->idle);
	if (e)
		SLIST_REMOVE_HEAD(&dev->idle, next);
	pthread_mutex_unlock(&d->lock);
	return e;
}

static void make_idle(struct device *d, struct device_event *e)
{
	struct cuda_device *dev = device_cuda_of(d, e->number);

	pthread_mutex_lock(&d->lock);
	SLIST_INSERT_HEAD(&dev->idle, e, next);
	pthread_mutex_unlock(&d->lock);
}

static int new_event(struct device *d, int number, struct device_event **out)
{
	struct device_event *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return -ENOMEM;
	e->number = number;
	rc = CUDA_CALL(&d->cuda, EventCreateWithFlags, &e->event, cudaEventDisableTiming);
	if (rc) {
		free(e);
		return rc;
	}
	*out = e;
	return 0;
}

void device_cuda_events_free(struct device *d, struct cuda_device *dev)
{
	struct device_event *e;

	while ((e = take_idle(d, dev))) {
		d->cuda.EventDestroy(e->event);
		free(e);
	}
}

/* An event captured into a graph is recorded when the graph is launched, if ever. */
static int check_capture(struct device *d, cudaStream_t stream)
{
	enum cudaStreamCaptureStatus status;
	cudaError_t error = d->cuda.StreamIsCapturing(stream, &status);
	int rc;

	/* another stream is being captured, and the default stream would join it */
	if (error == cudaErrorStreamCaptureImplicit) {
		d->cuda.GetLastError();
		return -EBUSY;
	}
	rc = cuda_result(&d->cuda, "cudaStreamIsCapturing", error);
	if (rc)
		return rc;
	return status == cudaStreamCaptureStatusNone ? 0 : -EBUSY;
}

int device_cuda_record(struct device *d, struct cuda_device *dev, cudaStream_t stream,
		       struct device_event **out)
{
	struct device_event *e = take_idle(d, dev);
	int rc = e ? 0 : new_event(d, dev->number, &e);

	if (rc)
		return rc;
	rc = CUDA_CALL(&d->cuda, EventRecord, e->event, stream);
	if (rc)
		make_idle(d, e);
	else
		*out = e;
	return rc;
}

int device_cuda_mark(struct device *d, int number, void *stream, struct device_event **event)
{
	struct cuda_device *dev = device_cuda_of(d, number);
	int before, rc;

	if (!dev)
		return -EINVAL;
	rc = device_cuda_enter(d, number, &before);
	if (rc)
		return rc;
	rc = check_capture(d, stream);
	if (!rc)
		rc = device_cuda_record(d, dev, stream, event);
	device_cuda_leave(d, number, before);
	return rc;
}

void device_cuda_unmark(struct device *d, struct device_event *event)
{
	make_idle(d, event);
}

int device_cuda_passed(struct device *d, struct device_event *event)
{
	cudaError_t error;

	if (device_cuda_choose(d, event->number))
		return -EIO;
	error = d->cuda.EventQuery(event->event);
	return error == cudaErrorNotReady ? cuda_errno(&d->cuda, error)
					  : cuda_result(&d->cuda, "cudaEventQuery", error);
}

/* ---- what is preserved ---- */

struct keeping {
	struct device_kept kept;
	struct device_io release;
	struct device *device;
};

/* Enqueues the copy and its event; a copy whose event failed stays on the stream. */
static int copy_kept(struct device *d, struct cuda_device *dev, cudaStream_t stream,
		     const void *from, struct device_kept *kept)
{
	int rc = CUDA_CALL(&d->cuda, MemcpyAsync, kept->memory, from, kept->size,
			   cudaMemcpyDefault, stream);

	return rc ? rc : device_cuda_record(d, dev, stream, &kept->written);
}

/* The device is the current one. */
static int enqueue(struct device *d, struct cuda_device *dev, cudaStream_t stream,
		   const void *from, struct device_kept *kept)
{
	int rc = check_capture(d, stream);

	if (!rc && !kept->memory)
		rc = device_cuda_pool_take(d, dev, stream, kept);
	if (rc)
		return rc;
	rc = copy_kept(d, dev, stream, from, kept);
	if (rc && kept->number != DEVICE_NONE)
		device_cuda_pool_drop(d, dev, stream, kept);
	return rc;
}

/* A copy to pageable memory would make this call wait for the stream. */
static int check_pinned(struct device *d, const void *to)
{
	struct device_where where;
	int rc = device_cuda_where(d, to, &where);

	return rc || where.pinned ? rc : -EINVAL;
}

static int preserve_entered(struct device *d, struct cuda_device *dev, void *stream,
			    const void *from, struct device_kept *kept)
{
	int before, rc = device_cuda_enter(d, dev->number, &before);

	if (rc)
		return rc;
	rc = kept->memory ? check_pinned(d, kept->memory) : 0;
	if (!rc)
		rc = enqueue(d, dev, stream, from, kept);
	device_cuda_leave(d, dev->number, before);
	return rc;
}

int device_cuda_preserve(struct device *d, int number, void *stream, const void *from,
			 uint64_t size, void *to, struct device_kept **kept)
{
	struct cuda_device *dev = device_cuda_of(d, number);
	struct keeping *k;
	int rc;

	if (!dev || !size)
		return -EINVAL;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->device = d;
	k->kept = (struct device_kept){ .number = DEVICE_NONE, .memory = to, .size = size };
	rc = preserve_entered(d, dev, stream, from, &k->kept);
	if (rc)
		free(k);
	else
		*kept = &k->kept;
	return rc;
}

static void released(struct device_io *io, int result)
{
	struct keeping *k = container_of(io, struct keeping, release);

	make_idle(k->device, k->kept.written);
	free(k);
}

void device_cuda_release(struct device *d, struct device_kept *kept)
{
	struct keeping *k = container_of(kept, struct keeping, kept);

	k->release = (struct device_io){ .what = DEVICE_RELEASE,
					 .number = kept->written->number,
					 .after = kept->written,
					 .wait_ms = UINT64_MAX,
					 .done = released };
	device_queue_submit(&d->queue, &k->release);
}

/* The stream is past the copy, unless the port closes before that. */
void device_cuda_let_go(struct device *d, struct device_io *io)
{
	struct device_kept *kept = &container_of(io, struct keeping, release)->kept;
	struct cuda_device *dev = device_cuda_of(d, io->number);

	if (kept->number != DEVICE_NONE && !dev->lost && !device_cuda_choose(d, dev->number))
		device_cuda_pool_give(d, dev, kept);
}

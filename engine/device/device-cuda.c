/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/device/device-cuda.h"

#include <errno.h>
#include <string.h>

/* ---- devices ---- */

struct cuda_device *device_cuda_of(struct device *d, int number)
{
	if (number < 0 || number >= d->ndevices)
		return NULL;
	return atomic_load_explicit(&d->devices[number], memory_order_acquire);
}

int device_cuda_enter(struct device *d, int number, int *before)
{
	int rc = CUDA_CALL(&d->cuda, GetDevice, before);

	if (rc || *before == number)
		return rc;
	return CUDA_CALL(&d->cuda, SetDevice, number);
}

void device_cuda_leave(struct device *d, int number, int before)
{
	if (before != number)
		CUDA_CALL(&d->cuda, SetDevice, before);
}

int device_cuda_choose(struct device *d, int number)
{
	static _Thread_local bool relaxed;
	enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
	int rc = CUDA_CALL(&d->cuda, SetDevice, number);

	if (rc || relaxed)
		return rc ? -EIO : 0;
	rc = CUDA_CALL(&d->cuda, ThreadExchangeStreamCaptureMode, &mode);
	relaxed = !rc;
	return rc ? -EIO : 0;
}

static int make_ring(struct device *d, struct cuda_device *dev)
{
	struct cuda *c = &d->cuda;
	int rc = 0;

	for (unsigned i = 0; i < CUDA_RING && !rc; i++)
		rc = CUDA_CALL(c, EventCreateWithFlags, &dev->ring[i].ended,
			       cudaEventDisableTiming);
	return rc;
}

static void free_ring(struct device *d, struct cuda_device *dev)
{
	for (unsigned i = 0; i < CUDA_RING && dev->ring[i].ended; i++)
		d->cuda.EventDestroy(dev->ring[i].ended);
}

/* Returns the staging buffers' memory: at most 1 GiB, and so one slab. */
static void *slab_of(const struct pinned *staging, uint64_t *size)
{
	struct iovec slab;
	unsigned n = pinned_slabs(staging, &slab);

	assert(n == 1);
	*size = slab.iov_len;
	return slab.iov_base;
}

/* Returns the NUMA node of the host next to the device; -1: it is not known. */
static int node_of(const struct cuda *c, const struct cuda_device *dev)
{
	int node = -1;

#if CUDART_VERSION >= 12020
	if (cuda_errno(c, c->DeviceGetAttribute(&node, cudaDevAttrHostNumaId, dev->number)))
		return -1; /* the runtime is older than the header */
#endif
	return node;
}

static int make_staging(struct device *d, struct cuda_device *dev)
{
	int node = node_of(&d->cuda, dev);
	const struct pinned_options options = { .size = d->options.chunk,
						.count = d->options.chunks,
						.on_node = node >= 0,
						.node = node < 0 ? 0 : (unsigned)node,
						.locked_by_user = true };
	struct cuda *c = &d->cuda;
	uint64_t size;
	void *slab;
	int rc = pinned_open(&options, &dev->staging);

	if (rc)
		return rc;
	slab = slab_of(dev->staging, &size);
	rc = CUDA_CALL(c, HostRegister, slab, size,
		       cudaHostRegisterPortable | cudaHostRegisterMapped);
	if (rc)
		pinned_close(dev->staging);
	return rc;
}

static void free_staging(struct device *d, struct cuda_device *dev)
{
	uint64_t size;

	d->cuda.HostUnregister(slab_of(dev->staging, &size));
	pinned_close(dev->staging);
}

/* The caller has made `dev` the current device. */
static int make_device(struct device *d, struct cuda_device *dev)
{
	int rc = cuda_make_stream(&d->cuda, &dev->stream);

	if (rc)
		return rc;
	rc = make_ring(d, dev);
	if (rc)
		goto ring;
	rc = device_cuda_pool_open(d, dev);
	if (rc)
		goto ring;
	rc = make_staging(d, dev);
	if (rc)
		goto pool;
	device_cuda_kernels_prepare(d, dev);
	return 0;
pool:
	device_cuda_pool_close(d, dev);
ring:
	free_ring(d, dev);
	d->cuda.StreamDestroy(dev->stream);
	return rc;
}

static int make_entered(struct device *d, struct cuda_device *dev)
{
	int before, rc = device_cuda_enter(d, dev->number, &before);

	if (rc)
		return rc;
	rc = make_device(d, dev);
	device_cuda_leave(d, dev->number, before);
	return rc;
}

static int cuda_use(struct device *d, int number)
{
	struct cuda_device *dev;
	int rc;

	if (number < 0 || number >= d->ndevices)
		return -EINVAL;
	if (device_cuda_of(d, number))
		return 0;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return -ENOMEM;
	dev->number = number;
	STAILQ_INIT(&dev->begun);
	rc = make_entered(d, dev);
	if (rc) {
		free(dev);
		return rc;
	}
	/* pairs with device_cuda_of: other threads find the device whole */
	atomic_store_explicit(&d->devices[number], dev, memory_order_release);
	return 0;
}

static void free_device(struct device *d, struct cuda_device *dev)
{
	int before;
	bool entered = !device_cuda_enter(d, dev->number, &before);

	device_cuda_kernels_unload(d); /* one library has the kernels of all devices */
	device_cuda_events_free(d, dev);
	free_ring(d, dev);
	free_staging(d, dev);
	device_cuda_pool_close(d, dev);
	d->cuda.StreamDestroy(dev->stream);
	if (entered)
		device_cuda_leave(d, dev->number, before);
	free(dev);
}

/* ---- memory ---- */

int device_cuda_where(struct device *d, const void *memory, struct device_where *where)
{
	union {
		struct cudaPointerAttributes a;
		char of_later_runtimes[256];
	} u = { 0 };
	int rc = CUDA_CALL(&d->cuda, PointerGetAttributes, &u.a, memory);
	bool there = u.a.type == cudaMemoryTypeDevice || u.a.type == cudaMemoryTypeManaged;

	if (rc)
		return rc;
	*where = (struct device_where){ there ? u.a.device : DEVICE_NONE,
					u.a.type == cudaMemoryTypeHost };
	return 0;
}

static int cuda_pin(struct device *d, void *memory, uint64_t size)
{
	return CUDA_CALL(&d->cuda, HostRegister, memory, size, cudaHostRegisterPortable);
}

static void cuda_unpin(struct device *d, void *memory)
{
	CUDA_CALL(&d->cuda, HostUnregister, memory);
}

/* ---- the port ---- */

static const struct device_queue_ops queue_ops = {
	.passed = device_cuda_passed,
	.begin = device_cuda_begin,
	.turn = device_cuda_turn,
};

static void say_why(struct device *d, cudaError_t error)
{
	int version = 0;

	d->cuda.DriverGetVersion(&version);
	if (!version)
		log_warn("no CUDA devices: no driver");
	else if (error == cudaErrorInsufficientDriver)
		log_warn("no CUDA devices: the driver, for CUDA %d.%d, is too old for the "
			 "runtime",
			 version / 1000, version % 1000 / 10);
	else if (error != cudaSuccess)
		log_warn("no CUDA devices: %s", d->cuda.GetErrorString(error));
	else
		log_warn("no CUDA devices");
	d->cuda.GetLastError();
}

static int count_devices(struct device *d)
{
	cudaError_t error = d->cuda.GetDeviceCount(&d->ndevices);

	if (error == cudaSuccess && d->ndevices > 0)
		return 0;
	say_why(d, error);
	return -ENODEV;
}

static int make_port(struct device *d)
{
	int rc = count_devices(d);

	if (rc)
		return rc;
	d->devices = calloc((size_t)d->ndevices, sizeof(*d->devices));
	if (!d->devices)
		return -ENOMEM;
	pthread_mutex_init(&d->lock, NULL);
	rc = device_queue_start(&d->queue, &queue_ops, d, d->options.wait_ms);
	if (rc) {
		pthread_mutex_destroy(&d->lock);
		free(d->devices);
	}
	return rc;
}

static int cuda_open(struct device **out, const struct device_options *options)
{
	struct device_options checked = *options;
	struct device *d;
	int rc = device_options_check(&checked);

	if (rc)
		return rc;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->options = checked;
	rc = cuda_load(&d->cuda, checked.library);
	if (!rc)
		rc = make_port(d);
	if (rc)
		free(d);
	else
		*out = d;
	return rc;
}

/* A lost device may still write to memory that it was given: close frees nothing then. */
static bool is_any_lost(struct device *d)
{
	bool lost = false;

	for (int i = 0; i < d->ndevices; i++) {
		struct cuda_device *dev = device_cuda_of(d, i);

		lost |= dev && dev->lost;
	}
	return lost;
}

static void leave_behind(struct device *d)
{
	static struct device *_Atomic left;

	log_warn("a device does not answer: what it was given stays, %u buffers of %llu bytes",
		 d->options.chunks, (unsigned long long)d->options.chunk);
	d->left = atomic_exchange(&left, d);
}

static void cuda_close(struct device *d)
{
	device_queue_stop(&d->queue);
	if (is_any_lost(d)) {
		leave_behind(d);
		return;
	}
	for (int i = 0; i < d->ndevices; i++)
		if (device_cuda_of(d, i))
			free_device(d, device_cuda_of(d, i));
	pthread_mutex_destroy(&d->lock);
	free(d->devices);
	free(d);
}

/* Between these calls the device is the thread's current one, and a graph that another thread
 * captures is not spoilt by calls that may wait.
 */
static int begin_memory(struct device *d, int number, int *before,
			enum cudaStreamCaptureMode *mode)
{
	int rc = device_cuda_enter(d, number, before);

	*mode = cudaStreamCaptureModeRelaxed;
	if (rc)
		return rc;
	rc = CUDA_CALL(&d->cuda, ThreadExchangeStreamCaptureMode, mode);
	if (rc)
		device_cuda_leave(d, number, *before);
	return rc;
}

static void end_memory(struct device *d, int number, int before,
		       enum cudaStreamCaptureMode mode)
{
	CUDA_CALL(&d->cuda, ThreadExchangeStreamCaptureMode, &mode);
	device_cuda_leave(d, number, before);
}

static int cuda_alloc(struct device *d, int number, uint64_t size, void **memory)
{
	enum cudaStreamCaptureMode mode;
	int before, rc;

	if (!size || !device_cuda_of(d, number))
		return -EINVAL;
	rc = begin_memory(d, number, &before, &mode);
	if (rc)
		return rc;
	rc = cuda_errno(&d->cuda, d->cuda.Malloc(memory, size));
	end_memory(d, number, before, mode);
	return rc;
}

static void cuda_free(struct device *d, int number, void *memory)
{
	enum cudaStreamCaptureMode mode;
	int before;

	if (begin_memory(d, number, &before, &mode))
		return;
	CUDA_CALL(&d->cuda, Free, memory);
	end_memory(d, number, before, mode);
}

static void cuda_submit(struct device *d, struct device_io *io)
{
	device_queue_submit(&d->queue, io);
}

static void cuda_figures(struct device *d, struct device_figures *f)
{
	*f = (struct device_figures){ 0 };
	for (int i = 0; i < d->ndevices; i++) {
		struct cuda_device *dev = device_cuda_of(d, i);

		f->kept += dev ? device_cuda_pool_kept(d, dev) : 0;
	}
}

const struct device_ops device_cuda = {
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.use = cuda_use,
	.where = device_cuda_where,
	.pin = cuda_pin,
	.unpin = cuda_unpin,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.mark = device_cuda_mark,
	.unmark = device_cuda_unmark,
	.preserve = device_cuda_preserve,
	.release = device_cuda_release,
	.submit = cuda_submit,
	.figures = cuda_figures,
};

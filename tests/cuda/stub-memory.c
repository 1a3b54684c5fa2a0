/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/stub.h"

#include <pthread.h>
#include <string.h>

/* Memory is ordinary; the table says whose it is. */

struct range {
	struct range *next;
	uint8_t *start;
	uint64_t size;
	int device; /* -1: registered host memory */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;

/* Under lock. */
static struct range *find(const void *at, uint64_t size)
{
	uintptr_t a = (uintptr_t)at;

	for (struct range *r = ranges; r; r = r->next) {
		uintptr_t start = (uintptr_t)r->start;

		if (a >= start && a - start < r->size && size <= r->size - (a - start))
			return r;
	}
	return NULL;
}

enum whose { ON_DEVICE, REGISTERED, PAGEABLE };

static enum whose look(const void *at, uint64_t size, int *device)
{
	enum whose whose = PAGEABLE;
	struct range *r;

	pthread_mutex_lock(&lock);
	r = find(at, size);
	if (r) {
		whose = r->device < 0 ? REGISTERED : ON_DEVICE;
		*device = r->device;
	}
	pthread_mutex_unlock(&lock);
	return whose;
}

static void add(void *start, uint64_t size, int device)
{
	struct range *r = malloc(sizeof(*r));

	pthread_mutex_lock(&lock);
	*r = (struct range){ ranges, start, size, device };
	ranges = r;
	pthread_mutex_unlock(&lock);
}

/* Whether there is such a range. */
static bool drop(const void *start)
{
	struct range **at, *found;

	pthread_mutex_lock(&lock);
	for (at = &ranges; *at && (*at)->start != start;)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&lock);
	free(found);
	return found;
}

/* ---- whose it is ---- */

STUB_API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *at)
{
	cudaError_t error = stub_enter("PointerGetAttributes", NULL, 0, false);
	int device = 0;

	if (error != cudaSuccess)
		return error;
	memset(a, 0, sizeof(*a));
	switch (look(at, 1, &device)) {
	case ON_DEVICE:
		a->type = cudaMemoryTypeDevice;
		a->device = device;
		break;
	case REGISTERED:
		a->type = cudaMemoryTypeHost;
		break;
	default:
		a->type = cudaMemoryTypeUnregistered;
		a->device = -2;
	}
	return cudaSuccess;
}

STUB_API cudaError_t cudaHostRegister(void *at, size_t size, unsigned flags)
{
	cudaError_t error = stub_enter("HostRegister", NULL, size, false);
	int device;

	if (error != cudaSuccess)
		return error;
	if (look(at, 1, &device) != PAGEABLE)
		return cudaErrorHostMemoryAlreadyRegistered;
	add(at, size, -1);
	stub_count_left(1);
	return cudaSuccess;
}

STUB_API cudaError_t cudaHostUnregister(void *at)
{
	cudaError_t error = stub_enter("HostUnregister", NULL, 0, false);

	if (error != cudaSuccess)
		return error;
	if (!drop(at))
		return cudaErrorHostMemoryNotRegistered;
	stub_count_left(-1);
	return cudaSuccess;
}

STUB_API cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
	cudaError_t error = stub_enter("HostGetDevicePointer", NULL, 0, false);
	int number;

	if (error != cudaSuccess)
		return error;
	*device = host;
	return look(host, 1, &number) == REGISTERED ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- taking and giving ---- */

static cudaError_t take(void **memory, size_t size)
{
	*memory = malloc(size);
	if (!*memory)
		return cudaErrorMemoryAllocation;
	add(*memory, size, stub_device());
	return cudaSuccess;
}

STUB_API cudaError_t cudaMalloc(void **memory, size_t size)
{
	cudaError_t error = stub_enter("Malloc", NULL, size, false);

	return error == cudaSuccess ? take(memory, size) : error;
}

STUB_API cudaError_t cudaMallocAsync(void **memory, size_t size, cudaStream_t stream)
{
	cudaError_t error = stub_enter("MallocAsync", stream, size, false);

	return error == cudaSuccess ? take(memory, size) : error;
}

STUB_API cudaError_t cudaFree(void *memory)
{
	cudaError_t error = stub_enter("Free", NULL, 0, false);

	if (error != cudaSuccess)
		return error;
	if (!drop(memory))
		return cudaErrorInvalidValue;
	free(memory);
	return cudaSuccess;
}

static void free_now(struct stub_work *w)
{
	if (!drop(w->to))
		abort();
	free(w->to);
}

STUB_API cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream)
{
	cudaError_t error = stub_enter("FreeAsync", stream, 0, false);

	if (error != cudaSuccess)
		return error;
	return stub_enqueue(stream, (struct stub_work){ .run = free_now, .to = memory });
}

/* ---- copies ---- */

static void copy_now(struct stub_work *w)
{
	memcpy(w->to, w->from, w->size);
}

STUB_API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size,
				     enum cudaMemcpyKind kind, cudaStream_t stream)
{
	int device;
	enum whose a = look(to, size, &device), b = look(from, size, &device);
	cudaError_t error =
		stub_enter("MemcpyAsync", stream, size, a == PAGEABLE || b == PAGEABLE);

	if (error != cudaSuccess)
		return error;
	if (a != ON_DEVICE && b != ON_DEVICE)
		return cudaErrorInvalidValue;
	return stub_enqueue(
		stream,
		(struct stub_work){ .run = copy_now, .to = to, .from = from, .size = size });
}

STUB_API cudaError_t cudaMemcpy(void *to, const void *from, size_t size,
				enum cudaMemcpyKind kind)
{
	memcpy(to, from, size);
	return cudaSuccess;
}

static void fill_now(struct stub_work *w)
{
	memset(w->to, w->value, w->size);
}

STUB_API cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t stream)
{
	return stub_enqueue(
		stream,
		(struct stub_work){ .run = fill_now, .to = to, .value = value, .size = size });
}

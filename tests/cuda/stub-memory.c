/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/stub.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

/* Memory is ordinary; the table says whose it is. */

enum { ALIGNMENT = 256 }; /* of cudaMalloc */

struct range {
	struct range *next;
	uint8_t *start;
	uint64_t size;
	int device;  /* -1: registered host memory */
	bool coming; /* the stream that takes it has not come there */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static bool no_pools;

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

static void add(void *start, uint64_t size, int device, bool coming)
{
	struct range *r = malloc(sizeof(*r));

	pthread_mutex_lock(&lock);
	*r = (struct range){ ranges, start, size, device, coming };
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
	add(at, size, -1, false);
	stub_count_left(1);
	return cudaSuccess;
}

STUB_API cudaError_t cudaHostUnregister(void *at)
{
	cudaError_t error = stub_enter("HostUnregister", NULL, 0, false);

	unsigned char resident;

	if (error != cudaSuccess)
		return error;
	if (mincore((void *)((uintptr_t)at & ~(uintptr_t)4095), 4096, &resident))
		return cudaErrorInvalidValue; /* it was unmapped before */
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

static cudaError_t take(void **memory, size_t size, int device, bool coming)
{
	*memory = aligned_alloc(ALIGNMENT, u64_div_ceil(size, ALIGNMENT) * ALIGNMENT);
	if (!*memory)
		return cudaErrorMemoryAllocation;
	add(*memory, size, device, coming);
	return cudaSuccess;
}

STUB_API cudaError_t cudaMalloc(void **memory, size_t size)
{
	cudaError_t error = stub_enter("Malloc", NULL, size, false);

	return error == cudaSuccess ? take(memory, size, stub_device(), false) : error;
}

static void has_come(struct stub_work *w)
{
	pthread_mutex_lock(&lock);
	find(w->to, 1)->coming = false;
	pthread_mutex_unlock(&lock);
}

/* Who copies there has waited for it. */
static void check_has_come(const void *at)
{
	struct range *r;
	bool coming;

	pthread_mutex_lock(&lock);
	r = find(at, 1);
	coming = r && r->coming;
	pthread_mutex_unlock(&lock);
	if (coming)
		abort();
}

struct CUmemPoolHandle_st {
	struct CUmemPoolHandle_st *next;
	int device;
};

static struct CUmemPoolHandle_st *pools; /* all that ever were: destroying one may fail */

void stub_pools(bool there)
{
	no_pools = !there;
}

static int node = -1;

void stub_node(int number)
{
	node = number;
}

STUB_API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute,
					    int device)
{
	cudaError_t error;

#if CUDART_VERSION >= 12020
	if (attribute == cudaDevAttrHostNumaId) { /* no call that stub_fail counts */
		*value = node;
		return cudaSuccess;
	}
#endif
	error = stub_enter("DeviceGetAttribute", NULL, 0, false);
	*value = attribute == cudaDevAttrMemoryPoolsSupported && !no_pools;
	return error;
}

STUB_API cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *p)
{
	cudaError_t error = stub_enter("MemPoolCreate", NULL, 0, false);

	if (error != cudaSuccess)
		return error;
	if (p->allocType != cudaMemAllocationTypePinned || p->handleTypes ||
	    p->location.type != cudaMemLocationTypeDevice)
		return cudaErrorInvalidValue;
	stub_count_left(1);
	*pool = calloc(1, sizeof(**pool));
	(*pool)->device = p->location.id;
	pthread_mutex_lock(&lock);
	(*pool)->next = pools;
	pools = *pool;
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

STUB_API cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
	cudaError_t error = stub_enter("MemPoolDestroy", NULL, 0, false);

	if (error != cudaSuccess)
		return error;
	stub_count_left(-1);
	return cudaSuccess;
}

STUB_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
					     void *value)
{
	cudaError_t error = stub_enter("MemPoolSetAttribute", NULL, *(uint64_t *)value, false);

	if (error == cudaSuccess && attribute != cudaMemPoolAttrReleaseThreshold)
		error = cudaErrorInvalidValue;
	return error;
}

STUB_API cudaError_t cudaMallocFromPoolAsync(void **memory, size_t size, cudaMemPool_t pool,
					     cudaStream_t stream)
{
	cudaError_t error = stub_enter("MallocFromPoolAsync", stream, size, false);

	if (error == cudaSuccess)
		error = take(memory, size, pool->device, true);
	if (error != cudaSuccess)
		return error;
	return stub_enqueue(stream, (struct stub_work){ .run = has_come, .to = *memory });
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

/* Reads memory of a device, which ThreadSanitizer does not see: a copy for a reader without a
 * view may run beside what the trainer's stream writes, and may show bytes of several steps.
 * What it sees, and has to be in order, are writes of that memory and staging buffers.
 */
__attribute__((noinline, no_sanitize("thread"))) static void
read_device(uint8_t *to, const volatile uint8_t *from, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		to[i] = from[i];
}

static void copy_now(struct stub_work *w)
{
	uint8_t some[4096];
	int device;

	check_has_come(w->to);
	if (look(w->from, w->size, &device) != ON_DEVICE) {
		memcpy(w->to, w->from, w->size);
		return;
	}
	for (uint64_t at = 0, n; at < w->size; at += n) {
		n = u64_min(sizeof(some), w->size - at);
		read_device(some, (const uint8_t *)w->from + at, n);
		memcpy((uint8_t *)w->to + at, some, n);
	}
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

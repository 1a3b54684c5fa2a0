/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/device-cuda.h"
#include "engine/log.h"

#include <errno.h>
#include <string.h>

/* Memory that processes have in common.  A handle of the runtime is of a whole block of the driver's, with all else that lies
 * there: so what is shared is whole blocks.
 */

enum { BLOCK = 2 << 20 };

struct handle {
	cudaIpcMemHandle_t ipc;
	uint64_t size;
};
static_assert(sizeof(struct handle) <= sizeof(struct device_handle), "it fits");

static int add(struct device *d, struct cuda_shared shared)
{
	struct cuda_shared *s = malloc(sizeof(*s));

	if (!s)
		return -ENOMEM;
	*s = shared;
	pthread_mutex_lock(&d->lock);
	s->next = d->shared;
	d->shared = s;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static bool is_ours(const struct cuda_shared *s)
{
	return s->origin == CUDA_OURS;
}

/* As memory of that device; DEVICE_NONE: it was shared. */
static bool was_mapped_as(const struct cuda_shared *s, int number)
{
	return is_ours(s) ? number == DEVICE_NONE : number == s->number;
}

static struct cuda_shared take(struct device *d, const void *memory, int number)
{
	struct cuda_shared **at, *found, shared;

	pthread_mutex_lock(&d->lock);
	for (at = &d->shared; (*at)->start != memory || !was_mapped_as(*at, number);)
		at = &(*at)->next;
	found = *at;
	*at = found->next;
	pthread_mutex_unlock(&d->lock);
	shared = *found;
	free(found);
	return shared;
}

bool cuda_is_mapped(struct device *d, const void *memory, int number)
{
	uintptr_t at = (uintptr_t)memory;
	bool found = false;

	pthread_mutex_lock(&d->lock);
	for (struct cuda_shared *s = d->shared; s && !found; s = s->next)
		found = s->number == number && at >= (uintptr_t)s->start &&
			at - (uintptr_t)s->start < s->size;
	pthread_mutex_unlock(&d->lock);
	return found;
}

/* NULL: it is another process's, whose handles no process opens that has made them. */
static uint8_t *find_ours(struct device *d, const struct device_handle *handle)
{
	uint8_t *start = NULL;

	pthread_mutex_lock(&d->lock);
	for (struct cuda_shared *s = d->shared; s && !start; s = s->next)
		if (is_ours(s) && !memcmp(&s->handle, handle, sizeof(*handle)))
			start = s->start;
	pthread_mutex_unlock(&d->lock);
	return start;
}

/* ---- sharing ---- */

static int get_handle(struct device *d, void *memory, uint64_t size,
		      struct device_handle *handle)
{
	struct handle h = { .size = size };
	int rc = cuda_result(&d->cuda, "cudaIpcGetMemHandle",
			     d->cuda.IpcGetMemHandle(&h.ipc, memory));

	*handle = (struct device_handle){ { 0 } };
	memcpy(handle->bytes, &h, sizeof(h));
	return rc == -EINVAL ? -EIO : rc;
}

int cuda_share(struct device *d, int number, uint64_t size, void **memory,
	       struct device_handle *handle)
{
	uint64_t whole = u64_div_ceil(size, BLOCK) * BLOCK;
	int rc;

	if (!cuda_device_of(d, number) || !whole || whole < size)
		return -EINVAL;
	if (cuda_choose(d, number))
		return -EIO;
	rc = cuda_result(&d->cuda, "cudaMalloc", d->cuda.Malloc(memory, whole));
	if (rc)
		return rc;
	rc = get_handle(d, *memory, size, handle);
	if (!rc)
		rc = add(d, (struct cuda_shared){ NULL, *memory, size, number, CUDA_OURS,
						  *handle });
	if (rc)
		cuda_result(&d->cuda, "cudaFree", d->cuda.Free(*memory));
	return rc;
}

/* What a lost device was given it may still read and write: that stays. */
static bool is_to_go(struct device *d, int number)
{
	return !cuda_device_of(d, number)->lost && !cuda_choose(d, number);
}

void cuda_unshare(struct device *d, void *memory)
{
	struct cuda_shared s = take(d, memory, DEVICE_NONE);

	if (is_to_go(d, s.number))
		cuda_result(&d->cuda, "cudaFree", d->cuda.Free(memory));
}

/* ---- mapping ---- */

static int open_handle(struct device *d, const cudaIpcMemHandle_t *ipc, void **memory)
{
	int rc = cuda_result(
		&d->cuda, "cudaIpcOpenMemHandle",
		d->cuda.IpcOpenMemHandle(memory, *ipc, cudaIpcMemLazyEnablePeerAccess));

	return rc == -EINVAL ? -EIO : rc;
}

static void close_handle(struct device *d, void *memory)
{
	cuda_result(&d->cuda, "cudaIpcCloseMemHandle", d->cuda.IpcCloseMemHandle(memory));
}

int cuda_map(struct device *d, int number, const struct device_handle *handle, void **memory)
{
	uint8_t *ours = find_ours(d, handle);
	struct handle h;
	int rc;

	if (!cuda_device_of(d, number))
		return -EINVAL;
	if (cuda_choose(d, number))
		return -EIO;
	memcpy(&h, handle->bytes, sizeof(h));
	*memory = ours;
	rc = ours ? 0 : open_handle(d, &h.ipc, memory);
	if (rc)
		return rc;
	rc = add(d, (struct cuda_shared){ NULL, *memory, h.size, number,
					  ours ? CUDA_OURS_MAPPED : CUDA_MAPPED, *handle });
	if (rc && !ours)
		close_handle(d, *memory);
	return rc;
}

void cuda_unmap(struct device *d, int number, void *memory)
{
	struct cuda_shared s = take(d, memory, number);

	if (s.origin == CUDA_MAPPED && is_to_go(d, number))
		close_handle(d, memory);
}

void cuda_shared_forget(struct device *d)
{
	struct cuda_shared *s;

	while ((s = d->shared)) {
		d->shared = s->next;
		free(s);
	}
}

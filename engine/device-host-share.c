/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/device-host-internal.h"
#include "engine/log.h"

#include <errno.h>
#include <string.h>

/* What processes have in common. */

static int add_shared(struct device *d, int number, const struct shared_handle *shared,
		      void *memory, bool is_ours)
{
	return device_host_add(d, (struct device_range){ NULL, memory, shared->size, number,
							 memory, *shared, is_ours });
}

void device_host_unshare(struct device *d, void *memory)
{
	struct device_range r = device_host_drop(d, memory);

	if (r.is_ours)
		shared_hide(&r.shared);
	shared_close(memory, r.size);
}

int device_host_share(struct device *d, int number, uint64_t size, void **memory,
		      struct device_handle *handle)
{
	struct shared_handle shared;
	int rc;

	if (!device_host_in_use(d, number) || !size)
		return -EINVAL;
	rc = shared_make(size, memory, &shared);
	if (rc) {
		log_warn("no memory to share: %s", strerror(-rc));
		return rc == -ENOMEM ? rc : -EIO;
	}
	rc = add_shared(d, number, &shared, *memory, true);
	if (rc) {
		shared_hide(&shared);
		shared_close(*memory, size);
	}
	memcpy(handle->bytes, &shared, sizeof(shared));
	return rc;
}

int device_host_map(struct device *d, int number, const struct device_handle *handle,
		    void **memory)
{
	struct shared_handle shared;
	int rc;

	if (!device_host_in_use(d, number))
		return -EINVAL;
	memcpy(&shared, handle->bytes, sizeof(shared));
	rc = shared_open(&shared, memory);
	if (rc) {
		log_warn("memory of process %d cannot be mapped: %s", shared.pid,
			 strerror(-rc));
		return rc == -ENOMEM ? rc : -EIO;
	}
	rc = add_shared(d, number, &shared, *memory, false);
	if (rc)
		shared_close(*memory, shared.size);
	return rc;
}

void device_host_unmap(struct device *d, int number, void *memory)
{
	device_host_unshare(d, memory);
}

void device_host_leave(struct device *d)
{
	atomic_store(&d->is_left, true);
}

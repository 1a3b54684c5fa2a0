/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_HOST_INTERNAL_H
#define ENGINE_DEVICE_HOST_INTERNAL_H

/* What the files of device-host share. */

#include "engine/device-host.h"
#include "engine/device-queue.h"
#include "engine/shared.h"

#include <stdatomic.h>

struct device_range {
	struct device_range *next;
	uint8_t *start;
	uint64_t size;
	int number;                  /* DEVICE_NONE: pinned */
	uint8_t *at;                 /* where it is to be had */
	struct shared_handle shared; /* where processes have it in common */
	bool is_ours;                /* shared from here */
};

struct device {
	struct device_queue queue;
	struct device_options options;
	pthread_mutex_t lock; /* of ranges and kept */
	struct device_range *ranges;
	uint64_t kept[DEVICE_HOST_DEVICES];
	atomic_bool used[DEVICE_HOST_DEVICES];
	atomic_bool is_left;
	struct device *next_left;
};

/* -ENOMEM. */
int device_host_add(struct device *d, struct device_range range);
/* Of memory that was added. */
struct device_range device_host_drop(struct device *d, void *start);
bool device_host_in_use(struct device *d, int number);

/* ---- device-host-share.c ---- */

int device_host_share(struct device *d, int number, uint64_t size, void **memory,
		      struct device_handle *handle);
void device_host_unshare(struct device *d, void *memory);
int device_host_map(struct device *d, int number, const struct device_handle *handle,
		    void **memory);
void device_host_unmap(struct device *d, int number, void *memory);
void device_host_leave(struct device *d);

#endif

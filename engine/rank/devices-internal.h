/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_DEVICES_INTERNAL_H
#define ENGINE_RANK_DEVICES_INTERNAL_H

/* Shared by devices.c and devices-preserve.c. */

#include "engine/base/queue.h"
#include "engine/memory/pinned.h"
#include "engine/rank/devices.h"

#include <pthread.h>

struct used_device { /* a device in use */
	LIST_ENTRY(used_device) link;
	int number;
	void *stream;              /* only the trainer's thread reads it */
	struct devices_mark *mark; /* under the lock, as status */
	int status;                /* 0, or -errno: why there is no newest mark */
};

struct devices {
	const struct device_ops *ops;
	struct device *device;
	/* memory of devices_preserve_on_host; NULL: none.  Trainer's thread */
	struct pinned *host;
	pthread_mutex_t lock;
	LIST_HEAD(, used_device) used; /* changed by the trainer's thread, under the lock */
	/* under the lock, to `ended`: */
	LIST_HEAD(, devices_copy) copies; /* under way */
	uint64_t sequence;
	unsigned host_leaving; /* devices_preserved on the host that a stream is yet to write */
	bool host_lost;        /* a stream failed: a device may still write to `host` */
	pthread_cond_t ended;
	_Atomic uint64_t from_bytes, to_bytes, errors;
};

/* Returns NULL if the device is not in use.  Trainer's thread, or under the lock. */
struct used_device *devices_find(struct devices *d, int number);
/* Unpins and frees `host`, before the port is closed. */
void devices_host_free(struct devices *d);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_DEVICES_INTERNAL_H
#define ENGINE_RANK_DEVICES_INTERNAL_H

/* What devices.c and devices-keep.c share. */

#include "engine/memory/pinned.h"
#include "engine/rank/devices.h"

#include <pthread.h>

struct used {
	struct used *next;
	int number;
	void *stream;              /* the trainer's thread's */
	struct devices_mark *mark; /* under the lock, as status */
	int status;                /* why there is no mark */
};

struct devices {
	const struct device_ops *ops;
	struct device *device;
	struct pinned
		*host; /* for what is kept there; NULL: nothing is.  The trainer's thread's */
	pthread_mutex_t lock;
	struct used *used;           /* changed by the trainer's thread, under the lock */
	struct devices_copy *copies; /* that are under way; under the lock, as what follows */
	uint64_t sequence;
	unsigned
		host_leaving; /* kept on the host, and let go before the stream has come past */
	bool host_lost;       /* it did not: who knows what is written there yet */
	pthread_cond_t ended;
	_Atomic uint64_t from_bytes, to_bytes, errors;
};

/* By the trainer's thread, or under the lock. */
struct used *devices_find(struct devices *d, int number);
/* Before the port is closed. */
void devices_host_free(struct devices *d);

#endif

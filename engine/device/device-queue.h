/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_QUEUE_H
#define ENGINE_DEVICE_DEVICE_QUEUE_H

/* What implementations of device.h share: a thread in which requests wait for their events, not
 * for too long, and begin.
 */

#include "engine/device/device.h"

#include <pthread.h>

struct device_queue_ops { /* all from the queue's thread */
	/* Whether the stream has come there: 0, -EAGAIN, -EIO. */
	int (*passed)(struct device *d, struct device_event *event);
	/* Takes io, and calls done when it has ended. */
	void (*begin)(struct device *d, struct device_io *io);
	/* Goes on with what has begun.  Returns whether there is more to do. */
	bool (*turn)(struct device *d);
};

/* Bytes of the device's memory that a request other than a copy reads and writes. */
void device_io_sizes(const struct device_io *io, uint64_t *from, uint64_t *to);

static inline bool device_io_is_sums(const struct device_io *io)
{
	return io->what >= DEVICE_SUMS_F32;
}

STAILQ_HEAD(device_ios, device_io); /* by port.next */

struct device_queue {
	pthread_mutex_t lock; /* of come and stop */
	pthread_cond_t woken;
	struct device_ios come;
	bool stop;
	pthread_t thread;
	struct device_ios waiting; /* the thread's */
	uint64_t wait_ms;
	const struct device_queue_ops *ops;
	struct device *device;
};

/* -errno of pthread_create. */
int device_queue_start(struct device_queue *q, const struct device_queue_ops *ops,
		       struct device *d, uint64_t wait_ms);
/* What waits is cancelled, but for releases; what has begun ends. */
void device_queue_stop(struct device_queue *q);
/* Any thread. */
void device_queue_submit(struct device_queue *q, struct device_io *io);

#endif

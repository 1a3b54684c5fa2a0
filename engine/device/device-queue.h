/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_QUEUE_H
#define ENGINE_DEVICE_DEVICE_QUEUE_H

/* A queue of requests, which implementations of device.h share.  In its thread requests wait
 * for their events, each up to its deadline, and begin.
 */

#include "engine/device/device.h"

#include <pthread.h>

struct device_queue_ops { /* called in the queue's thread */
	/* 0: the event has passed.
	 * -EAGAIN: not yet.
	 * -EIO: it never will.
	 */
	int (*passed)(struct device *d, struct device_event *event);
	/* Begins the request, whose done it calls at its end. */
	void (*begin)(struct device *d, struct device_io *io);
	/* Goes on with requests that have begun.  true: turn is to be called again. */
	bool (*turn)(struct device *d);
};

/* Gives the bytes of device memory that a request, which is no copy, reads and writes. */
void device_queue_sizes(const struct device_io *io, uint64_t *from, uint64_t *to);

STAILQ_HEAD(device_ios, device_io); /* by port.next */

struct device_queue {
	pthread_mutex_t lock; /* of `come` and `stop` */
	pthread_cond_t woken;
	struct device_ios come; /* submitted, not seen by the thread yet */
	bool stop;
	pthread_t thread;
	struct device_ios waiting; /* for their events; the thread's */
	uint64_t wait_ms;
	const struct device_queue_ops *ops;
	struct device *device;
};

/* Starts the thread.  wait_ms: for requests that name none.  -errno of pthread_create. */
int device_queue_start(struct device_queue *q, const struct device_queue_ops *ops,
		       struct device *d, uint64_t wait_ms);
/* Ends the thread.  Releases that wait begin at once, other requests that wait end with
 * -ECANCELED, and those that have begun end as they do.
 */
void device_queue_stop(struct device_queue *q);
/* Appends a request.  Any thread. */
void device_queue_submit(struct device_queue *q, struct device_io *io);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_DEVICE_DEVICE_HOST_H
#define ENGINE_DEVICE_DEVICE_HOST_H

/* What a runtime gives its trainer, for device_host: devices' memory, and streams, which do
 * their work at once, in the thread that enqueues it, unless they are held.  NULL is the
 * default stream.
 */

#include "engine/device/device.h"

enum { DEVICE_HOST_DEVICES = 2 };

struct device_host_stream;

struct device_host_stream *device_host_stream_new(void); /* NULL: no memory */
/* Nothing is in it. */
void device_host_stream_free(struct device_host_stream *s);

/* -ENOMEM. */
int device_host_enqueue(struct device_host_stream *s, void (*work)(void *arg), void *arg);
/* What is enqueued from here on waits. */
void device_host_hold(struct device_host_stream *s);
/* Does all that waits, in this thread; what comes later is not held. */
void device_host_go(struct device_host_stream *s);

/* Whether the stream has come there. */
bool device_host_passed(struct device_event *event);

/* From here on this memory of the caller's is that device's; -EINVAL: no such device; -ENOMEM.
 */
int device_host_give(struct device *d, int number, void *memory, uint64_t size);
/* The same of memory that nobody else may touch: the port finds its bytes at another address.
 */
int device_host_give_hidden(struct device *d, int number, void *memory, uint64_t size,
			    void *at);
/* Where the port finds bytes: there, but for hidden memory. */
void *device_host_reach(struct device *d, const void *memory);
/* No request names it. */
void device_host_take(struct device *d, void *memory);

#endif

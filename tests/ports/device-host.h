/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_PORTS_DEVICE_HOST_H
#define TESTS_PORTS_DEVICE_HOST_H

/* What a runtime gives its trainer, for device_host: memory of devices, and streams.  A stream
 * does its work at once, in the thread that enqueues it, unless it is held.  NULL is the
 * default stream, which is never held.
 */

#include "engine/device/device.h"

extern const struct device_ops device_host; /* ordinary memory */

enum { DEVICE_HOST_DEVICES = 2 };

struct device_host_stream;

struct device_host_stream *device_host_stream_new(void); /* NULL: no memory */
/* The stream must be empty. */
void device_host_stream_free(struct device_host_stream *s);

/* Enqueues a call of work(arg).  -ENOMEM. */
int device_host_enqueue(struct device_host_stream *s, void (*work)(void *arg), void *arg);
/* Work that is enqueued from now on waits. */
void device_host_hold(struct device_host_stream *s);
/* Does all work that waits, in this thread, and holds the stream no longer. */
void device_host_go(struct device_host_stream *s);

/* Whether the stream has done all that was enqueued before the event. */
bool device_host_passed(struct device_event *event);

/* Makes the caller's range of addresses memory of that device until take.  The port reads and
 * writes its bytes at `at`: `memory` itself, or another mapping of memory that must not be
 * touched by its address, as a GPU's.
 * -EINVAL: no such device.
 * -ENOMEM.
 */
int device_host_give(struct device *d, int number, void *memory, uint64_t size, void *at);
/* Forgets a range that was given or pinned; no request may name it. */
void device_host_take(struct device *d, void *memory);
/* Returns where the port reads and writes the byte at this address. */
void *device_host_reach(struct device *d, const void *memory);

#endif

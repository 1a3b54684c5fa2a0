/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICE_H
#define DEVICE_H

/* Memory of a CUDA device, and a stream on it.  The runtime is loaded at run time, so that this
 * example is built anywhere. Each ends the program where it cannot.
 */

#include <stddef.h>

/* That device is this thread's; returns a stream of it. */
void *device_open(int number);
void *device_alloc(size_t bytes);
/* Enqueues a copy to the device; host stays as it is until device_get. */
void device_put(void *device, const void *host, size_t bytes);
/* Returns when all that was enqueued has been done, and this. */
void device_get(void *host, const void *device, size_t bytes);

#endif

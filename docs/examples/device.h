/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DEVICE_H
#define DEVICE_H

/* Memory of a CUDA device, and a stream on it.  CUDA's library is loaded at run time, so that
 * this example is built anywhere.  Each function ends the program where it fails.
 */

#include <stddef.h>

/* Makes a device the current one of this thread; returns a stream on it. */
void *device_open(int number);
void *device_alloc(size_t bytes);
/* Enqueues a copy to the device; the caller leaves `host` as it is until device_get(). */
void device_put(void *device, const void *host, size_t bytes);
/* Copies from the device, after all that was enqueued; returns when the copy is done. */
void device_get(void *host, const void *device, size_t bytes);

#endif

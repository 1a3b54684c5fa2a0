/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_HIDDEN_H
#define RANKS_HIDDEN_H

/* Memory of a device of device_host.  As with a real device's memory, no program may touch it
 * at its own address.
 */

#include "tests/ports/device-host.h"

struct hidden {
	struct device *device;
	uint64_t mapped;
	void *memory; /* the device's address, which traps */
	void *at;     /* where the test has the same bytes */
	/* the bytes as the port reaches them: its copies race with no thread here */
	void *reached;
};

/* Allocates the memory; aborts the test on an error. */
void hidden_new(struct hidden *h, struct device *d, int number, uint64_t size);
/* Frees the memory, which no request may name any more.  The device may be closed, if h->device
 * was set to NULL.
 */
void hidden_free(struct hidden *h);

#endif

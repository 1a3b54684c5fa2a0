/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_HIDDEN_H
#define RANKS_HIDDEN_H

/* Memory of a device of device_host: at its own address nobody may touch it, as it is with a
 * device's.
 */

#include "tests/ports/device-host.h"

struct hidden {
	struct device *device;
	uint64_t mapped;
	void *memory;  /* the device's address: a trap */
	void *at;      /* where the test has the same bytes */
	void *reached; /* what the port has reached: its copies race with no thread here */
};

/* Aborts the test when it fails. */
void hidden_new(struct hidden *h, struct device *d, int number, uint64_t size);
/* No request names it; the device may be closed, when it was given as NULL. */
void hidden_free(struct hidden *h);

#endif

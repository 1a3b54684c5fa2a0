/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_SWAP_READ_NOW_H
#define TESTS_UNIT_SWAP_READ_NOW_H

#include "engine/swap/swapper.h"

/* swapper_read, waited for; a failure is logged.  The process is aborted where it does not end
 * within a minute.
 */
int read_now(struct swapper *sw, struct swapper_state *s, struct swapper_pin *pin,
	     uint64_t offset, uint64_t size, void *memory);

#endif

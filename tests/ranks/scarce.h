/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_SCARCE_H
#define TESTS_RANKS_SCARCE_H

/* A machine that runs out of memory, descriptors or threads at a chosen call, and a clock that can be set ahead.
 * Programs that use it are linked with $(scarce_ldflags): the calls of the engine and of the test come here first.
 *
 *	for (n = 1; ; n++) {
 *		scarce_begin(n, 1);		 the n-th fails
 *		...
 *		if (!scarce_end())		 there were fewer
 *			break;
 *	}
 */

#include <stdint.h>

/* Of this thread's calls from now on, number n (1: the first) and those after it, count of them, fail. */
void scarce_begin(unsigned n, unsigned count);
/* None fails any more.  Returns how many did. */
unsigned scarce_end(void);

/* Clocks of this process go ahead. */
void scarce_skip_ms(uint64_t ms);

#endif

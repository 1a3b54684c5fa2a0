/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_SCARCE_H
#define TESTS_RANKS_SCARCE_H

/* A machine that runs out of memory, descriptors or threads at a chosen call, and a clock that
 * can be set ahead.  Programs that use it are linked with $(scarce_ldflags), by which the calls
 * of the engine and of the test come here first.
 *
 *	for (n = 1; ; n++) {
 *		scarce_begin(n, 1);		 the n-th call fails
 *		...
 *		if (!scarce_end())		 there were fewer calls
 *			break;
 *	}
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* From now on, of this thread's calls, number n (1: the first) and those after it, `count` in
 * all, fail.
 */
void scarce_begin(unsigned n, unsigned count);
/* Lets no call fail any more.  Returns how many have failed. */
unsigned scarce_end(void);

/* From now on, of this thread's calls of pread, pwrite and the like, number n (1: the first)
 * does nothing and returns result; -1: with that errno.  n 0: no call.
 */
void scarce_io(unsigned n, ssize_t result, int error);
/* Returns true if the thread has made n such calls. */
bool scarce_io_came(void);

/* Returns how many files this process has open, and a few more, always the same. */
unsigned scarce_open_files(void);

/* Sets the clocks of this process ahead. */
void scarce_skip_ms(uint64_t ms);

#endif

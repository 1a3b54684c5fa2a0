/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_RANKS_SCARCE_H
#define TESTS_RANKS_SCARCE_H

/* A machine that runs out of memory, descriptors or threads at a chosen call, and a clock that
 * can be set ahead. Programs that use it are linked with $(scarce_ldflags): the calls of the
 * engine and of the test come here first.
 *
 *	for (n = 1; ; n++) {
 *		scarce_begin(n, 1);		 the n-th fails
 *		...
 *		if (!scarce_end())		 there were fewer
 *			break;
 *	}
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of this thread's calls from now on, number n (1: the first) and those after it, count of
 * them, fail.
 */
void scarce_begin(unsigned n, unsigned count);
/* None fails any more.  Returns how many did. */
unsigned scarce_end(void);

/* Of this thread's pread, pwrite and calls like them from now on, number n (1: the first) does
 * nothing and returns result; -1: with that errno.  0: none.
 */
void scarce_io(unsigned n, ssize_t result, int error);
/* Whether it was called so often. */
bool scarce_io_came(void);

/* Returns how many files this process has open, and a few more, always the same. */
unsigned scarce_open_files(void);

/* Clocks of this process go ahead. */
void scarce_skip_ms(uint64_t ms);

#endif

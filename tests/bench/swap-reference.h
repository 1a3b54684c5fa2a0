/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_BENCH_SWAP_REFERENCE_H
#define TESTS_BENCH_SWAP_REFERENCE_H

/* The strategy of DeepNVMe's aio handle, by the system calls themselves: a file for each
 * tensor, opened with O_DIRECT for each request; blocks of it in a queue that is kept full; all
 * of it drained, closed.  Several threads take a part of each tensor each.  Unlike it, this
 * looks at the results.
 */

#include "engine/base/base.h"

struct reference {
	uint64_t block;
	unsigned depth, threads;
};

enum { REFERENCE_THREADS = 4 };

/* size: a multiple of 4096; memory aligned to that.  Exits where it cannot. */
void reference_run(const struct reference *r, const char *path, bool write, void *memory,
		   uint64_t size);

#endif

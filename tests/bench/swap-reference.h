/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_BENCH_SWAP_REFERENCE_H
#define TESTS_BENCH_SWAP_REFERENCE_H

/* The strategy of DeepNVMe's aio handle, in system calls: a file for each tensor, opened with
 * O_DIRECT for each request; its blocks in a queue that is kept full, drained, and the file
 * closed.  Each of several threads takes a part of each tensor.  Unlike the handle, this checks
 * the results of the requests.
 */

#include "engine/base/base.h"

struct reference {
	uint64_t block;
	unsigned depth, threads;
};

enum { REFERENCE_THREADS = 4 };

/* size is a multiple of 4096, and memory aligned to that.  Exits on an error. */
void reference_run(const struct reference *r, const char *path, bool write, void *memory,
		   uint64_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_MEMFILE_H
#define TESTS_UNIT_MEMFILE_H

/* A file in memory, to be parsed. */

#include "engine/checkpoint/parse/blob.h"

#include <err.h>
#include <sys/mman.h>

/* close(blob.fd) when done. */
static inline struct blob memfile(const void *data, size_t size)
{
	struct blob b = { memfd_create("memfile", MFD_CLOEXEC), 0, size };

	if (b.fd < 0 || pwrite(b.fd, data, size, 0) != (ssize_t)size)
		err(1, "memfile");
	return b;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_MEMORY_H
#define ENGINE_MEMORY_MEMORY_H

/* This process's memory: large zeroed blocks, and copies that survive a freed address. */

#include "engine/base/base.h"

#include <sys/uio.h>

/* bytes of zeroed memory, aligned to 2 MiB.  *fd: a sealed memfd of it, the caller's to close;
 * -1: it is anonymous.  -ENOMEM.
 */
int memory_alloc(uint64_t bytes, void **memory, int *fd);
void memory_free(void *memory, uint64_t bytes);

/* "never", "advise" ...: what /sys says of huge pages for anonymous and for shared memory. */
void memory_huge_pages(char *anonymous, char *shared, size_t size);

/* size bytes in all; -EFAULT: an address is not mapped. */
int memory_read_own(void *to, const struct iovec *from, unsigned nfrom, size_t size);
int memory_write_own(const struct iovec *to, unsigned nto, const void *from, size_t size);
/* Whether every page of it can be read. */
int memory_probe_own(const struct iovec *at, unsigned n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_MEMORY_MEMORY_H
#define ENGINE_MEMORY_MEMORY_H

/* This process's memory: large zeroed blocks, and copies from and to addresses that may have
 * been freed.
 */

#include "engine/base/base.h"

#include <sys/uio.h>

/* Allocates zeroed memory, aligned to 2 MiB, which memory_free frees.  *fd: a sealed memfd of
 * it, which the caller closes; -1: the memory is anonymous.
 * -ENOMEM.
 */
int memory_alloc(uint64_t bytes, void **memory, int *fd);
void memory_free(void *memory, uint64_t bytes);

/* Allocates memory that pages are copied to; free() frees it.  It begins with a page, where
 * malloc's large blocks begin 16 bytes into one: a copy to those takes five times as long on
 * AMD's Zen 3, where rep movsb takes its loads for loads of what it has just stored (4K
 * aliasing).
 */
void *memory_for_copies(size_t bytes);

/* Reads from /sys when huge pages are used for anonymous and for shared memory: "never",
 * "advise" ...
 */
void memory_huge_pages(char *anonymous, char *shared, size_t size);

/* Copies size bytes, the sum of all ranges; an address that is not mapped is an error, not a
 * crash.
 * -EFAULT: an address is not mapped.
 */
int memory_read_own(void *to, const struct iovec *from, unsigned nfrom, size_t size);
int memory_write_own(const struct iovec *to, unsigned nto, const void *from, size_t size);
/* Returns 0 if every page of these ranges can be read; -EFAULT: one cannot. */
int memory_probe_own(const struct iovec *at, unsigned n);

#endif

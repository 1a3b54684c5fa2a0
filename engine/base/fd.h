/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_FD_H
#define ENGINE_BASE_FD_H

/* What a system call does in part, done whole. */

#include "engine/base/base.h"

/* size bytes at offset of a file, at once.  -errno; -EIO: the file ends before that. */
int fd_read_all(int fd, void *bytes, size_t size, uint64_t offset);
int fd_write_all(int fd, const void *bytes, size_t size, uint64_t offset);

/* Exclusively, for no kernel has a lock with a timeout.  -EBUSY: somebody else has had it for
 * ms; -ENOTSUP and others: it cannot be locked.
 */
int fd_lock(int fd, unsigned ms);
void fd_unlock(int fd);

#endif

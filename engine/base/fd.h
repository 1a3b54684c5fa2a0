/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_FD_H
#define ENGINE_BASE_FD_H

/* Reads and writes that end only when all bytes are there, and file locks with a timeout. */

#include "engine/base/base.h"

/* Reads or writes size bytes at offset.
 * -EIO: the file ends before that.
 * Errors of pread and pwrite.
 */
int fd_read_all(int fd, void *bytes, size_t size, uint64_t offset);
int fd_write_all(int fd, const void *bytes, size_t size, uint64_t offset);
/* Writes size bytes at the file's own offset, to a pipe too.  Errors of write. */
int fd_put_all(int fd, const void *bytes, size_t size);

/* Takes an exclusive flock(2), which has no timeout: tries again until ms have passed.
 * -EBUSY: another process still has the lock.
 * -ENOTSUP and others: the file cannot be locked.
 */
int fd_lock(int fd, unsigned ms);
void fd_unlock(int fd);

#endif

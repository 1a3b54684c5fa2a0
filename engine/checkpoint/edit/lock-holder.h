/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_LOCK_HOLDER_H
#define ENGINE_CHECKPOINT_EDIT_LOCK_HOLDER_H

/* The process that holds a lock (flock) on a file, from /proc/locks, and waiting for the lock.
 */

#include "engine/base/base.h"

enum { LOCK_HOLDER_MS = 3000 }; /* how long an overlay's user waits for its lock */

struct lock_holder {
	int pid;       /* 0: not known */
	char name[64]; /* "process 4711", "another process" */
};

struct lock_holder lock_holder(int fd);

/* Locks the file by flock (how: LOCK_SH or LOCK_EX).  While another process holds the lock,
 * waits until until_ms (monotonic_ms): the process of a mount outlives its umount(8) a little.
 * The log says which file (`name`) is waited for.
 * -EBUSY: the file is still locked, or this process has it locked. -ENOTSUP and others: the
 * file system cannot lock.
 */
int lock_wait(int fd, int how, uint64_t until_ms, const char *name);

#endif

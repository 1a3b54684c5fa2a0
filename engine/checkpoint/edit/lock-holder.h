/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_EDIT_LOCK_HOLDER_H
#define ENGINE_CHECKPOINT_EDIT_LOCK_HOLDER_H

/* Who has a file locked (flock), as far as this machine says so, and waiting for it. */

#include "engine/base/base.h"

enum { LOCK_HOLDER_MS = 3000 };

struct lock_holder {
	int pid;       /* 0: not known */
	char name[64]; /* "process 4711", "another process" */
};

struct lock_holder lock_holder(int fd);

/* Locks it, LOCK_SH or LOCK_EX, and waits for another process that has it until then
 * (monotonic_ms): the process of a mount outlives its umount(8) a little.  A line says what it
 * waits for.  -EBUSY: still locked, or by this process; -ENOTSUP and others: it cannot be
 * locked.
 */
int lock_wait(int fd, int how, uint64_t until_ms, const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SHARED_H
#define ENGINE_SHARED_H

/* Memory of the host that processes have in common, found by process and descriptor: a memfd, which has no name that could stay
 * behind, and is gone with the last who has it.  Who opens it is the same user, and may look at the other's descriptors
 * (/proc/PID/fd: what Yama restricts is attaching, not this; a process that is not dumpable is out of reach).  Any thread.
 */

#include "engine/base.h"

struct shared_handle { /* plain bytes */
	int32_t pid, fd;
	uint64_t size, inode;
};

/* Zeroed memory.  -errno. */
int shared_make(uint64_t size, void **memory, struct shared_handle *handle);
/* From here on it cannot be opened any more; the memory stays. */
void shared_hide(const struct shared_handle *handle);
/* Of another process, or of this one.  -ENOENT, -ESTALE: it is not there any more; -EACCES: out of reach; -errno. */
int shared_open(const struct shared_handle *handle, void **memory);
void shared_close(void *memory, uint64_t size);

#endif

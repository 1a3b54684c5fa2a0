/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_LOCK_HOLDER_H
#define ENGINE_CHECKPOINT_LOCK_HOLDER_H

/* Who has a file locked (flock), as far as this machine says so. */

struct lock_holder {
	char name[64]; /* "process 4711", "another process" */
};

struct lock_holder lock_holder(int fd);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_FORK_H
#define ENGINE_BASE_FORK_H

/* Descriptors that a forked child must not keep: a child that lives on (a data loader's worker)
 * would hold the engine's port and its peers' connections open.  They are closed in the child
 * before fork(2) returns there, without a lock.
 *
 * An entry is a descriptor number and what file it was, so that a number closed by somebody
 * else and used again is left alone.  That fails for eventfds, epolls and other files without
 * an inode of their own: forget those before they are closed.  Any thread.
 */

#include "engine/base/base.h"

enum { FORK_FD_MAX = 65536 };

/* What listens at this address, "tcp://10.0.0.1:21017", and all that it has accepted, whether
 * we know of it yet or not: one set of FORK_ADDRESSES_MAX; -ENFILE, -EINVAL.
 */
enum { FORK_ADDRESSES_MAX = 16 };
int fork_close_at(const char *address);
void fork_forget_at(const char *address);

/* -EBADF: not open; -ENFILE: FORK_FD_MAX or more.  Replaces what was known of the number. */
int fork_close(int fd);
void fork_forget(int fd);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_FORK_H
#define ENGINE_BASE_FORK_H

/* The list of descriptors that are closed in a forked child, before fork(2) returns there: a
 * child that lives on, such as a data loader's worker, would else hold the engine's port and
 * the connections of its peers open.  The child takes no lock.
 *
 * An entry is the number of a descriptor and the inode of its file, so that a number which
 * somebody else has closed and used again is left alone.  eventfds, epolls and other files
 * without an inode of their own cannot be told apart so: forget them before they are closed.
 * Any thread.
 */

#include "engine/base/base.h"

enum { FORK_FD_MAX = 65536 };

enum { FORK_ADDRESSES_MAX = 16 };

/* Lists the socket that listens at an address, as "tcp://10.0.0.1:21017" or with another scheme
 * before the colon, and all connections that it has accepted or will accept.
 * -ENFILE: FORK_ADDRESSES_MAX addresses are listed.
 * -EINVAL: the text is no such address.
 */
int fork_close_at(const char *address);
void fork_forget_at(const char *address);

/* Lists a descriptor, in place of an older entry with its number.
 * -EBADF: the descriptor is not open.
 * -ENFILE: its number is FORK_FD_MAX or more.
 */
int fork_close(int fd);
/* Lists descriptor fd, which another thread may close at any time: a child closes it only if
 * its file is that of `copy`, a duplicate that the caller has made and examined.
 */
int fork_close_as(int fd, int copy);
void fork_forget(int fd);

#endif

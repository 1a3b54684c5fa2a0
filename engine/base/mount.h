/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_MOUNT_H
#define ENGINE_BASE_MOUNT_H

#include <stdbool.h>

/* Returns true if the server of the FUSE mount at the path is gone.  stat(2) may still succeed
 * then, from attributes that the kernel has cached; statfs(2) always asks the server.  A child
 * process calls statfs(2), and is given up after 5 s: a server that hangs is not gone.  Any
 * thread.
 */
bool mount_is_dead(const char *path);

#endif

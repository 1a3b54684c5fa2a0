/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_FREEZE_H
#define MOUNT_HELPERS_FREEZE_H

/* fragctl freeze, thaw: by the file .frag/freeze of a mount.  They say on stderr what went
 * wrong, and return the exit status.
 */

/* For seconds at most.  command NULL: returns when all ranks stand; else runs it and returns
 * when it has ended and they go on, with its status, or 128 and its signal's number.
 */
int freeze(const char *mountpoint, unsigned seconds, char **command);
int thaw(const char *mountpoint);

#endif

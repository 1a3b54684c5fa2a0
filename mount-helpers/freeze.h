/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_FREEZE_H
#define MOUNT_HELPERS_FREEZE_H

/* fragctl freeze and thaw, by the file .frag/freeze of a mount.  Both print errors on stderr
 * and return the exit status.
 */

/* Freezes the job for at most so many seconds.  command NULL: returns when all ranks stand.
 * Else runs command, thaws the job, and returns the command's exit status, or 128 + its signal.
 */
int freeze(const char *mountpoint, unsigned seconds, char **command);
/* Ends any freeze of the job. */
int thaw(const char *mountpoint);

#endif

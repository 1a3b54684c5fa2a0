/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_TARGET_H
#define MOUNT_HELPERS_TARGET_H

/* The mount that a command of fragctl works on: one that is there, or a private one of a job or
 * a checkpoint, which fragfs serves in a temporary folder until fragctl ends, also by a signal.
 */

#include "mount-helpers/call.h"

#include <limits.h>

enum { TARGET_PATH_MAX = PATH_MAX - 512 }; /* leaves room for a name below the mount point */

enum target_kind { TARGET_NONE, TARGET_MOUNT, TARGET_CHECKPOINT, TARGET_JOB };

/* Returns the kind of `where`, and writes the source by which fragfs knows it: a mount point, a
 * job's HOST:PORT, which `where` may give by the job's name, or the path of a checkpoint.
 */
enum target_kind target_resolve(const char *where, char source[PATH_MAX]);
/* Prints why target_resolve() has found nothing: a mount of another user, or one whose fragfs
 * is gone, cannot be looked at.  Returns the exit status.
 */
int target_fail_none(const char *where);
/* Writes the folder of a mount of `where`: a mount point, HOST:PORT, the name of a job of this
 * host, or the path of a checkpoint.  NULL: the mount that the current folder is in, or the
 * only mount there is.  writable: a mount that is made here is made with -o rw.
 * Returns the exit status; errors are on standard error then.
 */
int target_open(const char *where, bool writable, char mountpoint[TARGET_PATH_MAX]);
/* Does as target_open with -j or, in its place, the command's only word, a mount point. */
int target_open_word(const struct call *call, bool writable, char mountpoint[TARGET_PATH_MAX]);
/* Returns true if the mount is private: it ends with fragctl. */
bool target_is_private(const char *mountpoint);
/* Returns true if a checkpoint is mounted there. */
bool target_is_checkpoint(const char *mountpoint);
/* Returns the user's name for the mount: of a private mount, its source; else the mount point.
 */
const char *target_name(const char *mountpoint);
/* Checks that a job is mounted there, and has the rank; -1: any rank.
 * -ENOENT: why has one line.
 */
int target_check_rank(const char *mountpoint, int64_t rank, char *why, size_t whysize);
/* Prints that an operation on a state has failed, and which rank is the first that is lost or
 * silent, if one is.  Returns the exit status.
 */
int target_fail(const char *mountpoint, const char *state, int error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_TARGET_H
#define MOUNT_HELPERS_TARGET_H

/* The mount that a command of fragctl looks at: one that is there, or one of a job or of a
 * checkpoint, which fragfs mounts in a temporary folder until fragctl ends, also by a signal.
 */

#include "mount-helpers/command.h"

#include <limits.h>

enum { TARGET_PATH_MAX = PATH_MAX - 512 }; /* leaves room for a name below it */

enum target_kind { TARGET_NONE, TARGET_MOUNT, TARGET_CHECKPOINT, TARGET_JOB };

/* Returns what `where` names, and writes what fragfs calls that: a mount point, HOST:PORT of a
 * job, which may be named by its name, or the path of a checkpoint.
 */
enum target_kind target_resolve(const char *where, char source[PATH_MAX]);
/* Says why target_resolve() has found none: a mount of another user, or one whose fragfs is
 * gone, is there and cannot be looked at.  Returns the exit status.
 */
int target_fail_none(const char *where);
/* Writes the folder of a mount of `where`: a mount point, HOST:PORT, the name of a job of this
 * host, or the path of a checkpoint.  NULL: the mount that the current folder is in, or the
 * only mount there is.  writable: a mount that is made here is made with -o rw.
 * Returns the exit status; errors are on standard error then.
 */
int target_open(const char *where, bool writable, char mountpoint[TARGET_PATH_MAX]);
/* Does the same with -j or, in its place, the command's only word, a mount point. */
int target_open_word(const struct call *call, bool writable, char mountpoint[TARGET_PATH_MAX]);
/* Returns true if the mount ends with fragctl. */
bool target_is_private(const char *mountpoint);
/* Returns true if a checkpoint is mounted there. */
bool target_is_checkpoint(const char *mountpoint);
/* Returns how the user named what is mounted there: the mount point, if it is not private. */
const char *target_name(const char *mountpoint);
/* Checks that a job is mounted there, and has the rank; -1: any.
 * -ENOENT: why has one line.
 */
int target_check_rank(const char *mountpoint, int64_t rank, char *why, size_t whysize);
/* Says that an operation on a state has failed and, where ranks are lost or do not answer,
 * which is the first.  Returns the exit status.
 */
int target_fail(const char *mountpoint, const char *state, int error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_JOB_FOLDER_H
#define ENGINE_LAUNCH_JOB_FOLDER_H

/* The folder of job files and keys: $XDG_RUNTIME_DIR/fragfs, or ~/.cache/fragfs where that
 * variable names no folder.  It belongs to this user and has mode 0700; files in it have 0600.
 * Functions return -errno.
 */

#include "engine/base/base.h"

#include <sys/types.h>

enum { JOB_FOLDER = 1200, JOB_PATH = JOB_FOLDER + 160 };

/* Makes the folder if it is missing.
 * -EACCES: it is another user's, or others may write to it.
 */
int job_folder(char folder[JOB_FOLDER]);
/* Makes the path of the job's file with that suffix.
 * -EINVAL: the job's name is no file name.
 */
int job_folder_path(const char *job, const char *suffix, char path[JOB_PATH]);
/* Locks the folder against other processes that add or sweep files.  Returns a descriptor,
 * which holds the lock until it is closed; -1: no folder, or another process has held the lock
 * for a second.
 */
int job_folder_lock(void);

/* Reads a file of at most size - 1 bytes, and ends it with a NUL.  Returns the number of bytes.
 * -EACCES: the file is another user's, or its mode has one of the bits `forbidden`.
 * -EISDIR: it is a folder.
 * -EINVAL: it is no plain file, or larger.
 */
ssize_t job_folder_read(const char *path, mode_t forbidden, char *text, size_t size);
/* Replaces the file at path by one rename. */
int job_folder_write(const char *path, const char *text, size_t size);

#endif

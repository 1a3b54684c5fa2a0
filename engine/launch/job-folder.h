/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_JOB_FOLDER_H
#define ENGINE_LAUNCH_JOB_FOLDER_H

/* The folder of job files and keys: $XDG_RUNTIME_DIR/fragfs, or ~/.cache/fragfs where there is
 * none; of this user alone, mode 0700, as all in it.  -errno.
 */

#include "engine/base/base.h"

#include <sys/types.h>

enum { JOB_FOLDER = 1200, JOB_PATH = JOB_FOLDER + 160 };

/* Made where it is missing. */
int job_folder(char folder[JOB_FOLDER]);
/* -EINVAL: no file could be named after that job. */
int job_folder_path(const char *job, const char *suffix, char path[JOB_PATH]);
/* A descriptor: who adds or sweeps excludes the others until it is closed.  -1: somebody has it
 * for long.
 */
int job_folder_lock(void);

/* At most size - 1 bytes; the NUL behind them.  forbidden: mode bits.  Returns how many.
 * -EISDIR; -EINVAL: it is no plain file, or a larger one.
 */
ssize_t job_folder_read(const char *path, mode_t forbidden, char *text, size_t size);
/* By rename. */
int job_folder_write(const char *path, const char *text, size_t size);

#endif

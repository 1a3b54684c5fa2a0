/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_KEYFILE_H
#define ENGINE_LAUNCH_KEYFILE_H

/* The secret of a job, in a file of its user alone. */

#include "engine/base/base.h"

enum { KEYFILE_BYTES = 32 };

/* 32 random bytes in a new file, O_EXCL, mode 0600.  path NULL: the folder of job-folder.h, and
 * the path used goes to path_out; a file left there by a dead job is replaced.
 */
int keyfile_create(const char *job, const char *path, char *path_out, size_t size,
		   uint8_t key[KEYFILE_BYTES]);
/* *readers: it is the key for readers ("readers HEX"), -EACCES where readers is NULL.  -EACCES:
 * mode allows others, or another owner; -EINVAL: not 32 bytes (hex or raw).  why: a line.
 */
int keyfile_load(const char *path, uint8_t key[KEYFILE_BYTES], bool *readers, char *why,
		 size_t whysize);

#endif

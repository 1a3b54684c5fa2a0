/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_KEYFILE_H
#define ENGINE_LAUNCH_KEYFILE_H

/* The key file: a job's secret of 32 bytes, readable by its user alone. */

#include "engine/base/base.h"

enum { KEYFILE_BYTES = 32 };

/* Writes a new random key into a new file of mode 0600 at path; NULL: into the folder of
 * job-folder.h, where it replaces a dead job's.  path_out is the path used.
 * -EEXIST: path exists, or the job lives.
 * -errno.
 */
int keyfile_create(const char *job, const char *path, char *path_out, size_t size,
		   uint8_t key[KEYFILE_BYTES]);
/* Reads 32 bytes, 64 hexadecimal digits, or "readers " and 64 digits, which is a key for
 * readers (*readers).  With an error, why has one line.
 * -EACCES: the file is another user's, others may read it, or it has a readers' key and readers
 * is NULL.
 * -EINVAL: the file has none of these three forms.
 * -errno.
 */
int keyfile_load(const char *path, uint8_t key[KEYFILE_BYTES], bool *readers, char *why,
		 size_t whysize);

#endif

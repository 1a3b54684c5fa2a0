/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MOUNT_FILE_H
#define MOUNT_HELPERS_MOUNT_FILE_H

/* The text files of a mount. */

#include "engine/base/base.h"

/* All of one, the caller's to free.  -errno; -EFBIG: 64 MiB or more. */
int mount_file_read(const char *mountpoint, const char *name, char **text);
/* Its first line, cut to size. */
int mount_file_value(const char *mountpoint, const char *name, char *value, size_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MOUNT_FILE_H
#define MOUNT_HELPERS_MOUNT_FILE_H

/* Reads the text files of a mount. */

#include "engine/base/base.h"

/* Reads all of a file; *text is the caller's to free.  -EFBIG: it has 64 MiB or more. */
int mount_file_read(const char *mountpoint, const char *name, char **text);
/* Reads the file's first line, cut to size. */
int mount_file_value(const char *mountpoint, const char *name, char *value, size_t size);

#endif

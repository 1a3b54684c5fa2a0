/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MOUNT_FILE_H
#define MOUNT_HELPERS_MOUNT_FILE_H

/* The text files of a mount. */

#include <stddef.h>

/* Reads all of a file; the caller frees *text.
 * -EFBIG: the file has 64 MiB or more.
 */
int mount_file_read(const char *mountpoint, const char *name, char **text);
/* Reads the file's first line, cut to size. */
int mount_file_value(const char *mountpoint, const char *name, char *value, size_t size);
/* Reads the value of the first line "KEY VALUE" of a file, cut to size; "": there is no such
 * line, or no file.
 */
void mount_file_setting(const char *mountpoint, const char *name, const char *key, char *value,
			size_t size);
/* Writes a line to .frag/freeze or .frag/control, which waits for the ranks, and shows that it
 * waits.  Returns 0 or -errno.
 */
int mount_file_order(int fd, const char *line);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

/* Checks, before mounting, of the mount point and of /dev/fuse. */

#include "engine/base/base.h"

/* Sets *path, the caller's to free, to the absolute path of a directory on which nothing is
 * mounted; unmounts the dead mount that a killed fragfs has left there.
 * -errno: why has one line.
 */
int mountpoint_prepare(const char *given, char **path, char *why, size_t whysize);

/* 0 when /dev/fuse can be opened.  -errno: why has one line. */
int mountpoint_check_device(char *why, size_t whysize);

#endif

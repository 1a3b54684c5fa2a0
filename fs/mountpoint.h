/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_MOUNTPOINT_H
#define FS_MOUNTPOINT_H

/* May we mount there? */

#include "engine/base/base.h"

/* The absolute path of a directory on which nothing is mounted; *path is the caller's to free.
 * What a killed fragfs left there is unmounted.  -errno: why has one line.
 */
int mountpoint_prepare(const char *given, char **path, char *why, size_t whysize);

/* Can /dev/fuse be opened?  -errno: why has one line. */
int mountpoint_check_device(char *why, size_t whysize);

#endif

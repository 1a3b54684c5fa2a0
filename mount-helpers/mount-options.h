/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MOUNT_OPTIONS_H
#define MOUNT_HELPERS_MOUNT_OPTIONS_H

/* From the options that mount(8) hands its helpers to those of fragfs. */

#include "engine/base/base.h"

/* What mount(8), fstab readers and systemd keep for themselves is left out.  The result begins
 * with "ro", or with "rw" if "edit" is among the options and "ro" is not: mount(8) says "rw" by
 * default and when asked alike, so its "rw" means nothing.  options may be NULL.  The caller's
 * to free; NULL: no memory.
 */
char *mount_options_for_fragfs(const char *options);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MOUNT_OPTIONS_H
#define MOUNT_HELPERS_MOUNT_OPTIONS_H

/* Converts the options that mount(8) gives its helpers to those of fragfs. */

#include "engine/base/base.h"

/* Leaves out the options that mount(8), readers of fstab and systemd keep for themselves.  The
 * result begins with "rw" if "edit" is among the options and "ro" is not, else with "ro": the
 * "rw" of mount(8) means nothing, because mount(8) passes it by default too.  options may be
 * NULL.  The result is the caller's to free; NULL: no memory.
 */
char *mount_options_for_fragfs(const char *options);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_MOUNT_H
#define FS_MOUNT_H

/* The life of a mount, from its preconditions to its end. */

#include "fs/options.h"

/* Mounts, serves and unmounts.  Goes to the background unless o->foreground.  Returns the
 * program's exit status: in the parent when the mount is ready or one line has said why it is
 * not, in the daemon when it is unmounted.
 */
int mount_run(const struct options *o);

#endif

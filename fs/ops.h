/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_OPS_H
#define FS_OPS_H

/* The handlers of FUSE's requests.  The session's userdata is a struct fs. */

#include "fs/handle.h"

extern const struct fuse_lowlevel_ops ops;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_OPS_H
#define FS_OPS_H

/* FUSE's requests.  Userdata of the session is a struct fs. */

#include "fs/handle.h"

extern const struct fuse_lowlevel_ops ops;

#endif

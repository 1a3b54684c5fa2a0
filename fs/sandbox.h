/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_SANDBOX_H
#define FS_SANDBOX_H

/* What the process that parses somebody's checkpoint cannot do any more, whatever the files
 * make of it: open other files (landlock), speak to the network (landlock and seccomp), start
 * programs, look into processes or mount (seccomp), act as more than its user (no capability
 * but those for reading files).
 */

#include "engine/base/base.h"

struct sandbox_folder {
	const char *path; /* a file too; NULL: none */
	bool writable;
};

/* Before there are threads; for good.  Says in the log what the kernel does not have.  -errno:
 * a folder cannot be opened.
 */
int sandbox_enter(const struct sandbox_folder *folders, size_t count);

#endif

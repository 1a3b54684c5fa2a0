/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_SANDBOX_H
#define FS_SANDBOX_H

/* Takes rights away from the process that parses a checkpoint, whose files may be hostile.
 * From then on it cannot open other files (landlock), use the network (landlock and seccomp),
 * start programs, trace processes, mount, or change permissions, owners and attributes of files
 * (seccomp), and has no capability but those to read and write files of others and, with a
 * folder that is writable, to set their times.
 */

#include "engine/base/base.h"

struct sandbox_folder {
	const char *path; /* of a folder or file that the process may open; NULL: none */
	bool writable;
};

/* Enters the sandbox, for good; to be called before threads are started.  Logs which of these
 * limits the kernel does not offer.
 * -errno: a folder cannot be opened.
 */
int sandbox_enter(const struct sandbox_folder *folders, size_t count);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MACHINE_H
#define MOUNT_HELPERS_MACHINE_H

/* The settings of this machine that decide how fast a mount is. */

#include "engine/base/base.h"

struct machine {
	char huge_pages[16]; /* transparent_hugepage/enabled: "always", "madvise", "never" */
	char shared_huge_pages[16]; /* .../shmem_enabled; "-": the kernel has no such file */
	char yama[16];              /* ptrace_scope, "-": none */
	bool fuse;                  /* this user may open /dev/fuse */
};

void machine_read(struct machine *m);

/* Copies the word in brackets of "always [madvise] never", or all of text when there is none.
 * Exposed for tests.
 */
void machine_chosen(const char *text, char *word, size_t size);

#endif

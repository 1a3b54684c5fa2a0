/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_SETTINGS_H
#define MOUNT_HELPERS_SETTINGS_H

/* The settings of this machine that decide how fast a mount is. */

#include <stdbool.h>
#include <stddef.h>

struct settings {
	char huge_pages[16]; /* transparent_hugepage/enabled: "always", "madvise", "never" */
	char shared_huge_pages[16]; /* .../shmem_enabled; "-": the kernel has no such file */
	char yama[16];              /* ptrace_scope; "-": the kernel has no such file */
	bool fuse;                  /* this user may open /dev/fuse */
};

void settings_read(struct settings *s);
/* Reads a setting of the kernel, as settings_chosen; "-": the file is not there. */
void settings_get(const char *path, char *word, size_t size);
/* Copies the word in brackets of "always [madvise] never", or all of text when there is none.
 */
void settings_chosen(const char *text, char *word, size_t size);

#endif

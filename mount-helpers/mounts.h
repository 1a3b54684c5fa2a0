/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MOUNTS_H
#define MOUNT_HELPERS_MOUNTS_H

/* The mounts of fragfs, in a table like /proc/self/mounts. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct mount_entry {
	char *mountpoint;
	char *source;
};

/* Fills *entries, which mounts_free frees; privates: also with those that commands of fragctl
 * have made for themselves.  Returns their count; -ENOMEM.
 */
int mounts_read(FILE *table, bool privates, struct mount_entry **entries);
/* Reads this process's table. */
int mounts_read_own(bool privates, struct mount_entry **entries);
void mounts_free(struct mount_entry *entries, int n);
/* Writes the mount point `named` or, if that is NULL, the only one that is not private.
 * -ENOENT: there is no mount, or there are several; a line was printed.
 */
int mounts_find(const char *named, char *out, size_t size);

#endif

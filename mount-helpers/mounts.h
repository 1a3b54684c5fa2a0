/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_MOUNTS_H
#define MOUNT_HELPERS_MOUNTS_H

/* Finds the mounts of fragfs in a table like /proc/self/mounts. */

#include "engine/base/base.h"

#include <stdio.h>

struct mount_entry {
	char *mountpoint;
	char *source;
};

/* Fills *entries, which mounts_free frees.  Returns how many; -ENOMEM. */
int mounts_read(FILE *table, struct mount_entry **entries);
void mounts_free(struct mount_entry *entries, int n);

#endif

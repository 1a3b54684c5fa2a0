/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_FRAGMENTS_H
#define MOUNT_HELPERS_FRAGMENTS_H

/* The file `fragments` of a parameter: the fragments of its states, and where they are. */

#include "mount-helpers/params.h"

struct fragment {
	uint32_t rank;
	const char *state, *tier, *partition, *offset, *param_offset; /* point into text */
	uint64_t numel;
};

struct fragments {
	char *text;
	struct fragment *list;
	size_t n;
};

/* -errno. */
int fragments_read(struct fragments *f, const char *mountpoint, const struct param *param);
void fragments_free(struct fragments *f);

/* Returns the ranks of all fragments, "0-2,7", which the caller frees; NULL: no memory. */
char *fragments_ranks(const struct fragments *f);
/* Returns the tiers of all fragments, "host,swap", which the caller frees; NULL: no memory. */
char *fragments_tiers(const struct fragments *f);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_FRAGMENTS_H
#define MOUNT_HELPERS_FRAGMENTS_H

/* The file `fragments` of a parameter: its pieces, and where they are. */

#include "mount-helpers/params.h"

struct fragment {
	uint32_t rank;
	const char *state, *tier, *partition, *offset, *param_offset; /* in the text */
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

/* Both return a text that the caller frees; NULL: there was no memory.  "0-2,7" */
char *fragments_ranks(const struct fragments *f);
/* "host,swap" */
char *fragments_tiers(const struct fragments *f);

#endif

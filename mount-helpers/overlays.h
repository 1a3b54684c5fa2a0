/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_OVERLAYS_H
#define MOUNT_HELPERS_OVERLAYS_H

/* What fragctl does with an overlay of a checkpoint.  On error why has one line. */

#include "engine/base/base.h"

#include <jansson.h>
#include <stdio.h>

int overlays_print(const char *path, FILE *to, char *why, size_t whysize);
/* NULL: as above. */
json_t *overlays_json(const char *path, char *why, size_t whysize);

/* Says what it has written where.  checkpoint: NULL: where it was. */
int overlays_commit(const char *path, const char *checkpoint, FILE *to, char *why,
		    size_t whysize);
int overlays_discard(const char *path, char *why, size_t whysize);

#endif

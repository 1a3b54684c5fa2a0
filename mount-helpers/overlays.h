/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_OVERLAYS_H
#define MOUNT_HELPERS_OVERLAYS_H

/* fragctl overlay, commit and discard, for an overlay of a checkpoint.  On error why has one
 * line.
 */

#include "engine/base/base.h"

#include <jansson.h>
#include <stdio.h>

int overlays_print(const char *path, FILE *to, char *why, size_t whysize);
/* NULL: an error. */
json_t *overlays_json(const char *path, char *why, size_t whysize);

/* Writes the overlay's edits into the checkpoint, and prints what it wrote.  checkpoint NULL:
 * the path that the overlay names.
 */
int overlays_commit(const char *path, const char *checkpoint, FILE *to, char *why,
		    size_t whysize);
/* Deletes the overlay's edits. */
int overlays_discard(const char *path, char *why, size_t whysize);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_ARENAS_H
#define MOUNT_HELPERS_ARENAS_H

/* fragctl arena: the arenas of a job's ranks, read from ranks/R/arena of a mount. */

#include "engine/base/base.h"

#include <jansson.h>
#include <stdio.h>

/* Both functions: rank < 0 means all ranks that have an arena; on error why has one line.
 * -ENOENT: no such rank, or it has no arena.
 */

/* Prints the figures of each arena and a map of it, as wide as the terminal, with ASCII
 * characters only if ascii.
 */
int arenas_print(const char *mountpoint, int64_t rank, bool ascii, FILE *to, char *why,
		 size_t whysize);
/* Returns an array; NULL: an error. */
json_t *arenas_json(const char *mountpoint, int64_t rank, char *why, size_t whysize);

#endif

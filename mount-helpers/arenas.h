/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MOUNT_HELPERS_ARENAS_H
#define MOUNT_HELPERS_ARENAS_H

/* fragctl arena: the arenas of a job's ranks, as ranks/<r>/arena of a mount tells them. */

#include "engine/base/base.h"

#include <jansson.h>
#include <stdio.h>

/* rank < 0: all that have one.  On error why has a line: -ENOENT, -EINVAL: no such rank, or
 * without an arena.
 */

/* Figures and a map of each, as wide as the terminal; ascii: in no other characters. */
int arenas_print(const char *mountpoint, int64_t rank, bool ascii, FILE *to, char *why,
		 size_t whysize);
/* An array; NULL: an error. */
json_t *arenas_json(const char *mountpoint, int64_t rank, char *why, size_t whysize);

#endif

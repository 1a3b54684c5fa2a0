/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_HEALTH_H
#define ENGINE_CATALOG_HEALTH_H

/* The text of .frag/health: one line a rank, below a line that names the columns.
 *
 *   rank state step generation boundary boundary_ms phase  way  bytes   ... host  address   why
 *   0    alive 17   17         35       12          stable host 1048576 ... node0 tcp://... -
 *
 * Words are separated by spaces; "-" is an empty one; `why` is the rest of the line.  A reader
 * finds columns by their names, because later versions add some.  The table in health.c has all
 * columns, for writing and for reading.  No I/O.  Any thread.
 */

#include "engine/engine.h"

/* Returns the text, the caller's to free; NULL: no memory. */
char *health_text(const struct engine_rank *ranks, uint32_t nranks);

/* Parses such a text.  *ranks is the caller's to free; way and phase point to constants.
 * -EINVAL: the text is no such table.
 * -ENOMEM.
 */
int health_parse(const char *text, struct engine_rank **ranks, uint32_t *nranks);

#endif

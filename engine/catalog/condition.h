/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_CONDITION_H
#define ENGINE_CATALOG_CONDITION_H

/* A condition on states, at which a watched job is to stand, and its text:
 *
 *	QUANTITY(STATE[, PATTERN]) > NUMBER [for SECONDS]
 *
 * QUANTITY is nan, inf, norm or absmax, of each parameter whose name matches PATTERN by itself;
 * PATTERN is fnmatch(3)'s, whose * matches dots, too.  SECONDS bound the freeze.  No I/O, no
 * threads.
 */

#include "engine/catalog/wire.h"

#include <string.h>

enum { CONDITION_TEXT_MAX = 320, CONDITION_FREEZE_S = 3600 };

/* Sets *ms to the bound of the freeze: CONDITION_FREEZE_S where the text has none.
 * -EINVAL: the text is no condition, or the bound is longer than a freeze may be.
 * -ENAMETOOLONG: the pattern has more than 127 bytes.
 */
int condition_parse(const char *text, struct wire_condition *c, uint32_t *ms);
/* Writes the text, without a bound. */
void condition_print(const struct wire_condition *c, char text[CONDITION_TEXT_MAX]);
/* Returns true if a condition that another engine sent is one that condition_parse makes. */
bool condition_is_valid(const struct wire_condition *c);
bool condition_names(const struct wire_condition *c, const char *param);
/* Returns in words why nobody can watch for a condition; -errno of a watch. */
const char *condition_why_not(int status);

static inline double condition_above(const struct wire_condition *c)
{
	double above;

	memcpy(&above, &c->above, sizeof(above));
	return above;
}

#endif

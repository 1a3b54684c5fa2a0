/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_FALLBACK_H
#define ENGINE_ROUNDS_FALLBACK_H

/* The reasons why bytes do not come by a round (enum wire_fallback), in words. */

#include "engine/catalog/wire.h"

#include <stdio.h>

/* Returns the name of the reason in metrics: one word. */
const char *fallback_name(enum wire_fallback reason);
/* Writes the rest of a line: each reason that has occurred, and how often. */
void fallback_describe(const uint64_t counts[WIRE_FALLBACKS], FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_FALLBACK_H
#define ENGINE_ROUNDS_FALLBACK_H

/* Why bytes do not come by a round, in words. */

#include "engine/catalog/wire.h"

#include <stdio.h>

/* One word, as in metrics. */
const char *fallback_name(enum wire_fallback unfit);
/* The rest of a line: of each reason that there was, how often. */
void fallback_describe(const uint64_t counts[WIRE_FALLBACKS], FILE *out);

#endif

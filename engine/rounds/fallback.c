/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rounds/fallback.h"

static const struct {
	const char *name, *text;
} reasons[WIRE_FALLBACKS] = {
	[WIRE_FALLBACK_NONE] = { "none", "" },
	[WIRE_FALLBACK_TOLD] = { "option", "gather=host" },
	[WIRE_FALLBACK_SIZE] = { "size", "few bytes" },
	[WIRE_FALLBACK_REACH] = { "reach", "no rank's memory in reach" },
	[WIRE_FALLBACK_TIER] = { "tier", "not where the communicator reaches" },
	[WIRE_FALLBACK_BOUNDARY] = { "boundary", "no boundary in time" },
	[WIRE_FALLBACK_COMMUNICATOR] = { "communicator", "no communicator" },
	[WIRE_FALLBACK_BROKEN] = { "broken", "failed on the way" },
	[WIRE_FALLBACK_VIEW] = { "view", "the view was gone" },
	[WIRE_FALLBACK_ROOM] = { "room", "no memory free for it" },
	[WIRE_FALLBACK_LATE] = { "late", "not fetched in time by its reader" },
};

const char *fallback_name(enum wire_fallback reason)
{
	return reasons[reason].name;
}

void fallback_describe(const uint64_t counts[WIRE_FALLBACKS], FILE *out)
{
	const char *before = "; not by rounds: ";

	for (unsigned i = WIRE_FALLBACK_NONE + 1; i < WIRE_FALLBACKS; i++) {
		if (!counts[i])
			continue;
		fprintf(out, "%s%s %llu", before, reasons[i].text,
			(unsigned long long)counts[i]);
		before = ", ";
	}
	fputc('\n', out);
}

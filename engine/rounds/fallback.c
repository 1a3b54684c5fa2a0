/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rounds/fallback.h"

static const struct {
	const char *name, *text;
} reasons[WIRE_UNFITS] = {
	[WIRE_FIT] = { "none", "" },
	[WIRE_UNFIT_TOLD] = { "option", "gather=host" },
	[WIRE_UNFIT_SIZE] = { "size", "few bytes" },
	[WIRE_UNFIT_REACH] = { "reach", "no rank's memory in reach" },
	[WIRE_UNFIT_TIER] = { "tier", "not where the communicator reaches" },
	[WIRE_UNFIT_BOUNDARY] = { "boundary", "no boundary in time" },
	[WIRE_UNFIT_COMMUNICATOR] = { "communicator", "no communicator" },
	[WIRE_UNFIT_BROKEN] = { "broken", "failed on the way" },
	[WIRE_UNFIT_VIEW] = { "view", "the view was gone" },
	[WIRE_UNFIT_ROOM] = { "room", "no memory free for it" },
	[WIRE_UNFIT_LATE] = { "late", "not fetched in time by its reader" },
};

const char *unfit_name(enum wire_unfit unfit)
{
	return reasons[unfit].name;
}

void unfit_describe(const uint64_t counts[WIRE_UNFITS], FILE *out)
{
	const char *before = "; not by rounds: ";

	for (unsigned i = WIRE_FIT + 1; i < WIRE_UNFITS; i++) {
		if (!counts[i])
			continue;
		fprintf(out, "%s%s %llu", before, reasons[i].text,
			(unsigned long long)counts[i]);
		before = ", ";
	}
	fputc('\n', out);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "mount-helpers/commands.h"

#include "engine/base/base.h"
#include "mount-helpers/numa.h"

#include <stdio.h>
#include <string.h>

enum { COLUMN_RANK, COLUMN_CORES, COLUMN_POLICY, COLUMN_NODES, COLUMN_LINE };

const struct listing_column numa_columns[] = {
	[COLUMN_RANK] = { "rank", LISTING_NUMBER },
	[COLUMN_CORES] = { "cores", LISTING_TEXT },
	[COLUMN_POLICY] = { "policy", LISTING_TEXT },
	[COLUMN_NODES] = { "nodes", LISTING_TEXT },
	[COLUMN_LINE] = { "line", LISTING_TEXT, true },
	{ NULL },
};

static void add_row(struct listing *t, unsigned rank, const struct numa_place *p)
{
	static const char *const policies[] = {
		[NUMA_LOCAL] = "local", [NUMA_BIND] = "bind", [NUMA_PREFER] = "prefer"
	};
	static char text[2 * CPUS_TEXT];

	listing_row(t);
	listing_number(t, COLUMN_RANK, rank);
	listing_text(t, COLUMN_CORES, cpus_text(&p->cpus, text, sizeof(text)));
	listing_text(t, COLUMN_POLICY, policies[p->memory]);
	listing_text(t, COLUMN_NODES, cpus_text(&p->nodes, text, sizeof(text)));
	listing_text(t, COLUMN_LINE, numa_line(p, text, sizeof(text)));
}

/* Gives the number of this host's ranks: that of -n, else the launcher's, else 1. */
static int count_ranks(const struct call *call, unsigned *procs)
{
	const char *text = env_text("LOCAL_WORLD_SIZE");
	char rest;

	*procs = call->count ? call->count : 1;
	if (call->count || !text)
		return 0;
	if (*text >= '0' && *text <= '9' && strlen(text) < 8 &&
	    sscanf(text, "%u%c", procs, &rest) == 1 && *procs)
		return 0;
	return call_usage("LOCAL_WORLD_SIZE=%s: a whole number from 1 on", text);
}

static int show(const struct call *call, struct listing *t, const struct numa *m,
		const struct cpus *cores, unsigned procs)
{
	unsigned rank = call_has(call, 'R') ? call->rank : 0;
	unsigned end = call_has(call, 'R') ? rank + 1 : procs;
	bool line = call_has(call, 'R') && !call_has(call, 'J') && !call->output;
	struct numa_place p;
	char why[256];

	do {
		static char text[2 * CPUS_TEXT + 64];

		if (numa_place(&p, m, cores, procs, rank, why, sizeof(why)))
			return call_fail("%s", why);
		if (line)
			puts(numa_line(&p, text, sizeof(text)));
		else
			add_row(t, rank, &p);
	} while (++rank < end);
	return line ? 0 : listing_print(t, "ranks");
}

int numa_run(const struct call *call)
{
	struct cpus cores;
	struct numa m;
	struct listing t;
	unsigned procs;
	char why[256];
	int rc;

	/* OpenMP would bind its threads to the cores of KMP_AFFINITY, not to numactl's. */
	if (getenv("KMP_AFFINITY"))
		return call_fail("KMP_AFFINITY is set, and contradicts numactl: unset it");
	if (call->words[0] && cpus_parse(&cores, call->words[0], why, sizeof(why)))
		return call_usage("%s", why);
	rc = count_ranks(call, &procs);
	if (rc)
		return rc;
	rc = listing_init(&t, call, numa_columns);
	if (rc)
		return rc;
	rc = numa_read(&m, why, sizeof(why)) ? call_fail("%s", why) : 0;
	if (!rc) {
		rc = show(call, &t, &m, call->words[0] ? &cores : NULL, procs);
		numa_fini(&m);
	}
	listing_fini(&t);
	return rc;
}

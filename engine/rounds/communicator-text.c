/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rounds/communicator-internal.h"

#include <string.h>

void communicator_about(struct engine *e, struct collective_about *about)
{
	struct communicator *c = e->rounds.communicator;

	memset(about, 0, sizeof(*about));
	if (c && c->c)
		c->ops->about(c->c, about);
}

static void describe_ranks(const struct communicator *c, FILE *out)
{
	static const char *const states[] = { "not connected", "asking who takes part",
					      "connecting", "connected", "parting" };

	fprintf(out, "%s", states[c->state]);
	for (uint32_t i = 0; i < c->nranks; i++)
		fprintf(out, "%s%u", i ? " " : ", ranks ", c->ranks[i]);
	fputc('\n', out);
	if (*c->without)
		fprintf(out,
			"without ranks%s: when asked they had given no devices (frag_devices), "
			"or "
			"are not to be connected\n",
			c->without);
}

static const char *why_none(const struct engine *e)
{
	if (e->launch.gather_by_host)
		return "FRAG_GATHER=host was set";
	if (atomic_load(&e->rounds.one_queue))
		return "CUDA_DEVICE_MAX_CONNECTIONS=1 was set";
	return "it has given no devices (frag_devices)";
}

void communicator_describe(struct engine *e, FILE *out)
{
	const struct communicator *c = e->rounds.communicator;
	struct collective_about about;

	if (!c) {
		fprintf(out, "none: rank %u is not to be connected: %s\n", e->rank,
			why_none(e));
		return;
	}
	describe_ranks(c, out);
	communicator_about(e, &about);
	fprintf(out, "library %s %d, device %d\n", c->ops->name, about.version,
		c->options.number);
	fprintf(out, "connected %llu times, lost %llu times\n", (unsigned long long)c->made,
		(unsigned long long)c->failed);
	fprintf(out,
		"launched %llu, ended %llu, failed %llu, sent %llu bytes, received %llu "
		"bytes\n",
		(unsigned long long)about.launched, (unsigned long long)about.ended,
		(unsigned long long)about.failed, (unsigned long long)about.bytes_sent,
		(unsigned long long)about.bytes_received);
	fprintf(out, "last error: %s\n", *c->why ? c->why : "none");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/join.h"
#include "engine/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* While not all ranks have come: who has not, in words. */

enum { SAY_MS = 10000, SAY_MAX_MS = 600000, NAMES = 160 };

uint32_t join_missing(const struct engine *e, uint32_t missing[JOIN_NAMED])
{
	uint32_t n = 0;

	for (uint32_t rank = 0; rank < e->world && n < JOIN_NAMED && !e->ready; rank++)
		if (!e->peers[rank].entry.present)
			missing[n++] = rank;
	return n;
}

void join_take_missing(struct engine *e, const void *tail, size_t size)
{
	struct join *j = e->join;

	j->nmissing = (uint32_t)u64_min(size / sizeof(j->missing[0]), JOIN_NAMED);
	if (j->nmissing)
		memcpy(j->missing, tail, j->nmissing * sizeof(j->missing[0]));
}

/* "3 of 8 ranks have joined; not yet: 0 2 5 6 7". */
static void name_missing(const uint32_t *missing, uint32_t named, uint32_t joined,
			 uint32_t world, char out[NAMES])
{
	size_t used = (size_t)snprintf(out, NAMES, "%u of %u ranks have joined", joined, world);

	for (uint32_t i = 0; i < named && used < NAMES; i++)
		used += (size_t)snprintf(out + used, NAMES - used, "%s%u",
					 i ? " " : "; not yet: ", missing[i]);
	if (named && named < world - joined && used < NAMES)
		snprintf(out + used, NAMES - used, " and %u more", world - joined - named);
}

void join_note_missing(struct engine *e)
{
	const struct join *j = e->join;
	char names[NAMES];

	name_missing(j->missing, j->nmissing, j->welcome.joined, j->welcome.world, names);
	snprintf(e->why, sizeof(e->why), "job %.30s: %s", e->job, names);
}

static void say_of_zero(const struct engine *e, unsigned seconds)
{
	uint32_t missing[JOIN_NAMED];
	char names[NAMES];

	name_missing(missing, join_missing(e, missing), join_count(e), e->world, names);
	log_warn("job %s: after %u s %s", e->job, seconds, names);
}

static void say(const struct engine *e, unsigned seconds)
{
	const struct join *j = e->join;

	if (j->phase == JOIN_FIND)
		log_warn("job %s: rank 0 has not been found for %u s; on other hosts than its "
			 "own give every rank MASTER_ADDR and FRAG_KEY_FILE (or FRAG_PLAIN=1)",
			 e->launch.job, seconds);
	else if (!e->rank)
		say_of_zero(e, seconds);
	else if (j->welcome.world && e->why[0])
		log_warn("after %u s: %s", seconds, e->why);
	else
		log_warn("job %s: rank 0 has not answered for %u s", e->launch.job, seconds);
}

void join_count_wait(struct engine *e, uint64_t now)
{
	e->join->since_ms = now;
	e->join->say_ms = SAY_MS;
}

void join_say_when_long(struct engine *e, uint64_t now)
{
	struct join *j = e->join;
	uint64_t waited = now - j->since_ms;

	if (!e->is_rank || e->ready || waited < j->say_ms ||
	    (!j->described && j->phase != JOIN_FIND))
		return;
	say(e, (unsigned)(waited / 1000));
	j->say_ms = waited + u64_min(waited, SAY_MAX_MS);
}

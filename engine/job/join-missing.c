/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/join.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* While not all ranks have come: who has not, in words. */

enum { ZERO_MS = 1000, SAY_MS = 10000, SAY_MAX_MS = 600000, NAMES = 160 };

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

void join_name_ranks(const uint32_t *ranks, uint32_t named, uint32_t all, char *out,
		     size_t size)
{
	size_t used = 0;

	for (uint32_t i = 0; i < named && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%u", i ? " " : "",
					 ranks[i]);
	if (named < all && used < size)
		snprintf(out + used, size - used, " and %u more", all - named);
}

/* "3 of 8 ranks have joined; not yet: 0 2 5 6 7". */
static void name_missing(const uint32_t *missing, uint32_t named, uint32_t joined,
			 uint32_t world, char out[NAMES])
{
	size_t used = (size_t)snprintf(out, NAMES, "%u of %u ranks have joined%s", joined,
				       world, named ? "; not yet: " : "");

	if (named)
		join_name_ranks(missing, named, world - joined, out + used, NAMES - used);
}

void join_note_missing(struct engine *e)
{
	struct join *j = e->join;
	char names[NAMES];

	if (j->refusal)
		return;
	if (e->is_rank && !e->rank) {
		j->welcome.world = e->world;
		j->welcome.joined = join_count(e);
		j->nmissing = join_missing(e, j->missing);
	}
	name_missing(j->missing, j->nmissing, j->welcome.joined, j->welcome.world, names);
	snprintf(e->why, sizeof(e->why), "job %.30s: %s", e->job, names);
}

/* Why a rank does not know who is missing. */
static const char *why_unknown(const struct join *j)
{
	if (!j->described)
		return "frag_ready has not been called";
	return j->phase == JOIN_FIND ? "rank 0 has not been found" : "rank 0 has not answered";
}

void join_say_missing(struct engine *e, const char *who)
{
	if (!e->rank)
		join_note_missing(e);
	log_warn("%s: %s", who, e->join->welcome.world ? e->why : why_unknown(e->join));
}

static void say(struct engine *e, unsigned seconds)
{
	const struct join *j = e->join;
	char after[32];

	snprintf(after, sizeof(after), "after %u s", seconds);
	if (j->phase == JOIN_FIND)
		log_warn("job %s: rank 0 has not been found for %u s; on other hosts than its "
			 "own give every rank MASTER_ADDR and FRAG_KEY_FILE (or FRAG_PLAIN=1)",
			 e->launch.job, seconds);
	else if (!e->rank || j->welcome.world)
		join_say_missing(e, after);
	else
		log_warn("job %s: rank 0 has not answered for %u s", e->launch.job, seconds);
}

/* Where a rank looks for rank 0. */
static void name_place(const struct engine *e, char *out, size_t size)
{
	const struct launch *l = &e->launch;

	if (e->join->seeds[0])
		snprintf(out, size, "at %.200s", e->join->seeds);
	else if (l->rendezvous[0])
		snprintf(out, size, "in the job file %.200s", l->rendezvous);
	else if (l->master_addr[0])
		snprintf(out, size, "in this user's job files on this host, and at %.200s",
			 l->master_addr);
	else
		snprintf(out, size, "in this user's job files on this host");
}

static bool waits_for_zero(const struct engine *e)
{
	return e->rank && (e->join->phase == JOIN_FIND || !e->join->welcome.world);
}

static void say_first(const struct engine *e)
{
	char place[256];

	name_place(e, place, sizeof(place));
	log_warn("job %s: waits for rank 0, and looks for it %s", e->launch.job, place);
}

void join_count_wait(struct engine *e, uint64_t now)
{
	e->join->since_ms = now;
	e->join->say_ms = e->rank ? ZERO_MS : SAY_MS;
}

void join_say_when_long(struct engine *e, uint64_t now)
{
	struct join *j = e->join;
	uint64_t waited = now - j->since_ms;

	if (!e->is_rank || e->ready || waited < j->say_ms ||
	    (!j->described && j->phase != JOIN_FIND))
		return;
	if (j->say_ms < SAY_MS) {
		if (waits_for_zero(e))
			say_first(e);
		j->say_ms = SAY_MS;
		return;
	}
	say(e, (unsigned)(waited / 1000));
	j->say_ms = waited + u64_min(waited, SAY_MAX_MS);
}

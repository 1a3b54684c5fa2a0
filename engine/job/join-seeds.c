/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/join-internal.h"
#include "engine/transport/transport-address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The addresses at which the job may be: which is tried, for how long, and when the next is
 * tried.
 */

enum { SEED_MS = 500 }; /* in the first pass; twice as long in each further one */

unsigned join_count_seeds(const struct join_seeds *s)
{
	unsigned n = 1;

	for (const char *at = s->list; (at = strchr(at, ',')); at++)
		n++;
	return n;
}

void join_add_seed(struct join_seeds *s, const char *address)
{
	size_t size = strlen(address), used = strlen(s->list);

	for (const char *at = s->list; *at; at += strspn(at, ",")) {
		if (strcspn(at, ",") == size && !memcmp(at, address, size))
			return;
		at += strcspn(at, ",");
	}
	if (used + 1 + size >= sizeof(s->list)) /* the list is full: it begins anew */
		used = s->current = 0;
	snprintf(s->list + used, sizeof(s->list) - used, "%s%s", used ? "," : "", address);
}

void join_unlink_seed(struct engine *e)
{
	struct join *j = e->job.join;

	if (j->seeds.linked)
		e->messages.ops->disconnect(e->messages.transport, j->seeds.link);
	rpc_forget(e, j);
	j->seeds.linked = j->seeds.answered = j->waiting = false;
}

int join_link_seed(struct engine *e)
{
	struct join_seeds *s = &e->job.join->seeds;
	const char *at = s->list;
	char address[256];
	int rc;

	if (s->linked)
		return 0;
	for (unsigned n = 0; n < s->current && strchr(at, ','); n++)
		at = strchr(at, ',') + 1;
	snprintf(address, sizeof(address), "%.*s", (int)strcspn(at, ","), at);
	rc = e->messages.ops->connect(e->messages.transport, address, &s->link);
	s->linked = !rc;
	if (!rc)
		snprintf(e->job.address, sizeof(e->job.address), "%.159s",
			 transport_address_shown(address));
	return rc;
}

/* Reports that some seeds refused the key, once all have been tried. */
static void all_tried(struct engine *e)
{
	struct join_seeds *s = &e->job.join->seeds;

	if (!e->is_rank && s->refusals >= join_count_seeds(s)) {
		e->job.failure = -EACCES; /* engine_open gives its caller e->job.why */
		pthread_cond_broadcast(&e->changed);
	}
	if (e->is_rank && !s->said_refused)
		log_warn("%s; trying again", e->job.why);
	s->said_refused = true;
	s->refusals = 0;
	e->job.join->retry_ms = monotonic_ms() + JOIN_REFUSED_RETRY_MS;
}

void join_next_seed(struct engine *e)
{
	struct join_seeds *s = &e->job.join->seeds;

	join_unlink_seed(e);
	s->current = (s->current + 1) % join_count_seeds(s);
	e->job.join->retry_ms = monotonic_ms() + JOIN_RETRY_MS;
	s->passes += !s->current;
	if (!s->current && s->refusals)
		all_tried(e);
}

void join_shut_out(struct engine *e)
{
	if (e->job.key.is_there)
		snprintf(e->job.why, sizeof(e->job.why),
			 "%.80s does not accept our key: it is another job's, or the job runs "
			 "plain (%sFRAG_PLAIN=1)",
			 e->job.address, e->is_rank ? "" : "-o plain; fragctl: ");
	else
		snprintf(e->job.why, sizeof(e->job.why),
			 "%.80s does not accept us without a key: the job runs with one "
			 "(%sFRAG_KEY_FILE)",
			 e->job.address, e->is_rank ? "" : "-o key=FILE; fragctl: ");
	if (e->is_rank && !e->launch.key_file[0] && !e->launch.plain) {
		/* the job file named the key, and may be that of a job that has ended since */
		join_find_anew(e);
		return;
	}
	e->job.join->seeds.refusals += !e->job.ready;
	join_next_seed(e);
	if (e->job.ready && !e->is_rank)
		join_try_new_key(e);
}

/* Returns true if the current seed has not answered for long, and there are others. */
static bool is_slow(const struct engine *e, uint64_t now)
{
	const struct join *j = e->job.join;
	uint64_t patience = (uint64_t)SEED_MS << u64_min(j->seeds.passes, 16);

	return j->waiting && !j->seeds.answered && join_count_seeds(&j->seeds) > 1 &&
	       now >= j->asked_ms + u64_min(patience, e->timeout_ms);
}

void join_look_at_seed(struct engine *e, uint64_t now)
{
	const struct join *j = e->job.join;

	if (!j->seeds.linked || (e->job.ready && (e->is_rank || j->state == JOIN_DONE)))
		return;
	if (e->messages.ops->refused &&
	    e->messages.ops->refused(e->messages.transport, j->seeds.link))
		join_shut_out(e);
	else if (is_slow(e, now))
		join_next_seed(e);
}

void join_gone(struct engine *e, uint32_t link)
{
	struct join *j = e->job.join;

	if (!j || !j->seeds.linked || j->seeds.link != link || !j->waiting ||
	    j->state == JOIN_DONE || join_count_seeds(&j->seeds) == 1)
		return;
	join_next_seed(e);
	if (e->job.ready)
		j->state = JOIN_DONE; /* where join_turn looks again */
}

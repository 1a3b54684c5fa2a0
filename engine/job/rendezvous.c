/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/job/rendezvous.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct arrival { /* of one rank */
	struct wire_rendezvous said;
	uint32_t peer;
	uint64_t request;
	bool waits;                      /* for the answer */
	struct wire_rendezvous_over met; /* the last answer, in case it got lost */
};

struct meeting { /* of one group */
	SLIST_ENTRY(meeting) next;
	uint32_t group;
	unsigned waiting;          /* arrivals that wait */
	uint64_t until_ms;         /* when the first arrival's time ends all with -ETIMEDOUT */
	struct arrival arrivals[]; /* [nranks of the group] */
};

static struct meeting *find_or_add(struct engine *e, uint32_t group, uint32_t nranks)
{
	struct meeting *m;

	SLIST_FOREACH (m, &e->job.rendezvous->meetings, next)
		if (m->group == group)
			return m;
	m = calloc(1, sizeof(*m) + nranks * sizeof(m->arrivals[0]));
	if (!m)
		return NULL;
	m->group = group;
	SLIST_INSERT_HEAD(&e->job.rendezvous->meetings, m, next);
	return m;
}

int rendezvous_new(struct engine *e)
{
	e->job.rendezvous = calloc(1, sizeof(*e->job.rendezvous));
	return e->job.rendezvous ? 0 : -ENOMEM;
}

void rendezvous_free(struct engine *e)
{
	struct rendezvous *r = e->job.rendezvous;
	struct meeting *m;

	while (r && (m = SLIST_FIRST(&r->meetings))) {
		SLIST_REMOVE_HEAD(&r->meetings, next);
		free(m);
	}
	free(r);
}

/* ---- the counter ---- */

static uint32_t ranks_of(const struct engine *e, const struct meeting *m)
{
	return e->catalog->groups[m->group].nranks;
}

static void tell(struct engine *e, const struct arrival *a)
{
	node_send(e, a->peer, WIRE_RENDEZVOUS_OVER, a->request, &a->met, NULL, 0);
}

static void release(struct engine *e, struct meeting *m, const struct wire_rendezvous_over *met)
{
	for (uint32_t i = 0; i < ranks_of(e, m); i++) {
		struct arrival *a = &m->arrivals[i];

		if (!a->waits)
			continue;
		a->met = *met;
		a->waits = false;
		tell(e, a);
	}
	m->waiting = 0;
}

static bool is_same(const struct wire_rendezvous *a, const struct wire_rendezvous *b)
{
	return a->param == b->param && a->root == b->root &&
	       !memcmp(a->key, b->key, sizeof(a->key));
}

/* Returns true if both ranks can use the same communicator.  Ranks at different boundaries,
 * where rounds are launched, would launch its operations in different orders.
 */
static bool goes_with(const struct wire_rendezvous *a, const struct wire_rendezvous *b)
{
	return a->communicator && a->communicator == b->communicator &&
	       a->boundary == b->boundary && a->held == b->held;
}

/* Returns the newest stage that a rank has come to.  A rank that is behind it gave its call up
 * before the counter heard so, and has called anew.
 */
static uint32_t newest_stage(const struct engine *e, const struct meeting *m)
{
	uint32_t stage = 0;

	for (uint32_t i = 0; i < ranks_of(e, m); i++)
		if (m->arrivals[i].said.stage > stage)
			stage = m->arrivals[i].said.stage;
	return stage;
}

/* Returns the verdict on one arrival, compared with the group's first rank's. */
static struct wire_rendezvous_over weigh(const struct wire_rendezvous *said,
					 const struct wire_rendezvous *first, uint32_t stage)
{
	if (said->stage < stage)
		return (struct wire_rendezvous_over){ .status = -ETIMEDOUT,
						      .why = WIRE_RENDEZVOUS_AWAY };
	if (!is_same(said, first))
		return (struct wire_rendezvous_over){ .status = -EINVAL,
						      .why = WIRE_RENDEZVOUS_DIFFERS };
	if (said->stage || said->status)
		return (struct wire_rendezvous_over){ .status = wire_status(said->status),
						      .why = WIRE_RENDEZVOUS_SAID };
	return (struct wire_rendezvous_over){ .status = goes_with(said, first) ? 0 : -EREMOTE };
}

/* Gives the verdict on all arrivals: the first error; -EREMOTE only if there is no other. */
static void judge(const struct engine *e, const struct meeting *m,
		  struct wire_rendezvous_over *met)
{
	const struct catalog_group *group = &e->catalog->groups[m->group];
	uint32_t stage = newest_stage(e, m);

	*met = (struct wire_rendezvous_over){ 0 };
	for (uint32_t i = 0; i < group->nranks; i++) {
		struct wire_rendezvous_over one =
			weigh(&m->arrivals[i].said, &m->arrivals[0].said, stage);

		if (!one.status || (met->status && met->status != -EREMOTE))
			continue;
		*met = one;
		met->rank = group->ranks[i];
	}
	for (uint32_t i = 0; i < group->nranks; i++)
		if (m->arrivals[i].said.root == group->ranks[i])
			memcpy(met->transaction, m->arrivals[i].said.transaction,
			       sizeof(met->transaction));
}

/* Finds a rank that has not come and is lost; late: or that has not come. */
static bool misses(struct engine *e, const struct meeting *m, bool late,
		   struct wire_rendezvous_over *met)
{
	const struct catalog_group *group = &e->catalog->groups[m->group];

	for (uint32_t i = 0; i < group->nranks && !met->status; i++) {
		uint32_t rank = group->ranks[i];

		if (m->arrivals[i].waits)
			continue;
		met->rank = rank;
		if (rank != e->rank && peers_reach(e, rank))
			met->status = peers_lost_status(e, rank);
		else if (late)
			met->status = -ETIMEDOUT;
	}
	return met->status;
}

static void turn_meeting(struct engine *e, struct meeting *m, uint64_t now)
{
	struct wire_rendezvous_over met = { 0 };

	/* twice: a rank that is lost is named before one that is only late */
	if (misses(e, m, false, &met) || misses(e, m, now >= m->until_ms, &met))
		release(e, m, &met);
}

static void arrive(struct engine *e, struct meeting *m, struct arrival *a,
		   const struct wire_rendezvous *said, uint32_t peer, uint64_t request)
{
	struct wire_rendezvous_over met;
	bool again = !a->waits && a->said.count == said->count;

	a->peer = peer;
	a->request = request;
	if (again) { /* the answer was lost */
		tell(e, a);
		return;
	}
	if (!a->waits && !m->waiting++)
		m->until_ms = monotonic_ms() + said->wait_ms;
	a->said = *said;
	a->waits = true;
	if (m->waiting < ranks_of(e, m))
		return;
	judge(e, m, &met);
	release(e, m, &met);
}

void rendezvous_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		      const void *body)
{
	const struct catalog_group *group;
	struct wire_rendezvous said;
	struct arrival *a;
	struct meeting *m;
	uint32_t member;

	memcpy(&said, body, sizeof(said));
	group = e->job.ready && said.group < e->catalog->ngroups
			? &e->catalog->groups[said.group]
			: NULL;
	member = group ? catalog_member(group, header->rank) : CATALOG_NONE;
	if (member == CATALOG_NONE || !wire_text_ok(said.key, sizeof(said.key))) {
		node_ack(e, peer, header->request, e->job.ready ? -EINVAL : -EAGAIN);
		return;
	}
	m = find_or_add(e, said.group, group->nranks);
	if (!m) {
		node_ack(e, peer, header->request, -ENOMEM);
		return;
	}
	a = &m->arrivals[member];
	if (said.stage == WIRE_RENDEZVOUS_LEFT) { /* the rank's trainer waits no more */
		if (a->waits && a->said.count == said.count) {
			a->waits = false;
			m->waiting--;
		}
		return;
	}
	/* this process may have been stopped: calls that are late end first */
	if (m->waiting)
		turn_meeting(e, m, monotonic_ms());
	arrive(e, m, a, &said, peer, header->request);
}

/* ---- a rank that comes ---- */

static void answer(struct engine *e, const struct wire_rendezvous_over *met)
{
	e->job.rendezvous->met = *met;
	e->job.rendezvous->state = RENDEZVOUS_ANSWERED;
	pthread_cond_broadcast(&e->changed);
}

static bool on_met(struct engine *e, void *owner, uint64_t count, const struct answer *answered)
{
	struct wire_rendezvous_over met = { .status = answered->status, .rank = WIRE_OBSERVER };

	if (count != e->job.rendezvous->said.count ||
	    e->job.rendezvous->state != RENDEZVOUS_ASKED)
		return false; /* the trainer waits for this answer no more */
	if (answered->type == WIRE_RENDEZVOUS_OVER)
		memcpy(&met, answered->body, sizeof(met));
	met.status = wire_status(met.status);
	if (answered->status == -EAGAIN)
		e->job.rendezvous->state = RENDEZVOUS_WANTED;
	else
		answer(e, &met);
	return false;
}

static uint32_t first_of(const struct engine *e, uint32_t group)
{
	const struct catalog_group *g = &e->catalog->groups[group];

	for (uint32_t i = 0; i < g->nranks; i++)
		if (peer_is_live(&e->peers[g->ranks[i]]))
			return g->ranks[i];
	return e->rank;
}

static void say(struct engine *e)
{
	const struct wire_rendezvous *said = &e->job.rendezvous->said;
	int rc;

	e->job.rendezvous->counter = first_of(e, said->group);
	rc = peers_call(e, e->job.rendezvous->counter, WIRE_RENDEZVOUS, said, NULL, 0, on_met,
			NULL, said->count);
	if (!rc)
		e->job.rendezvous->state = RENDEZVOUS_ASKED;
	else if (rc != -EAGAIN)
		answer(e,
		       &(struct wire_rendezvous_over){ .status = rc, .rank = WIRE_OBSERVER });
}

static void say_left(struct engine *e)
{
	uint32_t at = e->job.rendezvous->left_at, link = NODE_LOCAL;

	e->job.rendezvous->leaves = false;
	if (at != e->rank)
		link = e->peers[at].link;
	if (at == e->rank || e->peers[at].linked)
		node_send(e, link, WIRE_RENDEZVOUS, 0, &e->job.rendezvous->left, NULL, 0);
}

void rendezvous_turn(struct engine *e, uint64_t now)
{
	struct meeting *m;

	assert(node_is_engine_thread(e));
	if (e->job.rendezvous->leaves)
		say_left(e);
	SLIST_FOREACH (m, &e->job.rendezvous->meetings, next)
		if (m->waiting)
			turn_meeting(e, m, now);
	if (e->job.rendezvous->state == RENDEZVOUS_WANTED)
		say(e);
}

bool rendezvous_tick(const struct engine *e)
{
	const struct meeting *m;

	SLIST_FOREACH (m, &e->job.rendezvous->meetings, next)
		if (m->waiting)
			return true;
	return e->job.rendezvous->state != RENDEZVOUS_NONE;
}

static void put_fault(const struct engine *e, char *out, size_t size)
{
	const struct wire_rendezvous_over *met = &e->job.rendezvous->met;
	bool counts = met->rank == WIRE_OBSERVER, away = met->why == WIRE_RENDEZVOUS_AWAY;
	const char *which = counts ? ", which counts the group's ranks," : "";
	uint32_t rank = counts ? e->job.rendezvous->counter : met->rank;
	uint32_t first = e->catalog->groups[e->job.rendezvous->said.group].ranks[0];

	if (met->why == WIRE_RENDEZVOUS_DIFFERS)
		snprintf(out, size, "rank %u has called it with other arguments than rank %u",
			 rank, first);
	else if (away && met->status == -ETIMEDOUT)
		snprintf(out, size, "rank %u%s has not %s in time", rank, which,
			 counts ? "answered" : "come");
	else if (away && met->status == -EIO)
		snprintf(out, size, "rank %u%s is lost", rank, which);
	else
		snprintf(out, size, "rank %u%s failed: %s", rank, which,
			 strerror(-met->status));
}

static void say_why(struct engine *e)
{
	const struct wire_rendezvous *said = &e->job.rendezvous->said;
	int status = e->job.rendezvous->met.status;
	char fault[120];

	if (!status || status == -EREMOTE)
		return;
	put_fault(e, fault, sizeof(fault));
	log_warn("%s of %s, %s: %s",
		 said->root == WIRE_OBSERVER ? "frag_gather" : "frag_scatter",
		 catalog_name(e->catalog, said->param), said->key, fault);
}

int rendezvous_wait(struct engine *e, const struct wire_rendezvous *said,
		    uint64_t transaction[2])
{
	struct rendezvous *r = e->job.rendezvous;
	/* engine_id is random: the counter does not take a count for an earlier process's */
	uint64_t count = (r->said.count ? r->said.count : e->job.engine_id) + 1;
	uint64_t deadline = monotonic_ms() + said->wait_ms + e->timeout_ms;

	assert(thread_may_be_trainer());
	r->said = *said;
	r->said.count = count;
	r->state = RENDEZVOUS_WANTED;
	node_wake(e);
	/* The counter answers within wait_ms, unless it is silent, or takes this rank for lost.
	 */
	while (r->state != RENDEZVOUS_ANSWERED && monotonic_ms() < deadline)
		node_wait(e, deadline);
	if (r->state != RENDEZVOUS_ANSWERED)
		r->met = (struct wire_rendezvous_over){ .status = -ETIMEDOUT,
							.rank = WIRE_OBSERVER };
	r->state = RENDEZVOUS_NONE;
	if (r->met.rank == WIRE_OBSERVER && r->met.status) {
		/* A counter that is only silent will find this arrival, and must not count it
		 * in the next meeting.
		 */
		r->left = r->said;
		r->left.stage = WIRE_RENDEZVOUS_LEFT;
		r->left_at = r->counter;
		r->leaves = true;
		node_wake(e);
	}
	say_why(e);
	if (transaction)
		memcpy(transaction, r->met.transaction, sizeof(r->met.transaction));
	return r->met.status;
}

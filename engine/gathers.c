/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/gathers.h"
#include "engine/peers.h"

#include <errno.h>
#include <string.h>

struct arrival {
	struct wire_gather said;
	uint32_t peer;
	uint64_t request;
	bool waits;
	int status; /* of the newest that it does not wait for any more */
};

struct gathering { /* of one group */
	struct gathering *next;
	uint32_t group;
	unsigned waiting;
	uint64_t until_ms;
	struct arrival arrivals[]; /* [nranks] */
};

static struct gathering *find(struct engine *e, uint32_t group)
{
	struct gathering *g = e->gatherings;

	while (g && g->group != group)
		g = g->next;
	return g;
}

static struct gathering *find_or_add(struct engine *e, uint32_t group, uint32_t nranks)
{
	struct gathering *g = find(e, group);

	if (g)
		return g;
	g = calloc(1, sizeof(*g) + nranks * sizeof(g->arrivals[0]));
	if (!g)
		return NULL;
	g->group = group;
	g->next = e->gatherings;
	e->gatherings = g;
	return g;
}

void gathers_free(struct engine *e)
{
	while (e->gatherings) {
		struct gathering *g = e->gatherings;

		e->gatherings = g->next;
		free(g);
	}
}

/* ---- who counts ---- */

static uint32_t ranks_of(const struct engine *e, const struct gathering *g)
{
	return e->catalog->groups[g->group].nranks;
}

static void release(struct engine *e, struct gathering *g, int status)
{
	for (uint32_t i = 0; i < ranks_of(e, g); i++) {
		struct arrival *a = &g->arrivals[i];

		if (a->waits)
			node_ack(e, a->peer, a->request, status);
		a->status = a->waits ? status : a->status;
		a->waits = false;
	}
	g->waiting = 0;
}

static bool is_same(const struct wire_gather *a, const struct wire_gather *b)
{
	return a->param == b->param && a->through == b->through &&
	       !memcmp(a->key, b->key, sizeof(a->key));
}

/* Rounds are launched at boundaries: who is elsewhere launches what it shares with others in another order. */
static bool goes_with(const struct wire_gather *a, const struct wire_gather *b)
{
	return a->communicator && a->communicator == b->communicator &&
	       a->boundary == b->boundary;
}

/* All have come. */
static int verdict(const struct engine *e, const struct gathering *g)
{
	const struct wire_gather *first = &g->arrivals[0].said;
	int rc = 0;

	for (uint32_t i = 0; i < ranks_of(e, g); i++) {
		const struct wire_gather *said = &g->arrivals[i].said;

		if (!is_same(said, first))
			return -EINVAL;
		if (!goes_with(said, first))
			rc = -EREMOTE;
	}
	return first->through ? 0 : rc;
}

static void arrive(struct engine *e, struct gathering *g, struct arrival *a,
		   const struct wire_gather *said, uint32_t peer, uint64_t request)
{
	if (!a->waits && a->said.count == said->count) { /* the answer was lost */
		node_ack(e, peer, request, a->status);
		return;
	}
	g->waiting += !a->waits;
	if (g->waiting == 1)
		g->until_ms = monotonic_ms() + said->wait_ms;
	a->said = *said;
	a->peer = peer;
	a->request = request;
	a->waits = true;
	if (g->waiting == ranks_of(e, g))
		release(e, g, verdict(e, g));
}

void gathers_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body)
{
	const struct catalog_group *group;
	struct wire_gather said;
	struct gathering *g;
	uint32_t place;

	memcpy(&said, body, sizeof(said));
	group = e->ready && said.group < e->catalog->ngroups ? &e->catalog->groups[said.group]
							     : NULL;
	place = group ? catalog_place(group, header->rank) : CATALOG_NONE;
	if (place == CATALOG_NONE || !wire_text_ok(said.key, sizeof(said.key))) {
		node_ack(e, peer, header->request, e->ready ? -EINVAL : -EAGAIN);
		return;
	}
	g = find_or_add(e, said.group, group->nranks);
	if (g)
		arrive(e, g, &g->arrivals[place], &said, peer, header->request);
	else
		node_ack(e, peer, header->request, -ENOMEM);
}

static int missing(struct engine *e, const struct gathering *g)
{
	const struct catalog_group *group = &e->catalog->groups[g->group];

	for (uint32_t i = 0; i < group->nranks; i++)
		if (group->ranks[i] != e->rank && !g->arrivals[i].waits &&
		    peers_reach(e, group->ranks[i]))
			return peers_lost_status(e, group->ranks[i]);
	return 0;
}

static void turn_gathering(struct engine *e, struct gathering *g, uint64_t now)
{
	int rc = missing(e, g);

	if (!rc && now >= g->until_ms)
		rc = -ETIMEDOUT;
	if (rc)
		release(e, g, rc);
}

/* ---- who comes ---- */

static void answer(struct engine *e, int status)
{
	e->gather.status = status;
	e->gather.answered = true;
	pthread_cond_broadcast(&e->changed);
}

static bool on_met(struct engine *e, void *owner, uint64_t count, const struct answer *answered)
{
	if (count != e->gather.said.count || e->gather.answered)
		return false;
	if (answered->status == -EAGAIN)
		e->gather.asked = false;
	else
		answer(e, answered->status);
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
	const struct wire_gather *said = &e->gather.said;
	int rc = peers_call(e, first_of(e, said->group), WIRE_GATHER, said, NULL, 0, on_met,
			    NULL, said->count);

	e->gather.asked = !rc;
	if (rc && rc != -EAGAIN)
		answer(e, rc);
}

void gathers_turn(struct engine *e, uint64_t now)
{
	for (struct gathering *g = e->gatherings; g; g = g->next)
		if (g->waiting)
			turn_gathering(e, g, now);
	if (e->gather.wanted && !e->gather.asked && !e->gather.answered)
		say(e);
}

bool gathers_tick(const struct engine *e)
{
	if (e->gather.wanted)
		return true;
	for (const struct gathering *g = e->gatherings; g; g = g->next)
		if (g->waiting)
			return true;
	return false;
}

/* It is answered in any case: who counts does not wait for longer than it is told, and may be lost. */
int gathers_meet(struct engine *e, const struct wire_gather *said)
{
	uint64_t last = e->gather.said.count, count = (last ? last : e->writer_id) + 1;

	e->gather.said = *said;
	e->gather.said.count = count;
	e->gather.asked = e->gather.answered = false;
	e->gather.wanted = true;
	node_wake(e);
	while (!e->gather.answered)
		node_wait(e, UINT64_MAX / 2);
	e->gather.wanted = false;
	return e->gather.status;
}

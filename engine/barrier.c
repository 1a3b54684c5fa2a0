/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/barrier.h"

#include "engine/peers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct barrier_arrival {
	struct wire_barrier at; /* count 0: not there */
	uint32_t peer;
	uint64_t request;
};

static void answer_arrival(struct engine *e, uint32_t peer, uint64_t request)
{
	if (e->barrier.released)
		node_ack(e, peer, request, e->barrier.released);
	else
		node_send(e, peer, WIRE_PASSED, request, &e->barrier.at, NULL, 0);
}

static void raise_counts(struct wire_barrier *to, const struct wire_barrier *b)
{
	to->step = u64_max(to->step, b->step);
	to->boundary = u64_max(to->boundary, b->boundary);
	to->generation = u64_max(to->generation, b->generation);
	to->grads = u64_max(to->grads, b->grads);
}

/* One that came back while the others went on has counted less, unless it waited where they stood. */
static void release(struct engine *e, int status)
{
	e->barrier.count++;
	e->barrier.released = status;
	e->barrier.at = (struct wire_barrier){ e->barrier.count, 0, 0, 0, 0 };
	for (uint32_t i = 0; i < e->world; i++)
		if (e->barrier.arrivals[i].at.count)
			raise_counts(&e->barrier.at, &e->barrier.arrivals[i].at);
	for (uint32_t i = 0; i < e->world; i++) {
		struct barrier_arrival *a = &e->barrier.arrivals[i];

		if (a->at.count)
			answer_arrival(e, a->peer, a->request);
		a->at.count = 0;
	}
	e->barrier.arrived = 0;
}

static bool any_rank_lost(const struct engine *e)
{
	for (uint32_t i = 0; i < e->world; i++)
		if (e->peers[i].state == ENGINE_RANK_LOST)
			return true;
	return false;
}

void barrier_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body)
{
	struct barrier_arrival *a;
	struct wire_barrier barrier;

	memcpy(&barrier, body, sizeof(barrier));
	e->barrier.count = u64_max(e->barrier.count, e->barrier.before);
	if (e->rank || header->rank >= e->world || barrier.count > e->barrier.count + 1) {
		node_ack(e, peer, header->request, -EINVAL);
		return;
	}
	if (barrier.count <=
	    e->barrier.count) { /* asked again, or a rank was lost before it came */
		if (barrier.count == e->barrier.count)
			answer_arrival(e, peer, header->request);
		else
			node_ack(e, peer, header->request, -EIO);
		return;
	}
	if (!e->barrier.arrivals)
		e->barrier.arrivals = calloc(e->world, sizeof(*e->barrier.arrivals));
	if (!e->barrier.arrivals) {
		node_ack(e, peer, header->request,
			 -EAGAIN); /* or the others would wait for it */
		return;
	}
	a = &e->barrier.arrivals[header->rank];
	e->barrier.arrived += !a->at.count;
	*a = (struct barrier_arrival){ barrier, peer, header->request };
	if (e->barrier.arrived == e->world)
		release(e, 0);
}

static bool on_barrier(struct engine *e, void *owner, uint64_t count,
		       const struct answer *answer)
{
	if (answer->status == -EAGAIN) {
		e->barrier.asked = count - e->barrier.before - 1;
		return false;
	}
	if (!answer->type) { /* rank 0 is not there: of the same one it is asked the next time */
		e->barrier.failed = true;
		pthread_cond_broadcast(&e->changed);
		return false;
	}
	e->barrier.passed = count - e->barrier.before;
	e->barrier.status = answer->status == -ETIMEDOUT ? -EIO : answer->status;
	if (answer->type == WIRE_PASSED && !answer->status)
		memcpy(&e->barrier.at, answer->body, sizeof(e->barrier.at));
	else if (!e->barrier.status)
		e->barrier.status = -EIO;
	pthread_cond_broadcast(&e->changed);
	return false;
}

/* A link to each for whom others wait: it tells when the rank is gone. */
static void reach_missing(struct engine *e)
{
	for (uint32_t i = 0; i < e->world; i++)
		if (!e->barrier.arrivals[i].at.count)
			peers_reach(e, i);
}

void barrier_turn(struct engine *e)
{
	const struct control_page *c = e->registry.control;
	struct wire_barrier barrier = { .count = e->barrier.before + e->barrier.wanted,
					.step = atomic_load(&c->step),
					.boundary = atomic_load(&c->boundary),
					.generation = atomic_load(&c->generation),
					.grads = atomic_load(&c->grads) };
	int rc;

	if (e->barrier.arrived)
		reach_missing(e);
	if (e->barrier.arrived && any_rank_lost(e))
		release(e, -EIO);
	if (!e->ready || e->barrier.asked == e->barrier.wanted)
		return;
	rc = peers_call(e, 0, WIRE_BARRIER, &barrier, NULL, 0, on_barrier, NULL, barrier.count);
	if (!rc || rc == -EIO || rc == -ETIMEDOUT)
		e->barrier.asked = e->barrier.wanted;
	if (rc == -EIO || rc == -ETIMEDOUT)
		on_barrier(e, NULL, barrier.count, &(struct answer){ .status = rc });
}

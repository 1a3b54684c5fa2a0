/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/job/barrier.h"

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/job/join.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED = 8 };

struct barrier_arrival {
	struct wire_barrier at; /* count 0: the rank has not come */
	uint32_t peer;
	uint64_t request;
	uint64_t until_ms; /* when the rank is told who is late; 0: never, or it was told */
};

int barrier_new(struct engine *e)
{
	e->job.barrier = calloc(1, sizeof(*e->job.barrier));
	return e->job.barrier ? 0 : -ENOMEM;
}

void barrier_free(struct engine *e)
{
	if (e->job.barrier)
		free(e->job.barrier->arrivals);
	free(e->job.barrier);
}

/* ---- rank 0 ---- */

static void answer_arrival(struct engine *e, uint32_t peer, uint64_t request)
{
	if (e->job.barrier->released)
		node_ack(e, peer, request, e->job.barrier->released);
	else
		node_send(e, peer, WIRE_PASSED, request, &e->job.barrier->at, NULL, 0);
}

static void raise_counts(struct wire_barrier *to, const struct wire_barrier *b)
{
	to->step = u64_max(to->step, b->step);
	to->boundary = u64_max(to->boundary, b->boundary);
	to->generation = u64_max(to->generation, b->generation);
	to->grads = u64_max(to->grads, b->grads);
}

/* Ends the barrier, and tells all the highest counts: a rank that came back has counted less
 * than the others.
 */
static void release(struct engine *e, int status)
{
	struct barrier *b = e->job.barrier;

	b->count++;
	b->released = status;
	b->at = (struct wire_barrier){ .count = b->count };
	for (uint32_t i = 0; i < e->world; i++)
		if (b->arrivals[i].at.count)
			raise_counts(&b->at, &b->arrivals[i].at);
	for (uint32_t i = 0; i < e->world; i++) {
		struct barrier_arrival *a = &b->arrivals[i];

		if (a->at.count)
			answer_arrival(e, a->peer, a->request);
		a->at.count = 0;
	}
	b->arrived = 0;
	b->tell_ms = 0;
}

static bool any_rank_lost(const struct engine *e)
{
	for (uint32_t i = 0; i < e->world; i++)
		if (e->peers[i].state == ENGINE_RANK_LOST)
			return true;
	return false;
}

/* Returns the sooner of two times, of which 0 is never. */
static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a && b ? u64_min(a, b) : a + b;
}

static void name_late(const struct engine *e, char *out, size_t size)
{
	uint32_t missing[NAMED], n = 0, all = e->world - e->job.barrier->arrived;
	char names[80];

	for (uint32_t rank = 0; rank < e->world && n < NAMED; rank++)
		if (!e->job.barrier->arrivals[rank].at.count)
			missing[n++] = rank;
	join_name_ranks(missing, n, all, names, sizeof(names));
	if (all == 1)
		snprintf(out, size, "rank %s has not come in time", names);
	else
		snprintf(out, size, "ranks %s have not come in time", names);
}

/* Tells ranks whose time is over which have not come.  They stay counted, so that the barrier
 * is released when the others come.
 */
static void tell_late(struct engine *e, uint64_t now)
{
	struct barrier *b = e->job.barrier;
	char why[sizeof(b->why)];

	name_late(e, why, sizeof(why));
	b->tell_ms = 0;
	for (uint32_t i = 0; i < e->world; i++) {
		struct barrier_arrival *a = &b->arrivals[i];

		if (a->at.count && a->until_ms && now >= a->until_ms) {
			node_refuse(e, a->peer, a->request, -ETIMEDOUT, "%s", why);
			a->until_ms = 0;
		}
		if (a->at.count)
			b->tell_ms = sooner(b->tell_ms, a->until_ms);
	}
}

bool barrier_tick(const struct engine *e)
{
	return e->job.barrier->tell_ms;
}

void barrier_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body)
{
	struct barrier *b = e->job.barrier;
	struct barrier_arrival *a;
	struct wire_barrier barrier;

	memcpy(&barrier, body, sizeof(barrier));
	b->count = u64_max(b->count, b->before);
	if (e->rank || header->rank >= e->world || barrier.count > b->count + 1) {
		node_ack(e, peer, header->request, -EINVAL);
		return;
	}
	if (barrier.count <= b->count) { /* the barrier was passed, or ended by a loss */
		if (barrier.count == b->count)
			answer_arrival(e, peer, header->request);
		else
			node_ack(e, peer, header->request, -EIO);
		return;
	}
	if (!b->arrivals)
		b->arrivals = calloc(e->world, sizeof(*b->arrivals));
	if (!b->arrivals) {
		node_ack(e, peer, header->request, -EAGAIN); /* the rank asks again */
		return;
	}
	a = &b->arrivals[header->rank];
	b->arrived += !a->at.count;
	*a = (struct barrier_arrival){ barrier, peer, header->request,
				       barrier.wait_ms ? monotonic_ms() + barrier.wait_ms : 0 };
	b->tell_ms = sooner(b->tell_ms, a->until_ms);
	if (b->arrived == e->world)
		release(e, 0);
}

/* ---- a rank that comes ---- */

static bool on_late(struct engine *e, const void *body)
{
	struct wire_refuse refuse;

	memcpy(&refuse, body, sizeof(refuse));
	memcpy(e->job.barrier->why, refuse.why, sizeof(e->job.barrier->why) - 1);
	e->job.barrier->late = true;
	pthread_cond_broadcast(&e->changed);
	return false;
}

static bool on_barrier(struct engine *e, void *owner, uint64_t count,
		       const struct answer *answer)
{
	struct barrier *b = e->job.barrier;

	if (answer->status == -EAGAIN) {
		b->asked = count - b->before - 1;
		return false;
	}
	if (!answer->type) { /* rank 0 is lost or silent: the next call asks again */
		b->failed = true;
		pthread_cond_broadcast(&e->changed);
		return false;
	}
	if (answer->type == WIRE_REFUSE && answer->status == -ETIMEDOUT)
		return on_late(e, answer->body);
	b->passed = count - b->before;
	b->status = answer->status == -ETIMEDOUT ? -EIO : answer->status;
	if (answer->type == WIRE_PASSED && !answer->status)
		memcpy(&b->at, answer->body, sizeof(b->at));
	else if (!b->status)
		b->status = -EIO;
	pthread_cond_broadcast(&e->changed);
	return false;
}

/* Links to the ranks that have not come: a link tells when its rank is gone. */
static void reach_missing(struct engine *e)
{
	for (uint32_t i = 0; i < e->world; i++)
		if (!e->job.barrier->arrivals[i].at.count)
			peers_reach(e, i);
}

void barrier_turn(struct engine *e)
{
	struct barrier *b = e->job.barrier;
	const struct control_page *c = e->registry.control;
	struct wire_barrier barrier = { .count = b->before + b->wanted,
					.step = atomic_load(&c->step),
					.boundary = atomic_load(&c->boundary),
					.generation = atomic_load(&c->generation),
					.grads = atomic_load(&c->grads) };
	uint64_t now = monotonic_ms(), until = b->until_ms;
	int rc;

	assert(node_is_engine_thread(e));
	if (until)
		barrier.wait_ms = (uint32_t)(until > now ? until - now : 1);
	if (b->arrived)
		reach_missing(e);
	if (b->arrived && any_rank_lost(e))
		release(e, -EIO);
	if (b->tell_ms && now >= b->tell_ms)
		tell_late(e, now);
	if (!e->job.ready || b->asked == b->wanted)
		return;
	rc = peers_call(e, 0, WIRE_BARRIER, &barrier, NULL, 0, on_barrier, b, barrier.count);
	if (!rc || rc == -EIO || rc == -ETIMEDOUT)
		b->asked = b->wanted;
	if (rc == -EIO || rc == -ETIMEDOUT)
		on_barrier(e, NULL, barrier.count, &(struct answer){ .status = rc });
}

static bool has_ended(const struct engine *e, uint64_t mine)
{
	return e->job.barrier->passed >= mine || e->job.barrier->failed ||
	       e->job.barrier->late || e->job.failure;
}

/* Has the engine thread ask rank 0, again if the last call ended with -ETIMEDOUT. */
static void begin_barrier(struct engine *e, uint64_t mine, unsigned timeout_ms)
{
	struct barrier *b = e->job.barrier;

	b->until_ms = monotonic_ms() + timeout_ms;
	b->failed = b->late = false;
	snprintf(b->why, sizeof(b->why), "rank 0 does not answer");
	if (b->passed >= mine)
		return;
	rpc_forget(e, b);
	b->asked = b->passed;
	b->wanted = mine;
	node_wake(e);
}

static int end_barrier(struct engine *e, uint64_t mine)
{
	struct barrier *b = e->job.barrier;

	b->until_ms = 0;
	if (e->job.failure)
		return e->job.failure;
	if (b->passed >= mine) {
		b->returned = mine;
		return b->status;
	}
	if (b->failed) {
		b->wanted = b->asked = b->passed;
		return -EIO;
	}
	if (e->job.ready)
		log_warn("frag_barrier: %s", b->why);
	else
		join_say_missing(e, "frag_barrier");
	return -ETIMEDOUT;
}

/* Once the job is complete, rank 0 answers in time even if ranks are missing; e->timeout_ms
 * more is for a silent rank 0.
 */
int barrier_pass(struct engine *e, unsigned timeout_ms, struct wire_barrier *at)
{
	uint64_t mine = e->job.barrier->returned + 1;
	int rc = 0;

	assert(thread_may_be_trainer());
	begin_barrier(e, mine, timeout_ms);
	while (!has_ended(e, mine) && !rc)
		rc = node_wait(e,
			       e->job.barrier->until_ms + (e->job.ready ? e->timeout_ms : 0));
	rc = end_barrier(e, mine);
	*at = e->job.barrier->at;
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/base/vec.h"
#include "engine/job/leave.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* HEARD_MS: the longest wait for acknowledgements of LEAVE and LEFT.  OTHERS_MS: of rank 0 for
 * the other ranks' ends.
 */
enum { HEARD_MS = 1000, OTHERS_MS = 1000 };

struct leave {
	bool said;
	unsigned unheard;   /* peers that have not acknowledged it yet */
	struct vec hearers; /* of struct hearer */
};

/* A message peer that sent HELLO or PING. */
struct hearer {
	uint32_t peer;
	uint32_t rank; /* WIRE_OBSERVER: a mount */
};

int leave_new(struct engine *e)
{
	e->job.leave = calloc(1, sizeof(*e->job.leave));
	return e->job.leave ? 0 : -ENOMEM;
}

void leave_free(struct engine *e)
{
	if (e->job.leave)
		free(e->job.leave->hearers.items);
	free(e->job.leave);
}

/* ---- the peers that hear LEFT ---- */

/* Returns NULL if peer is not among the hearers. */
static struct hearer *find_hearer(const struct engine *e, uint32_t peer)
{
	struct hearer *hearers = e->job.leave->hearers.items;

	for (uint32_t i = 0; i < e->job.leave->hearers.count; i++)
		if (hearers[i].peer == peer)
			return &hearers[i];
	return NULL;
}

void leave_note(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	struct hearer *hearer;

	if ((header->type != WIRE_HELLO && header->type != WIRE_PING) || peer == NODE_LOCAL ||
	    find_hearer(e, peer))
		return;
	hearer = vec_add(&e->job.leave->hearers, sizeof(*hearer));
	if (hearer)
		*hearer = (struct hearer){ peer, header->rank };
}

void leave_gone(struct engine *e, uint32_t peer)
{
	struct hearer *hearer = find_hearer(e, peer), *hearers = e->job.leave->hearers.items;

	if (hearer)
		*hearer = hearers[--e->job.leave->hearers.count];
}

/* ---- LEAVE and LEFT ---- */

static bool on_heard(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	e->job.leave->unheard--;
	pthread_cond_broadcast(&e->changed);
	return false;
}

/* Returns true if LEFT of that rank is to be sent to the peer.  The end of another rank is told
 * to mounts alone: ranks heard its LEAVE, and each end would cost `world` messages.
 */
static bool hears(const struct engine *e, const struct hearer *h, uint32_t rank)
{
	return h->rank >= e->world || (rank == e->rank && !e->peers[h->rank].linked);
}

/* Sends LEFT of a rank's process; `but` is that rank's own message peer. */
static unsigned tell_left(struct engine *e, uint32_t rank, uint32_t life, uint32_t but)
{
	struct wire_left left = { rank, life };
	const struct hearer *hearers = e->job.leave->hearers.items;
	unsigned told = 0;

	for (uint32_t i = 0; i < e->job.leave->hearers.count; i++)
		if (hearers[i].peer != but && hears(e, &hearers[i], rank))
			told += !rpc_call(e, WIRE_OBSERVER, hearers[i].peer, WIRE_LEFT, &left,
					  NULL, 0, rank == e->rank ? on_heard : NULL, NULL,
					  rank);
	return told;
}

static void say_to_all(struct engine *e)
{
	e->job.leave->unheard +=
		tell_left(e, e->rank, node_life(e->registry.control->cookie), NODE_LOCAL);
	for (uint32_t rank = 0; rank < e->world; rank++) {
		const struct peer *p = &e->peers[rank];

		/* the ranks of this host see the end of the process, linked or not */
		if (rank != e->rank && (p->linked || peers_same_host(e, rank)) &&
		    peer_is_live(p) && !p->leaving)
			e->job.leave->unheard += !peers_call(e, rank, WIRE_LEAVE, NULL, NULL, 0,
							     on_heard, NULL, rank);
	}
}

void leave_turn(struct engine *e)
{
	assert(node_is_engine_thread(e));
	if (!e->job.is_leaving || e->job.leave->said)
		return;
	say_to_all(e);
	e->job.leave->said = true;
	pthread_cond_broadcast(&e->changed);
}

static bool is_last(const struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (rank != e->rank && peer_is_live(&e->peers[rank]) && !e->peers[rank].leaving)
			return false;
	return true;
}

void leave_say(struct engine *e)
{
	uint64_t until = monotonic_ms() + OTHERS_MS;

	assert(thread_may_be_trainer());
	if (!e->is_rank || !e->job.ready)
		return;
	pthread_mutex_lock(&e->lock);
	while (!e->rank && e->thread.started && !is_last(e) && !node_wait_answer(e, until))
		;
	until = monotonic_ms() + HEARD_MS;
	e->job.is_leaving = true;
	if (!e->thread.started)
		leave_turn(e);
	while (e->thread.started && (!e->job.leave->said || e->job.leave->unheard) &&
	       !node_wait_answer(e, until))
		;
	pthread_mutex_unlock(&e->lock);
}

static void take_out(struct engine *e, uint32_t rank)
{
	struct wire_entry entry = e->peers[rank].entry;

	if (!entry.present)
		return;
	entry.present = 0;
	peers_set_entry(e, &entry);
	e->job.membership++;
}

void leave_serve(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	struct peer *p = &e->peers[header->rank];

	if (header->life == node_life(p->entry.cookie)) {
		p->leaving = true;
		if (!e->rank && header->rank) {
			take_out(e, header->rank);
			tell_left(e, header->rank, header->life, peer);
		}
	}
	node_ack(e, peer, header->request, 0);
}

static bool is_rank_at(const struct engine *e, uint32_t peer, const struct wire_header *header)
{
	const struct peer *p =
		header->rank < e->world && e->peers ? &e->peers[header->rank] : NULL;

	return p && p->linked && p->link == peer && header->life == node_life(p->entry.cookie);
}

/* An observer loses the rank at once; a rank sees the end of the process itself. */
void leave_serve_left(struct engine *e, uint32_t peer, const struct wire_header *header,
		      const struct wire_left *body)
{
	struct wire_left left;
	struct peer *p;

	assert(node_is_engine_thread(e));
	memcpy(&left, body, sizeof(left));
	if (left.rank >= e->world || !is_rank_at(e, peer, header)) {
		node_ack(e, peer, header->request, -EACCES);
		return;
	}
	p = &e->peers[left.rank];
	if (left.life == node_life(p->entry.cookie)) {
		p->leaving = true;
		if (!e->is_rank) {
			p->control.phase = CONTROL_CLOSED;
			peers_lose(e, left.rank, -EIO, "");
		}
	}
	node_ack(e, peer, header->request, 0);
}

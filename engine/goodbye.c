/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/goodbye.h"
#include "engine/peers.h"

enum { HEARD_MS = 300 };

static bool on_heard(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	e->goodbye.unheard--;
	pthread_cond_broadcast(&e->changed);
	return false;
}

static void say_to_all(struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world; rank++) {
		const struct peer *p = &e->peers[rank];

		if (rank != e->rank && p->linked && peer_is_live(p) && !p->leaving)
			e->goodbye.unheard += !peers_call(e, rank, WIRE_LEAVE, NULL, NULL, 0,
							  on_heard, NULL, rank);
	}
}

void goodbye_turn(struct engine *e)
{
	if (!e->goodbye.wanted || e->goodbye.said)
		return;
	say_to_all(e);
	e->goodbye.said = true;
	pthread_cond_broadcast(&e->changed);
}

void goodbye_say(struct engine *e)
{
	uint64_t until = monotonic_ms() + HEARD_MS;

	if (!e->is_rank || !e->ready)
		return;
	pthread_mutex_lock(&e->lock);
	e->goodbye.wanted = true;
	if (!e->threaded)
		goodbye_turn(e);
	while (e->threaded && (!e->goodbye.said || e->goodbye.unheard) &&
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
	e->membership++;
}

void goodbye_serve(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	struct peer *p = &e->peers[header->rank];

	if (header->life == node_life(p->entry.cookie)) {
		p->leaving = true;
		if (!e->rank && header->rank)
			take_out(e, header->rank);
	}
	node_ack(e, peer, header->request, 0);
}

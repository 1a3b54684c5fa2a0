/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/peers.h"
#include "engine/watch.h"

#include <errno.h>
#include <string.h>

/* One that has told its numbers. */
static const struct peer *spokesman(struct engine *e)
{
	for (uint32_t i = 0; i < e->world; i++) {
		peers_look(e, i);
		if (e->peers[i].state == ENGINE_RANK_ALIVE && e->peers[i].control.cookie[0])
			return &e->peers[i];
	}
	return NULL;
}

void watch_look(struct engine *e)
{
	const struct peer *p = spokesman(e);
	const char *phase = p ? control_phase_name(p->control.phase) : "lost";
	uint64_t step = p ? p->control.step : 0, generation = p ? p->control.generation : 0;
	struct watch *w = &e->watch;

	if (w->step == step && w->generation == generation && w->phase == phase)
		return;
	w->step = step;
	w->generation = generation;
	w->phase = phase;
	w->changes++;
}

/* ---- by message ---- */

static bool on_changed(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer)
{
	struct wire_changed changed;

	e->watch.asked = false;
	if (answer->status == -EAGAIN)
		return false;
	if (answer->status || answer->type != WIRE_CHANGED) {
		e->watch.retry_ms = monotonic_ms() + NODE_PING_MS;
		return false;
	}
	memcpy(&changed, answer->body, sizeof(changed));
	peers_heard(e, (uint32_t)rank, &changed.control);
	return false;
}

static bool by_message(const struct engine *e, uint32_t rank)
{
	return rank < e->world && e->peers[rank].way == PEER_WAY_MESSAGES;
}

static void ask(struct engine *e, uint64_t now)
{
	uint32_t rank = peers_first_live(e);
	const struct wire_control *seen;
	struct wire_wait wait;

	if (e->watch.asked || now < e->watch.retry_ms || rank >= e->world)
		return;
	peers_reach(e, rank);
	if (!by_message(e, rank))
		return;
	seen = &e->peers[rank].control;
	wait = (struct wire_wait){ seen->step, seen->generation, seen->phase, 0 };
	e->watch.asked =
		!peers_call(e, rank, WIRE_WAIT, &wait, NULL, 0, on_changed, NULL, rank);
}

/* ---- who waits ---- */

bool watch_ticks(const struct engine *e)
{
	return e->watch.waits && !by_message(e, peers_first_live(e));
}

static void take_finished(struct watch *w, struct engine_wait **finished)
{
	for (struct engine_wait **at = &w->waits; *at;) {
		struct engine_wait *wait = *at;

		if (!wait->cancelled && wait->seen == w->changes) {
			at = &wait->next;
			continue;
		}
		*at = wait->next;
		wait->next = *finished;
		*finished = wait;
	}
}

void watch_turn(struct engine *e, uint64_t now, struct engine_wait **finished)
{
	if (!e->watch.waits)
		return;
	watch_look(e);
	ask(e, now);
	take_finished(&e->watch, finished);
}

void watch_finish(struct engine_wait *finished)
{
	struct engine_wait *next;

	for (struct engine_wait *wait = finished; wait; wait = next) {
		next = wait->next;
		wait->done(wait, wait->cancelled ? -ECANCELED : 0);
	}
}

void watch_abandon(struct engine *e)
{
	struct engine_wait *waits = e->watch.waits;

	e->watch.waits = NULL;
	for (struct engine_wait *wait = waits; wait; wait = wait->next)
		wait->cancelled = true;
	watch_finish(waits);
}

/* ---- the door ---- */

uint64_t engine_changes(struct engine *e)
{
	uint64_t changes;

	pthread_mutex_lock(&e->lock);
	changes = e->watch.changes;
	pthread_mutex_unlock(&e->lock);
	return changes;
}

void engine_wait(struct engine *e, struct engine_wait *wait)
{
	pthread_mutex_lock(&e->lock);
	wait->next = e->watch.waits;
	e->watch.waits = wait;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

void engine_wait_cancel(struct engine *e, struct engine_wait *wait)
{
	pthread_mutex_lock(&e->lock);
	wait->cancelled = true;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

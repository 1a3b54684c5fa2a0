/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <string.h>

/* Returns true while someone reads events, or did a moment ago. */
static bool follows(const struct watch *w)
{
	return w->streams || monotonic_ms() < w->linger_ms;
}

/* The lowest live rank whose control page has been seen; NULL: none. */
static const struct peer *spokesman(struct engine *e)
{
	for (uint32_t i = 0; i < e->world; i++) {
		peers_look(e, i);
		if (e->peers[i].state == ENGINE_RANK_ALIVE && e->peers[i].control.cookie[0])
			return &e->peers[i];
	}
	return NULL;
}

/* Takes a rank's step and generation for the job's, unless the job was further: the page of
 * another rank than before may be old.
 */
static void take_numbers(struct event_log *l, const struct peer *p)
{
	if (p->incarnation == l->incarnation && p->control.generation < l->generation)
		return;
	l->incarnation = p->incarnation;
	l->step = p->control.step;
	l->generation = p->control.generation;
}

/* No rank is live: takes the numbers of the rank that was furthest. */
static void last_seen(const struct engine *e, struct event_log *l)
{
	for (uint32_t i = 0; i < e->world; i++)
		if (e->peers[i].control.cookie[0])
			take_numbers(l, &e->peers[i]);
	l->phase = peers_all_left(e) ? control_page_phase_name(CONTROL_CLOSED) : "lost";
}

void watch_look(struct engine *e)
{
	const struct peer *p = spokesman(e);
	struct event_log *l = e->event_log;
	uint64_t step = l->step, generation = l->generation;
	const char *phase = l->phase;

	if (p) {
		take_numbers(l, p);
		l->generation_ns = u64_max(l->generation_ns, p->control.generation_ns);
		l->phase = control_page_phase_name(p->control.phase);
	} else {
		last_seen(e, l);
	}
	/* this file alone sets l->phase, to static strings: pointers can be compared */
	if (l->step == step && l->generation == generation && l->phase == phase)
		return;
	l->changes++;
	if (follows(e->watch))
		event_log_job(e, step, phase);
}

/* ---- by message ---- */

static void take_events(struct engine *e, struct peer *p, const struct wire_changed *changed,
			const void *lines)
{
	p->events = changed->events;
	if (follows(e->watch) && !e->watch->beginning)
		event_log_add_lines(e, lines, changed->size);
}

static void has_begun(struct engine *e)
{
	if (!e->watch->beginning)
		return;
	e->watch->beginning = false;
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

static bool on_changed(struct engine *e, void *owner, uint64_t rank,
		       const struct answer *answer)
{
	struct watch *w = owner;
	struct wire_changed changed;

	w->asked = false;
	/* the WAIT or its answer was lost: the next turn asks again */
	if (answer->status == -EAGAIN)
		return false;
	if (answer->status || answer->type != WIRE_CHANGED) {
		w->retry_ms = monotonic_ms() + NODE_PING_MS;
	} else {
		memcpy(&changed, answer->body, sizeof(changed));
		peers_heard(e, (uint32_t)rank, &changed.control);
		if (changed.size == answer->tail_size && changed.size <= WIRE_EVENTS_MAX)
			take_events(e, &e->peers[rank], &changed, answer->tail);
	}
	has_begun(e);
	return false;
}

static bool by_message(const struct engine *e, uint32_t rank)
{
	return rank < e->world && e->peers[rank].way == PEER_WAY_MESSAGES;
}

static uint32_t how(const struct watch *w)
{
	if (w->beginning)
		return WIRE_WAIT_NOT;
	return follows(w) ? WIRE_WAIT_EVENTS : WIRE_WAIT_NUMBERS;
}

/* Returns true if WAIT is to be sent: the rank's memory is out of reach, or the rank has new
 * events.
 */
static bool has_to_ask(const struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];

	return by_message(e, rank) || (follows(e->watch) && p->control.events != p->events);
}

static void ask(struct engine *e, uint64_t now)
{
	uint32_t rank = peers_first_live(e);
	struct watch *w = e->watch;
	const struct peer *p;
	struct wire_wait wait;

	if (w->ask_anew)
		rpc_forget(e, w);
	w->asked = w->asked && !w->ask_anew;
	w->ask_anew = false;
	if (rank >= e->world)
		has_begun(e);
	if (w->asked || now < w->retry_ms || rank >= e->world)
		return;
	peers_reach(e, rank);
	p = &e->peers[rank];
	if (!has_to_ask(e, rank))
		return;
	wait = (struct wire_wait){ p->control.step, p->control.generation, p->events,
				   p->control.phase, how(w) };
	w->asked = !peers_call(e, rank, WIRE_WAIT, &wait, NULL, 0, on_changed, w, rank);
}

void watch_begin_events(struct engine *e)
{
	bool followed = follows(e->watch);
	uint32_t rank;

	if (!followed)
		watch_look(e);
	e->watch->streams++;
	if (followed)
		return;
	for (rank = 0; rank < e->world; rank++) {
		/* wanted ranks are pinged: their loss is noticed */
		e->peers[rank].wanted = true;
		e->peers[rank].events = e->peers[rank].control.events;
	}
	rank = peers_first_live(e);
	e->watch->beginning = rank < e->world && e->peers[rank].way != PEER_WAY_MEMORY;
	e->watch->ask_anew = true;
}

bool watch_is_beginning(const struct engine *e)
{
	return e->watch->beginning;
}

void watch_end_events(struct engine *e)
{
	e->watch->streams--;
	if (e->watch->beginning)
		e->watch->linger_ms = monotonic_ms() + e->timeout_ms;
}

/* ---- waits ---- */

bool watch_ticks(const struct engine *e)
{
	return e->watch->epoch_waits ||
	       ((e->watch->waits || follows(e->watch)) && !by_message(e, peers_first_live(e)));
}

static void take_finished(struct engine_wait **waits, uint64_t changes,
			  struct engine_wait **finished)
{
	for (struct engine_wait **at = waits; *at;) {
		struct engine_wait *wait = *at;

		if (!wait->cancelled && wait->seen == changes) {
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
	assert(node_is_engine_thread(e));
	take_finished(&e->watch->epoch_waits, atomic_load(&e->event_log->epoch), finished);
	if (!e->watch->waits && !follows(e->watch))
		return;
	watch_look(e);
	ask(e, now);
	take_finished(&e->watch->waits, e->event_log->changes, finished);
}

void watch_finish(struct engine_wait *finished)
{
	struct engine_wait *next;

	for (struct engine_wait *wait = finished; wait; wait = next) {
		next = wait->next;
		wait->done(wait, wait->cancelled ? -ECANCELED : 0);
	}
}

static void abandon(struct engine_wait **list)
{
	struct engine_wait *waits = *list;

	*list = NULL;
	for (struct engine_wait *wait = waits; wait; wait = wait->next)
		wait->cancelled = true;
	watch_finish(waits);
}

void watch_abandon(struct engine *e)
{
	abandon(&e->watch->waits);
	abandon(&e->watch->epoch_waits);
}

/* ---- the door ---- */

uint64_t watch_changes(struct engine *e)
{
	uint64_t changes;

	pthread_mutex_lock(&e->lock);
	changes = e->event_log->changes;
	pthread_mutex_unlock(&e->lock);
	return changes;
}

static void wait_in(struct engine *e, struct engine_wait **list, struct engine_wait *wait)
{
	pthread_mutex_lock(&e->lock);
	wait->next = *list;
	*list = wait;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

void watch_wait(struct engine *e, struct engine_wait *wait)
{
	wait_in(e, &e->watch->waits, wait);
}

void watch_wait_epoch(struct engine *e, struct engine_wait *wait)
{
	wait_in(e, &e->watch->epoch_waits, wait);
}

void watch_cancel(struct engine *e, struct engine_wait *wait)
{
	pthread_mutex_lock(&e->lock);
	wait->cancelled = true;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

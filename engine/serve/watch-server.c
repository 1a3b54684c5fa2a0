/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/event-log.h"
#include "engine/serve/watch-server.h"

#include <assert.h>
#include <errno.h>

struct pending_wait {
	LIST_ENTRY(pending_wait) link;
	uint32_t peer;
	uint64_t request;
	struct wire_wait seen;
	uint64_t until_ms;
};

static struct pending_wait *find_or_add(struct engine *e, uint32_t peer)
{
	struct pending_wait *w;
	unsigned n = 0;

	LIST_FOREACH (w, &e->serve.waits, link) {
		if (w->peer == peer)
			return w;
		n++;
	}
	w = n < WIRE_WAITS_MAX ? calloc(1, sizeof(*w)) : NULL;
	if (w)
		LIST_INSERT_HEAD(&e->serve.waits, w, link);
	return w;
}

static bool is_new(const struct engine *e, const struct wire_control *control,
		   const struct wire_wait *seen)
{
	return control->step != seen->step || control->generation != seen->generation ||
	       control->phase != seen->phase || seen->how == WIRE_WAIT_NOT ||
	       (seen->how == WIRE_WAIT_EVENTS && seen->events != e->event_log->ring.count);
}

/* Answers a WAIT.  An observer that has seen more events than this rank counts has seen those
 * of an earlier process of the rank: it is sent all.
 */
static void answer(struct engine *e, const struct pending_wait *w,
		   const struct wire_control *control)
{
	CLEANUP(free) char *lines = malloc(WIRE_EVENTS_MAX);
	struct wire_changed changed = { .control = *control,
					.events = e->event_log->ring.count };

	if (lines && (w->seen.how == WIRE_WAIT_EVENTS || w->seen.how == WIRE_WAIT_KEPT)) {
		changed.events = w->seen.events > e->event_log->ring.count ? 0 : w->seen.events;
		changed.size = (uint32_t)event_ring_read(&e->event_log->ring, &changed.events,
							 lines, WIRE_EVENTS_MAX);
	}
	node_send(e, w->peer, WIRE_CHANGED, w->request, &changed, lines, changed.size);
}

static void answer_now(struct engine *e, const struct pending_wait *w)
{
	struct wire_control control;

	wire_control_from_page(&control, e->registry.control);
	answer(e, w, &control);
}

void watch_server_add(struct engine *e, uint32_t peer, uint64_t request,
		      const struct wire_wait *wait)
{
	struct pending_wait *w;

	assert(node_is_engine_thread(e));
	if (wait->how == WIRE_WAIT_KEPT) {
		answer_now(e, &(struct pending_wait){
				      .peer = peer, .request = request, .seen = *wait });
		return;
	}
	w = find_or_add(e, peer);
	if (!w) {
		node_ack(e, peer, request, -ENOSPC);
		return;
	}
	w->peer = peer;
	w->request = request;
	w->seen = *wait;
	w->until_ms = monotonic_ms() + WIRE_WAIT_MS;
}

void watch_server_turn(struct engine *e, uint64_t now)
{
	struct pending_wait *w, *next;
	struct wire_control control;

	assert(node_is_engine_thread(e));
	if (!LIST_EMPTY(&e->serve.waits))
		wire_control_from_page(&control, e->registry.control);
	LIST_FOREACH_SAFE (w, &e->serve.waits, link, next) {
		if (!is_new(e, &control, &w->seen) && now < w->until_ms)
			continue;
		answer(e, w, &control);
		LIST_REMOVE(w, link);
		free(w);
	}
}

void watch_server_free(struct engine *e)
{
	struct pending_wait *w, *next;

	LIST_FOREACH_SAFE (w, &e->serve.waits, link, next)
		free(w);
}

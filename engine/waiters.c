/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/waiters.h"

#include <errno.h>

struct waiter {
	struct waiter *next;
	uint32_t peer;
	uint64_t request;
	struct wire_wait seen;
	uint64_t until_ms;
};

static struct waiter *find_or_add(struct engine *e, uint32_t peer)
{
	struct waiter *w = e->waiters;
	unsigned n = 0;

	for (; w && w->peer != peer; w = w->next)
		n++;
	if (!w && n < WIRE_WAITS_MAX && (w = calloc(1, sizeof(*w)))) {
		w->next = e->waiters;
		e->waiters = w;
	}
	return w;
}

void waiters_add(struct engine *e, uint32_t peer, uint64_t request,
		 const struct wire_wait *wait)
{
	struct waiter *w = find_or_add(e, peer);

	if (!w) {
		node_ack(e, peer, request, -EAGAIN);
		return;
	}
	w->peer = peer;
	w->request = request;
	w->seen = *wait;
	w->until_ms = monotonic_ms() + WIRE_WAIT_MS;
}

static bool is_new(const struct wire_control *control, const struct wire_wait *seen)
{
	return control->step != seen->step || control->generation != seen->generation ||
	       control->phase != seen->phase;
}

void waiters_turn(struct engine *e, uint64_t now)
{
	struct wire_changed changed;

	if (e->waiters)
		wire_control_from_page(&changed.control, e->registry.control);
	for (struct waiter **at = &e->waiters; *at;) {
		struct waiter *w = *at;

		if (!is_new(&changed.control, &w->seen) && now < w->until_ms) {
			at = &w->next;
			continue;
		}
		node_send(e, w->peer, WIRE_CHANGED, w->request, &changed, NULL, 0);
		*at = w->next;
		free(w);
	}
}

void waiters_free(struct engine *e)
{
	while (e->waiters) {
		struct waiter *w = e->waiters;

		e->waiters = w->next;
		free(w);
	}
}

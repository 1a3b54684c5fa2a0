/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/checkpoint/edit/rwgate.h"

void rwgate_init(struct rwgate *g)
{
	*g = (struct rwgate){ .last = &g->first };
	pthread_mutex_init(&g->lock, NULL);
	thread_cond_init(&g->empty);
}

void rwgate_fini(struct rwgate *g)
{
	assert(!g->inside && !g->first);
	pthread_cond_destroy(&g->empty);
	pthread_mutex_destroy(&g->lock);
}

void rwgate_enter(struct rwgate *g, struct rwgate_pass *pass)
{
	bool shut;

	pthread_mutex_lock(&g->lock);
	shut = g->shut;
	if (shut) {
		pass->next = NULL;
		*g->last = pass;
		g->last = &pass->next;
	} else {
		g->inside++;
	}
	pthread_mutex_unlock(&g->lock);
	if (!shut)
		pass->go(pass);
}

void rwgate_leave(struct rwgate *g)
{
	pthread_mutex_lock(&g->lock);
	assert(g->inside);
	if (!--g->inside)
		pthread_cond_signal(&g->empty);
	pthread_mutex_unlock(&g->lock);
}

/* From here on all who wait are inside. */
static struct rwgate_pass *open_all(struct rwgate *g)
{
	struct rwgate_pass *waiting = g->first;

	g->shut = false;
	for (struct rwgate_pass *p = waiting; p; p = p->next)
		g->inside++;
	g->first = NULL;
	g->last = &g->first;
	return waiting;
}

static void let_go(struct rwgate_pass *waiting)
{
	while (waiting) {
		struct rwgate_pass *next = waiting->next;

		waiting->go(waiting);
		waiting = next;
	}
}

int rwgate_shut(struct rwgate *g, unsigned seconds)
{
	struct rwgate_pass *waiting = NULL;
	struct timespec until = thread_in_ms(1000ULL * seconds);
	int rc = 0;

	pthread_mutex_lock(&g->lock);
	assert(!g->shut);
	g->shut = true;
	while (g->inside && !rc)
		rc = pthread_cond_timedwait(&g->empty, &g->lock, &until);
	if (rc)
		waiting = open_all(g);
	pthread_mutex_unlock(&g->lock);
	let_go(waiting);
	return -rc;
}

void rwgate_open(struct rwgate *g)
{
	struct rwgate_pass *waiting;

	pthread_mutex_lock(&g->lock);
	waiting = open_all(g);
	pthread_mutex_unlock(&g->lock);
	let_go(waiting);
}

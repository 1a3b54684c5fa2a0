/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/checkpoint/edit/rwgate.h"

void rwgate_init(struct rwgate *g)
{
	*g = (struct rwgate){ .shut = false };
	STAILQ_INIT(&g->waiting);
	pthread_mutex_init(&g->lock, NULL);
	thread_cond_init(&g->empty);
}

void rwgate_fini(struct rwgate *g)
{
	assert(!g->inside && STAILQ_EMPTY(&g->waiting));
	pthread_cond_destroy(&g->empty);
	pthread_mutex_destroy(&g->lock);
}

void rwgate_enter(struct rwgate *g, struct rwgate_pass *pass)
{
	bool shut;

	pthread_mutex_lock(&g->lock);
	shut = g->shut;
	if (shut) {
		STAILQ_INSERT_TAIL(&g->waiting, pass, entry);
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

/* Opens the gate, lets all waiting passes in and moves them to *admitted.  The lock is held;
 * call_all() calls them without it.
 */
static void admit_all(struct rwgate *g, struct rwgate_passes *admitted)
{
	struct rwgate_pass *p;

	g->shut = false;
	STAILQ_FOREACH (p, &g->waiting, entry)
		g->inside++;
	STAILQ_CONCAT(admitted, &g->waiting);
}

static void call_all(struct rwgate_passes *admitted)
{
	struct rwgate_pass *p, *next;

	STAILQ_FOREACH_SAFE (p, admitted, entry, next) /* go may free or reuse the pass */
		p->go(p);
}

int rwgate_shut(struct rwgate *g, unsigned seconds)
{
	struct rwgate_passes admitted = STAILQ_HEAD_INITIALIZER(admitted);
	struct timespec until = thread_in_ms(1000ULL * seconds);
	int rc = 0;

	pthread_mutex_lock(&g->lock);
	assert(!g->shut);
	g->shut = true;
	while (g->inside && !rc)
		rc = pthread_cond_timedwait(&g->empty, &g->lock, &until);
	if (rc)
		admit_all(g, &admitted);
	pthread_mutex_unlock(&g->lock);
	call_all(&admitted);
	return -rc;
}

void rwgate_open(struct rwgate *g)
{
	struct rwgate_passes admitted = STAILQ_HEAD_INITIALIZER(admitted);

	pthread_mutex_lock(&g->lock);
	admit_all(g, &admitted);
	pthread_mutex_unlock(&g->lock);
	call_all(&admitted);
}

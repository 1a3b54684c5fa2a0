/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/poll.h"

#include <poll.h>
#include <string.h>

static void came(struct engine_wait *wait, int result);

void polls_init(struct polls *all, struct engine *engine)
{
	*all = (struct polls){ .engine = engine, .wait = { .done = came, .owner = all } };
	pthread_mutex_init(&all->lock, NULL);
	pthread_cond_init(&all->over, NULL);
}

void polls_fini(struct polls *all)
{
	pthread_cond_destroy(&all->over);
	pthread_mutex_destroy(&all->lock);
}

bool poll_can(struct node n)
{
	return n.kind == NODE_EVENTS || (n.kind == NODE_TEXT && n.slot <= TEXT_GENERATION);
}

static uint64_t stamp(const struct engine_job *job, uint32_t text)
{
	if (text == TEXT_PHASE)
		/* Equal phases are equal pointers (engine.h), so the pointer is the phase's
		 * stamp.
		 */
		return (uintptr_t)job->phase;
	return text == TEXT_STEP ? job->step : job->generation;
}

/* ---- the list of polls that wait; under the lock ---- */

static void forget(struct poll *p)
{
	if (!p->ph)
		return;
	LIST_REMOVE(p, entry);
	fuse_pollhandle_destroy(p->ph);
	p->ph = NULL;
}

static void list(struct polls *all, struct poll *p, struct fuse_pollhandle *ph)
{
	forget(p);
	p->ph = ph;
	LIST_INSERT_HEAD(&all->list, p, entry);
}

static void tell_changed(struct polls *all)
{
	struct engine_job job;
	struct poll *p, *next;

	engine_job(all->engine, &job);
	LIST_FOREACH_SAFE (p, &all->list, entry, next) {
		if (p->events ? !engine_events_ready(p->events) && !job.ended
			      : stamp(&job, p->text) == p->told)
			continue;
		fuse_lowlevel_notify_poll(p->ph);
		forget(p);
	}
}

static void came(struct engine_wait *wait, int result)
{
	struct polls *all = wait->owner;

	pthread_mutex_lock(&all->lock);
	wait->seen = engine_changes(all->engine);
	if (!all->stop)
		tell_changed(all);
	all->waiting = !LIST_EMPTY(&all->list) && !all->stop && !result;
	if (all->waiting)
		engine_wait(all->engine, wait);
	else
		pthread_cond_signal(&all->over);
	pthread_mutex_unlock(&all->lock);
}

void polls_stop(struct polls *all)
{
	pthread_mutex_lock(&all->lock);
	all->stop = true;
	while (!LIST_EMPTY(&all->list))
		forget(LIST_FIRST(&all->list));
	if (all->waiting)
		engine_wait_cancel(all->engine, &all->wait);
	while (all->waiting)
		pthread_cond_wait(&all->over, &all->lock);
	pthread_mutex_unlock(&all->lock);
}

/* ---- an open file ---- */

size_t poll_read(struct polls *all, struct poll *p, uint64_t offset, size_t size,
		 char out[TEXT_JOB_MAX])
{
	struct engine_job job;

	engine_job(all->engine, &job);
	pthread_mutex_lock(&all->lock);
	if (!offset || !p->length) {
		p->read = stamp(&job, p->text);
		p->length = text_of_job(&job, p->text, p->content);
	}
	offset = u64_min(offset, p->length);
	size = u64_min(size, p->length - offset);
	memcpy(out, p->content + offset, size);
	pthread_mutex_unlock(&all->lock);
	return size;
}

unsigned poll_ask(struct polls *all, struct poll *p, struct fuse_pollhandle *ph)
{
	struct engine_job job;
	uint64_t seen;
	bool ready, ended;

	pthread_mutex_lock(&all->lock);
	/* Read before the job, so that a change between the two ends the wait at once. */
	seen = engine_changes(all->engine);
	engine_job(all->engine, &job);
	p->told = stamp(&job, p->text);
	ended = p->events && job.ended;
	ready = p->events ? ended || engine_events_ready(p->events)
			  : !p->length || p->read != p->told;
	if (ph && all->stop)
		fuse_pollhandle_destroy(ph);
	else if (ph)
		list(all, p, ph);
	if (!LIST_EMPTY(&all->list) && !all->waiting) {
		all->waiting = true;
		all->wait.seen = seen;
		engine_wait(all->engine, &all->wait);
	}
	pthread_mutex_unlock(&all->lock);
	return (ready ? POLLIN | POLLRDNORM | POLLPRI : 0) | (ended ? POLLHUP : 0);
}

void poll_close(struct polls *all, struct poll *p)
{
	pthread_mutex_lock(&all->lock);
	forget(p);
	pthread_mutex_unlock(&all->lock);
}

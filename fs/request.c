/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "fs/request.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static void wake(struct requests *all)
{
	all->wanted = true;
	pthread_cond_broadcast(&all->changed);
}

/* Called by libfuse with the request locked. */
static void interrupted(fuse_req_t req, void *data)
{
	struct request *r = data;

	pthread_mutex_lock(&r->all->lock);
	r->interrupted = true;
	wake(r->all);
	pthread_mutex_unlock(&r->all->lock);
}

static struct request *next_to_cancel(struct requests *all)
{
	struct request *r;

	LIST_FOREACH (r, &all->inflight, entry)
		if (r->interrupted && r->submitted && !r->finished && !r->cancelled)
			break;
	return r;
}

/* Cancels a request.  Called with the lock, which is let go meanwhile. */
static void cancel(struct requests *all, struct request *r)
{
	r->cancelled = true;
	all->cancelling = r;
	pthread_mutex_unlock(&all->lock);
	if (r->kind == REQUEST_WRITE)
		engine_write_cancel(all->engine, &r->write);
	else if (r->kind == REQUEST_FREEZE)
		engine_freeze_cancel(all->engine, &r->freeze);
	else if (r->kind == REQUEST_WAIT)
		engine_wait_cancel(all->engine, &r->wait);
	else if (r->kind == REQUEST_STATS)
		stats_pass_cancel(&r->stats);
	else if (r->kind == REQUEST_OTHER)
		r->cancel(r);
	else
		engine_read_cancel(all->engine, &r->read);
	pthread_mutex_lock(&all->lock);
	all->cancelling = NULL;
	pthread_cond_broadcast(&all->changed);
}

static void *canceller(void *arg)
{
	struct requests *all = arg;

	pthread_mutex_lock(&all->lock);
	while (!all->stop) {
		struct request *r;

		if (!all->wanted) {
			pthread_cond_wait(&all->changed, &all->lock);
			continue;
		}
		all->wanted = false;
		while ((r = next_to_cancel(all)))
			cancel(all, r);
	}
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

int requests_init(struct requests *all, struct engine *engine,
		  void (*release)(struct request *r))
{
	*all = (struct requests){ .engine = engine, .release = release };
	pthread_mutex_init(&all->lock, NULL);
	pthread_cond_init(&all->changed, NULL);
	thread_cond_init(&all->drained);
	return thread_start(&all->thread, canceller, all);
}

int requests_drain(struct requests *all, unsigned seconds)
{
	struct timespec until = thread_in_ms(1000ULL * seconds);
	struct request *r;
	int rc = 0;

	pthread_mutex_lock(&all->lock);
	LIST_FOREACH (r, &all->inflight, entry)
		r->interrupted = true;
	wake(all);
	while (!LIST_EMPTY(&all->inflight) && !rc)
		rc = pthread_cond_timedwait(&all->drained, &all->lock, &until);
	pthread_mutex_unlock(&all->lock);
	return -rc;
}

void requests_fini(struct requests *all)
{
	struct request *r, *next;

	assert(LIST_EMPTY(&all->inflight));
	pthread_mutex_lock(&all->lock);
	all->stop = true;
	pthread_cond_broadcast(&all->changed);
	pthread_mutex_unlock(&all->lock);
	pthread_join(all->thread, NULL);
	LIST_FOREACH_SAFE (r, &all->free, entry, next)
		free(r);
	pthread_cond_destroy(&all->drained);
	pthread_cond_destroy(&all->changed);
	pthread_mutex_destroy(&all->lock);
}

struct request *request_get(struct requests *all, fuse_req_t req, struct handle *handle)
{
	struct request *r;

	pthread_mutex_lock(&all->lock);
	r = LIST_FIRST(&all->free);
	if (r)
		LIST_REMOVE(r, entry);
	else
		r = malloc(sizeof(*r));
	if (r) {
		*r = (struct request){ .all = all, .req = req, .handle = handle, .refs = 2 };
		LIST_INSERT_HEAD(&all->inflight, r, entry);
	}
	pthread_mutex_unlock(&all->lock);
	return r;
}

/* Gives a reference back; the last one frees the request.  Called with the lock, which is let
 * go while handles are released: r stays in flight, so that requests_drain() waits for the
 * release too.
 */
static void unref(struct request *r)
{
	struct requests *all = r->all;

	if (--r->refs)
		return;
	pthread_mutex_unlock(&all->lock);
	all->release(r);
	pthread_mutex_lock(&all->lock);
	LIST_REMOVE(r, entry);
	LIST_INSERT_HEAD(&all->free, r, entry);
	if (LIST_EMPTY(&all->inflight))
		pthread_cond_signal(&all->drained);
}

bool request_arm(struct request *r)
{
	fuse_req_interrupt_func(r->req, interrupted, r);
	return !fuse_req_interrupted(r->req);
}

void request_drop(struct request *r)
{
	struct requests *all = r->all;

	fuse_req_interrupt_func(r->req, NULL, NULL);
	pthread_mutex_lock(&all->lock);
	r->refs = 1;
	unref(r);
	pthread_mutex_unlock(&all->lock);
}

void request_submitted(struct request *r)
{
	struct requests *all = r->all;

	pthread_mutex_lock(&all->lock);
	r->submitted = true;
	if (r->interrupted)
		wake(all);
	unref(r);
	pthread_mutex_unlock(&all->lock);
}

void request_done(struct request *r)
{
	struct requests *all = r->all;

	fuse_req_interrupt_func(r->req, NULL, NULL);
	pthread_mutex_lock(&all->lock);
	assert(!r->finished);
	r->finished = true;
	/* The canceller still uses r; a done function that runs in the cancel call must not
	 * wait.
	 */
	while (all->cancelling == r && !pthread_equal(all->thread, pthread_self()))
		pthread_cond_wait(&all->changed, &all->lock);
	pthread_mutex_unlock(&all->lock);
}

void request_put(struct request *r)
{
	struct requests *all = r->all;

	pthread_mutex_lock(&all->lock);
	unref(r);
	pthread_mutex_unlock(&all->lock);
}

int request_error(int64_t result)
{
	if (result == -ECANCELED)
		return EINTR;
	return result >= 0 ? 0 : result > -4096 ? (int)-result : EIO;
}

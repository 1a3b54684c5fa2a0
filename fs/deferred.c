/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "fs/deferred.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct deferred_request { /* a request, and copies of what its handler was given */
	struct deferred_request *next;
	fuse_req_t req;
	struct deferred_call call;
	struct engine_hurry hurry;
	uint64_t deadline_ms;
	struct fuse_file_info file;
	struct stat attr;
	char name[];
};

static int run(fuse_req_t req, const struct deferred_call *c, struct engine_hurry *hurry)
{
	int rc;

	engine_hurry(hurry);
	rc = c->run(req, c);
	engine_hurry(NULL);
	return rc;
}

/* With the lock. */
static void wake(struct deferred *p)
{
	p->news = true;
	pthread_cond_signal(&p->changed);
}

void deferred_wake(struct deferred *p)
{
	pthread_mutex_lock(&p->lock);
	wake(p);
	pthread_mutex_unlock(&p->lock);
}

/* libfuse holds the request's lock. */
static void interrupted(fuse_req_t req, void *data)
{
	deferred_wake(data);
}

static void came(struct engine_wait *wait, int result)
{
	struct deferred *p = wait->owner;

	pthread_mutex_lock(&p->lock);
	p->asked = false;
	wake(p);
	pthread_mutex_unlock(&p->lock);
}

/* ---- in libfuse's threads ---- */

static struct deferred_request *copy(fuse_req_t req, const struct deferred_call *c)
{
	size_t length = c->name ? strlen(c->name) + 1 : 0;
	struct deferred_request *w = calloc(1, sizeof(*w) + length);

	if (!w)
		return NULL;
	w->req = req;
	w->call = *c;
	if (c->name)
		w->call.name = memcpy(w->name, c->name, length);
	if (c->file)
		*(w->call.file = &w->file) = *c->file;
	if (c->attr)
		*(w->call.attr = &w->attr) = *c->attr;
	return w;
}

static int defer(struct deferred *p, fuse_req_t req, const struct deferred_call *c,
		 const struct engine_hurry *hurry)
{
	struct deferred_request *w = copy(req, c);

	if (!w)
		return -ENOMEM;
	w->hurry = *hurry;
	w->deadline_ms = monotonic_ms() + p->timeout_ms;
	/* As soon as it is listed it may be gone. */
	fuse_req_interrupt_func(req, interrupted, p);
	pthread_mutex_lock(&p->lock);
	*p->last = w;
	p->last = &w->next;
	wake(p);
	pthread_mutex_unlock(&p->lock);
	return 0;
}

void deferred_run(struct deferred *p, fuse_req_t req, const struct deferred_call *c)
{
	struct engine_hurry hurry = { 0 };
	int rc = run(req, c, &hurry);

	if (rc == -EAGAIN)
		rc = defer(p, req, c, &hurry);
	if (rc)
		fuse_reply_err(req, -rc);
}

/* ---- in its own ---- */

static int try_again(struct deferred_request *w, bool stop)
{
	bool late = monotonic_ms() >= w->deadline_ms;
	int rc;

	if (stop || fuse_req_interrupted(w->req))
		return -EINTR;
	rc = run(w->req, &w->call, &w->hurry);
	return rc == -EAGAIN && late ? -ETIMEDOUT : rc;
}

/* Has it been replied to?  Its interrupt function must not run meanwhile. */
static bool is_over(struct deferred *p, struct deferred_request *w, bool stop)
{
	int rc;

	fuse_req_interrupt_func(w->req, NULL, NULL);
	rc = try_again(w, stop);
	if (rc == -EAGAIN)
		fuse_req_interrupt_func(w->req, interrupted, p);
	else if (rc)
		fuse_reply_err(w->req, -rc);
	return rc != -EAGAIN;
}

/* The lock is held, but while one is tried: others are listed behind it then. */
static void try_all(struct deferred *p)
{
	struct deferred_request **at = &p->first;

	while (*at) {
		struct deferred_request *w = *at;
		bool stop = p->stop, over;

		pthread_mutex_unlock(&p->lock);
		over = is_over(p, w, stop);
		pthread_mutex_lock(&p->lock);
		if (!over) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		if (p->last == &w->next)
			p->last = at;
		free(w);
	}
}

/* The engine has p->wait as long as somebody waits. */
static void ask(struct deferred *p, uint64_t seen)
{
	if (p->first && !p->asked) {
		p->asked = true;
		p->wait = (struct engine_wait){ .seen = seen, .done = came, .owner = p };
		engine_wait_epoch(p->engine, &p->wait);
	} else if (!p->first && p->asked) {
		engine_wait_cancel(p->engine, &p->wait);
	}
}

/* Until there is news, or the first has waited for long enough. */
static void sleep_on(struct deferred *p)
{
	uint64_t until = p->first ? p->first->deadline_ms : 0;
	struct timespec t = { .tv_sec = (time_t)(until / 1000),
			      .tv_nsec = (long)(until % 1000) * 1000000 };
	int rc = 0;

	while (!p->news && !rc)
		rc = p->first ? pthread_cond_timedwait(&p->changed, &p->lock, &t)
			      : pthread_cond_wait(&p->changed, &p->lock);
}

static void *deferred(void *arg)
{
	struct deferred *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop || p->first || p->asked) {
		uint64_t seen;

		sleep_on(p);
		p->news = false;
		seen = engine_epoch(p->engine);
		try_all(p);
		ask(p, seen);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int deferred_init(struct deferred *p, struct engine *engine, unsigned timeout_ms)
{
	*p = (struct deferred){ .engine = engine, .timeout_ms = timeout_ms, .last = &p->first };
	pthread_mutex_init(&p->lock, NULL);
	thread_cond_init(&p->changed);
	return thread_start(&p->thread, deferred, p);
}

void deferred_fini(struct deferred *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	wake(p);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	assert(!p->first && !p->asked);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
}

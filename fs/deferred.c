/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "fs/deferred.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct deferred_request { /* a request, and copies of its handler's arguments */
	TAILQ_ENTRY(deferred_request) entry;
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

/* Called with the lock. */
static void wake(struct deferred *d)
{
	d->news = true;
	pthread_cond_signal(&d->changed);
}

void deferred_wake(struct deferred *d)
{
	pthread_mutex_lock(&d->lock);
	wake(d);
	pthread_mutex_unlock(&d->lock);
}

/* Called by libfuse with the request locked. */
static void interrupted(fuse_req_t req, void *data)
{
	deferred_wake(data);
}

static void came(struct engine_wait *wait, int result)
{
	struct deferred *d = wait->owner;

	pthread_mutex_lock(&d->lock);
	d->asked = false;
	wake(d);
	pthread_mutex_unlock(&d->lock);
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

static int defer(struct deferred *d, fuse_req_t req, const struct deferred_call *c,
		 const struct engine_hurry *hurry)
{
	struct deferred_request *w = copy(req, c);

	if (!w)
		return -ENOMEM;
	w->hurry = *hurry;
	w->deadline_ms = monotonic_ms() + d->timeout_ms;
	/* Set before w is listed: then the deferred thread may reply, which frees the request.
	 */
	fuse_req_interrupt_func(req, interrupted, d);
	pthread_mutex_lock(&d->lock);
	TAILQ_INSERT_TAIL(&d->requests, w, entry);
	wake(d);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

void deferred_run(struct deferred *d, fuse_req_t req, const struct deferred_call *c)
{
	struct engine_hurry hurry = { 0 };
	int rc = run(req, c, &hurry);

	if (rc == -EAGAIN)
		rc = defer(d, req, c, &hurry);
	if (rc)
		fuse_reply_err(req, -rc);
}

/* ---- in the deferred thread ---- */

static int try_again(struct deferred_request *w, bool stop)
{
	bool late = monotonic_ms() >= w->deadline_ms;
	int rc;

	if (stop || fuse_req_interrupted(w->req))
		return -EINTR;
	rc = run(w->req, &w->call, &w->hurry);
	return rc == -EAGAIN && late ? -ETIMEDOUT : rc;
}

/* Tries a request again; true: it was replied to.  While the handler runs, this module's
 * interrupt function is off: the handler may set its own, and its reply frees the request.
 */
static bool is_over(struct deferred *d, struct deferred_request *w, bool stop)
{
	int rc;

	fuse_req_interrupt_func(w->req, NULL, NULL);
	rc = try_again(w, stop);
	if (rc == -EAGAIN)
		fuse_req_interrupt_func(w->req, interrupted, d);
	else if (rc)
		fuse_reply_err(w->req, -rc);
	return rc != -EAGAIN;
}

/* Called with the lock, which is let go while a request is tried.  Meanwhile other threads
 * append behind the list's end, but only this thread removes, so w and its successor stay.
 */
static void try_all(struct deferred *d)
{
	struct deferred_request *w, *next;

	for (w = TAILQ_FIRST(&d->requests); w; w = next) {
		bool stop = d->stop, over;

		pthread_mutex_unlock(&d->lock);
		over = is_over(d, w, stop);
		pthread_mutex_lock(&d->lock);
		next = TAILQ_NEXT(w, entry);
		if (over) {
			TAILQ_REMOVE(&d->requests, w, entry);
			free(w);
		}
	}
}

/* Gives the engine d->wait while requests are listed, and cancels the wait when none is. */
static void ask(struct deferred *d, uint64_t seen)
{
	bool listed = !TAILQ_EMPTY(&d->requests);

	if (listed && !d->asked) {
		d->asked = true;
		d->wait = (struct engine_wait){ .seen = seen, .done = came, .owner = d };
		engine_wait_epoch(d->engine, &d->wait);
	} else if (!listed && d->asked) {
		engine_wait_cancel(d->engine, &d->wait);
	}
}

/* Sleeps until there is news, or the oldest request has waited for timeout_ms. */
static void sleep_on(struct deferred *d)
{
	struct deferred_request *oldest = TAILQ_FIRST(&d->requests);
	uint64_t until = oldest ? oldest->deadline_ms : 0;
	struct timespec t = { .tv_sec = (time_t)(until / 1000),
			      .tv_nsec = (long)(until % 1000) * 1000000 };
	int rc = 0;

	while (!d->news && !rc)
		rc = oldest ? pthread_cond_timedwait(&d->changed, &d->lock, &t)
			    : pthread_cond_wait(&d->changed, &d->lock);
}

static void *retry(void *arg)
{
	struct deferred *d = arg;

	pthread_mutex_lock(&d->lock);
	while (!d->stop || !TAILQ_EMPTY(&d->requests) || d->asked) {
		uint64_t seen;

		sleep_on(d);
		d->news = false;
		/* Read before the tries, so that a table that comes during them ends the wait
		 * at once.
		 */
		seen = engine_epoch(d->engine);
		try_all(d);
		ask(d, seen);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

int deferred_init(struct deferred *d, struct engine *engine, unsigned timeout_ms)
{
	*d = (struct deferred){ .engine = engine, .timeout_ms = timeout_ms };
	TAILQ_INIT(&d->requests);
	pthread_mutex_init(&d->lock, NULL);
	thread_cond_init(&d->changed);
	return thread_start(&d->thread, retry, d);
}

void deferred_fini(struct deferred *d)
{
	pthread_mutex_lock(&d->lock);
	d->stop = true;
	wake(d);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	assert(TAILQ_EMPTY(&d->requests) && !d->asked);
	pthread_cond_destroy(&d->changed);
	pthread_mutex_destroy(&d->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/queue.h"
#include "engine/base/thread.h"
#include "engine/node/fabric.h"
#include "engine/serve/serve-pending.h"
#include "engine/serve/tier-read.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* A peer may have three quarters of all pending reads. */
enum { READS_MAX = 256, READS_OF_PEER_MAX = READS_MAX / 4 * 3, REQUESTS_MAX = 4 };

struct pending_read {
	TAILQ_ENTRY(pending_read) link;
	struct serve_pending *of;
	uint32_t peer;
	struct wire_read asked;
	uint64_t requests[REQUESTS_MAX]; /* the READs of the peer that this one answers */
	unsigned nrequests;
	uint64_t began_ms;
	bool bound; /* the fetch cannot be cancelled */
	/* the answer is sent, or its reader has left: only the end of the fetch is due */
	bool answered;
	bool ended; /* `ended` and `status` are under serve_pending's lock */
	int status;
	struct view_look shown; /* its version is the fetch's */
	struct registry_fetch fetch;
	uint8_t bytes[]; /* of asked.size */
};

TAILQ_HEAD(pending_list, pending_read);

struct serve_pending {
	/* NULL: the engine has ended; each read is freed by the end of its fetch */
	struct engine *engine;
	pthread_mutex_t lock; /* guards reads' ended and status; under it no lock is taken */
	pthread_cond_t came;
	struct pending_list reads; /* oldest first, as they are answered */
	unsigned count;
};

int serve_pending_init(struct engine *e)
{
	assert(thread_may_be_trainer());
	if (e->serve.pending)
		return 0;
	e->serve.pending = calloc(1, sizeof(*e->serve.pending));
	if (!e->serve.pending)
		return -ENOMEM;
	e->serve.pending->engine = e;
	TAILQ_INIT(&e->serve.pending->reads);
	pthread_mutex_init(&e->serve.pending->lock, NULL);
	thread_cond_init(&e->serve.pending->came);
	return 0;
}

static void read_free(struct pending_read *r)
{
	registry_version_put(r->shown.version);
	free(r);
}

static void drop(struct serve_pending *l, struct pending_read *r)
{
	TAILQ_REMOVE(&l->reads, r, link);
	l->count--;
	read_free(r);
}

static void destroy(struct serve_pending *l)
{
	pthread_cond_destroy(&l->came);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* Frees a read whose fetch a disk has ended after the engine; the last one frees l. */
static void end_alone(struct serve_pending *l, struct pending_read *r)
{
	bool last;

	pthread_mutex_lock(&l->lock);
	TAILQ_REMOVE(&l->reads, r, link);
	last = TAILQ_EMPTY(&l->reads);
	pthread_mutex_unlock(&l->lock);
	read_free(r);
	if (last)
		destroy(l);
}

/* Any thread. */
static void on_fetched(struct registry_fetch *f, int status)
{
	struct pending_read *r = container_of(f, struct pending_read, fetch);
	struct serve_pending *l = r->of;
	bool alone;

	pthread_mutex_lock(&l->lock);
	r->status = status;
	r->ended = true;
	alone = !l->engine;
	if (!alone) {
		pthread_cond_broadcast(&l->came);
		/* under the lock: once it is free, the engine thread may free r, and then l */
		node_wake(l->engine);
	}
	pthread_mutex_unlock(&l->lock);
	if (alone)
		end_alone(l, r);
}

static bool has_ended(struct serve_pending *l, const struct pending_read *r)
{
	bool ended;

	pthread_mutex_lock(&l->lock);
	ended = r->ended;
	pthread_mutex_unlock(&l->lock);
	return ended;
}

void serve_pending_data(struct engine *e, uint32_t peer, uint64_t request, int status,
			const void *bytes, uint32_t size)
{
	struct wire_data data = { .status = status, .size = status ? 0 : size };

	/* the bytes were read before the control page, as by a one-sided read */
	atomic_thread_fence(memory_order_acquire);
	wire_control_from_page(&data.control, e->registry.control);
	fabric_reply(e, peer, WIRE_DATA, request, &data, bytes, data.size);
}

static void answer(struct engine *e, struct pending_read *r, int status)
{
	for (unsigned i = 0; i < r->nrequests && !r->answered; i++)
		serve_pending_data(e, r->peer, r->requests[i], status, r->bytes, r->asked.size);
	r->answered = true;
}

/* Cancels a read that nobody waits for.  Returns false if its fetch cannot be cancelled, and
 * ends by itself (registry_fetch_cancel).
 */
static bool abandon(struct pending_read *r)
{
	r->answered = true;
	return registry_fetch_cancel(&r->fetch);
}

/* Under l's lock.  Returns true if a fetch is under way; with bound, one that cannot be
 * cancelled.
 */
static bool is_under_way(const struct serve_pending *l, bool bound)
{
	const struct pending_read *r;

	TAILQ_FOREACH (r, &l->reads, link)
		if (!r->ended && (!bound || r->bound))
			return true;
	return false;
}

void serve_pending_free(struct engine *e)
{
	struct serve_pending *l = e->serve.pending;
	struct timespec end = thread_in_ms(u64_min(e->timeout_ms, SWAPPER_END_MS));
	struct pending_list ended = TAILQ_HEAD_INITIALIZER(ended);
	struct pending_read *r, *next;
	int rc = 0;
	bool left;

	if (!l)
		return;
	TAILQ_FOREACH (r, &l->reads, link)
		r->bound = !abandon(r);
	pthread_mutex_lock(&l->lock);
	while (is_under_way(l, false) && !rc)
		rc = pthread_cond_timedwait(&l->came, &l->lock, &end);
	while (is_under_way(l, true)) /* a device's port ends these fetches in bounded time */
		pthread_cond_wait(&l->came, &l->lock);
	l->engine = NULL;
	TAILQ_FOREACH_SAFE (r, &l->reads, link, next)
		if (r->ended) {
			TAILQ_REMOVE(&l->reads, r, link);
			TAILQ_INSERT_TAIL(&ended, r, link);
		}
	left = !TAILQ_EMPTY(&l->reads);
	pthread_mutex_unlock(&l->lock); /* read_free takes locks of the swapper */
	TAILQ_FOREACH_SAFE (r, &ended, link, next)
		read_free(r);
	if (!left)
		destroy(l);
	e->serve.pending = NULL;
}

/* Adds a request to a pending read of the same bytes, at the same version, by the same peer. */
static bool join(struct serve_pending *l, uint32_t peer, uint64_t request,
		 const struct wire_read *read, const struct view_look *shown)
{
	struct pending_read *r;

	TAILQ_FOREACH (r, &l->reads, link) {
		if (r->answered || r->peer != peer || r->nrequests == REQUESTS_MAX ||
		    memcmp(&r->asked, read, sizeof(*read)) != 0 ||
		    r->shown.generation != shown->generation ||
		    !registry_version_same(r->shown.version, shown->version))
			continue;
		r->requests[r->nrequests++] = request;
		return true;
	}
	return false;
}

/* Returns true if no read of the peer can be added: all peers have READS_MAX, or the peer has
 * its share.
 */
static bool is_full(const struct serve_pending *l, uint32_t peer)
{
	const struct pending_read *r;
	unsigned own = 0;

	TAILQ_FOREACH (r, &l->reads, link)
		own += r->peer == peer;
	return l->count >= READS_MAX || own >= READS_OF_PEER_MAX;
}

static int begin(struct engine *e, uint32_t peer, uint64_t request,
		 const struct wire_read *read, const struct view_look *shown)
{
	struct serve_pending *l = e->serve.pending;
	struct pending_read *r;
	int rc;

	if (is_full(l, peer))
		return -EAGAIN;
	r = malloc(sizeof(*r) + read->size + 1);
	if (!r)
		return -ENOMEM;
	*r = (struct pending_read){ .of = l,
				    .peer = peer,
				    .asked = *read,
				    .requests = { request },
				    .nrequests = 1,
				    .began_ms = monotonic_ms(),
				    .shown = *shown,
				    .fetch = { .version = shown->version,
					       .offset = shown->at,
					       .size = read->size,
					       .memory = r->bytes,
					       .done = on_fetched } };
	rc = registry_fetch_begin(&e->registry, &r->fetch);
	if (rc) {
		free(r);
		return rc;
	}
	TAILQ_INSERT_TAIL(&l->reads, r, link);
	l->count++;
	return 0;
}

static int join_or_begin(struct engine *e, uint32_t peer, uint64_t request,
			 const struct wire_read *read)
{
	struct view_look shown;
	bool joined;
	int rc = tier_read_find(e, read, &shown);

	if (rc)
		return rc;
	joined = join(e->serve.pending, peer, request, read, &shown);
	rc = joined ? 0 : begin(e, peer, request, read, &shown);
	if (joined || rc)
		registry_version_put(shown.version);
	return rc;
}

bool serve_pending_start(struct engine *e, uint32_t peer, uint64_t request,
			 const struct wire_read *read)
{
	int rc;

	assert(node_is_engine_thread(e));
	if (!e->serve.pending || read->size > WIRE_CHUNK || !tier_read_is_due(e, read))
		return false;
	rc = join_or_begin(e, peer, request, read);
	if (rc)
		serve_pending_data(e, peer, request, rc, NULL, 0);
	else
		/* the fetch may have ended within registry_fetch_begin */
		serve_pending_turn(e, monotonic_ms());
	return true;
}

void serve_pending_turn(struct engine *e, uint64_t now)
{
	struct pending_read *r, *next;

	if (!e->serve.pending)
		return;
	TAILQ_FOREACH_SAFE (r, &e->serve.pending->reads, link, next) {
		if (has_ended(e->serve.pending, r)) {
			answer(e, r,
			       tier_read_check(e, &r->asked, &r->shown, &r->fetch, r->status));
			drop(e->serve.pending, r);
		} else if (!r->answered && now >= r->began_ms + e->timeout_ms) {
			answer(e, r, -ETIMEDOUT);
			abandon(r);
		}
	}
}

void serve_pending_gone(struct engine *e, uint32_t peer)
{
	struct pending_read *r;

	if (!e->serve.pending)
		return;
	TAILQ_FOREACH (r, &e->serve.pending->reads, link)
		if (r->peer == peer && !r->answered)
			abandon(r);
}

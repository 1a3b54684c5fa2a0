/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/serve/serve-pending.h"
#include "engine/serve/serve-swap.h"
#include "engine/serve/serve.h"

#include <errno.h>
#include <string.h>

enum { READS_MAX = 256, READS_OF_PEER_MAX = READS_MAX / 4 * 3 };

struct pending_reads {
	struct engine *engine; /* NULL: it has gone, and each read ends by itself */
	pthread_mutex_t lock;  /* of reads' ended and status; takes no other */
	pthread_cond_t came;
	struct pending_read *reads;
	unsigned count;
};

static const struct pending_source *const sources[STATE_TIERS] = {
	[STATE_SWAP] = &serve_swap_source,
	[STATE_DEVICE] = &serve_device_source,
};

int pending_reads_init(struct engine *e)
{
	if (e->later)
		return 0;
	e->later = calloc(1, sizeof(*e->later));
	if (!e->later)
		return -ENOMEM;
	e->later->engine = e;
	pthread_mutex_init(&e->later->lock, NULL);
	thread_cond_init(&e->later->came);
	return 0;
}

static void read_free(struct engine *e, struct pending_read *r)
{
	r->source->put(e, &r->found);
	free(r);
}

static void drop(struct pending_reads *l, struct pending_read **at)
{
	struct pending_read *r = *at;

	*at = r->next;
	l->count--;
	read_free(l->engine, r);
}

static void destroy(struct pending_reads *l)
{
	pthread_cond_destroy(&l->came);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* Of a disk that was silent when the rank ended. */
static void end_alone(struct pending_reads *l, struct pending_read *r)
{
	struct pending_read **at = &l->reads;
	bool last;

	pthread_mutex_lock(&l->lock);
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	last = !l->reads;
	pthread_mutex_unlock(&l->lock);
	read_free(NULL, r);
	if (last)
		destroy(l);
}

void pending_reads_came(struct pending_read *r, int status)
{
	struct pending_reads *l = r->of;
	bool alone;

	pthread_mutex_lock(&l->lock);
	r->status = status;
	r->ended = true;
	alone = !l->engine;
	if (!alone) {
		pthread_cond_broadcast(&l->came);
		node_wake(l->engine); /* inside: from here on r and l may go */
	}
	pthread_mutex_unlock(&l->lock);
	if (alone)
		end_alone(l, r);
}

static bool has_ended(struct pending_reads *l, const struct pending_read *r)
{
	bool ended;

	pthread_mutex_lock(&l->lock);
	ended = r->ended;
	pthread_mutex_unlock(&l->lock);
	return ended;
}

static void answer(struct engine *e, struct pending_read *r, int status)
{
	for (unsigned i = 0; i < r->nrequests && !r->answered; i++)
		serve_data(e, r->peer, r->requests[i], status, r->bytes, r->asked.size);
	r->answered = true;
}

/* Nobody waits for it any more. */
static void abandon(struct pending_read *r)
{
	r->answered = true;
	if (r->source->cancel)
		r->source->cancel(r);
}

/* Under l's lock.  source NULL: of any. */
static bool is_under_way(const struct pending_reads *l, const struct pending_source *source)
{
	for (const struct pending_read *r = l->reads; r; r = r->next)
		if (!r->ended && (!source || r->source == source))
			return true;
	return false;
}

/* Under l's lock. */
static struct pending_read *take_ended(struct pending_reads *l)
{
	struct pending_read *ended = NULL;

	for (struct pending_read **at = &l->reads, *r; (r = *at);) {
		if (!r->ended) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		r->next = ended;
		ended = r;
	}
	return ended;
}

void pending_reads_free(struct engine *e)
{
	struct pending_reads *l = e->later;
	struct timespec end = thread_in_ms(u64_min(e->timeout_ms, SWAPPER_END_MS));
	struct pending_read *ended, *next;
	int rc = 0;
	bool left;

	if (!l)
		return;
	for (struct pending_read *r = l->reads; r; r = r->next)
		abandon(r);
	pthread_mutex_lock(&l->lock);
	while (is_under_way(l, NULL) && !rc)
		rc = pthread_cond_timedwait(&l->came, &l->lock, &end);
	while (is_under_way(l, &serve_device_source)) /* its port gives up */
		pthread_cond_wait(&l->came, &l->lock);
	ended = take_ended(l);
	l->engine = NULL;
	left = l->reads;
	pthread_mutex_unlock(&l->lock);
	for (; ended; ended = next) {
		next = ended->next;
		read_free(e, ended);
	}
	if (!left)
		destroy(l);
	e->later = NULL;
}

/* NULL: it is in memory, or there is none such. */
static const struct pending_source *source_of(struct engine *e, const struct wire_read *read)
{
	return sources[read->view[0] ? view_owner_tier(&e->views, read->view)
				     : registry_tier(&e->registry, read->state)];
}

/* Asked again by the same reader, or by another of its threads, and there is nothing newer
 * since.
 */
static bool join(struct pending_reads *l, const struct pending_source *source, uint32_t peer,
		 uint64_t request, const struct wire_read *read,
		 const struct pending_found *found)
{
	for (struct pending_read *r = l->reads; r; r = r->next) {
		if (r->answered || r->peer != peer || r->nrequests == PENDING_READS_ASKED_MAX ||
		    memcmp(&r->asked, read, sizeof(*read)) != 0 || r->source != source ||
		    !source->same(&r->found, found))
			continue;
		r->requests[r->nrequests++] = request;
		return true;
	}
	return false;
}

/* One reader leaves some to others. */
static bool is_full(const struct pending_reads *l, uint32_t peer)
{
	unsigned own = 0;

	for (const struct pending_read *r = l->reads; r; r = r->next)
		own += r->peer == peer;
	return l->count >= READS_MAX || own >= READS_OF_PEER_MAX;
}

static int begin(struct engine *e, const struct pending_source *source, uint32_t peer,
		 uint64_t request, const struct wire_read *read,
		 const struct pending_found *found)
{
	struct pending_reads *l = e->later;
	struct pending_read *r;
	int rc;

	if (is_full(l, peer))
		return -EAGAIN;
	r = malloc(sizeof(*r) + read->size + 1);
	if (!r)
		return -ENOMEM;
	*r = (struct pending_read){ .next = l->reads,
				    .of = l,
				    .peer = peer,
				    .asked = *read,
				    .requests = { request },
				    .nrequests = 1,
				    .began_ms = monotonic_ms(),
				    .source = source,
				    .found = *found };
	rc = source->begin(e, r);
	if (rc) {
		free(r);
		return rc;
	}
	l->reads = r;
	l->count++;
	return 0;
}

static int join_or_begin(struct engine *e, const struct pending_source *source, uint32_t peer,
			 uint64_t request, const struct wire_read *read)
{
	struct pending_found found = { 0 };
	bool joined;
	int rc = source->find(e, read, &found);

	if (rc)
		return rc;
	joined = join(e->later, source, peer, request, read, &found);
	rc = joined ? 0 : begin(e, source, peer, request, read, &found);
	if (joined || rc)
		source->put(e, &found);
	return rc;
}

bool pending_reads_start(struct engine *e, uint32_t peer, uint64_t request,
			 const struct wire_read *read)
{
	const struct pending_source *source;
	int rc;

	if (!e->later || read->size > WIRE_CHUNK)
		return false;
	source = source_of(e, read);
	if (!source)
		return false;
	rc = join_or_begin(e, source, peer, request, read);
	if (rc)
		serve_data(e, peer, request, rc, NULL, 0);
	else
		pending_reads_turn(e, monotonic_ms());
	return true;
}

void pending_reads_turn(struct engine *e, uint64_t now)
{
	struct pending_reads *l = e->later;

	if (!l)
		return;
	for (struct pending_read **at = &l->reads; *at;) {
		struct pending_read *r = *at;

		if (has_ended(l, r)) {
			answer(e, r, r->source->check(e, r));
			drop(l, at);
			continue;
		}
		if (!r->answered && now >= r->began_ms + e->timeout_ms) {
			answer(e, r, -ETIMEDOUT);
			abandon(r);
		}
		at = &r->next;
	}
}

void pending_reads_gone(struct engine *e, uint32_t peer)
{
	for (struct pending_read *r = e->later ? e->later->reads : NULL; r; r = r->next)
		if (r->peer == peer && !r->answered)
			abandon(r);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/watch/rank-query.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The longest wait for a rank that answers no PING either (peers_is_mute), and for one that
 * has not been heard since it left the same question without an answer: a cat of a text asks
 * three times.
 */
enum { ANSWER_MS = 700, AGAIN_MS = 100 };

enum rank_query_state {
	RANK_QUERY_IDLE,
	RANK_QUERY_WANTED, /* a caller waits for a newer answer */
	RANK_QUERY_BEGUN,  /* a fetch is under way, and the question is yet to be sent */
	RANK_QUERY_ASKED,  /* and the question is with the rank */
};

/* A question to a rank, with the rank's last answer. */
struct rank_query {
	SLIST_ENTRY(rank_query) next;
	uint32_t rank;
	struct wire_rank_query question;
	enum rank_query_state state;
	uint64_t began_ns; /* when the fetch under way began */
	uint64_t told_ns;  /* when the fetch began that brought text; 0: none has ended */
	char *text;        /* NULL: none; where status is not 0, the last log of a lost rank */
	int status;        /* 0: text is the answer; -errno: why there is none */
};

/* ---- engine thread, with the lock ---- */

static bool is_log(const struct rank_query *a)
{
	return !strcmp(a->question.what, "log");
}

static void end_query(struct engine *e, struct rank_query *a, char *text, int status)
{
	a->status = text ? 0 : status;
	/* the log of a lost rank is kept: its last lines may say why the rank ended */
	if (text || status != -EIO || !is_log(a)) {
		free(a->text);
		a->text = text;
	}
	a->state = RANK_QUERY_IDLE;
	a->told_ns = a->began_ns;
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

static bool on_told(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct rank_query *a = owner;
	bool told = !answer->status && answer->type == WIRE_RANK_TEXT;
	/* -ENOMEM counts where text_copy has failed: end_query() drops it for a text */
	int status = answer->status ? answer->status : told ? -ENOMEM : -EPROTO;

	a->state = RANK_QUERY_BEGUN;
	if (status != -EAGAIN)
		end_query(e, a, told ? text_copy(answer->tail, answer->tail_size) : NULL,
			  status);
	return false;
}

static void ask(struct engine *e, struct rank_query *a)
{
	int rc = peers_call(e, a->rank, WIRE_RANK_QUERY, &a->question, NULL, 0, on_told, a, 0);

	if (!rc)
		a->state = RANK_QUERY_ASKED;
	else if (rc != -EAGAIN)
		end_query(e, a, NULL, rc);
}

static unsigned patience_ms(const struct engine *e, const struct rank_query *a)
{
	return a->status == -ETIMEDOUT && peer_is_silent_since(&e->peers[a->rank], a->told_ns)
		       ? AGAIN_MS
		       : ANSWER_MS;
}

static void turn(struct engine *e, struct rank_query *a, uint64_t now)
{
	uint32_t rank = a->rank;

	if (a->state == RANK_QUERY_WANTED) {
		a->state = RANK_QUERY_BEGUN;
		a->began_ns = monotonic_ns();
	}
	if (a->state == RANK_QUERY_BEGUN)
		ask(e, a);
	if (a->state >= RANK_QUERY_BEGUN &&
	    (now >= a->began_ns / 1000000 + e->timeout_ms ||
	     peers_is_mute(e, rank, rpc_silence_ms(e, a, &rank), patience_ms(e, a)))) {
		rpc_forget(e, a);
		end_query(e, a, NULL, -ETIMEDOUT);
	}
}

void rank_query_turn(struct engine *e, uint64_t now)
{
	struct rank_query *a;

	assert(node_is_engine_thread(e));
	SLIST_FOREACH (a, &e->watch->rank_queries, next)
		turn(e, a, now);
}

void rank_query_free(struct engine *e)
{
	struct rank_query *a;

	while ((a = SLIST_FIRST(&e->watch->rank_queries))) {
		SLIST_REMOVE_HEAD(&e->watch->rank_queries, next);
		free(a->text);
		free(a);
	}
}

/* ---- any thread ---- */

static struct rank_query *find_or_add(struct engine *e, uint32_t rank, const char *what)
{
	struct rank_query *a;

	SLIST_FOREACH (a, &e->watch->rank_queries, next)
		if (a->rank == rank && !strcmp(a->question.what, what))
			return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->rank = rank;
	snprintf(a->question.what, sizeof(a->question.what), "%s", what);
	SLIST_INSERT_HEAD(&e->watch->rank_queries, a, next);
	return a;
}

static void want(struct rank_query *a)
{
	if (a->state == RANK_QUERY_IDLE)
		a->state = RANK_QUERY_WANTED;
}

/* Waits for an answer that was asked for no earlier than since (ns).
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 * -ETIMEDOUT: the rank does not answer.
 * Other errors: those of rank_query_text.
 */
static int await(struct engine *e, struct rank_query *a, uint64_t since)
{
	uint64_t deadline = since / 1000000 + e->timeout_ms;
	int rc = 0;

	while (a->told_ns < since && !rc && monotonic_ms() < deadline) {
		want(a);
		rc = node_wait_answer(e, deadline);
	}
	if (rc == -EAGAIN)
		return rc;
	if (a->told_ns < since)
		return -ETIMEDOUT;
	return a->status;
}

/* Copies the last answer.  To the log of a lost rank it adds a line that says so.
 * -ENOMEM.
 */
static int copy_text(const struct rank_query *a, int status, char **text)
{
	char time[LOG_TIME_MAX];

	log_time(time);
	if (!status)
		*text = strdup(a->text);
	else if (asprintf(text,
			  "%sfragfs: info: %s: rank %u is lost: these are the lines that were "
			  "read last\n",
			  a->text, time, a->rank) < 0)
		*text = NULL;
	return *text ? 0 : -ENOMEM;
}

uint64_t rank_query_ask_all(struct engine *e, const char *what)
{
	uint64_t since = engine_asked_since();

	LOCKED(&e->lock);
	for (uint32_t rank = 0; rank < e->world; rank++) {
		struct rank_query *a = find_or_add(e, rank, what);

		if (a && a->told_ns < since)
			want(a);
	}
	node_wake(e);
	return since;
}

char *rank_query_text_since(struct engine *e, uint32_t rank, const char *what, uint64_t since)
{
	struct rank_query *a;
	char *text = NULL;
	int rc = -ENOMEM;

	if (rank >= e->world)
		return NULL;
	pthread_mutex_lock(&e->lock);
	a = find_or_add(e, rank, what);
	if (a)
		rc = await(e, a, since);
	if (!rc || (rc == -EIO && a->text))
		rc = copy_text(a, rc, &text);
	pthread_mutex_unlock(&e->lock);
	errno = -rc;
	return text;
}

char *rank_query_text(struct engine *e, uint32_t rank, const char *what)
{
	return rank_query_text_since(e, rank, what, engine_asked_since());
}

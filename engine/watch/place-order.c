/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/watch/place-order.h"
#include "engine/watch/rank-query.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ASK_MS = 100 }; /* between two messages of an order to a rank */

/* A rank that an order goes to. */
struct ordered_rank {
	uint64_t next_ms; /* the rank gets no message before */
	bool asked, answered;
};

/* An order to all ranks, known by the time at which its caller first came: a caller in a hurry
 * comes again with the same time.
 */
struct place_order {
	LIST_ENTRY(place_order) link;
	uint64_t since;
	uint64_t until_ms; /* freed then: its caller has not come again */
	struct wire_place body;
	unsigned open; /* ranks that have not answered */
	bool taken;    /* some rank has states that are to move */
	int refused;   /* -errno of the first rank that refused the order; 0: none */
	int failed;    /* -EIO, -ETIMEDOUT: some rank is lost, or did not answer; 0: none */
	struct ordered_rank ranks[];
};

/* ---- engine thread, with the lock ---- */

static void note(struct engine *e, struct place_order *o, uint32_t rank,
		 const struct answer *answer)
{
	struct wire_refuse refuse = { .why = "" };

	if (!answer->status) {
		o->taken = true;
	} else if (answer->status == -EIO || answer->status == -ETIMEDOUT) {
		if (!o->failed)
			snprintf(refuse.why, sizeof(refuse.why), "%s",
				 strerror(-answer->status));
		o->failed = answer->status;
	} else if (answer->status != -ENOENT && !o->refused) {
		o->refused = answer->status;
		if (answer->type == WIRE_REFUSE && answer->body)
			memcpy(&refuse, answer->body, sizeof(refuse));
		refuse.why[sizeof(refuse.why) - 1] = '\0';
	}
	if (*refuse.why)
		log_warn("place params/%s/%s: rank %u: %s", o->body.pattern, o->body.key, rank,
			 refuse.why);
	o->ranks[rank].answered = true;
	if (!--o->open) {
		atomic_fetch_add(&e->event_log->epoch, 1);
		pthread_cond_broadcast(&e->changed);
	}
}

static bool on_answer(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct place_order *o = owner;

	if (answer->status == -EAGAIN) /* the order got lost: tell() sends it again */
		o->ranks[rank].asked = false;
	else
		note(e, o, (uint32_t)rank, answer);
	return false;
}

static void tell(struct engine *e, struct place_order *o, uint32_t rank, uint64_t now)
{
	struct ordered_rank *told = &o->ranks[rank];
	int rc;

	if (told->asked || told->answered || now < told->next_ms)
		return;
	told->next_ms = now + ASK_MS;
	rc = peers_call(e, rank, WIRE_PLACE, &o->body, NULL, 0, on_answer, o, rank);
	told->asked = !rc;
	if (rc && rc != -EAGAIN) /* -EAGAIN: no room for a message to the rank now */
		note(e, o, rank, &(struct answer){ .status = rc });
}

static void forget(struct engine *e, struct place_order *o)
{
	rpc_forget(e, o);
	LIST_REMOVE(o, link);
	free(o);
}

void place_order_turn(struct engine *e, uint64_t now)
{
	struct place_order *o, *next;

	assert(node_is_engine_thread(e));
	LIST_FOREACH_SAFE (o, &e->watch->place_orders, link, next) {
		for (uint32_t rank = 0; rank < e->world; rank++)
			tell(e, o, rank, now);
		if (now >= o->until_ms)
			forget(e, o);
	}
}

void place_order_free(struct engine *e)
{
	while (!LIST_EMPTY(&e->watch->place_orders))
		forget(e, LIST_FIRST(&e->watch->place_orders));
}

/* ---- any thread ---- */

static int parse(struct wire_place *body, const char *states, const char *tier)
{
	static const char folder[] = "params/";
	const char *slash;
	size_t length;

	*body = (struct wire_place){ .tier = 0 };
	while (body->tier < STATE_TIERS && strcmp(tier, states_tier_names[body->tier]) != 0)
		body->tier++;
	if (body->tier == STATE_TIERS || strncmp(states, folder, strlen(folder)) != 0)
		return -EINVAL;
	states += strlen(folder);
	slash = strrchr(states, '/');
	length = slash ? (size_t)(slash - states) : 0;
	if (!length || !slash[1])
		return -EINVAL;
	if (length >= sizeof(body->pattern) || strlen(slash + 1) >= sizeof(body->key))
		return -ENAMETOOLONG;
	memcpy(body->pattern, states, length);
	snprintf(body->key, sizeof(body->key), "%s", slash + 1);
	return 0;
}

static struct place_order *find_order(struct engine *e, uint64_t since)
{
	struct place_order *o;

	LIST_FOREACH (o, &e->watch->place_orders, link)
		if (o->since == since)
			break;
	return o;
}

static struct place_order *add_order(struct engine *e, uint64_t since,
				     const struct wire_place *body)
{
	struct place_order *o = calloc(1, sizeof(*o) + e->world * sizeof(*o->ranks));

	if (!o)
		return NULL;
	o->since = since;
	o->until_ms = monotonic_ms() + 2 * (uint64_t)e->timeout_ms;
	o->body = *body;
	o->open = e->world;
	LIST_INSERT_HEAD(&e->watch->place_orders, o, link);
	return o;
}

static int result(const struct place_order *o)
{
	if (o->refused)
		return o->refused;
	if (o->taken)
		return 0;
	return o->failed ? o->failed : -ENOENT;
}

int place_order_give(struct engine *e, const char *states, const char *tier, bool only_ask)
{
	uint64_t since = engine_asked_since();
	uint64_t deadline = since / 1000000 + e->timeout_ms;
	struct place_order *o;
	struct wire_place body;
	int rc = parse(&body, states, tier);

	if (rc)
		return rc;
	body.asked = only_ask;
	LOCKED(&e->lock);
	if (!e->write.allowed)
		return -EROFS;
	o = find_order(e, since);
	if (!o)
		o = add_order(e, since, &body);
	while (o && o->open && monotonic_ms() < deadline) {
		if (node_wait_answer(e, deadline) == -EAGAIN)
			return -EAGAIN;
		o = find_order(e, since);
	}
	if (!o)
		return -ENOMEM;
	/* Ranks that have not answered by the deadline are silent.  A caller in a hurry, too,
	 * comes here, by its first call after the deadline.
	 */
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (!o->ranks[rank].answered)
			note(e, o, rank, &(struct answer){ .status = -ETIMEDOUT });
	rc = result(o);
	forget(e, o);
	return rc;
}

/* Waits until this engine's table of the rank's states has that epoch or a later one, so that a
 * caller who reads that all states have moved finds them in their new tier.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 * -ETIMEDOUT: the table is still older, timeout_ms after since (ns).
 */
static int await_table(struct engine *e, uint32_t rank, uint64_t epoch, uint64_t since)
{
	uint64_t deadline = since / 1000000 + e->timeout_ms;
	struct peer *p = &e->peers[rank];
	int rc = 0;

	LOCKED(&e->lock);
	while (p->states && p->states->epoch < epoch && !rc) {
		peer_fetch_states(p);
		rc = monotonic_ms() < deadline ? node_wait_answer(e, deadline) : -ETIMEDOUT;
	}
	return rc;
}

/* Writes the rank's row of the table, or a row that says why it is not known.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 * -ENOMEM.
 */
static int put_rank(struct engine *e, uint32_t rank, uint64_t since, FILE *out)
{
	CLEANUP(free) char *line = rank_query_text_since(e, rank, "place", since);
	unsigned long long epoch, waiting;
	int head, rc = line ? 0 : -errno;

	if (!rc && sscanf(line, "%llu\t%n%llu", &epoch, &head, &waiting) != 2)
		rc = -EPROTO;
	if (!rc && !waiting)
		rc = await_table(e, rank, epoch, since);
	if (rc == -EAGAIN || rc == -ENOMEM)
		return rc;
	if (rc)
		fprintf(out, "%u\t-\t-\t-\t-\t-\t%s\n", rank, strerror(-rc));
	else
		fprintf(out, "%u\t%.*s\n", rank, (int)strcspn(line + head, "\n"), line + head);
	return 0;
}

int place_order_put(struct engine *e, FILE *out)
{
	uint64_t since = rank_query_ask_all(e, "place");
	int rc = 0;

	fputs("rank\twaiting\twaiting_bytes\tmoved\tmoved_bytes\tfailed\terror\n", out);
	/* -EAGAIN of a rank does not end the loop: all ranks' tables are to be asked for */
	for (uint32_t rank = 0; rank < e->world && rc != -ENOMEM; rank++) {
		int rank_rc = put_rank(e, rank, since, out);

		rc = rank_rc ? rank_rc : rc;
	}
	return rc;
}

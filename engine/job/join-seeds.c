/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/join.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The addresses at which the job may be: which is tried, for how long, and what becomes of
 * those that hang up.
 */

enum {
	REFUSED_RETRY_MS = 1000,
	SEED_MS = 500, /* in the first round of several; twice that in the next */
	LOOK_MS = 500,
};

void join_unlink_seed(struct engine *e)
{
	struct join *j = e->join;

	if (j->linked)
		e->message_ops->disconnect(e->messages, j->link);
	rpc_forget(e, j);
	j->linked = j->waiting = j->answered = false;
}

/* Seed number n of the list, or of none left: the first. */
static void seed_address(const struct join *j, char *address, size_t size)
{
	const char *at = j->seeds, *comma;
	unsigned n = 0;

	for (const char *p = at; n < j->seed && (comma = strchr(p, ',')); n++)
		at = p = comma + 1;
	comma = strchr(at, ',');
	snprintf(address, size, "%.*s", (int)(comma ? comma - at : (long)strlen(at)), at);
}

static unsigned seed_count(const struct join *j)
{
	unsigned n = 1;

	for (const char *p = j->seeds; *p; p++)
		n += *p == ',';
	return n;
}

/* All seeds have been tried, and some have hung up on us. */
static void all_tried(struct engine *e)
{
	struct join *j = e->join;

	if (!e->is_rank && j->refusals >= seed_count(j)) {
		e->failure = -EACCES; /* its opener says why */
		pthread_cond_broadcast(&e->changed);
	}
	if (e->is_rank && !j->said_refused)
		log_warn("%s; trying on", e->why);
	j->said_refused = true;
	j->refusals = 0;
	j->retry_ms = monotonic_ms() + REFUSED_RETRY_MS;
}

void join_next_seed(struct engine *e)
{
	struct join *j = e->join;

	join_unlink_seed(e);
	j->seed = (j->seed + 1) % seed_count(j);
	j->retry_ms = monotonic_ms() + JOIN_RETRY_MS;
	j->rounds += !j->seed;
	if (!j->seed && j->refusals)
		all_tried(e);
}

int join_link_seed(struct engine *e)
{
	char address[256];
	int rc;

	if (e->join->linked)
		return 0;
	seed_address(e->join, address, sizeof(address));
	rc = e->message_ops->connect(e->messages, address, &e->join->link);
	e->join->linked = !rc;
	if (!rc)
		snprintf(e->address, sizeof(e->address), "%.159s",
			 strncmp(address, "tcp://", 6) ? address : address + 6);
	return rc;
}

/* A name may mean another address by now. */
static void forget_place(struct join *j)
{
	j->seeds[0] = j->master_ip[0] = '\0';
}

/* The key in the file of a job that has ended meanwhile, perhaps: another may be there by now.
 */
static void find_anew(struct engine *e)
{
	struct join *j = e->join;

	join_unlink_seed(e);
	e->message_ops->close(e->messages);
	e->messages = NULL;
	e->has_key = false;
	forget_place(j);
	j->phase = JOIN_FIND;
	j->retry_ms = monotonic_ms() + REFUSED_RETRY_MS;
}

static const char *other_way(const struct engine *e)
{
	if (e->is_rank)
		return e->has_key ? "plain (FRAG_PLAIN=1)" : "with one (FRAG_KEY_FILE)";
	return e->has_key ? "plain (-o plain; fragctl: FRAG_PLAIN=1)"
			  : "with one (-o key=FILE; fragctl: FRAG_KEY_FILE)";
}

void join_take_key(struct engine *e, struct source_key *key)
{
	memcpy(e->key, key->bytes, sizeof(e->key));
	e->has_key = key->is_there;
	e->key_reads_only = key->reads_only;
	explicit_bzero(key, sizeof(*key));
}

int join_keep_options(struct engine *e, const struct engine_options *o)
{
	struct engine_options *kept = &e->join->options;

	*kept = (struct engine_options){ .source = strdup(o->source),
					 .key_file = o->key_file ? strdup(o->key_file) : NULL,
					 .plain = o->plain,
					 .writable = o->writable };
	return kept->source && !kept->key_file == !o->key_file ? 0 : -ENOMEM;
}

/* With another key: all ranks are lost. */
static int open_anew(struct engine *e)
{
	struct transport *before = e->messages;
	int rc;

	join_unlink_seed(e);
	peers_unlink(e);
	rc = node_open_messages(e, NULL);
	if (rc)
		e->messages = before;
	else
		e->message_ops->close(before);
	return rc;
}

static bool is_known(const struct engine *e, const struct source_key *key)
{
	return key->is_there == e->has_key && !memcmp(key->bytes, e->key, sizeof(key->bytes));
}

/* A job that ended in order has taken its key with it, the next one has another.  False: there
 * is none, or it cannot be used.
 */
static bool take_new_key(struct engine *e)
{
	const struct engine_options *o = &e->join->options;
	struct source_key key,
		before = { .is_there = e->has_key, .reads_only = e->key_reads_only };
	char why[256];
	bool taken = false;

	memcpy(before.bytes, e->key, sizeof(e->key));
	if (o->source && !source_key(o, &key, why, sizeof(why)) && !is_known(e, &key)) {
		join_take_key(e, &key);
		taken = !open_anew(e);
		if (!taken)
			join_take_key(e, &before);
	}
	explicit_bzero(&key, sizeof(key));
	explicit_bzero(&before, sizeof(before));
	return taken;
}

static void look_elsewhere(struct engine *e)
{
	if (!take_new_key(e))
		peers_say_of_lost(e, e->why);
	e->join->phase = JOIN_DONE; /* it looks again */
}

/* The other side does not take our key. */
void join_shut_out(struct engine *e)
{
	snprintf(e->why, sizeof(e->why),
		 "%.80s does not take our key: it is another job's, or the job runs %s",
		 e->address, other_way(e));
	if (e->is_rank && !e->launch.key_file[0] && !e->launch.plain) {
		find_anew(e);
		return;
	}
	e->join->refusals += !e->ready;
	join_next_seed(e);
	if (e->ready && !e->is_rank)
		look_elsewhere(e);
}

/* A rank whose rank 0 is lost. */
void join_look_for_zero(struct engine *e, uint64_t now)
{
	struct join *j = e->join;

	j->retry_ms = now + LOOK_MS;
	join_unlink_seed(e);
	if (e->message_ops == &transport_zmq)
		forget_place(j);
	if (!join_find(e))
		return;
	j->seed %= seed_count(j);
	if (j->own.size || !catalog_encode(e->own, &j->own))
		j->phase = JOIN_ENTER;
}

static bool is_seed(const struct join *j, const char *address)
{
	size_t size = strlen(address);

	for (const char *at = j->seeds; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, address, size) && (!at[size] || at[size] == ','))
			return true;
	}
	return false;
}

/* It was perhaps told of another rank, whose next process is elsewhere. */
static void add_rank_zero(struct engine *e)
{
	struct join *j = e->join;
	const char *address = e->peers[0].entry.address;
	size_t used = strlen(j->seeds);

	if (*address && !is_seed(j, address))
		snprintf(j->seeds + used, sizeof(j->seeds) - used, ",%s", address);
}

void join_look_for_job(struct engine *e, uint64_t now)
{
	struct join *j = e->join;

	j->retry_ms = now + LOOK_MS;
	join_unlink_seed(e);
	add_rank_zero(e);
	j->refresh = false; /* it was of the last job's */
	j->phase = JOIN_HELLO;
}

/* One of several seeds that has not answered yet is soon left for the next. */
static bool is_long(const struct engine *e, uint64_t now)
{
	const struct join *j = e->join;
	uint64_t patience = (uint64_t)SEED_MS << u64_min(j->rounds, 16);

	return j->waiting && !j->answered && seed_count(j) > 1 &&
	       now >= j->asked_ms + u64_min(patience, e->timeout_ms);
}

/* A seed that hangs up on us is not waited for. */
void join_look_at_seed(struct engine *e, uint64_t now)
{
	struct join *j = e->join;

	if (!j->linked || (e->ready && (e->is_rank || j->phase == JOIN_DONE)))
		return;
	if (e->message_ops->refused && e->message_ops->refused(e->messages, j->link))
		join_shut_out(e);
	else if (is_long(e, now))
		join_next_seed(e);
}

void join_gone(struct engine *e, uint32_t link)
{
	struct join *j = e->join;

	if (!j || !j->linked || j->link != link || !j->waiting || j->phase == JOIN_DONE ||
	    seed_count(j) == 1)
		return;
	join_next_seed(e);
	if (e->ready)
		j->phase = JOIN_DONE; /* it looks again */
}

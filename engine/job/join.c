/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/barrier-state.h"
#include "engine/job/join.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { AGAIN_MS = 2000, HELLOS_BEFORE_JOIN = 40 };

static struct join *join_new(struct engine *e)
{
	e->join = calloc(1, sizeof(*e->join));
	if (e->join)
		join_count_wait(e, monotonic_ms());
	return e->join;
}

/* Rank 0 has taken it in before it could know: it is as one that has ended. */
static void leave(struct engine *e)
{
	const struct join *j = e->join;

	if (e->is_rank && j->linked && j->phase > JOIN_ENTER)
		rpc_call(e, WIRE_OBSERVER, j->link, WIRE_LEAVE, NULL, NULL, 0, NULL, NULL, 0);
}

void join_fail(struct engine *e, int status, const char *fmt, ...)
{
	char why[sizeof(e->why)]; /* fmt's text may be in e->why */
	va_list ap;

	e->failure = status;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	memcpy(e->why, why, sizeof(why));
	if (e->is_rank) /* an observer's opener says it */
		log_error("%s", e->why);
	leave(e);
	pthread_cond_broadcast(&e->changed);
}

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer);

static void ask(struct engine *e, enum wire_type type, const void *body, const void *tail,
		size_t size)
{
	struct join *j = e->join;
	int rc = join_link_seed(e);

	if (!rc)
		rc = rpc_call(e, WIRE_OBSERVER, j->link, type, body, tail, size, on_answer, j,
			      j->phase);
	j->waiting = !rc;
	j->asked_ms = monotonic_ms();
	if (rc)
		j->retry_ms = monotonic_ms() + JOIN_RETRY_MS;
	if (rc == -ENOTCONN)
		join_shut_out(e);
	else if (!j->linked) /* no address at all */
		join_next_seed(e);
}

/* ---- a rank enters ---- */

void join_fill_entry(struct engine *e, struct wire_entry *entry)
{
	*entry = (struct wire_entry){
		.rank = e->rank,
		.uid = getuid(),
		.pid = getpid(),
		.control = (uintptr_t)e->registry.control,
		.cookie = { e->registry.control->cookie[0], e->registry.control->cookie[1] },
		.present = 1,
	};
	snprintf(entry->host, sizeof(entry->host), "%s", e->launch.host);
	gethostname(entry->hostname, sizeof(entry->hostname) - 1);
	snprintf(entry->address, sizeof(entry->address), "%s",
		 e->message_ops->address(e->messages));
}

static void turn_enter(struct engine *e)
{
	struct wire_join join = { .world = e->world,
				  .barrier = e->barrier->before + e->barrier->passed };

	if (!e->join->described)
		return;
	join_fill_entry(e, &join.entry);
	join.catalog_hash = e->own->hash;
	join.catalog_bytes = e->join->own.size;
	wire_control_from_page(&join.control, e->registry.control);
	ask(e, WIRE_JOIN, &join, NULL, 0);
}

static void turn_upload(struct engine *e)
{
	struct join *j = e->join;
	struct wire_catalog part = { .hash = e->own->hash,
				     .total = j->own.size,
				     .offset = j->sent };

	part.size = u64_min(WIRE_CHUNK, part.total - part.offset);
	ask(e, WIRE_CATALOG_PUT, &part, j->own.data + j->sent, part.size);
}

/* ---- everybody learns the job ---- */

/* Of a job that is known already, as far as it is complete. */
static bool is_as_it_was(const struct engine *e, const struct wire_welcome *w)
{
	return w->world == e->world && (e->is_rank || !strcmp(w->job, e->job)) &&
	       (!w->catalog_hash || w->catalog_hash == e->catalog->hash);
}

static void say_other(struct engine *e, const struct wire_welcome *w)
{
	char why[sizeof(e->peers->why)];

	if (e->is_rank)
		return;
	if (strcmp(w->job, e->job))
		snprintf(why, sizeof(why), "job %.30s is at its address now: mount that",
			 w->job);
	else if (w->world != e->world)
		snprintf(why, sizeof(why),
			 "the job was started again, with %u ranks, not %u: mount it anew",
			 w->world, e->world);
	else
		snprintf(why, sizeof(why),
			 "the job was started again, with other parameters or groups: mount it "
			 "anew");
	peers_say_of_lost(e, why);
}

static int take_welcome(struct engine *e, const struct answer *answer)
{
	struct wire_welcome w;

	memcpy(&w, answer->body, sizeof(w));
	if (!wire_text_ok(w.job, sizeof(w.job)) || !w.world || w.world > FRAG_WORLD_MAX ||
	    w.catalog_bytes > WIRE_CATALOG_MAX || (e->is_rank && w.world != e->world))
		return -EPROTO;
	if (e->ready && !is_as_it_was(e, &w)) {
		say_other(e, &w);
		return -EPROTO;
	}
	e->join->welcome = w;
	join_take_missing(e, answer->tail, answer->tail_size);
	e->incarnation = w.incarnation;
	if (!e->is_rank) {
		memcpy(e->job, w.job, sizeof(w.job));
		e->job_hash = wire_hash(e->job, strlen(e->job));
	}
	if (!e->peers) {
		e->peers = calloc(w.world, sizeof(*e->peers));
		e->world = e->peers ? w.world : 0;
	}
	return e->world == w.world ? 0 : -ENOMEM;
}

static void after_welcome(struct engine *e)
{
	struct join *j = e->join;

	if (!j->welcome.catalog_hash) {
		join_note_missing(e);
		if (!e->is_rank && e->ready)
			peers_say_of_lost(e, e->why);
		j->retry_ms = monotonic_ms() + JOIN_RETRY_MS;
		if (e->is_rank && ++j->hellos % HELLOS_BEFORE_JOIN == 0)
			j->phase = JOIN_ENTER; /* in case the catalog's sender died half way */
		return;
	}
	j->rows = 0;
	j->phase = JOIN_TABLE;
}

static bool entry_ok(const struct wire_entry *entry, uint32_t world)
{
	return entry->rank < world && wire_text_ok(entry->host, sizeof(entry->host)) &&
	       wire_text_ok(entry->hostname, sizeof(entry->hostname)) &&
	       wire_text_ok(entry->address, sizeof(entry->address));
}

static int take_table(struct engine *e, const struct answer *answer)
{
	struct join *j = e->join;
	struct wire_table t;
	struct wire_entry entry;

	memcpy(&t, answer->body, sizeof(t));
	if (t.total != e->world || t.first != j->rows || !t.count ||
	    t.count > WIRE_TABLE_ROWS || t.count > t.total - t.first ||
	    answer->tail_size != t.count * sizeof(entry))
		return -EPROTO;
	for (uint32_t i = 0; i < t.count; i++) {
		memcpy(&entry, (const uint8_t *)answer->tail + i * sizeof(entry),
		       sizeof(entry));
		if (!entry_ok(&entry, e->world) || entry.rank != t.first + i)
			return -EPROTO;
		peers_set_entry(e, &entry);
	}
	j->rows += t.count;
	if (!t.first) /* who came while the rest was fetched is told of again */
		j->membership = t.membership;
	if (j->rows == e->world) /* not before: who hears of it from us asks us for the table */
		e->membership = j->membership;
	return 0;
}

/* Takes the catalog. */
static int complete(struct engine *e, struct catalog *catalog)
{
	int rc = join_complete(e, catalog);

	if (rc)
		catalog_free(catalog);
	return rc;
}

/* A rank whose own description is the whole job's need not fetch it. */
static int take_own_catalog(struct engine *e)
{
	struct wire_writer w = { 0 };
	struct catalog *copy;
	int rc = catalog_encode(e->own, &w);

	if (!rc)
		rc = catalog_decode(&copy, w.data, w.size, e->world, e->why, sizeof(e->why));
	free(w.data);
	return rc ? rc : complete(e, copy);
}

static int after_table(struct engine *e)
{
	struct join *j = e->join;

	if (j->rows < e->world)
		return 0;
	if (e->ready) {
		j->phase = JOIN_DONE;
		return 0;
	}
	j->catalog.size = 0;
	j->phase = JOIN_CATALOG;
	return e->is_rank && e->own->hash == j->welcome.catalog_hash ? take_own_catalog(e) : 0;
}

static int take_catalog(struct engine *e, const struct answer *answer)
{
	struct join *j = e->join;
	struct wire_catalog part;
	struct catalog *catalog;
	int rc;

	memcpy(&part, answer->body, sizeof(part));
	if (part.offset != j->catalog.size || part.size != answer->tail_size || !part.size ||
	    part.total != j->welcome.catalog_bytes || part.size > part.total - part.offset)
		return -EPROTO;
	wire_put_bytes(&j->catalog, answer->tail, answer->tail_size);
	if (j->catalog.bad)
		return -ENOMEM;
	if (j->catalog.size < part.total)
		return 0;
	rc = catalog_decode(&catalog, j->catalog.data, j->catalog.size, e->world, e->why,
			    sizeof(e->why));
	if (!rc && catalog->hash != j->welcome.catalog_hash) {
		catalog_free(catalog);
		return -EPROTO;
	}
	return rc ? rc : complete(e, catalog);
}

static int take_joined(struct engine *e, const struct answer *answer)
{
	struct wire_joined joined;

	memcpy(&joined, answer->body, sizeof(joined));
	e->incarnation = joined.incarnation;
	if (joined.complete && !e->ready)
		join_catch_up(e, &joined.control, joined.barrier);
	e->join->sent = 0;
	e->join->phase = joined.need_catalog ? JOIN_UPLOAD : JOIN_HELLO;
	return 0;
}

static int take_upload_ack(struct engine *e)
{
	struct join *j = e->join;

	j->sent += u64_min(WIRE_CHUNK, j->own.size - j->sent);
	if (j->sent == j->own.size)
		j->phase = JOIN_HELLO;
	return 0;
}

static const struct {
	enum wire_type want;
	int (*take)(struct engine *e, const struct answer *answer);
} takes[] = {
	[JOIN_ENTER] = { WIRE_JOINED, take_joined },
	[JOIN_HELLO] = { WIRE_WELCOME, take_welcome },
	[JOIN_TABLE] = { WIRE_TABLE, take_table },
	[JOIN_CATALOG] = { WIRE_CATALOG, take_catalog },
};

static void after_take(struct engine *e, enum join_phase phase)
{
	int rc = 0;

	if (phase == JOIN_HELLO)
		after_welcome(e);
	else if (phase == JOIN_TABLE)
		rc = after_table(e);
	if (rc)
		join_fail(e, rc, "cannot take the job's catalog: %s", strerror(-rc));
}

static void refused_to_enter(struct engine *e, const struct answer *answer)
{
	struct wire_refuse refuse = { .status = answer->status };

	if (answer->type == WIRE_REFUSE && answer->body)
		memcpy(&refuse, answer->body, sizeof(refuse));
	refuse.why[sizeof(refuse.why) - 1] = '\0';
	if (answer->status == -EPROTO || answer->status == -EEXIST || answer->status == -EINVAL)
		join_fail(e, answer->status, "%s: %s", e->is_rank ? "rank 0" : e->address,
			  refuse.why[0] ? refuse.why : strerror(-answer->status));
	else if (refuse.why[0])
		snprintf(e->why, sizeof(e->why), "%s", refuse.why);
	if (answer->status == -EBUSY && !e->join->said_refused) {
		log_warn("rank 0 %s; trying on, until that is silent", refuse.why);
		e->join->said_refused = true;
	}
	if (!e->failure && e->join->phase != JOIN_DONE) {
		join_next_seed(e);
		if (e->join->phase > JOIN_HELLO || !e->is_rank)
			e->join->phase = JOIN_HELLO;
		else
			e->join->phase = JOIN_ENTER;
	}
}

/* The job goes on without rank 0, which is looked for again. */
static void give_up(struct engine *e)
{
	join_next_seed(e);
	e->join->phase = JOIN_DONE;
}

static void refused(struct engine *e, const struct answer *answer)
{
	if (e->ready)
		give_up(e);
	else
		refused_to_enter(e, answer);
}

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct join *j = e->join;
	enum join_phase phase = j->phase;
	int rc;

	if (phase != tag || phase == JOIN_DONE || phase == JOIN_FIND)
		return false; /* of a HELLO that was asked twice */
	j->waiting = false;
	j->answered = answer->status != -ETIMEDOUT;
	if (answer->status || (phase != JOIN_UPLOAD && answer->type != takes[phase].want)) {
		refused(e, answer);
		return false;
	}
	rc = phase == JOIN_UPLOAD ? take_upload_ack(e) : takes[phase].take(e, answer);
	if (rc && e->ready)
		give_up(e);
	else if (rc)
		join_fail(e, rc, "%s: %s", e->address,
			  rc == -ENOMEM   ? strerror(ENOMEM)
			  : rc == -EINVAL ? e->why
					  : "its answer is none of this protocol");
	else
		after_take(e, phase);
	return false;
}

void join_other_version(struct engine *e, uint32_t peer, unsigned version)
{
	struct join *j = e->join;

	if (e->failure || !j->linked || j->link != peer)
		return;
	if (!e->ready) {
		join_fail(e, -EPROTO, "%s speaks protocol version %u, not %d", e->address,
			  version, WIRE_VERSION);
	} else if (!e->is_rank) {
		snprintf(e->why, sizeof(e->why),
			 "the job speaks protocol version %u now, not %d", version,
			 WIRE_VERSION);
		peers_say_of_lost(e, e->why);
	}
}

static void forget_bytes(struct join *j)
{
	free(j->catalog.data);
	free(j->own.data);
	j->catalog = j->own = (struct wire_writer){ 0 };
}

int join_complete(struct engine *e, struct catalog *catalog)
{
	uint32_t nparams = catalog->nparams, ngroups = catalog->ngroups;
	int rc;

	if (e->is_rank) {
		e->map_params = calloc(e->own->nparams + 1, sizeof(*e->map_params));
		e->map_groups = calloc(e->own->ngroups + 1, sizeof(*e->map_groups));
		if (!e->map_params || !e->map_groups)
			return -ENOMEM;
		/* merging what is there already only finds the numbers */
		rc = catalog_merge(catalog, e->own, e->rank, e->map_params, e->map_groups,
				   e->why, sizeof(e->why));
		if (rc)
			return rc;
		if (catalog->nparams != nparams || catalog->ngroups != ngroups) {
			snprintf(e->why, sizeof(e->why),
				 "rank %u describes more than the job has: parameters %u, "
				 "groups %u",
				 e->rank, catalog->nparams - nparams,
				 catalog->ngroups - ngroups);
			return -EINVAL;
		}
	}
	rc = e->is_rank ? catalog_encode(catalog, &e->catalog_bytes) : 0;
	if (rc)
		return rc;
	forget_bytes(e->join);
	e->catalog = catalog;
	e->ready = true;
	e->join->phase = JOIN_DONE;
	e->why[0] = '\0';
	atomic_fetch_add(&e->epoch, 1);
	pthread_cond_broadcast(&e->changed);
	log_info("job %s: %u ranks, %u parameters, %u groups", e->job, e->world,
		 catalog->nparams, catalog->ngroups);
	return 0;
}

void join_newer_membership(struct engine *e, uint32_t peer, uint64_t membership)
{
	if (!e->ready || e->rank == 0 || membership <= e->membership || peer == NODE_LOCAL)
		return;
	e->join->refresh = true;
	e->join->refresh_from = peer;
}

static bool on_refresh(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct join *j = e->join;
	bool taken = !answer->status && answer->type == WIRE_TABLE && !take_table(e, answer);

	j->waiting = false;
	j->refresh = taken && j->rows < e->world;
	if (!taken) { /* the next answer that tells of a newer one begins anew */
		j->rows = 0;
		j->retry_ms = monotonic_ms() + AGAIN_MS;
	}
	return false;
}

static void turn_refresh(struct engine *e)
{
	struct join *j = e->join;
	struct wire_page page;

	if (j->rows >= e->world)
		j->rows = 0;
	page.first = j->rows;
	j->waiting = !rpc_call(e, WIRE_OBSERVER, j->refresh_from, WIRE_TABLE_GET, &page, NULL,
			       0, on_refresh, j, 0);
	if (!j->waiting)
		j->refresh = false;
}

static void turn_find(struct engine *e, uint64_t now)
{
	e->join->retry_ms = now + JOIN_RETRY_MS;
	if (join_find(e))
		e->join->phase = JOIN_ENTER;
}

static void turn_done(struct engine *e, uint64_t now)
{
	/* first: one that has come back tells of a newer table, but not the table before all
	 * have joined it
	 */
	if (e->is_rank && e->rank && !peer_is_live(&e->peers[0]))
		join_look_for_zero(e, now);
	else if (!e->is_rank && peers_first_live(e) == WIRE_OBSERVER)
		join_look_for_job(e, now);
	else if (e->join->refresh)
		turn_refresh(e);
}

void join_turn(struct engine *e, uint64_t now)
{
	struct join *j = e->join;
	struct wire_page page = { 0 };

	if (!j || e->failure)
		return;
	join_fail_when_told(e, now);
	join_look_at_seed(e, now);
	join_say_when_long(e, now);
	if (j->waiting || now < j->retry_ms)
		return;
	switch (j->phase) {
	case JOIN_FIND:
		turn_find(e, now);
		break;
	case JOIN_ENTER:
		turn_enter(e);
		break;
	case JOIN_UPLOAD:
		turn_upload(e);
		break;
	case JOIN_HELLO:
		ask(e, WIRE_HELLO, NULL, NULL, 0);
		break;
	case JOIN_TABLE:
		page.first = j->rows;
		ask(e, WIRE_TABLE_GET, &page, NULL, 0);
		break;
	case JOIN_CATALOG:
		page.first = j->catalog.size;
		ask(e, WIRE_CATALOG_GET, &page, NULL, 0);
		break;
	case JOIN_DONE:
		turn_done(e, now);
		break;
	}
}

int join_start_rank(struct engine *e)
{
	struct join *j = join_new(e);

	e->peers = calloc(e->world, sizeof(*e->peers));
	if (!j || !e->peers)
		return -ENOMEM;
	if (e->rank)
		return 0;
	j->phase = JOIN_DONE;
	j->contribution_of = calloc(e->world, sizeof(*j->contribution_of));
	return j->contribution_of ? 0 : -ENOMEM;
}

int join_start_observer(struct engine *e, const char *seeds)
{
	struct join *j = join_new(e);

	if (!j)
		return -ENOMEM;
	j->phase = JOIN_HELLO;
	if (strlen(seeds) >= sizeof(j->seeds))
		return -EINVAL;
	strcpy(j->seeds, seeds);
	return 0;
}

void join_free(struct engine *e)
{
	struct join *j = e->join;

	if (!j)
		return;
	for (uint32_t i = 0; i < j->ncontributions; i++) {
		free(j->contributions[i].bytes.data);
		catalog_free(j->contributions[i].catalog);
	}
	free(j->contributions);
	free(j->contribution_of);
	forget_bytes(j);
	resolver_forget(j->resolver);
	free((char *)(uintptr_t)j->options.source);
	free((char *)(uintptr_t)j->options.key_file);
	free(j);
	e->join = NULL;
}

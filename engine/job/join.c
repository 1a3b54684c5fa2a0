/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/join-internal.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Asking, of all three roles, and the questions that ranks and observers ask alike: HELLO, the
 * table of ranks, the catalog.
 */

enum { AGAIN_MS = 2000, HELLOS_BEFORE_JOIN = 40 };

void join_fail(struct engine *e, int status, const char *fmt, ...)
{
	char why[sizeof(e->job.why)]; /* a copy: fmt's arguments may be in e->job.why */
	va_list ap;

	e->job.failure = status;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	memcpy(e->job.why, why, sizeof(why));
	if (e->is_rank) /* an observer's engine_open returns the line */
		log_error("%s", e->job.why);
	if (e->is_rank && e->job.join->seeds.linked && e->job.join->state > JOIN_ENTER)
		rpc_call(e, WIRE_OBSERVER, e->job.join->seeds.link, WIRE_LEAVE, NULL, NULL, 0,
			 NULL, NULL, 0); /* rank 0 has admitted this rank already */
	pthread_cond_broadcast(&e->changed);
}

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer);

void join_ask(struct engine *e, enum wire_type type, const void *body, const void *tail,
	      size_t size)
{
	struct join *j = e->job.join;
	int rc = join_link_seed(e);

	if (!rc)
		rc = rpc_call(e, WIRE_OBSERVER, j->seeds.link, type, body, tail, size,
			      on_answer, j, j->state);
	j->waiting = !rc;
	j->asked_ms = monotonic_ms();
	if (rc)
		j->retry_ms = monotonic_ms() + JOIN_RETRY_MS;
	/* a rank of a job keeps its key, whoever listens where rank 0 was */
	if (rc == -ENOTCONN && !(e->is_rank && e->job.ready))
		join_shut_out(e);
	else if (rc == -ENOTCONN || !j->seeds.linked) /* the address cannot be connected to */
		join_next_seed(e);
}

/* ---- which ranks are missing ---- */

void join_name_ranks(const uint32_t *ranks, uint32_t named, uint32_t all, char *out,
		     size_t size)
{
	size_t used = 0;

	for (uint32_t i = 0; i < named && used < size; i++)
		used += (size_t)snprintf(out + used, size - used, "%s%u", i ? " " : "",
					 ranks[i]);
	if (named < all && used < size)
		snprintf(out + used, size - used, " and %u more", all - named);
}

void join_note_missing(struct engine *e)
{
	struct join *j = e->job.join;
	struct wire_welcome *w = &j->welcome;
	char names[120] = "";

	if (j->zero.refusal)
		return;
	if (!e->rank) {
		w->world = e->world;
		w->joined = join_count(e);
		j->nmissing = join_missing(e, j->missing);
	}
	join_name_ranks(j->missing, j->nmissing, w->world - w->joined, names, sizeof(names));
	snprintf(e->job.why, sizeof(e->job.why), "job %.30s: %u of %u ranks have joined%s%s",
		 e->job.name, w->joined, w->world, j->nmissing ? "; not yet: " : "",
		 j->nmissing ? names : "");
}

/* ---- HELLO, the table of ranks, the catalog ---- */

/* Returns true if w is of the job that this engine knows, perhaps not yet complete again. */
static bool is_as_it_was(const struct engine *e, const struct wire_welcome *w)
{
	return w->world == e->world && (e->is_rank || !strcmp(w->job, e->job.name)) &&
	       (!w->catalog_hash || w->catalog_hash == e->catalog->hash);
}

static void after_welcome(struct engine *e)
{
	struct join *j = e->job.join;

	if (j->welcome.catalog_hash) {
		j->rows = 0;
		j->state = JOIN_TABLE;
		return;
	}
	join_note_missing(e);
	if (!e->is_rank && e->job.ready)
		peers_say_of_lost(e, e->job.why);
	j->retry_ms = monotonic_ms() + JOIN_RETRY_MS;
	if (e->is_rank && ++j->rank.hellos % HELLOS_BEFORE_JOIN == 0)
		j->state = JOIN_ENTER; /* in case the catalog's sender died half way */
}

static int take_welcome(struct engine *e, const struct answer *answer)
{
	struct join *j = e->job.join;
	struct wire_welcome w;

	memcpy(&w, answer->body, sizeof(w));
	if (!wire_text_ok(w.job, sizeof(w.job)) || !w.world || w.world > FRAG_WORLD_MAX ||
	    w.catalog_bytes > WIRE_CATALOG_MAX || (e->is_rank && w.world != e->world))
		return -EPROTO;
	if (e->job.ready && !is_as_it_was(e, &w)) {
		if (!e->is_rank)
			join_say_other(e, &w);
		return -EPROTO;
	}
	j->welcome = w;
	j->nmissing = (uint32_t)u64_min(answer->tail_size / sizeof(j->missing[0]), JOIN_NAMED);
	if (j->nmissing)
		memcpy(j->missing, answer->tail, j->nmissing * sizeof(j->missing[0]));
	e->job.incarnation = w.incarnation;
	if (!e->is_rank) {
		memcpy(e->job.name, w.job, sizeof(w.job));
		e->job.hash = wire_hash(e->job.name, strlen(e->job.name));
	}
	if (!e->peers) {
		e->peers = calloc(w.world, sizeof(*e->peers));
		e->world = e->peers ? w.world : 0;
	}
	if (e->world != w.world)
		return -ENOMEM;
	after_welcome(e);
	return 0;
}

static bool entry_ok(const struct wire_entry *entry, uint32_t world)
{
	return entry->rank < world && wire_text_ok(entry->host, sizeof(entry->host)) &&
	       wire_text_ok(entry->hostname, sizeof(entry->hostname)) &&
	       wire_text_ok(entry->address, sizeof(entry->address));
}

static int take_table(struct engine *e, const struct answer *answer)
{
	struct join *j = e->job.join;
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
	/* The epoch is the first page's: after a change during the fetch, messages announce
	 * a newer one, and the table is fetched again.  This engine announces the epoch once
	 * the whole table is here, because peers then ask it for the table.
	 */
	if (!t.first)
		j->membership = t.membership;
	if (j->rows == e->world)
		e->job.membership = j->membership;
	return 0;
}

/* Takes the catalog, also when it fails. */
static int complete(struct engine *e, struct catalog *catalog)
{
	int rc = join_complete(e, catalog);

	if (rc)
		catalog_free(catalog);
	return rc;
}

/* Takes a page of the table of ranks; after the last page the catalog is asked for. */
static int take_first_table(struct engine *e, const struct answer *answer)
{
	struct join *j = e->job.join;
	int rc = take_table(e, answer);

	if (rc || j->rows < e->world)
		return rc;
	if (e->job.ready) {
		j->state = JOIN_DONE;
		return 0;
	}
	j->catalog.size = 0;
	j->state = JOIN_CATALOG;
	if (e->is_rank && e->own->hash == j->welcome.catalog_hash)
		rc = join_complete(e, e->own); /* the catalog need not be fetched */
	if (rc)
		join_fail(e, rc, "cannot take the job's catalog: %s", strerror(-rc));
	return 0;
}

static int take_catalog(struct engine *e, const struct answer *answer)
{
	struct join *j = e->job.join;
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
	rc = catalog_decode(&catalog, j->catalog.data, j->catalog.size, e->world, e->job.why,
			    sizeof(e->job.why));
	if (!rc && catalog->hash != j->welcome.catalog_hash) {
		catalog_free(catalog);
		return -EPROTO;
	}
	return rc ? rc : complete(e, catalog);
}

static const struct {
	enum wire_type want;
	int (*take)(struct engine *e, const struct answer *answer);
} takes[] = {
	[JOIN_ENTER] = { WIRE_JOINED, join_take_joined },
	[JOIN_UPLOAD] = { 0, join_take_upload_ack }, /* any answer without an error */
	[JOIN_HELLO] = { WIRE_WELCOME, take_welcome },
	[JOIN_TABLE] = { WIRE_TABLE, take_first_table },
	[JOIN_CATALOG] = { WIRE_CATALOG, take_catalog },
};

static void ask_next_seed(struct engine *e)
{
	struct join *j = e->job.join;

	join_next_seed(e);
	j->state = j->state > JOIN_HELLO || !e->is_rank ? JOIN_HELLO : JOIN_ENTER;
}

static void refused_to_enter(struct engine *e, const struct answer *answer)
{
	struct wire_refuse refuse = { .status = answer->status };
	struct join *j = e->job.join;

	if (answer->type == WIRE_REFUSE && answer->body)
		memcpy(&refuse, answer->body, sizeof(refuse));
	refuse.why[sizeof(refuse.why) - 1] = '\0';
	if (answer->status == -EPROTO || answer->status == -EEXIST || answer->status == -EINVAL)
		join_fail(e, answer->status, "%s: %s", e->is_rank ? "rank 0" : e->job.address,
			  refuse.why[0] ? refuse.why : strerror(-answer->status));
	else if (refuse.why[0])
		snprintf(e->job.why, sizeof(e->job.why), "%s", refuse.why);
	if (answer->status == -EBUSY && !j->seeds.said_refused) {
		log_warn("rank 0 %s; trying again until that process is silent", refuse.why);
		j->seeds.said_refused = true;
	}
	if (e->job.failure || j->state == JOIN_DONE)
		return;
	ask_next_seed(e);
}

/* Leaves a seed whose answer is of no use to an engine that is ready: join_turn looks again,
 * elsewhere.
 */
static void give_up(struct engine *e)
{
	join_next_seed(e);
	e->job.join->state = JOIN_DONE;
}

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct join *j = e->job.join;
	enum join_state state = j->state;
	int rc;

	if (state != tag || state == JOIN_DONE || state == JOIN_FIND)
		return false; /* of an earlier state, whose request was sent twice */
	j->waiting = false;
	j->seeds.answered = answer->status != -ETIMEDOUT;
	if (answer->status || (takes[state].want && answer->type != takes[state].want)) {
		if (e->job.ready)
			give_up(e);
		else
			refused_to_enter(e, answer);
		return false;
	}
	rc = takes[state].take(e, answer);
	if (rc && e->job.ready)
		give_up(e);
	else if (rc)
		join_fail(e, rc, "%s: %s", e->job.address,
			  rc == -ENOMEM   ? strerror(ENOMEM)
			  : rc == -EINVAL ? e->job.why
					  : "its answer breaks the protocol");
	return false;
}

void join_other_version(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	struct join *j = e->job.join;
	unsigned version = header->version;

	if (e->job.failure || !j->seeds.linked || j->seeds.link != peer)
		return;
	if (!e->job.ready && e->is_rank && header->job != e->job.hash &&
	    join_count_seeds(&j->seeds) > 1) {
		ask_next_seed(e); /* another job's rank 0 has this address */
	} else if (!e->job.ready) {
		join_fail(e, -EPROTO, "%s speaks protocol version %u, this process version %d",
			  e->job.address, version, WIRE_VERSION);
	} else if (!e->is_rank) {
		snprintf(e->job.why, sizeof(e->job.why),
			 "the job now speaks protocol version %u, this mount version %d",
			 version, WIRE_VERSION);
		peers_say_of_lost(e, e->job.why);
	}
}

static void free_bytes(struct join *j)
{
	free(j->catalog.data);
	free(j->rank.own.data);
	j->catalog = j->rank.own = (struct wire_writer){ 0 };
}

int join_complete(struct engine *e, struct catalog *catalog)
{
	uint32_t nparams = catalog->nparams, ngroups = catalog->ngroups;
	int rc;

	if (e->is_rank) {
		e->job.map_params = calloc(e->own->nparams + 1, sizeof(*e->job.map_params));
		e->job.map_groups = calloc(e->own->ngroups + 1, sizeof(*e->job.map_groups));
		if (!e->job.map_params || !e->job.map_groups)
			return -ENOMEM;
		/* catalog has all of own already: merging only finds the numbers */
		rc = catalog_merge(catalog, e->own, e->rank, e->job.map_params,
				   e->job.map_groups, e->job.why, sizeof(e->job.why));
		if (rc)
			return rc;
		if (catalog->nparams != nparams || catalog->ngroups != ngroups) {
			snprintf(e->job.why, sizeof(e->job.why),
				 "rank %u describes what the job does not have: parameters %u, "
				 "groups %u",
				 e->rank, catalog->nparams - nparams,
				 catalog->ngroups - ngroups);
			return -EINVAL;
		}
	}
	free_bytes(e->job.join);
	if (e->is_rank && catalog != e->own && catalog->hash == e->own->hash) {
		catalog_free(catalog);
		catalog = e->own;
	}
	e->catalog = catalog;
	e->job.ready = true;
	e->job.join->state = JOIN_DONE;
	e->job.why[0] = '\0';
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
	log_info("job %s: %u ranks, %u parameters, %u groups", e->job.name, e->world,
		 catalog->nparams, catalog->ngroups);
	return 0;
}

void join_newer_membership(struct engine *e, uint32_t peer, uint64_t membership)
{
	if (!e->job.ready || e->rank == 0 || membership <= e->job.membership ||
	    peer == NODE_LOCAL)
		return;
	e->job.join->refresh = true;
	e->job.join->refresh_from = peer;
}

static bool on_refresh(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct join *j = e->job.join;
	bool taken = !answer->status && answer->type == WIRE_TABLE && !take_table(e, answer);

	j->waiting = false;
	j->refresh = taken && j->rows < e->world;
	if (!taken) { /* the next message of a newer epoch begins anew */
		j->rows = 0;
		j->retry_ms = monotonic_ms() + AGAIN_MS;
	}
	return false;
}

static void turn_refresh(struct engine *e)
{
	struct join *j = e->job.join;
	struct wire_page page;

	if (j->rows >= e->world)
		j->rows = 0;
	page.first = j->rows;
	j->waiting = !rpc_call(e, WIRE_OBSERVER, j->refresh_from, WIRE_TABLE_GET, &page, NULL,
			       0, on_refresh, j, 0);
	if (!j->waiting)
		j->refresh = false;
}

void join_turn(struct engine *e, uint64_t now)
{
	struct join *j = e->job.join;
	struct wire_page page = { 0 };

	assert(node_is_engine_thread(e));
	if (!j || e->job.failure)
		return;
	join_fail_when_told(e, now);
	join_look_at_seed(e, now);
	join_look_at_job_file(e, now);
	join_say_when_long(e, now);
	if (j->waiting || now < j->retry_ms)
		return;
	switch (j->state) {
	case JOIN_FIND:
		j->retry_ms = now + JOIN_RETRY_MS;
		if (join_find(e))
			j->state = JOIN_ENTER;
		break;
	case JOIN_ENTER:
		join_turn_enter(e);
		break;
	case JOIN_UPLOAD:
		join_turn_upload(e);
		break;
	case JOIN_HELLO:
		join_ask(e, WIRE_HELLO, NULL, NULL, 0);
		break;
	case JOIN_TABLE:
		page.first = j->rows;
		join_ask(e, WIRE_TABLE_GET, &page, NULL, 0);
		break;
	case JOIN_CATALOG:
		page.first = j->catalog.size;
		join_ask(e, WIRE_CATALOG_GET, &page, NULL, 0);
		break;
	case JOIN_DONE:
		/* Before a refresh: the next process of rank 0 announces a newer table,
		 * which it does not have before all ranks have joined it.
		 */
		if (e->is_rank && e->rank && !peer_is_live(&e->peers[0]))
			join_look_for_zero(e, now);
		else if (!e->is_rank && peers_first_live(e) == WIRE_OBSERVER)
			join_look_for_job(e, now);
		else if (j->refresh)
			turn_refresh(e);
		break;
	}
}

static struct join *join_new(struct engine *e)
{
	e->job.join = calloc(1, sizeof(*e->job.join));
	if (e->job.join)
		join_count_wait(e, monotonic_ms());
	return e->job.join;
}

int join_start_rank(struct engine *e, const char *seed)
{
	struct join *j = join_new(e);

	e->peers = calloc(e->world, sizeof(*e->peers));
	if (!j || !e->peers)
		return -ENOMEM;
	if (seed)
		snprintf(j->seeds.list, sizeof(j->seeds.list), "%s", seed);
	if (e->rank)
		return 0;
	j->state = JOIN_DONE;
	j->zero.catalog_of = calloc(e->world, sizeof(*j->zero.catalog_of));
	return j->zero.catalog_of ? 0 : -ENOMEM;
}

int join_start_observer(struct engine *e, const char *seeds)
{
	struct join *j = join_new(e);

	if (!j)
		return -ENOMEM;
	j->state = JOIN_HELLO;
	if (strlen(seeds) >= sizeof(j->seeds.list))
		return -EINVAL;
	strcpy(j->seeds.list, seeds);
	return 0;
}

int join_wait(struct engine *e, uint64_t deadline)
{
	int rc = 0;

	while (!e->job.ready && !e->job.failure && !rc)
		rc = node_wait(e, deadline);
	return e->job.ready ? 0 : e->job.failure ? e->job.failure : rc;
}

void join_free(struct engine *e)
{
	struct join *j = e->job.join;

	if (!j)
		return;
	join_free_zero(&j->zero);
	free_bytes(j);
	resolver_forget(j->resolver);
	free((char *)(uintptr_t)j->options.source);
	free((char *)(uintptr_t)j->options.key_file);
	free(j);
	e->job.join = NULL;
}

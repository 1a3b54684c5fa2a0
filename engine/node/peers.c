/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/base/slot-map.h"
#include "engine/node/bulk.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FETCH_RETRY_MS = 100, WITNESS_MS = 1000, EARLY_FETCHES = 4 };

static void drop_states(struct engine *e, struct peer *p)
{
	for (uint32_t i = 0; i < p->nshared && e->memory.ops->share; i++)
		e->memory.ops->share(e->memory.transport, p->attached, -1,
				     p->states->shares[i].address, p->states->shares[i].size);
	states_free(p->states);
	p->states = NULL;
	p->nshared = 0;
}

static void detach(struct engine *e, struct peer *p)
{
	drop_states(e, p);
	if (p->way == PEER_WAY_MEMORY)
		e->memory.ops->detach(e->memory.transport, p->attached);
	p->way = PEER_WAY_UNKNOWN;
	p->wants_staged = false;
}

static void note_move(struct peer *p)
{
	p->moves++;
	p->moved_ms = monotonic_ms();
}

static bool is_elsewhere(const struct wire_control *now, const struct wire_control *before)
{
	return now->boundary != before->boundary || now->generation != before->generation ||
	       now->grads != before->grads || now->phase != before->phase;
}

static void set_state(struct engine *e, struct peer *p, enum engine_rank_state state,
		      const char *why)
{
	bool was_known = p->state != ENGINE_RANK_UNKNOWN;

	if (p->state == state)
		return;
	p->state = state;
	note_move(p);
	p->since_ms = monotonic_ms();
	p->since = time(NULL);
	snprintf(p->why, sizeof(p->why), "%s", why);
	if (was_known && !e->is_rank)
		event_log_rank(e, (uint32_t)(p - e->peers));
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

static const char left[] = "left the job";

static void unlink_peer(struct engine *e, struct peer *p)
{
	if (p->linked)
		e->messages.ops->disconnect(e->messages.transport, p->link);
	p->linked = p->fabric = false;
	bulk_unlink(e, p);
}

void peers_unlink(struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		unlink_peer(e, &e->peers[rank]);
}

/* Forgets what is known of the rank's old process, which another one has replaced. */
static void replace(struct engine *e, struct peer *p, uint32_t rank)
{
	detach(e, p);
	unlink_peer(e, p);
	p->pong = p->fabric_pong = 0;
	rpc_fail_rank(e, rank, -EIO);
	p->fetch = PEER_FETCH_NONE;
	p->replaced = p->doubted = false;
	p->vanished = 0;
	memset(&p->control, 0, sizeof(p->control));
}

void peers_set_entry(struct engine *e, const struct wire_entry *entry)
{
	struct peer *p = &e->peers[entry->rank];
	bool same = p->entry.present &&
		    !memcmp(p->entry.cookie, entry->cookie, sizeof(entry->cookie));

	/* also where the old process has left, and its entry is marked absent */
	if (!same && (p->entry.present || entry->present))
		replace(e, p, entry->rank);
	p->entry = *entry;
	if (!same)
		p->incarnation = e->job.incarnation;
	if (entry->present && !same) {
		if (p->state == ENGINE_RANK_LOST)
			log_info("rank %u was started again", entry->rank);
		p->leaving = false;
		p->heard_ms = monotonic_ms();
		set_state(e, p, ENGINE_RANK_ALIVE, "");
	} else if (!entry->present) {
		p->leaving = true;
		set_state(e, p, ENGINE_RANK_LOST, left);
	}
}

void peers_saw(struct engine *e, uint32_t rank, const struct wire_control *control)
{
	struct peer *p = &e->peers[rank];
	bool was_seen;

	if (memcmp(control->cookie, p->entry.cookie, sizeof(control->cookie)))
		return; /* another process by now */
	if (p->states && control->registry_epoch != p->states->epoch)
		peer_fetch_states(p);
	was_seen = p->control.cookie[0];
	if (is_elsewhere(control, &p->control))
		note_move(p);
	p->control = *control;
	p->saw_ms = monotonic_ms();
	/* ranks of one host have one clock: boundary_ns says when the rank came there */
	if (!was_seen && peers_same_host(e, rank))
		p->moved_ms = p->saw_ms - u64_min(peers_stood_ms(p), p->saw_ms);
}

void peers_heard(struct engine *e, uint32_t rank, const struct wire_control *control)
{
	struct peer *p = &e->peers[rank];
	bool was_lost = p->state == ENGINE_RANK_LOST && p->entry.present && !p->leaving;

	if (control && memcmp(control->cookie, p->entry.cookie, sizeof(control->cookie)))
		return; /* another process by now */
	if (was_lost || p->silence_told)
		log_info("rank %u answers again", rank);
	if (was_lost)
		set_state(e, p, ENGINE_RANK_ALIVE, "");
	p->heard_ms = monotonic_ms();
	p->silence_told = false;
	if (control)
		peers_saw(e, rank, control);
}

void peers_lose(struct engine *e, uint32_t rank, int status, const char *why)
{
	struct peer *p = &e->peers[rank];

	if (p->state == ENGINE_RANK_LOST && (p->lost == -EIO || p->lost == status))
		return;
	if (p->leaving)
		log_info("rank %u %s", rank, why = left);
	else if (e->job.is_leaving) /* a rank sends no LEAVE to one that leaves, too */
		log_info("rank %u is gone: %s", rank, why);
	else
		log_warn("rank %u is lost: %s", rank, why);
	set_state(e, p, ENGINE_RANK_LOST, why);
	snprintf(p->why, sizeof(p->why), "%s", why);
	p->lost = status;
	e->event_log->changes++; /* a rank that the log called silent is now lost */
	p->failing = true;       /* rpc_fail_rank is the engine thread's; this may be another */
}

void peers_say_of_lost(struct engine *e, const char *line)
{
	char why[sizeof(e->peers->why)] = "";
	bool known = true;

	for (uint32_t rank = 0; rank < e->world; rank++) {
		struct peer *p = &e->peers[rank];
		int first = (int)strcspn(p->why, ";");

		if (p->state != ENGINE_RANK_LOST)
			continue;
		snprintf(why, sizeof(why), "%.*s%s%s", first, p->why, first ? "; " : "", line);
		known &= !strcmp(p->why, why);
		memcpy(p->why, why, sizeof(p->why));
	}
	if (!known)
		log_warn("%s", line);
}

int peers_lost_status(const struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];

	return p->entry.present && p->state == ENGINE_RANK_LOST ? p->lost : -EIO;
}

bool peers_has_ended(const struct engine *e, uint32_t rank)
{
	return e->peers[rank].state == ENGINE_RANK_LOST &&
	       peers_lost_status(e, rank) != -ETIMEDOUT;
}

void peers_gone(struct engine *e, uint32_t link)
{
	for (uint32_t rank = 0; rank < e->world && e->peers; rank++)
		if (e->peers[rank].linked && e->peers[rank].link == link)
			peers_lose(e, rank, -EIO, "nobody listens at its address any more");
}

bool peers_same_host(const struct engine *e, uint32_t rank)
{
	const struct wire_entry *entry = &e->peers[rank].entry;

	return !strncmp(entry->host, e->launch.host, sizeof(entry->host));
}

static void attach(struct engine *e, struct peer *p, uint32_t rank)
{
	struct transport_target target = { .pid = (pid_t)p->entry.pid,
					   .control = p->entry.control,
					   .cookie = { p->entry.cookie[0],
						       p->entry.cookie[1] } };
	int rc;

	p->way = PEER_WAY_MESSAGES;
	if (!e->memory.transport || !peers_same_host(e, rank))
		return;
	rc = e->memory.ops->attach(e->memory.transport, &target, &p->attached);
	if (!rc)
		p->way = PEER_WAY_MEMORY;
	else
		log_info("rank %u is on this host, but its memory cannot be read (%s): by "
			 "messages",
			 rank, strerror(-rc));
}

int peers_reach(struct engine *e, uint32_t rank)
{
	struct peer *p;
	int rc;

	assert(node_is_engine_thread(e));
	if (rank >= e->world)
		return -EIO;
	p = &e->peers[rank];
	if (!peer_is_live(p))
		return peers_lost_status(e, rank);
	if (p->way == PEER_WAY_UNKNOWN)
		attach(e, p, rank);
	if (p->linked || (e->is_rank && rank == e->rank))
		return 0;
	rc = e->messages.ops->connect(e->messages.transport, p->entry.address, &p->link);
	p->linked = !rc;
	if (!rc)
		p->heard_ms = monotonic_ms();
	return rc ? -EIO : 0;
}

int peers_call_from(const char *caller, struct engine *e, uint32_t rank, enum wire_type type,
		    const void *body, const void *tail, size_t tail_size, rpc_done done,
		    void *owner, uint64_t tag)
{
	uint32_t link = NODE_LOCAL;
	int rc = 0;

	if (!e->is_rank || rank != e->rank) {
		rc = peers_reach(e, rank);
		link = rc ? link : bulk_choose(e, rank, type);
		if (!rc && type == WIRE_READ)
			e->peers[rank].wants_bulk = true;
	}
	if (!rc)
		rc = rpc_call_from(caller, e, rank, link, type, body, tail, tail_size, done,
				   owner, tag);
	if (rc == -ENOTCONN && slot_map_is_second(link)) {
		e->peers[rank].bulk = PEER_BULK_BROKEN;
		rc = -EAGAIN;
	} else if (rc == -ENOTCONN) { /* the peer has refused this link, and will again */
		e->peers[rank].linked = false;
		rc = -EAGAIN;
	}
	return rc;
}

/* Gives the memory transport the memfds of a new table. */
static void share(struct engine *e, struct peer *p)
{
	for (; p->way == PEER_WAY_MEMORY && p->nshared < p->states->nshares; p->nshared++) {
		const struct state_share *s = &p->states->shares[p->nshared];

		if (e->memory.ops->share)
			e->memory.ops->share(e->memory.transport, p->attached, s->fd,
					     s->address, s->size);
	}
}

static void take_states(struct engine *e, struct peer *p, uint32_t rank)
{
	struct states *states;
	int rc = states_decode(&states, p->incoming.data, p->incoming.size);

	if (rc) {
		log_warn("rank %u sent a damaged table of states", rank);
		p->retry_ms = monotonic_ms() + NODE_PING_MS;
		return;
	}
	drop_states(e, p);
	p->states = states;
	p->states_ns = p->asked_ns;
	p->fetch = p->control.registry_epoch > states->epoch ? PEER_FETCH_DUE : PEER_FETCH_NONE;
	share(e, p);
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

static bool on_states(struct engine *e, void *owner, uint64_t rank,
		      const struct answer *answer);

static void fetch(struct engine *e, uint32_t rank, uint64_t first)
{
	struct peer *p = &e->peers[rank];
	struct wire_page page = { .first = first };

	if (!first) {
		p->incoming.size = 0;
		p->incoming.bad = false;
		p->asked_ns = monotonic_ns();
	}
	p->fetch = peers_call(e, rank, WIRE_STATES_GET, &page, NULL, 0, on_states, p, rank)
			   ? PEER_FETCH_DUE
			   : PEER_FETCH_ASKED;
	if (p->fetch == PEER_FETCH_DUE)
		p->retry_ms = monotonic_ms() + FETCH_RETRY_MS;
}

/* Takes an answer's part of the table; false: the fetch must begin again, as when the table
 * changed since the first part, which begins with its epoch.
 */
static bool take_part(struct peer *p, const struct answer *answer, struct wire_states *part)
{
	if (answer->status || answer->type != WIRE_STATES)
		return false;
	memcpy(part, answer->body, sizeof(*part));
	if (part->offset != p->incoming.size || part->size != answer->tail_size ||
	    part->total > WIRE_CATALOG_MAX || part->offset + part->size > part->total ||
	    !part->size)
		return false;
	if (part->offset && (part->offset < sizeof(part->epoch) ||
			     memcmp(p->incoming.data, &part->epoch, sizeof(part->epoch))))
		return false;
	wire_put_bytes(&p->incoming, answer->tail, answer->tail_size);
	return !p->incoming.bad;
}

static bool on_states(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct peer *p = &e->peers[rank];
	struct wire_states part;

	p->fetch = PEER_FETCH_DUE;
	if (!take_part(p, answer, &part)) {
		p->retry_ms = monotonic_ms() + FETCH_RETRY_MS;
	} else if (p->incoming.size < part.total) {
		fetch(e, (uint32_t)rank, p->incoming.size);
	} else {
		take_states(e, p, (uint32_t)rank);
	}
	return false;
}

bool peers_is_mute(struct engine *e, uint32_t rank, uint64_t silence_ms, uint64_t limit_ms)
{
	if (silence_ms >= limit_ms / 2 && rank < e->world &&
	    e->peers[rank].pinged_ms + silence_ms < monotonic_ms())
		e->peers[rank].pinged_ms = 0; /* no ping was sent since: one goes at once */
	return silence_ms >= limit_ms;
}

bool peers_is_readable(const struct engine *e, uint32_t rank)
{
	const struct peer *p = &e->peers[rank];

	return p->entry.present && p->state == ENGINE_RANK_LOST && p->lost == -ETIMEDOUT &&
	       p->way == PEER_WAY_MEMORY && p->states && p->fetch == PEER_FETCH_NONE;
}

/* Only marks the table: the engine thread fetches it.  Any thread, with the lock. */
int peers_want_states(struct engine *e, uint32_t rank)
{
	struct peer *p = &e->peers[rank];

	if (rank >= e->world)
		return -EIO;
	if (!peer_is_live(p))
		return peers_lost_status(e, rank);
	if (p->states && p->fetch == PEER_FETCH_NONE)
		return 0;
	peer_fetch_states(p);
	return -EAGAIN;
}

static bool on_pong(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct wire_control control;

	if (answer->status || answer->type != WIRE_PONG)
		return false;
	memcpy(&control, answer->body, sizeof(control));
	peers_heard(e, (uint32_t)rank, &control);
	return false;
}

/* Sends a PING when one is due.  This rank pings itself while any request waits: a request to
 * itself, or its answer, gets lost where append_local has no memory.
 */
static void ping(struct engine *e, struct peer *p, uint32_t rank, uint64_t now)
{
	bool self = e->is_rank && rank == e->rank;
	struct wire_observer observer;
	int rc;

	if (!(self ? !LIST_EMPTY(&e->rpc->list) : p->linked) ||
	    now < p->pinged_ms + NODE_PING_MS)
		return;
	p->pinged_ms = now;
	if (!e->is_rank)
		node_observer(e, &observer);
	/* a lost rank is pinged as WIRE_OBSERVER: its silence must not lose it again */
	rc = rpc_call(e, p->state == ENGINE_RANK_LOST ? WIRE_OBSERVER : rank,
		      self ? NODE_LOCAL : p->link, WIRE_PING, NULL, &observer,
		      e->is_rank ? 0 : sizeof(observer), on_pong, NULL, rank);
	if (rc == -ENOTCONN) /* the peer has refused this link, and will again */
		p->linked = false;
}

/* A witness is asked first whether the rank has left in order, see settle_vanished. */
void peers_vanished(struct engine *e, uint32_t rank, int why)
{
	struct peer *p = &e->peers[rank];

	if (p->vanished || (p->state == ENGINE_RANK_LOST && p->lost == -EIO))
		return;
	p->vanished = why;
	p->vanished_ms = monotonic_ms();
	p->asked_of = 0;
	node_wake(e);
}

/* On this host the kernel tells at once that a process is gone: no need to wait for its
 * silence.
 */
static void look(struct engine *e, struct peer *p, uint32_t rank)
{
	struct control_page page;
	struct wire_control control;
	int rc;

	if (p->way != PEER_WAY_MEMORY || (p->state == ENGINE_RANK_LOST && p->lost == -EIO))
		return;
	rc = e->memory.ops->get(e->memory.transport, p->attached, NULL, 0, NULL, 0, &page,
				sizeof(page));
	if (rc == -ESRCH || rc == -ESTALE) {
		peers_vanished(e, rank, rc);
	} else if (!rc) {
		wire_control_from_page(&control, &page);
		peers_saw(e, rank, &control);
	}
}

/* Returns a live rank that may have heard the end of `rank`; WIRE_OBSERVER: none. */
static uint32_t find_witness(const struct engine *e, uint32_t rank)
{
	for (uint32_t i = 0; i < e->world; i++) {
		const struct peer *p = &e->peers[i];

		if (i != rank && !(e->is_rank && i == e->rank) && peer_is_live(p) &&
		    p->linked && !p->leaving && !p->vanished)
			return i;
	}
	return WIRE_OBSERVER;
}

/* Returns true if what the witness has to say of the rank may still be under way. */
static bool may_be_told(struct engine *e, struct peer *p, uint32_t rank, uint64_t now)
{
	const struct peer *w;

	if (p->leaving || now >= p->vanished_ms + WITNESS_MS)
		return false;
	if (!p->asked_of) {
		p->witness = find_witness(e, rank);
		if (p->witness >= e->world ||
		    rpc_call(e, p->witness, e->peers[p->witness].link, WIRE_PING, NULL, NULL, 0,
			     on_pong, NULL, p->witness))
			return false;
		p->asked_of = e->rpc->number;
	}
	w = &e->peers[p->witness];
	return peer_is_live(w) && !w->vanished && w->pong < p->asked_of;
}

/* Ends a rank whose process is gone, unless its LEFT may still come. */
static void settle_vanished(struct engine *e, struct peer *p, uint32_t rank, uint64_t now)
{
	if (may_be_told(e, p, rank, now))
		return;
	peers_lose(e, rank, -EIO,
		   p->vanished == -ESRCH ? "its process is gone" : "it has left the job");
	p->vanished = 0;
}

/* ---- whether a table of states is the newest ---- */

/* Only marks the table.  Any thread, with the lock. */
void peers_doubt_states(struct engine *e, uint32_t rank)
{
	e->peers[rank].doubted = true;
}

/* Notes that the table was still the newest at asked_ns: a later page has its epoch. */
static void is_newest(struct engine *e, struct peer *p, uint64_t asked_ns)
{
	p->states_ns = u64_max(p->states_ns, asked_ns);
	atomic_fetch_add(&e->event_log->epoch, 1);
	pthread_cond_broadcast(&e->changed);
}

static bool on_epoch(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct peer *p = &e->peers[rank];
	struct wire_control control;

	p->asking = false;
	on_pong(e, owner, rank, answer);
	if (answer->status || answer->type != WIRE_PONG || !p->states) {
		/* a lost or silent rank sends no table: peers_is_readable */
		if (peer_is_live(p) && !p->silent)
			peer_fetch_states(p);
		return false;
	}
	memcpy(&control, answer->body, sizeof(control));
	if (!memcmp(control.cookie, p->entry.cookie, sizeof(control.cookie)) &&
	    control.registry_epoch == p->states->epoch)
		is_newest(e, p, p->asking_ns);
	else
		peer_fetch_states(p);
	return false;
}

/* Asks for the registry's epoch by PING: the table itself has a row for each state. */
static void ask_epoch(struct engine *e, struct peer *p, uint32_t rank)
{
	p->doubted = false;
	p->asking_ns = monotonic_ns();
	p->asking = !peers_call(e, rank, WIRE_PING, NULL, NULL, 0, on_epoch, p, rank);
	if (!p->asking)
		peer_fetch_states(p);
}

static void watch(struct engine *e, struct peer *p, uint32_t rank, uint64_t now)
{
	if (now < p->watched_ms + NODE_PING_MS)
		return;
	p->watched_ms = now;
	look(e, p, rank);
}

void peers_look(struct engine *e, uint32_t rank)
{
	e->peers[rank].wanted = true;
	look(e, &e->peers[rank], rank);
}

uint32_t peers_find_trainer(struct engine *e, pid_t thread)
{
	for (uint32_t rank = 0; rank < e->world && thread; rank++) {
		struct peer *p = &e->peers[rank];

		if (!peer_is_live(p) || p->leaving || !peers_same_host(e, rank))
			continue;
		p->wanted = true; /* fetches its control page, which has the trainer */
		if (p->control.trainer == (uint32_t)thread &&
		    p->control.phase != CONTROL_CLOSED)
			return rank;
	}
	return WIRE_OBSERVER;
}

bool peers_all_left(const struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (!peer_has_left(&e->peers[rank]))
			return false;
	return e->world;
}

uint64_t peers_stood_ms(const struct peer *p)
{
	uint64_t now = clock_ns(CLOCK_REALTIME);
	uint64_t seen = p->moved_ms ? monotonic_ms() - p->moved_ms : 0;

	if (!p->control.boundary_ns || p->control.boundary_ns > now)
		return seen;
	return u64_max(seen, (now - p->control.boundary_ns) / 1000000);
}

static bool on_followed(struct engine *e, void *owner, uint64_t rank,
			const struct answer *answer)
{
	e->peers[rank].pong_awaited = false;
	return on_pong(e, owner, rank, answer);
}

void peers_follow(struct engine *e, uint32_t rank, uint64_t every_ms, uint64_t now)
{
	struct peer *p = &e->peers[rank];

	if (now < p->followed_ms + every_ms)
		return;
	p->followed_ms = now;
	if (p->way == PEER_WAY_MEMORY)
		look(e, p, rank);
	else if (!p->pong_awaited)
		p->pong_awaited =
			!peers_call(e, rank, WIRE_PING, NULL, NULL, 0, on_followed, NULL, rank);
}

uint32_t peers_first_live(const struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (peer_is_live(&e->peers[rank]))
			return rank;
	return WIRE_OBSERVER;
}

/* Links to a live rank, whose answers tell of a rank that comes back. */
static void keep_in_touch(struct engine *e)
{
	uint32_t rank = peers_first_live(e);

	if (rank < e->world && !e->peers[rank].linked)
		peers_reach(e, rank);
	/* rank 0 told of the others' ends: now each tells of its own */
	for (; peer_has_left(&e->peers[0]) && rank < e->world; rank++)
		peers_reach(e, rank);
}

/* A rank that stops can be read from its memory by whoever has its table: a mount fetches those
 * of its own host before it needs them, a few at a time.
 */
static void fetch_early(struct engine *e)
{
	unsigned nfetching = 0;

	for (uint32_t rank = 0; rank < e->world; rank++)
		nfetching += e->peers[rank].fetch == PEER_FETCH_ASKED ||
			     (e->peers[rank].fetch == PEER_FETCH_DUE && !e->peers[rank].states);
	for (uint32_t rank = 0; rank < e->world && nfetching < EARLY_FETCHES; rank++) {
		struct peer *p = &e->peers[rank];

		if (p->states || p->fetch || p->way != PEER_WAY_MEMORY || !peer_is_live(p))
			continue;
		peer_fetch_states(p);
		nfetching++;
	}
}

void peers_turn(struct engine *e, uint64_t now)
{
	assert(node_is_engine_thread(e));
	if (e->job.ready && !e->is_rank) {
		keep_in_touch(e);
		fetch_early(e);
	}
	for (uint32_t rank = 0; rank < e->world && e->peers; rank++) {
		struct peer *p = &e->peers[rank];

		if (p->silent && !(e->is_rank && rank == e->rank))
			peers_lose(e, rank, -ETIMEDOUT, "no answer");
		p->silent = false;
		if (p->vanished)
			settle_vanished(e, p, rank, now);
		if (p->replaced)
			peers_lose(e, rank, -EIO, "another process answers at its address");
		p->replaced = false;
		if (p->failing)
			rpc_fail_rank(e, rank, peers_lost_status(e, rank));
		p->failing = false;
		if (!p->entry.present)
			continue;
		if (p->way == PEER_WAY_UNKNOWN && e->memory.transport &&
		    peers_same_host(e, rank))
			attach(e, p, rank);
		watch(e, p, rank, now);
		if (p->wanted && !p->linked && p->way != PEER_WAY_MEMORY)
			peers_reach(e, rank);
		ping(e, p, rank, now);
		if (p->doubted && !p->asking && p->fetch == PEER_FETCH_NONE && peer_is_live(p))
			ask_epoch(e, p, rank);
		if (p->fetch == PEER_FETCH_DUE && now >= p->retry_ms &&
		    p->state != ENGINE_RANK_LOST)
			fetch(e, rank, 0);
	}
}

void peers_free(struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world && e->peers; rank++) {
		detach(e, &e->peers[rank]);
		free(e->peers[rank].incoming.data);
	}
	free(e->peers);
	e->peers = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/barrier-state.h"
#include "engine/node/bulk.h"
#include "engine/job/join-internal.h"
#include "engine/job/listen.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/keyfile.h"
#include "engine/transport/transport-address.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The role of a rank: finds rank 0 and the job's key, joins, sends its description, and says
 * in the log for whom it waits.
 */

enum {
	PORTS = LISTEN_PORT_LAST - LISTEN_PORT_FIRST + 1,
	BEFORE_FIRST_AGAIN = 15, /* ports that are tried before the first is tried again */
	LOOK_MS = 500,           /* between two looks for rank 0 or at the job file */
	ZERO_MS = 1000,          /* a rank logs after so long that it waits for rank 0 */
	SAY_MS = 10000,          /* a rank logs after so long that it waits for others; */
	SAY_MAX_MS = 600000,     /* then after twice as long, at most so much later */
};

/* ---- where rank 0 is ---- */

/* Resolves the master's name into master_ip; -EAGAIN: a resolver is asked, call again. */
static int find_master(struct engine *e)
{
	struct join_rank *r = &e->job.join->rank;
	const char *master = listen_master(e);
	int rc = r->master_ip[0] ? 0
				 : resolver_ask(&e->job.join->resolver, master, r->master_ip);

	if (rc && rc != -EAGAIN && !r->said_unknown) {
		log_warn("cannot find the master's address: %s: %s; trying again", master,
			 rc == -ENOENT ? "no such host" : strerror(-rc));
		r->said_unknown = true;
	}
	return rc;
}

static void add_port(struct join *j, unsigned port)
{
	char *list = j->seeds.list;
	size_t used = strlen(list);

	snprintf(list + used, sizeof(j->seeds.list) - used, "%stcp://%s:%u", used ? "," : "",
		 j->rank.master_ip, port);
}

/* Makes seeds of all addresses at which rank 0 may listen.  The first port, where rank 0 nearly
 * always listens, is repeated: it may begin to listen while the others are tried.
 */
static void seeds_from_master(struct engine *e)
{
	struct join *j = e->job.join;

	static_assert((PORTS + PORTS / BEFORE_FIRST_AGAIN) *
				      sizeof("tcp://255.255.255.255:65535,") <
			      sizeof(j->seeds.list),
		      "seeds");
	if (e->launch.port) {
		add_port(j, e->launch.port);
		return;
	}
	for (unsigned i = 0; i < PORTS; i++) {
		if (i && i % BEFORE_FIRST_AGAIN == 0)
			add_port(j, LISTEN_PORT_FIRST);
		add_port(j, LISTEN_PORT_FIRST + i);
	}
}

/* Loads the key that this rank was given.
 * -ENOKEY: it was given none: the job file names the key.
 */
static int own_key(struct engine *e)
{
	char why[256];
	int rc;

	if (e->job.failure)
		return e->job.failure; /* logged already */
	if (e->launch.plain || e->job.key.is_there)
		return 0;
	if (!e->launch.key_file[0])
		return -ENOKEY;
	rc = keyfile_load(e->launch.key_file, e->job.key.bytes, NULL, why, sizeof(why));
	if (rc)
		join_fail(e, rc, "%s", why);
	e->job.key.is_there = !rc;
	return rc;
}

static int key_of(struct engine *e, const struct jobfile *job)
{
	char why[256];
	int rc = own_key(e);

	if (rc != -ENOKEY)
		return rc;
	if (!job->key_file[0])
		return 0; /* the job runs plain: its file, in this user's folder, says so */
	rc = keyfile_load(job->key_file, e->job.key.bytes, NULL, why, sizeof(why));
	e->job.key.is_there = !rc;
	return rc;
}

static bool has_our_world(struct engine *e, const struct jobfile *job)
{
	if (job->world == e->world)
		return true;
	if (!e->job.join->rank.said_world)
		log_warn("job %s at %s has %u ranks, but this rank was started as one of %u; "
			 "looking for another job file",
			 job->job, job->address, job->world, e->world);
	e->job.join->rank.said_world = true;
	return false;
}

static bool read_job_file(struct engine *e, struct jobfile *job)
{
	int rc = e->launch.rendezvous[0] ? jobfile_read(e->launch.rendezvous, job)
					 : jobfile_find(e->launch.job, job);

	return !rc && has_our_world(e, job);
}

static bool found_job_file(struct engine *e)
{
	struct join_seeds *seeds = &e->job.join->seeds;
	struct jobfile job;

	if (!read_job_file(e, &job) || key_of(e, &job))
		return false;
	snprintf(seeds->list, sizeof(seeds->list), "tcp://%s", job.address);
	seeds->of_job_file = true;
	return true;
}

/* Reads the job file again: a rank that starts before rank 0 may have found that of an earlier
 * job of this name, whose rank 0 was still there.
 */
void join_look_at_job_file(struct engine *e, uint64_t now)
{
	struct join *j = e->job.join;
	struct jobfile job;

	if (!e->is_rank || e->job.ready || !j->seeds.of_job_file || now < j->rank.look_ms)
		return;
	j->rank.look_ms = now + LOOK_MS;
	if (!read_job_file(e, &job) ||
	    strcmp(transport_address_shown(j->seeds.list), job.address))
		join_find_anew(e);
}

static bool found_master(struct engine *e)
{
	if (!e->launch.master_addr[0] || e->launch.rendezvous[0] || own_key(e) ||
	    find_master(e))
		return false;
	seeds_from_master(e);
	return true;
}

static bool open_messages(struct engine *e)
{
	struct join_rank *r = &e->job.join->rank;
	int rc;

	if (e->messages.ops == &transport_zmq && find_master(e))
		return false;
	rc = listen_open(e, r->master_ip, "");
	if (rc && rc != r->listen_failed)
		log_warn("cannot listen on this host's address towards %s: %s; trying again",
			 listen_master(e), strerror(-rc));
	r->listen_failed = rc;
	return !rc;
}

bool join_find(struct engine *e)
{
	if (!e->job.join->seeds.list[0] && !found_job_file(e) && !found_master(e))
		return false;
	return e->messages.transport || open_messages(e);
}

/* Forgets the seeds, and the master's address, which may be another by the next time. */
static void forget_address(struct join *j)
{
	j->seeds.list[0] = j->rank.master_ip[0] = '\0';
	j->seeds.of_job_file = false;
}

void join_find_anew(struct engine *e)
{
	struct join *j = e->job.join;

	join_unlink_seed(e);
	bulk_close(e);
	e->messages.ops->close(e->messages.transport);
	e->messages.transport = NULL;
	e->job.key.is_there = false;
	forget_address(j);
	j->state = JOIN_FIND;
	j->retry_ms = monotonic_ms() + JOIN_REFUSED_RETRY_MS;
}

void join_look_for_zero(struct engine *e, uint64_t now)
{
	struct join *j = e->job.join;

	j->retry_ms = now + LOOK_MS;
	join_unlink_seed(e);
	if (e->messages.ops == &transport_zmq)
		forget_address(j);
	if (!join_find(e))
		return;
	j->seeds.current %= join_count_seeds(&j->seeds);
	if (j->rank.own.size || !catalog_encode(e->own, &j->rank.own))
		j->state = JOIN_ENTER;
}

/* ---- joining ---- */

void join_fill_entry(struct engine *e, struct wire_entry *entry)
{
	*entry = (struct wire_entry){
		.rank = e->rank,
		.uid = getuid(),
		.pid = getpid(),
		.control = (uintptr_t)e->registry.control,
		.cookie = { e->registry.control->cookie[0], e->registry.control->cookie[1] },
		.present = 1,
		.bulk = bulk_listens_at(e),
	};
	snprintf(entry->host, sizeof(entry->host), "%s", e->launch.host);
	gethostname(entry->hostname, sizeof(entry->hostname) - 1);
	snprintf(entry->address, sizeof(entry->address), "%s",
		 e->messages.ops->address(e->messages.transport));
}

int join_described(struct engine *e)
{
	struct join_rank *r = &e->job.join->rank;
	int rc = e->rank ? catalog_encode(e->own, &r->own) : join_describe_zero(e);

	r->described = !rc;
	join_count_wait(e, monotonic_ms());
	return rc;
}

void join_turn_enter(struct engine *e)
{
	struct wire_join join = { .world = e->world,
				  .barrier = e->job.barrier->before + e->job.barrier->passed };

	if (!e->job.join->rank.described)
		return;
	join_fill_entry(e, &join.entry);
	join.catalog_hash = e->own->hash;
	join.catalog_bytes = e->job.join->rank.own.size;
	wire_control_from_page(&join.control, e->registry.control);
	join_ask(e, WIRE_JOIN, &join, NULL, 0);
}

int join_take_joined(struct engine *e, const struct answer *answer)
{
	struct wire_joined joined;

	memcpy(&joined, answer->body, sizeof(joined));
	e->job.incarnation = joined.incarnation;
	if (joined.complete && !e->job.ready)
		join_catch_up(e, &joined.control, joined.barrier);
	e->job.join->rank.sent = 0;
	e->job.join->state = joined.need_catalog ? JOIN_UPLOAD : JOIN_HELLO;
	return 0;
}

void join_turn_upload(struct engine *e)
{
	struct join_rank *r = &e->job.join->rank;
	struct wire_catalog part = { .hash = e->own->hash,
				     .total = r->own.size,
				     .offset = r->sent };

	part.size = u64_min(WIRE_CHUNK, part.total - part.offset);
	join_ask(e, WIRE_CATALOG_PUT, &part, r->own.data + r->sent, part.size);
}

int join_take_upload_ack(struct engine *e, const struct answer *answer)
{
	struct join_rank *r = &e->job.join->rank;

	r->sent += u64_min(WIRE_CHUNK, r->own.size - r->sent);
	if (r->sent == r->own.size)
		e->job.join->state = JOIN_HELLO;
	return 0;
}

void join_serve_hello(struct engine *e, uint32_t peer, const struct wire_header *header)
{
	struct wire_welcome w = { .world = e->world,
				  .joined = join_count(e),
				  .incarnation = e->job.incarnation,
				  .membership = e->job.membership };
	struct join_zero *z = &e->job.join->zero;
	uint32_t missing[JOIN_NAMED];

	assert(node_is_engine_thread(e));
	if (e->job.failure || z->refusal) {
		node_refuse(e, peer, header->request, -EINVAL, "%s", e->job.why);
		if (z->refusal && header->rank < e->world)
			z->catalog_of[header->rank] = 0; /* the refused rank knows why now */
		return;
	}
	memcpy(w.job, e->job.name, sizeof(w.job));
	if (e->job.ready) {
		w.catalog_hash = e->catalog->hash;
		w.catalog_bytes = e->catalog->encoded_size;
	}
	node_send(e, peer, WIRE_WELCOME, header->request, &w, missing,
		  join_missing(e, missing) * sizeof(missing[0]));
}

/* ---- a rank that comes back ---- */

/* All ranks count the same steps, boundaries, windows of gradients and barriers.  The next
 * process of a rank begins at 0, and its trainer may have counted some before it learns where
 * the others are: control_page_raise adds, and keeps both.  What the others count until all
 * meet at a barrier is learnt there (api_count_on).
 */
void join_catch_up(struct engine *e, const struct wire_control *at, uint64_t barrier)
{
	struct control_page *page = e->registry.control;

	control_page_raise(&page->step, at->step, 1);
	control_page_raise(&page->boundary, at->boundary, 1);
	control_page_raise(&page->generation, at->generation, 1);
	join_catch_up_grads(e, at->grads);
	e->job.barrier->before = u64_max(e->job.barrier->before, barrier);
	log_info("back in the job, at step %llu, boundary %llu", (unsigned long long)at->step,
		 (unsigned long long)at->boundary);
}

/* The count is odd while gradients are valid.  This rank's stays as it is, odd or even: where
 * only the others have valid ones, its trainer may restore those, or make the next, which
 * frag_grads_gone then counts from grads_elsewhere.
 */
void join_catch_up_grads(struct engine *e, uint64_t grads)
{
	control_page_raise(&e->registry.control->grads, grads & ~(uint64_t)1, 2);
	control_page_raise(&e->job.grads_elsewhere, grads, 1);
}

/* ---- the log of a rank that waits ---- */

void join_say_missing(struct engine *e, const char *caller)
{
	const struct join *j = e->job.join;
	const char *why = e->job.why;

	if (!e->rank)
		join_note_missing(e);
	if (!j->welcome.world) /* no WELCOME has come, which names the missing ranks */
		why = !j->rank.described      ? "this rank has not called frag_ready"
		      : j->state == JOIN_FIND ? "rank 0 has not been found"
					      : "rank 0 has not answered";
	log_warn("%s: %s", caller, why);
}

static void say_waiting(struct engine *e, unsigned seconds)
{
	const struct join *j = e->job.join;
	char after[32];

	snprintf(after, sizeof(after), "after %u s", seconds);
	if (j->state == JOIN_FIND)
		log_warn(
			"job %s: rank 0 has not been found for %u s; ranks on other hosts than "
			"rank 0's need MASTER_ADDR and FRAG_KEY_FILE (or FRAG_PLAIN=1)",
			e->launch.job, seconds);
	else if (!e->rank || j->welcome.world)
		join_say_missing(e, after);
	else
		log_warn("job %s: rank 0 has not answered for %u s", e->launch.job, seconds);
}

/* Logs where the rank looks for rank 0. */
static void say_where(const struct engine *e)
{
	const struct launch *l = &e->launch;
	char where[256] = "in this user's job files on this host";

	if (e->job.join->seeds.list[0])
		snprintf(where, sizeof(where), "at %.200s", e->job.join->seeds.list);
	else if (l->rendezvous[0])
		snprintf(where, sizeof(where), "in the job file %.200s", l->rendezvous);
	else if (l->master_addr[0])
		snprintf(where, sizeof(where),
			 "in this user's job files on this host, and at %.200s",
			 l->master_addr);
	log_warn("job %s: rank 0 has not been reached yet; looking for it %s", l->job, where);
}

void join_count_wait(struct engine *e, uint64_t now)
{
	e->job.join->rank.since_ms = now;
	e->job.join->rank.say_ms = e->rank ? ZERO_MS : SAY_MS;
}

void join_say_when_long(struct engine *e, uint64_t now)
{
	const struct join *j = e->job.join;
	struct join_rank *r = &e->job.join->rank;
	uint64_t waited = now - r->since_ms;

	if (!e->is_rank || e->job.ready || waited < r->say_ms ||
	    (!r->described && j->state != JOIN_FIND))
		return;
	if (r->say_ms < SAY_MS) {
		if (e->rank && (j->state == JOIN_FIND || !j->welcome.world))
			say_where(e);
		r->say_ms = SAY_MS;
		return;
	}
	say_waiting(e, (unsigned)(waited / 1000));
	r->say_ms =
		waited + u64_min(waited, SAY_MAX_MS); /* twice as long, at most 10 min more */
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/commit/freezes.h"
#include "engine/node/event-log.h"
#include "engine/write/transaction.h"
#include "engine/job/join.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/source.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"
#include "engine/read/cut-reads.h"
#include "engine/read/owner-stats.h"
#include "engine/read/prefetch.h"
#include "engine/read/readahead.h"
#include "engine/read/remote-read.h"
#include "engine/read/view-reader.h"
#include "engine/watch/event-stream.h"
#include "engine/watch/place-order.h"
#include "engine/watch/rank-query.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static int wait_ready(struct engine *e, const char *source, char *why, size_t whysize)
{
	uint64_t deadline = monotonic_ms() + e->timeout_ms;
	int rc;

	LOCKED(&e->lock);
	rc = join_wait(e, deadline);
	if (rc && !e->job.failure && e->job.why[0])
		/* job.why without a failure: a rank has answered, but joining has not ended */
		rc = -EAGAIN;
	if (rc && e->job.why[0])
		snprintf(why, whysize, "%s", e->job.why);
	else if (rc)
		snprintf(why, whysize,
			 "%s: no answer: no fragfs job is there, or it has another key (-o "
			 "key=FILE, -o plain; fragctl: FRAG_KEY_FILE, FRAG_PLAIN=1)",
			 source);
	return rc;
}

static const struct transport_ops *memory_for(const char *transport)
{
	return transport && !strcmp(transport, "zmq") ? NULL : &transport_host;
}

static int check_transport(const char *name, char *why, size_t size)
{
	if (!name || !strcmp(name, "auto") || !strcmp(name, "zmq"))
		return 0;
	snprintf(why, size, "transport=%s is neither auto nor zmq", name);
	return -EINVAL;
}

/* Asks for the tables of the ranks that the tree's listings need first. */
static void want_first_tables(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	for (uint32_t i = 0; i < e->catalog->ngroups; i++)
		peers_want_states(e, e->catalog->groups[i].ranks[0]);
	peers_want_states(e, 0);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

static int take_key(struct engine *e, const struct engine_options *o, char *why, size_t size)
{
	struct source_key key;
	int rc = source_key(o, &key, why, size);

	join_take_key(e, &key);
	return rc;
}

static int open_source(struct engine *e, const struct engine_options *o, char *why, size_t size)
{
	/* source is the address, also where o has the name of a job */
	struct engine_options at = *o;
	char seeds[1024];
	struct jobfile job;
	int rc;

	at.source = source_address(o->source, &job);
	rc = source_parse(at.source, seeds, sizeof(seeds), why, size);
	if (!rc)
		rc = take_key(e, &at, why, size);
	if (!rc)
		rc = source_probe(at.source, why, size);
	if (!rc)
		rc = launch_host(e->launch.host);
	if (!rc && (rc = node_open_messages(e, NULL)))
		snprintf(why, size, "cannot open a message transport: %s", strerror(-rc));
	if (!rc)
		rc = join_start_observer(e, seeds);
	if (!rc)
		rc = join_keep_options(e, o);
	if (!rc)
		rc = loop_start_thread(e);
	return rc ? rc : wait_ready(e, o->source, why, size);
}

static int check_gather(struct engine *e, const char *how, char *why, size_t size)
{
	int rc = prefetch_init(e, how);

	if (rc)
		snprintf(why, size, "gather=%s is none of auto, nccl, host", how);
	return rc;
}

int live_open(struct engine **out, const struct engine_options *o, char *why, size_t whysize)
{
	struct engine *e;
	int rc = check_transport(o->transport, why, whysize);

	if (rc)
		return rc;
	snprintf(why, whysize, "cannot start an engine");
	rc = loop_new(&e, &live_ops, &transport_zmq, memory_for(o->transport));
	if (rc)
		return rc;
	if (o->timeout_ms)
		e->timeout_ms = o->timeout_ms;
	e->write.allowed = o->writable;
	e->write.local_allowed = o->local;
	e->read.asks_ahead = !o->readahead_off;
	rc = check_gather(e, o->gather, why, whysize);
	if (!rc)
		rc = open_source(e, o, why, whysize);
	if (!rc && !o->readahead_off)
		rc = readahead_new(e);
	if (rc) {
		loop_free(e);
		return rc;
	}
	want_first_tables(e);
	*out = e;
	return 0;
}

/* ---- what there is ---- */

static uint32_t nparams(struct engine *e)
{
	return e->catalog->nparams;
}

static uint32_t nparts(struct engine *e)
{
	return 0;
}

static bool get_part(struct engine *e, uint32_t part, struct engine_part *out)
{
	return false;
}

static uint32_t nbuffers(struct engine *e)
{
	return 0;
}

static uint32_t ngroups(struct engine *e)
{
	return e->catalog->ngroups;
}

static uint32_t nranks(struct engine *e)
{
	return e->world;
}

static bool param(struct engine *e, uint32_t param, struct engine_param *out)
{
	const struct catalog_param *p;

	if (param >= e->catalog->nparams)
		return false;
	p = &e->catalog->params[param];
	*out = (struct engine_param){
		.name = catalog_name(e->catalog, param),
		.coordinate = catalog_coordinate(e->catalog, param),
		.dtype = p->dtype,
		.ndim = p->ndim,
		.shape = catalog_shape(e->catalog, param),
		.numel = p->numel,
		.group = p->group == CATALOG_NONE ? -1 : (int)p->group,
		.position = p->position,
		.frozen = p->flags & FRAG_FROZEN,
		.same_as = param,
	};
	return true;
}

static bool group(struct engine *e, uint32_t group, struct engine_group *out)
{
	static const char *const kinds[] = { "zero0", "zero1", "zero2", "zero3" };
	static const char *const shardings[] = {
		[FRAG_FSDP2] = "fsdp2", [FRAG_FSDP1] = "fsdp1"
	};
	const struct catalog_group *g;

	if (group >= e->catalog->ngroups)
		return false;
	g = &e->catalog->groups[group];
	*out = (struct engine_group){
		.kind = g->sharding ? shardings[g->sharding] : kinds[g->stage],
		.shards = catalog_shards(g),
		.replicas = g->replicas,
		.sub_groups = g->layout.nsubs,
		.nparams = g->nparams,
		.params = g->params,
		.nranks = g->nranks,
		.ranks = g->ranks,
	};
	return true;
}

/* Returns the name of a state's tier, from the rank's table, or, where that is not here, from
 * another rank's: all ranks of a group register states alike.
 */
static const char *tier_of(struct engine *e, const struct catalog_group *g, uint32_t rank,
			   uint32_t group, uint32_t sub, const char *key)
{
	const struct states *states = e->peers[rank].states;
	int row;

	for (uint32_t i = 0; i < g->nranks && !states; i++)
		states = e->peers[g->ranks[i]].states;
	row = states ? states_find(states, STATE_PARTITION, group, sub, key) : -ENOENT;
	return states_tier_names[row >= 0 ? states->rows[row].tier : STATE_HOST];
}

static void fragments(struct engine *e, uint32_t param, const char *key,
		      void (*see)(void *arg, const struct engine_fragment *f), void *arg)
{
	const struct catalog_param *p;
	const struct catalog_group *g;
	struct layout_fragment f;
	struct cuts_box box;
	uint64_t both[2 * FRAG_DIMS_MAX];
	const char *tier;

	if (param >= e->catalog->nparams || e->catalog->params[param].group == CATALOG_NONE)
		return;
	p = &e->catalog->params[param];
	g = &e->catalog->groups[p->group];
	for (uint32_t i = 0; i < g->nranks; i++) {
		if (!layout_on_shard(&g->layout, p->position, i % g->layout.shards, &f))
			continue;
		pthread_mutex_lock(&e->lock);
		tier = tier_of(e, g, g->ranks[i], p->group, f.sub, key);
		pthread_mutex_unlock(&e->lock);
		if (p->cuts) {
			cuts_box(p->cuts, i % g->layout.shards, &box);
			memcpy(both, box.from, p->ndim * sizeof(*both));
			memcpy(both + p->ndim, box.size, p->ndim * sizeof(*both));
		}
		see(arg, &(struct engine_fragment){ .rank = g->ranks[i],
						    .tier = tier,
						    .group = p->group,
						    .sub = f.sub,
						    .partition_offset = f.partition_offset,
						    .param_offset = f.param_offset,
						    .numel = f.numel,
						    .box = p->cuts ? both : NULL });
	}
}

static uint64_t epoch(struct engine *e)
{
	return atomic_load(&e->event_log->epoch);
}

/* ---- files ---- */

/* Does plan_describe, and waits for the tables of states that it needs. */
static int describe(struct engine *e, const struct engine_address *a,
		    struct engine_state *state)
{
	uint64_t deadline = monotonic_ms() + e->timeout_ms, since = engine_asked_since();
	int rc, waited = 0;

	pthread_mutex_lock(&e->lock);
	while ((rc = plan_describe(e, a, since, state)) == -EAGAIN && !waited)
		waited = node_wait_answer(e, deadline);
	pthread_mutex_unlock(&e->lock);
	return rc == -EAGAIN ? waited : rc;
}

static bool is_grad(const struct engine_address *a)
{
	return !strcmp(a->key, "grad") && !a->now;
}

static int add_part(struct engine_file *f, const struct engine_address *a)
{
	struct engine_state state;
	int rc = describe(f->engine, a, &state);

	if (rc)
		return rc;
	f->parts[f->nparts++] = (struct file_part){
		.address = *a,
		.dtype = state.dtype,
		.at = f->bytes,
		.bytes = state.bytes,
		.cuts = a->kind == ENGINE_PARAM
				? catalog_file_cuts(f->engine->catalog, a->param)
				: NULL,
	};
	return u64_add(f->bytes, state.bytes, &f->bytes) ? 0 : -EOVERFLOW;
}

int live_file_open(struct engine *e, const struct engine_address *addresses, uint32_t n,
		   struct engine_file **file, uint64_t *bytes)
{
	struct engine_file *f;
	int rc = 0;

	for (uint32_t i = 0; i < n && n > 1; i++)
		if (addresses[i].kind != ENGINE_PARAM || addresses[i].now ||
		    is_grad(&addresses[i]) != is_grad(addresses))
			return -EINVAL;
	f = calloc(1, sizeof(*f) + n * sizeof(*f->parts));
	if (!f)
		return -ENOMEM;
	f->engine = e;
	f->parts = (struct file_part *)(f + 1);
	f->opened_ns = monotonic_ns();
	f->incarnation = e->job.incarnation;
	f->is_grad = is_grad(addresses);
	for (uint32_t i = 0; i < n && !rc; i++)
		rc = add_part(f, &addresses[i]);
	if (rc) {
		free(f);
		return rc;
	}
	*file = f;
	*bytes = f->bytes;
	return 0;
}

void live_file_close(struct engine_file *f)
{
	if (!f)
		return;
	readahead_drop(f);
	pthread_mutex_lock(&f->engine->lock);
	prefetch_close(f->engine, f);
	remote_read_drop_ahead(f->engine, f);
	view_reader_close(f->engine, f);
	pthread_mutex_unlock(&f->engine->lock);
	/* whole bytes beyond ENGINE_READ_MAX are in a readahead_buffer (read/reads.c) */
	if (f->bytes > ENGINE_READ_MAX && f->whole) {
		readahead_give(f->engine, f->whole);
		atomic_fetch_sub(&f->engine->read.nwhole, 1);
	} else {
		free(f->whole);
	}
	free(f);
}

/* ---- behind the door ---- */

const struct engine_ops live_ops = {
	.live = true,
	.close = loop_free,
	.nparams = nparams,
	.nbuffers = nbuffers,
	.nparts = nparts,
	.part = get_part,
	.ngroups = ngroups,
	.nranks = nranks,
	.param = param,
	.group = group,
	.epoch = epoch,
	.states = live_states,
	.rank_states = live_rank_states,
	.partition_states = live_partition_states,
	.hypers = live_hypers,
	.rank = live_rank,
	.job = live_job,
	.changes = watch_changes,
	.wait = watch_wait,
	.wait_epoch = watch_wait_epoch,
	.wait_cancel = watch_cancel,
	.text = live_text,
	.rank_text = rank_query_text,
	.rank_arena = live_rank_arena,
	.place = place_order_give,
	.changed_ns = live_changed_ns,
	.fragments = fragments,
	.events_open = event_stream_open,
	.events_close = event_stream_close,
	.events_read = event_stream_read,
	.events_ready = event_stream_ready,
	.file_open = live_file_open,
	.file_close = live_file_close,
	.read = cut_reads_start,
	.read_cancel = cut_reads_cancel,
	.sums = owner_stats_start,
	.sums_cancel = owner_stats_cancel,
	.write = transaction_ask,
	.write_cancel = transaction_cancel,
	.freeze = freezes_start,
	.freeze_cancel = freezes_cancel,
};

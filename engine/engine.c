/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/dtype.h"
#include "engine/join.h"
#include "engine/peers.h"
#include "engine/plan.h"
#include "engine/readahead.h"
#include "engine/source.h"
#include "engine/turn.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- opening ---- */

static void deadline_after(struct timespec *t, unsigned ms)
{
	clock_gettime(CLOCK_MONOTONIC, t);
	t->tv_sec += ms / 1000;
	t->tv_nsec += (long)(ms % 1000) * 1000000;
	if (t->tv_nsec >= 1000000000) {
		t->tv_sec++;
		t->tv_nsec -= 1000000000;
	}
}

static int wait_ready(struct engine *e, char *why, size_t whysize)
{
	struct timespec deadline;
	int rc = 0;

	deadline_after(&deadline, e->timeout_ms);
	pthread_mutex_lock(&e->lock);
	while (!e->ready && !e->failure && rc != ETIMEDOUT)
		rc = pthread_cond_timedwait(&e->changed, &e->lock, &deadline);
	if (e->ready)
		rc = 0;
	else if (e->failure)
		rc = e->failure;
	else
		rc = e->why[0] ? -EAGAIN : -ETIMEDOUT;
	if (rc)
		snprintf(why, whysize, "%s", e->why[0] ? e->why :
			 "no answer: no fragfs job is there, or it has another key (-o key=FILE, -o plain)");
	pthread_mutex_unlock(&e->lock);
	return rc;
}

static const struct transport_ops *memory_for(const char *transport)
{
	return transport && !strcmp(transport, "zmq") ? NULL : &transport_host;
}

static int check_transport(const char *name, char *why, size_t size)
{
	if (!name || !strcmp(name, "auto") || !strcmp(name, "host") || !strcmp(name, "zmq"))
		return 0;
	snprintf(why, size, "transport=%s is none of auto, host, zmq", name);
	return -EINVAL;
}

/* Tables of the ranks that the tree's listings ask for first. */
static void want_first_tables(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	for (uint32_t i = 0; i < e->catalog->ngroups; i++)
		peers_want_states(e, e->catalog->groups[i].ranks[0]);
	peers_want_states(e, 0);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

static int open_source(struct engine *e, const struct engine_options *o, char *why, size_t size)
{
	char seeds[1024];
	int rc = source_parse(o->source, seeds, sizeof(seeds), why, size);

	if (!rc)
		rc = source_key(o, e->key, &e->has_key, why, size);
	if (!rc)
		rc = source_probe(o->source, why, size);
	if (!rc)
		rc = launch_host(e->launch.host);
	if (!rc && (rc = node_open_messages(e, NULL)))
		snprintf(why, size, "cannot open a message transport: %s", strerror(-rc));
	if (!rc)
		rc = join_start_observer(e, seeds);
	if (!rc)
		rc = turn_start_thread(e);
	return rc ? rc : wait_ready(e, why, size);
}

int engine_open(struct engine **out, const struct engine_options *o, char *why, size_t whysize)
{
	struct engine *e;
	int rc = check_transport(o->transport, why, whysize);

	if (rc)
		return rc;
	snprintf(why, whysize, "cannot start an engine");
	rc = turn_new(&e, &transport_zmq, memory_for(o->transport));
	if (rc)
		return rc;
	if (o->timeout_ms)
		e->timeout_ms = o->timeout_ms;
	e->writable = o->writable;
	rc = open_source(e, o, why, whysize);
	if (!rc && !o->readahead_off)
		rc = readahead_new(e);
	if (rc) {
		turn_free(e);
		return rc;
	}
	want_first_tables(e);
	*out = e;
	return 0;
}

void engine_close(struct engine *e)
{
	turn_free(e);
}

/* ---- what there is ---- */

uint32_t engine_nparams(struct engine *e)
{
	return e->catalog->nparams;
}

uint32_t engine_ngroups(struct engine *e)
{
	return e->catalog->ngroups;
}

uint32_t engine_nranks(struct engine *e)
{
	return e->world;
}

bool engine_param(struct engine *e, uint32_t param, struct engine_param *out)
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
		.frozen = p->flags & FRAG_FROZEN,
	};
	return true;
}

bool engine_group(struct engine *e, uint32_t group, struct engine_group *out)
{
	static const char *const kinds[] = { "zero0", "zero1", "zero2", "zero3" };
	const struct catalog_group *g;

	if (group >= e->catalog->ngroups)
		return false;
	g = &e->catalog->groups[group];
	*out = (struct engine_group){
		.kind = g->sharding == FRAG_FSDP2 ? "fsdp2" : kinds[g->stage],
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

int engine_find_param(struct engine *e, const char *name, const char *coordinate, uint32_t *param)
{
	uint32_t found = catalog_find(e->catalog, name, coordinate);

	if (found == CATALOG_NONE)
		return -ENOENT;
	*param = found;
	return 0;
}

uint64_t engine_epoch(struct engine *e)
{
	return atomic_load(&e->epoch);
}

/* With the lock: waits until the rank's table is here.  -EIO: lost; -ETIMEDOUT. */
static int wait_states(struct engine *e, uint32_t rank)
{
	struct timespec deadline;
	int rc, waited = 0;

	if (rank >= e->world)
		return -ENOENT;
	deadline_after(&deadline, e->timeout_ms);
	while ((rc = peers_want_states(e, rank)) == -EAGAIN && !waited) {
		if (e->peers[rank].states) /* stale: good enough for a listing */
			return 0;
		node_wake(e);
		waited = pthread_cond_timedwait(&e->changed, &e->lock, &deadline);
	}
	return waited ? -ETIMEDOUT : rc;
}

/* The rank whose table speaks for all that share the parameter. */
static uint32_t speaker(const struct engine *e, const struct catalog_param *p)
{
	const struct catalog_group *g;

	if (p->group == CATALOG_NONE)
		return p->owner;
	g = &e->catalog->groups[p->group];
	for (uint32_t i = 0; i < g->nranks; i++)
		if (e->peers[g->ranks[i]].state == ENGINE_RANK_ALIVE)
			return g->ranks[i];
	return g->ranks[0];
}

static int compare_states(const void *a, const void *b)
{
	return strcmp(((const struct engine_state *)a)->key, ((const struct engine_state *)b)->key);
}

struct listing {
	struct engine *e;
	struct engine_state *out;
	int n, max;
};

static void list_key(struct listing *l, const struct engine_address *a, unsigned flags)
{
	struct engine_state state;

	for (int i = 0; i < l->n && i < l->max; i++)
		if (!strcmp(l->out[i].key, a->key))
			return;
	if (plan_describe(l->e, a, &state))
		return;
	state.flags = flags;
	if (l->n < l->max)
		l->out[l->n] = state;
	l->n++;
}

static void list_lp(struct listing *l, struct engine_address a, const struct catalog_param *p)
{
	strcpy(a.key, dtype_lp_key(p->dtype));
	list_key(l, &a, ENGINE_STATE_LP);
}

/* Keys of the parameter's states, as one rank's table has them. */
static void list_param(struct listing *l, struct engine_address a, const struct states *states)
{
	const struct catalog_param *p = &l->e->catalog->params[a.param];
	unsigned flags = l->e->writable ? ENGINE_STATE_WRITABLE : 0;

	list_lp(l, a, p);
	for (uint32_t i = 0; i < states->ngroup_rows && p->group != CATALOG_NONE; i++) {
		const struct state_row *row = &states->rows[states->group_rows[i]];

		if ((row->kind != STATE_PARTITION && row->kind != STATE_WHOLE) || row->index != p->group)
			continue;
		memcpy(a.key, row->key, sizeof(a.key));
		list_key(l, &a, flags);
	}
}

static int finish_listing(struct listing *l)
{
	qsort(l->out, (size_t)(l->n < l->max ? l->n : l->max), sizeof(*l->out), compare_states);
	return l->n;
}

static int list_states(struct engine *e, struct engine_address a, uint32_t rank, struct engine_state *out,
		       int max)
{
	struct listing l = { e, out, 0, max };
	int rc;

	if (a.param >= e->catalog->nparams)
		return -ENOENT;
	pthread_mutex_lock(&e->lock);
	if (a.kind == ENGINE_PARAM)
		rank = speaker(e, &e->catalog->params[a.param]);
	rc = wait_states(e, rank);
	if (!rc)
		list_param(&l, a, e->peers[rank].states);
	pthread_mutex_unlock(&e->lock);
	return rc ? rc : finish_listing(&l);
}

int engine_states(struct engine *e, uint32_t param, struct engine_state *out, int max)
{
	return list_states(e, (struct engine_address){ .kind = ENGINE_PARAM, .param = param }, 0, out, max);
}

int engine_rank_states(struct engine *e, uint32_t rank, uint32_t param, struct engine_state *out, int max)
{
	struct engine_address a = { .kind = ENGINE_RANK_PARAM, .rank = rank, .param = param };

	return list_states(e, a, rank, out, max);
}

/* Rows of one kind, group and sub-group on one rank. */
static int list_rows(struct engine *e, uint32_t rank, enum state_kind kind, uint32_t group, uint32_t sub,
		     struct engine_state *out, int max)
{
	struct listing l = { e, out, 0, max };
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = wait_states(e, rank);
	for (uint32_t i = 0; !rc && i < e->peers[rank].states->ngroup_rows; i++) {
		const struct states *states = e->peers[rank].states;
		const struct state_row *row = &states->rows[states->group_rows[i]];

		if (row->kind != kind || row->index != group || row->sub != sub)
			continue;
		if (l.n < max) {
			out[l.n] = (struct engine_state){ .dtype = row->dtype,
				.bytes = row->numel * frag_dtype_size(row->dtype),
				.flags = e->writable ? ENGINE_STATE_WRITABLE : 0 };
			memcpy(out[l.n].key, row->key, sizeof(row->key));
		}
		l.n++;
	}
	pthread_mutex_unlock(&e->lock);
	return rc ? rc : finish_listing(&l);
}

int engine_partition_states(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
			    struct engine_state *out, int max)
{
	if (group >= e->catalog->ngroups || sub >= e->catalog->groups[group].layout.nsubs)
		return -ENOENT;
	return list_rows(e, rank, STATE_PARTITION, group, sub, out, max);
}

int engine_hypers(struct engine *e, uint32_t group, struct engine_state *out, int max)
{
	if (group >= e->catalog->ngroups)
		return -ENOENT;
	return list_rows(e, e->catalog->groups[group].ranks[0], STATE_HYPER, group, 0, out, max);
}

/* ---- files ---- */

static int describe(struct engine *e, const struct engine_address *a, struct engine_state *state)
{
	struct timespec deadline;
	int rc, waited = 0;

	deadline_after(&deadline, e->timeout_ms);
	pthread_mutex_lock(&e->lock);
	while ((rc = plan_describe(e, a, state)) == -EAGAIN && !waited) {
		node_wake(e);
		if (!e->threaded)
			break;
		waited = pthread_cond_timedwait(&e->changed, &e->lock, &deadline);
	}
	pthread_mutex_unlock(&e->lock);
	return rc == -EAGAIN && waited ? -ETIMEDOUT : rc;
}

int engine_file_open(struct engine *e, const struct engine_address *address, struct engine_file **file,
		     uint64_t *bytes)
{
	struct engine_state state;
	struct engine_file *f;
	int rc = describe(e, address, &state);

	if (rc)
		return rc;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->engine = e;
	f->address = *address;
	f->bytes = state.bytes;
	f->dtype = state.dtype;
	f->is_grad = !strcmp(address->key, "grad");
	*file = f;
	*bytes = state.bytes;
	return 0;
}

void engine_file_close(struct engine_file *f)
{
	if (f)
		readahead_drop(f);
	free(f);
}

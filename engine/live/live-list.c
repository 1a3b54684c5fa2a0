/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/live/live.h"
#include "engine/node/peers.h"
#include "engine/node/plan.h"

#include <errno.h>
#include <string.h>

/* Which states a parameter, a rank's partition or a group has, as the ranks' tables say. */

/* With the lock: asks for the rank's table, if it is not here; an old one will do.
 * -ENOENT: there is no such rank.
 * -EIO: the rank is lost.
 * -ETIMEDOUT: the rank is silent.
 * -EAGAIN: the table is on its way.
 */
static int want_states(struct engine *e, uint32_t rank)
{
	int rc;

	if (rank >= e->world)
		return -ENOENT;
	if (peers_is_readable(e, rank))
		return 0;
	rc = peers_want_states(e, rank);
	return rc == -EAGAIN && e->peers[rank].states ? 0 : rc;
}

/* Does as want_states, and waits for the table.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 */
static int wait_states(struct engine *e, uint32_t rank)
{
	uint64_t deadline = monotonic_ms() + e->timeout_ms;
	int rc, waited = 0;

	while ((rc = want_states(e, rank)) == -EAGAIN && !waited)
		waited = node_wait_answer(e, deadline);
	return rc == -EAGAIN ? waited : rc;
}

static bool is_lost(int rc)
{
	return rc == -EIO || rc == -ETIMEDOUT;
}

/* For the names of a lost rank's states its last table will do. */
static int of_names(const struct engine *e, uint32_t rank, int rc)
{
	return is_lost(rc) && e->peers[rank].states ? 0 : rc;
}

/* Returns the rank whose table speaks for all ranks of the group. */
static uint32_t group_speaker(const struct engine *e, const struct catalog_group *g)
{
	for (uint32_t i = 0; i < g->nranks; i++)
		if (e->peers[g->ranks[i]].state == ENGINE_RANK_ALIVE &&
		    !e->peers[g->ranks[i]].silence_told)
			return g->ranks[i];
	for (uint32_t i = 0; i < g->nranks; i++)
		if (e->peers[g->ranks[i]].states)
			return g->ranks[i];
	return g->ranks[0];
}

/* Returns the rank whose table speaks for all ranks that have the parameter. */
static uint32_t speaker(const struct engine *e, const struct catalog_param *p)
{
	return p->group == CATALOG_NONE ? p->owner
					: group_speaker(e, &e->catalog->groups[p->group]);
}

static int compare_states(const void *a, const void *b)
{
	return strcmp(((const struct engine_state *)a)->key,
		      ((const struct engine_state *)b)->key);
}

static unsigned writable(const struct engine *e, enum engine_address_kind kind)
{
	return e->write.allowed && (e->write.local_allowed || !engine_is_local(kind))
		       ? ENGINE_STATE_WRITABLE
		       : 0;
}

struct states_listing {
	struct engine *e;
	struct engine_state *out;
	int n, max;
	bool again; /* a table is being fetched: wait, and begin anew */
	bool lost;  /* the rank is lost: its last table is listed */
};

/* Adds a state, once.  dtype counts where all ranks that have the state are lost. */
static void list_key(struct states_listing *l, const struct engine_address *a,
		     enum frag_dtype dtype, unsigned flags)
{
	const struct catalog_param *p = &l->e->catalog->params[a->param];
	struct engine_state state = { .dtype = dtype,
				      .bytes = p->numel * frag_dtype_size(dtype) };
	int rc;

	for (int i = 0; i < l->n && i < l->max; i++)
		if (!strcmp(l->out[i].key, a->key))
			return;
	rc = plan_describe(l->e, a, 0, &state);
	l->again |= rc == -EAGAIN;
	if (rc && (!is_lost(rc) || !l->lost))
		return;
	memcpy(state.key, a->key, sizeof(state.key));
	state.flags = flags;
	if (l->n < l->max)
		l->out[l->n] = state;
	l->n++;
}

static bool has_master(const struct engine *e, const struct catalog_param *p,
		       const struct states *states)
{
	uint32_t sub;

	if (p->group == CATALOG_NONE || p->flags & FRAG_FROZEN)
		return false;
	sub = layout_sub(&e->catalog->groups[p->group].layout, p->position);
	return states_find(states, STATE_PARTITION, p->group, sub, "fp32") >= 0 ||
	       states_find(states, STATE_WHOLE, p->group, 0, "fp32") >= 0;
}

static void list_lp(struct states_listing *l, struct engine_address a,
		    const struct catalog_param *p, const struct states *states)
{
	unsigned flags = ENGINE_STATE_LP;

	if (states_find(states, STATE_LP, a.param, 0, "") < 0 &&
	    states_find(states, STATE_LP_SHARD, a.param, 0, "") < 0 && l->lost)
		return;
	/* without a master the parameter is edited itself, on all ranks, so that copies stay
	 * alike
	 */
	if (l->e->write.allowed && a.kind == ENGINE_PARAM && !has_master(l->e, p, states))
		flags |= ENGINE_STATE_WRITABLE;
	strcpy(a.key, dtype_lp_key(p->dtype));
	list_key(l, &a, p->dtype, flags);
}

/* Lists the parameter's states, as one rank's table has them. */
static void list_param(struct states_listing *l, struct engine_address a,
		       const struct states *states)
{
	const struct catalog_param *p = &l->e->catalog->params[a.param];
	unsigned flags = writable(l->e, a.kind);

	list_lp(l, a, p, states);
	for (uint32_t i = 0; i < states->ngroup_rows && p->group != CATALOG_NONE; i++) {
		const struct state_row *row = &states->rows[states->group_rows[i]];

		if ((row->kind != STATE_PARTITION && row->kind != STATE_WHOLE) ||
		    row->index != p->group)
			continue;
		memcpy(a.key, row->key, sizeof(a.key));
		list_key(l, &a, row->dtype, flags);
	}
}

static int finish_listing(struct states_listing *l)
{
	qsort(l->out, (size_t)(l->n < l->max ? l->n : l->max), sizeof(*l->out), compare_states);
	return l->n;
}

static int list_states(struct engine *e, struct engine_address a, uint32_t rank,
		       struct engine_state *out, int max)
{
	struct states_listing l = { .e = e, .out = out, .max = max, .again = true };
	uint64_t deadline = monotonic_ms() + e->timeout_ms;
	int rc = 0;

	if (a.param >= e->catalog->nparams)
		return -ENOENT;
	pthread_mutex_lock(&e->lock);
	while (!rc && l.again) {
		if (a.kind == ENGINE_PARAM)
			rank = speaker(e, &e->catalog->params[a.param]);
		rc = want_states(e, rank);
		if (a.kind == ENGINE_PARAM)
			rc = of_names(e, rank, rc);
		l.n = 0;
		l.again = rc == -EAGAIN;
		l.lost = !rc && !peer_is_live(&e->peers[rank]);
		if (!rc)
			list_param(&l, a, e->peers[rank].states);
		if (l.again)
			rc = node_wait_answer(e, deadline);
	}
	pthread_mutex_unlock(&e->lock);
	return rc ? rc : finish_listing(&l);
}

int live_states(struct engine *e, uint32_t param, struct engine_state *out, int max)
{
	return list_states(e, (struct engine_address){ .kind = ENGINE_PARAM, .param = param },
			   0, out, max);
}

int live_rank_states(struct engine *e, uint32_t rank, uint32_t param, struct engine_state *out,
		     int max)
{
	struct engine_address a = { .kind = ENGINE_RANK_PARAM, .rank = rank, .param = param };

	return list_states(e, a, rank, out, max);
}

/* Lists the rows of one kind, group and sub-group on one rank. */
static int list_rows(struct engine *e, uint32_t rank, enum state_kind kind, uint32_t group,
		     uint32_t sub, struct engine_state *out, int max)
{
	unsigned flags =
		writable(e, kind == STATE_HYPER ? ENGINE_HYPER : ENGINE_RANK_PARTITION);
	struct states_listing l = { .e = e, .out = out, .max = max };
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = of_names(e, rank, wait_states(e, rank));
	for (uint32_t i = 0; !rc && i < e->peers[rank].states->ngroup_rows; i++) {
		const struct states *states = e->peers[rank].states;
		const struct state_row *row = &states->rows[states->group_rows[i]];

		if (row->kind != kind || row->index != group || row->sub != sub)
			continue;
		if (l.n < max) {
			out[l.n] = (struct engine_state){ .dtype = row->dtype,
							  .bytes = states_row_whole(row),
							  .flags = flags };
			memcpy(out[l.n].key, row->key, sizeof(row->key));
		}
		l.n++;
	}
	pthread_mutex_unlock(&e->lock);
	return rc ? rc : finish_listing(&l);
}

int live_partition_states(struct engine *e, uint32_t rank, uint32_t group, uint32_t sub,
			  struct engine_state *out, int max)
{
	if (group >= e->catalog->ngroups || sub >= e->catalog->groups[group].layout.nsubs)
		return -ENOENT;
	return list_rows(e, rank, STATE_PARTITION, group, sub, out, max);
}

int live_hypers(struct engine *e, uint32_t group, struct engine_state *out, int max)
{
	uint32_t rank;

	if (group >= e->catalog->ngroups)
		return -ENOENT;
	pthread_mutex_lock(&e->lock);
	rank = group_speaker(e, &e->catalog->groups[group]);
	pthread_mutex_unlock(&e->lock);
	return list_rows(e, rank, STATE_HYPER, group, 0, out, max);
}

int live_rank_arena(struct engine *e, uint32_t rank)
{
	int rc;

	pthread_mutex_lock(&e->lock);
	rc = wait_states(e, rank);
	if (!rc)
		rc = states_find(e->peers[rank].states, STATE_ARENA, 0, 0, "") >= 0;
	pthread_mutex_unlock(&e->lock);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/base/thread.h"
#include "engine/base/vec.h"
#include "engine/catalog/condition.h"
#include "engine/commit/termination.h"
#include "engine/memory/memory.h"
#include "engine/node/peers.h"
#include "engine/serve/checks.h"
#include "engine/serve/serve-stats.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* CHUNK stays in the processor's cache from its copy to its sums.  RETRY_MS lies between two
 * CHECKED for a watch, until the rank goes on.
 */
enum { CHUNK = 128 << 10, RETRY_MS = 200 };

struct checks {
	uint64_t transaction[2]; /* the watch */
	/* of uint32_t: numbers, in e->own, of the parameters that the watch names */
	struct vec params;
	uint64_t content; /* the content that was checked last; 0: none */
	uint64_t applied; /* the participant's count of edits at that check */
	bool *live;       /* [world] */
	uint8_t *chunk;   /* CHUNK bytes */
};

/* A run of a parameter's elements in a row of this rank, and the members of its group that have
 * the run: first, first + stride ...
 */
struct held {
	enum state_kind kind;
	uint32_t index, sub;
	const char *key;
	uint64_t at;     /* element of the parameter, in stored order */
	uint64_t in_row; /* element of the row */
	uint64_t numel;
	uint32_t stride;
};

/* ---- what this rank holds ---- */

static bool piece_held(const struct catalog *c, uint32_t param, uint32_t place,
		       struct held *held)
{
	const struct catalog_param *p = &c->params[param];
	uint32_t shards = catalog_shards(&c->groups[p->group]);
	uint64_t piece = catalog_lp_piece(c, param);
	struct cuts_box box = { 0 };

	if (p->cuts) {
		cuts_box(p->cuts, place % shards, &box);
	} else if (u64_mul(place % shards, piece, &box.start) && box.start < p->numel) {
		box.numel = u64_min(piece, p->numel - box.start);
	}
	*held = (struct held){ .kind = STATE_LP_SHARD,
			       .index = param,
			       .key = "",
			       .at = box.start,
			       .numel = box.numel,
			       .stride = shards };
	return box.numel;
}

static bool partition_held(const struct catalog *c, uint32_t param, uint32_t place,
			   const char *key, struct held *held)
{
	const struct catalog_param *p = &c->params[param];
	const struct layout *layout = &c->groups[p->group].layout;
	struct layout_fragment f;

	if (!layout_on_shard(layout, p->position, place % layout->shards, &f))
		return false;
	*held = (struct held){ .kind = STATE_PARTITION,
			       .index = p->group,
			       .sub = f.sub,
			       .key = key,
			       .at = f.param_offset,
			       .in_row = f.partition_offset,
			       .numel = f.numel,
			       .stride = layout->shards };
	return true;
}

/* Finds a row with this rank's elements of a state, and fills *held.  Returns the row, or
 * -ENOENT.
 */
static int find_held(struct engine *e, uint32_t param, uint32_t place, const char *key,
		     struct held *held, enum frag_dtype *dtype)
{
	const struct catalog_param *p = &e->own->params[param];
	const struct catalog_group *g =
		p->group == CATALOG_NONE ? NULL : &e->own->groups[p->group];
	bool lp = dtype_is_lp_key((enum frag_dtype)p->dtype, key);
	struct held whole = {
		.kind = STATE_LP, .index = param, .key = "", .numel = p->numel, .stride = 1
	};
	int row = -ENOENT;

	if (!lp && (!g || p->flags & FRAG_FROZEN))
		return -ENOENT;
	if (lp ? g && catalog_lp_is_sharded(g) && piece_held(e->own, param, place, held)
	       : partition_held(e->own, param, place, key, held))
		row = registry_find(&e->registry, held->kind, held->index, held->sub, held->key,
				    dtype);
	if (row >= 0)
		return row;
	if (!lp) {
		whole.kind = STATE_WHOLE;
		whole.index = p->group;
		whole.key = key;
		whole.in_row = g->layout.offset[p->position];
	}
	*held = whole;
	return registry_find(&e->registry, whole.kind, whole.index, 0, whole.key, dtype);
}

/* Returns true if this rank is the first live one of those that have the run. */
static bool is_first(const struct engine *e, const struct checks *k,
		     const struct catalog_group *g, uint32_t place, const struct held *held,
		     uint32_t param)
{
	if (!g)
		return e->catalog->params[e->job.map_params[param]].owner == e->rank;
	for (uint32_t i = place % held->stride; i < place; i += held->stride)
		if (k->live[g->ranks[i]])
			return false;
	return true;
}

/* ---- the values ---- */

/* Returns the first element of values whose magnitude is above the condition's; there is one.
 */
static uint64_t find_above(const struct wire_condition *c, enum frag_dtype dtype,
			   const uint8_t *values, uint64_t n)
{
	uint64_t first = 0, element = frag_dtype_size(dtype);
	struct stats half;

	while (n > 1) {
		stats_init(&half, false);
		stats_add(&half, dtype, values + first * element, n / 2, 0);
		if (stats_absmax(&half) > condition_above(c)) {
			n /= 2;
		} else {
			first += n / 2;
			n -= n / 2;
		}
	}
	return first;
}

/* Sets value and element of *found; the value is 0 where the fragment has nothing that the
 * condition asks for.
 */
static void tell_found(const struct wire_condition *c, const struct stats *values,
		       uint64_t first_above, struct wire_found *found)
{
	double value = 0;

	switch (c->quantity) {
	case WIRE_NAN:
		value = (double)values->nan;
		found->element = values->first_nan;
		break;
	case WIRE_INF:
		value = (double)values->inf;
		found->element = values->first_inf;
		break;
	case WIRE_NORM:
		value = values->finite ? stats_norm(values) : 0;
		break;
	case WIRE_ABSMAX:
		value = first_above == STATS_NONE ? 0 : stats_absmax(values);
		found->element = first_above;
		break;
	}
	memcpy(&found->value, &value, sizeof(value));
}

/* Reads a row of any tier; registry_read is for the trainer's thread alone. */
static int read_row(struct engine *e, uint32_t row, uint64_t offset, void *out, size_t size)
{
	int rc = registry_copy(&e->registry, 0, row, offset, out, size);

	return rc == -EREMOTE ? registry_read(&e->registry, 0, row, offset, out, size) : rc;
}

static int add_on_device(struct engine *e, uint32_t row, enum frag_dtype dtype,
			 const struct held *held, struct stats *values)
{
	enum device_what what = serve_stats_on_device(dtype, false);
	uint64_t element = frag_dtype_size(dtype);
	struct device_sums sums;
	int rc = -EOPNOTSUPP;

	if (device_is_sums(what))
		rc = registry_device_sums(&e->registry, row, held->in_row * element,
					  held->numel * element, what, &sums);
	if (!rc)
		serve_stats_add(values, &sums, held->numel, held->at);
	return rc;
}

/* Sets *first_above to the first element above the condition's magnitude. */
static int add_bytes(struct engine *e, struct checks *k, const struct wire_condition *c,
		     uint32_t row, enum frag_dtype dtype, const struct held *held,
		     struct stats *values, uint64_t *first_above)
{
	uint64_t element = frag_dtype_size(dtype);
	int rc;

	stats_init(values, false);
	for (uint64_t done = 0, some; done < held->numel; done += some) {
		some = u64_min(CHUNK / element, held->numel - done);
		rc = read_row(e, row, (held->in_row + done) * element, k->chunk,
			      some * element);
		if (rc)
			return rc;
		stats_add(values, dtype, k->chunk, some, held->at + done);
		if (c->quantity == WIRE_ABSMAX && *first_above == STATS_NONE &&
		    stats_absmax(values) > condition_above(c))
			*first_above = held->at + done + find_above(c, dtype, k->chunk, some);
	}
	return 0;
}

static int look(struct engine *e, struct checks *k, const struct wire_condition *c,
		uint32_t row, enum frag_dtype dtype, const struct held *held,
		struct wire_found *found)
{
	uint64_t first_above = STATS_NONE;
	struct stats values;
	int rc;

	if (!stats_has(dtype))
		return -EOPNOTSUPP;
	stats_init(&values, false);
	rc = add_on_device(e, row, dtype, held, &values);
	/* a device tells the greatest magnitude, and not its element */
	if (rc == -EOPNOTSUPP || rc == -ENOSYS ||
	    (!rc && c->quantity == WIRE_ABSMAX && stats_absmax(&values) > condition_above(c)))
		rc = add_bytes(e, k, c, row, dtype, held, &values, &first_above);
	if (rc)
		return rc == -ENODATA ? 0 : rc; /* no gradient was made for the parameter */
	tell_found(c, &values, first_above, found);
	return 0;
}

static int check_param(struct engine *e, struct checks *k, const struct wire_condition *c,
		       uint32_t param, struct vec *all)
{
	uint32_t group = e->own->params[param].group, place = 0;
	const struct catalog_group *g = group == CATALOG_NONE ? NULL : &e->own->groups[group];
	struct wire_found found = { .param = e->job.map_params[param] }, *to;
	enum frag_dtype dtype;
	struct held held;
	int row, rc;

	if (g)
		place = catalog_member(g, e->rank);
	if (place == CATALOG_NONE)
		return 0;
	row = find_held(e, param, place, c->key, &held, &dtype);
	if (row < 0 || !is_first(e, k, g, place, &held, param))
		return 0;
	rc = look(e, k, c, (uint32_t)row, dtype, &held, &found);
	if (rc || !found.value)
		return rc;
	if (all->count >= WIRE_FOUND_MAX)
		return -E2BIG;
	to = vec_add(all, sizeof(*to));
	if (!to)
		return -ENOMEM;
	*to = found;
	return 0;
}

/* ---- one check ---- */

static void forget(struct checks *k)
{
	free(k->params.items);
	free(k->live);
	free(k->chunk);
	*k = (struct checks){ 0 };
}

/* Finds the parameters that a new watch names. */
static int begin_watch(struct engine *e, struct checks *k,
		       const struct participant_check *check)
{
	forget(k);
	k->live = calloc(e->world, sizeof(*k->live));
	k->chunk = memory_for_copies(CHUNK);
	if (!k->live || !k->chunk)
		return -ENOMEM;
	for (uint32_t i = 0; i < e->own->nparams; i++) {
		uint32_t *number;

		if (!condition_names(&check->watch.condition, catalog_name(e->own, i)))
			continue;
		number = vec_add(&k->params, sizeof(*number));
		if (!number)
			return -ENOMEM;
		*number = i;
	}
	memcpy(k->transaction, check->transaction, sizeof(k->transaction));
	return 0;
}

static struct checks *checks_of(struct engine *e, const struct participant_check *check)
{
	if (!e->serve.checks)
		e->serve.checks = calloc(1, sizeof(*e->serve.checks));
	if (e->serve.checks &&
	    memcmp(e->serve.checks->transaction, check->transaction,
		   sizeof(check->transaction)) != 0 &&
	    begin_watch(e, e->serve.checks, check))
		return NULL;
	return e->serve.checks;
}

/* Returns a number of the present content, 0 if there is none.  Gradients keep their values to
 * the end of their window, though generations go on.
 */
static uint64_t present_content(const struct engine *e, const char *key)
{
	const struct control_page *c = e->registry.control;
	uint64_t grads = atomic_load_explicit(&c->grads, memory_order_relaxed);

	if (!strcmp(key, "grad"))
		return grads & 1 ? grads : 0;
	return atomic_load_explicit(&c->generation, memory_order_relaxed) + 1;
}

static int by_param(const void *a, const void *b)
{
	const struct wire_found *x = a, *y = b;

	return (x->param > y->param) - (x->param < y->param);
}

static int make(struct engine *e, const struct participant_check *check, struct vec *found)
{
	uint64_t content = present_content(e, check->watch.condition.key);
	struct checks *k = checks_of(e, check);
	const uint32_t *params;
	int rc = 0;

	if (!k)
		return -ENOMEM;
	/* content stays where an edit changes a gradient in its window, or a state while the
	 * generation is owed: so edits are counted, too
	 */
	if (!content || (content == k->content && e->participant.applied == k->applied))
		return 0;
	k->content = content;
	k->applied = e->participant.applied;
	pthread_mutex_lock(&e->lock);
	for (uint32_t rank = 0; rank < e->world; rank++)
		k->live[rank] = peer_is_live(&e->peers[rank]);
	pthread_mutex_unlock(&e->lock);
	params = k->params.items;
	for (uint32_t i = 0; i < k->params.count && !rc; i++)
		rc = check_param(e, k, &check->watch.condition, params[i], found);
	if (found->count)
		qsort(found->items, found->count, sizeof(struct wire_found), by_param);
	return rc;
}

void checks_make(struct engine *e, bool whole)
{
	struct participant_check check;
	struct vec found = { 0 };

	assert(thread_may_be_trainer());
	while (participant_to_check(&e->participant, &check)) {
		check.watch.status = whole ? make(e, &check, &found) : 0;
		check.watch.step =
			atomic_load_explicit(&e->registry.control->step, memory_order_relaxed);
		check.watch.count = found.count;
		check.watch.found = found.items;
		participant_checked(&e->participant, &check);
		found = (struct vec){ 0 };
	}
}

/* ---- telling ---- */

void checks_turn(struct engine *e, uint64_t now)
{
	struct participant_check check;

	assert(node_is_engine_thread(e));
	while (participant_take_check(&e->participant, now - u64_min(now, RETRY_MS), now,
				      &check)) {
		struct wire_checked body = { .transaction = { check.transaction[0],
							      check.transaction[1] },
					     .boundary = check.boundary,
					     .step = check.watch.step,
					     .status = check.watch.status,
					     .count = check.watch.count };

		peers_call(e, check.coordinator, WIRE_CHECKED, &body, check.watch.found,
			   body.count * sizeof(struct wire_found), termination_on_known, NULL,
			   check.coordinator);
		free(check.watch.found);
	}
}

void checks_free(struct engine *e)
{
	if (e->serve.checks)
		forget(e->serve.checks);
	free(e->serve.checks);
	e->serve.checks = NULL;
}

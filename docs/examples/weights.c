/* SPDX-License-Identifier: Apache-2.0 */

/* The bf16 parameters: rounded from the masters, and widened to the weights of a step. */

#include "trainer.h"

#include <math.h>
#include <string.h>

bool shards_move(const struct trainer *t)
{
	return t->options.swap_params || t->options.arena;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint16_t bf16_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40); /* quiet, so that the rest is never 0 */
	/* Rounds to nearest, ties to even. */
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float float_of(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

void narrow(struct trainer *t, int p, uint64_t at, const float *master, uint64_t n)
{
	const struct param *param = &t->param[p];
	uint16_t *lp = t->options.stage == 3 ? t->lp + param->shard
					     : t->lp + param->flat + param->own.param_offset;

	for (uint64_t i = 0; i < n; i++)
		lp[at + i] = bf16_of(master[i]);
	if (t->options.swap_params)
		need(t, "parameter", frag_param_put(t->frag, param->id, at, lp + at, n));
	if (t->options.arena)
		arena_put(t, p, at, lp + at, n);
}

/* Reads elements of a parameter from the ranks that have them, in memory or on NVMe. */
static void pull_param(struct trainer *t, int p, uint64_t at, uint16_t *to, uint64_t n)
{
	if (n > 0)
		need(t, "parameter",
		     frag_get_range(t->frag, t->param[p].id, "lp", at * sizeof(*to), to,
				    n * sizeof(*to)));
}

/* Gathers the leaf that begins with parameter p, or p alone if it is in no leaf; the shards are
 * on NVMe.  This rank's shards are brought in first, so that they are read from its memory;
 * those of the next parameter are brought in meanwhile; and one read gathers all ranks' shards.
 * Returns how many parameters are in `to`, one behind the other.
 */
static int gather_leaf(struct trainer *t, int p, uint16_t *to)
{
	int params[MODEL_NPARAMS] = { t->param[p].id };
	int leaf = need(t, "leaf", frag_leaf_params(t->frag, *params, params, MODEL_NPARAMS));
	int n = leaf ? leaf : 1, next = t->param[(p + n) % MODEL_NPARAMS].id;
	void *own[MODEL_NPARAMS];
	uint64_t bytes = 0;

	for (int i = 0; i < n; i++)
		bytes += t->model.param[p + i].numel * sizeof(*to);
	need(t, "parameter", frag_params_in(t->frag, params, (size_t)n, own));
	need(t, "parameter", frag_params_ahead(t->frag, &next, 1));
	need(t, "parameter",
	     leaf ? frag_leaf_get(t->frag, *params, "lp", to, bytes)
		  : frag_get(t->frag, *params, "lp", to, bytes));
	need(t, "parameter", frag_params_out(t->frag, params, (size_t)n, 0));
	return n;
}

/* Gathers a parameter whose shards are in arenas. */
static void gather_in_arenas(struct trainer *t, int p, uint16_t *to)
{
	uint64_t numel = t->model.param[p].numel, piece = t->param[p].piece;
	uint64_t from = least(numel, (uint64_t)t->rank * piece),
		 end = least(numel, from + piece);

	arena_get(t, p, to + from, end - from);
	pull_param(t, p, 0, to, from);
	pull_param(t, p, end, to + end, numel - end);
	arena_hold(t, to, numel);
}

/* Gathers the shards of parameter p that all ranks have published. */
static void gather(struct trainer *t, int p, uint16_t *to)
{
	uint64_t numel = t->model.param[p].numel, piece = t->param[p].piece;
	const uint16_t *own = t->lp + t->param[p].shard;

	for (int r = 0; r < t->world; r++) {
		uint64_t at = (uint64_t)r * piece;
		uint64_t n = at >= numel ? 0 : numel - at < piece ? numel - at : piece;

		if (r == t->rank)
			memcpy(to + at, own, n * sizeof(*to));
		else
			pull(t, r, "lp", t->param[p].shard * sizeof(*to), to + at,
			     n * sizeof(*to));
	}
}

/* Gathers parameter p or, if p begins a leaf, all of the leaf; returns how many parameters are
 * in `to`.
 */
static int gather_next(struct trainer *t, int p, uint16_t *to)
{
	if (t->options.swap_params)
		return gather_leaf(t, p, to);
	(t->options.arena ? gather_in_arenas : gather)(t, p, to);
	return 1;
}

static void widen(struct trainer *t, int p, const uint16_t *from)
{
	float *to = t->weight + t->param[p].flat;

	for (uint64_t i = 0; i < t->model.param[p].numel; i++)
		to[i] = float_of(from[i]);
}

void load_weights(struct trainer *t)
{
	uint16_t *gathered = NULL;

	for (int p = 0, end = 0; p < MODEL_NPARAMS; p++) {
		if (t->options.stage != 3) {
			widen(t, p, t->lp + t->param[p].flat);
			continue;
		}
		if (p == end) {
			gathered = (uint16_t *)t->scratch;
			end += gather_next(t, p, gathered);
		}
		widen(t, p, gathered);
		gathered += t->model.param[p].numel;
	}
	arena_let_go(t);
}

/* Stages 1 and 2: rank r's partition is elements [r * numel, (r + 1) * numel) of the group. */
void pull_parameters(struct trainer *t)
{
	if (t->options.stage != 1 && t->options.stage != 2)
		return;
	for (int g = 0; g < NGROUPS; g++) {
		const struct group *group = &t->group[g];

		for (int r = 0; r < t->world; r++) {
			uint64_t start = (uint64_t)r * group->numel, end = start + group->numel;
			uint64_t at = group->flat + start;

			end = end < group->total ? end : group->total;
			if (r != t->rank && start < end)
				pull(t, r, "lp", at * sizeof(*t->lp), t->lp + at,
				     (end - start) * sizeof(*t->lp));
		}
	}
}

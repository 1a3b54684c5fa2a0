/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/catalog/leaves.h"
#include "engine/rank/swapped-params.h"

#include <errno.h>

/* Pieces of low-precision parameters on NVMe. */

static int open_shards(struct frag *f)
{
	struct engine *e = f->engine;

	if (!e->registry.swapper)
		return -EOPNOTSUPP;
	if (e->trainer->swapped_params)
		return 0;
	return swapped_params_new(
		&e->trainer->swapped_params,
		&(struct swapped_params_options){ .registry = &e->registry,
						  .least = e->launch.swap.least,
						  .stay = e->launch.swap.stay });
}

static bool is_cut(const struct catalog *own, int param)
{
	const struct catalog_param *p;

	if (param < 0 || (uint32_t)param >= own->nparams)
		return false;
	p = &own->params[param];
	return p->group != CATALOG_NONE && catalog_lp_is_sharded(&own->groups[p->group]);
}

static int list_given(const struct engine *e, const int *params, size_t n,
		      const void *const *values, struct swapped_param_given *given)
{
	for (size_t i = 0; i < n; i++) {
		if (!is_cut(e->own, params[i]))
			return -EINVAL;
		given[i] = (struct swapped_param_given){
			.param = (uint32_t)params[i],
			.dtype = e->own->params[params[i]].dtype,
			.numel = catalog_lp_held(e->own, (uint32_t)params[i], e->rank),
			.values = values ? values[i] : NULL
		};
	}
	return 0;
}

/* Notes which parameters are new: they have no row yet, and are given no values. */
static void list_new(struct registry *r, struct swapped_param_given *given, size_t n,
		     bool *is_new)
{
	enum frag_dtype dtype;

	for (size_t i = 0; i < n; i++)
		is_new[i] = !given[i].values &&
			    registry_find(r, STATE_LP_SHARD, given[i].param, 0, "", &dtype) < 0;
}

static int from_masters(struct frag *f, const int *params, size_t n, const bool *is_new)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		rc = is_new[i] ? frag_update_lp(f, params[i]) : 0;
		if (rc == -ENOENT || rc == -EOPNOTSUPP)
			rc = 0; /* there is no master, or none that can be converted */
	}
	return rc;
}

int frag_params_swap(struct frag *f, const int *params, size_t n, const void *const *values)
{
	struct engine *e = api_engine(f);
	CLEANUP(free) struct swapped_param_given *given = NULL;
	CLEANUP(free) bool *is_new = NULL;
	int rc = !e || (n && !params) || n > FRAG_PARAMS_MAX ? -EINVAL : open_shards(f);

	if (rc)
		return rc;
	given = calloc(n + 1, sizeof(*given));
	is_new = calloc(n + 1, sizeof(*is_new));
	if (!given || !is_new)
		return -ENOMEM;
	rc = list_given(e, params, n, values, given);
	if (rc)
		return rc;
	list_new(&e->registry, given, n, is_new);
	rc = swapped_params_add(e->trainer->swapped_params, given, n);
	if (rc)
		return rc;
	rc = from_masters(f, params, n, is_new);
	return rc ? rc : swapped_params_publish(e->trainer->swapped_params, params, n);
}

/* Begins to read the other parameters of a leaf.  Returns false if there is no free buffer. */
static bool read_leaf(struct frag *f, uint32_t param, bool *is_read)
{
	const struct leaves *l = f->engine->leaves;
	struct swapped_params *shards = f->trainer.swapped_params;

	is_read[param] = true;
	for (uint32_t next = leaves_next(l, param); next != param;
	     next = leaves_next(l, next)) {
		int one = (int)next;

		is_read[next] = true;
		if (swapped_params_has(shards, one) &&
		    swapped_params_ahead(shards, &one, 1) != 1)
			return false;
	}
	return true;
}

/* Begins to read the parameters of the leaves that params are in, each leaf once, as far as
 * there are free buffers.  A parameter that cannot be read ahead comes in when it is asked for.
 */
static void read_leaves(struct frag *f, const int *params, size_t n)
{
	const struct leaves *l = f->engine->leaves;
	CLEANUP(free) bool *is_read = calloc(l->n + 1, sizeof(*is_read));
	bool has_room = is_read;

	for (size_t i = 0; i < n && has_room; i++) {
		uint32_t param = (uint32_t)params[i];

		if (leaves_next(l, param) != LEAVES_NONE && !is_read[param])
			has_room = read_leaf(f, param, is_read);
	}
}

/* Begins to read params, and, where buffers are left, the leaves that they are in.  Results of
 * swapped_params_ahead.
 */
static int read_ahead(struct frag *f, const int *params, size_t n)
{
	int rc = swapped_params_ahead(f->trainer.swapped_params, params, n);

	if (f->engine->leaves && rc >= 0 && (size_t)rc == n)
		read_leaves(f, params, n);
	return rc;
}

/* -ENOENT: no parameters are on NVMe. */
static int check(const struct frag *f, const int *params, size_t n)
{
	if (!api_engine(f) || (n && !params) || n > FRAG_PARAMS_MAX)
		return -EINVAL;
	return f->trainer.swapped_params ? 0 : -ENOENT;
}

int frag_params_in(struct frag *f, const int *params, size_t n, void **memory)
{
	int rc = n && !memory ? -EINVAL : check(f, params, n);

	if (!rc && !f->sweep)
		api_sweep_forget(f); /* the announced sweep has buffers that may be needed */
	if (!rc && f->engine->leaves)
		read_ahead(f, params, n);
	return rc ? rc : swapped_params_in(f->trainer.swapped_params, params, n, memory);
}

int frag_params_ahead(struct frag *f, const int *params, size_t n)
{
	int rc = check(f, params, n);

	return rc ? rc : read_ahead(f, params, n);
}

int frag_params_out(struct frag *f, const int *params, size_t n, unsigned flags)
{
	int rc = flags & ~(unsigned)FRAG_CHANGED ? -EINVAL : check(f, params, n);

	return rc ? rc
		  : swapped_params_out(f->trainer.swapped_params, params, n,
				       flags & FRAG_CHANGED);
}

int frag_param_put(struct frag *f, int param, uint64_t first, const void *values,
		   uint64_t numel)
{
	struct engine *e = api_engine(f);
	uint64_t offset, bytes;
	enum frag_dtype dtype;
	int row;

	if (!e || param < 0 || (numel && !values))
		return -EINVAL;
	row = registry_find(&e->registry, STATE_LP_SHARD, (uint32_t)param, 0, "", &dtype);
	if (row < 0)
		return row;
	if (!u64_mul(first, frag_dtype_size(dtype), &offset) ||
	    !u64_mul(numel, frag_dtype_size(dtype), &bytes))
		return -EINVAL;
	api_make_room(f);
	return registry_put(&e->registry, (uint32_t)row, offset, values, bytes);
}

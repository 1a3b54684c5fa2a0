/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/rank/swapped-params-internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int swapped_params_new(struct swapped_params **out, const struct swapped_params_options *o)
{
	struct swapped_params *s = calloc(1, sizeof(*s));
	struct swapper_figures f;

	if (!s)
		return -ENOMEM;
	swapper_figures(o->registry->swapper, &f);
	*s = (struct swapped_params){ .registry = o->registry,
				      .swapper = o->registry->swapper,
				      .least = o->least,
				      .stay = o->stay,
				      .buffer = f.slice };
	TAILQ_INIT(&s->packs);
	*out = s;
	return 0;
}

void swapped_params_free(struct swapped_params *s)
{
	if (!s)
		return;
	for (uint32_t i = 0; i < s->n; i++)
		free(s->shards[i].owned);
	free(s->shards);
	free(s);
}

static int make_table(struct swapped_params *s, const struct swapped_param_given *given,
		      size_t n)
{
	struct swapped_param *shards;
	uint32_t most = s->n;

	for (size_t i = 0; i < n; i++)
		most = given[i].param < most ? most : given[i].param + 1;
	shards = realloc(s->shards, (most + 1) * sizeof(*shards));
	if (!shards)
		return -ENOMEM;
	memset(shards + s->n, 0, (most - s->n) * sizeof(*shards));
	s->shards = shards;
	s->n = most;
	return 0;
}

static uint64_t bytes_of(const struct swapped_param_given *g)
{
	return g->numel * frag_dtype_size(g->dtype);
}

/* ---- pieces that stay in memory ---- */

static bool stays(const struct swapped_params *s, const struct swapped_param_given *g)
{
	return bytes_of(g) < s->least || g->numel <= s->stay - s->stayed;
}

static int keep_values(struct swapped_params *s, const struct swapped_param_given *g)
{
	enum frag_dtype dtype;
	int row = registry_find(s->registry, STATE_LP_SHARD, g->param, 0, "", &dtype);

	if (row < 0 || !g->values)
		return row < 0 ? row : 0;
	return registry_write(s->registry, 0, (uint32_t)row, 0, g->values, bytes_of(g));
}

static int keep_new(struct swapped_params *s, const struct swapped_param_given *g, void **owned)
{
	void *memory = calloc(1, bytes_of(g) + 1);
	int rc;

	if (!memory)
		return -ENOMEM;
	if (g->values)
		memcpy(memory, g->values, bytes_of(g));
	rc = registry_keep(s->registry, STATE_LP_SHARD, g->param, 0, "", g->dtype, g->numel,
			   memory);
	if (rc)
		free(memory);
	else
		*owned = memory;
	return rc;
}

static int stay(struct swapped_params *s, const struct swapped_param_given *g)
{
	void *owned = NULL;
	int rc = keep_values(s, g);

	if (rc == -ENOENT)
		rc = keep_new(s, g, &owned);
	if (rc)
		return rc;
	registry_stays(s->registry, STATE_LP_SHARD, g->param, 0, "");
	s->shards[g->param] = (struct swapped_param){
		.known = true, .bytes = bytes_of(g), .numel = g->numel, .owned = owned
	};
	if (bytes_of(g) >= s->least)
		s->stayed += g->numel;
	return 0;
}

/* ---- pieces that go to NVMe ---- */

static uint64_t aligned(uint64_t bytes)
{
	return u64_div_ceil(bytes, SWAPPED_PARAMS_ALIGN) * SWAPPED_PARAMS_ALIGN;
}

/* Returns how many of the pieces, from the first on, go into one pack; *bytes: the pack's. */
static size_t fit(const struct swapped_params *s, const struct swapped_param_given *given,
		  size_t n, uint64_t *bytes)
{
	size_t i = 1;

	*bytes = bytes_of(&given[0]);
	for (; i < n && !stays(s, &given[i]) &&
	       aligned(*bytes) + bytes_of(&given[i]) <= s->buffer;
	     i++)
		*bytes = aligned(*bytes) + bytes_of(&given[i]);
	return i;
}

static int pack_new(struct swapped_params *s, uint32_t first, uint64_t bytes, struct pack **out)
{
	uint64_t n = u64_div_ceil(bytes, s->buffer);
	struct pack *p = calloc(1, sizeof(*p) + n * sizeof(p->lent[0]));
	char name[60];
	int rc;

	if (!p)
		return -ENOMEM;
	p->n = (unsigned)n;
	snprintf(name, sizeof(name), "parameters from number %u on", first);
	rc = swapper_add(s->swapper, name, SWAPPER_PARAM, 1, bytes, &p->state);
	if (rc)
		free(p);
	else
		*out = p;
	return rc;
}

/* Reads the piece's present values into *old, which the caller frees; NULL: it has no row. */
static int read_old(struct swapped_params *s, const struct swapped_param_given *g, void **old)
{
	enum frag_dtype dtype;
	int row = registry_find(s->registry, STATE_LP_SHARD, g->param, 0, "", &dtype);

	if (row < 0)
		return 0;
	*old = malloc(bytes_of(g) + 1);
	return *old ? registry_read(s->registry, 0, (uint32_t)row, 0, *old, bytes_of(g))
		    : -ENOMEM;
}

static int fill(struct swapped_params *s, struct pack *p, const struct swapped_param_given *g,
		uint64_t at)
{
	CLEANUP(free) void *old = NULL;
	const void *values = g->values;
	int rc = values ? 0 : read_old(s, g, &old);

	values = values ? values : old;
	return rc || !values ? rc : swapper_put(s->swapper, p->state, at, values, bytes_of(g));
}

static int fill_all(struct swapped_params *s, struct pack *p,
		    const struct swapped_param_given *given, size_t n)
{
	uint64_t at = 0, since = monotonic_ns();
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		rc = fill(s, p, &given[i], at);
		at = aligned(at + bytes_of(&given[i]));
	}
	if (!rc)
		rc = swapper_publish_state(s->swapper, p->state);
	if (!rc)
		swapper_count_init(s->swapper, p->state, at, since);
	return rc;
}

/* Moves the pieces' rows to the pack.  *shown: how many, also on error. */
static int show_all(struct swapped_params *s, struct pack *p,
		    const struct swapped_param_given *given, size_t n, size_t *shown)
{
	uint64_t at = 0;

	for (*shown = 0; *shown < n; ++*shown) {
		const struct swapped_param_given *g = &given[*shown];
		int rc = registry_swap_shard(s->registry, g->param, g->dtype, g->numel,
					     p->state, at);

		if (rc)
			return rc;
		s->shards[g->param] = (struct swapped_param){
			.known = true,
			.pack = p,
			.at = at,
			.bytes = bytes_of(g),
			.numel = g->numel,
		};
		at = aligned(at + bytes_of(g));
	}
	return 0;
}

static int add_pack(struct swapped_params *s, const struct swapped_param_given *given, size_t n,
		    uint64_t bytes)
{
	struct pack *p;
	size_t shown = 0;
	int rc = pack_new(s, given[0].param, bytes, &p);

	if (rc)
		return rc;
	rc = fill_all(s, p, given, n);
	if (!rc)
		rc = show_all(s, p, given, n, &shown);
	if (rc && !shown) {
		swapper_drop(s->swapper, p->state);
		free(p);
		return rc;
	}
	TAILQ_INSERT_TAIL(&s->packs, p, link);
	return rc;
}

/* ---- all ---- */

static bool is_in_arena(struct registry *r, uint32_t param)
{
	int row;

	LOCKED(&r->lock);
	row = states_find(&r->states, STATE_LP_SHARD, param, 0, "");
	return row >= 0 && r->states.rows[row].in_arena;
}

/* Checks that each piece is given once, and that none was added before.
 * -EEXIST: one is given twice, or was added.
 * -EBUSY: one is in an arena.
 */
static int claim(struct swapped_params *s, const struct swapped_param_given *given, size_t n)
{
	size_t i = 0;
	int rc = 0;

	for (; i < n && !rc; i++) {
		struct swapped_param *shard = &s->shards[given[i].param];

		rc = shard->known                               ? -EEXIST
		     : is_in_arena(s->registry, given[i].param) ? -EBUSY
								: 0;
		if (rc)
			break;
		shard->known = true;
	}
	for (size_t k = 0; k < i; k++)
		s->shards[given[k].param].known = false;
	return rc;
}

int swapped_params_publish(struct swapped_params *s, const int *params, size_t n)
{
	const struct pack *last = NULL;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		const struct pack *p = s->shards[params[i]].pack;

		if (p && p != last)
			rc = swapper_publish_state(s->swapper, p->state);
		last = p;
	}
	return rc;
}

int swapped_params_add(struct swapped_params *s, const struct swapped_param_given *given,
		       size_t n)
{
	int rc = make_table(s, given, n);

	if (!rc)
		rc = claim(s, given, n);
	for (size_t i = 0, k; i < n && !rc; i += k) {
		uint64_t bytes;

		k = 1;
		if (stays(s, &given[i])) {
			rc = stay(s, &given[i]);
			continue;
		}
		k = fit(s, given + i, n - i, &bytes);
		rc = add_pack(s, given + i, k, bytes);
	}
	return rc;
}

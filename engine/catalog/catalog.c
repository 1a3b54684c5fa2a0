/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct catalog *catalog_new(void)
{
	return calloc(1, sizeof(struct catalog));
}

void catalog_free(struct catalog *c)
{
	if (!c)
		return;
	for (uint32_t i = 0; i < c->ngroups; i++) {
		layout_fini(&c->groups[i].layout);
		free(c->groups[i].ranks);
		free(c->groups[i].params);
	}
	free(c->groups);
	free(c->params);
	free(c->shapes);
	free(c->strings);
	free(c->index);
	free(c);
}

/* Makes room for more elements of size bytes behind *array, which has count of *room. */
static int grow(void *array, size_t size, size_t count, size_t more, size_t *room)
{
	size_t want = *room ? *room : 64;
	void *grown;

	if (count + more <= *room)
		return 0;
	while (want < count + more)
		want *= 2;
	grown = realloc(*(void **)array, want * size);
	if (!grown)
		return -ENOMEM;
	*(void **)array = grown;
	*room = want;
	return 0;
}

static int grow32(void *array, size_t size, uint32_t count, uint32_t *room)
{
	size_t wide = *room;
	int rc = grow(array, size, count, 1, &wide);

	if (!rc)
		*room = (uint32_t)wide;
	return rc;
}

static int add_string(struct catalog *c, const char *text, uint32_t *offset)
{
	size_t size = strlen(text) + 1;

	if (c->strings_size + size > UINT32_MAX)
		return -ENOSPC;
	if (grow(&c->strings, 1, c->strings_size, size, &c->strings_room))
		return -ENOMEM;
	memcpy(c->strings + c->strings_size, text, size);
	*offset = (uint32_t)c->strings_size;
	c->strings_size += size;
	return 0;
}

static int add_shape(struct catalog *c, const uint64_t *shape, uint32_t ndim, uint32_t *offset)
{
	if (c->shapes_count + ndim > UINT32_MAX)
		return -ENOSPC;
	if (grow(&c->shapes, sizeof(*shape), c->shapes_count, ndim ? ndim : 1, &c->shapes_room))
		return -ENOMEM;
	if (ndim)
		memcpy(c->shapes + c->shapes_count, shape, ndim * sizeof(*shape));
	*offset = (uint32_t)c->shapes_count;
	c->shapes_count += ndim;
	return 0;
}

static uint64_t identity_hash(const char *name, const char *coordinate)
{
	return wire_hash(name, strlen(name)) * 31 + wire_hash(coordinate, strlen(coordinate));
}

static uint32_t *index_slot(const struct catalog *c, const char *name, const char *coordinate)
{
	uint32_t mask = c->index_room - 1;
	uint32_t at = (uint32_t)identity_hash(name, coordinate) & mask;

	for (; c->index[at]; at = (at + 1) & mask) {
		uint32_t param = c->index[at] - 1;

		if (!strcmp(catalog_name(c, param), name) &&
		    !strcmp(catalog_coordinate(c, param), coordinate))
			break;
	}
	return &c->index[at];
}

static int index_grow(struct catalog *c)
{
	uint32_t room = c->index_room ? c->index_room * 2 : 128, *index;

	if (c->index && c->nparams < c->index_room / 2)
		return 0;
	index = calloc(room, sizeof(*index));
	if (!index)
		return -ENOMEM;
	free(c->index);
	c->index = index;
	c->index_room = room;
	for (uint32_t i = 0; i < c->nparams; i++)
		*index_slot(c, catalog_name(c, i), catalog_coordinate(c, i)) = i + 1;
	return 0;
}

uint32_t catalog_find(const struct catalog *c, const char *name, const char *coordinate)
{
	return c->index ? *index_slot(c, name, coordinate) - 1 : CATALOG_NONE;
}

static int shape_numel(const uint64_t *shape, uint32_t ndim, size_t element, uint64_t *numel)
{
	uint64_t n = 1, bytes;

	for (uint32_t i = 0; i < ndim; i++)
		if (!u64_mul(n, shape[i], &n))
			return -EOVERFLOW;
	if (!u64_mul(n, u64_max(element, 8), &bytes) || bytes > INT64_MAX)
		return -EOVERFLOW;
	*numel = n;
	return 0;
}

int catalog_add_param(struct catalog *c, const char *name, const char *coordinate,
		      enum frag_dtype dtype, uint32_t ndim, const uint64_t *shape,
		      unsigned flags, uint32_t owner)
{
	struct catalog_param p = { .dtype = (uint8_t)dtype,
				   .ndim = (uint8_t)ndim,
				   .flags = (uint8_t)flags,
				   .group = CATALOG_NONE,
				   .owner = owner };
	int rc;

	if (!name || !*name || strlen(name) > FRAG_NAME_MAX ||
	    strlen(coordinate) > FRAG_KEY_MAX || !frag_dtype_size(dtype) ||
	    ndim > FRAG_DIMS_MAX || (ndim && !shape))
		return -EINVAL;
	if (c->nparams == FRAG_PARAMS_MAX)
		return -ENOSPC;
	if (catalog_find(c, name, coordinate) != CATALOG_NONE)
		return -EEXIST;
	if ((rc = shape_numel(shape, ndim, frag_dtype_size(dtype), &p.numel)) ||
	    (rc = grow32(&c->params, sizeof(p), c->nparams, &c->params_room)) ||
	    (rc = add_string(c, name, &p.name)) ||
	    (rc = add_string(c, coordinate, &p.coordinate)) ||
	    (rc = add_shape(c, shape, ndim, &p.shape)) || (rc = index_grow(c)))
		return rc;
	c->params[c->nparams++] = p;
	*index_slot(c, name, coordinate) = c->nparams;
	return (int)c->nparams - 1;
}

uint32_t catalog_member(const struct catalog_group *g, uint32_t rank)
{
	if (rank < g->nranks && g->ranks[rank] == rank) /* the usual list: all ranks in order */
		return rank;
	for (uint32_t i = 0; i < g->nranks; i++)
		if (g->ranks[i] == rank)
			return i;
	return CATALOG_NONE;
}

bool catalog_lp_is_sharded(const struct catalog_group *g)
{
	return g->sharding == FRAG_FSDP2 || g->stage == 3;
}

static uint64_t row_numel(const struct catalog *c, const struct catalog_param *p)
{
	uint64_t row = 1;

	for (uint32_t i = 1; i < p->ndim; i++)
		row *= c->shapes[p->shape + i];
	return row;
}

uint64_t catalog_lp_piece(const struct catalog *c, uint32_t param)
{
	const struct catalog_param *p = &c->params[param];
	const struct catalog_group *g = &c->groups[p->group];

	if (g->sharding != FRAG_FSDP2)
		return u64_div_ceil(p->numel, catalog_shards(g));
	if (!p->ndim)
		return p->numel;
	return u64_div_ceil(catalog_shape(c, param)[0], catalog_shards(g)) * row_numel(c, p);
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* 1: yes, 0: no, -ENOMEM. */
static int has_twice(const uint32_t *values, uint32_t n)
{
	CLEANUP(free) uint32_t *sorted = malloc((n ? n : 1) * sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_u32);
	for (uint32_t i = 1; i < n; i++)
		if (sorted[i] == sorted[i - 1])
			return 1;
	return 0;
}

static int check_group(const struct catalog *c, const struct catalog_group *g, char *why,
		       size_t size)
{
	int twice = has_twice(g->ranks, g->nranks);

	if (twice < 0)
		return twice;
	if (!g->nranks || twice)
		snprintf(why, size, "group %u: a rank stands twice in its list, or none",
			 c->ngroups);
	else if (!g->replicas || g->nranks % g->replicas)
		snprintf(why, size, "group %u: %u ranks cannot be %u replicas", c->ngroups,
			 g->nranks, g->replicas);
	else if (g->stage > 3 || g->sharding > FRAG_FSDP2)
		snprintf(why, size, "group %u: stage %u is none of 0 to 3", c->ngroups,
			 g->stage);
	else if ((twice = has_twice(g->params, g->nparams)) < 0)
		return twice;
	else if (twice)
		snprintf(why, size, "group %u: a parameter stands twice in it", c->ngroups);
	else
		return 0;
	return -EINVAL;
}

static int check_members(const struct catalog *c, const struct catalog_group *g, char *why,
			 size_t size)
{
	for (uint32_t i = 0; i < g->nparams; i++) {
		if (g->params[i] >= c->nparams)
			snprintf(why, size, "group %u: there is no parameter %u", c->ngroups,
				 g->params[i]);
		else if (c->params[g->params[i]].group != CATALOG_NONE)
			snprintf(why, size, "group %u: parameter %s is in group %u already",
				 c->ngroups, catalog_name(c, g->params[i]),
				 c->params[g->params[i]].group);
		else
			continue;
		return -EINVAL;
	}
	return 0;
}

static uint32_t *copy_u32(const uint32_t *from, uint32_t n)
{
	uint32_t *to = malloc((n ? n : 1) * sizeof(*to));

	if (to && n)
		memcpy(to, from, n * sizeof(*to));
	return to;
}

int catalog_add_group(struct catalog *c, const struct catalog_group *g, char *why,
		      size_t whysize)
{
	struct catalog_group copy = *g;
	int rc;

	if (c->ngroups == FRAG_GROUPS_MAX)
		return -ENOSPC;
	if ((rc = check_group(c, g, why, whysize)) ||
	    (rc = check_members(c, g, why, whysize)) ||
	    (rc = grow32(&c->groups, sizeof(copy), c->ngroups, &c->groups_room)))
		return rc;
	memset(&copy.layout, 0, sizeof(copy.layout));
	copy.ranks = copy_u32(g->ranks, g->nranks);
	copy.params = copy_u32(g->params, g->nparams);
	if (!copy.ranks || !copy.params) {
		free(copy.ranks);
		free(copy.params);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < g->nparams; i++) {
		c->params[g->params[i]].group = c->ngroups;
		c->params[g->params[i]].position = i;
	}
	c->groups[c->ngroups++] = copy;
	return (int)c->ngroups - 1;
}

static struct layout_spec layout_spec_of(const struct catalog_group *g)
{
	uint32_t shards = catalog_shards(g);

	if (catalog_lp_is_sharded(g))
		return (struct layout_spec){
			.kind = g->sharding == FRAG_FSDP2 ? LAYOUT_ROWS : LAYOUT_PER_PARAM,
			.shards = shards,
			.alignment = 1,
			.sub_group_size = g->sub_group_size,
		};
	if (!g->stage)
		return (struct layout_spec){ .kind = LAYOUT_FLAT, .shards = 1, .alignment = 1 };
	return (struct layout_spec){ .kind = LAYOUT_FLAT,
				     .shards = shards,
				     .alignment = 2,
				     .round_robin = g->flags & FRAG_ROUND_ROBIN };
}

/* Returns true if the bytes of all partitions, padding included, at 8 an element, fit. */
static bool bytes_fit(const struct layout *l)
{
	uint64_t sum = 0, bytes;

	for (uint32_t i = 0; i < l->nsubs; i++)
		if (!u64_add(sum, l->partition_numel[i], &sum))
			return false;
	return u64_mul(sum, (uint64_t)l->shards * 8, &bytes) && bytes <= INT64_MAX;
}

int catalog_finish_group(struct catalog *c, uint32_t group)
{
	struct catalog_group *g = &c->groups[group];
	CLEANUP(free)
	struct layout_param *params = calloc(g->nparams ? g->nparams : 1, sizeof(*params));
	struct layout_spec spec = layout_spec_of(g);
	int rc;

	if (!params)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->nparams; i++) {
		const struct catalog_param *p = &c->params[g->params[i]];

		params[i] = (struct layout_param){ .numel = p->numel,
						   .row = row_numel(c, p),
						   .frozen = p->flags & FRAG_FROZEN };
	}
	layout_fini(&g->layout);
	rc = layout_init(&g->layout, &spec, params, g->nparams);
	return rc || bytes_fit(&g->layout) ? rc : -EOVERFLOW;
}

void catalog_drop_group(struct catalog *c)
{
	struct catalog_group *g = &c->groups[--c->ngroups];

	for (uint32_t i = 0; i < g->nparams; i++)
		c->params[g->params[i]].group = CATALOG_NONE;
	layout_fini(&g->layout);
	free(g->ranks);
	free(g->params);
}

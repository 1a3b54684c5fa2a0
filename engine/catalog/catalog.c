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
	for (uint32_t i = 0; i < c->nparams; i++)
		free(c->params[i].cuts);
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
		want += want / 16;
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

	if (c->index && c->nparams < c->index_room / 4 * 3)
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

int catalog_cut_param(struct catalog *c, uint32_t param, const struct frag_cut *cut, uint32_t n)
{
	struct catalog_param *p = &c->params[param];
	int rc;

	p->cuts = cuts_new(cut, n, p->ndim, catalog_shape(c, param), p->numel, &rc);
	return rc;
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

/* Numbers as DeepSpeed's ratio are not exact: (1 - 0.9) * 10 is less than 1, and means 1. */
bool catalog_is_among_first(const struct catalog *c, uint32_t rank, uint32_t group,
			    uint32_t sub, double part)
{
	uint64_t at = sub, all = 0;

	for (uint32_t g = 0; g < c->ngroups && part > 0; g++) {
		if (catalog_member(&c->groups[g], rank) == CATALOG_NONE)
			continue;
		at += g < group ? c->groups[g].layout.nsubs : 0;
		all += c->groups[g].layout.nsubs;
	}
	return at < (uint64_t)((part + 1e-9) * (double)all);
}

bool catalog_lp_is_sharded(const struct catalog_group *g)
{
	return g->sharding == FRAG_FSDP2 || (g->sharding == FRAG_ZERO && g->stage == 3);
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

	if (p->cuts)
		return cuts_largest(p->cuts);
	if (g->sharding != FRAG_FSDP2)
		return u64_div_ceil(p->numel, catalog_shards(g));
	if (!p->ndim)
		return p->numel;
	return u64_div_ceil(catalog_shape(c, param)[0], catalog_shards(g)) * row_numel(c, p);
}

uint64_t catalog_lp_held(const struct catalog *c, uint32_t param, uint32_t rank)
{
	const struct catalog_param *p = &c->params[param];
	const struct catalog_group *g = &c->groups[p->group];
	struct cuts_box own;

	if (!p->cuts)
		return catalog_lp_piece(c, param);
	cuts_box(p->cuts, catalog_member(g, rank) % catalog_shards(g), &own);
	return own.numel;
}

/* Returns 1 if a value is there twice, else 0.  -ENOMEM. */
static int has_twice(const uint32_t *values, uint32_t n)
{
	CLEANUP(free) uint32_t *sorted = malloc((n ? n : 1) * sizeof(*sorted));

	if (!sorted)
		return -ENOMEM;
	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), u32_compare);
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
	else if (g->stage > 3 || g->sharding > FRAG_FSDP1)
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

/* Returns true if a parameter has cuts that do not make the group's shards. */
static bool cuts_differ(const struct catalog_param *p, const struct catalog_group *g)
{
	return p->cuts &&
	       (g->sharding != FRAG_FSDP2 || cuts_parts(p->cuts) != catalog_shards(g));
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
		else if (cuts_differ(&c->params[g->params[i]], g))
			snprintf(why, size,
				 "group %u: parameter %s is cut in %u parts, for %u shards%s",
				 c->ngroups, catalog_name(c, g->params[i]),
				 cuts_parts(c->params[g->params[i]].cuts), catalog_shards(g),
				 g->sharding == FRAG_FSDP2 ? "" : " that are not FSDP2's");
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

/* Returns an alignment in elements; DeepSpeed's parameter_alignment is 16 bytes of the group's
 * first parameter.
 */
static uint32_t param_alignment(const struct catalog *c, const struct catalog_group *g)
{
	size_t size = g->nparams ? frag_dtype_size(c->params[g->params[0]].dtype) : 16;

	return g->flags & FRAG_ALIGNED && size < 16 ? (uint32_t)(16 / size) : 1;
}

static struct layout_spec layout_spec_of(const struct catalog *c, const struct catalog_group *g)
{
	uint32_t shards = catalog_shards(g);

	if (catalog_lp_is_sharded(g))
		return (struct layout_spec){
			.kind = g->sharding == FRAG_FSDP2 ? LAYOUT_ROWS : LAYOUT_PER_PARAM,
			.shards = shards,
			.alignment = 1,
			.sub_group_size = g->sub_group_size,
		};
	if (g->sharding == FRAG_FSDP1)
		return (struct layout_spec){ .kind = LAYOUT_FLAT,
					     .shards = shards,
					     .alignment = 1,
					     .param_alignment = g->alignment };
	if (!g->stage)
		return (struct layout_spec){ .kind = LAYOUT_FLAT, .shards = 1, .alignment = 1 };
	return (struct layout_spec){ .kind = LAYOUT_FLAT,
				     .shards = shards,
				     .alignment = 2,
				     .round_robin = g->flags & FRAG_ROUND_ROBIN,
				     .param_alignment = param_alignment(c, g) };
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
	struct layout_spec spec = layout_spec_of(c, g);
	int rc;

	if (!params)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->nparams; i++) {
		const struct catalog_param *p = &c->params[g->params[i]];

		params[i] = (struct layout_param){ .numel = p->numel,
						   .row = row_numel(c, p),
						   .cuts = p->cuts,
						   .frozen = p->flags & FRAG_FROZEN };
	}
	layout_fini(&g->layout);
	rc = layout_init(&g->layout, &spec, params, g->nparams);
	if (rc || bytes_fit(&g->layout))
		return rc;
	layout_fini(&g->layout);
	return -EOVERFLOW;
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

enum { DIFFERENCE = 200, NAME = 64 };

/* Writes a text such as "stage 2, not 1" to what; false: the numbers are equal. */
static bool differ(char *what, const char *name, uint64_t its, uint64_t others)
{
	if (its == others)
		return false;
	snprintf(what, DIFFERENCE, "%s %llu, not %llu", name, (unsigned long long)its,
		 (unsigned long long)others);
	return true;
}

static bool shapes_differ(const uint64_t *its, const uint64_t *others, uint32_t ndim,
			  char *what)
{
	char name[32];

	for (uint32_t i = 0; i < ndim; i++) {
		snprintf(name, sizeof(name), "dimension %u of", i);
		if (differ(what, name, its[i], others[i]))
			return true;
	}
	return false;
}

static bool params_differ(const struct catalog *a, uint32_t i, const struct catalog *b,
			  uint32_t j, char *what)
{
	const struct catalog_param *its = &a->params[i], *others = &b->params[j];

	if (its->dtype != others->dtype) {
		snprintf(what, DIFFERENCE, "dtype %s, not %s", frag_dtype_name(its->dtype),
			 frag_dtype_name(others->dtype));
		return true;
	}
	if (differ(what, "flags", its->flags, others->flags) ||
	    differ(what, "dimensions", its->ndim, others->ndim) ||
	    shapes_differ(catalog_shape(a, i), catalog_shape(b, j), its->ndim, what))
		return true;
	snprintf(what, DIFFERENCE, "other cuts");
	return !cuts_are_equal(its->cuts, others->cuts);
}

static int merge_param(struct catalog *into, const struct catalog *from, uint32_t i,
		       uint32_t rank, uint32_t *number, char *why, size_t size)
{
	const struct catalog_param *p = &from->params[i];
	uint32_t known = catalog_find(into, catalog_name(from, i), catalog_coordinate(from, i));
	char what[DIFFERENCE];
	int rc;

	if (known != CATALOG_NONE) {
		if (params_differ(from, i, into, known, what)) {
			snprintf(why, size, "rank %u has %s as rank %u, for parameter %s", rank,
				 what, into->params[known].owner, catalog_name(from, i));
			return -EINVAL;
		}
		if (rank < into->params[known].owner)
			into->params[known].owner = rank;
		*number = known;
		return 0;
	}
	rc = catalog_add_param(into, catalog_name(from, i), catalog_coordinate(from, i),
			       p->dtype, p->ndim, catalog_shape(from, i), p->flags, rank);
	if (rc < 0)
		return rc;
	*number = (uint32_t)rc;
	return p->cuts ? catalog_cut_param(into, *number, p->cuts->cut, p->cuts->n) : 0;
}

static bool same_ranks(const struct catalog_group *a, const struct catalog_group *b)
{
	return a->nranks == b->nranks &&
	       !memcmp(a->ranks, b->ranks, a->nranks * sizeof(*a->ranks));
}

/* Returns how many groups before g in c have the list of ranks that g has. */
static uint32_t ordinal(const struct catalog *c, uint32_t g)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < g; i++)
		n += same_ranks(&c->groups[i], &c->groups[g]);
	return n;
}

static uint32_t find_group(const struct catalog *into, const struct catalog_group *g,
			   uint32_t nth)
{
	for (uint32_t i = 0; i < into->ngroups; i++)
		if (same_ranks(&into->groups[i], g) && !nth--)
			return i;
	return CATALOG_NONE;
}

static void name_param(const struct catalog *c, uint32_t param, char name[NAME])
{
	const char *coordinate = catalog_coordinate(c, param);

	snprintf(name, NAME, "%.40s%s%s", catalog_name(c, param), *coordinate ? " " : "",
		 coordinate);
}

/* Both groups have the numbers that parameters have in c. */
static bool lists_differ(const struct catalog *c, const struct catalog_group *g,
			 const struct catalog_group *known, char *what)
{
	char its[NAME], others[NAME];
	uint32_t i = 0;

	while (i < g->nparams && g->params[i] == known->params[i])
		i++;
	if (i == g->nparams)
		return false;
	name_param(c, g->params[i], its);
	name_param(c, known->params[i], others);
	snprintf(what, DIFFERENCE, "parameter %u is %s, not %s", i, its, others);
	return true;
}

static bool groups_differ(const struct catalog *c, const struct catalog_group *g,
			  const struct catalog_group *known, char *what)
{
	static const char *const shardings[] = {
		[FRAG_ZERO] = "ZeRO", [FRAG_FSDP2] = "FSDP2", [FRAG_FSDP1] = "FSDP1"
	};

	if (g->sharding != known->sharding) {
		snprintf(what, DIFFERENCE, "sharding %s, not %s", shardings[g->sharding],
			 shardings[known->sharding]);
		return true;
	}
	return differ(what, "stage", g->stage, known->stage) ||
	       differ(what, "flags", g->flags, known->flags) ||
	       differ(what, "replicas", g->replicas, known->replicas) ||
	       differ(what, "sub_group_size", g->sub_group_size, known->sub_group_size) ||
	       differ(what, "alignment", g->alignment, known->alignment) ||
	       differ(what, "parameters", g->nparams, known->nparams) ||
	       lists_differ(c, g, known, what);
}

static int merge_group(struct catalog *into, const struct catalog *from, uint32_t i,
		       uint32_t rank, const uint32_t *map_params, uint32_t *number, char *why,
		       size_t size)
{
	struct catalog_group g = from->groups[i];
	CLEANUP(free) uint32_t *params = malloc((g.nparams ? g.nparams : 1) * sizeof(*params));
	uint32_t known = find_group(into, &g, ordinal(from, i));
	char what[DIFFERENCE];
	int rc;

	if (!params)
		return -ENOMEM;
	for (uint32_t k = 0; k < g.nparams; k++)
		params[k] = map_params[g.params[k]];
	g.params = params;
	if (known == CATALOG_NONE) {
		rc = catalog_add_group(into, &g, why, size);
		if (rc < 0)
			return rc;
		known = (uint32_t)rc;
	} else if (groups_differ(into, &g, &into->groups[known], what)) {
		snprintf(why, size, "rank %u describes group %u differently: %s", rank, i,
			 what);
		return -EINVAL;
	}
	*number = known;
	return 0;
}

int catalog_merge(struct catalog *into, const struct catalog *from, uint32_t rank,
		  uint32_t *map_params, uint32_t *map_groups, char *why, size_t whysize)
{
	int rc;

	for (uint32_t i = 0; i < from->nparams; i++)
		if ((rc = merge_param(into, from, i, rank, &map_params[i], why, whysize)))
			return rc;
	for (uint32_t i = 0; i < from->ngroups; i++)
		if ((rc = merge_group(into, from, i, rank, map_params, &map_groups[i], why,
				      whysize)))
			return rc;
	return 0;
}

/* The encoding of a catalog:
 * u32 nparams, u32 ngroups,
 * params: text name, text coordinate (u32 length, bytes), u8 dtype, u8 ndim, u8 flags,
 *         u32 owner, u64 shape[ndim], u8 ncuts, u32 dim and u32 parts of each
 * groups: u8 stage, u8 sharding, u8 flags, u32 replicas, u64 sub_group_size, u32 alignment,
 *         u32 nranks, u32 ranks[], u32 nparams, u32 params[]
 */

static void put_text(struct wire_writer *w, const char *text)
{
	wire_put_u32(w, (uint32_t)strlen(text));
	wire_put_bytes(w, text, strlen(text));
}

static void put_param(struct wire_writer *w, const struct catalog *c, uint32_t i)
{
	const struct catalog_param *p = &c->params[i];

	put_text(w, catalog_name(c, i));
	put_text(w, catalog_coordinate(c, i));
	wire_put_u8(w, p->dtype);
	wire_put_u8(w, p->ndim);
	wire_put_u8(w, p->flags);
	wire_put_u32(w, p->owner);
	wire_put_bytes(w, c->shapes + p->shape, p->ndim * sizeof(uint64_t));
	wire_put_u8(w, p->cuts ? (uint8_t)p->cuts->n : 0);
	if (p->cuts)
		wire_put_bytes(w, p->cuts->cut, p->cuts->n * sizeof(*p->cuts->cut));
}

static void put_group(struct wire_writer *w, const struct catalog_group *g)
{
	wire_put_u8(w, g->stage);
	wire_put_u8(w, g->sharding);
	wire_put_u8(w, g->flags);
	wire_put_u32(w, g->replicas);
	wire_put_u64(w, g->sub_group_size);
	wire_put_u32(w, g->alignment);
	wire_put_u32(w, g->nranks);
	wire_put_bytes(w, g->ranks, g->nranks * sizeof(*g->ranks));
	wire_put_u32(w, g->nparams);
	wire_put_bytes(w, g->params, g->nparams * sizeof(*g->params));
}

/* Returns the number of parts of the encoding: the counts, each parameter, each group. */
static uint32_t nparts(const struct catalog *c)
{
	return 1 + c->nparams + c->ngroups;
}

static void put_part(struct wire_writer *w, const struct catalog *c, uint32_t part)
{
	if (!part) {
		wire_put_u32(w, c->nparams);
		wire_put_u32(w, c->ngroups);
	} else if (part <= c->nparams) {
		put_param(w, c, part - 1);
	} else {
		put_group(w, &c->groups[part - 1 - c->nparams]);
	}
}

int catalog_encode(const struct catalog *c, struct wire_writer *w)
{
	for (uint32_t i = 0; i < nparts(c); i++)
		put_part(w, c, i);
	if (!w->bad)
		return 0;
	free(w->data);
	*w = (struct wire_writer){ 0 };
	return -ENOMEM;
}

/* Hashes the encoding with one part of it in memory at a time. */
static int hash_encoding(struct catalog *c)
{
	struct wire_writer w = { 0 };
	uint64_t hash = WIRE_HASH_BEGIN, size = 0;

	for (uint32_t i = 0; i < nparts(c); i++) {
		w.size = 0;
		put_part(&w, c, i);
		hash = wire_hash_more(hash, w.data, w.size);
		size += w.size;
	}
	free(w.data);
	if (w.bad)
		return -ENOMEM;
	if (size > WIRE_CATALOG_MAX)
		return -EOVERFLOW;
	c->hash = wire_hash_end(hash);
	c->encoded_size = size;
	return 0;
}

int catalog_finish(struct catalog *c)
{
	int rc;

	for (uint32_t i = 0; i < c->ngroups; i++)
		if (!c->groups[i].layout.offset && (rc = catalog_finish_group(c, i)))
			return rc;
	return hash_encoding(c);
}

/* Reads a text of at most max bytes.  false: it is longer, cut off, or has a NUL inside. */
static bool get_text(struct wire_reader *r, char *text, uint32_t max)
{
	uint32_t length = wire_get_u32(r);
	const char *bytes = length <= max ? wire_get_bytes(r, length) : NULL;

	if (!bytes || memchr(bytes, '\0', length))
		return false;
	memcpy(text, bytes, length);
	text[length] = '\0';
	return true;
}

static int get_param(struct wire_reader *r, struct catalog *c, uint32_t world)
{
	char name[FRAG_NAME_MAX + 1], coordinate[FRAG_KEY_MAX + 1];
	uint64_t shape[FRAG_DIMS_MAX];
	struct frag_cut cut[FRAG_CUTS_MAX];
	const void *bytes;
	uint8_t dtype, ndim, flags, ncuts;
	uint32_t owner;
	int param;

	if (!get_text(r, name, FRAG_NAME_MAX) || !get_text(r, coordinate, FRAG_KEY_MAX))
		return -EBADMSG;
	dtype = wire_get_u8(r);
	ndim = wire_get_u8(r);
	flags = wire_get_u8(r);
	owner = wire_get_u32(r);
	if (ndim > FRAG_DIMS_MAX || owner >= world)
		return -EBADMSG;
	bytes = wire_get_bytes(r, ndim * sizeof(*shape));
	if (!bytes)
		return -EBADMSG;
	memcpy(shape, bytes, ndim * sizeof(*shape));
	ncuts = wire_get_u8(r);
	bytes = ncuts <= FRAG_CUTS_MAX ? wire_get_bytes(r, ncuts * sizeof(*cut)) : NULL;
	if (!bytes)
		return -EBADMSG;
	memcpy(cut, bytes, ncuts * sizeof(*cut));
	param = catalog_add_param(c, name, coordinate, dtype, ndim, shape, flags, owner);
	return param >= 0 && ncuts ? catalog_cut_param(c, (uint32_t)param, cut, ncuts) : param;
}

static int get_list(struct wire_reader *r, uint32_t **list, uint32_t *n)
{
	uint32_t count = wire_get_u32(r);
	const void *bytes = wire_get_bytes(r, (uint64_t)count * sizeof(**list));

	if (!bytes)
		return -EBADMSG;
	*list = malloc(count ? count * sizeof(**list) : 1);
	if (!*list)
		return -ENOMEM;
	memcpy(*list, bytes, count * sizeof(**list));
	*n = count;
	return 0;
}

static bool all_below(const uint32_t *list, uint32_t n, uint32_t limit)
{
	for (uint32_t i = 0; i < n; i++)
		if (list[i] >= limit)
			return false;
	return true;
}

static int get_group(struct wire_reader *r, struct catalog *c, uint32_t world, char *why,
		     size_t size)
{
	struct catalog_group g = {
		.stage = wire_get_u8(r),
		.sharding = wire_get_u8(r),
		.flags = wire_get_u8(r),
		.replicas = wire_get_u32(r),
		.sub_group_size = wire_get_u64(r),
	};
	CLEANUP(free) uint32_t *ranks = NULL;
	CLEANUP(free) uint32_t *params = NULL;
	int rc;

	g.alignment = wire_get_u32(r);
	rc = get_list(r, &ranks, &g.nranks);
	if (!rc)
		rc = get_list(r, &params, &g.nparams);
	if (rc)
		return rc;
	g.ranks = ranks;
	g.params = params;
	return all_below(ranks, g.nranks, world) ? catalog_add_group(c, &g, why, size)
						 : -EBADMSG;
}

static int decode_into(struct catalog *c, struct wire_reader *r, uint32_t world, char *why,
		       size_t size)
{
	uint32_t nparams = wire_get_u32(r), ngroups = wire_get_u32(r);
	int rc;

	for (uint32_t i = 0; i < nparams; i++)
		if ((rc = get_param(r, c, world)) < 0)
			return rc;
	for (uint32_t i = 0; i < ngroups; i++)
		if ((rc = get_group(r, c, world, why, size)) < 0)
			return rc;
	return r->bad || r->at != r->end ? -EBADMSG : catalog_finish(c);
}

int catalog_decode(struct catalog **out, const void *bytes, size_t size, uint32_t world,
		   char *why, size_t whysize)
{
	struct wire_reader r = { .at = bytes, .end = (const uint8_t *)bytes + size };
	struct catalog *c = catalog_new();
	int rc;

	snprintf(why, whysize, "the catalog is damaged");
	rc = c ? decode_into(c, &r, world, why, whysize) : -ENOMEM;
	if (rc == -ENOMEM)
		snprintf(why, whysize, "%s", strerror(ENOMEM));
	if (rc) {
		catalog_free(c);
		return rc == -ENOMEM ? rc : -EBADMSG;
	}
	*out = c;
	return 0;
}

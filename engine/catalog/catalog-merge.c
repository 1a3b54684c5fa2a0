/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { DIFFERENCE = 200, NAME = 64 };

/* "stage 2, not 1"; false: it is the same. */
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
	return differ(what, "flags", its->flags, others->flags) ||
	       differ(what, "dimensions", its->ndim, others->ndim) ||
	       shapes_differ(catalog_shape(a, i), catalog_shape(b, j), its->ndim, what);
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
	return 0;
}

static bool same_ranks(const struct catalog_group *a, const struct catalog_group *b)
{
	return a->nranks == b->nranks &&
	       !memcmp(a->ranks, b->ranks, a->nranks * sizeof(*a->ranks));
}

/* How many groups before g in c have its rank list. */
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

/* Both have c's numbers of parameters. */
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
	static const char *const shardings[] = { [FRAG_ZERO] = "ZeRO", [FRAG_FSDP2] = "FSDP2" };

	if (g->sharding != known->sharding) {
		snprintf(what, DIFFERENCE, "sharding %s, not %s", shardings[g->sharding],
			 shardings[known->sharding]);
		return true;
	}
	return differ(what, "stage", g->stage, known->stage) ||
	       differ(what, "flags", g->flags, known->flags) ||
	       differ(what, "replicas", g->replicas, known->replicas) ||
	       differ(what, "sub_group_size", g->sub_group_size, known->sub_group_size) ||
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

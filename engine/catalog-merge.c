/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool same_param(const struct catalog *a, uint32_t i, const struct catalog *b, uint32_t j)
{
	const struct catalog_param *p = &a->params[i], *q = &b->params[j];

	return p->dtype == q->dtype && p->ndim == q->ndim && p->flags == q->flags &&
	       !memcmp(catalog_shape(a, i), catalog_shape(b, j), p->ndim * sizeof(uint64_t));
}

static int merge_param(struct catalog *into, const struct catalog *from, uint32_t i,
		       uint32_t rank, uint32_t *number, char *why, size_t size)
{
	const struct catalog_param *p = &from->params[i];
	uint32_t known = catalog_find(into, catalog_name(from, i), catalog_coordinate(from, i));
	int rc;

	if (known != CATALOG_NONE) {
		if (!same_param(into, known, from, i)) {
			snprintf(why, size,
				 "parameter %s has another dtype, shape or flag on rank %u "
				 "than on rank %u",
				 catalog_name(from, i), rank, into->params[known].owner);
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

static bool same_group(const struct catalog_group *a, const struct catalog_group *b)
{
	return a->stage == b->stage && a->sharding == b->sharding && a->flags == b->flags &&
	       a->replicas == b->replicas && a->sub_group_size == b->sub_group_size &&
	       a->nparams == b->nparams &&
	       !memcmp(a->params, b->params, a->nparams * sizeof(*a->params));
}

static int merge_group(struct catalog *into, const struct catalog *from, uint32_t i,
		       const uint32_t *map_params, uint32_t *number, char *why, size_t size)
{
	struct catalog_group g = from->groups[i];
	CLEANUP(free) uint32_t *params = malloc((g.nparams ? g.nparams : 1) * sizeof(*params));
	uint32_t known = find_group(into, &g, ordinal(from, i));
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
	} else if (!same_group(&into->groups[known], &g)) {
		snprintf(why, size, "group %u is described differently by ranks that share it",
			 i);
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
		if ((rc = merge_group(into, from, i, map_params, &map_groups[i], why, whysize)))
			return rc;
	return 0;
}

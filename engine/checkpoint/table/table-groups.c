/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Param groups of the optimizer, their hyper-parameters, and what their ranks' partitions are.
 */

int table_add_group(struct table *t, const char *kind, uint32_t shards, uint32_t replicas,
		    uint32_t sub_groups, const uint32_t *ranks)
{
	struct table_group g = { .shards = shards,
				 .replicas = replicas,
				 .sub_groups = sub_groups,
				 .nranks = shards * replicas };
	int rc = t->ngroups == FRAG_GROUPS_MAX ? -ENOSPC
					       : table_room(&t->groups, t->ngroups, sizeof(g));

	assert(shards && replicas && shards <= TABLE_RANKS_MAX / replicas);
	for (uint32_t i = 0; i < g.nranks && !rc; i++)
		rc = ranks[i] >= TABLE_RANKS_MAX
			     ? table_refuse(t, -EINVAL, "a rank is too high")
			     : table_need_ranks(t, ranks[i] + 1);
	if (rc)
		return rc;
	g.ranks = calloc(g.nranks, sizeof(*ranks));
	if (!g.ranks)
		return -ENOMEM;
	memcpy(g.ranks, ranks, g.nranks * sizeof(*ranks));
	snprintf(g.kind, sizeof(g.kind), "%s", kind);
	t->groups[t->ngroups] = g;
	return (int)t->ngroups++;
}

int table_add_member(struct table *t, uint32_t group, uint32_t tensor)
{
	struct table_group *g = &t->groups[group];
	int rc = table_room(&g->params, g->nparams, sizeof(*g->params));

	assert(group < t->ngroups && tensor < t->ntensors);
	if (rc)
		return rc;
	if (t->tensors[tensor].group != TABLE_NONE)
		return table_refuse(t, -EINVAL, "%.150s is in two groups",
				    table_string(t, t->tensors[tensor].name));
	t->tensors[tensor].group = group;
	t->tensors[tensor].position = g->nparams;
	g->params[g->nparams++] = tensor;
	return 0;
}

int table_add_hyper(struct table *t, uint32_t group, const char *name, double value)
{
	struct table_group *g = &t->groups[group];
	int rc = table_room(&g->hypers, g->nhypers, sizeof(*g->hypers));

	assert(group < t->ngroups);
	if (rc)
		return rc;
	if (!*name || strlen(name) > FRAG_KEY_MAX)
		return table_refuse(t, -EINVAL, "the hyper-parameter %.40s... is too long",
				    name);
	for (uint32_t i = 0; i < g->nhypers; i++)
		if (!strcmp(g->hypers[i].name, name))
			return table_refuse(t, -EINVAL, "group %u has two hyper-parameters %s",
					    group, name);
	strcpy(g->hypers[g->nhypers].name, name);
	g->hypers[g->nhypers++].value = value;
	return 0;
}

static int append_partition(struct table *t, const char *key, const struct table_partition *of,
			    uint32_t flat)
{
	struct table_partition p = *of;
	int number = table_key(t, key), rc;

	if (number < 0)
		return number;
	rc = table_room(&t->partitions, t->npartitions, sizeof(p));
	if (rc)
		return rc;
	p.state = (struct table_state){ .kind = TABLE_FLAT,
					.tensor = TABLE_NONE,
					.first = flat,
					.key = (uint16_t)number,
					.stored = t->flats[flat].dtype,
					.shown = t->flats[flat].dtype };
	t->partitions[t->npartitions++] = p;
	return 0;
}

int table_add_partition(struct table *t, const char *key, enum frag_dtype dtype,
			const struct table_partition *of, uint32_t file, uint64_t base,
			uint64_t count)
{
	int flat = table_add_flat(t, dtype), rc;

	if (flat < 0)
		return flat;
	rc = table_add_segment(t, file, of->rank, base, count);
	return rc ? rc : append_partition(t, key, of, (uint32_t)flat);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/torch-hypers.h"
#include "engine/checkpoint/formats/zero-optim.h"

/* The groups of the optimizer, and their numbers. */

static uint32_t groups_of(const struct zero_optim *o)
{
	return pickle_get(o->source.torch.pickle, zero_optim_base(o, &o->source),
			  "param_groups");
}

static uint32_t group_of(const struct zero_optim *o, uint32_t group)
{
	return pickle_item(o->source.torch.pickle, groups_of(o), group);
}

uint32_t zero_optim_ngroups(const struct zero_optim *o)
{
	uint32_t n = pickle_count(o->source.torch.pickle, groups_of(o));

	if (o->stage != 3)
		return o->nunits;
	return n ? n : 1;
}

/* The i-th unit of a group; nunits: there is none. */
static uint32_t unit_of(const struct zero_optim *o, uint32_t group, uint32_t i)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t params = pickle_get(p, group_of(o, group), "params");
	int64_t unit;

	if (o->stage != 3)
		return group;
	if (!params && o->nunits)
		return 0;
	return pickle_int(p, pickle_item(p, params, i), &unit) && unit >= 0 &&
			       unit < (int64_t)o->nunits
		       ? (uint32_t)unit
		       : o->nunits;
}

uint32_t *zero_optim_groups(const struct zero_optim *o)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t *groups = calloc((size_t)o->nunits + 1, sizeof(*groups));

	for (uint32_t unit = 0; groups && unit < o->nunits && o->stage != 3; unit++)
		groups[unit] = unit;
	for (uint32_t g = 0; groups && g < zero_optim_ngroups(o) && o->stage == 3; g++) {
		uint32_t n = pickle_count(p, pickle_get(p, group_of(o, g), "params"));

		for (uint32_t i = 0; i < n; i++)
			groups[unit_of(o, g, i)] = g;
	}
	return groups;
}

/* The numbers of a group's first unit are those of all. */
int zero_optim_add_hypers(const struct zero_optim *o, uint32_t group, uint32_t table_group)
{
	const struct torch_source *s = &o->source;
	const struct pickle *p = s->torch.pickle;
	uint32_t optim = pickle_get(p, s->root, "optimizer_state_dict");
	uint32_t unit = unit_of(o, group, 0);
	struct tensor master = { .ndim = 1 };
	int rc = torch_hypers_add(s, table_group, group_of(o, group));

	if (unit < o->nunits)
		master.shape[0] = zero_optim_part(o, 0, unit, ZERO_MASTER)->count;
	if (!rc)
		rc = torch_hypers_add_states(s, table_group, zero_optim_states(o, s, unit),
					     &master);
	return rc ? rc
		  : torch_hypers_add_one(s, table_group, "step",
					 pickle_get(p, optim, "base_optimizer_state_step"));
}

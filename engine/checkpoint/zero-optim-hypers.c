/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/zero-optim.h"
#include "engine/dtype.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The groups of the optimizer, and their numbers. */

enum { HYPERS_MAX = 128 };

static uint32_t base_of(const struct zero_optim *o)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t optim = pickle_get(p, o->source.root, "optimizer_state_dict");

	return pickle_get(p, optim,
			  o->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
}

static uint32_t group_of(const struct zero_optim *o, uint32_t group)
{
	const struct pickle *p = o->source.torch.pickle;

	return pickle_item(p, pickle_get(p, base_of(o), "param_groups"), group);
}

uint32_t zero_optim_ngroups(const struct zero_optim *o)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t n = pickle_count(p, pickle_get(p, base_of(o), "param_groups"));

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

/* ---- numbers ---- */

struct hypers {
	const struct zero_optim *o;
	const struct pickle *p;
	uint32_t group; /* of the table */
};

/* A tensor of one number. */
static bool read_number(const struct zero_optim *o, uint32_t node, double *out)
{
	union {
		double f64;
		int64_t i64;
		int32_t i32;
		uint8_t bytes[16];
	} value;
	struct torchfile_tensor x;
	float f32;
	ssize_t n;

	if (!torch_source_tensor(&o->source, node, &x) || x.tensor.numel != 1 || x.tensor.ndim)
		return false;
	n = pread(o->table->files[o->source.file].fd, value.bytes, x.tensor.bytes, (off_t)x.at);
	if (n != (ssize_t)x.tensor.bytes)
		return false;
	if (x.tensor.dtype == FRAG_F64)
		*out = value.f64;
	else if (x.tensor.dtype == FRAG_I64)
		*out = (double)value.i64;
	else if (x.tensor.dtype == FRAG_I32)
		*out = value.i32;
	else if (!dtype_convert(FRAG_F32, &f32, x.tensor.dtype, value.bytes, 1))
		*out = (double)f32;
	else
		return false;
	return true;
}

static bool has_hyper(const struct hypers *h, const char *name)
{
	const struct table_group *g = &h->o->table->groups[h->group];

	for (uint32_t i = 0; i < g->nhypers; i++)
		if (!strcmp(g->hypers[i].name, name))
			return true;
	return false;
}

static int add_number(const struct hypers *h, const char *name, uint32_t node)
{
	double value;

	if (!pickle_number(h->p, node, &value) && !read_number(h->o, node, &value))
		return 0;
	if (h->o->table->groups[h->group].nhypers == HYPERS_MAX || has_hyper(h, name))
		return 0;
	return table_add_hyper(h->o->table, h->group, name, value);
}

/* betas are beta1, beta2. */
static int add_numbers(const struct hypers *h, const char *name, uint32_t tuple)
{
	char each[FRAG_KEY_MAX + 1];
	size_t length = strlen(name);
	int rc = 0;

	length -= length > 1 && name[length - 1] == 's';
	for (uint32_t i = 0; i < pickle_count(h->p, tuple) && i < 9 && !rc; i++) {
		int n = snprintf(each, sizeof(each), "%.*s%u", (int)length, name, i + 1);

		if (n < (int)sizeof(each))
			rc = add_number(h, each, pickle_item(h->p, tuple, i));
	}
	return rc;
}

static int add_dict(const struct hypers *h, uint32_t dict)
{
	char name[FRAG_KEY_MAX + 1];
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(h->p, dict) && !rc; i++) {
		uint32_t value = pickle_value(h->p, dict, i);

		if (!torch_source_text(h->p, pickle_key(h->p, dict, i), name, sizeof(name)) ||
		    !*name || !strcmp(name, "params") || !strcmp(name, "param_names"))
			continue;
		if (pickle_kind(h->p, value) == PICKLE_TUPLE ||
		    pickle_kind(h->p, value) == PICKLE_LIST)
			rc = add_numbers(h, name, value);
		else
			rc = add_number(h, name, value);
	}
	return rc;
}

/* The states of the first unit of a group; its numbers are those of all. */
static uint32_t first_states(const struct zero_optim *o, uint32_t group)
{
	const struct pickle *p = o->source.torch.pickle;
	uint32_t base = base_of(o), unit = unit_of(o, group, 0);

	if (pickle_kind(p, base) == PICKLE_LIST)
		return pickle_item(p, base, unit);
	return pickle_get_int(p, pickle_get(p, base, "state"), unit);
}

int zero_optim_add_hypers(const struct zero_optim *o, uint32_t group, uint32_t table_group)
{
	struct hypers h = { o, o->source.torch.pickle, table_group };
	uint32_t optim = pickle_get(h.p, o->source.root, "optimizer_state_dict");
	int rc = add_dict(&h, group_of(o, group));

	if (!rc)
		rc = add_dict(&h, first_states(o, group));
	return rc ? rc
		  : add_number(&h, "step", pickle_get(h.p, optim, "base_optimizer_state_step"));
}

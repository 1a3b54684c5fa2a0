/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/model-states.h"
#include "engine/checkpoint/formats/zero-frozen.h"
#include "engine/checkpoint/formats/zero-optim.h"
#include "engine/checkpoint/formats/zero-plain.h"
#include "engine/checkpoint/formats/zero-vectors.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* DeepSpeed's checkpoints of ZeRO-1, 2, 3, of its BF16_Optimizer, and of no ZeRO at all.  The
 * order of param_shapes is that of the data; param_slice_mappings is wrong for some runs and
 * never looked at.
 */

struct filling {
	const struct folder *folder;
	struct table *table;
	const struct zero_files *files;
	uint32_t mp;
	struct zero_optim optim;
	struct zero_vectors vectors;
	struct model_states model;
	uint32_t *groups;     /* of the optimizer, of each unit */
	uint32_t first_group; /* the table's number of the optimizer's first */
};

/* ---- groups ---- */

static int add_groups(struct filling *l)
{
	uint32_t *ranks = calloc(l->optim.nranks, sizeof(*ranks));
	char kind[16];
	int rc = 0;

	l->groups = zero_optim_groups(&l->optim);
	l->first_group = l->table->ngroups;
	if (!ranks || !l->groups)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < l->optim.nranks && !rc; i++)
		ranks[i] = l->optim.first_rank + i;
	snprintf(kind, sizeof(kind), "zero%d", l->optim.stage);
	for (uint32_t i = 0; i < zero_optim_ngroups(&l->optim) && !rc; i++) {
		uint32_t units = 0;

		for (uint32_t k = 0; k < l->optim.nunits; k++)
			units += l->groups[k] == i;
		rc = table_add_group(l->table, kind, l->optim.nranks, 1, units ? units : 1,
				     ranks);
		if (rc >= 0)
			rc = zero_optim_add_hypers(&l->optim, i, (uint32_t)rc);
	}
	free(ranks);
	return rc;
}

/* ---- parameters ---- */

static int add_param(struct filling *l, const struct model_shape *shape, uint32_t group)
{
	int tensor;

	if (shape->unfit) {
		table_skip(l->table, shape->name, "%s", shape->unfit);
		return 0;
	}
	tensor = model_states_add_tensor(&l->model, shape);
	if (tensor < 0)
		return tensor;
	return table_add_member(l->table, l->first_group + group, (uint32_t)tensor);
}

static int add_states(struct filling *l, const struct model_shape *shape, uint32_t unit,
		      uint64_t start)
{
	int rc;

	if (shape->unfit)
		return 0;
	rc = zero_vectors_add_states(&l->vectors, unit, start, shape->numel);
	return rc < 0 ? rc : model_states_add_copy(&l->model, shape);
}

/* Reads how many elements of padding are behind a parameter. */
static int alignment_of(struct filling *l, uint32_t unit, uint32_t i, uint64_t *out)
{
	const struct pickle *p = l->optim.source.torch.pickle;
	uint32_t paddings = zero_optim_alignment(&l->optim, unit);
	int64_t padding = 0;

	pickle_int(p, pickle_item(p, paddings, i), &padding);
	*out = (uint64_t)padding;
	return padding < 0 ? torch_source_refuse(&l->optim.source,
						 "param_alignment_paddings are negative")
			   : 0;
}

/* Stages 1 and 2: a group's parameters one after the other in its vector. */
static int add_flat_params(struct filling *l, uint32_t unit)
{
	uint32_t dict = model_states_group(&l->model, unit);
	uint64_t start = 0, padding;
	struct model_shape shape;
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(l->model.source.torch.pickle, dict); i++) {
		rc = model_states_shape(&l->model, dict, i, &shape);
		if (!rc)
			rc = add_param(l, &shape, unit);
		if (!rc)
			rc = add_states(l, &shape, unit, start);
		if (!rc)
			rc = alignment_of(l, unit, i, &padding);
		if (rc)
			return rc;
		if (!u64_add(start, shape.numel, &start) || !u64_add(start, padding, &start))
			return -EOVERFLOW;
	}
	return zero_vectors_check_end(&l->vectors, unit, start);
}

/* Leaves out a unit that not all ranks have: that of an expert, whose names the other ranks'
 * file does not have.
 */
static int skip_unit(struct filling *l, uint32_t unit)
{
	uint32_t dict = model_states_group(&l->model, unit);
	struct model_shape shape;
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(l->model.source.torch.pickle, dict) && !rc; i++) {
		rc = model_states_shape(&l->model, dict, i, &shape);
		table_skip(l->table, shape.name, "an expert's: partition_count is %u of %u",
			   zero_optim_partitions(&l->optim, unit), l->optim.nranks);
	}
	return rc;
}

static int add_flat_groups(struct filling *l)
{
	int rc = 0;

	if (model_states_ngroups(&l->model) != l->optim.nunits)
		return torch_source_refuse(&l->model.source,
					   "param_shapes has %u groups, optim_states %u",
					   model_states_ngroups(&l->model), l->optim.nunits);
	for (uint32_t unit = 0; unit < l->optim.nunits && !rc; unit++) {
		if (zero_optim_partitions(&l->optim, unit) == l->optim.nranks)
			rc = add_flat_params(l, unit);
		else
			rc = skip_unit(l, unit);
	}
	return rc;
}

/* Stage 3: all parameters one after the other, an equal share on each rank. */
static int add_equal_params(struct filling *l, uint32_t dict, uint64_t *start)
{
	struct model_shape shape;
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(l->model.source.torch.pickle, dict); i++) {
		uint32_t unit = zero_vectors_unit(&l->vectors, *start);

		rc = model_states_shape(&l->model, dict, i, &shape);
		if (!rc)
			rc = add_param(l, &shape, unit < l->optim.nunits ? l->groups[unit] : 0);
		if (!rc)
			rc = add_states(l, &shape, unit, *start);
		if (rc)
			return rc;
		*start += u64_div_ceil(shape.numel, l->optim.nranks); /* was found there */
	}
	return 0;
}

/* ---- a model-parallel rank ---- */

static int check_experts(struct filling *l)
{
	const struct pickle *p = l->model.source.torch.pickle;
	static const char *const keys[] = { "ds_autoep_layers", "autoep_layers" };

	for (size_t k = 0; k < ARRAY_SIZE(keys); k++) {
		uint32_t layers = model_states_get(&l->model, keys[k]);

		for (uint32_t i = 0; i < pickle_count(p, layers); i++)
			if (pickle_is_text(p,
					   pickle_get(p, pickle_item(p, layers, i),
						      "checkpoint_format"),
					   "zero3_partitioned"))
				return torch_source_refuse(&l->model.source,
							   "experts that ZeRO-3 cuts over "
							   "ranks of their own are not taken");
	}
	return 0;
}

static int open_model(struct filling *l)
{
	bool sharded = l->optim.stage == 3;
	uint32_t n;
	const struct zero_file *f =
		zero_files_of(l->files, l->mp, sharded ? ZERO_MODEL_SHARD : ZERO_MODEL, &n);

	if (!f)
		return table_refuse(l->table, -EINVAL,
				    "there is no %smp_rank_%02u_model_states.pt, which has the "
				    "names",
				    sharded ? "zero_pp_rank_0_" : "", l->mp);
	if (sharded && n != l->optim.nranks)
		return table_refuse(l->table, -EINVAL,
				    "there are optim_states of %u ranks, but model_states of "
				    "%u",
				    l->optim.nranks, n);
	return model_states_open(&l->model, l->table, l->folder, f->name, l->optim.first_rank);
}

static int fill_model(struct filling *l)
{
	uint64_t start = 0;
	int rc = check_experts(l);

	if (rc)
		return rc;
	if (!l->mp) {
		model_states_note(&l->model);
		table_note(l->table, "stage %d", l->optim.stage);
		if (l->optim.bf16_optimizer)
			table_note(l->table, "optimizer BF16_Optimizer");
		table_note(l->table, "data_parallel %u", l->optim.nranks);
		table_note(l->table, "model_parallel %u", l->files->nmp);
	}
	rc = add_groups(l);
	if (!rc)
		rc = zero_vectors_open(&l->vectors, &l->optim, l->groups, l->first_group);
	if (!rc && l->optim.stage != 3)
		rc = add_flat_groups(l);
	if (!rc && l->optim.stage == 3) {
		for (uint32_t i = 0; i < model_states_ngroups(&l->model) && !rc; i++)
			rc = add_equal_params(l, model_states_group(&l->model, i), &start);
		if (!rc)
			rc = zero_vectors_check_end(&l->vectors, 0, start);
	}
	zero_vectors_close(&l->vectors);
	free(l->groups);
	return rc ? rc : zero_frozen_add_rest(&l->model, l->folder, l->files, l->mp, &l->optim);
}

static int fill_sharded(struct filling *l, const struct zero_file *optim, uint32_t nranks)
{
	int rc = zero_optim_open(&l->optim, l->table, l->folder, optim, nranks, l->mp * nranks);

	if (rc)
		return rc;
	rc = open_model(l);
	if (!rc) {
		rc = fill_model(l);
		model_states_close(&l->model);
	}
	zero_optim_close(&l->optim);
	return rc;
}

static int fill_rank(const struct folder *f, struct table *t, const struct zero_files *files,
		     uint32_t mp)
{
	struct filling l = { .folder = f, .table = t, .files = files, .mp = mp };
	uint32_t n;
	const struct zero_file *optim = zero_files_of(files, mp, ZERO_OPTIM, &n), *model;

	if (optim)
		return fill_sharded(&l, optim, n);
	model = zero_files_of(files, mp, ZERO_MODEL, &n);
	if (!model)
		return table_refuse(
			t, -EINVAL,
			"there is no optim_states of zero_pp_rank_0 for mp_rank_%02u", mp);
	return zero_plain_fill(t, f, model->name, t->nranks);
}

static int fill(const struct folder *f, struct table *t)
{
	struct zero_files files;
	int rc = zero_files_list(&files, f, t);

	if (rc)
		return rc;
	if (!files.nmp)
		rc = table_refuse(t, -EINVAL, "there is no *_model_states.pt");
	for (uint32_t mp = 0; mp < files.nmp && !rc; mp++) {
		char name[24];

		snprintf(name, sizeof(name), "mp_rank_%02u", mp);
		if (files.nmp > 1)
			rc = table_begin_part(t, name);
		if (!rc)
			rc = fill_rank(f, t, &files, mp);
	}
	zero_files_free(&files);
	return rc;
}

const struct format format_zero = {
	.name = "zero",
	.looks = "mp_rank_*_model_states.pt, zero_pp_rank_*_optim_states.pt",
	.knows = zero_files_any,
	.fill = fill,
};

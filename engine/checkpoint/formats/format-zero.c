/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/vec.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/model-states.h"
#include "engine/checkpoint/formats/zero-frozen.h"
#include "engine/checkpoint/formats/zero-optim.h"
#include "engine/checkpoint/formats/zero-plain.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* ---- vectors ----
 *
 * The table's vectors that ZeRO's parameters are cut out of.  Stages 1 and 2 have a vector for
 * each key and group; stage 3 has one for each key, rank and run of adjacent sub-groups that
 * have the key.  Also adds the ranks' partitions as they are.
 */

struct zero_run {
	uint32_t key;
	uint32_t flat; /* the table's vector; stage 3: that of the first rank */
	/* elements of the group's vector; stage 3: of a rank's vector of all units */
	uint64_t begin, end;
};

struct zero_vectors {
	const struct zero_optim *optim;
	struct vec runs; /* struct zero_run, by key, then begin; stages 1, 2: those of `unit` */
	uint32_t unit;
	uint64_t *ends; /* [nunits], stage 3: where each unit ends in a rank's vector */
};

static int add_run(struct zero_vectors *v, struct zero_run run)
{
	struct zero_run *added = vec_add(&v->runs, sizeof(*added));

	if (!added)
		return -ENOMEM;
	*added = run;
	return 0;
}

static uint64_t master_count(const struct zero_vectors *v, uint32_t rank, uint32_t unit)
{
	return zero_optim_part(v->optim, rank, unit, ZERO_MASTER)->count;
}

/* Returns the dtype of a state if all ranks that hold elements of the unit have the state, in
 * one dtype; else 0.
 */
static enum frag_dtype common_dtype(const struct zero_vectors *v, uint32_t unit, uint32_t key)
{
	uint32_t dtype = 0;

	for (uint32_t rank = 0; rank < v->optim->nranks; rank++) {
		const struct zero_part *part = zero_optim_part(v->optim, rank, unit, key);

		if (!master_count(v, rank, unit))
			continue;
		if (!part->dtype || (dtype && part->dtype != dtype))
			return 0;
		dtype = part->dtype;
	}
	return dtype ? dtype : zero_optim_part(v->optim, 0, unit, key)->dtype;
}

/* Appends a rank's part to the newest vector.  Padding that a state has and its master has not
 * is left out.
 */
static int add_segment(struct zero_vectors *v, uint32_t rank, uint32_t unit, uint32_t key)
{
	const struct zero_optim *o = v->optim;

	return table_add_segment(o->table, o->files[rank], o->first_rank + rank,
				 zero_optim_part(o, rank, unit, key)->at,
				 master_count(v, rank, unit));
}

/* ---- stages 1 and 2: one vector of all ranks ---- */

static int add_flat(struct zero_vectors *v, uint32_t unit, uint32_t key)
{
	enum frag_dtype dtype = common_dtype(v, unit, key);
	struct table *t = v->optim->table;
	int flat, rc = 0;

	if (!dtype)
		return 0;
	flat = table_add_flat(t, dtype);
	if (flat < 0)
		return flat;
	for (uint32_t rank = 0; rank < v->optim->nranks && !rc; rank++)
		rc = add_segment(v, rank, unit, key);
	if (rc)
		return rc;
	return add_run(v, (struct zero_run){ key, (uint32_t)flat, 0, t->flats[flat].count });
}

/* ---- stage 3: a vector of each rank ---- */

static int check_counts(struct zero_vectors *v)
{
	const struct zero_optim *o = v->optim;

	for (uint32_t unit = 0; unit < o->nunits; unit++)
		for (uint32_t rank = 1; rank < o->nranks; rank++)
			if (master_count(v, rank, unit) != master_count(v, 0, unit))
				return table_refuse(o->table, -EINVAL,
						    "%.150s: sub-group %u has %" PRIu64
						    " elements, %" PRIu64 " on rank 0",
						    o->table->files[o->files[rank]].name, unit,
						    master_count(v, rank, unit),
						    master_count(v, 0, unit));
	return 0;
}

static int count_ends(struct zero_vectors *v)
{
	uint64_t end = 0;

	v->ends = calloc((size_t)v->optim->nunits + 1, sizeof(*v->ends));
	if (!v->ends)
		return -ENOMEM;
	for (uint32_t unit = 0; unit < v->optim->nunits; unit++) {
		if (!u64_add(end, master_count(v, 0, unit), &end))
			return -EOVERFLOW;
		v->ends[unit] = end;
	}
	return 0;
}

static uint64_t begin_of(const struct zero_vectors *v, uint32_t unit)
{
	return unit ? v->ends[unit - 1] : 0;
}

/* Adds the vectors of units [first, end). */
static int add_equal(struct zero_vectors *v, uint32_t key, uint32_t first, uint32_t end)
{
	enum frag_dtype dtype = common_dtype(v, first, key);
	struct zero_run run = { key, v->optim->table->nflats, begin_of(v, first),
				begin_of(v, end) };
	int rc = 0;

	for (uint32_t rank = 0; rank < v->optim->nranks && rc >= 0; rank++) {
		rc = table_add_flat(v->optim->table, dtype);
		for (uint32_t unit = first; unit < end && rc >= 0; unit++)
			rc = add_segment(v, rank, unit, key);
	}
	return rc < 0 ? rc : add_run(v, run);
}

static int add_equals(struct zero_vectors *v, uint32_t key)
{
	uint32_t n = v->optim->nunits, end;
	int rc = 0;

	for (uint32_t unit = 0; unit < n && !rc; unit = end) {
		enum frag_dtype dtype = common_dtype(v, unit, key);

		for (end = unit + 1; end < n && common_dtype(v, end, key) == dtype; end++)
			;
		if (dtype)
			rc = add_equal(v, key, unit, end);
	}
	return rc;
}

/* Stage 3: returns the unit that has an element of a rank's vector; nunits: none has. */
static uint32_t zero_vectors_unit(const struct zero_vectors *v, uint64_t start)
{
	return (uint32_t)LOWER_BOUND(v->optim->nunits, i, v->ends[i] <= start);
}

/* ---- partitions ---- */

static int add_partition(struct zero_vectors *v, uint32_t rank, uint32_t unit, uint32_t group,
			 uint32_t sub)
{
	const struct zero_optim *o = v->optim;
	int rc = 0;

	for (uint32_t key = 0; key < o->nkeys && rc >= 0; key++) {
		const struct zero_part *part = zero_optim_part(o, rank, unit, key);
		bool low = key == ZERO_MASTER && part->dtype != FRAG_F32;

		if (part->dtype)
			rc = table_add_partition(
				o->table, low ? "master" : o->keys[key], part->dtype,
				&(struct table_partition){ .rank = o->first_rank + rank,
							   .group = group,
							   .sub = sub },
				o->files[rank], part->at, part->count);
	}
	return rc < 0 ? rc : 0;
}

static int add_partitions(struct zero_vectors *v, const uint32_t *groups, uint32_t first_group)
{
	const struct zero_optim *o = v->optim;
	uint32_t *subs = calloc((size_t)zero_optim_ngroups(o) + 1, sizeof(*subs));
	int rc = subs ? 0 : -ENOMEM;

	for (uint32_t unit = 0; unit < o->nunits && !rc; unit++) {
		uint32_t sub = subs[groups[unit]]++;

		for (uint32_t rank = 0; rank < o->nranks && !rc; rank++)
			rc = add_partition(v, rank, unit, first_group + groups[unit], sub);
	}
	free(subs);
	return rc;
}

/* Adds vectors and partitions to the table.  groups: the optimizer's group of each unit;
 * first_group: the table's number of the first of these groups.
 */
static int zero_vectors_open(struct zero_vectors *v, const struct zero_optim *o,
			     const uint32_t *groups, uint32_t first_group)
{
	int rc;

	*v = (struct zero_vectors){ .optim = o, .unit = UINT32_MAX };
	rc = add_partitions(v, groups, first_group);
	if (rc || o->stage != 3)
		return rc;
	rc = check_counts(v);
	if (!rc)
		rc = count_ends(v);
	for (uint32_t key = 0; key < o->nkeys && !rc; key++)
		rc = add_equals(v, key);
	return rc;
}

static void zero_vectors_close(struct zero_vectors *v)
{
	free(v->runs.items);
	free(v->ends);
	*v = (struct zero_vectors){ 0 };
}

/* ---- parameters ---- */

/* Finds the run of a key that has all of [start, end); NULL: none. */
static const struct zero_run *find_run(const struct zero_vectors *v, uint32_t key,
				       uint64_t start, uint64_t end)
{
	const struct zero_run *runs = v->runs.items, *r;
	uint64_t behind = LOWER_BOUND(v->runs.count, i,
				      runs[i].key < key ||
					      (runs[i].key == key && runs[i].begin <= start));

	r = behind ? &runs[behind - 1] : NULL;
	return r && r->key == key && end <= r->end ? r : NULL;
}

static int add_state(struct zero_vectors *v, const struct zero_run *r, const char *key,
		     uint64_t start)
{
	const struct zero_optim *o = v->optim;

	if (o->stage != 3)
		return table_add_flat_state(o->table, key, r->flat, start);
	return table_add_equal_state(o->table, key, r->flat, o->nranks, start - r->begin);
}

/* Adds the master.  A master in low precision, which some runs keep, is also shown widened, as
 * fp32.
 */
static int add_master(struct zero_vectors *v, const struct zero_run *r, uint64_t start)
{
	struct table *t = v->optim->table;
	int rc;

	if (t->flats[r->flat].dtype == FRAG_F32)
		return add_state(v, r, "fp32", start);
	rc = add_state(v, r, "master", start);
	return rc < 0 ? rc : table_add_widened(t);
}

/* Adds the states of the newest tensor, which begins at element `start` of the unit's vector,
 * in stage 3 of a rank's vector.
 */
static int zero_vectors_add_states(struct zero_vectors *v, uint32_t unit, uint64_t start,
				   uint64_t numel)
{
	const struct zero_optim *o = v->optim;
	const struct table_tensor *newest = &o->table->tensors[o->table->ntensors - 1];
	uint64_t share = o->stage == 3 ? u64_div_ceil(numel, o->nranks) : numel, end;
	int rc = 0;

	if (o->stage != 3 && unit != v->unit) {
		v->runs.count = 0;
		v->unit = unit;
		for (uint32_t key = 0; key < o->nkeys && !rc; key++)
			rc = add_flat(v, unit, key);
	}
	if (!u64_add(start, share, &end))
		rc = -EOVERFLOW;
	for (uint32_t key = 0; key < o->nkeys && rc >= 0; key++) {
		const struct zero_run *r = find_run(v, key, start, end);

		if (r && key == ZERO_MASTER)
			rc = add_master(v, r, start);
		else if (r)
			rc = add_state(v, r, o->keys[key], start);
		else if (key == ZERO_MASTER)
			rc = table_refuse(o->table, -EINVAL,
					  "%.150s: its elements are not all in the ranks' "
					  "files: %.60s and others are too short",
					  table_string(o->table, newest->name),
					  o->table->files[o->files[0]].name);
	}
	return rc < 0 ? rc : 0;
}

/* Counts the elements of masters: of all ranks together, in stage 3 of each rank. */
static uint64_t total_of(const struct zero_vectors *v, uint32_t unit)
{
	uint64_t total = 0;

	if (v->optim->stage == 3)
		return v->optim->nunits ? v->ends[v->optim->nunits - 1] : 0;
	for (uint32_t rank = 0; rank < v->optim->nranks; rank++)
		if (!u64_add(total, master_count(v, rank, unit), &total))
			return UINT64_MAX;
	return total;
}

/* Checks that param_shapes, whose parameters end at `end`, are as long as the vectors of the
 * files, but for padding.
 * -EINVAL.
 */
static int zero_vectors_check_end(struct zero_vectors *v, uint32_t unit, uint64_t end)
{
	const struct zero_optim *o = v->optim;
	/* stages 1 and 2 pad a group to a multiple of twice the ranks */
	uint64_t align = o->stage == 3 ? 1 : 2 * (uint64_t)o->nranks;
	uint64_t total = total_of(v, unit);

	if (u64_div_ceil(total, align) == u64_div_ceil(end, align))
		return 0;
	return table_refuse(o->table, -EINVAL,
			    "%.100s and others have %" PRIu64
			    " elements of group %u, but the shapes want %" PRIu64,
			    o->table->files[o->files[0]].name, total, unit, end);
}

/* DeepSpeed's checkpoints of ZeRO-1, 2, 3, of its BF16_Optimizer, and of no ZeRO at all.  The
 * order of param_shapes is that of the data; param_slice_mappings is wrong for some runs and
 * never looked at.
 */

struct zero_loader {
	const struct folder *folder;
	struct table *table;
	const struct zero_files *files;
	uint32_t mp;
	struct zero_optim optim;
	struct zero_vectors vectors;
	struct model_states model;
	uint32_t *groups;     /* [nunits], the optimizer's group of each unit */
	uint32_t first_group; /* the table's number of the optimizer's first group */
};

/* ---- groups ---- */

static int add_groups(struct zero_loader *l)
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

/* ---- the parameters of stages 1 to 3 ---- */

static int add_param(struct zero_loader *l, const struct model_shape *shape, uint32_t group)
{
	int tensor;

	if (shape->unsupported) {
		table_skip(l->table, shape->name, "%s", shape->unsupported);
		return 0;
	}
	tensor = model_states_add_tensor(&l->model, shape);
	if (tensor < 0)
		return tensor;
	return table_add_member(l->table, l->first_group + group, (uint32_t)tensor);
}

static int add_states(struct zero_loader *l, const struct model_shape *shape, uint32_t unit,
		      uint64_t start)
{
	int rc;

	if (shape->unsupported)
		return 0;
	rc = zero_vectors_add_states(&l->vectors, unit, start, shape->numel);
	return rc < 0 ? rc : model_states_add_copy(&l->model, shape);
}

/* Reads how many elements of padding follow a parameter. */
static int alignment_of(struct zero_loader *l, uint32_t unit, uint32_t i, uint64_t *out)
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

/* Stages 1 and 2: adds a group's parameters, one after the other in its vector. */
static int add_flat_params(struct zero_loader *l, uint32_t unit)
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

/* Leaves out a unit that not all ranks have: an expert's, whose names on the other ranks this
 * file does not have.
 */
static int skip_unit(struct zero_loader *l, uint32_t unit)
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

static int add_flat_groups(struct zero_loader *l)
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

/* Stage 3: adds all parameters, one after the other, an equal share on each rank. */
static int add_equal_params(struct zero_loader *l, uint32_t dict, uint64_t *start)
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
		/* no overflow: add_states found the share */
		*start += u64_div_ceil(shape.numel, l->optim.nranks);
	}
	return 0;
}

/* ---- a model-parallel rank ---- */

static int check_experts(struct zero_loader *l)
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

static int open_model(struct zero_loader *l)
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

static int fill_model(struct zero_loader *l)
{
	uint64_t start = 0;
	int rc = check_experts(l);

	if (rc)
		return rc;
	if (!l->mp) {
		rc = model_states_note(&l->model);
		if (rc)
			return rc;
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

static int fill_sharded(struct zero_loader *l, const struct zero_file *optim, uint32_t nranks)
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
	struct zero_loader l = { .folder = f, .table = t, .files = files, .mp = mp };
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

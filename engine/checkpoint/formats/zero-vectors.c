/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/formats/zero-vectors.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

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

/* Returns the dtype of a state, if all ranks that hold anything of the unit have the state, in
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

/* Appends a rank's part to the newest vector.  Padding that a state has, but its master has
 * not, is left out.
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

uint32_t zero_vectors_unit(const struct zero_vectors *v, uint64_t start)
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

int zero_vectors_open(struct zero_vectors *v, const struct zero_optim *o,
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

void zero_vectors_close(struct zero_vectors *v)
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

/* Adds the master.  One in low precision, which some runs keep, is also shown widened, as fp32.
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

int zero_vectors_add_states(struct zero_vectors *v, uint32_t unit, uint64_t start,
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

/* Counts the elements of masters: those of all ranks together or, in stage 3, of each. */
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

int zero_vectors_check_end(struct zero_vectors *v, uint32_t unit, uint64_t end)
{
	const struct zero_optim *o = v->optim;
	uint64_t align = o->stage == 3 ? 1 : 2 * (uint64_t)o->nranks;
	uint64_t total = total_of(v, unit);

	if (u64_div_ceil(total, align) == u64_div_ceil(end, align))
		return 0;
	return table_refuse(o->table, -EINVAL,
			    "%.100s and others have %" PRIu64
			    " elements of group %u, but the shapes want %" PRIu64,
			    o->table->files[o->files[0]].name, total, unit, end);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/catalog/layout.h"

#include <errno.h>

static bool has_elements(const struct layout_param *p)
{
	return !p->frozen && p->numel;
}

static int spec_check(const struct layout_spec *spec, const struct layout_param *params,
		      uint32_t nparams)
{
	if (spec->kind > LAYOUT_ROWS || !spec->shards)
		return -EINVAL;
	if (spec->kind == LAYOUT_FLAT && !spec->alignment)
		return -EINVAL;
	for (uint32_t i = 0; spec->kind == LAYOUT_ROWS && i < nparams; i++)
		if (params[i].numel && (!params[i].row || params[i].numel % params[i].row))
			return -EINVAL;
	return 0;
}

/* Allocates n items; NULL, also for n = 0, says that there is no memory. */
static void *array(uint32_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

static int layout_allocate(struct layout *l)
{
	l->offset = array(l->nparams, sizeof(*l->offset));
	l->numel = array(l->nparams, sizeof(*l->numel));
	if (!l->offset || !l->numel)
		return -ENOMEM;
	if (l->kind != LAYOUT_FLAT) {
		l->sub = array(l->nparams, sizeof(*l->sub));
		if (!l->sub)
			return -ENOMEM;
	}
	if (l->kind != LAYOUT_ROWS)
		return 0;
	l->row = array(l->nparams, sizeof(*l->row));
	l->cuts = array(l->nparams, sizeof(*l->cuts));
	return l->row && l->cuts ? 0 : -ENOMEM;
}

static int layout_take(struct layout *l, const struct layout_param *params)
{
	for (uint32_t i = 0; i < l->nparams; i++) {
		if (!has_elements(&params[i]))
			continue;
		l->numel[i] = params[i].numel;
		if (l->row) {
			l->row[i] = params[i].row;
			l->cuts[i] = params[i].cuts;
		}
		if (!u64_add(l->total, params[i].numel, &l->total))
			return -EOVERFLOW;
	}
	return 0;
}

/* ---- FLAT ---- */

/* Places a parameter behind `end`, and returns where it ends. */
static uint64_t flat_place(struct layout *l, const struct layout_spec *spec, uint32_t param,
			   uint64_t end)
{
	uint64_t unit = spec->param_alignment ? spec->param_alignment : 1;

	l->offset[param] = u64_div_ceil(end, unit) * unit;
	return l->numel[param] ? l->offset[param] + l->numel[param] : end;
}

static uint64_t flat_in_order(struct layout *l, const struct layout_spec *spec)
{
	uint64_t end = 0;

	for (uint32_t i = 0; i < l->nparams; i++)
		end = flat_place(l, spec, i, end);
	return end;
}

static int flat_round_robin(struct layout *l, const struct layout_spec *spec, uint64_t *end)
{
	CLEANUP(free) uint32_t *taken = array(l->nparams, sizeof(*taken));
	uint32_t n = 0;

	*end = 0;
	if (!taken)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->nparams; i++)
		if (l->numel[i])
			taken[n++] = i;
	for (uint64_t first = 0; first < l->shards && first < n; first++)
		for (uint64_t at = first; at < n; at += l->shards)
			*end = flat_place(l, spec, taken[at], *end);
	return 0;
}

static int flat_build(struct layout *l, const struct layout_spec *spec)
{
	uint64_t unit = (uint64_t)spec->alignment * spec->shards;
	uint64_t gaps = (uint64_t)spec->param_alignment * l->nparams, end, most, aligned;
	int rc = 0;

	/* the greatest end that there can be: nothing below overflows */
	if (!u64_add(l->total, gaps, &most) || !u64_mul(u64_div_ceil(most, unit), unit, &most))
		return -EOVERFLOW;
	l->partition_numel = array(1, sizeof(*l->partition_numel));
	if (!l->partition_numel)
		return -ENOMEM;
	if (spec->round_robin)
		rc = flat_round_robin(l, spec, &end);
	else
		end = flat_in_order(l, spec);
	aligned = u64_div_ceil(end, unit) * unit;
	l->partition_numel[0] = aligned / spec->shards;
	l->nsubs = l->total ? 1 : 0;
	return rc;
}

/* ---- PER_PARAM and ROWS ---- */

static uint64_t piece_of(const struct layout *l, uint32_t param)
{
	uint64_t row = l->kind == LAYOUT_ROWS && l->numel[param] ? l->row[param] : 1;

	if (l->cuts && l->cuts[param])
		return cuts_largest(l->cuts[param]);
	return u64_div_ceil(l->numel[param] / row, l->shards) * row;
}

/* Adds up the pieces, which bounds every partition; the sum for all shards fits 64 bits too. */
static int pieces_sum(const struct layout *l, uint64_t *sum)
{
	uint64_t all;

	*sum = 0;
	for (uint32_t i = 0; i < l->nparams; i++)
		if (!u64_add(*sum, piece_of(l, i), sum))
			return -EOVERFLOW;
	return u64_mul(*sum, l->shards, &all) ? 0 : -EOVERFLOW;
}

/* A parameter opens a sub-group when the sub-group before is full, so that no empty one is at
 * the end.
 */
static uint32_t pieces_place(struct layout *l, uint64_t limit, uint64_t *partition)
{
	uint64_t filled = 0;
	uint32_t subs = 0;

	for (uint32_t i = 0; i < l->nparams; i++) {
		if (l->numel[i] && (!subs || filled >= limit)) {
			subs++;
			filled = 0;
		}
		l->sub[i] = subs ? subs - 1 : 0;
		l->offset[i] = filled;
		filled += piece_of(l, i);
		if (partition && subs)
			partition[subs - 1] = filled;
	}
	return subs;
}

static int pieces_build(struct layout *l, const struct layout_spec *spec)
{
	uint64_t sum;
	uint64_t limit = spec->sub_group_size ? spec->sub_group_size : UINT64_MAX;
	int err = pieces_sum(l, &sum);

	if (err)
		return err;
	/* the first walk counts the sub-groups, the second fills their partitions */
	l->nsubs = pieces_place(l, limit, NULL);
	l->partition_numel = array(l->nsubs, sizeof(*l->partition_numel));
	if (!l->partition_numel)
		return -ENOMEM;
	pieces_place(l, limit, l->partition_numel);
	return 0;
}

int layout_init(struct layout *l, const struct layout_spec *spec,
		const struct layout_param *params, uint32_t nparams)
{
	int err = spec_check(spec, params, nparams);

	if (err)
		return err;
	*l = (struct layout){ .kind = spec->kind, .shards = spec->shards, .nparams = nparams };
	err = layout_allocate(l);
	if (!err)
		err = layout_take(l, params);
	if (!err)
		err = spec->kind == LAYOUT_FLAT ? flat_build(l, spec) : pieces_build(l, spec);
	if (err)
		layout_fini(l);
	return err;
}

void layout_fini(struct layout *l)
{
	free(l->offset);
	free(l->numel);
	free(l->row);
	free(l->cuts);
	free(l->sub);
	free(l->partition_numel);
	*l = (struct layout){ 0 };
}

/* ---- asking ---- */

static void flat_find(const struct layout *l, uint32_t param, uint64_t at,
		      struct layout_fragment *f)
{
	uint64_t partition = l->partition_numel[0];
	uint64_t flat = l->offset[param] + at;

	f->shard = (uint32_t)(flat / partition);
	f->partition_offset = flat % partition;
	f->numel = u64_min(l->numel[param] - at, partition - f->partition_offset);
}

static void piece_find(const struct layout *l, uint32_t param, uint64_t at,
		       struct layout_fragment *f)
{
	uint64_t piece = piece_of(l, param);
	uint64_t inside = at % piece;

	f->shard = (uint32_t)(at / piece);
	f->partition_offset = l->offset[param] + inside;
	f->numel = u64_min(l->numel[param] - at, piece - inside);
}

static void box_find(const struct layout *l, uint32_t param, uint64_t at,
		     struct layout_fragment *f)
{
	struct cuts_box box;

	cuts_find(l->cuts[param], at, &box);
	f->shard = box.shard;
	f->partition_offset = l->offset[param] + at - box.start;
	f->numel = box.start + box.numel - at;
}

bool layout_find(const struct layout *l, uint32_t param, uint64_t at, struct layout_fragment *f)
{
	if (param >= l->nparams || at >= l->numel[param])
		return false;
	f->sub = layout_sub(l, param);
	f->param_offset = at;
	if (l->kind == LAYOUT_FLAT)
		flat_find(l, param, at, f);
	else if (l->cuts && l->cuts[param])
		box_find(l, param, at, f);
	else
		piece_find(l, param, at, f);
	return true;
}

/* Finds the first element of the parameter that can lie on the shard; false: the parameter ends
 * before.
 */
static bool first_on_shard(const struct layout *l, uint32_t param, uint32_t shard, uint64_t *at)
{
	struct cuts_box box;
	uint64_t start;

	if (l->cuts && l->cuts[param]) {
		cuts_box(l->cuts[param], shard, &box);
		*at = box.start;
		return true;
	}
	if (l->kind != LAYOUT_FLAT)
		return u64_mul(piece_of(l, param), shard, at);
	start = l->partition_numel[0] * shard;
	*at = start > l->offset[param] ? start - l->offset[param] : 0;
	return true;
}

bool layout_on_shard(const struct layout *l, uint32_t param, uint32_t shard,
		     struct layout_fragment *f)
{
	uint64_t at;

	if (param >= l->nparams || shard >= l->shards || !first_on_shard(l, param, shard, &at))
		return false;
	return layout_find(l, param, at, f) && f->shard == shard;
}

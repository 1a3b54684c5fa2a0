/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/catalog.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WORLD = 4 };

static int add(struct catalog *c, const char *name, const char *coordinate, uint64_t rows,
	       uint64_t columns)
{
	return catalog_add_param(c, name, coordinate, FRAG_BF16, 2,
				 (uint64_t[]){ rows, columns }, 0, 0);
}

static int group_over(struct catalog *c, uint32_t nranks, const uint32_t *ranks, uint32_t first,
		      uint32_t nparams, uint8_t stage, char *why)
{
	uint32_t params[16];

	for (uint32_t i = 0; i < nparams; i++)
		params[i] = first + i;
	return catalog_add_group(c,
				 &(struct catalog_group){ .stage = stage,
							  .replicas = 1,
							  .nranks = nranks,
							  .ranks = (uint32_t *)(uintptr_t)ranks,
							  .nparams = nparams,
							  .params = params,
							  .sub_group_size = 40 },
				 why, 200);
}

static const uint32_t all[WORLD] = { 0, 1, 2, 3 };

/* Two groups, a frozen, an empty, a scalar and a parameter without a group. */
static struct catalog *sample(void)
{
	struct catalog *c = catalog_new();
	char why[200];

	ck_assert_int_eq(add(c, "embed", "", 13, 7), 0);
	ck_assert_int_eq(add(c, "up", "tp=1", 5, 3), 1);
	ck_assert_int_eq(add(c, "empty", "", 0, 3), 2);
	ck_assert_int_eq(catalog_add_param(c, "scalar", "", FRAG_F32, 0, NULL, 0, 2), 3);
	ck_assert_int_eq(catalog_add_param(c, "frozen", "", FRAG_F16, 1, (uint64_t[]){ 9 },
					   FRAG_FROZEN, 0),
			 4);
	ck_assert_int_eq(add(c, "alone", "", 2, 2), 5);
	ck_assert_int_eq(group_over(c, WORLD, all, 0, 2, 2, why), 0);
	ck_assert_int_eq(group_over(c, 2, (uint32_t[]){ 3, 1 }, 2, 3, 3, why), 1);
	ck_assert_int_eq(catalog_finish(c), 0);
	return c;
}

/* What holds for every catalog, wherever it came from. */
static void check_whole(const struct catalog *c, uint32_t world)
{
	for (uint32_t i = 0; i < c->nparams; i++) {
		const struct catalog_param *p = &c->params[i];

		ck_assert_uint_eq(catalog_find(c, catalog_name(c, i), catalog_coordinate(c, i)),
				  i);
		ck_assert_uint_gt(frag_dtype_size(p->dtype), 0);
		ck_assert_uint_lt(p->owner, world);
		if (p->group != CATALOG_NONE)
			ck_assert_uint_eq(c->groups[p->group].params[p->position], i);
	}
	for (uint32_t i = 0; i < c->ngroups; i++) {
		const struct catalog_group *g = &c->groups[i];
		struct layout_fragment f;

		ck_assert_uint_eq(g->nranks % g->replicas, 0);
		ck_assert_uint_gt(g->layout.shards, 0);
		for (uint32_t k = 0; k < g->nparams; k++)
			for (uint32_t shard = 0; shard < g->layout.shards; shard++)
				if (layout_on_shard(&g->layout, k, shard, &f))
					ck_assert_uint_le(f.partition_offset + f.numel,
							  g->layout.partition_numel[f.sub]);
	}
}

static struct wire_writer encoded(const struct catalog *c)
{
	struct wire_writer w = { 0 };

	ck_assert_int_eq(catalog_encode(c, &w), 0);
	return w;
}

/* How many of the first sub-groups DeepSpeed 0.19.8 leaves out, int((1 - ratio) * n) of
 * stage3.py, and how many that ought to be: 0.1 of 10 is 1 where numbers are exact.
 */
static const struct {
	double ratio;
	uint32_t sub_groups, deepspeed, ours;
} ratios[] = {
	{ 1, 7, 0, 0 },      { 0, 7, 7, 7 },    { 0.5, 7, 3, 3 }, { 0.7, 10, 3, 3 },
	{ 0.99, 100, 1, 1 }, { 0.34, 3, 1, 1 }, { 0.6, 5, 2, 2 }, { 0.999, 1, 0, 0 },
	{ 0.9, 10, 0, 1 },   { 0.8, 5, 0, 1 },
};

/* Of n parameters in two groups, each in a sub-group of its own; rank 1 is in the second alone.
 */
START_TEST(the_first_sub_groups_of_a_ratio)
{
	uint32_t n = ratios[_i].sub_groups, first = n / 2, count[2] = { 0 };
	struct catalog *c = catalog_new();
	const uint32_t ranks[] = { 0, 1 };
	char why[200], name[20];

	for (uint32_t p = 0; p < n; p++) {
		snprintf(name, sizeof(name), "p%u", p);
		ck_assert_int_eq(add(c, name, "", 20, 5), (int)p);
	}
	for (uint32_t g = 0; g < 2; g++) {
		uint32_t params[100];

		for (uint32_t i = 0; i < n; i++)
			params[i] = (g ? first : 0) + i;
		ck_assert_int_eq(
			catalog_add_group(
				c,
				&(struct catalog_group){ .stage = 3,
							 .replicas = 1,
							 .nranks = g + 1,
							 .ranks = (uint32_t *)(uintptr_t)ranks,
							 .nparams = g ? n - first : first,
							 .params = params,
							 .sub_group_size = 1 },
				why, sizeof(why)),
			(int)g);
	}
	ck_assert_int_eq(catalog_finish(c), 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		for (uint32_t g = rank; g < 2; g++) {
			ck_assert_uint_eq(c->groups[g].layout.nsubs, g ? n - first : first);
			for (uint32_t sub = 0; sub < c->groups[g].layout.nsubs; sub++) {
				bool is_first = catalog_is_among_first(c, rank, g, sub,
								       1 - ratios[_i].ratio);

				ck_assert(!is_first || rank ||
					  (g ? first : 0) + sub == count[0]);
				count[rank] += is_first;
			}
		}
	ck_assert_uint_eq((uint32_t)((1 - ratios[_i].ratio) * n), ratios[_i].deepspeed);
	ck_assert_uint_eq(count[0], ratios[_i].ours);
	ck_assert_uint_eq(count[1], (uint32_t)((1 - ratios[_i].ratio) * (n - first) + 1e-6));
	catalog_free(c);
}
END_TEST

START_TEST(an_encoding_decodes_to_the_same)
{
	struct catalog *c = sample(), *d;
	struct wire_writer w = encoded(c), again;
	char why[200];

	ck_assert_int_eq(catalog_decode(&d, w.data, w.size, WORLD, why, sizeof(why)), 0);
	again = encoded(d);
	ck_assert_uint_eq(again.size, w.size);
	ck_assert_int_eq(memcmp(again.data, w.data, w.size), 0);
	ck_assert_uint_eq(d->hash, c->hash);
	ck_assert_uint_eq(d->params[3].owner, 2);
	ck_assert_uint_eq(d->groups[1].layout.partition_numel[0],
			  c->groups[1].layout.partition_numel[0]);
	check_whole(d, WORLD);
	free(w.data);
	free(again.data);
	catalog_free(c);
	catalog_free(d);
}
END_TEST

/* Decodes exactly size bytes: whole or an error, never half. */
static bool decodes(const uint8_t *bytes, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1);
	struct catalog *c = NULL;
	char why[200] = "";
	int rc;

	memcpy(exact, bytes, size);
	rc = catalog_decode(&c, exact, size, WORLD, why, sizeof(why));
	free(exact);
	if (!rc) {
		check_whole(c, WORLD);
		catalog_free(c);
		return true;
	}
	ck_assert(rc == -EBADMSG || rc == -ENOMEM);
	ck_assert_ptr_null(c);
	ck_assert_str_ne(why, "");
	return false;
}

START_TEST(every_truncation_is_an_error)
{
	struct catalog *c = sample();
	struct wire_writer w = encoded(c);

	for (size_t size = 0; size < w.size; size++)
		ck_assert(!decodes(w.data, size));
	ck_assert(decodes(w.data, w.size));
	wire_put_u8(&w, 0); /* and so is a byte too much */
	ck_assert(!decodes(w.data, w.size));
	free(w.data);
	catalog_free(c);
}
END_TEST

START_TEST(damaged_bytes_give_an_error_or_a_whole_catalog)
{
	struct catalog *c = sample();
	struct wire_writer w = encoded(c);
	unsigned good = 0;

	srand(1);
	for (size_t bit = 0; bit < w.size * 8; bit++) {
		w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		good += decodes(w.data, w.size);
		w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (unsigned i = 0; i < 3000; i++) {
		struct wire_writer d = { 0 };

		wire_put_bytes(&d, w.data, w.size);
		for (int n = rand() % 4; n >= 0; n--)
			d.data[(size_t)rand() % d.size] = (uint8_t)(rand() % 3 ? rand() : 255);
		good += decodes(d.data, d.size);
		free(d.data);
	}
	ck_assert_uint_gt(good, 0);
	free(w.data);
	catalog_free(c);
}
END_TEST

START_TEST(parameters_beyond_the_limits_are_refused)
{
	struct catalog *c = catalog_new();
	char long_name[FRAG_NAME_MAX + 2], long_coordinate[FRAG_KEY_MAX + 2];
	uint64_t shape[FRAG_DIMS_MAX + 1] = { 1 };

	memset(long_name, 'n', sizeof(long_name));
	long_name[FRAG_NAME_MAX + 1] = '\0';
	memset(long_coordinate, 'c', sizeof(long_coordinate));
	long_coordinate[FRAG_KEY_MAX + 1] = '\0';
	ck_assert_int_eq(add(c, long_name, "", 1, 1), -EINVAL);
	ck_assert_int_eq(add(c, long_name + 1, "", 1, 1), 0);
	ck_assert_int_eq(add(c, "a", long_coordinate, 1, 1), -EINVAL);
	ck_assert_int_eq(add(c, "a", long_coordinate + 1, 1, 1), 1);
	ck_assert_int_eq(add(c, "", "", 1, 1), -EINVAL);
	ck_assert_int_eq(add(c, NULL, "", 1, 1), -EINVAL);
	ck_assert_int_eq(catalog_add_param(c, "b", "", 0, 0, NULL, 0, 0), -EINVAL);
	ck_assert_int_eq(catalog_add_param(c, "b", "", FRAG_F8_E8M0 + 1, 0, NULL, 0, 0),
			 -EINVAL);
	ck_assert_int_eq(
		catalog_add_param(c, "b", "", FRAG_F32, FRAG_DIMS_MAX + 1, shape, 0, 0),
		-EINVAL);
	ck_assert_int_eq(catalog_add_param(c, "b", "", FRAG_F32, 1, NULL, 0, 0), -EINVAL);
	ck_assert_int_eq(add(c, "a", long_coordinate + 1, 1, 1), -EEXIST);
	ck_assert_int_eq(add(c, "a", "", 1, 1),
			 2); /* another coordinate is another parameter */
	ck_assert_int_eq(add(c, "big", "", UINT64_MAX, 2), -EOVERFLOW);
	ck_assert_int_eq(add(c, "big", "", (uint64_t)1 << 60, 1), -EOVERFLOW);
	ck_assert_int_eq(add(c, "big", "", ((uint64_t)1 << 60) - 1, 1), 3);
	catalog_free(c);
}
END_TEST

START_TEST(bytes_of_a_group_must_fit_63_bits)
{
	struct catalog *c = catalog_new();
	char name[16], why[200];
	int small = add(c, "small", "", 3, 3);

	for (int i = 1; i <= 8; i++) { /* their elements fit 64 bits, their bytes do not */
		snprintf(name, sizeof(name), "p%d", i);
		ck_assert_int_eq(add(c, name, "", ((uint64_t)1 << 60) - 1, 1), i);
	}
	ck_assert_int_eq(group_over(c, WORLD, all, (uint32_t)small, 9, 2, why), 0);
	ck_assert_int_eq(catalog_finish_group(c, 0), -EOVERFLOW);
	ck_assert_int_eq(catalog_finish(c), -EOVERFLOW);
	catalog_drop_group(c);
	ck_assert_int_eq(group_over(c, WORLD, all, (uint32_t)small, 1, 2, why),
			 0); /* its members are free again */
	ck_assert_int_eq(catalog_finish(c), 0);
	catalog_free(c);
}
END_TEST

START_TEST(a_shape_with_a_zero_has_no_elements_whatever_else_it_says)
{
	static const uint64_t shape[] = { 0, (uint64_t)1 << 32, (uint64_t)1 << 32 };
	struct catalog *c = catalog_new();
	char why[200];

	ck_assert_int_eq(catalog_add_param(c, "a", "", FRAG_F32, 3, shape, 0, 0), 0);
	ck_assert_int_eq(
		catalog_add_group(c,
				  &(struct catalog_group){ .sharding = FRAG_FSDP2,
							   .replicas = 1,
							   .nranks = WORLD,
							   .ranks = (uint32_t *)(uintptr_t)all,
							   .nparams = 1,
							   .params = (uint32_t[]){ 0 } },
				  why, sizeof(why)),
		0);
	ck_assert_int_eq(catalog_finish(c), 0);
	ck_assert_uint_eq(c->params[0].numel, 0);
	catalog_free(c);
}
END_TEST

START_TEST(groups_that_contradict_themselves_are_refused_with_a_line)
{
	static const struct {
		uint32_t ranks[4], nranks, params[3], nparams, replicas;
		uint8_t stage, sharding;
		const char *says;
	} bad[] = {
		{ { 0, 1, 0 }, 3, { 0 }, 1, 1, 2, 0, "rank stands twice" },
		{ { 0 }, 0, { 0 }, 1, 1, 2, 0, "or none" },
		{ { 0, 1, 2 }, 3, { 0 }, 1, 2, 2, 0, "cannot be 2 replicas" },
		{ { 0, 1 }, 2, { 0 }, 1, 0, 2, 0, "cannot be 0 replicas" },
		{ { 0, 1 }, 2, { 0 }, 1, 1, 4, 0, "none of 0 to 3" },
		{ { 0, 1 }, 2, { 0 }, 1, 1, 3, 7, "none of 0 to 3" },
		{ { 0, 1 }, 2, { 1, 0, 1 }, 3, 1, 2, 0, "parameter stands twice" },
		{ { 0, 1 }, 2, { 2 }, 1, 1, 2, 0, "no parameter 2" },
		{ { 0, 1 }, 2, { 1, 0 }, 2, 1, 2, 0, "up is in group 0 already" },
	};
	struct catalog *c = catalog_new();
	char why[200];

	add(c, "up", "", 2, 2);
	add(c, "down", "", 2, 2);
	ck_assert_int_eq(group_over(c, 2, all, 0, 1, 2, why), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct catalog_group g = { .stage = bad[i].stage,
					   .sharding = bad[i].sharding,
					   .replicas = bad[i].replicas,
					   .nranks = bad[i].nranks,
					   .ranks = (uint32_t *)(uintptr_t)bad[i].ranks,
					   .nparams = bad[i].nparams,
					   .params = (uint32_t *)(uintptr_t)bad[i].params };

		why[0] = '\0';
		ck_assert_int_eq(catalog_add_group(c, &g, why, sizeof(why)), -EINVAL);
		ck_assert_msg(strstr(why, bad[i].says) != NULL, "%s", why);
	}
	ck_assert_uint_eq(c->ngroups, 1);
	catalog_free(c);
}
END_TEST

/* ---- merge ---- */

static int merge(struct catalog *into, const struct catalog *from, uint32_t rank,
		 uint32_t *params, char *why)
{
	uint32_t groups[16];

	why[0] = '\0';
	return catalog_merge(into, from, rank, params, groups, why, 200);
}

START_TEST(equal_catalogs_merge_to_one)
{
	struct catalog *into = catalog_new(), *c = sample();
	uint32_t map[16];
	char why[200];

	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(merge(into, c, rank, map, why), 0);
		for (uint32_t i = 0; i < c->nparams; i++)
			ck_assert_uint_eq(map[i], i);
	}
	ck_assert_int_eq(catalog_finish(into), 0);
	ck_assert_uint_eq(into->nparams, c->nparams);
	ck_assert_uint_eq(into->ngroups, c->ngroups);
	ck_assert_uint_eq(into->params[5].owner, 0);
	check_whole(into, WORLD);
	catalog_free(into);
	catalog_free(c);
}
END_TEST

/* Two stages of a pipeline, two ranks each; the embedding is on both ends. */
START_TEST(a_pipelines_stages_are_merged_side_by_side)
{
	struct catalog *into = catalog_new(), *first = catalog_new(), *last = catalog_new();
	uint32_t map[16];
	char why[200];

	add(first, "embed", "", 4, 4);
	add(first, "layer.0", "", 4, 4);
	group_over(first, 2, (uint32_t[]){ 0, 1 }, 0, 2, 1, why);
	add(last, "layer.1", "", 4, 4);
	add(last, "embed", "pp=1", 4, 4);
	group_over(last, 2, (uint32_t[]){ 2, 3 }, 0, 2, 1, why);
	ck_assert_int_eq(merge(into, first, 0, map, why), 0);
	ck_assert_int_eq(merge(into, last, 2, map, why), 0);
	ck_assert_uint_eq(map[0], 2);
	ck_assert_int_eq(merge(into, last, 3, map, why), 0);
	ck_assert_int_eq(catalog_finish(into), 0);
	ck_assert_uint_eq(into->nparams, 4);
	ck_assert_uint_eq(into->ngroups, 2);
	ck_assert_uint_eq(into->params[map[1]].owner, 2);
	ck_assert_uint_eq(into->groups[1].params[0], 2);
	check_whole(into, WORLD);
	catalog_free(into);
	catalog_free(first);
	catalog_free(last);
}
END_TEST

START_TEST(tensor_parallel_coordinates_are_parameters_of_their_own)
{
	struct catalog *into = catalog_new();
	uint32_t map[16];
	char why[200], coordinate[16];

	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct catalog *c = catalog_new();
		uint32_t pair[2] = { rank % 2, rank % 2 + 2 };

		snprintf(coordinate, sizeof(coordinate), "tp=%u", rank % 2);
		add(c, "up", coordinate, 4, 4);
		group_over(c, 2, pair, 0, 1, 3, why);
		ck_assert_int_eq(merge(into, c, rank, map, why), 0);
		ck_assert_uint_eq(map[0], rank % 2);
		catalog_free(c);
	}
	ck_assert_uint_eq(into->nparams, 2);
	ck_assert_uint_eq(into->ngroups, 2);
	catalog_free(into);
}
END_TEST

START_TEST(groups_of_equal_ranks_are_told_apart_by_their_order)
{
	struct catalog *into = catalog_new(), *c = catalog_new();
	uint32_t map[16], groups[16];
	char why[200];

	add(c, "decay", "", 4, 4);
	add(c, "bias", "", 4, 1);
	group_over(c, WORLD, all, 0, 1, 2, why);
	group_over(c, WORLD, all, 1, 1, 2, why);
	for (uint32_t rank = 0; rank < 2; rank++) {
		ck_assert_int_eq(catalog_merge(into, c, rank, map, groups, why, sizeof(why)),
				 0);
		ck_assert_uint_eq(groups[0], 0);
		ck_assert_uint_eq(groups[1], 1);
	}
	ck_assert_uint_eq(into->ngroups, 2);
	catalog_free(into);
	catalog_free(c);
}
END_TEST

START_TEST(ranks_that_contradict_each_other_are_named)
{
	struct catalog *into = catalog_new(), *c = sample(), *other = catalog_new();
	uint32_t map[16];
	char why[200], said[200];

	ck_assert_int_eq(merge(into, c, 2, map, why), 0);
	add(other, "embed", "", 13, 8);
	for (uint32_t rank = 1; rank < WORLD; rank += 2) {
		ck_assert_int_eq(merge(into, other, rank, map, why), -EINVAL);
		snprintf(said, sizeof(said),
			 "rank %u has dimension 1 of 8, not 7 as rank 2, for parameter embed",
			 rank);
		ck_assert_str_eq(why, said);
	}
	catalog_free(other);
	catalog_free(into);
	catalog_free(c);
}
END_TEST

static const struct {
	struct catalog_param param;
	const char *said;
} params_said[] = {
	{ { .dtype = FRAG_F32, .ndim = 1 }, "dtype float32, not bfloat16" },
	{ { .dtype = FRAG_BF16, .ndim = 0 }, "dimensions 0, not 1" },
	{ { .dtype = FRAG_BF16, .ndim = 1, .flags = FRAG_FROZEN }, "flags 1, not 0" },
};

START_TEST(what_differs_of_a_parameter_is_said)
{
	const struct catalog_param *p = &params_said[_i].param;
	struct catalog *into = catalog_new(), *other = catalog_new();
	uint64_t shape[] = { 5 };
	char why[200], said[200];
	uint32_t map[16];

	catalog_add_param(into, "w", "", FRAG_BF16, 1, shape, 0, 0);
	catalog_add_param(other, "w", "", p->dtype, p->ndim, shape, p->flags, 0);
	ck_assert_int_eq(merge(into, other, 3, map, why), -EINVAL);
	snprintf(said, sizeof(said), "rank 3 has %s as rank 0, for parameter w",
		 params_said[_i].said);
	ck_assert_str_eq(why, said);
	catalog_free(into);
	catalog_free(other);
}
END_TEST

static const struct {
	struct catalog_group group;
	const char *said;
} groups_said[] = {
	{ { .stage = 2, .replicas = 1, .nparams = 2 }, "stage 2, not 1" },
	{ { .stage = 1, .sharding = FRAG_FSDP2, .replicas = 1, .nparams = 2 },
	  "sharding FSDP2, not ZeRO" },
	{ { .stage = 1, .flags = FRAG_ROUND_ROBIN, .replicas = 1, .nparams = 2 },
	  "flags 1, not 0" },
	{ { .stage = 1, .replicas = 2, .nparams = 2 }, "replicas 2, not 1" },
	{ { .stage = 1, .replicas = 1, .nparams = 2, .sub_group_size = 7 },
	  "sub_group_size 7, not 0" },
	{ { .stage = 1, .replicas = 1, .nparams = 1 }, "parameters 1, not 2" },
	{ { .stage = 1, .replicas = 1, .nparams = 2 }, "parameter 0 is w tp=1, not v" },
};

static void describe_pair(struct catalog *c, struct catalog_group g, bool swapped)
{
	uint32_t params[] = { swapped, !swapped };
	char why[200];

	add(c, "v", "", 4, 4);
	add(c, "w", "tp=1", 4, 4);
	g.ranks = (uint32_t *)(uintptr_t)all;
	g.nranks = WORLD;
	g.params = params;
	ck_assert_int_ge(catalog_add_group(c, &g, why, sizeof(why)), 0);
}

START_TEST(what_differs_of_a_group_is_said)
{
	struct catalog *into = catalog_new(), *other = catalog_new();
	bool last = _i == ARRAY_SIZE(groups_said) - 1;
	char why[200], said[200];
	uint32_t map[16];

	describe_pair(into, (struct catalog_group){ .stage = 1, .replicas = 1, .nparams = 2 },
		      false);
	describe_pair(other, groups_said[_i].group, last);
	ck_assert_int_eq(merge(into, other, 3, map, why), -EINVAL);
	snprintf(said, sizeof(said), "rank 3 describes group 0 differently: %s",
		 groups_said[_i].said);
	ck_assert_str_eq(why, said);
	catalog_free(into);
	catalog_free(other);
}
END_TEST

START_TEST(a_hundred_thousand_parameters)
{
	struct catalog *c = catalog_new(), *d;
	struct wire_writer w;
	char name[64], why[200];

	for (int i = 0; i < 100000; i++) {
		snprintf(name, sizeof(name), "layers.%d.experts.%d.weight", i / 100, i % 100);
		ck_assert_int_eq(add(c, name, "", 16, 16), i);
	}
	ck_assert_int_eq(catalog_finish(c), 0);
	w = encoded(c);
	ck_assert_int_eq(catalog_decode(&d, w.data, w.size, 1, why, sizeof(why)), 0);
	ck_assert_uint_eq(catalog_find(d, "layers.999.experts.99.weight", ""), 99999);
	ck_assert_uint_eq(catalog_find(d, "layers.999.experts.99.weight", "tp=0"),
			  CATALOG_NONE);
	free(w.data);
	catalog_free(c);
	catalog_free(d);
}
END_TEST

static TCase *encoding(void)
{
	TCase *t = tcase_create("encoding");

	tcase_add_loop_test(t, the_first_sub_groups_of_a_ratio, 0, (int)ARRAY_SIZE(ratios));
	tcase_add_test(t, an_encoding_decodes_to_the_same);
	tcase_add_test(t, every_truncation_is_an_error);
	tcase_add_test(t, damaged_bytes_give_an_error_or_a_whole_catalog);
	tcase_add_test(t, a_hundred_thousand_parameters);
	return t;
}

static TCase *limits(void)
{
	TCase *t = tcase_create("limits");

	tcase_add_test(t, parameters_beyond_the_limits_are_refused);
	tcase_add_test(t, bytes_of_a_group_must_fit_63_bits);
	tcase_add_test(t, a_shape_with_a_zero_has_no_elements_whatever_else_it_says);
	tcase_add_test(t, groups_that_contradict_themselves_are_refused_with_a_line);
	return t;
}

static TCase *merging(void)
{
	TCase *t = tcase_create("merging");

	tcase_add_test(t, equal_catalogs_merge_to_one);
	tcase_add_test(t, a_pipelines_stages_are_merged_side_by_side);
	tcase_add_test(t, tensor_parallel_coordinates_are_parameters_of_their_own);
	tcase_add_test(t, groups_of_equal_ranks_are_told_apart_by_their_order);
	tcase_add_test(t, ranks_that_contradict_each_other_are_named);
	tcase_add_loop_test(t, what_differs_of_a_parameter_is_said, 0, ARRAY_SIZE(params_said));
	tcase_add_loop_test(t, what_differs_of_a_group_is_said, 0, ARRAY_SIZE(groups_said));
	return t;
}

int main(void)
{
	Suite *s = suite_create("catalog");

	suite_add_tcase(s, encoding());
	suite_add_tcase(s, limits());
	return run_suite(s, merging());
}

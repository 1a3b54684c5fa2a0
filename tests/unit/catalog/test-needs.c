/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The bytes of a plan, in small models that are counted by hand; tests/mount/test-plan.sh
 * compares with jobs and checkpoints.
 */

#include "engine/catalog/needs.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

enum { WORLD_MAX = 16 };

static struct needs ranks[WORLD_MAX];
static char why[256];

static struct needs_spec spec_of(int stage, struct mesh mesh)
{
	struct needs_spec s = {
		.stage = stage, .mesh = mesh, .sub_group_size = 1000000000, .nstates = 2
	};

	ck_assert_int_eq(mesh_init(&s.mesh, why, sizeof(why)), 0);
	return s;
}

static int compute(const struct needs_spec *s, const struct needs_param *params, uint32_t n)
{
	return needs_compute(ranks, s, params, n, why, sizeof(why));
}

static void expect_tier(uint32_t rank, enum needs_tier tier, uint64_t bytes)
{
	ck_assert_msg(ranks[rank].tier[tier] == bytes, "rank %u, tier %d: %llu, not %llu", rank,
		      tier, (unsigned long long)ranks[rank].tier[tier],
		      (unsigned long long)bytes);
}

static const uint64_t five_by_seven[] = { 5, 7 }, three[] = { 3 };
static const struct needs_param dense[] = {
	{ .name = "w", .dtype = FRAG_BF16, .ndim = 2, .shape = five_by_seven },
	{ .name = "b", .dtype = FRAG_BF16, .ndim = 1, .shape = three },
};

START_TEST(stages)
{
	/* 38 elements; flat over 2 shards 40, in pieces 18 + 2 on each shard */
	static const struct {
		int stage;
		uint64_t lp, lp_grad, partition;
	} want[] = {
		{ 0, 76, 76, 152 },
		{ 1, 76, 76, 80 },
		{ 2, 76, 0, 80 },
		{ 3, 40, 0, 80 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct needs_spec s = spec_of(want[i].stage, (struct mesh){ .world = 2 });

		ck_assert_int_eq(compute(&s, dense, 2), 0);
		for (uint32_t r = 0; r < 2; r++) {
			ck_assert_uint_eq(ranks[r].lp, want[i].lp);
			ck_assert_uint_eq(ranks[r].lp_grad, want[i].lp_grad);
			ck_assert_uint_eq(ranks[r].fp32, want[i].partition);
			ck_assert_uint_eq(ranks[r].grad, want[i].partition);
			ck_assert_uint_eq(ranks[r].optimizer, 2 * want[i].partition);
			expect_tier(r, NEEDS_DEVICE,
				    want[i].lp + want[i].lp_grad + 4 * want[i].partition);
		}
	}
}
END_TEST

START_TEST(small_partitions_stay_in_memory)
{
	struct needs_spec s = spec_of(3, (struct mesh){ .world = 2 });

	s.tier = NEEDS_NVME;
	s.least = 80;
	s.pinned = 1000;
	ck_assert_int_eq(compute(&s, dense, 2), 0);
	expect_tier(0, NEEDS_DEVICE, 40);
	expect_tier(0, NEEDS_HOST, 1000);
	expect_tier(0, NEEDS_NVME, 320);
	s.least = 81;
	ck_assert_int_eq(compute(&s, dense, 2), 0);
	expect_tier(1, NEEDS_HOST, 1320);
	expect_tier(1, NEEDS_NVME, 0);
	s.least = 1;
	s.in_memory = 0.99; /* of one sub-group */
	ck_assert_int_eq(compute(&s, dense, 2), 0);
	expect_tier(1, NEEDS_NVME, 320);
	s.sub_group_size = 1; /* of two: 18 elements and 2 */
	s.in_memory = 0.5;
	ck_assert_int_eq(compute(&s, dense, 2), 0);
	expect_tier(1, NEEDS_HOST, 1000 + ranks[1].fp32 * 4 - 4 * 2 * 4);
	expect_tier(1, NEEDS_NVME, 4 * 2 * 4);
}
END_TEST

START_TEST(frozen_parameters_have_no_states)
{
	struct needs_param frozen = dense[0];
	struct needs_spec s = spec_of(3, (struct mesh){ .world = 2 });

	frozen.frozen = true;
	ck_assert_int_eq(compute(&s, &frozen, 1), 0);
	ck_assert_uint_eq(ranks[0].lp, 36);
	ck_assert_uint_eq(ranks[0].fp32, 0);
}
END_TEST

/* The largest dimension, 7, is cut into 4 and 3; b is whole on both. */
START_TEST(tensor_parallel_ranks_have_unequal_parts)
{
	struct needs_spec s = spec_of(0, (struct mesh){ .world = 4, .tp = 2 });

	ck_assert_int_eq(compute(&s, dense, 2), 0);
	for (uint32_t r = 0; r < 4; r++)
		ck_assert_uint_eq(ranks[r].lp, 2 * (r % 2 ? 5 * 3 + 3 : 5 * 4 + 3));
}
END_TEST

START_TEST(hpz_keeps_a_second_copy)
{
	struct needs_spec s = spec_of(3, (struct mesh){ .world = 4, .hpz = 2 });

	ck_assert_int_eq(compute(&s, dense, 2), 0);
	ck_assert_uint_eq(ranks[3].lp, 2 * (9 + 1));
	ck_assert_uint_eq(ranks[3].secondary, 2 * (18 + 2));
	expect_tier(3, NEEDS_DEVICE, 20 + 40 + 4 * 40);
	s.stage = 2;
	ck_assert_int_eq(compute(&s, dense, 2), -EINVAL);
	ck_assert_str_eq(why, "hpz is for stage 3");
}
END_TEST

/* With 4 experts and expert parallelism of 2 each rank has 2 experts.  Their partitions are
 * shared by the ranks with the same experts alone.  Fused experts are cut along dimension 0.
 */
START_TEST(experts_are_divided)
{
	static const uint64_t two[] = { 2, 2 }, fused[] = { 4, 2, 3 };
	static const struct needs_param params[] = {
		{ .name = "w", .dtype = FRAG_BF16, .ndim = 2, .shape = five_by_seven },
		{ .name = "experts.0.w", .dtype = FRAG_BF16, .ndim = 2, .shape = two },
		{ .name = "l.experts.1.w", .dtype = FRAG_BF16, .ndim = 2, .shape = two },
		{ .name = "l.deepspeed_experts.2.w",
		  .dtype = FRAG_BF16,
		  .ndim = 2,
		  .shape = two },
		{ .name = "l.experts.3.w",
		  .dtype = FRAG_BF16,
		  .ndim = 2,
		  .shape = five_by_seven },
		{ .name = "l.experts.up", .dtype = FRAG_BF16, .ndim = 3, .shape = fused },
		{ .name = "shared_experts.1.w", .dtype = FRAG_BF16, .ndim = 1, .shape = three },
	};
	struct needs_spec s = spec_of(1, (struct mesh){ .world = 4, .ep = 2 });

	ck_assert_int_eq(compute(&s, params, ARRAY_SIZE(params)), 0);
	/* dense: 35 + 3, flat 40 over 4; experts: 4 + 4 + 12, and 4 + 35 + 12, flat over 2 */
	for (uint32_t r = 0; r < 4; r++) {
		uint64_t own = r % 2 ? 4 + 35 + 12 : 4 + 4 + 12;

		ck_assert_uint_eq(ranks[r].lp, 2 * (38 + own));
		ck_assert_uint_eq(ranks[r].fp32, 4 * (10 + (r % 2 ? 26 : 10)));
	}
	s.mesh.data_first = true;
	ck_assert_int_eq(compute(&s, params, ARRAY_SIZE(params)), 0);
	ck_assert_uint_eq(ranks[1].lp, ranks[0].lp);
	ck_assert_uint_ne(ranks[2].lp, ranks[0].lp);
	s = spec_of(1, (struct mesh){ .world = 3, .ep = 3 });
	ck_assert_int_eq(compute(&s, params, ARRAY_SIZE(params)), -EINVAL);
	ck_assert_str_eq(why, "l.experts.up: 4 experts are not a multiple of ep 3");
	ck_assert_int_eq(compute(&s, params, 5), -EINVAL);
	ck_assert_str_eq(why, "4 experts are not a multiple of ep 3");
	ck_assert_int_eq(compute(&s, params, 1), -EINVAL);
}
END_TEST

START_TEST(what_cannot_be_counted_is_told)
{
	static const uint64_t huge[] = { UINT64_MAX / 4, 3 }, beyond[] = { UINT64_MAX, 3 };
	const struct needs_param twice[] = { dense[0], dense[0] };
	const struct needs_param large = {
		.name = "w", .dtype = FRAG_BF16, .ndim = 2, .shape = huge
	};
	const struct needs_param larger = {
		.name = "w", .dtype = FRAG_BF16, .ndim = 2, .shape = beyond
	};
	struct needs_spec s = spec_of(0, (struct mesh){ .world = 2, .tp = 2 });

	ck_assert_int_eq(compute(&s, twice, 2), -EEXIST);
	ck_assert_str_eq(why, "w is given twice");
	ck_assert_int_eq(compute(&s, &large, 1), -EOVERFLOW);
	ck_assert_str_eq(why, "its bytes cannot be counted");
	ck_assert_int_eq(compute(&s, &larger, 1), -EOVERFLOW);
	ck_assert_str_eq(why, "its bytes cannot be counted");
	ck_assert_int_eq(compute(&s, NULL, 0), 0);
	expect_tier(1, NEEDS_DEVICE, 0);
}
END_TEST

START_TEST(a_plan_is_counted_or_enomem)
{
	struct needs_spec s = spec_of(1, (struct mesh){ .world = 4, .tp = 2 });
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = compute(&s, dense, 2);
		failed = scarce_end();
		ck_assert_int_eq(rc, failed ? -ENOMEM : 0);
		if (failed)
			ck_assert_str_eq(why, "its bytes cannot be counted");
	} while (failed);
	ck_assert_uint_gt(n, 4);
	ck_assert_uint_eq(ranks[0].lp, 2 * (5 * 4 + 3));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("needs");
	TCase *t = tcase_create("needs");

	tcase_add_test(t, stages);
	tcase_add_test(t, small_partitions_stay_in_memory);
	tcase_add_test(t, frozen_parameters_have_no_states);
	tcase_add_test(t, tensor_parallel_ranks_have_unequal_parts);
	tcase_add_test(t, hpz_keeps_a_second_copy);
	tcase_add_test(t, experts_are_divided);
	tcase_add_test(t, what_cannot_be_counted_is_told);
	tcase_add_test(t, a_plan_is_counted_or_enomem);
	return run_suite(s, t);
}

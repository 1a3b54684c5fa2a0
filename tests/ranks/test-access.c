/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whole parameters, got and set by one rank alone, over every layout. */

static const struct job_param usual[] = {
	{ "one", .ndim = 1, .shape = { 1 } },
	{ "a.weight", .ndim = 2, .shape = { 15, 7 } },
	{ "a.bias", .ndim = 1, .shape = { 3 }, .dtype = FRAG_F16 },
	{ "frozen", .ndim = 2, .shape = { 4, 5 }, .flags = FRAG_FROZEN },
	{ "scalar", .ndim = 0, .dtype = FRAG_F32 },
	{ "b.weight", .ndim = 3, .shape = { 17, 13, 11 } },
	{ "empty", .ndim = 2, .shape = { 0, 4 } },
	{ "b.bias", .ndim = 1, .shape = { 129 } },
	{ "alone", .ndim = 1, .shape = { 6 }, .flags = FRAG_FROZEN },
};

static const uint32_t worlds[] = { 1, 2, 3, 4, 8 };

static const struct layout_case {
	const char *name;
	struct job_group group;
	enum job_how how;
	enum job_lp lp;
} cases[] = {
	{ "stage 0", { .stage = 0 }, JOB_KEEP, JOB_LP_FITTING },
	{ "stage 1", { .stage = 1 }, JOB_KEEP, JOB_LP_FITTING },
	{ "stage 2", { .stage = 2 }, JOB_ALLOC, JOB_LP_FITTING },
	{ "stage 2, round robin", { .stage = 2, .flags = FRAG_ROUND_ROBIN }, JOB_KEEP, JOB_LP_FITTING },
	{ "stage 1, lists of fragments", { .stage = 1 }, JOB_FRAGMENTS, JOB_LP_FITTING },
	{ "stage 1, whole states", { .stage = 1 }, JOB_WHOLE, JOB_LP_FITTING },
	{ "stage 3", { .stage = 3 }, JOB_KEEP, JOB_LP_FITTING },
	{ "stage 3, sub-groups", { .stage = 3, .sub_group_size = 40 }, JOB_ALLOC, JOB_LP_BOTH },
	{ "FSDP2", { .sharding = FRAG_FSDP2 }, JOB_FRAGMENTS, JOB_LP_FITTING },
	{ "HSDP", { .sharding = FRAG_FSDP2, .replicas = 2 }, JOB_KEEP, JOB_LP_FITTING },
	{ "stage 3 in replicas", { .stage = 3, .replicas = 2 }, JOB_KEEP, JOB_LP_BOTH },
	{ "stage 1 in replicas", { .stage = 1, .replicas = 2 }, JOB_KEEP, JOB_LP_FITTING },
};

enum { ALL = ARRAY_SIZE(cases) * ARRAY_SIZE(worlds) };

/* Two groups, the last parameter in none; false: that world has no such replicas. */
static bool open_case(struct job *job, int n)
{
	const struct layout_case *c = &cases[n / (int)ARRAY_SIZE(worlds)];
	uint32_t world = worlds[n % (int)ARRAY_SIZE(worlds)];
	struct job_group groups[2] = { c->group, c->group };
	struct job_key keys[] = { { "fp32", FRAG_F32, c->how },	   { "grad", FRAG_F32, c->how },
				  { "exp_avg", FRAG_BF16, c->how }, { "exp_avg_sq", FRAG_F64, c->how } };

	groups[0].nparams = 5;
	memcpy(groups[0].params, (uint32_t[]){ 1, 3, 5, 6, 0 }, 5 * sizeof(uint32_t));
	groups[1].nparams = 3;
	memcpy(groups[1].params, (uint32_t[]){ 7, 4, 2 }, 3 * sizeof(uint32_t));
	if (c->group.replicas && world % c->group.replicas)
		return false;
	printf("%s, %u ranks\n", c->name, world);
	job_open(job, &(struct job_spec){ .world = world, .hosts = (uint32_t)n % 3, JOB_PARAMS(usual),
					  JOB_GROUPS(groups), JOB_KEYS(keys), .lp = c->lp });
	return true;
}

static void check_get(struct job *job, uint32_t rank, uint32_t param, const char *key)
{
	uint64_t bytes = job_bytes(job, param, key);
	CLEANUP(free) uint8_t *out = malloc(bytes + 1);
	int number = job_number(job, rank, param);

	ck_assert_int_eq(frag_get_bytes(job_frag(job, rank), number, key), (int64_t)bytes);
	ck_assert_int_eq(frag_get(job_frag(job, rank), number, key, out, bytes), 0);
	ck_assert_mem_eq(out, job_truth(job, param, key), bytes);
}

START_TEST(every_rank_gets_every_state_bit_for_bit)
{
	struct job job;

	if (!open_case(&job, _i))
		return;
	job_grads_valid(&job);
	for (uint32_t rank = 0; rank < job.spec.world; rank++)
		for (uint32_t p = 0; p < job.spec.nparams; p++) {
			for (uint32_t k = 0; k < job.spec.nkeys && !(usual[p].flags & FRAG_FROZEN); k++)
				check_get(&job, rank, p, job.spec.keys[k].key);
			check_get(&job, rank, p, "lp");
		}
	job_check(&job);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("access");
	TCase *t = tcase_create("access");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, every_rank_gets_every_state_bit_for_bit, 0, ALL);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include "engine/node/peers.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Whole parameters, which one rank alone gets and sets, in every layout. */

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

/* Cuts the same parameters along other dimensions than 0. */
static void cut(struct job_param params[ARRAY_SIZE(usual)])
{
	static const struct frag_cut columns = { 1, 0 }, planes[] = { { 0, 2 }, { 2, 0 } },
				     twice[] = { { 0, 2 }, { 0, 0 } };

	for (uint32_t i = 0; i < ARRAY_SIZE(usual); i++) {
		params[i].ncuts = params[i].ndim > 1;
		params[i].cuts[0] = columns;
	}
	params[5].ncuts = params[7].ncuts = 2;
	memcpy(params[5].cuts, planes, sizeof(planes));
	memcpy(params[7].cuts, twice, sizeof(twice));
}

static const uint32_t worlds[] = { 3, 2, 1, 8 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { WORLDS = 2 }; /* sanitizers are slow */
#else
enum { WORLDS = ARRAY_SIZE(worlds) };
#endif

static const struct layout_case {
	const char *name;
	struct job_group group;
	enum job_how how;
	enum job_lp lp;
	bool on_device;
} cases[] = {
	{ "stage 0", { .stage = 0 }, JOB_KEEP, JOB_LP_FITTING, false },
	{ "stage 1", { .stage = 1 }, JOB_KEEP, JOB_LP_FITTING, false },
	{ "stage 2", { .stage = 2 }, JOB_ALLOC, JOB_LP_FITTING, false },
	{ "stage 2, round robin",
	  { .stage = 2, .flags = FRAG_ROUND_ROBIN },
	  JOB_KEEP,
	  JOB_LP_FITTING,
	  false },
	{ "stage 2, aligned",
	  { .stage = 2, .flags = FRAG_ALIGNED },
	  JOB_KEEP,
	  JOB_LP_FITTING,
	  false },
	{ "stage 1, aligned, round robin",
	  { .stage = 1, .flags = FRAG_ALIGNED | FRAG_ROUND_ROBIN },
	  JOB_KEEP,
	  JOB_LP_FITTING,
	  false },
	{ "stage 1, lists of fragments", { .stage = 1 }, JOB_FRAGMENTS, JOB_LP_FITTING, false },
	{ "stage 1, whole states", { .stage = 1 }, JOB_WHOLE, JOB_LP_FITTING, false },
	{ "stage 3", { .stage = 3 }, JOB_KEEP, JOB_LP_FITTING, false },
	{ "stage 3, sub-groups",
	  { .stage = 3, .sub_group_size = 40 },
	  JOB_ALLOC,
	  JOB_LP_BOTH,
	  false },
	{ "FSDP2", { .sharding = FRAG_FSDP2 }, JOB_FRAGMENTS, JOB_LP_FITTING, false },
	{ "HSDP", { .sharding = FRAG_FSDP2, .replicas = 2 }, JOB_KEEP, JOB_LP_FITTING, false },
	{ "stage 3 in replicas", { .stage = 3, .replicas = 2 }, JOB_KEEP, JOB_LP_BOTH, false },
	{ "stage 2, on NVMe", { .stage = 2 }, JOB_SWAP, JOB_LP_FITTING, false },
	{ "stage 3, sub-groups, on NVMe",
	  { .stage = 3, .sub_group_size = 40 },
	  JOB_SWAP,
	  JOB_LP_BOTH,
	  false },
	{ "stage 2, on a device", { .stage = 2 }, JOB_KEEP, JOB_LP_FITTING, true },
	{ "stage 1, whole states on a device",
	  { .stage = 1 },
	  JOB_WHOLE,
	  JOB_LP_FITTING,
	  true },
	{ "stage 3, sub-groups on a device",
	  { .stage = 3, .sub_group_size = 40 },
	  JOB_KEEP,
	  JOB_LP_BOTH,
	  true },
	{ "FSDP2 on a device",
	  { .sharding = FRAG_FSDP2 },
	  JOB_FRAGMENTS,
	  JOB_LP_FITTING,
	  true },
	{ "stage 3, parameters on NVMe too", { .stage = 3 }, JOB_SWAP, JOB_LP_SWAP, false },
	{ "FSDP2, parameters on NVMe",
	  { .sharding = FRAG_FSDP2 },
	  JOB_SWAP,
	  JOB_LP_SWAP,
	  false },
	{ "HSDP, parameters on NVMe",
	  { .sharding = FRAG_FSDP2, .replicas = 2 },
	  JOB_SWAP,
	  JOB_LP_SWAP,
	  false },
	{ "stage 1 in replicas",
	  { .stage = 1, .replicas = 2 },
	  JOB_KEEP,
	  JOB_LP_FITTING,
	  false },
	{ "FSDP1",
	  { .sharding = FRAG_FSDP1, .alignment = 4 },
	  JOB_FRAGMENTS,
	  JOB_LP_FITTING,
	  false },
	{ "FSDP2, cut", { .sharding = FRAG_FSDP2 }, JOB_FRAGMENTS, JOB_LP_FITTING, false },
	{ "HSDP, cut",
	  { .sharding = FRAG_FSDP2, .replicas = 2 },
	  JOB_KEEP,
	  JOB_LP_FITTING,
	  false },
	{ "FSDP2, cut, on a device",
	  { .sharding = FRAG_FSDP2 },
	  JOB_KEEP,
	  JOB_LP_FITTING,
	  true },
	{ "FSDP2, cut, parameters on NVMe",
	  { .sharding = FRAG_FSDP2 },
	  JOB_SWAP,
	  JOB_LP_SWAP,
	  false },
};

enum { ALL = ARRAY_SIZE(cases) * WORLDS };

/* Opens a job of two groups, the last parameter in none; false: that world has no such
 * replicas.
 */
static bool open_case(struct job *job, int n)
{
	const struct layout_case *c = &cases[n / WORLDS];
	uint32_t world = worlds[n % WORLDS];
	struct job_group groups[2] = { c->group, c->group };
	struct job_param params[ARRAY_SIZE(usual)];
	bool is_cut = strstr(c->name, ", cut");
	struct job_key keys[] = { { "fp32", FRAG_F32, c->how },
				  { "grad", FRAG_F32, c->how },
				  { "exp_avg", FRAG_BF16, c->how },
				  { "exp_avg_sq", FRAG_F64, c->how } };

	groups[0].nparams = 5;
	memcpy(groups[0].params, (uint32_t[]){ 1, 3, 5, 6, 0 }, 5 * sizeof(uint32_t));
	groups[1].nparams = 3;
	memcpy(groups[1].params, (uint32_t[]){ 7, 4, 2 }, 3 * sizeof(uint32_t));
	if (c->group.replicas && world % c->group.replicas)
		return false;
	if (is_cut && world / (c->group.replicas ? c->group.replicas : 1) % 2)
		return false; /* these cuts make even numbers of parts */
	memcpy(params, usual, sizeof(usual));
	if (is_cut)
		cut(params);
	printf("%s, %u ranks\n", c->name, world);
	job_open(job, &(struct job_spec){ .world = world,
					  .hosts = (uint32_t)n % 3,
					  JOB_PARAMS(params),
					  JOB_GROUPS(groups),
					  JOB_KEYS(keys),
					  .lp = c->lp,
					  .on_device = c->on_device });
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
			for (uint32_t k = 0;
			     k < job.spec.nkeys && !(usual[p].flags & FRAG_FROZEN); k++)
				check_get(&job, rank, p, job.spec.keys[k].key);
			check_get(&job, rank, p, "lp");
		}
	job_check(&job);
	job_close(&job);
}
END_TEST

static unsigned long messages_of(struct job *job, uint32_t rank)
{
	return atomic_load(&job_frag(job, rank)->engine->counters.owner_reads_messages);
}

/* The states include those that every rank has whole, as masters or as low-precision copies. */
START_TEST(what_is_in_reach_is_got_from_memory_once_the_tables_are_there)
{
	struct job job;
	unsigned long before;

	if (cases[_i / WORLDS].on_device || cases[_i / WORLDS].how == JOB_SWAP ||
	    !open_case(&job, _i))
		return;
	for (uint32_t p = 0; p < job.spec.nparams && job.spec.hosts < 2; p++) {
		check_get(&job, 0, p, "lp");
		if (!(usual[p].flags & FRAG_FROZEN))
			check_get(&job, 0, p, "fp32");
		before = messages_of(&job, 0);
		check_get(&job, 0, p, "lp");
		if (!(usual[p].flags & FRAG_FROZEN))
			check_get(&job, 0, p, "fp32");
		ck_assert_uint_eq(messages_of(&job, 0), before);
	}
	job_close(&job);
}
END_TEST

/* Sets a new value by one rank alone, and checks that every holder has it after its boundary.
 */
static void check_set(struct job *job, uint32_t rank, uint32_t param, const char *key)
{
	uint64_t bytes = job_bytes(job, param, key);
	CLEANUP(free) uint8_t *value = malloc(bytes + 1);

	job_fill(value, job_dtype(job, param, key), job_numel(job, param), 1000 + param);
	ck_assert_int_eq(
		frag_set(job_frag(job, rank), job_number(job, rank, param), key, value, bytes),
		0);
	job_expect(job, param, key, value);
	if (!strcmp(key, "fp32"))
		job_expect_lp_of(job, param, value);
	job_boundary(job);
	job_check(job);
}

START_TEST(one_rank_sets_and_every_holder_has_it)
{
	struct job job;

	if (!open_case(&job, _i))
		return;
	job_grads_valid(&job);
	for (uint32_t p = 0; p < job.spec.nparams; p++)
		for (uint32_t k = 0; k < job.spec.nkeys && !(usual[p].flags & FRAG_FROZEN); k++)
			check_set(&job, job_random(&job, job.spec.world), p,
				  job.spec.keys[k].key);
	job_close(&job);
}
END_TEST

/* A frozen parameter has no master: every rank has a low-precision copy, or a piece of one. */
START_TEST(one_rank_sets_what_is_frozen_and_every_holder_has_it)
{
	struct job job;

	if (!open_case(&job, _i))
		return;
	for (uint32_t p = 0; p < job.spec.nparams; p++)
		if (usual[p].flags & FRAG_FROZEN)
			check_set(&job, job_random(&job, job.spec.world), p, "lp");
	job_close(&job);
}
END_TEST

/* "frozen" is in a group, "alone" in none. */
START_TEST(what_is_frozen_is_not_set_while_a_holder_is_lost)
{
	static const uint32_t frozen[] = { 3, 8 };
	uint8_t value[40] = { 0 };
	uint64_t bytes;
	struct job job;

	/* stage 1, with whole copies, and stage 3 */
	open_case(&job, (1 + 5 * (_i / 2)) * WORLDS);
	ck_assert_str_eq(usual[frozen[_i % 2]].name, _i % 2 ? "alone" : "frozen");
	bytes = job_bytes(&job, frozen[_i % 2], "lp");
	ck_assert_uint_le(bytes, sizeof(value));
	check_set(&job, 0, frozen[_i % 2], "lp");
	job_frag(&job, 2)->engine->job.ready = false; /* a killed process sends no LEAVE */
	job_close_rank(&job, 2);
	for (uint32_t rank = 0; rank < 2; rank++)
		peers_lose(job_frag(&job, rank)->engine, 2, -EIO, "lost by the test");
	for (uint32_t rank = 0; rank < 2; rank++)
		ck_assert_int_eq(frag_set(job_frag(&job, rank),
					  job_number(&job, rank, frozen[_i % 2]), "lp", value,
					  bytes),
				 -EIO);
	job_close(&job);
}
END_TEST

START_TEST(a_value_of_another_size_is_refused)
{
	uint8_t value[64] = { 0 };
	struct job job;

	open_case(&job, 1 * WORLDS);
	ck_assert_int_eq(frag_set(job_frag(&job, 0), 0, "fp32", value, 3), -EINVAL);
	ck_assert_int_eq(frag_set(job_frag(&job, 0), 0, "fp32", value, 8), -EINVAL);
	ck_assert_int_eq(frag_get(job_frag(&job, 1), 0, "fp32", value, 8), -EINVAL);
	ck_assert_int_eq(frag_get_range(job_frag(&job, 1), 0, "fp32", 3, value, 2), -EINVAL);
	job_check(&job);
	job_close(&job);
}
END_TEST

/* torch gives a tensor without elements no address, so no rank registers memory for the values
 * of such a parameter.
 */
START_TEST(a_parameter_without_elements_has_its_values_without_memory)
{
	static const struct job_param params[] = {
		{ "w", .ndim = 2, .shape = { 5, 3 } },
		{ "trained", .ndim = 2, .shape = { 0, 5 } },
		{ "alone", .ndim = 2, .shape = { 0, 3 }, .flags = FRAG_FROZEN },
	};
	static const struct job_group group = { .stage = 2, .nparams = 2, .params = { 0, 1 } };
	static const struct job_key keys[] = { { "exp_avg", FRAG_F32, JOB_KEEP },
					       { "fp32", FRAG_F32, JOB_KEEP } };
	bool master = _i & 1;
	struct job job;
	char value;

	job_open(&job, &(struct job_spec){ .world = 3,
					   .hosts = _i & 2 ? 3 : 1,
					   JOB_PARAMS(params),
					   .groups = &group,
					   .ngroups = 1,
					   .keys = keys,
					   .nkeys = 1 + master,
					   .lp = JOB_LP_NONE });
	for (uint32_t rank = 0; rank < 3; rank++) {
		struct frag *f = job_frag(&job, rank);

		ck_assert_int_eq(frag_get_bytes(f, job_number(&job, rank, 0), "lp"), -ENOENT);
		ck_assert_int_eq(frag_get_bytes(f, job_number(&job, rank, 1), "lp"),
				 master ? -ENOENT : 0);
		ck_assert_int_eq(frag_get_bytes(f, job_number(&job, rank, 2), "lp"), 0);
		ck_assert_int_eq(frag_get(f, job_number(&job, rank, 2), "lp", &value, 0), 0);
	}
	job_close(&job);
}
END_TEST

START_TEST(a_range_is_got_alone)
{
	uint8_t out[64];
	struct job job;

	open_case(&job, _i ? (int)(ARRAY_SIZE(cases) - 4) * WORLDS + 1 : 2 * WORLDS);
	ck_assert(_i == !!job.stored[5]);
	for (uint64_t at = 0; at + sizeof(out) <= job_bytes(&job, 5, "fp32"); at += 61) {
		ck_assert_int_eq(
			frag_get_range(job_frag(&job, 1), 5, "fp32", at, out, sizeof(out)), 0);
		ck_assert_mem_eq(out, (const uint8_t *)job_truth(&job, 5, "fp32") + at,
				 sizeof(out));
	}
	job_close(&job);
}
END_TEST

/* ---- axes: parameters that only some ranks have ---- */

/* Tensor parallel 2, pipeline 2, data parallel 2: rank = 4 * pp + 2 * tp + dp.  The experts
 * have groups of two of their own.
 */
static const struct job_param axes[] = {
	{ "first.w", "tp=0", .ndim = 2, .shape = { 7, 3 } },
	{ "first.w", "tp=1", .ndim = 2, .shape = { 7, 3 } },
	{ "last.w", "tp=0", .ndim = 1, .shape = { 19 } },
	{ "last.w", "tp=1", .ndim = 1, .shape = { 18 } },
	{ "expert.w", "ep=0", .ndim = 1, .shape = { 33 } },
	{ "expert.w", "ep=1", .ndim = 1, .shape = { 33 } },
};

static const struct job_group axes_groups[] = {
	{ .stage = 1, .nranks = 2, .ranks = { 0, 1 }, .nparams = 1, .params = { 0 } },
	{ .stage = 1, .nranks = 2, .ranks = { 2, 3 }, .nparams = 1, .params = { 1 } },
	{ .stage = 3, .nranks = 2, .ranks = { 5, 4 }, .nparams = 1, .params = { 2 } },
	{ .stage = 3, .nranks = 2, .ranks = { 6, 7 }, .nparams = 1, .params = { 3 } },
	{ .stage = 2, .nranks = 4, .ranks = { 0, 2, 4, 6 }, .nparams = 1, .params = { 4 } },
	{ .stage = 2, .nranks = 4, .ranks = { 1, 3, 5, 7 }, .nparams = 1, .params = { 5 } },
};

START_TEST(coordinates_pipelines_and_experts_keep_apart)
{
	static const char *const keys[] = { "fp32", "grad", "exp_avg", "exp_avg_sq", "lp" };
	struct job job;

	job_open(&job, &(struct job_spec){ .world = 8,
					   .hosts = 1 + (uint32_t)_i,
					   JOB_PARAMS(axes),
					   JOB_GROUPS(axes_groups) });
	job_grads_valid(&job);
	for (uint32_t rank = 0; rank < 8; rank++)
		for (uint32_t p = 0; p < ARRAY_SIZE(axes); p++)
			for (unsigned k = 0;
			     k < ARRAY_SIZE(keys) && job_number(&job, rank, p) >= 0; k++)
				check_get(&job, rank, p, keys[k]);
	for (uint32_t rank = 0; rank < 8; rank++)
		for (uint32_t p = 0; p < ARRAY_SIZE(axes); p++)
			if (job_number(&job, rank, p) >= 0)
				check_set(&job, rank, p, "fp32");
	job_close(&job);
}
END_TEST

/* Ranks register alike, but not at one time: a reader's tables are of different ages. */
START_TEST(a_state_that_a_rank_registered_later_is_found)
{
	static const struct job_group group = { .stage = 2, .nparams = 2, .params = { 1, 3 } };
	uint64_t numel[3], bytes;
	uint8_t *mine[3];
	struct job job;

	job_open(&job, &(struct job_spec){ .world = 3,
					   .hosts = 1 + 2 * (uint32_t)_i,
					   JOB_PARAMS(usual),
					   .groups = &group,
					   .ngroups = 1 });
	check_get(&job, 2, 1, "fp32"); /* now rank 2 has all tables */
	bytes = job_bytes(&job, 1, "fp32");
	CLEANUP(free) uint8_t *got = malloc(bytes), *value = calloc(1, bytes);
	for (uint32_t rank = 0; rank < 3; rank++) {
		numel[rank] =
			frag_partition_numel(job_frag(&job, rank), job.ranks[rank].group[0], 0);
		mine[rank] = malloc(numel[rank] * 4);
		memset(mine[rank], 0x11, numel[rank] * 4);
		ck_assert_int_eq(frag_state_keep(job_frag(&job, rank), job.ranks[rank].group[0],
						 0, "late", FRAG_F32, mine[rank]),
				 0);
		ck_assert_int_eq(
			frag_get_bytes(job_frag(&job, 2), job_number(&job, 2, 1), "late"),
			(int64_t)bytes);
	}
	ck_assert_int_eq(
		frag_get(job_frag(&job, 2), job_number(&job, 2, 1), "late", got, bytes), 0);
	for (uint64_t i = 0; i < bytes; i++)
		ck_assert_uint_eq(got[i], 0x11);
	ck_assert_int_eq(
		frag_set(job_frag(&job, 1), job_number(&job, 1, 1), "late", value, bytes), 0);
	job_boundary(&job);
	ck_assert_int_eq(
		frag_get(job_frag(&job, 2), job_number(&job, 2, 1), "late", got, bytes), 0);
	ck_assert_mem_eq(got, value, bytes);
	ck_assert_int_eq(frag_get_bytes(job_frag(&job, 2), job_number(&job, 2, 1), "never"),
			 -ENOENT);
	job_close(&job);
	for (uint32_t rank = 0; rank < 3; rank++)
		free(mine[rank]);
}
END_TEST

static void leave_alone(void *arg, int param, float *grad, uint64_t numel)
{
}

/* Calls for a parameter that does not exist return -EINVAL. */
START_TEST(a_parameter_that_there_is_not_is_a_bad_argument)
{
	static const int unknown[] = { -1, ARRAY_SIZE(usual), 99 };
	char keys[1][FRAG_KEY_MAX + 1];
	struct frag_fragment fragment;
	float value[1] = { 0 };
	enum frag_dtype dtype;
	struct job job;
	struct frag *f;
	void *memory;
	int p = unknown[_i];

	open_case(&job, 1 * WORLDS);
	job_grads_valid(&job);
	f = job_frag(&job, 0);
	ck_assert_int_eq(frag_fragment(f, p, &fragment), -EINVAL);
	ck_assert_int_eq(frag_fragment_keep(f, p, "m", FRAG_F32, value), -EINVAL);
	ck_assert_int_eq(frag_get_bytes(f, p, "fp32"), -EINVAL);
	ck_assert_int_eq(frag_get(f, p, "fp32", value, 4), -EINVAL);
	ck_assert_int_eq(frag_get_range(f, p, "fp32", 0, value, 4), -EINVAL);
	ck_assert_int_eq(frag_set(f, p, "fp32", value, 4), -EINVAL);
	ck_assert_int_eq(frag_update_grads(f, &p, 1, leave_alone, NULL), -EINVAL);
	ck_assert_int_eq(frag_local_get(f, p, "fp32", value, 4), -EINVAL);
	ck_assert_int_eq(frag_local_set(f, p, "fp32", value, 4), -EINVAL);
	ck_assert_int_eq(frag_local_view(f, p, "fp32", &memory, &dtype), -EINVAL);
	ck_assert_int_eq(frag_state_keys(f, p, keys, 1), -EINVAL);
	ck_assert_int_eq(frag_update_hp(f, p), -EINVAL);
	ck_assert_int_eq(frag_update_lp(f, p), -EINVAL);
	ck_assert_int_eq(frag_gather(f, p, "fp32", value, 4, JOB_WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(f, p, "fp32", 0, value, 4, JOB_WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_fetch(f, p, "fp32", value, 4), -EINVAL);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("access");
	TCase *t = tcase_create("access");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, every_rank_gets_every_state_bit_for_bit, 0, ALL);
	tcase_add_loop_test(t, what_is_in_reach_is_got_from_memory_once_the_tables_are_there, 0,
			    ALL);
	tcase_add_loop_test(t, one_rank_sets_and_every_holder_has_it, 0, ALL);
	tcase_add_loop_test(t, one_rank_sets_what_is_frozen_and_every_holder_has_it, 0, ALL);
	tcase_add_loop_test(t, what_is_frozen_is_not_set_while_a_holder_is_lost, 0, 4);
	tcase_add_test(t, a_value_of_another_size_is_refused);
	tcase_add_loop_test(t, a_parameter_that_there_is_not_is_a_bad_argument, 0, 3);
	tcase_add_loop_test(t, a_range_is_got_alone, 0, 2);
	tcase_add_loop_test(t, a_parameter_without_elements_has_its_values_without_memory, 0,
			    4);
	tcase_add_loop_test(t, a_state_that_a_rank_registered_later_is_found, 0, 2);
	tcase_add_loop_test(t, coordinates_pipelines_and_experts_keep_apart, 0, 3);
	return run_suite(s, t);
}

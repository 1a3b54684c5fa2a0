/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include "engine/base/convert.h"
#include "engine/base/dtype.h"
#include "engine/rank/devices.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* Fragments, and links between masters and low-precision parameters; b1 ... are the faults of
 * DeepSpeed that docs/deepspeed.md lists.
 */

static const struct job_param params[] = {
	{ "a.weight", .ndim = 2, .shape = { 5, 3 } },
	{ "a.bias", .ndim = 1, .shape = { 3 } },
	{ "b.weight", .ndim = 2, .shape = { 7, 3 } },
	{ "b.bias", .ndim = 1, .shape = { 7 }, .dtype = FRAG_F16 },
	{ "c.weight", .ndim = 1, .shape = { 11 }, .dtype = FRAG_F32 },
};

static struct job job;

/* NULL: states are in memory of the host. */
static const struct device_ops *on_device;

static void open_with(uint32_t world, struct job_group group, const struct job_key *keys,
		      uint32_t nkeys)
{
	struct job_group groups[2] = { group, group };

	groups[0].nparams = 3;
	memcpy(groups[0].params, (uint32_t[]){ 0, 1, 2 }, 3 * sizeof(uint32_t));
	groups[1].nparams = 2;
	memcpy(groups[1].params, (uint32_t[]){ 4, 3 }, 2 * sizeof(uint32_t));
	job_open(&job, &(struct job_spec){ .world = world,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   .keys = keys,
					   .nkeys = nkeys,
					   .on_device = on_device,
					   .device_ops = on_device });
}

static void open_stage(int stage, uint32_t world)
{
	open_with(world, (struct job_group){ .stage = stage, .sub_group_size = 8 }, NULL, 0);
}

static void get_is(uint32_t rank, uint32_t param, const char *key)
{
	uint8_t out[4096];
	uint64_t bytes = job_bytes(&job, param, key);

	ck_assert_int_eq(
		frag_get(job_frag(&job, rank), job_number(&job, rank, param), key, out, bytes),
		0);
	ck_assert_mem_eq(out, job_truth(&job, param, key), bytes);
}

static int set_new(uint32_t rank, uint32_t param, const char *key)
{
	_Alignas(8) uint8_t value[4096];
	int rc;

	job_fill(value, job_dtype(&job, param, key), job_numel(&job, param), 77 + param);
	rc = frag_set(job_frag(&job, rank), job_number(&job, rank, param), key, value,
		      job_bytes(&job, param, key));
	if (rc)
		return rc;
	job_expect(&job, param, key, value);
	if (!strcmp(key, "fp32"))
		job_expect_lp_of(&job, param, value);
	return 0;
}

/* ---- the faults ---- */

START_TEST(b1_set_where_numel_is_no_multiple_of_world)
{
	static const char *const keys[] = { "fp32", "exp_avg", "grad" };

	open_stage(3, 2 + (uint32_t)_i);
	job_grads_valid(&job);
	for (uint32_t p = 0; p < ARRAY_SIZE(params); p++)
		for (unsigned k = 0; k < ARRAY_SIZE(keys); k++)
			ck_assert_int_eq(set_new(1, p, keys[k]), 0);
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(b2_states_of_the_second_group)
{
	open_stage(1 + _i, 3);
	for (uint32_t rank = 0; rank < 3; rank++)
		for (uint32_t p = 3; p < 5; p++) {
			get_is(rank, p, "exp_avg");
			get_is(rank, p, "exp_avg_sq");
		}
	job_close(&job);
}
END_TEST

/* Gives the pieces of a group's parameters that this rank has, from the truth. */
static void pieces_of(uint32_t rank, const char *key, const void *pieces[3])
{
	struct frag_fragment at;

	for (uint32_t p = 0; p < 3; p++)
		pieces[p] = frag_fragment(job_frag(&job, rank), job_number(&job, rank, p), &at)
				    ? NULL
				    : (const uint8_t *)job_truth(&job, p, key) +
					      at.param_offset * sizeof(float);
}

START_TEST(b3_state_from_fragments_leaves_the_master)
{
	const void *pieces[3];

	open_stage(1, 2);
	for (uint32_t rank = 0; rank < 2; rank++) {
		pieces_of(rank, "exp_avg", pieces);
		ck_assert_int_eq(frag_state_from_fragments(job_frag(&job, rank), 0, 0,
							   "momentum", FRAG_F32, pieces, 3),
				 0);
	}
	for (uint32_t p = 0; p < 3; p++) {
		uint8_t out[256];

		ck_assert_int_eq(frag_get(job_frag(&job, 1), (int)p, "momentum", out,
					  job_bytes(&job, p, "exp_avg")),
				 0);
		ck_assert_mem_eq(out, job_truth(&job, p, "exp_avg"),
				 job_bytes(&job, p, "exp_avg"));
		get_is(0, p, "fp32");
	}
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(b4_round_robin)
{
	open_with(2 + (uint32_t)_i, (struct job_group){ .stage = 2, .flags = FRAG_ROUND_ROBIN },
		  NULL, 0);
	job_grads_valid(&job);
	for (uint32_t p = 0; p < ARRAY_SIZE(params); p++) {
		get_is(1, p, "fp32");
		get_is(0, p, "grad");
		ck_assert_int_eq(set_new(0, p, "fp32"), 0);
	}
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

static const struct job_key whole_grads[] = {
	{ "fp32", FRAG_F32, JOB_KEEP },
	{ "grad", FRAG_F32, JOB_WHOLE },
};

START_TEST(b6_gradients_of_bf16_optimizer)
{
	uint8_t out[256];
	struct frag_fragment at;

	open_with(2, (struct job_group){ .stage = 1 }, whole_grads, 2);
	job_grads_valid(&job);
	for (uint32_t p = 0; p < ARRAY_SIZE(params); p++) {
		get_is(0, p, "grad");
		get_is(1, p, "grad");
		if (frag_fragment(job_frag(&job, 1), (int)p, &at))
			continue;
		ck_assert_int_eq(
			frag_local_get(job_frag(&job, 1), (int)p, "grad", out, at.numel * 4),
			0);
		ck_assert_mem_eq(
			out, (const uint8_t *)job_truth(&job, p, "grad") + at.param_offset * 4,
			at.numel * 4);
	}
	ck_assert_int_eq(set_new(1, 2, "grad"), 0);
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(b7_states_registered_anew_are_found)
{
	struct job_memory *m;

	open_stage(2, 3);
	get_is(0, 0, "exp_avg");
	get_is(2, 0, "exp_avg");
	for (uint32_t rank = 0; rank < 3; rank++) {
		uint8_t *elsewhere;

		m = job_memory(&job, rank, 0, 0, "exp_avg");
		elsewhere = malloc(m->bytes + 1);
		memcpy(elsewhere, m->bytes_at, m->bytes);
		ck_assert_int_eq(frag_state_drop(job_frag(&job, rank), 0, 0, "exp_avg"), 0);
		memset(m->bytes_at, 0, m->bytes);
		free(m->bytes_at);
		m->bytes_at = elsewhere;
		ck_assert_int_eq(frag_state_keep(job_frag(&job, rank), 0, 0, "exp_avg",
						 FRAG_F32, elsewhere),
				 0);
	}
	for (uint32_t rank = 0; rank < 3; rank++)
		get_is(rank, 2, "exp_avg");
	ck_assert_int_eq(set_new(1, 2, "exp_avg"), 0);
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(b8_zero_size_parameter)
{
	static const struct job_param with_empty[] = {
		{ "first", .ndim = 2, .shape = { 0, 3 } },
		{ "a", .ndim = 1, .shape = { 5 } },
		{ "inside", .ndim = 1, .shape = { 0 } },
		{ "b", .ndim = 1, .shape = { 6 } },
	};
	const struct job_group group = { .stage = _i, .nparams = 4, .params = { 0, 1, 2, 3 } };
	struct frag_fragment at;

	job_open(&job,
		 &(struct job_spec){
			 .world = 2, JOB_PARAMS(with_empty), .groups = &group, .ngroups = 1 });
	job_grads_valid(&job);
	for (uint32_t rank = 0; rank < 2; rank++)
		for (uint32_t p = 0; p < 4; p++)
			get_is(rank, p, "grad");
	ck_assert_int_eq(frag_fragment(job_frag(&job, 0), 0, &at), -ENOENT);
	ck_assert_int_eq(frag_local_get(job_frag(&job, 0), 2, "fp32", &at, 0), -ENOENT);
	ck_assert_int_eq(set_new(0, 2, "fp32"), 0);
	ck_assert_int_eq(set_new(0, 1, "fp32"), 0);
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

static const struct job_key before_step[] = { { "fp32", FRAG_F32, JOB_KEEP } };

START_TEST(b9_before_the_first_step_is_enoent_not_a_hang)
{
	void *memory[3];
	float out[64];

	open_with(3, (struct job_group){ .stage = 1 }, before_step, 1);
	for (uint32_t rank = 0; rank < 3; rank++)
		for (int p = 0; p < 3; p++)
			ck_assert_int_eq(frag_get(job_frag(&job, rank), p, "exp_avg", out, 60),
					 -ENOENT);
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert_int_eq(frag_state_alloc(job_frag(&job, rank), 0, 0, "exp_avg",
						  FRAG_F32, &memory[rank]),
				 0);
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert_int_eq(frag_get(job_frag(&job, rank), 0, "exp_avg", out, 60), 0);
	job_close(&job);
}
END_TEST

START_TEST(b12_set_reaches_lp)
{
	open_stage(_i, 3);
	for (uint32_t p = 0; p < ARRAY_SIZE(params); p++)
		ck_assert_int_eq(set_new(2, p, "fp32"), 0);
	job_boundary(&job);
	job_check(&job);
	for (uint32_t p = 0; p < ARRAY_SIZE(params); p++)
		get_is(0, p, "lp");
	job_close(&job);
}
END_TEST

START_TEST(b13_minus_zero_and_snan_survive)
{
	const uint32_t bits[3] = { 0x80000000, 0x7fa12345, 0xff800001 };
	uint32_t out[3];

	open_stage(_i, 2);
	ck_assert_int_eq(frag_set(job_frag(&job, 0), 1, "fp32", bits, sizeof(bits)), 0);
	job_boundary(&job);
	for (uint32_t rank = 0; rank < 2; rank++) {
		ck_assert_int_eq(frag_get(job_frag(&job, rank), 1, "fp32", out, sizeof(out)),
				 0);
		ck_assert_mem_eq(out, bits, sizeof(bits));
	}
	job_close(&job);
}
END_TEST

START_TEST(b14_one_caller_has_nobody_to_disagree_with)
{
	uint32_t out[3], first[3] = { 1, 2, 3 }, second[3] = { 4, 5, 6 };

	open_stage(2, 3);
	ck_assert_int_eq(frag_set(job_frag(&job, 0), 1, "exp_avg", first, sizeof(first)), 0);
	ck_assert_int_eq(frag_set(job_frag(&job, 2), 1, "exp_avg", second, sizeof(second)), 0);
	job_boundary(&job);
	job_expect(&job, 1, "exp_avg", second);
	job_check(&job);
	ck_assert_int_eq(frag_get(job_frag(&job, 1), 1, "exp_avg", out, sizeof(out)), 0);
	ck_assert_mem_eq(out, second, sizeof(out));
	job_close(&job);
}
END_TEST

/* ---- the local family ---- */

START_TEST(own_fragments_are_got_set_and_viewed_at_every_stage)
{
	uint8_t out[256], value[256];
	struct frag_fragment at;
	enum frag_dtype dtype;
	void *view;

	open_stage(_i, 3);
	for (uint32_t rank = 0; rank < 3; rank++)
		for (uint32_t p = 0; p < ARRAY_SIZE(params); p++) {
			struct frag *f = job_frag(&job, rank);
			int number = job_number(&job, rank, p);
			const uint8_t *truth = job_truth(&job, p, "exp_avg");

			if (frag_fragment(f, number, &at)) {
				ck_assert_int_eq(frag_local_get(f, number, "exp_avg", out, 0),
						 -ENOENT);
				continue;
			}
			ck_assert_int_eq(
				frag_local_get(f, number, "exp_avg", out, at.numel * 4), 0);
			ck_assert_mem_eq(out, truth + at.param_offset * 4, at.numel * 4);
			ck_assert_int_eq(
				frag_local_get(f, number, "exp_avg", out, at.numel * 4 - 1),
				-EINVAL);
			ck_assert_int_eq(frag_local_view(f, number, "exp_avg", &view, &dtype),
					 0);
			ck_assert_mem_eq(view, out, at.numel * 4);
			ck_assert_int_eq(dtype, FRAG_F32);
			job_fill(value, FRAG_F32, at.numel, 5);
			ck_assert_int_eq(
				frag_local_set(f, number, "exp_avg", value, at.numel * 4), 0);
			ck_assert_mem_eq(view, value, at.numel * 4);
			ck_assert_int_eq(
				frag_local_set(f, number, "exp_avg", out, at.numel * 4), 0);
		}
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(keys_are_sorted_and_counted_past_the_room)
{
	char keys[3][FRAG_KEY_MAX + 1];

	open_with(2, (struct job_group){ .stage = 1 }, NULL, 0);
	ck_assert_int_eq(frag_state_keys(job_frag(&job, 0), 0, keys, 3), 4);
	ck_assert_str_eq(keys[0], "exp_avg");
	ck_assert_str_eq(keys[1], "exp_avg_sq");
	ck_assert_str_eq(keys[2], "fp32");
	ck_assert_int_eq(frag_state_keys(job_frag(&job, 0), 99, keys, 3), -EINVAL);
	job_close(&job);
}
END_TEST

static void submit_without_kernels(struct device *d, struct device_io *io)
{
	if (io->what == DEVICE_COPY)
		device_host.submit(d, io);
	else
		io->done(io, -ENOSYS);
}

static uint64_t copied(struct frag *f)
{
	struct devices_figures figures;

	devices_figures(f->engine->registry.devices, &figures);
	ck_assert_uint_eq(figures.errors, 0);
	return figures.from_bytes + figures.to_bytes;
}

/* If the device converts, no byte of it goes by the host. */
static void update(struct frag *f, int (*way)(struct frag *f, int param), int number)
{
	uint64_t before = on_device ? copied(f) : 0;

	ck_assert_int_eq(way(f, number), 0);
	if (on_device)
		ck_assert(on_device == &device_host ? copied(f) == before : copied(f) > before);
}

static void convert_fragment(struct frag *f, uint32_t p)
{
	_Alignas(8) uint8_t hp[256], lp[256], back[256], expected[256];
	int number = job_number(&job, 1, p);
	enum frag_dtype dtype = job_dtype(&job, p, "lp");
	size_t element = frag_dtype_size(dtype);
	bool converts = dtype != FRAG_F32;
	struct frag_fragment at;

	if (frag_fragment(f, number, &at))
		return;
	for (uint64_t i = 0; i < at.numel; i++)
		((float *)hp)[i] = 1.0f / (float)(i + 3);
	ck_assert_int_eq(frag_local_set(f, number, "fp32", hp, at.numel * 4), 0);
	if (converts)
		update(f, frag_update_lp, number);
	else
		ck_assert_int_eq(frag_update_lp(f, number), 0);
	ck_assert_int_eq(frag_local_get(f, number, "lp", lp, at.numel * element), 0);
	ck_assert_int_eq(dtype_convert(dtype, expected, FRAG_F32, hp, at.numel), 0);
	ck_assert_mem_eq(lp, expected, at.numel * element);
	memset(back, 0, sizeof(back));
	ck_assert_int_eq(frag_local_set(f, number, "fp32", back, at.numel * 4), 0);
	if (converts)
		update(f, frag_update_hp, number);
	else
		ck_assert_int_eq(frag_update_hp(f, number), 0);
	ck_assert_int_eq(frag_local_get(f, number, "fp32", back, at.numel * 4), 0);
	ck_assert_int_eq(frag_update_lp(f, number), 0);
	ck_assert_int_eq(frag_local_get(f, number, "lp", lp, at.numel * element), 0);
	ck_assert_mem_eq(lp, expected, at.numel * element);
}

/* Each stage, in memory of the host, on a device, and on a device that converts nothing. */
START_TEST(update_lp_and_update_hp_convert_this_ranks_fragment)
{
	static struct device_ops without_kernels;
	const struct device_ops *where[] = { NULL, &device_host, &without_kernels };

	without_kernels = device_host;
	without_kernels.submit = submit_without_kernels;
	on_device = where[_i / 4];
	open_stage(_i % 4, 2);
	for (uint32_t p = 0; p < ARRAY_SIZE(params); p++)
		convert_fragment(job_frag(&job, 1), p);
	job_close(&job);
	on_device = NULL;
}
END_TEST

START_TEST(state_from_fragments_clears_gaps_and_padding)
{
	struct job_memory *m;
	const void *pieces[3];
	struct frag_fragment at;

	open_stage(1, 2);
	m = job_memory(&job, 1, 0, 0, "exp_avg");
	pieces_of(1, "fp32", pieces);
	ck_assert_int_eq(frag_state_from_fragments(job_frag(&job, 1), 0, 0, "exp_avg",
						   FRAG_BF16, pieces, 3),
			 -EINVAL);
	ck_assert_int_eq(frag_state_from_fragments(job_frag(&job, 1), 0, 0, "exp_avg", FRAG_F32,
						   pieces, 2),
			 -EINVAL);
	job_check(&job);
	ck_assert_int_eq(frag_state_from_fragments(job_frag(&job, 1), 0, 0, "exp_avg", FRAG_F32,
						   pieces, 3),
			 0);
	ck_assert_int_eq(frag_fragment(job_frag(&job, 1), 2, &at), 0);
	ck_assert_mem_eq(m->bytes_at + at.partition_offset * 4,
			 (const uint8_t *)job_truth(&job, 2, "fp32") + at.param_offset * 4,
			 at.numel * 4);
	for (uint64_t i = (at.partition_offset + at.numel) * 4; i < m->bytes; i++)
		ck_assert_uint_eq(m->bytes_at[i], 0);
	job_close(&job);
}
END_TEST

/* ---- gradients ---- */

static void negate(void *arg, int param, float *grad, uint64_t numel)
{
	++*(int *)arg;
	for (uint64_t i = 0; i < numel; i++) {
		uint32_t bits;

		memcpy(&bits, &grad[i], 4);
		bits ^= 0x80000000;
		memcpy(&grad[i], &bits, 4);
	}
}

static void expect_negated(uint32_t param)
{
	uint64_t numel = job_numel(&job, param);
	uint32_t *bits = malloc(numel * 4);

	memcpy(bits, job_truth(&job, param, "grad"), numel * 4);
	for (uint64_t i = 0; i < numel; i++)
		bits[i] ^= 0x80000000;
	job_expect(&job, param, "grad", bits);
	free(bits);
}

START_TEST(all_gradients_change_in_one_transaction)
{
	static const int all[] = { 4, 0, 3, 1, 2 };
	int calls = 0;

	open_stage(_i, 3);
	job_grads_valid(&job);
	ck_assert_int_eq(frag_update_grads(job_frag(&job, 1), all, 5, negate, &calls), 0);
	ck_assert_int_eq(calls, 5);
	ck_assert_uint_eq(job_frag(&job, 1)->engine->counters.writes, 1);
	for (uint32_t p = 0; p < ARRAY_SIZE(params); p++)
		expect_negated(p);
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(gradients_are_enodata_outside_their_time)
{
	static const int twice[] = { 0, 0 }, one[] = { 0 };
	struct frag *f;
	float out[15];
	int calls = 0;

	open_stage(2, 2);
	f = job_frag(&job, 0);
	ck_assert_int_eq(frag_update_grads(f, one, 1, negate, &calls), -ENODATA);
	ck_assert_int_eq(frag_get(f, 0, "grad", out, sizeof(out)), -ENODATA);
	ck_assert_int_eq(frag_local_get(f, 0, "grad", out, 14 * 4), -EINVAL);
	ck_assert_int_eq(frag_local_get(f, 0, "grad", out, sizeof(out)), -ENODATA);
	ck_assert_int_eq(frag_local_set(f, 0, "grad", out, sizeof(out)), -ENODATA);
	job_grads_valid(&job);
	ck_assert_int_eq(frag_update_grads(f, twice, 2, negate, &calls), -EINVAL);
	ck_assert_int_eq(frag_local_get(f, 0, "grad", out, sizeof(out)), 0);
	ck_assert_int_eq(frag_get(f, 0, "grad", out, sizeof(out)), 0);
	job_grads_gone(&job);
	ck_assert_int_eq(frag_update_grads(f, one, 1, negate, &calls), -ENODATA);
	ck_assert_int_eq(calls, 0);
	job_check(&job);
	job_close(&job);
}
END_TEST

/* ---- calls that must do no harm ---- */

START_TEST(registering_something_else_does_not_tear_an_edit)
{
	static uint8_t bytes[16];

	open_stage(2, 3);
	ck_assert_int_eq(set_new(0, 2, "fp32"), 0);
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert_int_eq(
			frag_publish(job_frag(&job, rank), "later", bytes, sizeof(bytes)), 0);
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(a_forked_child_is_refused)
{
	pid_t child;
	int status;

	open_stage(2, 2);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		struct frag *f = job_frag(&job, 0);
		char keys[1][FRAG_KEY_MAX + 1];
		void *view;
		float out[15];
		int bad = 0;

		bad |= frag_get(f, 0, "fp32", out, sizeof(out)) != -EINVAL;
		bad |= frag_set(f, 0, "fp32", out, sizeof(out)) != -EINVAL;
		bad |= frag_local_get(f, 0, "fp32", out, sizeof(out)) != -EINVAL;
		bad |= frag_local_set(f, 0, "fp32", out, sizeof(out)) != -EINVAL;
		bad |= frag_local_view(f, 0, "fp32", &view, NULL) != -EINVAL;
		bad |= frag_state_keys(f, 0, keys, 1) != -EINVAL;
		bad |= frag_update_lp(f, 0) != -EINVAL;
		bad |= frag_update_hp(f, 0) != -EINVAL;
		bad |= frag_update_grads(f, (int[]){ 0 }, 1, negate, NULL) != -EINVAL;
		bad |= frag_state_from_fragments(f, 0, 0, "x", FRAG_F32, NULL, 3) != -EINVAL;
		bad |= frag_step_begin(f) != -EINVAL;
		bad |= frag_barrier(f, 10) != -EINVAL;
		frag_close(f);
		_exit(bad);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	get_is(0, 0, "fp32");
	job_close(&job);
}
END_TEST

/* The trainer frees memory that it has registered. */
START_TEST(freed_memory_is_efault_and_an_edit_of_it_is_nowhere)
{
	const size_t size = 4096;
	float value[21] = { 0 };
	uint8_t *pages =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct job_memory *m;
	uint8_t out[84];
	struct frag *f;

	open_stage(1, 2);
	f = job_frag(&job, 1);
	m = job_memory(&job, 1, 0, 0, "exp_avg");
	ck_assert_int_eq(frag_state_drop(f, 0, 0, "exp_avg"), 0);
	ck_assert_int_eq(frag_state_keep(f, 0, 0, "exp_avg", FRAG_F32, pages), 0);
	memcpy(pages, m->bytes_at, m->bytes);
	get_is(0, 2, "exp_avg");
	munmap(pages, size);
	for (uint32_t rank = 0; rank < 2; rank++) {
		ck_assert_int_eq(frag_get(job_frag(&job, rank), 2, "exp_avg", out, 84),
				 -EFAULT);
		ck_assert_int_eq(frag_set(job_frag(&job, rank), 2, "exp_avg", value, 84),
				 -EFAULT);
	}
	ck_assert_int_eq(frag_local_get(f, 2, "exp_avg", out, 0), -EINVAL);
	ck_assert_int_eq(frag_state_from_fragments(f, 0, 0, "exp_avg", FRAG_F32,
						   (const void *[3]){ 0 }, 3),
			 -EFAULT);
	job_boundary(&job);
	job_check(&job);
	get_is(0, 2, "fp32");
	job_close(&job);
}
END_TEST

START_TEST(a_lost_rank_costs_its_own_fragments_alone)
{
	uint8_t out[84];
	bool lost = false;
	struct frag_fragment at;

	open_stage(1, 3);
	job_close_rank(&job, 2);
	job.ranks[0].f->engine->timeout_ms = job.ranks[1].f->engine->timeout_ms = 300;
	for (uint32_t p = 0; p < 3; p++) {
		bool there = !frag_fragment(job_frag(&job, 0), (int)p, &at) &&
			     at.numel == job_numel(&job, p);
		int rc = frag_get(job_frag(&job, 0), (int)p, "fp32", out,
				  job_bytes(&job, p, "fp32"));

		if (there)
			ck_assert_int_eq(rc, 0);
		lost |= rc != 0; /* the rank was found silent by this request, or before it */
		ck_assert(!rc || rc == -EIO || rc == -ETIMEDOUT);
	}
	ck_assert(lost);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("linkage");
	TCase *t = tcase_create("linkage");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, b1_set_where_numel_is_no_multiple_of_world, 0, 3);
	tcase_add_loop_test(t, b2_states_of_the_second_group, 0, 2);
	tcase_add_test(t, b3_state_from_fragments_leaves_the_master);
	tcase_add_loop_test(t, b4_round_robin, 0, 3);
	tcase_add_test(t, b6_gradients_of_bf16_optimizer);
	tcase_add_test(t, b7_states_registered_anew_are_found);
	tcase_add_loop_test(t, b8_zero_size_parameter, 0, 4);
	tcase_add_test(t, b9_before_the_first_step_is_enoent_not_a_hang);
	tcase_add_loop_test(t, b12_set_reaches_lp, 0, 4);
	tcase_add_loop_test(t, b13_minus_zero_and_snan_survive, 0, 4);
	tcase_add_test(t, b14_one_caller_has_nobody_to_disagree_with);
	tcase_add_loop_test(t, own_fragments_are_got_set_and_viewed_at_every_stage, 0, 4);
	tcase_add_test(t, keys_are_sorted_and_counted_past_the_room);
	tcase_add_loop_test(t, update_lp_and_update_hp_convert_this_ranks_fragment, 0, 12);
	tcase_add_test(t, state_from_fragments_clears_gaps_and_padding);
	tcase_add_loop_test(t, all_gradients_change_in_one_transaction, 0, 4);
	tcase_add_test(t, gradients_are_enodata_outside_their_time);
	tcase_add_test(t, registering_something_else_does_not_tear_an_edit);
	tcase_add_test(t, a_forked_child_is_refused);
	tcase_add_test(t, freed_memory_is_efault_and_an_edit_of_it_is_nowhere);
	tcase_add_test(t, a_lost_rank_costs_its_own_fragments_alone);
	return run_suite(s, t);
}

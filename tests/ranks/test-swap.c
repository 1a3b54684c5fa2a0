/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/faults.h"
#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/live/loop.h"
#include "engine/swap/swapper.h"
#include "engine/watch/rank-query.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* States on NVMe, by the calls of frag.h: sweeps, ranges, and what readers see meanwhile.
 * test-access has whole parameters in all layouts.
 */

enum { NUMEL = 5000, SLICE = 1024, WORLD = 2, TURN_MS = 5, MANY = 1000000 };

static const struct job_param params[] = {
	{ "a", .ndim = 1, .shape = { 7000 } },
	{ "b", .ndim = 2, .shape = { 60, 50 } },
};

static const struct job_param small_first[] = {
	{ "small", .ndim = 1, .shape = { 100 } }, /* in one slice */
	{ "large", .ndim = 1, .shape = { 9900 } },
};

static struct job job;

static void open_with(const struct job_param two[2], enum job_how grad)
{
	static const struct job_group group = { .stage = 2, .nparams = 2, .params = { 0, 1 } };
	struct job_key keys[] = { { "fp32", FRAG_F32, JOB_SWAP },
				  { "exp_avg", FRAG_F32, JOB_SWAP },
				  { "grad", FRAG_F32, grad } };

	faults_clear();
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   .messages = faults_over(&transport_loop),
					   .params = two,
					   .nparams = 2,
					   .groups = &group,
					   .ngroups = 1,
					   JOB_KEYS(keys) });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_eq(frag_partition_numel(job_frag(&job, rank), 0, 0), NUMEL);
	job_boundary(&job);
}

static void open_job(enum job_how grad)
{
	open_with(params, grad);
}

static struct frag *rank0(void)
{
	return job_frag(&job, 0);
}

static void fill_state(uint32_t rank, const char *key, float value)
{
	float values[NUMEL];

	for (int i = 0; i < NUMEL; i++)
		values[i] = value;
	ck_assert_int_eq(frag_state_put(job_frag(&job, rank), 0, 0, key, 0, values, NUMEL, 0),
			 0);
}

/* Returns an element as rank 0's trainer sees it. */
static float mine(const char *key, uint64_t at)
{
	struct frag_fragment own;
	float values[NUMEL];

	ck_assert_int_eq(frag_fragment(rank0(), 0, &own), 0);
	ck_assert_int_eq(frag_local_get(rank0(), 0, key, values, own.numel * sizeof(*values)),
			 0);
	return values[at];
}

/* Returns an element as another rank sees it. */
static float seen(const char *key, uint64_t at)
{
	float value;

	ck_assert_int_eq(frag_get_range(job_frag(&job, 1), 0, key, at * sizeof(value), &value,
					sizeof(value)),
			 0);
	return value;
}

static const struct frag_swept adam[] = {
	{ "fp32", 0 },
	{ "exp_avg", FRAG_WRITE_ONLY },
	{ "grad", FRAG_READ_ONLY },
};

/* Sets fp32 += grad and exp_avg = its place in the next slice.  Returns its numel; 0: there is
 * none.
 */
static uint64_t sweep_on(struct frag_sweep *sweep, uint64_t at)
{
	uint64_t first, numel;
	void *memory[3];
	int rc = frag_sweep_next(sweep, &first, &numel, memory);

	ck_assert_int_ge(rc, 0);
	if (!rc)
		return 0;
	ck_assert_uint_eq(first, at);
	for (uint64_t i = 0; i < numel; i++) {
		((float *)memory[0])[i] += ((float *)memory[2])[i];
		((float *)memory[1])[i] = (float)(first + i);
		((float *)memory[2])[i] = -1; /* read-only: the change is forgotten, on NVMe */
	}
	return numel;
}

/* Sweeps from element `all` on; returns how many elements there are then. */
static uint64_t sweep_to_end(struct frag_sweep *sweep, uint64_t all)
{
	uint64_t n;

	while ((n = sweep_on(sweep, all)))
		all += n;
	frag_sweep_end(sweep);
	return all;
}

static uint64_t sweep_once(void)
{
	struct frag_sweep *sweep;

	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, adam, 3, &sweep), 0);
	return sweep_to_end(sweep, 0);
}

START_TEST(a_sweep_visits_all_of_a_partition)
{
	open_job(JOB_SWAP);
	fill_state(0, "fp32", 10);
	fill_state(0, "grad", 2);
	frag_grads_valid(rank0(), 1);
	frag_step_begin(rank0());
	ck_assert_uint_eq(sweep_once(), NUMEL);
	frag_step_end(rank0());
	for (uint64_t at = 0; at < NUMEL; at += 501) {
		ck_assert_float_eq(mine("fp32", at), 12);
		ck_assert_float_eq(mine("exp_avg", at), (float)at);
		ck_assert_float_eq(mine("grad", at), 2);
	}
	ck_assert_int_eq(frag_swap_flush(rank0(), 10000), 0);
	job_close(&job);
}
END_TEST

START_TEST(a_sweep_visits_states_in_memory_where_they_are)
{
	void *grad;

	open_job(JOB_ALLOC);
	fill_state(0, "fp32", 10);
	fill_state(0, "grad", 2);
	grad = job_memory(&job, 0, 0, 0, "grad")->bytes_at;
	ck_assert_uint_eq(sweep_once(), NUMEL);
	ck_assert_float_eq(mine("fp32", 3000), 12);
	ck_assert_float_eq(((float *)grad)[NUMEL - 1], -1);
	job_close(&job);
}
END_TEST

START_TEST(readers_see_a_step_when_it_has_ended)
{
	open_job(JOB_SWAP);
	fill_state(0, "fp32", 10);
	frag_safe_point(rank0());
	ck_assert_float_eq(seen("fp32", 0), 10);
	frag_step_begin(rank0());
	fill_state(0, "grad", 1);
	sweep_once();
	ck_assert_float_eq(mine("fp32", 0), 11);
	ck_assert_float_eq(seen("fp32", 0), 10);
	ck_assert_float_eq(seen("fp32", 4999), 10);
	frag_step_end(rank0());
	ck_assert_float_eq(seen("fp32", 0), 11);
	job_close(&job);
}
END_TEST

START_TEST(what_is_set_and_got_is_the_newest_in_a_step_too)
{
	float value[NUMEL] = { [0 ... NUMEL - 1] = 3 };
	uint16_t lp[7000];
	struct job_memory *m;

	open_job(JOB_SWAP);
	frag_step_begin(rank0());
	ck_assert_int_eq(frag_local_set(rank0(), 0, "fp32", value, sizeof(value)), 0);
	ck_assert_float_eq(mine("fp32", 77), 3);
	ck_assert_int_eq(frag_update_lp(rank0(), 0), 0);
	frag_step_end(rank0());
	m = &job.ranks[0].memory[0];
	ck_assert_int_eq(m->kind, STATE_LP);
	memcpy(lp, m->bytes_at, sizeof(lp));
	ck_assert_uint_eq(lp[77], 0x4040); /* 3 as bfloat16 */
	ck_assert_float_eq(seen("fp32", 77), 3);
	job_close(&job);
}
END_TEST

START_TEST(gradients_are_accumulated_by_ranges)
{
	float ones[NUMEL] = { [0 ... NUMEL - 1] = 1 };

	open_job(_i ? JOB_KEEP : JOB_SWAP);
	ck_assert_int_eq(frag_state_clear(rank0(), 0, 0, "grad"), 0);
	for (uint64_t first = 0; first < NUMEL; first += 700)
		ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "grad", first, ones,
						u64_min(700, NUMEL - first), FRAG_ADD),
				 0);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "grad", 1000, ones, 2000, FRAG_ADD), 0);
	frag_grads_valid(rank0(), 1);
	ck_assert_float_eq(mine("grad", 999), 1);
	ck_assert_float_eq(mine("grad", 1000), 2);
	ck_assert_float_eq(mine("grad", 2999), 2);
	ck_assert_float_eq(mine("grad", 3000), 1);
	ck_assert_float_eq(mine("grad", NUMEL - 1), 1);
	job_close(&job);
}
END_TEST

/* Memory in which values are collected is given back when other values are put, or a step ends.
 */
START_TEST(what_is_put_is_nobodys_memory_until_a_sweep_has_it)
{
	float values[100] = { 2 };
	struct frag_sweep *sweep;
	uint64_t first, numel;
	void *memory[3], *view;

	open_with(small_first, JOB_SWAP);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "grad", 0, values, 100, 0), 0);
	ck_assert_int_eq(frag_local_view(rank0(), 0, "grad", &view, NULL), -EOPNOTSUPP);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, adam, 3, &sweep), 0);
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 1);
	ck_assert_int_eq(frag_local_view(rank0(), 0, "grad", &view, NULL), 0);
	ck_assert_ptr_eq(view, memory[2]);
	ck_assert_float_eq(*(float *)view, 2);
	frag_sweep_end(sweep);
	job_close(&job);
}
END_TEST

static uint64_t generation(void)
{
	return atomic_load(&rank0()->engine->registry.control->generation);
}

START_TEST(a_step_that_ends_in_a_sweep_is_seen_when_all_of_it_is_there)
{
	struct frag_sweep *sweep;
	uint64_t before, half;

	open_job(JOB_SWAP);
	before = generation();
	fill_state(0, "exp_avg", -1);
	ck_assert_int_eq(frag_safe_point(rank0()), 0);
	ck_assert_int_eq(frag_step_begin(rank0()), 0);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, adam, 3, &sweep), 0);
	half = sweep_on(sweep, 0);
	half += sweep_on(sweep, half);
	ck_assert_int_eq(frag_step_end(rank0()), -EBUSY);
	ck_assert_uint_eq(generation(), before);
	ck_assert_float_eq(seen("exp_avg", 77), -1);
	ck_assert_int_eq(frag_safe_point(rank0()), -EBUSY);
	ck_assert_uint_eq(sweep_to_end(sweep, half), NUMEL);
	ck_assert_int_eq(frag_safe_point(rank0()), 0);
	ck_assert_uint_gt(generation(), before);
	for (uint64_t at = 77; at < NUMEL; at += SLICE)
		ck_assert_float_eq(seen("exp_avg", at), (float)at);
	job_close(&job);
}
END_TEST

START_TEST(gradients_that_are_valid_stay_as_they_are)
{
	open_job(JOB_SWAP);
	fill_state(0, "grad", 1);
	fill_state(1, "grad", 1);
	job_grads_valid(&job);
	ck_assert_float_eq(seen("grad", 0), 1);
	fill_state(0, "grad", 2);
	ck_assert_int_eq(frag_grads_valid(rank0(), 8), 0);
	ck_assert_float_eq(seen("grad", 0), 1);
	job_grads_gone(&job);
	job_grads_valid(&job);
	ck_assert_float_eq(seen("grad", 0), 2);
	job_close(&job);
}
END_TEST

START_TEST(wrong_calls_are_refused)
{
	struct frag_sweep *sweep, *second;
	float value[2] = { 0 };
	uint64_t first, numel;
	void *memory[FRAG_SWEEP_MAX], *view;
	struct frag_swept twice[] = { { "fp32", 0 }, { "fp32", 0 } };
	struct frag_swept both[] = { { "fp32", FRAG_READ_ONLY | FRAG_WRITE_ONLY } };
	struct frag_swept missing[] = { { "fp32", 0 }, { "momentum", 0 } };

	open_job(JOB_SWAP);
	ck_assert_int_eq(frag_state_swap(rank0(), 0, 0, "fp32", FRAG_F32), -EEXIST);
	ck_assert_int_eq(frag_state_swap(rank0(), 0, 0, "wide", FRAG_C128), -EINVAL);
	ck_assert_int_eq(frag_state_swap(rank0(), 0, 1, "momentum", FRAG_F32), -ENOENT);
	ck_assert_int_eq(frag_local_view(rank0(), 0, "fp32", &view, NULL), -EOPNOTSUPP);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, twice, 2, &sweep), -EINVAL);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, both, 1, &sweep), -EINVAL);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, missing, 2, &sweep), -ENOENT);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, adam, 0, &sweep), -EINVAL);
	ck_assert_int_eq(frag_sweep_next(NULL, &first, &numel, memory), -EINVAL);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "fp32", NUMEL - 1, value, 2, 0),
			 -EINVAL);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "none", 0, value, 2, 0), -ENOENT);
	ck_assert_int_eq(frag_state_clear(rank0(), 0, 0, "none"), -ENOENT);
	/* A state is in memory or on NVMe, not both. */
	ck_assert_int_eq(frag_fragment_keep(rank0(), 0, "fp32", FRAG_F32, value), -EINVAL);

	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, adam, 3, &sweep), 0);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, adam, 3, &second), -EBUSY);
	ck_assert_int_eq(frag_state_drop(rank0(), 0, 0, "fp32"), -EBUSY);
	ck_assert_int_eq(frag_state_clear(rank0(), 0, 0, "fp32"), -EBUSY);
	frag_sweep_end(sweep);
	ck_assert_int_eq(frag_state_drop(rank0(), 0, 0, "fp32"), 0);
	ck_assert_int_eq(frag_local_get(rank0(), 0, "fp32", value, sizeof(value)), -ENOENT);
	job_close(&job);
}
END_TEST

/* Checks the text that rank 1 gets from a rank. */
static void expect_words(uint32_t rank, const char *what, const char *words)
{
	CLEANUP(free) char *text = rank_query_text(job_frag(&job, 1)->engine, rank, what);

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strstr(text, words) != NULL, "%s: %s", what, text);
}

/* Checks that rank 1 gets no text from a rank. */
static void expect_no_words(uint32_t rank, const char *what, int error)
{
	ck_assert_ptr_null(rank_query_text(job_frag(&job, 1)->engine, rank, what));
	ck_assert_int_eq(errno, error);
}

START_TEST(a_rank_says_what_it_has)
{
	open_job(JOB_SWAP);
	expect_words(0, "swap", "\nstates 3\n");
	expect_words(0, "swap", "\n0.0\texp_avg\t20000\t");
	expect_words(0, "pinned", "buffers 12\n");
	expect_no_words(0, "else", EINVAL);
	ck_assert_ptr_null(rank_query_text(job_frag(&job, 1)->engine, WORLD, "swap"));
	job_close_rank(&job, 0);
	job_frag(&job, 1)->engine->timeout_ms = 200;
	expect_no_words(0, "swap", ETIMEDOUT);
	job_close(&job);
}
END_TEST

static void turn(void *arg)
{
	(void)arg;
	scarce_skip_ms(TURN_MS);
	job_turn(&job);
}

START_TEST(words_that_do_not_come_or_are_others_are_errors)
{
	open_job(JOB_SWAP);
	job_frag(&job, 1)->engine->thread.yield = turn;
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_RANK_TEXT, .acked = true,
				    .count = MANY });
	expect_no_words(0, "swap", EPROTO);
	faults_clear();
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_RANK_TEXT, .count = MANY });
	expect_no_words(0, "swap", ETIMEDOUT);
	faults_clear();
	expect_words(0, "swap", "\nstates 3\n");
	job_close(&job);
}
END_TEST

/* Rank 0's answer to another thread of rank 1 is on its way when this thread asks. */
START_TEST(words_are_as_new_as_the_question)
{
	struct engine *asks, *tells;
	struct engine_hurry hurry = { 0 };

	open_job(JOB_SWAP);
	asks = job_frag(&job, 1)->engine;
	tells = rank0()->engine;
	asks->thread.yield = turn;
	expect_words(0, "swap", "\nstates 3\n");
	engine_hurry(&hurry);
	ck_assert_ptr_null(rank_query_text(asks, 0, "swap"));
	engine_hurry(NULL);
	loop_turn(asks, 0);
	loop_turn(tells, 0);
	ck_assert_int_eq(frag_state_drop(rank0(), 0, 0, "exp_avg"), 0);
	expect_words(0, "swap", "\nstates 2\n");
	job_close(&job);
}
END_TEST

/* Without memory at the n-th call, for each n. */
START_TEST(words_need_memory)
{
	unsigned n = 0, failed;
	char *text;

	open_job(JOB_SWAP);
	job_frag(&job, 1)->engine->thread.yield = turn;
	expect_words(0, "pinned", "buffers 12\n");
	do {
		scarce_begin(++n, 1);
		text = rank_query_text(job_frag(&job, 1)->engine, 0, "pinned");
		failed = scarce_end();
		ck_assert(failed || text);
		ck_assert_msg(!text || strstr(text, "buffers 12\n"), "%s", text);
		free(text);
		expect_words(0, "pinned", "buffers 12\n");
	} while (failed);
	ck_assert_uint_gt(n, 3);
	job_close(&job);
}
END_TEST

START_TEST(wrong_values_and_flags_are_refused)
{
	struct frag_swept unknown[] = { { "fp32", 1 << 7 } }, nameless[] = { { NULL, 0 } };
	struct frag_swept pieces[] = { { "grad", 0 } };
	struct frag_sweep *sweep;
	uint16_t half[2] = { 0 };
	float value = 0;

	open_job(JOB_FRAGMENTS);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, unknown, 1, &sweep), -EINVAL);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, nameless, 1, &sweep), -EINVAL);
	ck_assert_int_eq(frag_sweep_begin(job_frag(&job, 1), 0, 0, pieces, 1, &sweep), -EINVAL);
	ck_assert_int_eq(frag_sweep_begin(NULL, 0, 0, adam, 3, &sweep), -EINVAL);
	frag_sweep_end(NULL);
	ck_assert_int_eq(frag_state_swap(rank0(), 0, 0, "half", FRAG_BF16), 0);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "half", 0, half, 2, 0), 0);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "half", 0, half, 2, FRAG_ADD),
			 -EOPNOTSUPP);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "half", 0, half, 0, 0), 0);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "fp32", 0, &value, 1, 1 << 7), -EINVAL);
	ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "fp32", 0, NULL, 1, 0), -EINVAL);
	ck_assert_int_eq(frag_state_clear(rank0(), 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(frag_swap_flush(NULL, 0), -EINVAL);
	job_close(&job);
}
END_TEST

START_TEST(a_job_without_a_directory_has_no_tier)
{
	static const struct job_group group = { .stage = 2, .nparams = 2, .params = { 0, 1 } };

	job_open(&job,
		 &(struct job_spec){
			 .world = 1, JOB_PARAMS(params), .groups = &group, .ngroups = 1 });
	ck_assert_int_eq(frag_state_swap(rank0(), 0, 0, "momentum", FRAG_F32), -EOPNOTSUPP);
	ck_assert_int_eq(frag_swap_flush(rank0(), 0), 0);
	ck_assert_ptr_null(rank0()->engine->registry.swapper);
	job_close(&job);
}
END_TEST

/* Three sub-groups in two groups: group a has the first two, group b the third.  The second and
 * the third are on NVMe.
 */
START_TEST(the_first_sub_groups_of_the_ratio_stay_in_memory)
{
	static const struct job_param three[] = {
		{ "a", .ndim = 1, .shape = { 7000 } },
		{ "b", .ndim = 2, .shape = { 60, 50 } },
		{ "c", .ndim = 1, .shape = { 6000 } },
	};
	static const struct job_group groups[] = {
		{ .stage = 3, .nparams = 2, .params = { 0, 2 }, .sub_group_size = 3000 },
		{ .stage = 3, .nparams = 1, .params = { 1 } },
	};
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_SWAP },
					       { "exp_avg", FRAG_F32, JOB_SWAP } };
	static const enum state_tier tiers[2][2] = { { STATE_HOST, STATE_SWAP },
						     { STATE_SWAP } };
	static const struct frag_swept both[] = { { "fp32", 0 }, { "exp_avg", 0 } };
	enum frag_dtype dtype;
	struct frag_sweep *sweep;
	uint64_t first, numel;
	void *memory[2];

	job_open(&job, &(struct job_spec){ .world = 1,
					   JOB_PARAMS(three),
					   JOB_GROUPS(groups),
					   JOB_KEYS(keys),
					   .in_memory = 0.4 });
	ck_assert_uint_eq(frag_sub_groups(rank0(), 0), 2);
	ck_assert_uint_eq(frag_sub_groups(rank0(), 1), 1);
	for (uint32_t g = 0; g < 2; g++)
		for (uint32_t sub = 0; sub < frag_sub_groups(rank0(), (int)g); sub++)
			for (int k = 0; k < 2; k++) {
				int row = registry_find(&rank0()->engine->registry,
							STATE_PARTITION, g, sub, keys[k].key,
							&dtype);

				ck_assert_int_ge(row, 0);
				ck_assert_int_eq(registry_tier(&rank0()->engine->registry,
							       (uint32_t)row),
						 tiers[g][sub]);
			}
	job_boundary(&job);
	job_check(&job);
	frag_step_begin(rank0());
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, both, 2, &sweep), 0);
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 1);
	/* in memory, all of it at once */
	ck_assert_uint_eq(numel, frag_partition_numel(rank0(), 0, 0));
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 0);
	frag_sweep_end(sweep);
	frag_step_end(rank0());
	job_close(&job);
}
END_TEST

START_TEST(a_missing_folder_is_made_for_its_owner)
{
	struct launch launch = { .world = 1, .job = "new", .host = "host", .plain = true };
	char *dir = launch.swap.dir;
	struct frag *f;
	struct stat st;

	launch.swap = (struct swap_config){
		.pinned = 12 * 4096, .slice = 4096, .least = 1, .by = "FRAG_SWAP_DIR"
	};
	snprintf(dir, sizeof(launch.swap.dir), "%s/new-XXXXXX", getenv("TMPDIR"));
	ck_assert_ptr_nonnull(mkdtemp(dir));
	strcat(dir, "/swap");
	for (int round = 0; round < 2; round++) { /* the second round finds the folder */
		ck_assert_int_eq(api_open_over(&f, &launch, &transport_loop, &transport_loop,
					       NULL, false),
				 0);
		ck_assert_int_eq(stat(dir, &st), 0);
		ck_assert(S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0700);
		frag_close(f);
	}
	ck_assert_int_eq(rmdir(dir), 0);
	ck_assert_int_eq(close(open(dir, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)), 0);
	ck_assert_int_eq(
		api_open_over(&f, &launch, &transport_loop, &transport_loop, NULL, false),
		-ENOTDIR);
	strcat(dir, "/below"); /* a folder whose parent does not exist */
	ck_assert_int_eq(
		api_open_over(&f, &launch, &transport_loop, &transport_loop, NULL, false),
		-ENOTDIR);
}
END_TEST

START_TEST(a_directory_that_cannot_be_used_is_said)
{
	struct launch launch = { .world = 1, .job = "nowhere", .host = "host", .plain = true };
	struct frag *f;

	launch.swap = (struct swap_config){
		.dir = "/nonexistent/swap", .pinned = 12 * 4096, .slice = 4096, .least = 1
	};
	ck_assert_int_eq(
		api_open_over(&f, &launch, &transport_loop, &transport_loop, NULL, false),
		-ENOENT);
}
END_TEST

/* ---- two partitions in turn ---- */

/* Sweeps that only read, so that buffers come back at once, whatever the pace of the disk. */
static const struct frag_swept looked_at[] = {
	{ "fp32", FRAG_READ_ONLY },
	{ "exp_avg", FRAG_READ_ONLY },
	{ "grad", FRAG_READ_ONLY },
};

static void open_two_groups(void)
{
	static const struct job_group groups[] = {
		{ .stage = 2, .nparams = 1, .params = { 0 } },
		{ .stage = 2, .nparams = 1, .params = { 1 } },
	};
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_SWAP },
					       { "exp_avg", FRAG_F32, JOB_SWAP },
					       { "grad", FRAG_F32, JOB_SWAP } };

	faults_clear();
	job_open(&job,
		 &(struct job_spec){
			 .world = 1, JOB_PARAMS(params), JOB_GROUPS(groups), JOB_KEYS(keys) });
	job_boundary(&job);
	ck_assert_int_eq(frag_swap_flush(rank0(), 10000), 0);
}

static struct swapper_state_figures figures_of(uint32_t group, const char *key)
{
	struct registry *r = &rank0()->engine->registry;
	struct swapper_state_figures f;
	uint64_t at;

	swapper_state_figures(r->swapper,
			      registry_swap_state(r, STATE_PARTITION, group, 0, key, &at), &f);
	return f;
}

/* Returns true if reads of slices of group 1 are requested when the n-th slice of group 0 is
 * in.
 */
static bool sweep_to(struct frag_sweep *sweep, unsigned n)
{
	uint64_t first, numel;
	void *memory[3];

	for (unsigned i = 0; i < n; i++)
		ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 1);
	return figures_of(1, "grad").lent;
}

static void sweep_rest(struct frag_sweep *sweep)
{
	uint64_t first, numel;
	void *memory[3];
	int rc;

	do
		rc = frag_sweep_next(sweep, &first, &numel, memory);
	while (rc == 1);
	ck_assert_int_eq(rc, 0);
	frag_sweep_end(sweep);
}

START_TEST(the_next_sweep_is_read_while_the_last_slices_are_in)
{
	struct frag_sweep *sweep, *next;
	uint64_t reads;

	open_two_groups();
	reads = figures_of(1, "grad").reads;
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, looked_at, 3, &sweep), 0);
	ck_assert_int_eq(frag_sweep_then(sweep, 1, 0), 0);
	ck_assert(!sweep_to(sweep, 2)); /* of 7 slices; those of group 0 are requested first */
	ck_assert(sweep_to(sweep, 5));
	sweep_rest(sweep);
	ck_assert_int_eq(frag_sweep_begin(rank0(), 1, 0, looked_at, 3, &next), 0);
	sweep_rest(next);
	ck_assert_uint_eq(figures_of(1, "grad").reads - reads, 3); /* no slice is read twice */
	ck_assert_uint_eq(figures_of(1, "fp32").lent, 0);
	job_close(&job);
}
END_TEST

START_TEST(a_next_sweep_that_does_not_come_is_forgotten)
{
	struct frag_swept one = { "fp32", 0 };
	struct frag_sweep *sweep;
	float value = 5;

	open_two_groups();
	for (int round = 0; round < 5; round++) {
		ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, looked_at, 3, &sweep), 0);
		ck_assert_int_eq(frag_sweep_then(sweep, 1, 1), -ENOENT);
		ck_assert_int_eq(frag_sweep_then(sweep, 1, 0), 0);
		ck_assert_int_eq(frag_sweep_then(sweep, 1, 0), 0);
		ck_assert(sweep_to(sweep, 7));
		if (round == 4)
			break; /* frag_close ends both sweeps */
		frag_sweep_end(sweep);
		ck_assert_uint_gt(figures_of(1, "grad").lent, 0);
		if (round == 0)
			ck_assert_int_eq(
				frag_state_put(rank0(), 1, 0, "grad", 0, &value, 1, FRAG_ADD),
				0);
		if (round == 1)
			ck_assert_int_eq(frag_state_clear(rank0(), 1, 0, "grad"), 0);
		if (round == 2) {
			ck_assert_int_eq(frag_sweep_begin(rank0(), 1, 0, &one, 1, &sweep), 0);
			frag_sweep_end(sweep);
		}
		if (round == 3)
			ck_assert_int_eq(frag_state_drop(rank0(), 1, 0, "exp_avg"), 0);
		frag_safe_point(rank0());
		ck_assert_uint_eq(figures_of(1, "grad").lent, 0);
		if (round == 3)
			ck_assert_int_eq(frag_state_swap(rank0(), 1, 0, "exp_avg", FRAG_F32),
					 0);
	}
	ck_assert_int_eq(frag_sweep_then(NULL, 1, 0), -EINVAL);
	job_close(&job);
}
END_TEST

/* An edit of another rank is on NVMe at the boundary, in whole slices and in parts of slices.
 */
START_TEST(edits_reach_states_on_nvme)
{
	float value[7000];
	uint64_t bytes = sizeof(value);

	open_job(JOB_SWAP);
	for (unsigned round = 0; round < 3; round++) {
		for (int i = 0; i < 7000; i++)
			value[i] = (float)(round * 10000 + (unsigned)i);
		ck_assert_int_eq(frag_set(job_frag(&job, 1), job_number(&job, 1, 0), "fp32",
					  value, bytes),
				 0);
		job_expect(&job, 0, "fp32", value);
		job_expect_lp_of(&job, 0, value);
		job_boundary(&job);
		ck_assert_float_eq(seen("fp32", 4321), value[4321]);
		job_check(&job);
	}
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("swap");
	TCase *t = tcase_create("swap");

	tcase_add_test(t, a_sweep_visits_all_of_a_partition);
	tcase_add_test(t, a_sweep_visits_states_in_memory_where_they_are);
	tcase_add_test(t, readers_see_a_step_when_it_has_ended);
	tcase_add_test(t, what_is_set_and_got_is_the_newest_in_a_step_too);
	tcase_add_loop_test(t, gradients_are_accumulated_by_ranges, 0, 2);
	tcase_add_test(t, what_is_put_is_nobodys_memory_until_a_sweep_has_it);
	tcase_add_test(t, a_step_that_ends_in_a_sweep_is_seen_when_all_of_it_is_there);
	tcase_add_test(t, gradients_that_are_valid_stay_as_they_are);
	tcase_add_test(t, wrong_calls_are_refused);
	tcase_add_test(t, a_rank_says_what_it_has);
	tcase_add_test(t, words_that_do_not_come_or_are_others_are_errors);
	tcase_add_test(t, words_are_as_new_as_the_question);
	tcase_add_test(t, words_need_memory);
	tcase_add_test(t, wrong_values_and_flags_are_refused);
	tcase_add_test(t, a_job_without_a_directory_has_no_tier);
	tcase_add_test(t, the_first_sub_groups_of_the_ratio_stay_in_memory);
	tcase_add_test(t, a_missing_folder_is_made_for_its_owner);
	tcase_add_test(t, a_directory_that_cannot_be_used_is_said);
	tcase_add_test(t, the_next_sweep_is_read_while_the_last_slices_are_in);
	tcase_add_test(t, a_next_sweep_that_does_not_come_is_forgotten);
	tcase_add_test(t, edits_reach_states_on_nvme);
	tcase_set_timeout(t, 60);
	return run_suite(s, t);
}

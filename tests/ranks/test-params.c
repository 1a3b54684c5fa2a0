/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/faults.h"
#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/base/log.h"
#include "engine/rank/swap-text.h"
#include "engine/rank/swapped-params.h"
#include "engine/swap/swapper.h"
#include "engine/watch/rank-query.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Pieces of low-precision parameters on NVMe: which come in, which go back, and what readers
 * see of them.  test-access has the layouts.  Buffers have 4096 bytes, and there are 12: "big"
 * has two to itself, "c" and "d" share one, "b" has one.
 */

enum { WORLD = 2, BUFFER = 4096, BUFFERS = 12 };
enum { BIG, C, D, B, NPARAMS };

static const struct job_param params[NPARAMS] = {
	{ "big", .ndim = 1, .shape = { 7000 } },
	{ "c", .ndim = 1, .shape = { 100 } },
	{ "d", .ndim = 2, .shape = { 20, 20 } },
	{ "b", .ndim = 2, .shape = { 60, 50 } },
};

static const uint64_t piece[NPARAMS] = { 3500, 50, 200, 1500 }; /* elements */
static const int all[NPARAMS] = { BIG, C, D, B };

static struct job job;

static void open_with(enum job_lp lp, bool fast_init)
{
	static const struct job_group group = { .stage = 3,
						.nparams = NPARAMS,
						.params = { BIG, C, D, B } };
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_SWAP } };

	setenv("FRAG_LOG", "error", 1);
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   JOB_PARAMS(params),
					   .groups = &group,
					   .ngroups = 1,
					   JOB_KEYS(keys),
					   .lp = lp,
					   .fast_init = fast_init });
	job_boundary(&job);
}

static void open_job(enum job_lp lp)
{
	open_with(lp, false);
}

static struct frag *rank0(void)
{
	return job_frag(&job, 0);
}

static struct swapper *place0(void)
{
	return rank0()->engine->registry.swapper;
}

static struct swapper_figures figures(void)
{
	struct swapper_figures f;

	swapper_figures(place0(), &f);
	return f;
}

static uint64_t brought(void)
{
	return figures().timers[SWAPPER_PARAM][SWAPPER_IN].count;
}

/* Waits until the disk has carried out its requests, and checks the number of lent buffers. */
static void expect_lent(unsigned buffers)
{
	uint64_t deadline = monotonic_ms() + 60000;

	while (figures().pinned.lent != buffers && monotonic_ms() < deadline)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	ck_assert_uint_eq(figures().pinned.lent, buffers);
}

/* Waits until all pieces are on the disk, and none is in a buffer. */
static void drain(void)
{
	ck_assert_int_eq(frag_swap_flush(rank0(), 20000), 0);
	expect_lent(0);
}

static uint16_t *in(int param)
{
	void *memory = NULL;

	ck_assert_int_eq(frag_params_in(rank0(), &param, 1, &memory), 0);
	return memory;
}

static void out(int param, unsigned flags)
{
	ck_assert_int_eq(frag_params_out(rank0(), &param, 1, flags), 0);
}

/* Returns element `at` of rank 0's piece, which begins where the parameter does. */
static uint16_t truth(int param, uint64_t at)
{
	return ((const uint16_t *)job_truth(&job, (uint32_t)param, "lp"))[at];
}

static uint16_t seen(int param, uint64_t at)
{
	uint16_t value;

	ck_assert_int_eq(frag_get_range(job_frag(&job, 1), job_number(&job, 1, (uint32_t)param),
					"lp", at * 2, &value, 2),
			 0);
	return value;
}

static void expect_piece(int param, const uint16_t *memory)
{
	for (uint64_t i = 0; i < piece[param]; i++)
		ck_assert_uint_eq(memory[i], truth(param, i));
}

static bool was_said(const char *what)
{
	static char text[65536];

	log_tail(text, sizeof(text));
	return strstr(text, what);
}

START_TEST(pieces_come_in_whole_and_those_of_one_buffer_together)
{
	void *memory[NPARAMS];
	uint64_t before;

	open_job(JOB_LP_SWAP);
	drain();
	before = brought();
	ck_assert_int_eq(frag_params_in(rank0(), all, NPARAMS, memory), 0);
	ck_assert_uint_eq(brought() - before, 4);
	expect_lent(4);
	ck_assert_ptr_eq(memory[D], (uint8_t *)memory[C] + 1024);
	for (int p = 0; p < NPARAMS; p++)
		expect_piece(p, memory[p]);
	ck_assert_int_eq(frag_params_out(rank0(), all, NPARAMS, 0), 0);
	drain();
	job_check(&job);
	job_close(&job);
}
END_TEST

/* DeepSpeed: "More elements than buffer size", a hard error. */
START_TEST(issue_3506_a_piece_larger_than_a_buffer_lies_in_several)
{
	struct frag_fragment own;
	enum frag_dtype dtype;
	uint16_t *memory;
	void *view;

	open_job(JOB_LP_SWAP);
	memory = in(BIG);
	ck_assert_uint_gt(piece[BIG] * 2, BUFFER);
	expect_piece(BIG, memory);
	ck_assert_int_eq(frag_fragment(rank0(), BIG, &own), 0);
	ck_assert_int_eq(frag_local_view(rank0(), BIG, "lp", &view, &dtype), 0);
	ck_assert_ptr_eq(view, memory);
	memory[piece[BIG] - 1] = 0x4040;
	out(BIG, FRAG_CHANGED);
	ck_assert_int_eq(frag_local_view(rank0(), BIG, "lp", &view, &dtype), -EOPNOTSUPP);
	job_boundary(&job);
	ck_assert_uint_eq(seen(BIG, piece[BIG] - 1), 0x4040);
	ck_assert_uint_eq(seen(BIG, piece[BIG] - 2), truth(BIG, piece[BIG] - 2));
	job_close(&job);
}
END_TEST

/* DeepSpeed: "Not enough buffers", an assertion. */
START_TEST(more_than_the_buffers_is_back_pressure)
{
	struct swapper_lent *lent[BUFFERS];
	struct swapper_state *other;
	void *memory[NPARAMS];

	open_job(JOB_LP_SWAP);
	drain();
	ck_assert_int_eq(
		swapper_add(place0(), "other", SWAPPER_STATE, 4, BUFFERS * BUFFER / 4, &other),
		0);
	for (int i = 0; i < BUFFERS - 3; i++)
		ck_assert_int_eq(swapper_swap_in(place0(), other, (uint64_t)i, SWAPPER_WRITE, 0,
						 &lent[i]),
				 0);
	ck_assert_int_eq(frag_params_in(rank0(), all, NPARAMS, memory), -ENOBUFS);
	ck_assert(was_said("parameters need"));
	expect_lent(BUFFERS - 3);
	in(B);
	out(B, 0);
	swapper_swap_out(place0(), lent[0]); /* the buffer will be given back */
	ck_assert_int_eq(frag_params_in(rank0(), all, NPARAMS, memory), 0);
	expect_piece(B, memory[B]);
	ck_assert_int_eq(frag_params_out(rank0(), all, NPARAMS, 0), 0);
	for (int i = 1; i < BUFFERS - 3; i++)
		swapper_return(place0(), lent[i]);
	swapper_drop(place0(), other);
	job_close(&job);
}
END_TEST

/* DeepSpeed: "Some params are already available or in flight", an assertion. */
START_TEST(what_is_in_comes_in_again_and_is_out_as_often)
{
	uint16_t *memory;
	int c = C;

	open_job(JOB_LP_SWAP);
	drain();
	memory = in(C);
	ck_assert_ptr_eq(in(C), memory);
	ck_assert_ptr_eq(in(D), (uint8_t *)memory + 1024);
	out(C, 0);
	out(D, 0);
	expect_piece(C, memory);
	expect_lent(1);
	out(C, 0);
	expect_lent(0);
	ck_assert_int_eq(frag_params_out(rank0(), &c, 1, 0), -EINVAL);
	job_close(&job);
}
END_TEST

START_TEST(reading_ahead_takes_what_nobody_needs_and_gives_way)
{
	static const int rest[] = { C, D, B };
	struct swapper_lent *lent[BUFFERS];
	struct swapper_state *other;
	uint64_t before;

	open_job(JOB_LP_SWAP);
	drain();
	before = brought();
	ck_assert_int_eq(frag_params_ahead(rank0(), all, NPARAMS), NPARAMS);
	expect_piece(B, in(B));
	expect_piece(BIG, in(BIG));
	expect_lent(4);
	ck_assert_uint_le(brought() - before, 4); /* no piece is read twice */
	out(B, 0);
	ck_assert_int_eq(frag_params_ahead(rank0(), rest, 3), 3);
	ck_assert_int_eq(
		swapper_add(place0(), "other", SWAPPER_STATE, 4, BUFFERS * BUFFER / 4, &other),
		0);
	for (int i = 0; i < BUFFERS - 4; i++)
		ck_assert_int_eq(swapper_swap_in(place0(), other, (uint64_t)i, SWAPPER_WRITE, 0,
						 &lent[i]),
				 0);
	out(BIG, 0);
	ck_assert_int_eq(frag_params_ahead(rank0(), all, 1), 1);
	expect_piece(D, in(D)); /* takes a buffer of a piece that is in ahead */
	out(D, 0);
	for (int i = 0; i < BUFFERS - 4; i++)
		swapper_return(place0(), lent[i]);
	swapper_drop(place0(), other);
	job_close(&job);
}
END_TEST

static void sweep_all(void)
{
	struct frag_swept swept = { "fp32", 0 };
	struct frag_sweep *sweep;
	uint64_t first, numel;
	void *memory;
	int rc;

	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, &swept, 1, &sweep), 0);
	ck_assert_int_eq(frag_state_move(rank0(), 0, 0, "fp32", NULL), -EBUSY);
	ck_assert_int_eq(frag_fragments_move(rank0(), NULL, 0, "fp32", NULL), -EBUSY);
	while ((rc = frag_sweep_next(sweep, &first, &numel, &memory)) == 1)
		((float *)memory)[0] += 0;
	ck_assert_int_eq(rc, 0);
	frag_sweep_end(sweep);
}

/* Modules of a model, and what DeepSpeed 0.19 matches in it (z3_leaf_module.py): by suffix as
 * text ends, by name exactly, and nothing by a part of a name.
 */
static const struct job_param model[] = {
	{ "embed.weight", .ndim = 1, .shape = { 100 } },
	{ "layers.0.mlp.gate.weight", .ndim = 1, .shape = { 4000 } },
	{ "layers.0.mlp.up.weight", .ndim = 1, .shape = { 4000 } },
	{ "layers.0.norm.weight", .ndim = 1, .shape = { 4000 } },
	{ "layers.1.mlp.gate.weight", .ndim = 1, .shape = { 4000 } },
	{ "layers.1.mlp.up.weight", .ndim = 1, .shape = { 4000 } },
	{ "layers.1.norm.weight", .ndim = 1, .shape = { 4000 } },
};

static void open_params_on(uint32_t hosts, const struct job_param *list, uint32_t n,
			   enum job_lp lp)
{
	const struct job_group group = { .stage = 3,
					 .nparams = n,
					 .params = { 0, 1, 2, 3, 4, 5, 6 } };
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_SWAP } };

	setenv("FRAG_LOG", "error", 1);
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   .hosts = hosts,
					   .params = list,
					   .nparams = n,
					   .groups = &group,
					   .ngroups = 1,
					   JOB_KEYS(keys),
					   .messages = faults_over(&transport_loop),
					   .lp = lp });
	job_boundary(&job);
}

static void open_params(const struct job_param *list, uint32_t n)
{
	open_params_on(1, list, n, JOB_LP_SWAP);
}

static void open_model(void)
{
	open_params(model, ARRAY_SIZE(model));
}

static int leaf(enum frag_leaf_match match, const char *modules, int on)
{
	return frag_leaf(rank0(), match, modules, on);
}

static void expect_leaves(const char *expected)
{
	CLEANUP(free) char *text = rank_query_text(job_frag(&job, 1)->engine, 0, "leaves");

	ck_assert_str_eq(text, expected);
}

START_TEST(leaves_are_marked_as_by_deepspeed)
{
	open_model();
	expect_leaves("");
	ck_assert_int_eq(leaf(FRAG_LEAF_SUFFIX, "mlp", 1), 2);
	expect_leaves("layers.0.mlp\t2\nlayers.1.mlp\t2\n");
	ck_assert_int_eq(leaf(FRAG_LEAF_SUFFIX, "mlp", 1), 2);
	ck_assert_int_eq(leaf(FRAG_LEAF_SUFFIX, "mlp", 0), 2);
	expect_leaves("");
	ck_assert_int_eq(leaf(FRAG_LEAF_SUFFIX, "p", 1), 4);
	ck_assert_int_eq(leaf(FRAG_LEAF_GLOB, "*", 0), 12);
	ck_assert_int_eq(leaf(FRAG_LEAF_SUFFIX, "layers.0", 1), 1);
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "layers.0.mlp", 1), 1);
	expect_leaves("layers.0\t3\nlayers.0.mlp\t2\n");
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "layers.0", 0), 1);
	expect_leaves("layers.0.mlp\t2\n");
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "layer", 1), -ENOENT);
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "mlp", 1), -ENOENT);
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "layers.*", 1), -ENOENT);
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "embed.weight", 1), -ENOENT);
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "", 1), -EINVAL);
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, NULL, 1), -EINVAL);
	ck_assert_int_eq(leaf((enum frag_leaf_match)3, "mlp", 1), -EINVAL);
	expect_leaves("layers.0.mlp\t2\n");
	job_close(&job);
}
END_TEST

START_TEST(a_leaf_of_any_name_is_one_line)
{
	static const struct job_param odd[] = { { "a\n\tb\t7.w", .ndim = 1,
						  .shape = { 4000 } } };

	open_params(odd, ARRAY_SIZE(odd));
	ck_assert_int_eq(leaf(FRAG_LEAF_GLOB, "*", 1), 1);
	expect_leaves("a%0A%09b%097\t1\n");
	job_close(&job);
}
END_TEST

/* The outermost marked module counts, and lists the parameter itself first. */
START_TEST(parameters_of_a_leaf_are_listed)
{
	int leaf_of[4] = { -1, -1, -1, -1 };

	open_model();
	ck_assert_int_eq(frag_leaf_params(rank0(), 2, leaf_of, 4), 0);
	ck_assert_int_eq(leaf(FRAG_LEAF_GLOB, "*.mlp", 1), 2);
	ck_assert_int_eq(frag_leaf_params(rank0(), 2, leaf_of, 4), 2);
	ck_assert(leaf_of[0] == 2 && leaf_of[1] == 1 && leaf_of[2] == -1);
	ck_assert_int_eq(frag_leaf_params(rank0(), 3, leaf_of, 4), 0);
	ck_assert_int_eq(leaf(FRAG_LEAF_GLOB, "layers.[0-9]", 1), 2);
	ck_assert_int_eq(frag_leaf_params(rank0(), 2, NULL, 0), 3);
	ck_assert_int_eq(frag_leaf_params(rank0(), 2, leaf_of, 4), 3);
	ck_assert(leaf_of[0] == 2 && leaf_of[1] == 3 && leaf_of[2] == 1 && leaf_of[3] == -1);
	ck_assert_int_eq(frag_leaf_params(rank0(), 0, leaf_of, 4), 0);
	ck_assert_int_eq(frag_leaf_params(rank0(), 7, leaf_of, 4), -EINVAL);
	ck_assert_int_eq(frag_leaf_params(rank0(), 0, NULL, 4), -EINVAL);
	job_close(&job);
}
END_TEST

START_TEST(parameters_of_a_leaf_come_in_as_one)
{
	int up = 2, gate = 1, norm = 3;
	uint64_t before;

	open_model();
	drain();
	before = brought();
	in(up);
	ck_assert_uint_eq(brought(), before + 1);
	ck_assert_int_eq(frag_params_out(rank0(), &up, 1, 0), 0);
	drain();
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "layers.0", 1), 1);
	before = brought();
	in(up);
	expect_lent(3);
	in(gate);
	in(norm);
	ck_assert_uint_eq(brought(), before + 3); /* no piece is read twice */
	ck_assert_int_eq(frag_params_out(rank0(), &up, 1, 0), 0);
	ck_assert_int_eq(frag_params_out(rank0(), &gate, 1, 0), 0);
	ck_assert_int_eq(frag_params_out(rank0(), &norm, 1, 0), 0);
	drain();
	ck_assert_int_eq(frag_params_ahead(rank0(), &norm, 1), 1);
	expect_lent(3);
	job_check(&job);
	job_close(&job);
}
END_TEST

enum { UP = 2, EACH = 4000, OF_LEAF = 3 };

/* Reads "lp" of the leaf, and compares it with "lp" of each of its parameters. */
static void expect_leaf_values(void)
{
	uint16_t values[OF_LEAF * EACH], alone[EACH];
	int leaf_of[OF_LEAF];

	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "layers.0", 1), 1);
	ck_assert_int_eq(frag_leaf_params(rank0(), UP, leaf_of, OF_LEAF), OF_LEAF);
	ck_assert_int_eq(frag_leaf_get_bytes(rank0(), UP, "lp"), sizeof(values));
	ck_assert_int_eq(frag_leaf_get(rank0(), UP, "lp", values, sizeof(values)), 0);
	for (int i = 0; i < OF_LEAF; i++) {
		ck_assert_int_eq(frag_get(rank0(), leaf_of[i], "lp", alone, sizeof(alone)), 0);
		ck_assert_mem_eq(&values[i * EACH], alone, sizeof(alone));
		ck_assert_mem_eq(alone, job_truth(&job, (uint32_t)leaf_of[i], "lp"),
				 sizeof(alone));
	}
}

START_TEST(a_leaf_is_gathered)
{
	uint16_t values[OF_LEAF * EACH];

	open_model();
	drain();
	ck_assert_int_eq(frag_leaf_get_bytes(rank0(), UP, "lp"), -ENOENT);
	ck_assert_int_eq(frag_leaf_get(rank0(), UP, "lp", values, sizeof(values)), -ENOENT);
	expect_leaf_values();
	ck_assert_int_eq(frag_leaf_get_bytes(rank0(), UP, "nothing"), -ENOENT);
	ck_assert_int_eq(frag_leaf_get_bytes(rank0(), 7, "lp"), -EINVAL);
	ck_assert_int_eq(frag_leaf_get(rank0(), UP, "lp", values, sizeof(values) - 1), -EINVAL);
	ck_assert_int_eq(frag_leaf_get(rank0(), UP, "lp", NULL, sizeof(values)), -EINVAL);
	job_close(&job);
}
END_TEST

static unsigned turns;

static void turn_and_count(void *arg)
{
	turns++;
	job_turn(arg);
}

/* frag_leaf_get waits for one round trip to the rank on the other host; frag_get of each of the
 * three parameters waits for one each.
 */
START_TEST(a_leaf_is_gathered_as_one)
{
	enum { TRIP = 50 };
	uint16_t values[OF_LEAF * EACH];
	unsigned together;

	open_params_on(WORLD, model, ARRAY_SIZE(model), JOB_LP_SHARD);
	expect_leaf_values(); /* from now on the tables of states are there */
	rank0()->engine->thread.yield = turn_and_count;
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_READ, .count = UINT_MAX,
				    .delay = TRIP });
	turns = 0;
	ck_assert_int_eq(frag_leaf_get(rank0(), UP, "lp", values, sizeof(values)), 0);
	together = turns;
	expect_leaf_values();
	ck_assert_uint_ge(together, TRIP);
	ck_assert_uint_gt(turns - 2 * together, OF_LEAF * TRIP - TRIP);
	ck_assert_uint_lt(together, 2 * TRIP);
	faults_clear();
	job_close(&job);
}
END_TEST

/* The small member of the leaf would fit in the buffer that the large member needs. */
START_TEST(a_leaf_is_not_read_where_its_parameter_lacks_buffers)
{
	static const struct job_param of_two_sizes[] = {
		{ "m.large", .ndim = 1, .shape = { 7000 } },
		{ "m.small", .ndim = 1, .shape = { 4000 } },
		{ "idle", .ndim = 1, .shape = { 4000 } },
	};
	struct swapper_lent *lent[BUFFERS - 2];
	struct swapper_state *other;
	int idle = 2;
	uint64_t before, deadline = monotonic_ms() + 60000;

	open_params(of_two_sizes, ARRAY_SIZE(of_two_sizes));
	ck_assert_int_eq(leaf(FRAG_LEAF_NAME, "m", 1), 1);
	drain();
	ck_assert_int_eq(
		swapper_add(place0(), "other", SWAPPER_STATE, 4, BUFFERS * BUFFER / 4, &other),
		0);
	for (size_t i = 0; i < ARRAY_SIZE(lent); i++)
		ck_assert_int_eq(
			swapper_swap_in(place0(), other, i, SWAPPER_WRITE, 0, &lent[i]), 0);
	before = brought();
	ck_assert_int_eq(frag_params_ahead(rank0(), &idle, 1), 1);
	while (brought() == before && monotonic_ms() < deadline)
		nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
	in(0);
	out(0, 0);
	for (size_t i = 0; i < ARRAY_SIZE(lent); i++)
		swapper_return(place0(), lent[i]);
	swapper_drop(place0(), other);
	drain();
	ck_assert_uint_eq(brought(), before + 3);
	job_close(&job);
}
END_TEST

START_TEST(leaves_need_memory)
{
	unsigned n = 0;
	int rc;

	open_model();
	do {
		scarce_begin(++n, 1);
		rc = leaf(FRAG_LEAF_SUFFIX, "mlp", 1);
		if (!scarce_end())
			break;
		ck_assert_int_eq(rc, -ENOMEM);
		expect_leaves("");
	} while (true);
	ck_assert_int_eq(rc, 2);
	expect_leaves("layers.0.mlp\t2\nlayers.1.mlp\t2\n");
	job_close(&job);
}
END_TEST

/* All buffers are lent: to the test, and to pieces that are in ahead. */
START_TEST(what_is_in_ahead_gives_way_to_states)
{
	struct swapper_lent *lent[BUFFERS];
	struct swapper_state *other;
	float value = 3;
	uint16_t half = 0x4700;

	open_job(JOB_LP_SWAP);
	drain();
	ck_assert_int_eq(
		swapper_add(place0(), "other", SWAPPER_STATE, 4, BUFFERS * BUFFER / 4, &other),
		0);
	for (int i = 0; i < BUFFERS - 2; i++)
		ck_assert_int_eq(swapper_swap_in(place0(), other, (uint64_t)i, SWAPPER_WRITE, 0,
						 &lent[i]),
				 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(frag_params_ahead(rank0(), &all[C], 3), 3);
		expect_lent(BUFFERS);
		if (i == 2)
			ck_assert_int_eq(frag_param_put(rank0(), BIG, 0, &half, 1), 0);
		else if (i)
			sweep_all();
		else
			ck_assert_int_eq(frag_state_put(rank0(), 0, 0, "fp32", 9, &value, 1, 0),
					 0);
		job_boundary(&job);
		ck_assert_int_eq(frag_swap_flush(rank0(), 20000), 0);
		ck_assert_int_eq(frag_params_ahead(rank0(), &all[C], 3), 3);
	}
	for (int i = 0; i < BUFFERS - 2; i++)
		swapper_return(place0(), lent[i]);
	swapper_drop(place0(), other);
	job_close(&job);
}
END_TEST

/* No buffer is left for the last parameter. */
START_TEST(a_job_ends_after_pieces_could_not_come_in)
{
	struct swapper_lent *lent[BUFFERS];
	struct swapper_state *other;
	int big = BIG;
	void *memory;

	open_job(JOB_LP_SWAP);
	drain();
	ck_assert_int_eq(
		swapper_add(place0(), "other", SWAPPER_STATE, 4, BUFFERS * BUFFER / 4, &other),
		0);
	for (int i = 0; i < BUFFERS; i++)
		ck_assert_int_eq(swapper_swap_in(place0(), other, (uint64_t)i, SWAPPER_WRITE, 0,
						 &lent[i]),
				 0);
	ck_assert_int_eq(frag_params_ahead(rank0(), all, NPARAMS), 0);
	ck_assert_int_eq(frag_params_in(rank0(), &big, 1, &memory), -ENOBUFS);
	for (int i = 0; i < BUFFERS; i++)
		swapper_return(place0(), lent[i]);
	swapper_drop(place0(), other);
	job_close(&job);
}
END_TEST

START_TEST(readers_see_what_is_out_when_the_step_has_ended)
{
	uint16_t *c, *d, before;

	open_job(JOB_LP_SWAP);
	before = truth(C, 7);
	frag_step_begin(rank0());
	c = in(C);
	d = in(D);
	c[7] = 0x4100;
	d[8] = 0x4200;
	out(C, FRAG_CHANGED); /* "d" is still in the same buffer */
	ck_assert_uint_eq(seen(C, 7), before);
	frag_step_end(rank0());
	ck_assert_uint_eq(seen(C, 7), 0x4100);
	ck_assert_uint_eq(seen(D, 8), truth(D, 8));
	ck_assert_uint_eq(in(C)[7], 0x4100);
	out(D, FRAG_CHANGED);
	out(C, 0);
	frag_safe_point(rank0());
	ck_assert_uint_eq(seen(C, 7), 0x4100);
	ck_assert_uint_eq(seen(D, 8), 0x4200);
	in(B)[0] = 0x4300;
	out(B, 0); /* the change is forgotten */
	frag_safe_point(rank0());
	ck_assert_uint_eq(seen(B, 0), truth(B, 0));
	drain();
	ck_assert_uint_eq(in(D)[8], 0x4200);
	job_close(&job);
}
END_TEST

START_TEST(what_is_not_changed_is_forgotten_whatever_shares_its_buffer)
{
	uint16_t *c, *d;

	open_job(JOB_LP_SWAP);
	c = in(C);
	d = in(D);
	c[7] = 0x4100;
	d[8] = 0x4200;
	out(_i ? C : D, _i ? FRAG_CHANGED : 0);
	out(_i ? D : C, _i ? 0 : FRAG_CHANGED);
	expect_lent(0);
	frag_safe_point(rank0());
	ck_assert_uint_eq(seen(C, 7), 0x4100);
	ck_assert_uint_eq(seen(D, 8), truth(D, 8));
	ck_assert_uint_eq(in(D)[8], truth(D, 8));
	out(D, 0);
	job_close(&job);
}
END_TEST

/* DeepSpeed: set does not reach the low-precision weights. */
START_TEST(b12_an_edit_of_a_master_reaches_parameters_in_and_out)
{
	float value[7000];
	uint16_t *big = NULL;

	open_job(JOB_LP_SWAP);
	for (unsigned round = 0; round < 3; round++) {
		for (int i = 0; i < 7000; i++)
			value[i] = (float)(round * 10 + (unsigned)i);
		if (round == 1)
			big = in(BIG);
		ck_assert_int_eq(frag_set(job_frag(&job, 1), job_number(&job, 1, BIG), "fp32",
					  value, sizeof(value)),
				 0);
		job_expect(&job, BIG, "fp32", value);
		job_expect_lp_of(&job, BIG, value);
		job_boundary(&job);
		job_check(&job);
		if (big)
			expect_piece(BIG, big);
		ck_assert_uint_eq(seen(BIG, 6999), truth(BIG, 6999));
	}
	out(BIG, FRAG_CHANGED);
	job_boundary(&job);
	job_check(&job);
	job_close(&job);
}
END_TEST

/* Puts values range by range, as a sweep makes them. */
START_TEST(values_are_put_in_and_out)
{
	uint16_t value[50] = { [0 ... 49] = 0x4400 };

	open_job(JOB_LP_SWAP);
	for (int round = 0; round < 2; round++) {
		uint16_t *d = round ? in(D) : NULL;

		frag_step_begin(rank0());
		for (uint64_t at = 0; at < 150; at += 50)
			ck_assert_int_eq(frag_param_put(rank0(), D, at, value, 50), 0);
		frag_step_end(rank0());
		ck_assert_uint_eq(seen(D, 149), 0x4400 + round);
		ck_assert_uint_eq(seen(D, 150), truth(D, 150));
		ck_assert_uint_eq(seen(C, 49), truth(C, 49));
		ck_assert(!d || d[149] == 0x4401);
		memset(value, 0, sizeof(value));
		for (int i = 0; i < 50; i++)
			value[i] = 0x4401;
	}
	ck_assert_int_eq(frag_param_put(rank0(), D, 199, value, 2), -EINVAL);
	ck_assert_int_eq(frag_param_put(rank0(), D, UINT64_MAX, value, 2), -EINVAL);
	ck_assert_int_eq(frag_param_put(rank0(), D, 0, value, UINT64_MAX), -EINVAL);
	ck_assert_int_eq(frag_param_put(rank0(), D, 0, NULL, 1), -EINVAL);
	ck_assert_int_eq(frag_param_put(rank0(), 77, 0, value, 1), -ENOENT);
	job_close(&job);
}
END_TEST

START_TEST(masters_and_parameters_are_converted_on_nvme)
{
	float master[3500], back[3500];
	uint16_t lp[3500];
	int rc;

	open_job(JOB_LP_SWAP);
	for (int i = 0; i < 3500; i++)
		master[i] = (float)i / 3;
	ck_assert_int_eq(frag_local_set(rank0(), BIG, "fp32", master, sizeof(master)), 0);
	for (int round = 0; round < 2; round++) {
		rc = round ? in(BIG) == NULL : 0;
		ck_assert_int_eq(rc, 0);
		ck_assert_int_eq(frag_update_lp(rank0(), BIG), 0);
		ck_assert_int_eq(frag_update_hp(rank0(), BIG), 0);
		ck_assert_int_eq(frag_local_get(rank0(), BIG, "lp", lp, sizeof(lp)), 0);
		ck_assert_int_eq(frag_local_get(rank0(), BIG, "fp32", back, sizeof(back)), 0);
		for (int i = 0; i < 3500; i++) {
			uint32_t bits = (uint32_t)lp[i] << 16;

			ck_assert_mem_eq(&back[i], &bits, 4);
			ck_assert_float_le(back[i] > master[i] ? back[i] - master[i]
							       : master[i] - back[i],
					   master[i] / 128);
		}
	}
	job_close(&job);
}
END_TEST

static void expect_masters(void)
{
	for (int i = 0; i < NPARAMS; i++) {
		uint16_t lp[3500];
		float master[3500];

		ck_assert_int_eq(frag_local_get(rank0(), i, "lp", lp, piece[i] * 2), 0);
		ck_assert_int_eq(frag_local_get(rank0(), i, "fp32", master, piece[i] * 4), 0);
		for (uint64_t k = 0; k < piece[i]; k++) {
			uint32_t bits = (uint32_t)lp[k] << 16;

			ck_assert_mem_eq(&master[k], &bits, 4);
		}
	}
}

static void make_masters(void)
{
	for (int i = 0; i < NPARAMS; i++)
		ck_assert_int_eq(frag_update_hp(rank0(), i), 0);
}

/* Four slices, each of which comes in once, whatever the order of the parameters in them. */
START_TEST(masters_are_made_of_pieces_that_come_in_once)
{
	uint16_t *memory;

	open_with(JOB_LP_SWAP, _i != 0);
	drain();
	ck_assert_int_eq(frag_state_clear(rank0(), 0, 0, "fp32"), 0);
	make_masters();
	ck_assert_uint_eq(brought(), _i ? 4 : 0);
	expect_masters();
	/* A change in memory that the trainer has not given back is not in the master yet. */
	memory = in(C);
	memory[3] ^= 0x8000;
	make_masters();
	ck_assert_uint_eq(memory[3], truth(C, 3) ^ 0x8000);
	expect_masters();
	out(C, FRAG_CHANGED);
	make_masters();
	expect_masters();
	ck_assert_uint_eq(seen(C, 3), truth(C, 3)); /* the old value until a boundary */
	job_close(&job);
}
END_TEST

/* All buffers are lent to pieces that were read ahead, or are needed by the trainer. */
START_TEST(masters_are_made_where_buffers_are_few)
{
	void *memory[NPARAMS];

	open_with(JOB_LP_SWAP, _i != 0);
	drain();
	ck_assert_int_eq(frag_params_ahead(rank0(), all, NPARAMS), NPARAMS);
	make_masters();
	expect_masters();
	ck_assert_int_eq(frag_params_in(rank0(), all, NPARAMS, memory), 0);
	make_masters();
	expect_masters();
	ck_assert_int_eq(frag_params_out(rank0(), all, NPARAMS, 0), 0);
	ck_assert_int_eq(frag_params_ahead(rank0(), all, 2), 2);
	make_masters();
	ck_assert(swapped_params_make_room(rank0()->engine->trainer->swapped_params) || !_i);
	drain();
	expect_masters();
	job_close(&job);
}
END_TEST

/* The first values of a piece: given ones, those that the parameter had, or those of its
 * master.
 */
START_TEST(pieces_begin_as_given_or_as_they_were_or_as_their_masters)
{
	uint16_t given[1500];
	const void *values[NPARAMS] = { [B] = given };
	void *memory[NPARAMS];

	for (int i = 0; i < 1500; i++)
		given[i] = (uint16_t)i;
	open_job(_i ? JOB_LP_NONE : JOB_LP_SHARD);
	frag_step_begin(rank0());
	ck_assert_int_eq(frag_params_swap(rank0(), all, NPARAMS, values), 0);
	ck_assert_int_eq(frag_params_in(rank0(), all, NPARAMS, memory), 0);
	for (uint64_t i = 0; i < 1500; i++)
		ck_assert_uint_eq(((uint16_t *)memory[B])[i], i);
	if (_i == 0)
		expect_piece(BIG, memory[BIG]);
	for (uint64_t i = 0; _i == 1 && i < piece[D]; i++) {
		uint16_t converted[400];

		job_expect_lp_of(&job, D, job_truth(&job, D, "fp32"));
		memcpy(converted, job_truth(&job, D, "lp"), sizeof(converted));
		ck_assert_uint_eq(((uint16_t *)memory[D])[i], converted[i]);
	}
	ck_assert_int_eq(frag_params_out(rank0(), all, NPARAMS, 0), 0);
	frag_step_end(rank0());
	job_close(&job);
}
END_TEST

START_TEST(small_ones_stay_in_memory_and_are_treated_alike)
{
	static const uint16_t given[200] = { [0 ... 199] = 0x4500 };
	const void *values[] = { NULL, given, given, NULL };
	CLEANUP(free) char *text = NULL;
	struct registry *r;
	uint16_t *memory[NPARAMS];

	open_job(_i ? JOB_LP_NONE : JOB_LP_SHARD);
	r = &rank0()->engine->registry;
	rank0()->engine->launch.swap.least = 1000;
	ck_assert_int_eq(frag_params_swap(rank0(), all, NPARAMS, values), 0);
	ck_assert_int_eq(frag_params_ahead(rank0(), all, NPARAMS), NPARAMS);
	ck_assert_int_eq(frag_params_in(rank0(), all, NPARAMS, (void **)memory), 0);
	expect_lent(3);
	ck_assert_uint_eq(memory[C][49], 0x4500);
	ck_assert_uint_eq(seen(D, 199), 0x4500);
	memory[D][199] = 0x4600;
	ck_assert_int_eq(frag_param_put(rank0(), C, 49, &memory[D][199], 1), 0);
	ck_assert_int_eq(frag_params_out(rank0(), all, NPARAMS, FRAG_CHANGED), 0);
	job_boundary(&job);
	ck_assert_uint_eq(seen(D, 199), 0x4600);
	ck_assert_uint_eq(seen(C, 49), 0x4600);
	text = rank_query_text(job_frag(&job, 1)->engine, 0, "swap");
	ck_assert_msg(strstr(text, "\nd\tlp\t400\t0\t400\t0\t0\t0\t0\t0\t0\t0\tnone\n") != NULL,
		      "%s", text);
	ck_assert_msg(strstr(text, "\nbig\tlp\t7000\t") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "\nlp_swap_out\t") != NULL, "%s", text);
	ck_assert_msg(strstr(text, "\nlp_swap_init_write\t2\t") != NULL, "%s", text);
	ck_assert_uint_eq(atomic_load(&r->control->swap_bytes),
			  (3500 + 50 + 200 + 1500) * 4 + 7000 + 3000);
	job_close(&job);
}
END_TEST

/* Without memory at the n-th call, for each n, nothing is lost, and the next try succeeds. */
START_TEST(parameters_need_memory)
{
	unsigned n = 0, failed;

	do {
		void *memory[NPARAMS];
		int rc;

		open_job(JOB_LP_SHARD);
		scarce_begin(++n, 1);
		rc = frag_params_swap(rank0(), all, NPARAMS, NULL);
		if (!rc)
			rc = frag_params_in(rank0(), all, NPARAMS, memory);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
		for (int p = 0; p < NPARAMS && rc; p++) {
			int again = frag_params_swap(rank0(), &all[p], 1, NULL);

			ck_assert_msg(!again || again == -EEXIST, "%u: %d", n, again);
		}
		if (rc)
			ck_assert_int_eq(frag_params_in(rank0(), all, NPARAMS, memory), 0);
		for (int p = 0; p < NPARAMS; p++)
			expect_piece(p, memory[p]);
		ck_assert_int_eq(frag_params_out(rank0(), all, NPARAMS, FRAG_CHANGED), 0);
		job_boundary(&job);
		ck_assert_uint_eq(seen(B, 5), truth(B, 5));
		job_close(&job);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

START_TEST(small_ones_need_memory_too)
{
	static const uint16_t given[200] = { [0 ... 199] = 0x4500 };
	static const int small[] = { C, D };
	const void *values[] = { given, given };
	unsigned n = 0, failed;

	do {
		uint16_t *memory[2];
		int rc;

		open_job(JOB_LP_NONE);
		rank0()->engine->launch.swap.least = 1000;
		scarce_begin(++n, 1);
		rc = frag_params_swap(rank0(), small, 2, values);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
		for (int i = 0; i < 2 && rc; i++) {
			int again = frag_params_swap(rank0(), &small[i], 1, values);

			ck_assert_msg(!again || again == -EEXIST, "%u: %d", n, again);
		}
		ck_assert_int_eq(frag_params_in(rank0(), small, 2, (void **)memory), 0);
		ck_assert_uint_eq(memory[0][49], 0x4500);
		ck_assert_uint_eq(memory[1][199], 0x4500);
		job_close(&job);
	} while (failed);
	ck_assert_uint_gt(n, 4);
}
END_TEST

START_TEST(wrong_calls_are_refused)
{
	static const int twice[] = { B, B };
	const int unknown = NPARAMS, less = -1, b = B;
	void *memory[NPARAMS];
	struct frag_arena arena = { .size = sizeof(arena), .bytes = 8192 };
	uint64_t block;

	open_job(JOB_LP_SHARD);
	ck_assert_int_eq(frag_params_in(rank0(), &b, 1, memory), -ENOENT);
	ck_assert_int_eq(frag_params_swap(rank0(), twice, 2, NULL), -EEXIST);
	ck_assert_int_eq(frag_params_swap(rank0(), &unknown, 1, NULL), -EINVAL);
	ck_assert_int_eq(frag_params_swap(rank0(), &less, 1, NULL), -EINVAL);
	ck_assert_int_eq(frag_params_swap(rank0(), NULL, 1, NULL), -EINVAL);
	ck_assert_int_eq(frag_params_swap(rank0(), NULL, 0, NULL), 0);
	ck_assert_int_eq(frag_params_swap(NULL, &b, 1, NULL), -EINVAL);
	ck_assert_int_eq(frag_params_swap(rank0(), &b, FRAG_PARAMS_MAX + 1, NULL), -EINVAL);
	ck_assert_int_eq(frag_arena_open(rank0(), &arena), 0);
	ck_assert_int_eq(frag_arena_alloc(rank0(), 4096, &block), 0);
	ck_assert_int_eq(frag_arena_assign(rank0(), B, FRAG_SHARD, block, 0), 0);
	ck_assert_int_eq(frag_params_swap(rank0(), &b, 1, NULL), -EBUSY);
	ck_assert_int_eq(frag_arena_unassign(rank0(), B, FRAG_SHARD), 0);
	ck_assert_int_eq(frag_params_swap(rank0(), all, NPARAMS, NULL), 0);
	ck_assert_int_eq(frag_params_swap(rank0(), &b, 1, NULL), -EEXIST);
	ck_assert_int_eq(frag_arena_assign(rank0(), B, FRAG_SHARD, block, 0), -EBUSY);
	ck_assert_int_eq(frag_params_in(rank0(), &unknown, 1, memory), -ENOENT);
	ck_assert_int_eq(frag_params_in(rank0(), &less, 1, memory), -ENOENT);
	ck_assert_int_eq(frag_params_in(rank0(), all, 1, NULL), -EINVAL);
	ck_assert_int_eq(frag_params_in(rank0(), NULL, 1, memory), -EINVAL);
	ck_assert_int_eq(frag_params_in(rank0(), NULL, 0, NULL), 0);
	ck_assert_int_eq(frag_params_in(NULL, &b, 1, memory), -EINVAL);
	ck_assert_int_eq(frag_params_in(rank0(), &b, FRAG_PARAMS_MAX + 1, memory), -EINVAL);
	ck_assert_int_eq(frag_params_ahead(rank0(), &unknown, 1), -ENOENT);
	ck_assert_int_eq(frag_params_out(rank0(), &unknown, 1, 0), -ENOENT);
	ck_assert_int_eq(frag_params_out(rank0(), &b, 1, 1 << 5), -EINVAL);
	ck_assert_int_eq(frag_params_out(rank0(), &b, 1, 0), -EINVAL);
	in(B);
	ck_assert_int_eq(frag_params_out(rank0(), twice, 2, 0), -EINVAL);
	out(B, 0);
	job_close(&job);
}
END_TEST

START_TEST(a_job_without_a_directory_or_whole_parameters_has_none)
{
	static const struct job_group groups[] = {
		{ .stage = 2, .nparams = 2, .params = { BIG, C } },
		{ .stage = 3, .nparams = 2, .params = { D, B } },
	};
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_SWAP } };
	int big = BIG, d = D;

	job_open(&job,
		 &(struct job_spec){ .world = 1, JOB_PARAMS(params), JOB_GROUPS(groups) });
	ck_assert_int_eq(frag_params_swap(rank0(), &d, 1, NULL), -EOPNOTSUPP);
	job_close(&job);
	job_open(&job,
		 &(struct job_spec){
			 .world = 1, JOB_PARAMS(params), JOB_GROUPS(groups), JOB_KEYS(keys) });
	ck_assert_int_eq(frag_params_swap(rank0(), &big, 1, NULL), -EINVAL);
	ck_assert_int_eq(frag_params_swap(rank0(), &d, 1, NULL), 0);
	job_close(&job);
}
END_TEST

/* Checks the name that errors give bytes of the state in which `number` lies: a PARTITION or
 * LP_SHARD.
 */
static void expect_named(enum state_kind kind, uint32_t number, const char *key, uint64_t from,
			 uint64_t to, const char *name)
{
	struct engine *e = rank0()->engine;
	char text[200] = "";
	uint64_t at;

	swap_text_range(&e->registry, e->own, 0,
			registry_swap_state(&e->registry, kind, number, 0, key, &at), from, to,
			text, sizeof(text));
	ck_assert_str_eq(text, name);
}

START_TEST(bytes_of_a_state_are_called_by_the_parameters_in_them)
{
	static const uint64_t d_at = 3550 * 4, b_at = 3750 * 4;

	open_job(JOB_LP_SWAP);
	expect_named(STATE_LP_SHARD, BIG, "", 0, 4096, "lp of big");
	expect_named(STATE_LP_SHARD, D, "", 0, 4096, "lp of c and 1 more");
	expect_named(STATE_LP_SHARD, C, "", SWAPPED_PARAMS_ALIGN, 4096, "lp of d");
	expect_named(STATE_PARTITION, 0, "fp32", 4096, 8192,
		     "fp32 of big (group 0, sub-group 0)");
	expect_named(STATE_PARTITION, 0, "fp32", 12288, 16384,
		     "fp32 of big and 3 more (group 0, sub-group 0)");
	expect_named(STATE_PARTITION, 0, "fp32", d_at - 1, d_at + 1,
		     "fp32 of c and 1 more (group 0, sub-group 0)");
	expect_named(STATE_PARTITION, 0, "fp32", d_at, b_at,
		     "fp32 of d (group 0, sub-group 0)");
	expect_named(STATE_PARTITION, 0, "fp32", 5250 * 4, 6000 * 4,
		     "fp32 of padding (group 0, sub-group 0)");
	job_close(&job);
}
END_TEST

START_TEST(an_answer_has_whole_lines)
{
	ck_assert_uint_eq(swap_text_lines("", 4), 0);
	ck_assert_uint_eq(swap_text_lines("a\nb\n", 4), 4);
	ck_assert_uint_eq(swap_text_lines("a\nbc\n", 4), 2);
	ck_assert_uint_eq(swap_text_lines("a\nb\nc\n", 5), 4);
	ck_assert_uint_eq(swap_text_lines("abcdef\n", 4), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("params");
	TCase *t = tcase_create("params");

	tcase_add_test(t, pieces_come_in_whole_and_those_of_one_buffer_together);
	tcase_add_test(t, issue_3506_a_piece_larger_than_a_buffer_lies_in_several);
	tcase_add_test(t, more_than_the_buffers_is_back_pressure);
	tcase_add_test(t, what_is_in_comes_in_again_and_is_out_as_often);
	tcase_add_test(t, reading_ahead_takes_what_nobody_needs_and_gives_way);
	tcase_add_test(t, leaves_are_marked_as_by_deepspeed);
	tcase_add_test(t, a_leaf_of_any_name_is_one_line);
	tcase_add_test(t, parameters_of_a_leaf_are_listed);
	tcase_add_test(t, parameters_of_a_leaf_come_in_as_one);
	tcase_add_test(t, a_leaf_is_gathered);
	tcase_add_test(t, a_leaf_is_gathered_as_one);
	tcase_add_test(t, a_leaf_is_not_read_where_its_parameter_lacks_buffers);
	tcase_add_test(t, leaves_need_memory);
	tcase_add_test(t, what_is_in_ahead_gives_way_to_states);
	tcase_add_test(t, a_job_ends_after_pieces_could_not_come_in);
	tcase_add_test(t, readers_see_what_is_out_when_the_step_has_ended);
	tcase_add_loop_test(t, what_is_not_changed_is_forgotten_whatever_shares_its_buffer, 0,
			    2);
	tcase_add_test(t, b12_an_edit_of_a_master_reaches_parameters_in_and_out);
	tcase_add_test(t, values_are_put_in_and_out);
	tcase_add_test(t, masters_and_parameters_are_converted_on_nvme);
	tcase_add_loop_test(t, masters_are_made_of_pieces_that_come_in_once, 0, 2);
	tcase_add_loop_test(t, masters_are_made_where_buffers_are_few, 0, 2);
	tcase_add_loop_test(t, pieces_begin_as_given_or_as_they_were_or_as_their_masters, 0, 2);
	tcase_add_loop_test(t, small_ones_stay_in_memory_and_are_treated_alike, 0, 2);
	tcase_add_test(t, bytes_of_a_state_are_called_by_the_parameters_in_them);
	tcase_add_test(t, an_answer_has_whole_lines);
	tcase_add_test(t, parameters_need_memory);
	tcase_add_test(t, small_ones_need_memory_too);
	tcase_add_test(t, wrong_calls_are_refused);
	tcase_add_test(t, a_job_without_a_directory_or_whole_parameters_has_none);
	tcase_set_timeout(t, 60);
	return run_suite(s, t);
}

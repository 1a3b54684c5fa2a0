/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/base/dtype.h"
#include "engine/catalog/operation.h"
#include "engine/live/loop.h"
#include "engine/base/slice.h"
#include "engine/node/event-log.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Edits by an operation, which the holders carry out on their own fragments. */

enum {
	WAIT_MS = 60000,
	ROUNDS = 12,
	TEXT_MAX = 64,
	ASKING_TURNS = 1500,
	ORDER_TURNS = 500,
	MANY = 100000
};

struct edit_by {
	struct engine_write write;
	struct operation operation;
	struct slice slice;
	unsigned ended; /* how often done was called */
	int result;
};

static void on_done(struct engine_write *write, int status)
{
	struct edit_by *x = write->owner;

	x->ended++;
	x->result = status;
}

/* Prepares an edit of parameter `param`, which rank's engine is to start. */
static void prepare(struct edit_by *x, uint32_t rank, uint32_t param, const char *key,
		    const char *slice, const char *text)
{
	const struct job_param *p = &job.params[param];
	struct engine_address a;
	uint64_t bytes;
	const char *end;

	memset(x, 0, sizeof(*x));
	x->write = (struct engine_write){
		.operation = &x->operation, .slice = &x->slice, .done = on_done, .owner = x
	};
	ck_assert_int_eq(operation_parse(&x->operation, job_dtype(&job, param, key), text), 0);
	ck_assert_int_eq(slice_parse(&x->slice, slice, &end, p->shape, p->ndim), 0);
	ck_assert_int_eq(
		api_address_of(job_frag(&job, rank), job_number(&job, rank, param), key, &a),
		0);
	ck_assert_int_eq(engine_file_open(engine_of(rank), &a, &x->write.file, &bytes), 0);
}

/* Starts an edit, and does not wait. */
static void begin(struct edit_by *x, uint32_t rank, uint32_t param, const char *key,
		  const char *slice, const char *text)
{
	prepare(x, rank, param, key, slice, text);
	engine_write(engine_of(rank), &x->write);
}

static bool is_accepted(uint32_t rank)
{
	CLEANUP(free) char *text = engine_text(engine_of(rank), "inflight");

	return text && strstr(text, "waiting for its boundary");
}

/* Makes the truth of a parameter's state the result of the operation, and the truth of its
 * low-precision copy that of the state.
 */
static void expect_edit(const struct edit_by *x, uint32_t param, const char *key)
{
	enum frag_dtype dtype = job_dtype(&job, param, key);
	enum frag_dtype lp = job_dtype(&job, param, "lp");
	size_t size = frag_dtype_size(dtype), lp_size = frag_dtype_size(lp);
	CLEANUP(free) uint8_t *all = malloc(job_bytes(&job, param, key) + 1);
	CLEANUP(free) uint8_t *copy = malloc(job_bytes(&job, param, "lp") + 1);
	bool follows = !strcmp(key, "fp32");

	memcpy(all, job_truth(&job, param, key), job_bytes(&job, param, key));
	memcpy(copy, job_truth(&job, param, "lp"), job_bytes(&job, param, "lp"));
	for (uint64_t k = 0; k < x->slice.numel; k++) {
		uint64_t at = slice_run(&x->slice, k).first;
		unsigned char element[ELEMENT_BYTES_MAX] __attribute__((aligned(16)));

		memcpy(element, all + at * size, size);
		operation_apply(&x->operation, dtype, element, 1);
		memcpy(all + at * size, element, size);
		if (follows)
			dtype_convert(lp, copy + at * lp_size, dtype, element, 1);
	}
	job_expect(&job, param, key, all);
	if (follows)
		job_expect(&job, param, "lp", copy);
}

/* ---- every layout and tier ---- */

static const struct job_param params[] = {
	{ "columns", .ndim = 2, .shape = { 9, 13 } },
	{ "grid", .ndim = 3, .shape = { 5, 3, 6 } },
	{ "half", .ndim = 2, .shape = { 7, 3 }, .dtype = FRAG_F16 },
	{ "long", .ndim = 1, .shape = { 40000 }, .dtype = FRAG_F32 },
};
static const struct job_param cut[] = {
	{ "columns", .ndim = 2, .shape = { 9, 13 }, .ncuts = 1, .cuts = { { 1, 0 } } },
	{ "grid", .ndim = 3, .shape = { 5, 3, 6 }, .ncuts = 2, .cuts = { { 2, 2 }, { 0, 0 } } },
	{ "half", .ndim = 2, .shape = { 7, 3 }, .dtype = FRAG_F16 },
	{ "long", .ndim = 1, .shape = { 40000 }, .dtype = FRAG_F32 },
};

#define KEYS(how)                                                                              \
	{                                                                                      \
		{ "fp32", FRAG_F32, how }, { "exp_avg", FRAG_F32, how },                       \
			{ "wide", FRAG_F64, how }, { "brain", FRAG_BF16, how },                \
			{ "half", FRAG_F16, how }, { "count", FRAG_I64, how },                 \
		{                                                                              \
			"small", FRAG_F8_E4M3, how                                             \
		}                                                                              \
	}
enum { NKEYS = 7 };
static const struct job_key kept[] = KEYS(JOB_KEEP), swapped[] = KEYS(JOB_SWAP),
			    whole[] = KEYS(JOB_WHOLE), pieces[] = KEYS(JOB_FRAGMENTS);

static const struct layout_case {
	const char *name;
	uint32_t world;
	const struct job_param *params;
	struct job_group group;
	const struct job_key *keys;
	bool on_device, lp_elsewhere;
	enum job_lp lp;
} cases[] = {
	{ "one rank", 1, params, { .stage = 1 }, kept, false, false, JOB_LP_FITTING },
	{ "stage 0", 3, params, { .stage = 0 }, kept, false, false, JOB_LP_FITTING },
	{ "whole", 2, params, { .stage = 0 }, whole, false, false, JOB_LP_FITTING },
	{ "stage 2", 3, params, { .stage = 2 }, kept, false, true, JOB_LP_FITTING },
	{ "stage 2, no copies", 3, params, { .stage = 2 }, kept, false, false, JOB_LP_NONE },
	{ "stage 3", 4, params, { .stage = 3 }, kept, false, false, JOB_LP_FITTING },
	{ "stage 3, sub-groups",
	  2,
	  params,
	  { .stage = 3, .sub_group_size = 50 },
	  kept,
	  false,
	  false,
	  JOB_LP_FITTING },
	{ "stage 3, whole copies too",
	  3,
	  params,
	  { .stage = 3 },
	  kept,
	  false,
	  true,
	  JOB_LP_BOTH },
	{ "replicas",
	  4,
	  params,
	  { .stage = 3, .replicas = 2 },
	  kept,
	  false,
	  false,
	  JOB_LP_FITTING },
	{ "FSDP2", 3, params, { .sharding = FRAG_FSDP2 }, kept, false, false, JOB_LP_FITTING },
	{ "cut", 4, cut, { .sharding = FRAG_FSDP2 }, kept, false, false, JOB_LP_FITTING },
	{ "on devices", 3, params, { .stage = 3 }, kept, true, false, JOB_LP_FITTING },
	{ "on NVMe", 2, params, { .stage = 3 }, swapped, false, false, JOB_LP_FITTING },
	{ "copies on NVMe", 2, params, { .stage = 3 }, swapped, false, false, JOB_LP_SWAP },
	{ "fragments",
	  2,
	  cut,
	  { .sharding = FRAG_FSDP2 },
	  pieces,
	  false,
	  false,
	  JOB_LP_FITTING },
};

static const struct layout_case ten_ranks = { .name = "ten ranks",
					      .world = 10,
					      .params = params,
					      .group = { .stage = 0 },
					      .keys = kept },
				ten_copies = { .name = "ten ranks, low-precision copies",
					       .world = 10,
					       .params = params,
					       .group = { .stage = 0 },
					       .keys = kept,
					       .lp = JOB_LP_FITTING };

/* Opens a job with the first nparams parameters. */
static void open_with(const struct layout_case *c, uint32_t nparams)
{
	struct job_group group = c->group;

	group.nparams = nparams;
	for (uint32_t i = 0; i < group.nparams; i++)
		group.params[i] = i;
	job_open(&job, &(struct job_spec){ .world = c->world,
					   .params = c->params,
					   .nparams = nparams,
					   .groups = &group,
					   .ngroups = 1,
					   .keys = c->keys,
					   .nkeys = NKEYS,
					   .on_device = c->on_device,
					   .lp = c->lp });
}

static void open_case(const struct layout_case *c)
{
	open_with(c, ARRAY_SIZE(params));
}

/* Draws a slice with any steps, as text. */
static void draw_slice(uint32_t param, char text[TEXT_MAX])
{
	const struct job_param *p = &job.params[param];
	size_t n = 0;

	for (uint32_t i = 0; i < p->ndim; i++) {
		uint32_t size = (uint32_t)p->shape[i], start = job_random(&job, size);
		uint32_t step = 1 + job_random(&job, 3), stop = job_random(&job, size + 1);

		n += (size_t)snprintf(text + n, TEXT_MAX - n, i ? "," : "[");
		if (!job_random(&job, 3))
			n += (size_t)snprintf(text + n, TEXT_MAX - n, ":");
		else if (!job_random(&job, 4))
			n += (size_t)snprintf(text + n, TEXT_MAX - n, "%u", start);
		else if (!job_random(&job, 3))
			n += (size_t)snprintf(text + n, TEXT_MAX - n, "::-%u", step);
		else
			n += (size_t)snprintf(text + n, TEXT_MAX - n, "%u:%u:%u",
					      start < stop ? start : stop,
					      start < stop ? stop : start, step);
	}
	snprintf(text + n, TEXT_MAX - n, "]");
}

static void finish(struct edit_by *x)
{
	for (uint64_t until = monotonic_ms() + WAIT_MS, n = 1; !x->ended; n++) {
		ck_assert(monotonic_ms() < until);
		job_turn(&job);
		if (!(n % 16))
			job_boundary(&job);
	}
	ck_assert_uint_eq(x->ended, 1);
	engine_file_close(x->write.file);
}

static void edit_once(const struct layout_case *c, uint32_t param, const char *key,
		      const char *slice, const char *text)
{
	bool arithmetic = strchr("*/+-", *text);
	bool refused = c->lp_elsewhere && arithmetic && !strcmp(key, "fp32");
	struct edit_by x;

	begin(&x, job_random(&job, c->world), param, key, slice, text);
	finish(&x);
	if (x.slice.numel && refused)
		ck_assert_int_eq(x.result, -EOPNOTSUPP);
	else
		ck_assert_msg(!x.result, "%s: %s%s %s: %d", c->name, key, slice, text,
			      x.result);
	if (!refused)
		expect_edit(&x, param, key);
}

START_TEST(owners_compute_what_the_writer_would_have)
{
	static const char *const texts[] = { "*= 0.5", "/= 3",   "+= 0.1",
					     "-= 7",   "= -1.5", "zero" };
	const struct layout_case *c = &cases[_i];

	open_case(c);
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t param = job_random(&job, ARRAY_SIZE(params));
		const char *key = c->keys[job_random(&job, 5)].key, *slice;
		const char *text = texts[job_random(&job, ARRAY_SIZE(texts))];
		char drawn[TEXT_MAX];

		draw_slice(param, drawn);
		slice = i % 4 ? drawn : "[...]";
		edit_once(c, param, i % 3 ? key : "fp32", slice, text);
	}
	edit_once(c, 0, "count", "[1:8:2]", "= -9");
	edit_once(c, 1, "small", "[0,...,::2]", "= 0.5");
	edit_once(c, 3, "wide", "[::7]", "*= 3");
	edit_once(c, 3, "exp_avg", "[5::2000]", "+= 1");
	edit_once(c, 2, "fp32", "[0:0]", "*= 3");
	job_check(&job);
	job_close(&job);
}
END_TEST

/* dtype and shape are checked before anything is staged. */
START_TEST(another_dtype_or_shape_is_refused_at_once)
{
	struct operation twice;
	struct slice slice, other;
	struct engine_address a;
	struct edit_by x = { .ended = 0 };
	uint64_t bytes;

	open_case(&cases[0]);
	ck_assert_int_eq(operation_parse(&twice, FRAG_F32, "*= 2"), 0);
	slice_all(&slice, params[0].shape, 2);
	slice_all(&other, params[1].shape, 3);
	x.write = (struct engine_write){
		.operation = &twice, .slice = &slice, .done = on_done, .owner = &x
	};
	ck_assert_int_eq(api_address_of(job_frag(&job, 0), 0, _i ? "small" : "fp32", &a), 0);
	ck_assert_int_eq(engine_file_open(engine_of(0), &a, &x.write.file, &bytes), 0);
	if (!_i)
		x.write.slice = &other;
	engine_write(engine_of(0), &x.write);
	ck_assert(x.ended);
	ck_assert_int_eq(x.result, _i ? -EOPNOTSUPP : -EINVAL);
	engine_file_close(x.write.file);
	job_check(&job);
	job_close(&job);
}
END_TEST

/* ---- memory runs out ---- */

static bool all_have_orders(void)
{
	for (uint32_t rank = 0; rank < job.spec.world; rank++)
		if (!engine_of(rank)->participant.count)
			return false;
	return true;
}

/* Without memory at the n-th call of the writer or a holder, for each n, until all have their
 * orders.  i: 2 and 3: only the first calls, those of a growing plan, for ten ranks without and
 * with copies.
 */
START_TEST(without_memory_an_edit_is_made_everywhere_or_nowhere)
{
	static const struct {
		const struct layout_case *layout;
		const char *text;
		unsigned most;
	} tries[] = { { &cases[5], "*= 2", MANY }, /* stage 3 */
		      { &cases[5], "= 0.25", MANY },
		      { &ten_ranks, "*= 2", 40 },
		      { &ten_copies, "*= 2", 40 } };
	uint32_t world = tries[_i].layout->world;
	unsigned n = 0, refused = 0, failed;
	struct edit_by x;

	open_with(tries[_i].layout, 1);
	do {
		uint32_t writer = n % world;

		prepare(&x, writer, 0, "fp32", "[::2]", tries[_i].text);
		scarce_begin(++n, 1);
		engine_write(engine_of(writer), &x.write);
		loop_turn(engine_of(writer), 0);
		for (int i = 0; i < ORDER_TURNS && !x.ended && !all_have_orders(); i++)
			job_turn(&job);
		failed = scarce_end();
		finish(&x);
		ck_assert_msg(!x.result || failed, "%u: %d", n, x.result);
		refused += x.result == -ENOMEM;
		if (!x.result)
			expect_edit(&x, 0, "fp32");
		job_check(&job);
	} while (failed && n < tries[_i].most);
	ck_assert_uint_ge(refused, 4);
	job_close(&job);
}
END_TEST

/* ---- a rank dies ---- */

/* The writer waits for answers of ranks 1 to 8, the most that it waits for at once, when rank 9
 * is lost.
 */
START_TEST(a_holder_that_is_lost_before_it_has_its_orders_ends_the_edit)
{
	struct edit_by x;

	open_case(&ten_ranks);
	begin(&x, 0, 0, "fp32", "[...]", "*= 2");
	for (int i = 0; i < ASKING_TURNS; i++) {
		loop_turn(engine_of(0), 0);
		loop_turn(engine_of(9), 0);
	}
	ck_assert_uint_eq(engine_of(9)->participant.count, 0);
	ck_assert_uint_eq(x.ended, 0);
	die(9, true);
	finish(&x);
	ck_assert_int_eq(x.result, -EIO);
	for (int i = 0; i < ASKING_TURNS; i++)
		job_turn(&job);
	for (uint32_t rank = 0; rank < 9; rank++)
		ck_assert_uint_eq(engine_of(rank)->participant.count, 0);
	job_check(&job);
	job_close(&job);
}
END_TEST

static const struct job_group everywhere = { .stage = 0, .nparams = 2, .params = { 0, 1 } };
static const struct job_group in_thirds = { .stage = 3, .nparams = 2, .params = { 0, 1 } };

static int wait_for(struct edit_by *x)
{
	while (!x->ended)
		turn(NULL);
	ck_assert_uint_eq(x->ended, 1);
	engine_file_close(x->write.file);
	return x->result;
}

START_TEST(a_holder_that_dies_before_the_decision_takes_the_edit_with_it)
{
	struct edit_by x;

	boundaries_open(3, _i % 2 ? &everywhere : &in_thirds);
	begin(&x, 1, 0, "fp32", "[...]", "*= 2");
	while (_i > 1 && !is_accepted(1))
		turn(NULL);
	die(2, true);
	ck_assert_int_eq(wait_for(&x), -EIO);
	all_pass(3);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(a_decision_that_reached_one_rank_reaches_all_that_live)
{
	struct edit_by x;

	boundaries_open(4, &everywhere);
	begin(&x, 1, 0, "fp32", "[...]", "*= 2");
	while (!is_accepted(1))
		turn(NULL);
	loss.from = 0;
	loss.to = 2;
	loss.type = WIRE_DECIDE;
	boundary(1);
	die(0, true);
	all_pass(3);
	expect_edit(&x, 0, "fp32");
	job_check(&job);
	ck_assert_int_eq(wait_for(&x), 0);
	job_close(&job);
}
END_TEST

START_TEST(what_is_cancelled_before_it_is_decided_changes_nothing)
{
	struct edit_by x;

	boundaries_open(3, &in_thirds);
	begin(&x, 1, 0, "fp32", "[...]", "*= 2");
	while (_i && !is_accepted(1))
		turn(NULL);
	engine_write_cancel(engine_of(1), &x.write);
	ck_assert_int_eq(wait_for(&x), -ECANCELED);
	all_pass(2);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(the_event_names_the_operation)
{
	static char text[8 * EVENT_RING_LINE_MAX];
	struct edit_by x;

	boundaries_open(2, &everywhere);
	begin(&x, 1, 0, "exp_avg", "[...]", "*= 0.5");
	while (!is_accepted(1))
		turn(NULL);
	all_pass(1);
	ck_assert_int_eq(wait_for(&x), 0);
	for (uint32_t rank = 0; rank < 2; rank++) {
		uint64_t after = 0;
		size_t size;

		while (!(size = event_ring_read(&engine_of(rank)->event_log->ring, &after, text,
						sizeof(text) - 1)))
			turn(NULL);
		text[size] = '\0';
		ck_assert_ptr_nonnull(strstr(text, "\"state\":\"exp_avg\","
						   "\"operation\":\"*= 0.5\",\"bytes\":148,"
						   "\"boundary\":1,\"outcome\":\"committed\""));
	}
	expect_edit(&x, 0, "exp_avg");
	job_check(&job);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("operation");
	TCase *t = tcase_create("operation");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, owners_compute_what_the_writer_would_have, 0,
			    (int)ARRAY_SIZE(cases));
	tcase_add_loop_test(t, another_dtype_or_shape_is_refused_at_once, 0, 2);
	tcase_add_loop_test(t, without_memory_an_edit_is_made_everywhere_or_nowhere, 0, 4);
	tcase_add_test(t, a_holder_that_is_lost_before_it_has_its_orders_ends_the_edit);
	tcase_add_loop_test(t, a_holder_that_dies_before_the_decision_takes_the_edit_with_it, 0,
			    4);
	tcase_add_test(t, a_decision_that_reached_one_rank_reaches_all_that_live);
	tcase_add_loop_test(t, what_is_cancelled_before_it_is_decided_changes_nothing, 0, 2);
	tcase_add_test(t, the_event_names_the_operation);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/catalog/condition.h"
#include "engine/live/loop.h"
#include "engine/node/event-log.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A watched job stands at the first boundary at which its condition holds, every rank at the
 * same one, and nothing else ever holds it.
 */

enum { WORLD = 4, GOAL = 12, MANY = 100000, STAY_TURNS = 40, BAD_STEP = 7 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };

struct asked {
	struct engine_freeze freeze;
	unsigned ended; /* how often done was called */
	int result;
};

static struct asked watch, other, thaw;

static void on_done(struct engine_freeze *freeze, int result)
{
	struct asked *a = freeze->owner;

	a->ended++;
	a->result = result;
}

static void ask_freeze(struct asked *a, uint32_t rank, struct engine_freeze freeze)
{
	*a = (struct asked){ .freeze = freeze };
	a->freeze.done = on_done;
	a->freeze.owner = a;
	engine_freeze(engine_of(rank), &a->freeze);
}

static void ask(struct asked *a, uint32_t rank, const char *text, uint32_t ms)
{
	ask_freeze(a, rank, (struct engine_freeze){ .ms = ms, .watch = text });
}

/* ---- trainers that make steps ---- */

static uint64_t steps[JOB_WORLD_MAX]; /* steps that each rank has begun */
static struct {
	const char *key;
	uint32_t rank;
	uint64_t step; /* 0: no step is bad */
	uint64_t at;   /* element of the rank's partition */
	double value;
} bad;
static double good = 1;
static struct { /* rank 1 has no memory at the n-th call in begin_step; 0: it has memory */
	unsigned n, failed;
} need;

static void fill(uint32_t rank, const char *key, uint64_t step)
{
	struct registry *r = &engine_of(rank)->registry;
	double values[NUMEL + 1];
	float floats[NUMEL + 1];
	enum frag_dtype dtype;
	uint64_t n = frag_partition_numel(job_frag(&job, rank), 0, 0);
	int row = registry_find(r, STATE_PARTITION, 0, 0, key, &dtype);
	bool wide = dtype != FRAG_F32;

	ck_assert_uint_le(n, ARRAY_SIZE(values));
	for (uint64_t i = 0; i < n; i++)
		values[i] = good;
	if (!strcmp(key, bad.key) && bad.rank == rank && bad.step == step)
		values[bad.at] = bad.value;
	for (uint64_t i = 0; i < n && !wide; i++)
		floats[i] = (float)values[i];
	ck_assert_int_eq(registry_write(r, 0, (uint32_t)row, 0, wide ? (void *)values : floats,
					n * frag_dtype_size(dtype)),
			 0);
}

static int begin_step(uint32_t rank)
{
	bool lacks = rank == 1 && need.n;
	int rc;

	if (lacks)
		scarce_begin(need.n, 1);
	rc = frag_step_begin(job_frag(&job, rank));
	if (lacks) {
		need.n = 0;
		need.failed = scarce_end();
	}
	return rc;
}

static void make_grads(uint32_t rank)
{
	steps[rank]++;
	fill(rank, "grad", steps[rank]);
	ck_assert_int_eq(frag_grads_valid(job_frag(&job, rank), 1), 0);
}

static void use_grads(uint32_t rank)
{
	struct frag *f = job_frag(&job, rank);

	ck_assert_int_eq(begin_step(rank), 0);
	fill(rank, "exp_avg", steps[rank]);
	ck_assert_int_eq(frag_step_end(f), 0);
	ck_assert_int_eq(frag_grads_gone(f), 0);
}

static void step(uint32_t rank)
{
	make_grads(rank);
	use_grads(rank);
}

static void train(uint64_t goal)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (job_frag(&job, rank) && !waits_inside(rank) && steps[rank] < goal)
			send_off(rank, step);
	turn(NULL);
}

static uint32_t phase(uint32_t rank)
{
	return atomic_load(&engine_of(rank)->registry.control->phase);
}

static bool all_frozen(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (job_frag(&job, rank) && phase(rank) != CONTROL_FROZEN)
			return false;
	return true;
}

static void until_frozen_at(uint64_t boundary)
{
	while (!all_frozen())
		train(MANY);
	for (int i = 0; i < STAY_TURNS; i++) {
		train(MANY);
		ck_assert(all_frozen());
		for (uint32_t rank = 0; rank < WORLD; rank++)
			if (job_frag(&job, rank))
				ck_assert_uint_eq(passed(rank), boundary);
	}
}

static void train_to(uint64_t goal)
{
	bool all = false;

	while (!all) {
		train(goal);
		all = true;
		for (uint32_t rank = 0; rank < WORLD; rank++)
			all &= !job_frag(&job, rank) ||
			       (steps[rank] >= goal && !waits_inside(rank));
		for (uint32_t rank = 0; rank < WORLD; rank++)
			ck_assert(!job_frag(&job, rank) || phase(rank) != CONTROL_FROZEN);
	}
}

static int result_of(struct asked *a)
{
	while (!a->ended)
		turn(NULL);
	ck_assert_uint_eq(a->ended, 1);
	return a->result;
}

static void thaw_all(uint32_t rank)
{
	ask(&thaw, rank, NULL, 0);
	ck_assert_int_eq(result_of(&thaw), 0);
	while (all_frozen())
		turn(NULL);
}

/* Returns the rank's newest event of that name; NULL: it has none. */
static const char *event(uint32_t rank, const char *name)
{
	const struct event_ring *ring = &engine_of(rank)->event_log->ring;
	char start[32];

	snprintf(start, sizeof(start), "{\"event\":\"%s\",", name);
	for (uint64_t n = ring->count; n && n + EVENT_RING_KEPT > ring->count; n--)
		if (strstr(ring->lines[n % EVENT_RING_KEPT], start))
			return ring->lines[n % EVENT_RING_KEPT];
	return NULL;
}

static void expect_event(uint32_t rank, const char *name, const char *part)
{
	while (!event(rank, name))
		turn(NULL);
	ck_assert_msg(strstr(event(rank, name), part), "%s", event(rank, name));
}

static void open_watched(uint32_t rank, const char *text)
{
	boundaries_open(WORLD, &sharded);
	memset(steps, 0, sizeof(steps));
	memset(&bad, 0, sizeof(bad));
	bad.key = "grad";
	for (uint32_t r = 0; r < WORLD; r++) {
		fill(r, "fp32", 1);
		fill(r, "exp_avg", 1);
	}
	ask(&watch, rank, text, 0);
	ck_assert_int_eq(result_of(&watch), 0);
}

static void expect_watched(uint32_t rank, const char *line)
{
	char *text = engine_text(engine_of(rank), "control");

	ck_assert_ptr_nonnull(text);
	ck_assert_str_eq(text, line);
	free(text);
}

/* ---- the condition holds ---- */

/* i: 0: NaN, 1: infinity, 2: magnitude, 3 to 5: the same in devices' memory. */
START_TEST(a_bad_gradient_stops_all_ranks_before_the_step_that_has_it)
{
	static const char *const text[] = { "nan(grad) > 0", "inf(grad)>0",
					    " absmax(grad, w ) > 1.5 for 60" };
	static const char *const line[] = { "break nan(grad) > 0 for 3600\n",
					    "break inf(grad) > 0 for 3600\n",
					    "break absmax(grad, w) > 1.5 for 60\n" };
	static const float value[] = { NAN, -INFINITY, -2 };
	const char *told;

	on_devices = _i >= 3;
	open_watched(2, text[_i % 3]);
	expect_watched(2, line[_i % 3]);
	bad.rank = 1;
	bad.step = BAD_STEP;
	bad.at = 3;
	bad.value = value[_i % 3];
	until_frozen_at(2 * BAD_STEP - 1);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_eq(atomic_load(&engine_of(rank)->registry.control->step),
				  BAD_STEP - 1);
	expect_event(0, "break", "\"param\":\"w\",\"state\":\"grad\"");
	told = event(0, "break");
	ck_assert_msg(strstr(told, "\"index\":[13],\"rank\":1,\"step\":6,\"boundary\":13"),
		      "%s", told);
	expect_watched(2, "break off\n");
	thaw_all(3);
	train_to(GOAL);
	boundaries_close();
}
END_TEST

/* Checks that the watch holds at that boundary, with an event that has `part`; after a thaw the
 * job ends.
 */
static void holds_at(uint64_t boundary, const char *part)
{
	until_frozen_at(boundary);
	expect_event(0, "break", part);
	thaw_all(1);
	train_to(GOAL);
	boundaries_close();
}

START_TEST(a_norm_is_that_of_the_parameter_over_all_ranks)
{
	open_watched(1, "norm(grad, w) > 6.09"); /* 37 ones have the norm 6.08 */
	bad.step = BAD_STEP;
	bad.rank = 3;
	bad.value = 1.5;
	holds_at(2 * BAD_STEP - 1, "\"param\":\"w\",\"state\":\"grad\",\"value\":6.18");
}
END_TEST

/* i: 0: the norm of usual values is below the bound; 1: that of bad values is above it. */
START_TEST(the_norm_of_float64_is_that_of_numbers_whose_squares_are_none)
{
	grads_dtype = FRAG_F64;
	good = 1e-200;
	open_watched(1, _i ? "norm(grad, w) > 1e199" : "norm(grad, w) > 0.1");
	bad.step = BAD_STEP;
	bad.rank = 3;
	bad.value = 1e200;
	holds_at(2 * BAD_STEP - 1, "\"param\":\"w\",\"state\":\"grad\",\"value\":");
}
END_TEST

START_TEST(a_state_is_looked_at_where_its_step_ends)
{
	open_watched(1, "nan(exp_avg) > 0");
	bad.key = "exp_avg";
	bad.step = BAD_STEP;
	bad.value = NAN;
	holds_at(2 * BAD_STEP, "\"index\":[0],\"rank\":0,\"step\":7,\"boundary\":14");
}
END_TEST

/* Gives rank 2 an event as mounts get it. */
static void hear(const char *line)
{
	struct engine *e = engine_of(2);
	char text[EVENT_RING_LINE_MAX + 2];
	int length = snprintf(text, sizeof(text), "%s\n", line);

	pthread_mutex_lock(&e->lock);
	event_log_add_lines(e, text, (size_t)length);
	pthread_mutex_unlock(&e->lock);
}

/* i: 0: the file that holds the watch is closed, 1: `off`, 2: another watch replaces it. */
START_TEST(a_watch_that_ends_behind_its_event_does_not_thaw_the_job)
{
	open_watched(2, "nan(grad) > 0");
	ask(&other, 2, "", 0);
	ck_assert_int_eq(result_of(&other), 0);
	ask_freeze(&watch, 2, (struct engine_freeze){ .watch = "nan(grad) > 0", .held = true });
	while (!watch.ended)
		train(1);
	ck_assert_int_eq(watch.result, 0);
	bad.step = BAD_STEP;
	bad.value = NAN;
	while (!event(0, "break"))
		train(MANY);
	hear(event(0, "break"));
	ask_freeze(&other, 2,
		   (struct engine_freeze){ .watch = _i == 2 ? "inf(grad) > 0" : "",
					   .id = _i ? 0 : watch.freeze.id });
	until_frozen_at(2 * BAD_STEP - 1);
	thaw_all(2);
	ck_assert_int_eq(result_of(&other), 0);
	train_to(GOAL);
	boundaries_close();
}
END_TEST

/* ---- the condition does not hold ---- */

START_TEST(what_is_not_named_does_not_count)
{
	open_watched(2, _i ? "nan(grad, v) > 0" : "nan(grad) > 1");
	bad.step = BAD_STEP;
	bad.value = NAN;
	train_to(GOAL);
	ask(&other, 2, "", 0);
	ck_assert_int_eq(result_of(&other), 0);
	expect_watched(2, "break off\n");
	train_to(GOAL + 1);
	expect_event(0, "break-over", "\"why\":\"the watching mount has ended it\"");
	boundaries_close();
}
END_TEST

START_TEST(a_condition_that_cannot_hold_is_refused)
{
	static const struct {
		const char *text;
		int status;
	} refused[] = {
		{ "nan", -EINVAL },
		{ "nan(grad)", -EINVAL },
		{ "nan() > 0", -EINVAL },
		{ "nan(grad, ) > 0", -EINVAL },
		{ "nan(grad) > -1", -EINVAL },
		{ "nan(grad) > nan", -EINVAL },
		{ "nan(grad) > 0 for", -EINVAL },
		{ "nan(grad) > 0 for 0", -EINVAL },
		{ "nan(grad) > 0 for 60 s", -EINVAL },
		{ "nan(grad) > 0 for 86401", -EINVAL },
		{ "nan(grad) >= 0", -EINVAL },
		{ "mean(grad) > 0", -EINVAL },
		{ "nan grad > 0", -EINVAL },
		{ "nan(grad, x*) > 0", -ENOENT },
		{ "nan(exp) > 0", -ENOENT },
	};
	char long_pattern[160] = "nan(grad, ";

	open_watched(2, "nan(grad) > 0");
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		ask(&other, 3, refused[i].text, 0);
		ck_assert_msg(result_of(&other) == refused[i].status, "%s: %d", refused[i].text,
			      other.result);
	}
	memset(long_pattern + strlen(long_pattern), '*', 128);
	strcat(long_pattern, ") > 0");
	ask(&other, 3, long_pattern, 0);
	ck_assert_int_eq(result_of(&other), -ENAMETOOLONG);
	ask(&other, 2, "nan(grad, x*) > 0", 0); /* the first watch goes on */
	ck_assert_int_eq(result_of(&other), -ENOENT);
	expect_watched(2, "break nan(grad) > 0 for 3600\n");
	for (int i = 0; i < 2; i++) {
		scarce_begin(1, 1);
		ask(&other, 3, i ? "nan(grad) > 0" : NULL, 1000);
		ck_assert_uint_eq(scarce_end(), 1);
		ck_assert_int_eq(result_of(&other), -ENOMEM);
	}
	ask(&other, 3, "nan(grad) > 0", 0);
	ck_assert_int_eq(result_of(&other), -EBUSY);
	ask(&other, 2, "inf(grad) > 0", 0); /* takes the place of the first watch */
	ck_assert_int_eq(result_of(&other), 0);
	bad.step = 2;
	bad.value = NAN;
	train_to(GOAL);
	ask(&other, 2, "", 0);
	ck_assert_int_eq(result_of(&other), 0);
	train_to(GOAL + 1);
	boundaries_close();
}
END_TEST

START_TEST(elements_that_have_no_statistics_end_the_watch)
{
	grads_dtype = FRAG_C64;
	open_watched(2, "nan(grad) > 0");
	bad.step = 2;
	bad.value = NAN;
	train_to(GOAL);
	expect_event(0, "break-over", "cannot look at it: complex numbers have no statistics");
	boundaries_close();
}
END_TEST

START_TEST(a_watch_that_cannot_be_says_what_to_do)
{
	ck_assert_ptr_nonnull(strstr(condition_why_not(-E2BIG), "watch fewer, by a pattern"));
	ck_assert_ptr_nonnull(strstr(condition_why_not(-EOPNOTSUPP), "by a pattern"));
	ck_assert_str_eq(condition_why_not(-EBUSY), "another mount watches the job");
	ck_assert_str_eq(condition_why_not(-EIO), strerror(EIO));
}
END_TEST

START_TEST(a_rank_that_has_no_memory_to_look_ends_the_watch)
{
	unsigned n = 0, ended = 0;

	do {
		open_watched(2, "nan(grad) > 0");
		need.n = ++n;
		bad.step = 1;
		bad.rank = 1;
		bad.value = NAN;
		while (!event(0, "break-over") && !all_frozen())
			train(1);
		if (all_frozen()) {
			thaw_all(1);
		} else {
			expect_event(0, "break-over",
				     "rank 1 cannot look at it: Cannot allocate memory");
			ended++;
		}
		train_to(2);
		boundaries_close();
	} while (need.failed);
	ck_assert_uint_ge(ended, 5);
}
END_TEST

/* The machine has no memory at the n-th call, for each n, until all ranks watch. */
START_TEST(a_job_is_watched_by_all_ranks_or_by_none)
{
	unsigned n = 0, refused = 0, failed;

	open_watched(3, "nan(fp32) > 0");
	do {
		ask(&watch, 3, "", 0);
		ck_assert_int_eq(result_of(&watch), 0);
		for (int i = 0; i < STAY_TURNS; i++)
			turn(NULL);
		scarce_begin(++n, 1);
		ask(&other, 3, "nan(grad) > 0", 0);
		for (uint32_t i = 0; i < MANY && !other.ended; i++) {
			loop_turn(engine_of(i % WORLD), 0);
			scarce_skip_ms(1);
		}
		failed = scarce_end();
		boundaries_wait_anew();
		ck_assert_msg(other.ended == 1, "%u", n);
		ck_assert_msg(!other.result || failed, "%u: %d", n, other.result);
		refused += other.result == -ENOMEM;
	} while (failed);
	ck_assert_uint_ge(refused, 2);
	boundaries_close();
}
END_TEST

/* ---- beside edits and freezes ---- */

START_TEST(edits_and_freezes_go_on_while_the_job_is_watched)
{
	struct writer w;

	open_watched(2, "nan(grad) > 0");
	for (uint32_t i = 0; i < 3; i++) {
		start(&w, i, "fp32", (float)i);
		while (!w.ended)
			train(MANY);
		ck_assert_int_eq(result(&w), 0);
		ask(&other, 3, NULL, 60000);
		while (!other.ended)
			train(MANY);
		ck_assert_int_eq(other.result, 0);
		while (!all_frozen())
			turn(NULL);
		start(&w, i, "fp32", (float)i + 10);
		ck_assert_int_eq(result(&w), 0);
		ck_assert(all_frozen());
		thaw_all(1);
	}
	bad.rank = 2;
	bad.step = steps[0] + 3;
	bad.value = NAN;
	until_frozen_at(2 * bad.step - 1);
	thaw_all(1);
	train_to(bad.step);
	for (uint32_t rank = 1; rank < WORLD; rank++)
		ck_assert_uint_eq(generation(rank), generation(0));
	boundaries_close();
}
END_TEST

static void expect_frozen_where_it_was_edited(const char *part)
{
	for (int i = 0; i < 4 * STAY_TURNS; i++)
		train(MANY);
	ck_assert(all_frozen());
	for (uint32_t rank = 1; rank < WORLD; rank++)
		ck_assert_uint_eq(passed(rank), passed(0));
	expect_event(0, "break", part);
}

START_TEST(an_edit_is_looked_at_before_the_step_uses_it)
{
	struct writer w;

	open_watched(2, "nan(grad, w) > 0");
	train_to(3);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		send_off(rank, make_grads);
	turn(NULL);
	start(&w, 1, "grad", NAN);
	until_accepted(&w); /* accepted for the boundary where step 4 begins */
	for (uint32_t rank = 0; rank < WORLD; rank++)
		send_off(rank, use_grads);
	expect_frozen_where_it_was_edited("\"value\":37.0,\"index\":[0],\"rank\":0");
	ck_assert_int_eq(result(&w), 0);
	ck_assert_uint_eq(passed(0), 2 * 4 - 1);
	thaw_all(1);
	train_to(GOAL);
	boundaries_close();
}
END_TEST

/* i: 0: an edit of gradients, 1: of a state. */
START_TEST(an_edit_in_a_freeze_is_looked_at_before_the_job_goes_on)
{
	static const char *const text[] = { "nan(grad) > 0", "nan(fp32) > 0" };
	struct writer w;
	uint64_t at;

	open_watched(2, text[_i]);
	train_to(3);
	ask(&other, 3, NULL, 60000);
	while (!other.ended)
		train(MANY);
	while (!all_frozen())
		turn(NULL);
	at = passed(0);
	start(&w, 1, _i ? "fp32" : "grad", NAN);
	ck_assert_int_eq(result(&w), 0);
	ck_assert(all_frozen());
	ck_assert_ptr_null(event(0, "break"));
	ask(&thaw, 3, NULL, 0);
	ck_assert_int_eq(result_of(&thaw), 0);
	expect_frozen_where_it_was_edited("\"value\":37.0,\"index\":[0],\"rank\":0");
	ck_assert_uint_eq(passed(0), at);
	thaw_all(1);
	train_to(steps[0] + 3);
	boundaries_close();
}
END_TEST

/* ---- a rank dies, or does not come ---- */

START_TEST(a_rank_that_dies_does_not_keep_the_others)
{
	open_watched(2, "nan(grad) > 0");
	train_to(3);
	for (uint32_t rank = 0; rank < 3; rank++)
		send_off(rank, step); /* the others wait for rank 3 */
	for (int i = 0; i < STAY_TURNS; i++)
		turn(NULL);
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert(waits_inside(rank));
	die(3, _i);
	bad.step = BAD_STEP;
	bad.value = NAN;
	until_frozen_at(2 * BAD_STEP - 1);
	thaw_all(1);
	train_to(GOAL);
	boundaries_close();
}
END_TEST

START_TEST(the_next_coordinator_goes_on)
{
	open_watched(2, "nan(grad) > 0");
	train_to(3);
	die(0, _i);
	train_to(4);
	for (int i = 0; i < 2 * STAY_TURNS; i++)
		turn(NULL); /* the watch is asked for again, of the next coordinator */
	bad.rank = 1;
	bad.step = BAD_STEP;
	bad.value = NAN;
	until_frozen_at(2 * BAD_STEP - 1);
	thaw_all(1);
	train_to(GOAL);
	boundaries_close();
}
END_TEST

START_TEST(a_watcher_that_dies_leaves_the_job_unwatched)
{
	open_watched(3, "nan(grad) > 0");
	train_to(3);
	die(3, true);
	while (!event(0, "break-over"))
		turn(NULL);
	expect_event(0, "break-over", "\"why\":\"the watching mount has ended it\"");
	bad.step = BAD_STEP;
	bad.value = NAN;
	train_to(GOAL);
	boundaries_close();
}
END_TEST

/* The mount lives, but its renewals get lost. */
START_TEST(a_watcher_that_is_not_heard_leaves_the_job_unwatched)
{
	open_watched(2, "nan(grad) > 0");
	train_to(3);
	loss = (struct loss){ .from = 2, .to = 0, .type = WIRE_RENEW };
	while (!event(0, "break-over")) {
		turn(NULL);
		scarce_skip_ms(20);
	}
	expect_event(0, "break-over", "\"why\":\"the watching mount was silent\"");
	loss.type = 0;
	bad.step = BAD_STEP;
	bad.value = NAN;
	train_to(GOAL);
	expect_watched(2, "break off\n");
	boundaries_close();
}
END_TEST

START_TEST(a_rank_that_does_not_come_ends_it)
{
	open_watched(2, "nan(grad) > 0");
	train_to(3);
	for (uint32_t rank = 0; rank < 3; rank++)
		send_off(rank, step);
	while (!event(0, "break-over"))
		turn(NULL);
	expect_event(0, "break-over", "rank 3 was at boundary 6");
	for (uint32_t rank = 0; rank < 3; rank++)
		while (waits_inside(rank))
			turn(NULL);
	train_to(GOAL);
	boundaries_close();
}
END_TEST

/* Makes a rank hold the coordinator for dead, so that it refuses the coordinator's decision. */
static void fence(uint32_t rank)
{
	struct participant *s = &engine_of(rank)->participant;
	const struct edit *e = TAILQ_FIRST(&s->list);

	ck_assert(e && e->watch);
	ck_assert_int_eq(participant_outcome(s, e->transaction), WIRE_UNDECIDED);
}

START_TEST(a_decision_that_all_refuse_is_no_event)
{
	open_watched(2, "nan(grad) > 0");
	train_to(BAD_STEP - 1);
	loss = (struct loss){ .from = 1, .to = 0, .type = WIRE_CHECKED };
	bad.step = BAD_STEP;
	bad.value = NAN;
	for (int i = 0; i < 4 * STAY_TURNS; i++)
		train(MANY);
	fence(2);
	fence(3);
	loss = (struct loss){ .from = 0, .to = 1, .type = WIRE_DECIDE };
	while (!loss.dropped)
		turn(NULL);
	fence(1);
	loss.type = 0;
	while (!event(0, "break-over"))
		train(BAD_STEP);
	ck_assert_ptr_null(event(0, "break"));
	train_to(GOAL);
	boundaries_close();
}
END_TEST

START_TEST(lost_messages_are_sent_again_and_no_boundary_is_missed)
{
	static const enum wire_type types[] = { WIRE_CHECKED, WIRE_PREPARE, WIRE_VOTE,
						WIRE_COMMIT, WIRE_ACCEPTED };

	boundaries_open(WORLD, &sharded);
	memset(steps, 0, sizeof(steps));
	memset(&bad, 0, sizeof(bad));
	bad.key = "grad";
	loss = (struct loss){ .from = _i < 1 || _i == 2 ? 1
				      : _i == 3         ? 2
							: 0,
			      .type = types[_i] };
	loss.to = loss.from ? 0 : _i == 4 ? 2 : 1;
	ask(&watch, 2, "nan(grad) > 0", 0);
	for (int i = 0; i < STAY_TURNS; i++)
		turn(NULL);
	if (_i)
		loss.type = 0;
	ck_assert_int_eq(result_of(&watch), 0);
	for (int i = 0; i < 4 * STAY_TURNS; i++)
		train(3);
	loss.type = 0;
	bad.rank = 2;
	bad.step = BAD_STEP;
	bad.value = NAN;
	until_frozen_at(2 * BAD_STEP - 1);
	thaw_all(2);
	train_to(GOAL);
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("break");
	TCase *t = tcase_create("break");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_bad_gradient_stops_all_ranks_before_the_step_that_has_it, 0,
			    6);
	tcase_add_test(t, a_norm_is_that_of_the_parameter_over_all_ranks);
	tcase_add_loop_test(t, the_norm_of_float64_is_that_of_numbers_whose_squares_are_none, 0,
			    2);
	tcase_add_test(t, a_state_is_looked_at_where_its_step_ends);
	tcase_add_loop_test(t, a_watch_that_ends_behind_its_event_does_not_thaw_the_job, 0, 3);
	tcase_add_loop_test(t, what_is_not_named_does_not_count, 0, 2);
	tcase_add_test(t, a_condition_that_cannot_hold_is_refused);
	tcase_add_test(t, elements_that_have_no_statistics_end_the_watch);
	tcase_add_test(t, a_watch_that_cannot_be_says_what_to_do);
	tcase_add_test(t, a_rank_that_has_no_memory_to_look_ends_the_watch);
	tcase_add_test(t, a_job_is_watched_by_all_ranks_or_by_none);
	tcase_add_loop_test(t, edits_and_freezes_go_on_while_the_job_is_watched, 0, 4);
	tcase_add_test(t, an_edit_is_looked_at_before_the_step_uses_it);
	tcase_add_loop_test(t, an_edit_in_a_freeze_is_looked_at_before_the_job_goes_on, 0, 2);
	tcase_add_loop_test(t, a_rank_that_dies_does_not_keep_the_others, 0, 2);
	tcase_add_loop_test(t, the_next_coordinator_goes_on, 0, 2);
	tcase_add_test(t, a_watcher_that_dies_leaves_the_job_unwatched);
	tcase_add_test(t, a_watcher_that_is_not_heard_leaves_the_job_unwatched);
	tcase_add_test(t, a_rank_that_does_not_come_ends_it);
	tcase_add_test(t, a_decision_that_all_refuse_is_no_event);
	tcase_add_loop_test(t, lost_messages_are_sent_again_and_no_boundary_is_missed, 0, 5);
	return run_suite(s, t);
}

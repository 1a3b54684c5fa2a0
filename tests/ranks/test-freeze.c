/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/run-suite.h"

#include "engine/commit/coordinator.h"
#include "engine/node/event-log.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* All trainers stand at one boundary, edits are applied there, and nothing holds trainers for
 * ever.
 */

enum { WORLD = 4, LONG_MS = 60000, GOAL = 60, STAY_TURNS = 40 };

static const struct job_group everywhere = { .stage = 0, .nparams = 2, .params = { 0, 1 } };

struct asked {
	struct engine_freeze freeze;
	bool ended;
	int result;
};

static struct asked first, second, thaw;

static void on_done(struct engine_freeze *freeze, int result)
{
	struct asked *a = freeze->owner;

	ck_assert(!a->ended);
	a->ended = true;
	a->result = result;
}

static void ask(struct asked *a, uint32_t rank, uint32_t ms, uint64_t id)
{
	*a = (struct asked){ .freeze = { .id = id, .ms = ms, .done = on_done, .owner = a } };
	engine_freeze(engine_of(rank), &a->freeze);
}

static int result_of(struct asked *a)
{
	while (!a->ended)
		turn(NULL);
	return a->result;
}

static uint32_t phase(uint32_t rank)
{
	return atomic_load(&engine_of(rank)->registry.control->phase);
}

static void all_go_to(uint32_t ranks, uint64_t goal)
{
	for (uint32_t rank = 0; rank < ranks; rank++)
		go_to(rank, goal);
}

/* Opens a job whose trainers are at different boundaries, and train on. */
static void open_training(void)
{
	boundaries_open(WORLD, &everywhere);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		for (uint32_t n = job_random(&job, 6); n; n--)
			boundary(rank);
	all_go_to(WORLD, GOAL);
}

static void until_all_have_come(uint32_t ranks)
{
	for (uint32_t rank = 0; rank < ranks; rank++)
		while (passed(rank) < GOAL || phase(rank) == CONTROL_FROZEN)
			turn(NULL);
	for (uint32_t rank = 0; rank < ranks; rank++)
		ck_assert_uint_ne(phase(rank), CONTROL_FROZEN);
}

static void expect_frozen(uint32_t ranks)
{
	uint64_t b = passed(0);

	for (int i = 0; i < STAY_TURNS; i++) {
		turn(NULL);
		for (uint32_t rank = 0; rank < ranks; rank++) {
			ck_assert_uint_eq(passed(rank), b);
			ck_assert_uint_eq(phase(rank), CONTROL_FROZEN);
		}
	}
	ck_assert_uint_lt(b, GOAL);
}

START_TEST(all_ranks_stand_at_one_boundary_until_they_are_thawed)
{
	open_training();
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	expect_frozen(WORLD);
	ask(&thaw, 1, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), 0);
	until_all_have_come(WORLD);
	job_check(&job);
	boundaries_close();
}
END_TEST

/* Returns the newest event of that name that a rank has; waits until it has one. */
static const char *newest(uint32_t rank, const char *name)
{
	const struct event_ring *ring = &engine_of(rank)->event_log->ring;
	char start[32];

	snprintf(start, sizeof(start), "{\"event\":\"%s\"", name);
	for (;; turn(NULL))
		for (uint64_t n = ring->count; n; n--)
			if (strstr(ring->lines[n % EVENT_RING_KEPT], start))
				return ring->lines[n % EVENT_RING_KEPT];
}

/* Checks that each rank has an event with that text, because the rank that is asked for the
 * history may die.
 */
static void expect_thaw_told(uint32_t ranks, const char *text)
{
	for (uint32_t rank = 0; rank < ranks; rank++)
		ck_assert_ptr_nonnull(strstr(newest(rank, "thaw"), text));
}

START_TEST(anybody_may_thaw_and_who_froze_can_tell)
{
	open_training();
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	ask(&thaw, 3, 0, 0);
	ck_assert_int_eq(result_of(&thaw), 0);
	expect_thaw_told(WORLD, "\"by\":{\"rank\":3,");
	until_all_have_come(WORLD);
	ask(&thaw, 1, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), -ETIMEDOUT);
	boundaries_close();
}
END_TEST

/* i: 1: the rank does not even take it later. */
START_TEST(a_thaw_waits_for_the_queue_of_a_rank_and_not_for_ever)
{
	open_training();
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	loss = (struct loss){ .from = 3, .to = 2, .type = WIRE_THAW, .result = -EAGAIN };
	ask(&thaw, 3, 0, 0);
	while (!thaw.ended && (_i || loss.dropped < 3))
		turn(NULL);
	ck_assert_int_eq(thaw.ended, _i);
	ck_assert_int_eq(thaw.result, _i ? -EIO : 0);
	loss.type = 0;
	if (_i)
		ask(&thaw, 3, 0, 0);
	ck_assert_int_eq(result_of(&thaw), 0);
	until_all_have_come(WORLD);
	boundaries_close();
}
END_TEST

START_TEST(a_second_freeze_is_refused_while_the_first_lasts)
{
	open_training();
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	ask(&second, 2, LONG_MS, 0);
	ck_assert_int_eq(result_of(&second), -EBUSY);
	expect_frozen(WORLD);
	ask(&thaw, 1, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), 0);
	ask(&second, 2, LONG_MS, 0);
	ck_assert_int_eq(result_of(&second), 0);
	expect_frozen(WORLD);
	ask(&thaw, 0, 0, 0);
	ck_assert_int_eq(result_of(&thaw), 0);
	until_all_have_come(WORLD);
	boundaries_close();
}
END_TEST

START_TEST(a_refused_freeze_does_not_keep_edits_from_the_boundary)
{
	struct writer w;

	open_training();
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	ask(&second, 2, LONG_MS, 0);
	ck_assert_int_eq(result_of(&second), -EBUSY);
	start(&w, 2, "fp32", 1);
	ck_assert_int_eq(result(&w), 0);
	expect("fp32", &w);
	expect_frozen(WORLD);
	ask(&thaw, 0, 0, 0);
	ck_assert_int_eq(result_of(&thaw), 0);
	until_all_have_come(WORLD);
	boundaries_close();
}
END_TEST

START_TEST(edits_go_in_where_the_trainers_stand_each_a_generation)
{
	struct writer w;
	uint64_t b;

	open_training();
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	b = passed(0);
	for (uint32_t i = 1; i <= 3; i++) {
		start(&w, job_random(&job, WORLD), "fp32", (float)i);
		ck_assert_int_eq(result(&w), 0);
		expect("fp32", &w);
		job_check(&job);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			ck_assert_uint_eq(generation(rank), control_page_generation(b) + i);
	}
	expect_frozen(WORLD);
	ask(&thaw, 1, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), 0);
	until_all_have_come(WORLD);
	job_check(&job);
	boundaries_close();
}
END_TEST

START_TEST(edits_and_a_freeze_at_once_end)
{
	struct writer w[3];

	open_training();
	for (uint32_t i = 0; i < 3; i++)
		start(&w[i], i, "fp32", (float)i);
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	expect_frozen(WORLD);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(result(&w[i]), 0);
	ask(&thaw, 1, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), 0);
	until_all_have_come(WORLD);
	for (uint32_t rank = 1; rank < WORLD; rank++)
		ck_assert_uint_eq(generation(rank), generation(0));
	boundaries_close();
}
END_TEST

/* ---- the end of a freeze by its bound ---- */

START_TEST(the_bound_ends_it_on_the_ranks_themselves)
{
	open_training();
	ask(&first, 2, 300, 0);
	ck_assert_int_eq(result_of(&first), 0);
	expect_frozen(WORLD);
	expect_thaw_told(WORLD, "\"why\":\"its time was over\"");
	until_all_have_come(WORLD);
	ask(&thaw, 2, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), -ETIMEDOUT);
	boundaries_close();
}
END_TEST

/* ---- a rank leaves a freeze ---- */

static struct leaving {
	unsigned calls;
	int result;
} leaving;

static int frozen(void *arg)
{
	struct leaving *l = arg;

	l->calls++;
	return l->result;
}

/* i: how many turns an edit has had that begins before the rank leaves. */
START_TEST(a_trainer_that_is_to_end_leaves_a_freeze_and_the_others_stand)
{
	struct writer w;
	uint64_t b;

	leaving = (struct leaving){ 0 };
	open_training();
	ck_assert_int_eq(frag_frozen_call(NULL, frozen, &leaving), -EINVAL);
	ck_assert_int_eq(frag_frozen_call(job_frag(&job, 2), frozen, &leaving), 0);
	ask(&first, 1, LONG_MS, 0);
	ck_assert_int_eq(result_of(&first), 0);
	expect_frozen(WORLD);
	ck_assert_uint_gt(leaving.calls, 0);
	b = passed(0);
	start(&w, job_random(&job, WORLD), "fp32", 1);
	for (int n = 0; n < _i; n++)
		turn(NULL);
	leaving.result = 1;
	while (passed(2) < GOAL)
		turn(NULL);
	ck_assert_ptr_nonnull(strstr(newest(2, "thaw"), "\"by\":{\"rank\":2,"));
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != 2) {
			ck_assert_uint_eq(passed(rank), b);
			ck_assert_uint_eq(phase(rank), CONTROL_FROZEN);
		}
	leaving.calls = 0;
	ask(&thaw, 1, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), -ETIMEDOUT);
	all_go_to(WORLD, 2 * GOAL);
	ck_assert_int_eq(result(&w), 0);
	expect("fp32", &w);
	until_all_have_come(WORLD);
	job_check(&job);
	for (uint32_t rank = 1; rank < WORLD; rank++)
		ck_assert_uint_eq(generation(rank), generation(0));
	ck_assert_uint_eq(leaving.calls, 0);
	boundaries_close();
}
END_TEST

static bool is_waiting(uint32_t rank)
{
	char *text = engine_text(engine_of(rank), "inflight");
	bool found = text && strstr(text, "waiting for its boundary");

	free(text);
	return found;
}

START_TEST(a_job_that_does_not_come_to_the_boundary_is_not_stopped)
{
	boundaries_open(WORLD, &everywhere);
	ask(&first, 2, _i ? LONG_MS : 200, 0);
	turn(NULL);
	ck_assert(is_waiting(2));
	for (uint32_t n = job_random(&job, 20); n; n--)
		turn(NULL);
	if (_i)
		engine_freeze_cancel(engine_of(2), &first.freeze);
	ck_assert_int_eq(result_of(&first), _i ? -ECANCELED : -ETIMEDOUT);
	all_go_to(WORLD, GOAL);
	until_all_have_come(WORLD);
	boundaries_close();
}
END_TEST

/* i: 0: no rank comes; 1: the engine of one does not answer; 2: only the trainer of one does
 * not come.
 */
START_TEST(a_freeze_in_vain_names_the_ranks_that_were_late)
{
	static const char *const late[] = {
		"rank 0 was at boundary 1, rank 1 was at boundary 1, and 2 more",
		" and did not answer, ",
		"rank 1 was at boundary 1\"",
	};
	const char *event;

	boundaries_open(WORLD, &everywhere);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		boundary(rank);
	asleep[1] = _i == 1;
	ask(&first, 2, 500, 0);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (!asleep[rank] && !participant_pending(&engine_of(rank)->participant, 2))
			turn(NULL);
	for (uint32_t rank = 0; rank < WORLD && _i; rank++)
		if (rank != 1)
			go_to(rank, 2);
	ck_assert_int_eq(result_of(&first), -ETIMEDOUT);
	asleep[1] = false;
	event = newest(0, "freeze"); /* event is kept before the late rank comes */
	ck_assert_ptr_nonnull(strstr(event, "\"not all ranks came to boundary 2 in time: "));
	ck_assert_msg(strstr(event, late[_i]), "%s", event);
	all_go_to(WORLD, GOAL);
	until_all_have_come(WORLD);
	boundaries_close();
}
END_TEST

/* Makes rank 3 pass every boundary that the coordinator proposes before rank 3 hears of the
 * proposal.
 */
static void turn_hurried(void)
{
	asleep[3] = true;
	turn(NULL);
	while (passed(3) <= engine_of(0)->commit.coordinator->boundary)
		boundary(3);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		asleep[rank] = rank != 3;
	turn(NULL);
	memset(asleep, 0, sizeof(asleep));
}

START_TEST(a_boundary_that_a_rank_always_passes_first_is_not_agreed_on)
{
	struct writer w;

	boundaries_open(WORLD, &everywhere);
	sent.type = WIRE_PREPARE;
	if (_i) {
		start(&w, 1, "fp32", 1);
		while (!w.ended)
			turn_hurried();
		ck_assert_int_eq(result(&w), -EBUSY);
	} else {
		ask(&first, 1, LONG_MS, 0);
		while (!first.ended)
			turn_hurried();
		ck_assert_int_eq(first.result, -ESTALE);
	}
	ck_assert_uint_gt(sent.n, WORLD);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_ne(phase(rank), CONTROL_FROZEN);
	all_pass(passed(3) + 1);
	ask(&second, 2, LONG_MS, 0);
	all_go_to(WORLD, passed(3) + GOAL);
	ck_assert_int_eq(result_of(&second), 0);
	ask(&thaw, 2, 0, second.freeze.id);
	ck_assert_int_eq(result_of(&thaw), 0);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (waits_inside(rank))
			turn(NULL);
	job_check(&job);
	boundaries_close();
}
END_TEST

/* ---- a rank dies ---- */

static void until_promised(void)
{
	for (bool all = false; !all;) {
		turn(NULL);
		all = true;
		for (uint32_t rank = 0; rank < WORLD; rank++)
			all &= participant_pending(&engine_of(rank)->participant, 1);
	}
}

START_TEST(a_rank_that_dies_on_its_way_does_not_keep_the_others_from_standing)
{
	boundaries_open(WORLD, &everywhere);
	ask(&first, 1, LONG_MS, 0);
	until_promised();
	die(3, _i);
	all_go_to(WORLD - 1, GOAL);
	ck_assert_int_eq(result_of(&first), 0);
	expect_frozen(WORLD - 1);
	ask(&thaw, 1, 0, first.freeze.id);
	ck_assert_int_eq(result_of(&thaw), 0);
	until_all_have_come(WORLD - 1);
	boundaries_close();
}
END_TEST

START_TEST(a_coordinator_that_dies_undecided_stops_nobody)
{
	boundaries_open(WORLD, &everywhere);
	ask(&first, 2, LONG_MS, 0);
	until_promised();
	die(0, _i);
	for (uint32_t rank = 1; rank < WORLD; rank++)
		go_to(rank, GOAL);
	for (uint32_t rank = 1; rank < WORLD; rank++)
		while (passed(rank) < GOAL)
			turn(NULL);
	ck_assert_int_ne(result_of(&first), 0);
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("freeze");
	TCase *t = tcase_create("freeze");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, all_ranks_stand_at_one_boundary_until_they_are_thawed, 0, 8);
	tcase_add_loop_test(t, a_freeze_in_vain_names_the_ranks_that_were_late, 0, 3);
	tcase_add_test(t, anybody_may_thaw_and_who_froze_can_tell);
	tcase_add_loop_test(t, a_thaw_waits_for_the_queue_of_a_rank_and_not_for_ever, 0, 2);
	tcase_add_test(t, a_second_freeze_is_refused_while_the_first_lasts);
	tcase_add_test(t, a_refused_freeze_does_not_keep_edits_from_the_boundary);
	tcase_add_loop_test(t, edits_go_in_where_the_trainers_stand_each_a_generation, 0, 4);
	tcase_add_loop_test(t, edits_and_a_freeze_at_once_end, 0, 8);
	tcase_add_test(t, the_bound_ends_it_on_the_ranks_themselves);
	tcase_add_loop_test(t, a_trainer_that_is_to_end_leaves_a_freeze_and_the_others_stand, 0,
			    12);
	tcase_add_loop_test(t, a_job_that_does_not_come_to_the_boundary_is_not_stopped, 0, 2);
	tcase_add_loop_test(t, a_boundary_that_a_rank_always_passes_first_is_not_agreed_on, 0,
			    2);
	tcase_add_loop_test(
		t, a_rank_that_dies_on_its_way_does_not_keep_the_others_from_standing, 0, 2);
	tcase_add_loop_test(t, a_coordinator_that_dies_undecided_stops_nobody, 0, 2);
	return run_suite(s, t);
}

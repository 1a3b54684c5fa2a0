/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/observed.h"
#include "tests/run-suite.h"

#include "engine/job/barrier.h"
#include "engine/base/log.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* frag_barrier when ranks do not come, or messages get lost. */

enum { SHORT_MS = 50, WAIT_MS = 60000, MANY_RANKS = 12 };

#define REFUSED(error, call) ck_assert_int_eq(call, -(error))

static void expect_said(const char *what)
{
	static char text[65536];

	log_tail(text, sizeof(text));
	ck_assert_msg(strstr(text, what) != NULL, "%s", text);
}

static int pass(uint32_t rank, unsigned timeout_ms)
{
	return frag_barrier(job_frag(&job, rank), timeout_ms);
}

START_TEST(who_does_not_come_in_time_is_named_on_all_that_waited)
{
	open_far();
	for (int i = 0; i < 2; i++) {
		REFUSED(ETIMEDOUT, pass(0, SHORT_MS));
		expect_said("frag_barrier: ranks 1 2 have not come in time\n");
	}
	REFUSED(ETIMEDOUT, pass(2, 0));
	expect_said("frag_barrier: rank 1 has not come in time\n");
	close_job();
}
END_TEST

START_TEST(who_calls_again_passes_the_one_that_was_not_waited_for)
{
	open_far();
	for (int i = 0; i < 2; i++) {
		REFUSED(ETIMEDOUT, pass(0, SHORT_MS));
		REFUSED(ETIMEDOUT, pass(1, SHORT_MS));
		ck_assert_int_eq(pass(2, WAIT_MS), 0);
		/* messages that came too late are heard */
		for (int turns = 0; turns < 100; turns++)
			turn(NULL);
		ck_assert_int_eq(pass(0, SHORT_MS), 0);
		ck_assert_int_eq(pass(1, SHORT_MS), 0);
	}
	close_job();
}
END_TEST

START_TEST(of_many_the_first_are_named)
{
	static const struct job_param params[] = { { "w", .ndim = 1, .shape = { 64 } } };
	static const struct job_group groups[] = {
		{ .stage = 1, .nparams = 1, .params = { 0 } }
	};

	job_open(&job, &(struct job_spec){
			       .world = MANY_RANKS, JOB_PARAMS(params), JOB_GROUPS(groups) });
	REFUSED(ETIMEDOUT, pass(2, SHORT_MS));
	expect_said("frag_barrier: ranks 0 1 3 4 5 6 7 8 and 3 more have not come in time\n");
	job_close(&job);
}
END_TEST

START_TEST(before_all_have_joined_who_has_not_is_named)
{
	struct launch launch = { .world = 2, .job = "alone", .host = "host", .plain = true };
	struct frag *f;

	ck_assert_int_eq(
		api_open_over(&f, &launch, &transport_loop, &transport_loop, NULL, false), 0);
	ck_assert_int_eq(frag_ready(f), 0);
	REFUSED(ETIMEDOUT, frag_barrier(f, SHORT_MS));
	expect_said("frag_barrier: job alone: 1 of 2 ranks have joined; not yet: 1\n");
	frag_close(f);
}
END_TEST

START_TEST(a_rank_0_that_cannot_say_who_has_not_come_is_not_waited_for_for_ever)
{
	const struct fault *fault;

	open_far();
	fault = faults_add(
		&(struct fault){ FAULT_SEND, .type = WIRE_REFUSE, .count = MANY,
				 .of = job_frag(&job, 0)->engine->messages.transport });
	REFUSED(ETIMEDOUT, pass(1, SHORT_MS));
	ck_assert_uint_gt(fault->fired, 1);
	expect_said("frag_barrier: rank 0 does not answer\n");
	faults_clear();
	REFUSED(ETIMEDOUT, pass(1, SHORT_MS));
	expect_said("frag_barrier: ranks 0 2 have not come in time\n");
	close_job();
}
END_TEST

/* ---- messages are lost ---- */

static int pass_barrier(void)
{
	struct engine *e;

	for (uint32_t rank = 0; rank < WORLD; rank += 2) {
		e = job_frag(&job, rank)->engine;
		e->job.barrier->wanted = e->job.barrier->passed + 1;
	}
	return frag_barrier(job_frag(&job, 1), 60000);
}

START_TEST(a_barrier_whose_answers_are_lost_is_passed_all_the_same)
{
	const struct fault *fault;

	open_far();
	fault = faults_add(
		&(struct fault){ FAULT_SEND, .type = WIRE_PASSED, .count = 2,
				 .of = job_frag(&job, 0)->engine->messages.transport });
	ck_assert_int_eq(pass_barrier(), 0);
	ck_assert_uint_eq(fault->fired, 2);
	close_job();
}
END_TEST

START_TEST(a_barrier_that_is_answered_by_nonsense_is_an_error)
{
	const struct fault *fault;

	open_far();
	fault = faults_add(&(struct fault){
		FAULT_SEND, .type = WIRE_PASSED, .acked = true, .result = _i ? -ETIMEDOUT : 0,
		.count = MANY, .of = job_frag(&job, 0)->engine->messages.transport });
	REFUSED(EIO, pass_barrier());
	ck_assert_uint_gt(fault->fired, 0);
	close_job();
}
END_TEST

START_TEST(a_barrier_with_a_rank_0_that_says_nothing_is_an_error)
{
	open_far();
	faults_add(&(struct fault){ FAULT_SEND, .count = MANY,
				    .of = job_frag(&job, 0)->engine->messages.transport });
	REFUSED(EIO, pass_barrier());
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("barrier");
	TCase *t = tcase_create("barrier");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, who_does_not_come_in_time_is_named_on_all_that_waited);
	tcase_add_test(t, who_calls_again_passes_the_one_that_was_not_waited_for);
	tcase_add_test(t, of_many_the_first_are_named);
	tcase_add_test(t, before_all_have_joined_who_has_not_is_named);
	tcase_add_test(t, a_rank_0_that_cannot_say_who_has_not_come_is_not_waited_for_for_ever);
	tcase_add_test(t, a_barrier_whose_answers_are_lost_is_passed_all_the_same);
	tcase_add_loop_test(t, a_barrier_that_is_answered_by_nonsense_is_an_error, 0, 2);
	tcase_add_test(t, a_barrier_with_a_rank_0_that_says_nothing_is_an_error);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/run-suite.h"

#include "engine/commit/coordinator.h"
#include "engine/commit/edit-report.h"
#include "engine/commit/termination.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/write/stage.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Two-phase commit with ranks that die: the ranks that live apply an edit at one boundary, or
 * none does, and each wait of a rank ends.
 */

static const struct job_group everywhere = { .stage = 0, .nparams = 2, .params = { 0, 1 } };
static const struct job_group sharded = { .stage = 1, .nparams = 2, .params = { 0, 1 } };

/* ---- what each rank keeps of an edit ---- */

/* Returns how many lines of the rank's history have that text. */
static unsigned lines(uint32_t rank, const char *text)
{
	static char kept[8 * EVENT_RING_LINE_MAX];
	uint64_t after = 0;
	unsigned n = 0;
	size_t size = event_ring_read(&engine_of(rank)->event_log->ring, &after, kept,
				      sizeof(kept) - 1);

	kept[size] = '\0';
	for (char *at = kept, *line; (line = strsep(&at, "\n"));)
		n += strstr(line, text) != NULL;
	return n;
}

static const char named[] = "\"rank\":%u,\"uid\":%u,\"pid\":%d,";

/* Checks that the rank has one line of the edit, with its writer and its end. */
static void expect_line(uint32_t rank, uint32_t writer, const char *end)
{
	char by[64];

	snprintf(by, sizeof(by), named, writer, getuid(), getpid());
	while (!lines(rank, "\"edit\""))
		turn(NULL);
	ck_assert_uint_eq(lines(rank, "\"edit\""), 1);
	ck_assert_uint_eq(lines(rank, by), 1);
	ck_assert_uint_eq(lines(rank, "\"param\":\"w\",\"state\":"), 1);
	ck_assert_uint_eq(lines(rank, end), 1);
}

static const char committed[] = "\"bytes\":148,\"boundary\":1,\"outcome\":\"committed\"";
static const char aborted[] = "\"bytes\":148,\"outcome\":\"aborted\"";

START_TEST(each_rank_keeps_a_line_of_each_edit)
{
	struct writer w;

	boundaries_open(3, &everywhere);
	start(&w, 1, "fp32", 7);
	until_accepted(&w);
	if (_i)
		engine_write_cancel(w.e, &w.write);
	else
		all_pass(1);
	ck_assert_int_eq(result(&w), _i ? -ECANCELED : 0);
	for (uint32_t rank = 0; rank < 3; rank++) {
		expect_line(rank, 1, _i ? aborted : committed);
		ck_assert_uint_eq(lines(rank, strerror(ECANCELED)), (unsigned)_i);
	}
	job_close(&job);
}
END_TEST

/* A COMMIT is repeated to a rank that has become the coordinator meanwhile. */
START_TEST(a_commit_that_no_rank_may_promise_any_more_is_not_begun)
{
	struct wire_commit commit = { .transaction = { 7, 7 } };
	uint8_t everybody[3] = { 1, 1, 1 };
	struct engine *e;

	boundaries_open(3, &everywhere);
	e = engine_of(0);
	participant_outcome(&e->participant,
			    commit.transaction); /* from now on rank 0 may not promise it */
	pthread_mutex_lock(&e->lock);
	coordinator_commit(e, NODE_LOCAL, 1, &commit, everybody, sizeof(everybody));
	pthread_mutex_unlock(&e->lock);
	ck_assert(LIST_EMPTY(&e->commit.coordinator->transactions));
	all_pass(1);
	job_close(&job);
}
END_TEST

START_TEST(what_became_of_an_edit_is_kept_when_its_coordinator_dies)
{
	struct writer w;

	boundaries_open(3, &everywhere);
	start(&w, 2, "fp32", 7);
	until_accepted(&w);
	if (_i) {
		loss.from = 0;
		loss.to = 2;
		loss.type = WIRE_DECIDE;
		boundary(1); /* rank 1 has the decision, and goes on */
	}
	die(0, true);
	all_pass(2);
	ck_assert_int_eq(result(&w), _i ? 0 : -EIO);
	for (uint32_t rank = 1; rank < 3; rank++)
		expect_line(rank, 2, _i ? committed : aborted);
	job_close(&job);
}
END_TEST

START_TEST(what_became_of_an_edit_whose_writer_dies_early_is_kept)
{
	struct writer w;

	boundaries_open(3, &everywhere);
	loss.from = 2;
	loss.to = 1;
	loss.type = WIRE_STAGE;
	start(&w, 2, "fp32", 7);
	while (!engine_of(0)->participant.count)
		turn(NULL);
	ck_assert_uint_eq(lines(0, "edit"), 0);
	asleep[2] = true;
	edit_report_gone(engine_of(0), TAILQ_FIRST(&engine_of(0)->participant.list)->writer);
	expect_line(0, 2, "\"why\":\"its writer was lost before it asked for a boundary\"");
	asleep[2] = false;
	engine_write_cancel(w.e, &w.write);
	ck_assert_int_eq(result(&w), -ECANCELED);
	all_pass(2);
	job_check(&job);
	ck_assert_uint_eq(lines(0, "\"edit\""), 1);
	job_close(&job);
}
END_TEST

START_TEST(a_rank_that_drops_an_edit_tells_the_first)
{
	static const uint64_t transaction[2] = { 5, 6 };
	struct edit_piece *piece;
	struct engine *e;

	boundaries_open(3, &sharded);
	e = engine_of(2);
	piece = participant_piece(&e->participant, e->registry.states.epoch, 0, 0, 4);
	memcpy(piece->data, "1234", 4);
	ck_assert_int_eq(participant_stage(&e->participant, transaction, 77, 1, false, piece),
			 0);
	participant_name(&e->participant, transaction,
			 &(struct wire_origin){ .writer = 9, .files = 1, .bytes = 4 });
	edit_report_gone(e, 77);
	while (!lines(0, "edit"))
		turn(NULL);
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert_uint_eq(lines(rank, "\"rank\":9,"), rank != 1);
	ck_assert(termination_outcome(engine_of(0), transaction) == WIRE_ABORTED);
	job_close(&job);
}
END_TEST

/* ---- no rank dies ---- */

START_TEST(edits_of_several_writers_end_in_one_order_on_every_rank)
{
	struct writer w[4];
	unsigned ended = 0, last;
	uint64_t n;

	boundaries_open(4, &everywhere);
	for (unsigned i = 0; i < 4; i++)
		start(&w[i], i, "fp32", (float)(i + 1));
	while (ended < 4) {
		uint32_t rank = job_random(&job, 4);

		turn(NULL);
		if (passed(rank) < 3000)
			boundary(rank);
		ended = 0;
		for (unsigned i = 0; i < 4; i++)
			ended += w[i].ended;
	}
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(result(&w[i]), 0);
	n = 0;
	for (uint32_t rank = 0; rank < 4; rank++)
		n = u64_max(n, passed(rank));
	all_pass(n);
	last = (unsigned)*(const float *)job_memory(&job, 0, 0, 0, "fp32")->bytes_at - 1;
	ck_assert_uint_lt(last, 4);
	expect("fp32", &w[last]);
	job_check(&job);
	for (uint32_t rank = 1; rank < 4; rank++)
		ck_assert_uint_eq(generation(rank), generation(0));
	job_close(&job);
}
END_TEST

START_TEST(a_rank_that_is_ahead_makes_the_boundary_a_later_one)
{
	struct writer w;

	boundaries_open(3, &everywhere);
	for (unsigned i = 0; i < 5; i++)
		boundary(2);
	start(&w, 1, "fp32", 7);
	until_accepted(&w);
	all_pass(5);
	ck_assert(!w.ended);
	job_check(&job); /* unchanged */
	while (!w.ended) {
		all_pass(passed(2) + 1);
		turn(NULL);
	}
	ck_assert_int_eq(result(&w), 0);
	expect("fp32", &w);
	job_check(&job);
	ck_assert_uint_gt(generation(0), control_page_generation(5));
	ck_assert_uint_eq(generation(0), generation(1));
	ck_assert_uint_eq(generation(0), generation(2));
	job_close(&job);
}
END_TEST

START_TEST(what_is_cancelled_before_it_is_decided_changes_nothing)
{
	struct writer w;

	boundaries_open(3, &everywhere);
	start(&w, 2, "fp32", 7);
	for (int i = 0; i < _i; i++)
		turn(NULL);
	engine_write_cancel(w.e, &w.write);
	ck_assert_int_eq(result(&w), -ECANCELED);
	all_pass(3);
	job_check(&job);
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert_uint_eq(generation(rank), 0);
	job_close(&job);
}
END_TEST

START_TEST(a_cancel_after_the_decision_comes_too_late)
{
	struct writer w;

	boundaries_open(2, &everywhere);
	start(&w, 1, "fp32", 7);
	until_accepted(&w);
	boundary(0); /* rank 0 decides */
	engine_write_cancel(w.e, &w.write);
	all_pass(1);
	ck_assert_int_eq(result(&w), 0);
	expect("fp32", &w);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(an_edit_inside_a_step_does_not_show_the_step_half_done)
{
	struct writer w;

	boundaries_open(2, &everywhere);
	for (uint32_t rank = 0; rank < 2; rank++)
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
	start(&w, 1, "fp32", 7);
	until_accepted(&w);
	all_pass(2);
	ck_assert_int_eq(result(&w), 0);
	for (uint32_t rank = 0; rank < 2; rank++) {
		ck_assert_uint_eq(
			control_page_content(engine_of(rank)->registry.control, false), 0);
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
		ck_assert_uint_eq(generation(rank), control_page_generation(3));
	}
	expect("fp32", &w);
	job_check(&job);
	job_close(&job);
}
END_TEST

/* ---- a rank dies ---- */

START_TEST(a_holder_that_dies_before_the_decision_takes_the_edit_with_it)
{
	struct writer w;

	boundaries_open(4, &everywhere);
	start(&w, 1, "fp32", 7);
	if (_i)
		until_accepted(&w);
	die(3, _i < 2);
	ck_assert_int_eq(result(&w), -EIO);
	all_pass(4);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(a_coordinator_that_dies_before_the_decision_takes_the_edit_with_it)
{
	struct writer w;

	boundaries_open(3, &everywhere);
	start(&w, 2, "fp32", 7);
	until_accepted(&w);
	die(0, _i);
	all_pass(4);
	ck_assert_int_eq(result(&w), _i ? -EIO : -ETIMEDOUT);
	job_check(&job);
	/* rank 1, the next lowest, coordinates, but a holder is gone */
	start(&w, 1, "exp_avg", 5);
	ck_assert_int_eq(result(&w), _i ? -EIO : -ETIMEDOUT);
	job_close(&job);
}
END_TEST

START_TEST(a_decision_that_reached_one_rank_reaches_all_that_live)
{
	struct writer w;

	boundaries_open(4, &everywhere);
	start(&w, 1, "fp32", 7);
	until_accepted(&w);
	loss.from = 0;
	loss.to = 2;
	loss.type = WIRE_DECIDE;
	asleep[3] = true;
	boundary(1); /* rank 1 has the decision, and goes on */
	ck_assert_uint_eq(loss.dropped, 1);
	die(0, _i);
	asleep[3] = false;
	all_pass(3);
	expect("fp32", &w);
	job_check(&job);
	ck_assert_int_eq(result(&w), 0); /* the writer has asked the others */
	for (uint32_t rank = 1; rank < 4; rank++)
		ck_assert_uint_eq(generation(rank), control_page_generation(1) + 1);
	job_close(&job);
}
END_TEST

/* ---- a rank is held for dead ---- */

START_TEST(a_rank_held_for_lost_learns_what_was_decided_without_it)
{
	struct writer w;

	boundaries_open(3, &sharded);
	start(&w, 1, "exp_avg", 7);
	until_accepted(&w);
	loss.from = 0;
	loss.to = 2;
	loss.type = WIRE_DECIDE;
	boundary(0);
	loss.type = 0;
	if (_i)
		peers_lose(engine_of(0), 2, -EIO, "held for lost by the test");
	all_pass(2); /* rank 2 waits, asks, and hears the decision */
	ck_assert_uint_eq(generation(2), generation(0));
	ck_assert_int_eq(result(&w), 0);
	expect("exp_avg", &w);
	job_check(&job);
	job_close(&job);
}
END_TEST

static bool has_aborted(uint32_t rank, const uint64_t transaction[2])
{
	return participant_recall(&engine_of(rank)->participant, transaction, NULL) ==
	       WIRE_ABORTED;
}

static void lose_everywhere(uint32_t lost)
{
	for (uint32_t rank = 0; rank < job.spec.world; rank++)
		if (rank != lost)
			peers_lose(engine_of(rank), lost, -EIO, "held for lost by the test");
}

START_TEST(a_coordinator_that_slept_while_the_others_aborted_aborts_too)
{
	struct writer w;
	uint64_t transaction[2];

	boundaries_open(3, &everywhere);
	start(&w, 1, "fp32", 7);
	until_accepted(&w);
	memcpy(transaction, TAILQ_FIRST(&engine_of(1)->participant.list)->transaction,
	       sizeof(transaction));
	asleep[0] = true;
	lose_everywhere(0);
	while (!has_aborted(1, transaction) || !has_aborted(2, transaction))
		turn(NULL);
	asleep[0] = false;
	all_pass(2);
	ck_assert_int_eq(result(&w), -EIO);
	ck_assert(has_aborted(0, transaction));
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert_uint_eq(generation(rank), 0);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(the_writer_waits_for_a_rank_that_is_told_late)
{
	struct writer w;
	uint64_t transaction[2];

	boundaries_open(3, &everywhere);
	start(&w, 1, "fp32", 7);
	until_accepted(&w);
	memcpy(transaction, TAILQ_FIRST(&engine_of(2)->participant.list)->transaction,
	       sizeof(transaction));
	asleep[2] = true;
	boundary(0);
	boundary(1);
	while (coordinator_arrived(engine_of(0), 2, transaction) != WIRE_COMMITTED)
		turn(NULL);
	for (int i = 0; i < 10; i++)
		turn(NULL);
	ck_assert(!w.ended);
	asleep[2] = false;
	boundary(2);
	ck_assert_int_eq(result(&w), 0);
	expect("fp32", &w);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(a_coordinator_held_for_lost_by_one_rank_still_decides_for_all)
{
	struct writer w;

	boundaries_open(3, &everywhere);
	start(&w, 2, "fp32", 7);
	until_accepted(&w);
	peers_lose(engine_of(1), 0, -EIO, "held for lost by the test");
	for (int i = 0; i < 10 * (int)job_random(&job, 10); i++)
		turn(NULL);
	all_pass(2);
	ck_assert_int_eq(result(&w), 0);
	expect("fp32", &w);
	job_check(&job);
	for (uint32_t rank = 0; rank < 3; rank++)
		ck_assert_uint_eq(generation(rank), control_page_generation(1) + 1);
	job_close(&job);
}
END_TEST

/* ---- gradients ---- */

START_TEST(an_edit_of_gradients_is_applied_in_its_own_window)
{
	struct writer w;

	boundaries_open(3, &sharded);
	job_grads_valid(&job);
	start(&w, 1, "grad", 7);
	until_accepted(&w);
	all_pass(1);
	ck_assert_int_eq(result(&w), 0);
	expect("grad", &w);
	job_check(&job);
	job_close(&job);
}
END_TEST

/* Makes an edit that was started just now one of any window, as an observer's are. */
static void of_any_window(struct writer *w)
{
	LIST_FIRST(&w->e->write.transactions)->proposal.commit.window = 0;
}

/* Starts an edit of gradients, which become invalid, and valid again.  The edit is decided
 * between the two windows, or in the second.
 */
static void edit_over_windows(struct writer *w, bool observers, bool between)
{
	boundaries_open(3, &sharded);
	job_grads_valid(&job);
	start(w, 1, "grad", 7);
	if (observers)
		of_any_window(w);
	until_accepted(w);
	job_grads_gone(&job);
	if (between)
		all_pass(1);
	job_grads_valid(&job);
	all_pass(2);
}

START_TEST(an_edit_of_gradients_does_not_reach_the_next_ones)
{
	struct writer w;

	edit_over_windows(&w, false, _i);
	ck_assert_int_eq(result(&w), -ENODATA);
	job_check(&job);
	job_close(&job);
}
END_TEST

/* An observer's edit names no window, because an observer is mostly between two steps. */
START_TEST(an_observer_edits_gradients_in_the_next_window_with_a_boundary)
{
	struct writer w;

	edit_over_windows(&w, true, _i);
	ck_assert_int_eq(result(&w), 0);
	expect("grad", &w);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(gradients_that_one_rank_has_left_behind_are_refused_at_once)
{
	float value[NUMEL] = { 0 };

	boundaries_open(3, &sharded);
	job_grads_valid(&job);
	ck_assert_int_eq(frag_grads_gone(job_frag(&job, 2)), 0);
	ck_assert_int_eq(
		frag_set(job_frag(&job, 1), job_number(&job, 1, 0), "grad", value, BYTES),
		-ENODATA);
	ck_assert_int_eq(
		frag_set(job_frag(&job, 2), job_number(&job, 2, 0), "grad", value, BYTES),
		-ENODATA);
	all_pass(3);
	job_check(&job);
	job_close(&job);
}
END_TEST

static void add_tests(TCase *t)
{
	tcase_add_test(t, a_commit_that_no_rank_may_promise_any_more_is_not_begun);
	tcase_add_loop_test(t, each_rank_keeps_a_line_of_each_edit, 0, 2);
	tcase_add_loop_test(t, what_became_of_an_edit_is_kept_when_its_coordinator_dies, 0, 2);
	tcase_add_test(t, what_became_of_an_edit_whose_writer_dies_early_is_kept);
	tcase_add_test(t, a_rank_that_drops_an_edit_tells_the_first);
	tcase_add_loop_test(t, edits_of_several_writers_end_in_one_order_on_every_rank, 0, 8);
	tcase_add_test(t, a_rank_that_is_ahead_makes_the_boundary_a_later_one);
	tcase_add_loop_test(t, what_is_cancelled_before_it_is_decided_changes_nothing, 0, 30);
	tcase_add_test(t, a_cancel_after_the_decision_comes_too_late);
	tcase_add_test(t, an_edit_inside_a_step_does_not_show_the_step_half_done);
	tcase_add_loop_test(t, a_holder_that_dies_before_the_decision_takes_the_edit_with_it, 0,
			    3);
	tcase_add_loop_test(
		t, a_coordinator_that_dies_before_the_decision_takes_the_edit_with_it, 0, 2);
	tcase_add_loop_test(t, a_decision_that_reached_one_rank_reaches_all_that_live, 0, 3);
	tcase_add_test(t, a_coordinator_that_slept_while_the_others_aborted_aborts_too);
	tcase_add_test(t, the_writer_waits_for_a_rank_that_is_told_late);
	tcase_add_loop_test(t, a_rank_held_for_lost_learns_what_was_decided_without_it, 0, 2);
	tcase_add_loop_test(t, a_coordinator_held_for_lost_by_one_rank_still_decides_for_all, 0,
			    3);
	tcase_add_test(t, an_edit_of_gradients_is_applied_in_its_own_window);
	tcase_add_loop_test(t, an_observer_edits_gradients_in_the_next_window_with_a_boundary,
			    0, 2);
	tcase_add_loop_test(t, an_edit_of_gradients_does_not_reach_the_next_ones, 0, 2);
	tcase_add_test(t, gradients_that_one_rank_has_left_behind_are_refused_at_once);
}

int main(void)
{
	Suite *s = suite_create("agree");
	TCase *t = tcase_create("agree");

	tcase_set_timeout(t, 60);
	add_tests(t);
	return run_suite(s, t);
}

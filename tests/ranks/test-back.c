/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/observed.h"
#include "tests/run-suite.h"

#include "engine/job/join.h"
#include "engine/live/live.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* A rank is started again, and messages of the others come late. */

enum { SLOW = 800 }; /* turns in which an observer asks several times how a rank is */

static void lose(struct engine *e, uint32_t rank)
{
	peers_lose(e, rank, -EIO, "it was killed");
}

static void start_zero_again(void)
{
	job_start_again(&job, 0);
	job_frag(&job, 0)->engine->thread.yield = turn;
	lose(observer, 0);
	for (uint32_t rank = 1; rank < WORLD; rank++)
		lose(job_frag(&job, rank)->engine, 0);
}

/* Returns true if e knows the process that the rank is now. */
static bool knows(const struct engine *e, uint32_t rank)
{
	const struct control_page *page = job_frag(&job, rank)->engine->registry.control;

	return peer_is_live(&e->peers[rank]) &&
	       e->peers[rank].entry.cookie[0] == page->cookie[0];
}

static bool all_know(uint32_t of)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != of && !knows(job_frag(&job, rank)->engine, of))
			return false;
	return knows(observer, of);
}

/* A rank that is told of a newer table of ranks asks those for it that have it. */
START_TEST(a_rank_0_that_comes_back_is_known_to_all_however_late_its_table_is)
{
	const struct fault *fault;

	open_far();
	start_zero_again();
	fault = faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_TABLE, .count = MANY,
					    .of = job_frag(&job, 0)->engine->messages.transport,
					    .delay = SLOW });
	for (int i = 0; i < TURNS && !all_know(0); i++)
		turn(NULL);
	ck_assert_uint_gt(fault->fired, 0);
	ck_assert(all_know(0));
	close_job();
}
END_TEST

/* The observer has only this connection by which it would hear of ranks that come. */
START_TEST(an_observer_whose_connection_is_refused_makes_another)
{
	open_near();
	while (!observer->peers[0].linked || !LIST_EMPTY(&observer->rpc->list))
		turn(NULL);
	observer->messages.ops->disconnect(observer->messages.transport,
					   observer->peers[0].link);
	job_start_again(&job, 2);
	job_frag(&job, 2)->engine->thread.yield = turn;
	for (int i = 0; i < TURNS && !all_know(2); i++)
		turn(NULL);
	ck_assert(all_know(2));
	close_job();
}
END_TEST

/* The others forget the memory and the address of rank 0's former process. */
START_TEST(a_rank_that_has_left_and_comes_back_stays)
{
	open_near();
	job_start_again(&job, 2);
	job_frag(&job, 2)->engine->thread.yield = turn;
	for (int i = 0; i < TURNS && !all_know(2); i++)
		turn(NULL);
	for (int i = 0; i < SLOW; i++) {
		ck_assert(all_know(2));
		turn(NULL);
	}
	close_job();
}
END_TEST

START_TEST(a_known_rank_that_answers_in_place_of_its_last_process_is_not_lost)
{
	struct wire_entry entry;

	open_near();
	job_start_again(&job, 2);
	job_frag(&job, 2)->engine->thread.yield = turn;
	loop_turn(job_frag(&job, 2)->engine, 0); /* rank 2 has an address now */
	observer->peers[2].replaced = true;
	join_fill_entry(job_frag(&job, 2)->engine, &entry);
	peers_set_entry(observer, &entry);
	turn(NULL);
	ck_assert(knows(observer, 2));
	close_job();
}
END_TEST

/* The engine thread has found that a request has no answer, and has not lost the rank yet. */
START_TEST(a_silent_rank_that_is_gone_has_ended)
{
	open_near();
	observer->peers[2].silent = true;
	peers_reach(observer, 2);
	peers_gone(observer, observer->peers[2].link);
	peers_turn(observer, monotonic_ms());
	ck_assert_int_eq(peers_lost_status(observer, 2), -EIO);
	ck_assert(peers_has_ended(observer, 2));
	close_job();
}
END_TEST

START_TEST(since_when_a_rank_lives_stays_as_it_was)
{
	struct engine_rank before, after;
	time_t opened = time(NULL);

	open_near();
	ck_assert(live_rank(observer, 1, &before));
	ck_assert(before.since >= opened && before.since <= time(NULL));
	for (int i = 0; i < SLOW; i++)
		turn(NULL);
	ck_assert(live_rank(observer, 1, &after));
	ck_assert_uint_gt(after.since_ms, before.since_ms);
	ck_assert_int_eq(after.since, before.since);
	close_job();
}
END_TEST

/* Groups other than the job's, which are of stage 1. */
static const struct job_group others[] = { { .stage = 2, .nparams = 2, .params = { 0, 2 } } };

static void start_again_with(uint32_t rank, const struct job_group *groups)
{
	job.spec.groups = groups;
	job_start_again(&job, rank);
	job_frag(&job, rank)->engine->thread.yield = turn;
}

START_TEST(a_rank_that_comes_back_with_another_description_is_lost_until_it_comes_right)
{
	const struct job_group *right;
	const struct engine *zero;

	_i ? open_far() : open_near();
	right = job.spec.groups;
	zero = job_frag(&job, 0)->engine;
	start_again_with(2, others);
	for (int i = 0; i < TURNS && !job_frag(&job, 2)->engine->job.failure; i++)
		turn(NULL);
	ck_assert_int_eq(job_frag(&job, 2)->engine->job.failure, -EINVAL);
	for (int i = 0; i < SLOW; i++)
		turn(NULL);
	ck_assert_uint_eq(observer->job.membership, zero->job.membership);
	ck_assert_int_eq(observer->peers[2].state, ENGINE_RANK_LOST);
	ck_assert_ptr_nonnull(strstr(observer->peers[2].why, "left the job"));
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), -EIO);
	start_again_with(2, right);
	for (int i = 0; i < TURNS && !all_know(2); i++)
		turn(NULL);
	ck_assert(all_know(2));
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("back");
	TCase *t = tcase_create("back");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_rank_0_that_comes_back_is_known_to_all_however_late_its_table_is);
	tcase_add_test(t, an_observer_whose_connection_is_refused_makes_another);
	tcase_add_test(t, a_rank_that_has_left_and_comes_back_stays);
	tcase_add_test(t, a_known_rank_that_answers_in_place_of_its_last_process_is_not_lost);
	tcase_add_test(t, a_silent_rank_that_is_gone_has_ended);
	tcase_add_test(t, since_when_a_rank_lives_stays_as_it_was);
	tcase_add_loop_test(
		t, a_rank_that_comes_back_with_another_description_is_lost_until_it_comes_right,
		0, 2);
	return run_suite(s, t);
}

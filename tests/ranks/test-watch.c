/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"

#include "engine/join.h"
#include "engine/turn.h"
#include "engine/watch.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An observer that waits for the job, on the ranks' host (memory) and on another (messages). */

enum { WORLD = 2, MANY = 64 };

static const struct job_param params[] = { { "w", .ndim = 2, .shape = { 9, 7 } } };
static const struct job_group groups[] = { { .stage = 2, .nparams = 1, .params = { 0 } } };

static struct job job;
static struct engine *observer;

static void turn(void *arg)
{
	engine_turn(observer, 0);
	job_turn(&job);
}

/* Turns all until *what is n. */
static void turn_until(const unsigned *what, unsigned n)
{
	uint64_t deadline = monotonic_ms() + JOB_WAIT_MS;

	while (*what != n) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		turn(NULL);
	}
}

static void open_observer(const char *host)
{
	char seed[160];

	ck_assert_int_eq(turn_new(&observer, &transport_loop, &transport_loop), 0);
	observer->yield = turn;
	observer->writable = true;
	snprintf(observer->launch.host, sizeof(observer->launch.host), "%s", host);
	ck_assert_int_eq(node_open_messages(observer, NULL), 0);
	snprintf(seed, sizeof(seed), "%s", job_frag(&job, 0)->engine->address);
	ck_assert_int_eq(join_start_observer(observer, seed), 0);
	while (!observer->ready)
		turn(NULL);
}

static const char *const hosts[] = { "host 0", "elsewhere" };

static void open_job(int host)
{
	job_open(&job,
		 &(struct job_spec){ .world = WORLD, JOB_PARAMS(params), JOB_GROUPS(groups) });
	open_observer(hosts[host]);
}

static void close_job(void)
{
	turn_free(observer);
	job_close(&job);
}

static unsigned done, cancelled;

static void came(struct engine_wait *wait, int result)
{
	done++;
	cancelled += result == -ECANCELED;
}

/* Waits whose `seen` is what is there now. */
static void start(struct engine_wait *waits, unsigned n)
{
	struct engine_job now;

	done = cancelled = 0;
	do { /* what it has not heard yet it hears first */
		struct engine_wait first = { .done = came };

		engine_job(observer, &now);
		first.seen = engine_changes(observer);
		engine_wait(observer, &first);
		for (int i = 0; i < 20; i++)
			turn(NULL);
		engine_wait_cancel(observer, &first);
		turn_until(&done, 1);
		done = 0;
	} while (!cancelled);
	cancelled = 0;
	for (unsigned i = 0; i < n; i++) {
		waits[i] =
			(struct engine_wait){ .seen = engine_changes(observer), .done = came };
		engine_wait(observer, &waits[i]);
	}
	for (int i = 0; i < 20; i++)
		turn(NULL);
	ck_assert_uint_eq(done, 0);
}

static void step(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
	}
}

START_TEST(a_step_ends_all_waits)
{
	struct engine_wait waits[MANY];
	struct engine_job now;
	uint64_t asked;

	open_job(_i);
	start(waits, MANY);
	asked = observer->counters.messages_out;
	step();
	turn_until(&done, MANY);
	ck_assert_uint_eq(cancelled, 0);
	engine_job(observer, &now);
	ck_assert_uint_eq(now.step, 1);
	ck_assert_str_eq(now.phase, "stable");
	/* 64 cost as one: at most a WAIT anew, and pings */
	ck_assert_uint_le(observer->counters.messages_out - asked, 3);
	close_job();
}
END_TEST

START_TEST(a_cancelled_wait_ends_and_the_others_go_on)
{
	struct engine_wait waits[3];

	open_job(_i);
	start(waits, 3);
	engine_wait_cancel(observer, &waits[1]);
	turn_until(&done, 1);
	ck_assert_uint_eq(cancelled, 1);
	step();
	turn_until(&done, 3);
	ck_assert_uint_eq(cancelled, 1);
	close_job();
}
END_TEST

START_TEST(nobody_waits_and_nothing_is_asked)
{
	struct engine_wait wait;
	uint64_t deadline;

	open_job(_i);
	start(&wait, 1);
	step();
	turn_until(&done, 1);
	deadline = monotonic_ms() + JOB_WAIT_MS;
	while (job_frag(&job, 0)->engine->waiters) { /* its last WAIT is answered in time */
		ck_assert_uint_lt(monotonic_ms(), deadline);
		turn(NULL);
	}
	ck_assert(!watch_ticks(observer));
	step();
	for (int i = 0; i < 50; i++)
		turn(NULL);
	ck_assert_ptr_null(job_frag(&job, 0)->engine->waiters);
	close_job();
}
END_TEST

START_TEST(the_end_of_the_job_is_a_change)
{
	struct engine_wait wait;
	struct engine_job now;

	open_job(_i);
	observer->timeout_ms = 300;
	start(&wait, 1);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_close_rank(&job, rank);
	job.spec.world = 0;
	turn_until(&done, 1);
	do {
		turn(NULL);
		engine_job(observer, &now);
	} while (strcmp(now.phase, "lost"));
	ck_assert_uint_eq(now.alive, 0);
	close_job();
}
END_TEST

START_TEST(the_engines_end_ends_waits)
{
	struct engine_wait waits[2];

	open_job(_i);
	start(waits, 2);
	close_job();
	ck_assert_uint_eq(cancelled, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("watch");
	TCase *t = tcase_create("watch");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, a_step_ends_all_waits, 0, 2);
	tcase_add_loop_test(t, a_cancelled_wait_ends_and_the_others_go_on, 0, 2);
	tcase_add_loop_test(t, nobody_waits_and_nothing_is_asked, 0, 2);
	tcase_add_loop_test(t, the_end_of_the_job_is_a_change, 0, 2);
	tcase_add_loop_test(t, the_engines_end_ends_waits, 0, 2);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

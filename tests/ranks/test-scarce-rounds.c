/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"

#include "tests/ports/collective-host.h"
#include "engine/live/loop.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* There is no memory, or no thread, at the n-th call, for each n.  Ranks are connected all the
 * same, and a round brings the right bytes, or fails; the next round brings them.  Each n with
 * TEST_ALL=1, else one of STRIDE, drawn at random.
 */

enum { WORLD = 3, NUMEL = 37, BYTES = NUMEL * 4, LONG_MS = 30000, BUSY = 1, STRIDE = 17 };

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { NUMEL } } };
static const struct job_group groups[] = { { .stage = 2, .nparams = 1, .params = { 0 } } };

static struct job job;
static unsigned turns;

static struct engine *engine_of(uint32_t rank)
{
	return job_frag(&job, rank)->engine;
}

/* Makes an engine ping more often: turns pass faster than its seconds. */
static void ping_soon(struct engine *e)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		e->peers[rank].pinged_ms = 0;
}

static void turn(void *arg)
{
	if (++turns % 16 < WORLD)
		ping_soon(engine_of(turns % 16));
	job_turn(&job);
}

/* Passes a boundary.  Asserts nothing, because Check needs memory, too. */
static void pass(void)
{
	for (int i = 0; i < 20; i++)
		turn(NULL);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		frag_safe_point(job_frag(&job, rank));
}

static void use(void)
{
	static const struct collective_options options = { .open_ms = 20000,
							   .stuck_ms = 20000 };

	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(rounds_init(engine_of(rank)), 0);
		ck_assert_int_eq(communicator_use(engine_of(rank), &collective_host, &options),
				 0);
	}
}

static void until_connected(void)
{
	uint64_t deadline = monotonic_ms() + LONG_MS;

	while (!job_is_connected(&job)) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		turn(NULL);
		nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
	}
}

static void open_job(void)
{
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   .hosts = WORLD,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups) });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		engine_of(rank)->thread.yield = turn;
}

static unsigned first_call(void)
{
	return getenv("TEST_ALL") ? 1 : 1 + job_random(&job, STRIDE);
}

static unsigned next_call(unsigned n)
{
	return n + (getenv("TEST_ALL") ? 1 : STRIDE);
}

START_TEST(without_memory_there_are_no_rounds)
{
	const struct collective_options options = { .open_ms = 20000 };

	open_job();
	scarce_begin(1, 1);
	ck_assert_int_eq(rounds_init(engine_of(0)), -ENOMEM);
	scarce_end();
	scarce_begin(1, 1);
	ck_assert_int_eq(communicator_use(engine_of(0), &collective_host, &options), -ENOMEM);
	scarce_end();
	ck_assert_ptr_null(engine_of(0)->rounds.communicator);
	scarce_begin(1, 1);
	ck_assert_int_eq(landing_init(engine_of(0), 0), -ENOMEM);
	scarce_end();
	ck_assert_ptr_null(engine_of(0)->rounds.landing);
	job_close(&job);
}
END_TEST

START_TEST(ranks_are_connected_where_memory_lacks_once)
{
	unsigned n = 0, failed;

	do {
		open_job();
		use();
		n = n ? next_call(n) : first_call();
		turns = 0;
		scarce_begin(n, 1);
		while (!job_is_connected(&job) && turns < 100)
			turn(NULL);
		failed = scarce_end();
		until_connected();
		job_close(&job);
	} while (failed);
	ck_assert_uint_gt(n, 5);
}
END_TEST

struct asked {
	struct rounds_get get;
	int result;
	float got[NUMEL];
};

static void on_done(struct rounds_get *get, int result)
{
	struct asked *a = get->owner;

	a->result = result;
}

static int start(struct asked *a)
{
	int rc;

	memset(a, 0, sizeof(*a));
	a->result = BUSY;
	a->get = (struct rounds_get){
		.size = BYTES, .out = a->got, .done = on_done, .owner = a
	};
	rc = api_address_of(job_frag(&job, 1), job_number(&job, 1, 0), "exp_avg",
			    &a->get.address);
	return rc ? rc : rounds_start(engine_of(1), &a->get);
}

static int finish(const struct asked *a)
{
	uint64_t deadline = monotonic_ms() + LONG_MS;

	while (a->result == BUSY && monotonic_ms() < deadline)
		pass();
	return a->result;
}

static int ask(struct asked *a)
{
	int rc = start(a);

	return rc ? rc : finish(a);
}

static void expect_came(const struct asked *a, int rc)
{
	ck_assert_int_eq(rc, 0);
	ck_assert_mem_eq(a->got, job_truth(&job, 0, "exp_avg"), BYTES);
}

static bool is_need(int rc)
{
	return rc == -ENOMEM || rc == -ENOSPC || rc == -EREMOTE || rc == -EIO ||
	       rc == -ECANCELED || rc == -ETIMEDOUT;
}

START_TEST(a_round_brings_all_or_says_that_it_does_not)
{
	static struct asked a;
	unsigned n, failed;
	int rc;

	open_job();
	use();
	n = first_call();
	do {
		until_connected();
		scarce_begin(n, _i ? 3 : 1);
		rc = ask(&a);
		failed = scarce_end();
		if (!rc || !failed)
			expect_came(&a, rc);
		else
			ck_assert_msg(is_need(rc), "call %u: %d", n, rc);
		until_connected();
		expect_came(&a, ask(&a));
		n = next_call(n);
	} while (failed);
	ck_assert_uint_gt(n, 10);
	job_close(&job);
}
END_TEST

/* Without memory at the n-th call, for each n, until the asking rank has told the owners. */
START_TEST(a_round_that_cannot_be_planned_says_so)
{
	static struct asked a;
	unsigned n = 0, failed;
	int rc;

	open_job();
	use();
	until_connected();
	expect_came(&a, ask(&a)); /* from now on the rank has all tables */
	do {
		until_connected();
		scarce_begin(++n, 1);
		rc = start(&a);
		if (!rc)
			loop_turn(engine_of(1), 0);
		failed = scarce_end();
		rc = rc ? rc : finish(&a);
		if (rc && failed)
			ck_assert_int_eq(rc, -ENOMEM);
		else
			expect_came(&a, rc);
	} while (failed);
	ck_assert_uint_gt(n, 3);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scarce-rounds");
	TCase *connecting = tcase_create("connecting"), *round = tcase_create("round");

	tcase_set_timeout(connecting, 120);
	tcase_set_timeout(round, 120);
	tcase_add_test(connecting, without_memory_there_are_no_rounds);
	tcase_add_test(connecting, ranks_are_connected_where_memory_lacks_once);
	tcase_add_loop_test(round, a_round_brings_all_or_says_that_it_does_not, 0, 2);
	tcase_add_test(round, a_round_that_cannot_be_planned_says_so);
	suite_add_tcase(s, connecting);
	return run_suite(s, round);
}

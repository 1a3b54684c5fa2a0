/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/ranks/hidden.h"
#include "tests/run-suite.h"

#include "engine/node/peers.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/rounds.h"
#include "engine/watch/rank-query.h"
#include "tests/ports/collective-host.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* Ranks send one rank their parts of a state at one boundary.  Whatever happens meanwhile, the
 * rank that asked hears how the round ended, and bytes that are said to have come are right.
 */

enum { WORLD = 4, GOAL = 400, BUSY = 1, READER = 1, OWNER = 3, COORDINATOR = 0 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };

struct asked {
	struct rounds_get get;
	int result;
	float got[NUMEL];
};

static struct asked first, second;

static void on_done(struct rounds_get *get, int result)
{
	struct asked *a = get->owner;

	ck_assert_int_eq(a->result, BUSY);
	a->result = result;
}

static int ask(struct asked *a, uint32_t rank, const char *key)
{
	memset(a, 0, sizeof(*a));
	a->result = BUSY;
	a->get = (struct rounds_get){
		.size = BYTES, .out = a->got, .done = on_done, .owner = a
	};
	ck_assert_int_eq(api_address_of(job_frag(&job, rank), job_number(&job, rank, 0), key,
					&a->get.address),
			 0);
	return rounds_start(engine_of(rank), &a->get);
}

static int result_of(struct asked *a)
{
	while (a->result == BUSY)
		turn(NULL);
	return a->result;
}

static void expect_bytes(const struct asked *a, const char *key)
{
	ck_assert_mem_eq(a->got, job_truth(&job, 0, key), BYTES);
}

static bool is_up(uint32_t rank)
{
	return communicator_number(engine_of(rank)) != 0;
}

static void until_up(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (job_frag(&job, rank) && !is_up(rank))
			turn(NULL);
}

/* Connects devices' memory, if on_devices, else the host's. */
static void open_connected(void)
{
	boundaries_open(WORLD, &sharded);
	boundaries_connect();
}

static void all_go_but(uint32_t but, uint64_t goal)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (job_frag(&job, rank) && rank != but)
			go_to(rank, goal);
}

static void all_go(uint64_t goal)
{
	all_go_but(WORLD, goal);
}

static void until_all_have_come(uint64_t goal)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (job_frag(&job, rank) && passed(rank) < goal)
			turn(NULL);
}

START_TEST(a_round_brings_what_there_is_at_one_boundary)
{
	uint64_t before;

	open_connected();
	before = generation(0);
	all_go(GOAL);
	ck_assert_int_eq(ask(&first, 1, "exp_avg"), 0);
	ck_assert_int_eq(result_of(&first), 0);
	expect_bytes(&first, "exp_avg");
	until_all_have_come(GOAL);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_eq(generation(rank), before);
	job_check(&job);
	boundaries_close();
}
END_TEST

START_TEST(rounds_and_edits_at_once_are_in_one_order)
{
	struct writer w;

	open_connected();
	all_go(GOAL);
	start(&w, 0, "exp_avg", 7);
	ck_assert_int_eq(ask(&first, 1, "exp_avg"), 0);
	ck_assert_int_eq(ask(&second, 3, "exp_avg"), 0);
	ck_assert_int_eq(result_of(&first), 0);
	ck_assert_int_eq(result_of(&second), 0);
	ck_assert_int_eq(result(&w), 0);
	if (first.got[0] == 7)
		ck_assert_mem_eq(first.got, w.value, BYTES);
	else
		expect_bytes(&first, "exp_avg");
	expect("exp_avg", &w);
	job_check(&job);
	until_all_have_come(GOAL);
	boundaries_close();
}
END_TEST

static void turn_some(unsigned n)
{
	while (n--)
		turn(NULL);
}

START_TEST(what_is_fetched_comes_while_training_goes_on)
{
	struct frag *f;
	float got[NUMEL];
	int n, rc;

	open_connected();
	f = job_frag(&job, 1);
	n = frag_fetch(f, job_number(&job, 1, 0), "exp_avg", got, BYTES);
	ck_assert_int_ge(n, 0);
	turn_some(50);
	ck_assert_int_eq(frag_fetched(f, n), -EAGAIN);
	all_go(GOAL);
	while ((rc = frag_fetched(f, n)) == -EAGAIN)
		turn(NULL);
	ck_assert_int_eq(rc, 0);
	ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
	ck_assert_int_eq(frag_fetched(f, n), -ENOENT);
	until_all_have_come(GOAL);
	boundaries_close();
}
END_TEST

static void expect_told(uint32_t of, const char *what)
{
	char *text = rank_query_text(engine_of(2), of, "nccl");

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strstr(text, what) != NULL, "%s", text);
	free(text);
}

START_TEST(a_rank_says_how_it_is_connected)
{
	open_connected();
	expect_told(0, "connected, ranks 0 1 2 3\n");
	expect_told(0, "last error: none\n");
	all_go(GOAL);
	ck_assert_int_eq(ask(&first, READER, "exp_avg"), 0);
	ck_assert_int_eq(result_of(&first), 0);
	expect_told(READER, "rounds asked for 1, failed 0, brought 148 bytes");
	until_all_have_come(GOAL);
	boundaries_close();
}
END_TEST

START_TEST(a_rank_says_why_it_is_not_connected)
{
	struct collective_options options = { .open_ms = 5000 };
	struct engine *e;

	boundaries_open(WORLD, &sharded);
	e = engine_of(0);
	expect_told(0, "none: rank 0 is not to be connected: it has given no devices");
	atomic_store(&e->rounds.one_queue, true);
	expect_told(0, "not to be connected: CUDA_DEVICE_MAX_CONNECTIONS=1 was set\n");
	e->launch.gather_by_host = true;
	expect_told(0, "not to be connected: FRAG_GATHER=host was set\n");
	ck_assert_int_eq(communicator_use(e, &collective_host, &options), 0);
	turn_some(100);
	expect_told(0,
		    "not connected\nwithout ranks 1 2 3: when asked they had given no devices");
	ck_assert_int_eq(communicator_use(engine_of(1), &collective_host, &options), 0);
	while (!communicator_number(e))
		turn(NULL);
	expect_told(0, "connected, ranks 0 1\nwithout ranks 2 3: ");
	boundaries_close();
}
END_TEST

/* Opens no collective, as if the library were not there. */
static int open_none(struct collective **c, const struct collective_options *options,
		     unsigned rank, unsigned nranks, const struct collective_id *id)
{
	return -ENODEV;
}

START_TEST(a_rank_says_why_there_is_no_library)
{
	const struct collective_ops none = { .name = "none", .open = open_none };
	struct collective_options options = { .open_ms = 5000 };

	boundaries_open(WORLD, &sharded);
	for (uint32_t rank = 0; rank < 2; rank++)
		ck_assert_int_eq(communicator_use(engine_of(rank), &none, &options), 0);
	turn_some(100);
	expect_told(0, "last error: none: No such device\n");
	boundaries_close();
}
END_TEST

/* ---- from device to device ---- */

static struct hidden out;

static int fetch(struct frag *f)
{
	int n = frag_fetch(f, job_number(&job, READER, 0), "exp_avg", out.memory, BYTES), rc;

	ck_assert_int_ge(n, 0);
	while ((rc = frag_fetched(f, n)) == -EAGAIN)
		turn(NULL);
	return rc;
}

/* i: 0: by a round; 1: there is no communicator. */
START_TEST(what_is_on_devices_is_fetched_to_a_device)
{
	struct rounds_figures figures;
	struct devices *d;

	on_devices = true;
	if (_i == 1)
		boundaries_open(WORLD, &sharded);
	else
		open_connected();
	d = engine_of(READER)->registry.devices;
	hidden_new(&out, devices_port(d), READER % DEVICE_HOST_DEVICES, BYTES);
	all_go(GOAL);
	ck_assert_int_eq(fetch(job_frag(&job, READER)), 0);
	ck_assert_mem_eq(out.at, job_truth(&job, 0, "exp_avg"), BYTES);
	rounds_figures(engine_of(READER), &figures);
	ck_assert_uint_eq(figures.rounds - figures.failed, _i == 0);
	until_all_have_come(GOAL);
	job_check(&job);
	hidden_free(&out);
	boundaries_close();
}
END_TEST

/* The rank's device does not reach memory of the host, or of another device. */
START_TEST(what_the_device_does_not_reach_is_read)
{
	struct frag *f;
	float got[NUMEL];
	int n, rc;

	on_devices = true;
	open_connected();
	f = job_frag(&job, READER);
	all_go(GOAL);
	n = frag_fetch(f, job_number(&job, READER, 0), "exp_avg", got, BYTES);
	ck_assert_int_ge(n, 0);
	while ((rc = frag_fetched(f, n)) == -EAGAIN)
		turn(NULL);
	ck_assert_int_eq(rc, 0);
	ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
	until_all_have_come(GOAL);
	boundaries_close();
}
END_TEST

START_TEST(what_no_round_brings_is_read)
{
	struct frag *f;
	float got[NUMEL];
	int n[FRAG_FETCHES_MAX];

	boundaries_open(WORLD, &sharded);
	f = job_frag(&job, 1);
	ck_assert_int_eq(frag_fetched(f, 0), -ENOENT);
	for (int i = 0; i < FRAG_FETCHES_MAX; i++) {
		n[i] = frag_fetch(f, job_number(&job, 1, 0), "exp_avg", got, BYTES);
		ck_assert_int_eq(n[i], i);
	}
	ck_assert_int_eq(frag_fetch(f, job_number(&job, 1, 0), "exp_avg", got, BYTES), -EBUSY);
	for (int i = 0; i < FRAG_FETCHES_MAX; i++) {
		memset(got, 0, sizeof(got));
		ck_assert_int_eq(frag_fetched(f, n[i]), 0);
		ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
	}
	ck_assert_int_eq(frag_fetch(f, job_number(&job, 1, 0), "exp_avg", got, 4), -EINVAL);
	ck_assert_int_eq(frag_fetch(f, job_number(&job, 1, 0), "none", got, BYTES), -ENOENT);
	ck_assert_int_eq(frag_fetched(f, FRAG_FETCHES_MAX), -ENOENT);
	ck_assert_int_eq(frag_fetched(NULL, 0), -EINVAL);
	boundaries_close();
}
END_TEST

START_TEST(what_cannot_be_asked_for)
{
	open_connected();
	first = (struct asked){ .get = { .size = ROUNDS_BYTES_MAX + 1 } };
	ck_assert_int_eq(rounds_start(engine_of(1), &first.get), -E2BIG);
	ck_assert_int_eq(ask(&first, 1, "lp"),
			 0); /* a row of another kind: there is no such state */
	all_go(GOAL);
	ck_assert_int_eq(result_of(&first), -EINVAL);
	until_all_have_come(GOAL);
	boundaries_close();
	boundaries_open(WORLD, &sharded);
	ck_assert_int_eq(ask(&first, 1, "exp_avg"), -EREMOTE);
	boundaries_close();
}
END_TEST

/* ---- rounds that are not waited for ---- */

START_TEST(a_round_that_is_not_waited_for_ends_and_nothing_comes_later)
{
	float before[NUMEL];

	open_connected();
	ck_assert_int_eq(ask(&first, 1, "exp_avg"), 0);
	if (_i)
		first.get.wait_ms = 50;
	turn_some(job_random(&job, 60));
	if (!_i)
		cancel_round(engine_of(1), &first.get);
	ck_assert_int_eq(result_of(&first), -ECANCELED);
	memcpy(before, first.got, sizeof(before));
	all_go(GOAL);
	until_all_have_come(GOAL);
	ck_assert_mem_eq(first.got, before, sizeof(before));
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert(is_up(rank));
	boundaries_close();
}
END_TEST

/* ---- failures ---- */

START_TEST(a_rank_that_comes_too_late_costs_the_communicator_and_not_the_job)
{
	open_connected();
	ck_assert_int_eq(ask(&first, READER, "exp_avg"), 0);
	all_go_but(OWNER, GOAL);
	ck_assert_int_ne(result_of(&first), 0);
	all_go(GOAL);
	until_all_have_come(GOAL);
	until_up();
	all_go(2 * GOAL);
	ck_assert_int_eq(ask(&first, READER, "exp_avg"), 0);
	ck_assert_int_eq(result_of(&first), 0);
	expect_bytes(&first, "exp_avg");
	until_all_have_come(2 * GOAL);
	boundaries_close();
}
END_TEST

static void drop(uint32_t rank)
{
	ck_assert_int_eq(
		frag_state_drop(job_frag(&job, rank), job.ranks[rank].group[0], 0, "exp_avg"),
		0);
}

static void until_accepted_by_all(void)
{
	for (bool all = false; !all;) {
		turn(NULL);
		all = true;
		for (uint32_t rank = 0; rank < WORLD; rank++)
			all &= participant_pending(&engine_of(rank)->participant, 1);
	}
}

START_TEST(what_is_gone_at_the_boundary_is_not_said_to_have_come)
{
	open_connected();
	ck_assert_int_eq(ask(&first, READER, "exp_avg"), 0);
	until_accepted_by_all();
	drop(OWNER);
	all_go(GOAL);
	ck_assert_int_ne(result_of(&first), 0);
	until_all_have_come(GOAL);
	boundaries_close();
}
END_TEST

/* ---- a rank is silent ---- */

static void lose(uint32_t silent)
{
	asleep[silent] = true;
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != silent) {
			ck_assert_int_eq(peers_reach(engine_of(rank), silent), 0);
			engine_of(rank)->peers[silent].silent = true;
		}
}

/* Returns true if all ranks but one are connected by one communicator of that many ranks. */
static bool are_connected(uint32_t ranks, uint32_t but)
{
	uint64_t number = communicator_number(engine_of(READER));
	bool are = number;

	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != but)
			are &= communicator_number(engine_of(rank)) == number &&
			       communicator_ranks(engine_of(rank)) == ranks;
	return are;
}

static void until_connected(uint32_t ranks, uint32_t but)
{
	while (!are_connected(ranks, but))
		turn(NULL);
}

/* Asks again, because a round may fail while a rank is slow to go on, or may come after the
 * last boundary.
 */
static uint64_t ask_until_it_comes(void)
{
	uint64_t goal = 0;
	int rc;

	do {
		goal += GOAL;
		until_connected(WORLD, WORLD);
		all_go(goal);
		rc = ask(&first, READER, "exp_avg");
		rc = rc ? rc : result_of(&first);
	} while (rc && goal < 20 * GOAL);
	ck_assert_int_eq(rc, 0);
	return goal;
}

START_TEST(who_was_silent_is_connected_again)
{
	uint32_t silent = _i ? OWNER : COORDINATOR;
	uint64_t goal;

	open_connected();
	lose(silent);
	until_connected(WORLD - 1, silent);
	asleep[silent] = false;
	goal = ask_until_it_comes();
	expect_bytes(&first, "exp_avg");
	until_all_have_come(goal);
	boundaries_close();
}
END_TEST

/* ---- a rank dies ---- */

static const uint32_t victims[] = { READER, OWNER, COORDINATOR };
static const enum wire_type messages[] = { WIRE_ROUND,  WIRE_COMMIT,   WIRE_PREPARE,
					   WIRE_VOTE,   WIRE_ACCEPTED, WIRE_ARRIVED,
					   WIRE_DECIDE, WIRE_APPLIED };

START_TEST(whoever_dies_at_whichever_message_nobody_waits_for_ever)
{
	uint32_t victim = victims[job_random(&job, ARRAY_SIZE(victims))];
	bool trains = job_random(&job, 2);

	open_connected();
	sent.type = messages[_i];
	ck_assert_int_eq(ask(&first, READER, "exp_avg"), 0);
	for (unsigned turns = 0; !sent.n && turns < 200; turns++) {
		turn(NULL);
		if (turns == 100)
			all_go_but(trains ? WORLD : victim, GOAL);
	}
	for (uint32_t n = job_random(&job, 4); n; n--)
		turn(NULL);
	while (waits_inside(victim))
		turn(NULL);
	die(victim, true);
	all_go(GOAL);
	if (victim == READER)
		ck_assert_int_ne(first.result, BUSY);
	if (!result_of(&first))
		expect_bytes(&first, "exp_avg");
	until_all_have_come(GOAL);
	until_up();
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rounds");
	TCase *t = tcase_create("rounds");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_round_brings_what_there_is_at_one_boundary, 0, 4);
	tcase_add_loop_test(t, rounds_and_edits_at_once_are_in_one_order, 0, 4);
	tcase_add_test(t, what_is_fetched_comes_while_training_goes_on);
	tcase_add_loop_test(t, what_is_on_devices_is_fetched_to_a_device, 0, 2);
	tcase_add_test(t, what_the_device_does_not_reach_is_read);
	tcase_add_test(t, a_rank_says_how_it_is_connected);
	tcase_add_test(t, a_rank_says_why_it_is_not_connected);
	tcase_add_test(t, a_rank_says_why_there_is_no_library);
	tcase_add_test(t, what_no_round_brings_is_read);
	tcase_add_test(t, what_cannot_be_asked_for);
	tcase_add_loop_test(t, a_round_that_is_not_waited_for_ends_and_nothing_comes_later, 0,
			    2);
	tcase_add_test(t, a_rank_that_comes_too_late_costs_the_communicator_and_not_the_job);
	tcase_add_test(t, what_is_gone_at_the_boundary_is_not_said_to_have_come);
	tcase_add_loop_test(t, who_was_silent_is_connected_again, 0, 2);
	tcase_add_loop_test(t, whoever_dies_at_whichever_message_nobody_waits_for_ever, 0,
			    ARRAY_SIZE(messages));
	return run_suite(s, t);
}

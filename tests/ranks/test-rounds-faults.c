/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/rpc.h"
#include "tests/ranks/boundaries.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "tests/ports/collective-host.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/rounds.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* Rounds, for fetches and gathers, that lack something: the asking rank is told, and no rank
 * waits for a deadline of the library, which is an hour.
 */

enum {
	WORLD = 3,
	READER = 1,
	OWNER = 2,
	BUSY = 1,
	HOUR_MS = 3600000,
	WAIT_MS = 2000,
	TURN_MS = 50,
	GOAL = 1000
};

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };

static void use(uint32_t rank)
{
	static const struct collective_options options = { .open_ms = HOUR_MS,
							   .stuck_ms = HOUR_MS };

	ck_assert_int_eq(rounds_init(engine_of(rank)), 0);
	ck_assert_int_eq(communicator_use(engine_of(rank), &collective_host, &options), 0);
}

static void until_connected(uint32_t ranks)
{
	for (uint32_t rank = 0; rank < ranks; rank++)
		while (!communicator_number(engine_of(rank)) ||
		       communicator_number(engine_of(rank)) !=
			       communicator_number(engine_of(0)))
			turn(NULL);
}

static void open_connected(uint32_t ranks)
{
	boundaries_open(WORLD, &sharded);
	for (uint32_t rank = 0; rank < ranks; rank++)
		use(rank);
	until_connected(ranks);
}

struct asked {
	struct rounds_get get;
	int result;
	float got[NUMEL];
};

static struct asked asked[ROUNDS_UNDER_WAY_MAX + 1];

static void on_done(struct rounds_get *get, int result)
{
	struct asked *a = get->owner;

	a->result = result;
}

static int ask(struct asked *a)
{
	*a = (struct asked){ .result = BUSY };
	a->get = (struct rounds_get){
		.size = BYTES, .out = a->got, .done = on_done, .owner = a
	};
	ck_assert_int_eq(api_address_of(job_frag(&job, READER), job_number(&job, READER, 0),
					"exp_avg", &a->get.address),
			 0);
	return rounds_start(engine_of(READER), &a->get);
}

static int result_of(struct asked *a)
{
	while (a->result == BUSY)
		turn(NULL);
	return a->result;
}

/* Puts the clock ahead while engines turn.  Nothing may be launched meanwhile: threads of a
 * launch only have the machine's time.
 */
static int late_result_of(struct asked *a)
{
	while (a->result == BUSY) {
		turn(NULL);
		scarce_skip_ms(TURN_MS);
	}
	return a->result;
}

static bool is_right(const void *got)
{
	return !memcmp(got, job_truth(&job, 0, "exp_avg"), BYTES);
}

/* ---- rounds that cannot be planned ---- */

START_TEST(who_is_not_connected_sends_nothing)
{
	open_connected(OWNER);
	ck_assert_int_eq(ask(&asked[0]), 0);
	ck_assert_int_eq(result_of(&asked[0]), -EREMOTE);
	boundaries_close();
}
END_TEST

START_TEST(a_round_of_a_communicator_that_fails_before_it_is_planned_is_none)
{
	struct engine *e;

	open_connected(WORLD);
	e = engine_of(READER);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (peers_want_states(e, rank))
			turn(NULL);
	ck_assert_int_eq(ask(&asked[0]), 0);
	communicator_fail(e, communicator_number(e), "it is the test's will");
	loop_turn(e, 0);
	ck_assert_int_eq(asked[0].result, -EREMOTE);
	boundaries_close();
}
END_TEST

START_TEST(a_table_that_does_not_come_is_not_waited_for_for_ever)
{
	open_connected(WORLD);
	loss = (struct loss){ .from = READER, .to = OWNER, .type = WIRE_STATES_GET };
	ck_assert_ptr_null(engine_of(READER)->peers[OWNER].states);
	ck_assert_int_eq(ask(&asked[0]), 0);
	ck_assert_int_eq(late_result_of(&asked[0]), -ETIMEDOUT);
	boundaries_close();
}
END_TEST

START_TEST(what_is_told_and_always_lost_is_given_up)
{
	open_connected(WORLD);
	loss = (struct loss){ .from = READER, .to = OWNER, .type = WIRE_ROUND };
	ck_assert_int_eq(ask(&asked[0]), 0);
	ck_assert_int_eq(late_result_of(&asked[0]), -EIO);
	ck_assert_uint_gt(loss.dropped, 1);
	boundaries_close();
}
END_TEST

START_TEST(there_are_not_more_at_once_than_there_is_room_for)
{
	open_connected(WORLD);
	for (unsigned i = 0; i < ROUNDS_UNDER_WAY_MAX; i++)
		ck_assert_int_eq(ask(&asked[i]), 0);
	ck_assert_int_eq(ask(&asked[ROUNDS_UNDER_WAY_MAX]), -EAGAIN);
	for (unsigned i = 0; i < ROUNDS_UNDER_WAY_MAX; i++)
		cancel_round(engine_of(READER), &asked[i].get);
	for (unsigned i = 0; i < ROUNDS_UNDER_WAY_MAX; i++)
		ck_assert_int_eq(result_of(&asked[i]), -ECANCELED);
	scarce_begin(1, 1);
	asked[0].result = rounds_start(engine_of(READER), &asked[0].get);
	scarce_end();
	ck_assert_int_eq(asked[0].result, -ENOMEM);
	boundaries_close();
}
END_TEST

/* ---- wrong requests ---- */

static int status;

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	status = answer->status;
	return false;
}

static int promise_of(uint64_t communicator, const struct wire_piece *pieces, uint32_t count,
		      size_t size)
{
	struct wire_round body = { .transaction = { 7, 7 },
				   .communicator = communicator,
				   .count = count };

	ck_assert_int_eq(peers_call(engine_of(READER), OWNER, WIRE_ROUND, &body, pieces, size,
				    on_answer, NULL, 0),
			 0);
	for (status = BUSY; status == BUSY;)
		turn(NULL);
	return status;
}

START_TEST(what_cannot_be_promised_is_refused)
{
	static const struct wire_piece large[] = { { .size = ROUNDS_BYTES_MAX + 1 } };
	static struct wire_piece many[WIRE_ROUND_PIECES + 1];
	uint64_t number;

	open_connected(WORLD);
	number = communicator_number(engine_of(READER));
	ck_assert_int_eq(promise_of(number + 1, many, 1, sizeof(many[0])), -EREMOTE);
	ck_assert_int_eq(promise_of(number, many, 2, sizeof(many[0])), -EINVAL);
	ck_assert_int_eq(promise_of(number, many, WIRE_ROUND_PIECES + 1, sizeof(many)),
			 -EINVAL);
	ck_assert_int_eq(promise_of(number, large, 1, sizeof(large)), -E2BIG);
	boundaries_close();
}
END_TEST

START_TEST(without_memory_nothing_is_promised)
{
	struct wire_round body = { .transaction = { 7, 7 } };
	struct wire_header header = { .type = WIRE_ROUND, .request = 77, .rank = READER };
	struct engine *e;

	open_connected(WORLD);
	e = engine_of(OWNER);
	body.communicator = communicator_number(e);
	ck_assert_int_eq(peers_reach(e, READER), 0);
	scarce_begin(1, 1);
	rounds_serve(e, e->peers[READER].link, &header, &body, NULL, 0);
	ck_assert_uint_eq(scarce_end(), 1);
	ck_assert(!participant_pending(&e->participant, 1000));
	boundaries_close();
}
END_TEST

/* A device's communicator sends only bytes on devices, and a host's only bytes in memory of
 * hosts.
 */
START_TEST(what_the_communicator_does_not_reach_is_not_promised)
{
	struct wire_piece piece = { .size = 4 };

	on_devices = true;
	open_connected(WORLD);
	while (peers_want_states(engine_of(READER), OWNER))
		turn(NULL);
	piece.epoch = engine_of(READER)->peers[OWNER].states->epoch;
	while (engine_of(READER)->peers[OWNER].states->rows[piece.state].tier != STATE_DEVICE)
		piece.state++;
	ck_assert_int_eq(
		promise_of(communicator_number(engine_of(READER)), &piece, 1, sizeof(piece)),
		-EREMOTE);
	boundaries_close();
}
END_TEST

/* ---- a coordinator that says what is not true ---- */

static void until_accepted_by_all(void)
{
	for (bool all = false; !all;) {
		turn(NULL);
		all = true;
		for (uint32_t rank = 0; rank < WORLD; rank++)
			all &= participant_pending(&engine_of(rank)->participant,
						   passed(rank) + 1);
	}
}

/* Rank 0 answers APPLIED to every request of the reader since then. */
static void say_applied(uint64_t since)
{
	static const struct wire_applied applied;

	for (uint64_t request = since + 1; request <= engine_of(READER)->rpc->number; request++)
		for (uint32_t peer = 0; peer < 2 * WORLD; peer++)
			node_send(engine_of(0), peer, WIRE_APPLIED, request, &applied, NULL, 0);
}

START_TEST(what_was_not_launched_has_not_come_whoever_says_so)
{
	uint64_t since;

	open_connected(WORLD);
	since = engine_of(READER)->rpc->number;
	ck_assert_int_eq(ask(&asked[0]), 0);
	until_accepted_by_all();
	say_applied(since);
	ck_assert_int_eq(result_of(&asked[0]), -EIO);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		go_to(rank, GOAL);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (passed(rank) < GOAL)
			turn(NULL);
	boundaries_close();
}
END_TEST

/* ---- no memory in one trainer's thread, at each call in turn ---- */

static struct call {
	unsigned n; /* 0: it has memory */
	int result;
	unsigned failed;
	float got[NUMEL];
} calls[WORLD];

static void begin(uint32_t rank)
{
	if (calls[rank].n)
		scarce_begin(calls[rank].n, 1);
}

static void end(uint32_t rank, int result)
{
	calls[rank].failed = scarce_end();
	calls[rank].result = result;
}

static void gather(uint32_t rank)
{
	int rc;

	begin(rank);
	rc = frag_gather(job_frag(&job, rank), job_number(&job, rank, 0), "exp_avg",
			 calls[rank].got, BYTES, calls[OWNER].n ? WAIT_MS : HOUR_MS);
	end(rank, rc);
}

static void fetch(uint32_t rank)
{
	struct frag *f = job_frag(&job, rank);
	int n, rc;

	begin(rank);
	rc = n = frag_fetch(f, job_number(&job, rank, 0), "exp_avg", calls[rank].got, BYTES);
	while (n >= 0 && (rc = frag_fetched(f, n)) == -EAGAIN)
		f->engine->thread.yield(f->engine->thread.yield_arg);
	end(rank, rc);
}

static void pass_one(uint32_t rank)
{
	begin(rank);
	end(rank, frag_safe_point(job_frag(&job, rank)));
}

static void send(uint32_t rank, unsigned n, void (*errand)(uint32_t rank))
{
	calls[rank] = (struct call){ .n = n, .result = BUSY };
	send_off(rank, errand);
}

static void until_back(uint32_t rank)
{
	while (calls[rank].result == BUSY || waits_inside(rank))
		turn(NULL);
}

/* Skips time, because ranks wait only for a bounded time for an owner that failed before it
 * came.
 */
static void until_all_are_back(void)
{
	unsigned skipped = 0;

	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (calls[rank].result == BUSY || waits_inside(rank)) {
			turn(NULL);
			if (calls[OWNER].result < 0 && skipped < WAIT_MS) {
				scarce_skip_ms(TURN_MS);
				skipped += TURN_MS;
			}
		}
}

static bool is_need(int rc)
{
	return rc == -ENOMEM || rc == -ETIMEDOUT || rc == -EIO || rc == -EREMOTE ||
	       rc == -ECANCELED;
}

START_TEST(who_has_no_memory_to_gather_does_not_keep_the_others)
{
	unsigned failed = 1;

	open_connected(WORLD);
	for (unsigned n = 1; failed; n++) {
		until_connected(WORLD);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			send(rank, rank == OWNER ? n : 0, gather);
		until_all_are_back();
		for (uint32_t rank = 0; rank < WORLD; rank++)
			ck_assert_msg(calls[rank].result ? is_need(calls[rank].result)
							 : is_right(calls[rank].got),
				      "call %u, rank %u: %d", n, rank, calls[rank].result);
		failed = calls[OWNER].failed;
		ck_assert(failed || n > 2);
	}
	boundaries_close();
}
END_TEST

START_TEST(who_is_not_connected_gathers_by_the_host)
{
	open_connected(OWNER);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		send(rank, 0, gather);
	until_all_are_back();
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(calls[rank].result, 0);
		ck_assert(is_right(calls[rank].got));
	}
	boundaries_close();
}
END_TEST

START_TEST(what_is_fetched_without_memory_comes_or_is_said_not_to)
{
	unsigned failed = 1;

	boundaries_open(WORLD, &sharded);
	for (unsigned n = 1; failed; n++) {
		send(READER, n, fetch);
		until_back(READER);
		failed = calls[READER].failed;
		if (calls[READER].result || !failed)
			ck_assert_int_eq(calls[READER].result, failed ? -ENOMEM : 0);
		if (!calls[READER].result)
			ck_assert(is_right(calls[READER].got));
		ck_assert(failed || n > 2);
	}
	boundaries_close();
}
END_TEST

/* i: 0: the reader has no memory, 1: an owner. */
START_TEST(who_has_no_memory_to_launch_its_part_says_so)
{
	uint32_t who = _i ? OWNER : READER;
	unsigned failed = 1;
	uint64_t goal = 0;

	open_connected(WORLD);
	for (unsigned n = 1; failed; n++) {
		until_connected(WORLD);
		ck_assert_int_eq(ask(&asked[0]), 0);
		until_accepted_by_all();
		send(who, n, pass_one);
		until_back(who);
		failed = calls[who].failed;
		ck_assert(failed || n > 2);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			go_to(rank, goal + 50);
		goal += 50;
		ck_assert_msg(result_of(&asked[0]) ? is_need(asked[0].result)
						   : is_right(asked[0].got),
			      "call %u: %d", n, asked[0].result);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			while (passed(rank) < goal)
				turn(NULL);
	}
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rounds-faults");
	TCase *t = tcase_create("rounds-faults");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, who_is_not_connected_sends_nothing);
	tcase_add_test(t, a_round_of_a_communicator_that_fails_before_it_is_planned_is_none);
	tcase_add_test(t, a_table_that_does_not_come_is_not_waited_for_for_ever);
	tcase_add_test(t, what_is_told_and_always_lost_is_given_up);
	tcase_add_test(t, there_are_not_more_at_once_than_there_is_room_for);
	tcase_add_test(t, what_cannot_be_promised_is_refused);
	tcase_add_test(t, without_memory_nothing_is_promised);
	tcase_add_test(t, what_the_communicator_does_not_reach_is_not_promised);
	tcase_add_test(t, what_was_not_launched_has_not_come_whoever_says_so);
	tcase_add_test(t, who_has_no_memory_to_gather_does_not_keep_the_others);
	tcase_add_test(t, who_is_not_connected_gathers_by_the_host);
	tcase_add_test(t, what_is_fetched_without_memory_comes_or_is_said_not_to);
	tcase_add_loop_test(t, who_has_no_memory_to_launch_its_part_says_so, 0, 2);
	return run_suite(s, t);
}

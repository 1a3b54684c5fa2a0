/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ports/collective-host.h"
#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include "engine/catalog/operation.h"
#include "engine/base/slice.h"
#include "engine/live/loop.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/rounds.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* A network that loses one message while both ends live.  Whichever message it is, each request
 * comes to the same end as if nothing had been lost.
 */

enum { WAIT_MS = 60000, NUMEL = 37, BYTES = NUMEL * 4, TURNS_BETWEEN = 12 };

static struct job job;
static uint64_t deadline, turns;
static struct transport_ops lossy;
static struct {
	enum wire_type type; /* 0: none */
	unsigned before;     /* how many of them go through first */
	bool lost;
	bool always;
} loss;

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { NUMEL } } };
static const struct job_group groups[] = { { .stage = 1, .nparams = 1, .params = { 0 } } };

static const enum wire_type of_a_read[] = { WIRE_STATES_GET, WIRE_STATES, WIRE_VIEW_OPEN,
					    WIRE_VIEW,       WIRE_READ,   WIRE_DATA };
static const enum wire_type of_an_edit[] = { WIRE_STAGE, WIRE_COMMIT,  WIRE_ACCEPTED,
					     WIRE_VOTE,  WIRE_PREPARE, WIRE_DECIDE,
					     WIRE_ACK,   WIRE_APPLIED };

static const enum wire_type of_a_round[] = { WIRE_ROUND,   WIRE_COMMIT, WIRE_ACCEPTED,
					     WIRE_PREPARE, WIRE_VOTE,   WIRE_DECIDE,
					     WIRE_ACK,     WIRE_APPLIED };
static const enum wire_type of_a_connection[] = { WIRE_INVITE, WIRE_FORM, WIRE_ACK };

static int send_or_lose(struct transport *t, uint32_t peer, const struct iovec *parts,
			unsigned n)
{
	struct wire_header header;

	memcpy(&header, parts[0].iov_base, sizeof(header));
	if (header.type != loss.type || (loss.lost && !loss.always) || loss.before--)
		return transport_loop.send(t, peer, parts, n);
	loss.lost = true;
	loss.before = 0;
	return 0;
}

/* Makes an engine ping more often: turns pass faster than its seconds. */
static void ping_soon(struct engine *e)
{
	for (uint32_t rank = 0; rank < job.spec.world; rank++)
		e->peers[rank].pinged_ms = 0;
}

static void turn(void *arg)
{
	ck_assert_msg(monotonic_ms() < deadline, "a rank waits for ever");
	turns++;
	for (uint32_t rank = 0; rank < job.spec.world; rank++) {
		struct engine *e = job_frag(&job, rank)->engine;

		if (turns % TURNS_BETWEEN == rank)
			ping_soon(e);
		loop_turn(e, 0);
	}
}

static void open_job(enum wire_type type, unsigned before)
{
	lossy = transport_loop;
	lossy.send = send_or_lose;
	memset(&loss, 0, sizeof(loss));
	deadline = monotonic_ms() + WAIT_MS;
	job_open(&job, &(struct job_spec){ .world = 3,
					   .hosts = 3,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   .messages = &lossy });
	for (uint32_t rank = 0; rank < 3; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn;
	loss.type = type;
	loss.before = before;
}

struct reader {
	bool ended;
	int64_t result;
	float got[NUMEL];
};

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	struct reader *r = read->owner;

	r->ended = true;
	r->result = result;
	if (result > 0)
		memcpy(r->got, data, (size_t)result);
}

START_TEST(a_read_is_whole_whatever_was_lost_of_it)
{
	struct reader r = { .ended = false };
	struct engine_read read = { .size = BYTES, .done = on_read, .owner = &r };
	struct engine_address a;
	struct engine *e;
	uint64_t bytes;

	open_job(of_a_read[_i / 2], (unsigned)_i % 2);
	e = job_frag(&job, 1)->engine;
	ck_assert_int_eq(
		api_address_of(job_frag(&job, 1), job_number(&job, 1, 0), "exp_avg", &a), 0);
	ck_assert_int_eq(engine_file_open(e, &a, &read.file, &bytes), 0);
	engine_read(e, &read);
	while (!r.ended)
		turn(NULL);
	ck_assert_int_eq(r.result, BYTES);
	ck_assert_mem_eq(r.got, job_truth(&job, 0, "exp_avg"), BYTES);
	ck_assert(loss.lost);
	engine_file_close(read.file);
	job_close(&job);
}
END_TEST

/* A rank that answers PINGs, and that one kind of request never reaches. */
START_TEST(a_read_ends_when_the_tables_of_states_never_come)
{
	enum { TIMEOUT_MS = 500 };
	struct reader r = { .ended = false };
	struct engine_read read = { .size = BYTES, .done = on_read, .owner = &r };
	struct engine_address a;
	struct engine *e;
	uint64_t bytes;

	open_job(0, 0);
	e = job_frag(&job, 1)->engine;
	e->timeout_ms = TIMEOUT_MS;
	ck_assert_int_eq(
		api_address_of(job_frag(&job, 1), job_number(&job, 1, 0), "exp_avg", &a), 0);
	ck_assert_int_eq(engine_file_open(e, &a, &read.file, &bytes), 0);
	loss.type = WIRE_STATES_GET;
	loss.always = true;
	engine_read(e, &read);
	while (!r.ended)
		turn(NULL);
	ck_assert_int_eq(r.result, -ETIMEDOUT);
	ck_assert(loss.lost);
	engine_file_close(read.file);
	job_close(&job);
}
END_TEST

static void on_done(struct engine_write *write, int result)
{
	*(int *)write->owner = result;
}

enum { BUSY = 1 }; /* the result of an edit that is under way */

static void pass_boundaries(void)
{
	for (int i = 0; i < 20; i++)
		turn(NULL);
	job_boundary(&job);
}

/* Rank 1 writes to a state of the first parameter; write->owner is an int, BUSY until the end.
 */
static void commit(struct engine_write *write, const char *key)
{
	const int *result = write->owner;
	struct engine_address a;
	uint64_t bytes;

	ck_assert_int_eq(api_address_of(job_frag(&job, 1), job_number(&job, 1, 0), key, &a), 0);
	ck_assert_int_eq(engine_file_open(job_frag(&job, 1)->engine, &a, &write->file, &bytes),
			 0);
	engine_write(job_frag(&job, 1)->engine, write);
	while (*result == BUSY)
		pass_boundaries();
	ck_assert_int_eq(*result, 0);
	engine_file_close(write->file);
}

START_TEST(an_edit_is_everywhere_whatever_was_lost_of_it)
{
	float value[NUMEL];
	struct engine_extent extent = { 0, BYTES, value };
	int result = BUSY;
	struct engine_write write = {
		.extents = &extent, .nextents = 1, .done = on_done, .owner = &result
	};

	open_job(of_an_edit[_i / 3], (unsigned)_i % 3);
	for (int i = 0; i < NUMEL; i++)
		value[i] = (float)i;
	commit(&write, "fp32");
	ck_assert(loss.lost || _i % 3);
	job_expect(&job, 0, "fp32", value);
	job_expect_lp_of(&job, 0, value);
	job_check(&job);
	job_close(&job);
}
END_TEST

START_TEST(an_operation_is_carried_out_once_whatever_was_lost_of_it)
{
	enum wire_type type = of_an_edit[_i / 3];
	struct operation add;
	struct slice all;
	const float *before;
	float value[NUMEL];
	int result = BUSY;
	struct engine_write write = {
		.operation = &add, .slice = &all, .done = on_done, .owner = &result
	};

	open_job(type == WIRE_STAGE ? WIRE_COMPUTE : type, (unsigned)_i % 3);
	ck_assert_int_eq(operation_parse(&add, FRAG_F32, "+= 3"), 0);
	slice_all(&all, params[0].shape, 1);
	before = job_truth(&job, 0, "exp_avg");
	for (int i = 0; i < NUMEL; i++)
		value[i] = (float)((double)before[i] + 3);
	commit(&write, "exp_avg");
	ck_assert(loss.lost || _i % 3);
	job_expect(&job, 0, "exp_avg", value);
	job_check(&job);
	job_close(&job);
}
END_TEST

static void connect_all(void)
{
	static const struct collective_options options = { .open_ms = 5000 };

	for (uint32_t rank = 0; rank < 3; rank++) {
		ck_assert_int_eq(rounds_init(job_frag(&job, rank)->engine), 0);
		ck_assert_int_eq(communicator_use(job_frag(&job, rank)->engine,
						  &collective_host, &options),
				 0);
	}
	for (uint32_t rank = 0; rank < 3; rank++)
		while (!communicator_number(job_frag(&job, rank)->engine))
			turn(NULL);
}

START_TEST(ranks_are_connected_whatever_was_lost_of_it)
{
	open_job(of_a_connection[_i], 0);
	connect_all();
	ck_assert(loss.lost);
	job_close(&job);
}
END_TEST

START_TEST(a_round_brings_all_whatever_was_lost_of_it)
{
	float got[NUMEL];
	int number, rc;

	open_job(0, 0);
	connect_all();
	loss.type = of_a_round[_i];
	number = frag_fetch(job_frag(&job, 1), job_number(&job, 1, 0), "exp_avg", got, BYTES);
	while ((rc = frag_fetched(job_frag(&job, 1), number)) == -EAGAIN)
		pass_boundaries();
	ck_assert_int_eq(rc, 0);
	ck_assert_mem_eq(got, job_truth(&job, 0, "exp_avg"), BYTES);
	ck_assert(loss.lost);
	job_close(&job);
}
END_TEST

/* The caller of the edit is the trainer's thread, which passes no boundary meanwhile. */
START_TEST(a_rank_that_sets_hears_of_the_promise_though_it_was_lost)
{
	float value[NUMEL] = { 0 };

	open_job(of_an_edit[_i], 0);
	ck_assert_int_eq(
		frag_set(job_frag(&job, 1), job_number(&job, 1, 0), "fp32", value, BYTES), 0);
	pass_boundaries();
	pass_boundaries();
	pass_boundaries();
	job_expect(&job, 0, "fp32", value);
	job_expect_lp_of(&job, 0, value);
	job_check(&job);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lossy");
	TCase *t = tcase_create("lossy");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, a_read_is_whole_whatever_was_lost_of_it, 0,
			    2 * ARRAY_SIZE(of_a_read));
	tcase_add_test(t, a_read_ends_when_the_tables_of_states_never_come);
	tcase_add_loop_test(t, an_edit_is_everywhere_whatever_was_lost_of_it, 0,
			    3 * ARRAY_SIZE(of_an_edit));
	tcase_add_loop_test(t, an_operation_is_carried_out_once_whatever_was_lost_of_it, 0,
			    3 * ARRAY_SIZE(of_an_edit));
	tcase_add_loop_test(t, a_rank_that_sets_hears_of_the_promise_though_it_was_lost, 0,
			    ARRAY_SIZE(of_an_edit));
	tcase_add_loop_test(t, ranks_are_connected_whatever_was_lost_of_it, 0,
			    ARRAY_SIZE(of_a_connection));
	tcase_add_loop_test(t, a_round_brings_all_whatever_was_lost_of_it, 0,
			    ARRAY_SIZE(of_a_round));
	return run_suite(s, t);
}

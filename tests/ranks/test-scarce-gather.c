/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/ranks/hidden.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/job/rendezvous.h"
#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "engine/rank/devices.h"
#include "engine/rounds/landing.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One of the ranks that gather or scatter has no memory at the n-th call, for each n.  The call
 * fails with an error or succeeds all the same, no rank waits for ever, and the next call
 * succeeds.
 */

enum { WORLD = 3, BUSY = 1, WAIT_MS = 20000, TURN_MS = 100, ROOT = 1 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };
static const struct job_group in_pieces = { .stage = 3, .nparams = 3, .params = { 0, 1, 2 } };

static float value[NUMEL], got[WORLD][NUMEL];
static struct hidden there[WORLD];
static int results[WORLD];
static unsigned wait_ms = WAIT_MS;
static struct need {
	uint32_t rank; /* the rank without memory; WORLD: none */
	unsigned n, failed;
} need = { .rank = WORLD };

/* Puts the clock ahead, and gives collective_host's threads real time, which is the time they
 * have.
 */
static void skip(void)
{
	scarce_skip_ms(TURN_MS);
	nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

/* Turns; skips time once the rank without memory has failed, so that the others do not wait for
 * it for long.
 */
static void turn_on(void)
{
	turn(NULL);
	if (need.rank < WORLD && results[need.rank] < 0)
		skip();
}

/* Begins the lack of memory in the trainer's thread, which is the only thread that has it. */
static void begin(uint32_t rank)
{
	if (rank == need.rank)
		scarce_begin(need.n, 1);
}

static void end(uint32_t rank, int result)
{
	if (rank == need.rank)
		need.failed = scarce_end();
	results[rank] = result;
}

static void gather(uint32_t rank)
{
	void *out = on_devices ? there[rank].memory : got[rank];
	int rc;

	begin(rank);
	rc = frag_gather(job_frag(&job, rank), job_number(&job, rank, 0), "exp_avg", out, BYTES,
			 wait_ms);
	end(rank, rc);
}

static void scatter(uint32_t rank)
{
	const void *from = on_devices ? there[rank].memory : value;
	int rc;

	begin(rank);
	rc = frag_scatter(job_frag(&job, rank), job_number(&job, rank, 0), "fp32", ROOT,
			  rank == ROOT ? from : NULL, BYTES, wait_ms);
	end(rank, rc);
}

static void call(uint32_t rank, void (*errand)(uint32_t rank))
{
	results[rank] = BUSY;
	send_off(rank, errand);
}

static int result_of(uint32_t rank)
{
	while (results[rank] == BUSY || waits_inside(rank))
		turn_on();
	return results[rank];
}

/* Calls errand on all ranks.  Returns the error of the last rank that has failed; 0: none has.
 */
static int all_call(void (*errand)(uint32_t rank))
{
	int rc = 0;

	for (uint32_t rank = 0; rank < WORLD; rank++)
		call(rank, errand);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		rc = result_of(rank) ? results[rank] : rc;
	return rc;
}

/* Returns true if the lack of memory explains rc, also on ranks that wait for the rank that
 * lacks it.
 */
static bool is_need(int rc)
{
	return rc == -ENOMEM || rc == -ENOSPC || rc == -ETIMEDOUT || rc == -ECANCELED ||
	       rc == -EIO;
}

static void open_job(const struct job_group *group, bool connected)
{
	boundaries_open(WORLD, group);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(landing_init(engine_of(rank), LANDING_SLOT), 0);
		if (on_devices)
			hidden_new(&there[rank],
				   devices_port(engine_of(rank)->registry.devices),
				   (int)(rank % DEVICE_HOST_DEVICES), BYTES);
	}
	if (connected)
		boundaries_connect();
}

static void close_job(void)
{
	for (uint32_t rank = 0; rank < WORLD && on_devices; rank++)
		hidden_free(&there[rank]);
	boundaries_close();
}

/* Turns until the rank that counts has heard who has given up. */
static void settle(void)
{
	for (int i = 0; i < 20; i++)
		turn(NULL);
}

/* Turns until ranks that were connected are so again, which they are after the failure of one
 * has come to all.
 */
static void until_connected(bool connected)
{
	settle();
	while (connected && !job_is_connected(&job)) {
		turn(NULL);
		skip();
	}
	need.rank = WORLD;
}

/* ---- gathering ---- */

static void expect_gathered(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_mem_eq(on_devices ? there[rank].at : (void *)got[rank],
				 job_truth(&job, 0, "exp_avg"), BYTES);
}

static void gather_again(void)
{
	ck_assert_int_eq(all_call(gather), 0);
	expect_gathered();
}

static void gather_in_need(uint32_t rank, unsigned n, bool connected)
{
	int rc;

	boundaries_wait_anew();
	need = (struct need){ .rank = rank, .n = n };
	rc = all_call(gather);
	ck_assert_msg(need.failed ? !rc || is_need(rc) : !rc, "rank %u, call %u: %d", rank, n,
		      rc);
	if (!rc)
		expect_gathered();
	until_connected(connected);
	gather_again();
}

/* i: connected, on devices. */
START_TEST(all_gather_or_are_told_that_they_do_not)
{
	on_devices = _i & 2;
	open_job(&in_pieces, _i & 1);
	for (uint32_t rank = 0; rank <= ROOT; rank++) { /* rank 0 counts the ranks that come */
		unsigned n = 0;

		do
			gather_in_need(rank, ++n, _i & 1);
		while (need.failed);
		ck_assert_uint_gt(n, 1);
	}
	close_job();
}
END_TEST

/* ---- scattering ---- */

static void set_value(uint64_t seed)
{
	job_fill(value, FRAG_F32, NUMEL, seed);
	if (on_devices)
		memcpy(there[ROOT].at, value, BYTES);
}

static void expect_scattered(int rc)
{
	job_check(&job);
	if (!rc) {
		job_expect(&job, 0, "fp32", value);
		job_expect_lp_of(&job, 0, value);
	}
	all_pass(passed(0) + 3);
	job_check(&job);
}

static void scatter_again(void)
{
	ck_assert_int_eq(all_call(scatter), 0);
	expect_scattered(0);
}

static void scatter_in_need(uint32_t rank, unsigned n, bool connected)
{
	int rc;

	boundaries_wait_anew();
	set_value(2 * n);
	need = (struct need){ .rank = rank, .n = n };
	rc = all_call(scatter);
	ck_assert_msg(need.failed ? !rc || is_need(rc) : !rc, "rank %u, call %u: %d", rank, n,
		      rc);
	expect_scattered(rc);
	until_connected(connected);
	set_value(2 * n + 1);
	scatter_again();
}

/* i: connected, on devices. */
START_TEST(all_or_nobody_get_what_is_scattered)
{
	on_devices = _i & 2;
	open_job(on_devices ? &in_pieces : &sharded, _i & 1);
	for (uint32_t rank = 0; rank <= ROOT; rank++) { /* rank 0 counts the ranks that come */
		unsigned n = 0;

		do
			scatter_in_need(rank, ++n, _i & 1);
		while (need.failed);
		ck_assert_uint_gt(n, 1);
	}
	close_job();
}
END_TEST

/* ---- the rank that counts the others ---- */

static int answers, answered;

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *a)
{
	struct wire_ack ack = { .status = a->status };

	if (a->type == WIRE_ACK)
		memcpy(&ack, a->body, sizeof(ack));
	answers++;
	answered = ack.status;
	return false;
}

/* Tells rank 0 that rank 1 comes; rank 0 may not hear of it at once. */
static void come(struct wire_rendezvous said)
{
	struct engine *e = engine_of(1);
	int rc;

	answers = answered = 0;
	do {
		pthread_mutex_lock(&e->lock);
		rc = peers_call(e, 0, WIRE_RENDEZVOUS, &said, NULL, 0, on_answer, NULL, 0);
		pthread_mutex_unlock(&e->lock);
		turn(NULL);
	} while (rc);
}

static int answer_of(void)
{
	while (!answers) {
		turn(NULL);
		scarce_skip_ms(10);
	}
	return answered;
}

START_TEST(who_comes_to_what_is_not_there_is_refused)
{
	struct wire_rendezvous said = { .group = 77, .wait_ms = WAIT_MS };

	open_job(&sharded, false);
	come(said);
	ck_assert_int_eq(answer_of(), -EINVAL);
	said.group = 0;
	memset(said.key, 'k', sizeof(said.key));
	come(said);
	ck_assert_int_eq(answer_of(), -EINVAL);
	close_job();
}
END_TEST

START_TEST(who_comes_to_one_that_has_not_entered_asks_again)
{
	open_job(&sharded, false);
	engine_of(0)->job.ready = false;
	come((struct wire_rendezvous){ .key = "fp32", .wait_ms = WAIT_MS });
	ck_assert_int_eq(answer_of(), -EAGAIN);
	call(1, gather);
	call(2, gather);
	for (int i = 0; i < 20; i++)
		turn(NULL);
	engine_of(0)->job.ready = true;
	call(0, gather);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(result_of(rank), 0);
	expect_gathered();
	close_job();
}
END_TEST

/* Rank 0 also needs memory for another gathering, when that is the first that it is asked
 * about.
 */
START_TEST(who_counts_needs_memory)
{
	unsigned n = 0;

	open_job(&sharded, false);
	do {
		boundaries_wait_anew();
		rendezvous_free(engine_of(0));
		ck_assert_int_eq(rendezvous_new(engine_of(0)), 0);
		asleep[0] = true;
		come((struct wire_rendezvous){ .key = "fp32", .wait_ms = 1 });
		asleep[0] = false;
		scarce_begin(n++ % 4 + 1, 1);
		loop_turn(engine_of(0), 0);
		scarce_end();
		ck_assert_uint_lt(n, 1000);
	} while (answer_of() != -ENOMEM);
	gather_again();
	close_job();
}
END_TEST

/* Rank 1 waits, rank 2 gives up before rank 0 comes. */
static void one_gives_up(void)
{
	call(1, gather);
	while (SLIST_EMPTY(&engine_of(0)->job.rendezvous->meetings))
		turn(NULL);
	wait_ms = 1;
	call(2, gather);
	while (results[2] == BUSY) {
		turn(NULL);
		scarce_skip_ms(10);
	}
	wait_ms = WAIT_MS;
	ck_assert_int_eq(results[2], -ETIMEDOUT);
	ck_assert_int_eq(results[1], BUSY);
}

START_TEST(who_waits_for_less_than_the_others_waits_no_longer)
{
	open_job(&sharded, false);
	one_gives_up();
	settle();
	call(0, gather);
	call(2, gather);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(result_of(rank), 0);
	expect_gathered();
	close_job();
}
END_TEST

/* Rank 0 comes before it hears that rank 2 has given up, so that it takes rank 2 for there. */
START_TEST(who_gives_up_and_calls_anew_is_late_for_all)
{
	open_job(&sharded, false);
	one_gives_up();
	asleep[2] = true;
	call(0, gather);
	while (!engine_of(0)->job.rendezvous->met.status)
		turn(NULL);
	asleep[2] = false;
	call(2, gather);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(result_of(rank), -ETIMEDOUT);
	gather_again();
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scarce-gather");
	TCase *t = tcase_create("scarce-gather");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, all_gather_or_are_told_that_they_do_not, 0, 4);
	tcase_add_loop_test(t, all_or_nobody_get_what_is_scattered, 0, 4);
	tcase_add_test(t, who_comes_to_what_is_not_there_is_refused);
	tcase_add_test(t, who_comes_to_one_that_has_not_entered_asks_again);
	tcase_add_test(t, who_counts_needs_memory);
	tcase_add_test(t, who_waits_for_less_than_the_others_waits_no_longer);
	tcase_add_test(t, who_gives_up_and_calls_anew_is_late_for_all);
	return run_suite(s, t);
}

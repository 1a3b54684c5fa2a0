/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/ranks/hidden.h"
#include "tests/run-suite.h"

#include "engine/base/log.h"
#include "engine/job/rendezvous.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* All ranks of a group gather a state, by the communicator or without it, and no rank waits for
 * ever.
 */

enum { WORLD = 4, BUSY = 1, SHORT_MS = 300, WAIT_MS = 60000 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };
static const struct job_group replicated = {
	.stage = 2, .replicas = 2, .nparams = 2, .params = { 0, 1 }
};

/* A group in which the pieces of "u" are equal. */
static const struct job_group in_pieces = { .stage = 3, .nparams = 3, .params = { 0, 1, 2 } };

static unsigned wait_ms;

static struct call {
	uint32_t param;
	const char *key;
	int status; /* own result with which the rank arrives */
	int result;
	float got[NUMEL];
	void *out; /* NULL: got */
} calls[WORLD];

static void gather(uint32_t rank)
{
	struct call *c = &calls[rank];

	c->result = frag_gather(job_frag(&job, rank), job_number(&job, rank, c->param), c->key,
				c->out ? c->out : c->got, job_bytes(&job, c->param, c->key),
				wait_ms);
}

static void call_of(uint32_t rank, uint32_t param, const char *key)
{
	calls[rank] = (struct call){ .param = param, .key = key, .result = BUSY };
	send_off(rank, gather);
}

static void call(uint32_t rank, const char *key)
{
	call_of(rank, 0, key);
}

static int result_of(uint32_t rank)
{
	while (calls[rank].result == BUSY)
		turn(NULL);
	while (waits_inside(rank))
		turn(NULL);
	return calls[rank].result;
}

static void expect_all(uint32_t rank, const char *key)
{
	ck_assert_int_eq(result_of(rank), 0);
	ck_assert_mem_eq(calls[rank].got, job_truth(&job, calls[rank].param, key),
			 job_bytes(&job, calls[rank].param, key));
}

static void open_unconnected(const struct job_group *group)
{
	boundaries_open(WORLD, group);
	memset(calls, 0, sizeof(calls));
	wait_ms = WAIT_MS;
}

static void open_connected(const struct job_group *group)
{
	open_unconnected(group);
	boundaries_connect();
}

static uint64_t launched(uint32_t rank)
{
	struct collective_about about = { 0 };

	communicator_about(engine_of(rank), &about);
	return about.launched;
}

static void all_call(const char *key)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		call(rank, key);
}

START_TEST(all_have_it_by_the_communicator)
{
	open_connected(_i ? &replicated : &sharded);
	for (int again = 0; again < 3; again++) {
		all_call("exp_avg");
		for (uint32_t rank = 0; rank < WORLD; rank++)
			expect_all(rank, "exp_avg");
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_eq(launched(rank), 3);
	boundaries_close();
}
END_TEST

START_TEST(equal_pieces_and_those_of_lp_too)
{
	open_connected(&in_pieces);
	for (uint32_t param = 0; param < 3; param += 2) {
		for (uint32_t rank = 0; rank < WORLD; rank++)
			call_of(rank, param, _i ? "lp" : "exp_avg");
		for (uint32_t rank = 0; rank < WORLD; rank++)
			expect_all(rank, _i ? "lp" : "exp_avg");
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_eq(launched(rank), 2);
	boundaries_close();
}
END_TEST

/* i: 0: connected; 1: not connected. */
START_TEST(all_have_it_on_their_devices)
{
	static struct hidden out[WORLD];

	on_devices = true;
	if (_i)
		open_unconnected(&in_pieces);
	else
		open_connected(&in_pieces);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		hidden_new(&out[rank], devices_port(engine_of(rank)->registry.devices),
			   (int)(rank % DEVICE_HOST_DEVICES), BYTES);
		call_of(rank, 0, "exp_avg");
		calls[rank].out = out[rank].memory;
	}
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(result_of(rank), 0);
		ck_assert_mem_eq(out[rank].at, job_truth(&job, 0, "exp_avg"), BYTES);
		ck_assert_uint_eq(launched(rank), !_i);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		hidden_free(&out[rank]);
	boundaries_close();
}
END_TEST

/* A rank at another boundary would launch in another order than the others. */
START_TEST(who_is_at_another_boundary_reads)
{
	open_connected(&sharded);
	boundary(2);
	all_call("exp_avg");
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		expect_all(rank, "exp_avg");
		ck_assert_uint_eq(launched(rank), 0);
	}
	boundaries_close();
}
END_TEST

START_TEST(all_have_it_without_one)
{
	open_unconnected(&sharded);
	all_call("exp_avg");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		expect_all(rank, "exp_avg");
	boundaries_close();
}
END_TEST

/* The second replica keeps no copies of the low-precision parameters. */
START_TEST(what_one_replica_lacks_it_reads_from_the_other)
{
	open_connected(&replicated);
	for (uint32_t rank = WORLD / 2; rank < WORLD; rank++)
		ck_assert_int_eq(registry_drop(&engine_of(rank)->registry, STATE_LP,
					       (uint32_t)job_number(&job, rank, 0), 0, ""),
				 0);
	all_call("lp");
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		expect_all(rank, "lp");
		ck_assert_uint_eq(launched(rank), 0);
	}
	boundaries_close();
}
END_TEST

static void expect_told(const char *fmt, uint32_t rank)
{
	char text[8192], line[128];

	snprintf(line, sizeof(line), fmt, rank);
	log_tail(text, sizeof(text));
	ck_assert_msg(strstr(text, line) != NULL, "%s", text);
}

START_TEST(who_does_not_come_is_not_waited_for_beyond_the_time)
{
	open_connected(&sharded);
	wait_ms = SHORT_MS;
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != (uint32_t)_i)
			call(rank, "exp_avg");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != (uint32_t)_i)
			ck_assert_int_eq(result_of(rank), -ETIMEDOUT);
	expect_told("frag_gather of w, exp_avg: rank %u has not come in time", (uint32_t)_i);
	wait_ms = WAIT_MS;
	all_call("exp_avg");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		expect_all(rank, "exp_avg");
	boundaries_close();
}
END_TEST

static void turn_for(uint64_t ms)
{
	for (uint64_t until = monotonic_ms() + ms; monotonic_ms() < until;)
		turn(NULL);
}

/* Opens a job whose ranks have each other's tables of states. */
static void open_acquainted(void)
{
	open_unconnected(&sharded);
	all_call("exp_avg_sq");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		expect_all(rank, "exp_avg_sq");
}

/* Turns until the rank's call has arrived at the engine that counts, which is the rank's own.
 */
static void until_arrived(uint32_t rank)
{
	const struct engine *e = engine_of(rank);

	do
		turn(NULL);
	while (e->job.rendezvous->state < RENDEZVOUS_ASKED ||
	       !STAILQ_EMPTY(&e->thread.to_self));
}

/* Rank 0, which counts, is stopped, and hears later calls before it sees that its own time is
 * over.
 */
START_TEST(who_comes_when_that_time_is_over_has_come_to_the_next)
{
	open_acquainted();
	wait_ms = SHORT_MS;
	call(0, "exp_avg");
	until_arrived(0);
	asleep[0] = true;
	wait_ms = WAIT_MS;
	for (uint32_t rank = 1; rank < WORLD; rank++)
		call(rank, "exp_avg_sq");
	turn_for(SHORT_MS);
	asleep[0] = false;
	ck_assert_int_eq(result_of(0), -ETIMEDOUT);
	call(0, "exp_avg_sq");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		expect_all(rank, "exp_avg_sq");
	boundaries_close();
}
END_TEST

/* Rank 1's call, given up meanwhile, comes to rank 0, which counts, when that goes on. */
START_TEST(who_has_left_is_not_waited_with)
{
	open_acquainted();
	asleep[0] = true;
	call(1, "exp_avg");
	ck_assert_int_eq(result_of(1), -ETIMEDOUT);
	expect_told("frag_gather of w, exp_avg: rank %u, which counts the group's ranks, "
		    "has not answered in time",
		    0);
	asleep[0] = false;
	turn_for(SHORT_MS);
	call(0, "exp_avg_sq");
	call(2, "exp_avg_sq");
	call(3, "exp_avg_sq");
	turn_for(SHORT_MS);
	call(1, "exp_avg_sq");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		expect_all(rank, "exp_avg_sq");
	boundaries_close();
}
END_TEST

START_TEST(who_dies_before_it_comes_is_not_waited_for)
{
	open_connected(&sharded);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != (uint32_t)_i)
			call(rank, "exp_avg");
	for (uint32_t n = job_random(&job, 20); n; n--)
		turn(NULL);
	die((uint32_t)_i, true);
	/* a message of the rank that was still on its way makes it silent, not dead */
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != (uint32_t)_i)
			ck_assert(result_of(rank) == -EIO || calls[rank].result == -ETIMEDOUT);
	boundaries_close();
}
END_TEST

START_TEST(different_states_are_refused)
{
	open_connected(&sharded);
	all_call("exp_avg");
	call(_i ? 0 : 2, "exp_avg_sq");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(result_of(rank), -EINVAL);
	expect_told("rank %u has called it with other arguments than rank 0\n", _i ? 1 : 2);
	boundaries_close();
}
END_TEST

static void say_what_it_came_to(uint32_t rank)
{
	struct engine *e = engine_of(rank);
	struct wire_rendezvous said = { .root = WIRE_OBSERVER,
					.stage = 1,
					.status = calls[rank].status,
					.wait_ms = WAIT_MS };

	strcpy(said.key, "exp_avg");
	pthread_mutex_lock(&e->lock);
	calls[rank].result = rendezvous_wait(e, &said, NULL);
	pthread_mutex_unlock(&e->lock);
}

START_TEST(who_has_come_and_could_not_is_not_said_to_be_away)
{
	static const int statuses[] = { ETIMEDOUT, EIO, EINVAL };
	char line[80];

	open_unconnected(&sharded);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		calls[rank].result = BUSY;
		calls[rank].status = rank == 2 ? -statuses[_i] : 0;
		send_off(rank, say_what_it_came_to);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(result_of(rank), -statuses[_i]);
	snprintf(line, sizeof(line), "rank %%u failed: %s\n", strerror(statuses[_i]));
	expect_told(line, 2);
	boundaries_close();
}
END_TEST

START_TEST(it_must_be_all_of_a_state_that_there_is)
{
	struct frag *f;
	float got[NUMEL];

	open_unconnected(&sharded);
	f = job_frag(&job, 1);
	ck_assert_int_eq(frag_gather(f, job_number(&job, 1, 0), "exp_avg", got, 4, WAIT_MS),
			 -EINVAL);
	ck_assert_int_eq(
		frag_gather(f, job_number(&job, 1, 0), "exp_avg", NULL, BYTES, WAIT_MS),
		-EINVAL);
	ck_assert_int_eq(frag_fetch(f, job_number(&job, 1, 0), "exp_avg", NULL, BYTES),
			 -EINVAL);
	ck_assert_int_eq(frag_get(f, job_number(&job, 1, 0), "exp_avg", NULL, BYTES), -EINVAL);
	ck_assert_int_eq(frag_get_range(f, job_number(&job, 1, 0), "exp_avg", 4, NULL, 4),
			 -EINVAL);
	ck_assert_int_eq(frag_set(f, job_number(&job, 1, 0), "exp_avg", NULL, BYTES), -EINVAL);
	ck_assert_int_eq(frag_gather(f, 77, "exp_avg", got, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_gather(NULL, 0, "exp_avg", got, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_gather(f, job_number(&job, 1, 0), "none", got, BYTES, WAIT_MS),
			 -ENOENT);
	ck_assert_int_eq(frag_gather(f, job_number(&job, 1, 2), "lp", got, EVEN * 2, WAIT_MS),
			 -ENOENT);
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gather");
	TCase *t = tcase_create("gather");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, all_have_it_by_the_communicator, 0, 2);
	tcase_add_loop_test(t, equal_pieces_and_those_of_lp_too, 0, 2);
	tcase_add_loop_test(t, all_have_it_on_their_devices, 0, 2);
	tcase_add_test(t, who_is_at_another_boundary_reads);
	tcase_add_test(t, all_have_it_without_one);
	tcase_add_test(t, what_one_replica_lacks_it_reads_from_the_other);
	tcase_add_test(t, who_comes_when_that_time_is_over_has_come_to_the_next);
	tcase_add_test(t, who_has_left_is_not_waited_with);
	tcase_add_loop_test(t, who_does_not_come_is_not_waited_for_beyond_the_time, 0, 2);
	tcase_add_loop_test(t, who_dies_before_it_comes_is_not_waited_for, 0, 2);
	tcase_add_loop_test(t, different_states_are_refused, 0, 2);
	tcase_add_loop_test(t, who_has_come_and_could_not_is_not_said_to_be_away, 0, 3);
	tcase_add_test(t, it_must_be_all_of_a_state_that_there_is);
	return run_suite(s, t);
}

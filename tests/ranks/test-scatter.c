/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/ranks/hidden.h"
#include "tests/run-suite.h"

#include "engine/node/peers.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* All ranks of a group get their parts of one rank's value, by the communicator or without it:
 * all of them or none, at one boundary, and no rank waits for ever.
 */

enum { WORLD = 4, BUSY = 1, SHORT_MS = 300, WAIT_MS = 60000, ROOT = 1 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };
static const struct job_group replicated = {
	.stage = 2, .replicas = 2, .nparams = 2, .params = { 0, 1 }
};
static const struct job_group in_pieces = { .stage = 3, .nparams = 3, .params = { 0, 1, 2 } };
static const struct job_group *const groups[] = { &sharded, &replicated, &in_pieces };

static unsigned wait_ms;
static float value[NUMEL];

static struct call {
	uint32_t param;
	const char *key;
	uint32_t root;
	const void *value; /* of the root */
	int result;
} calls[WORLD];

static void scatter(uint32_t rank)
{
	struct call *c = &calls[rank];

	c->result = frag_scatter(job_frag(&job, rank), job_number(&job, rank, c->param), c->key,
				 (int)c->root, rank == c->root ? c->value : NULL,
				 job_bytes(&job, c->param, c->key), wait_ms);
}

static void call(uint32_t rank, const char *key)
{
	calls[rank] = (struct call){ .key = key, .root = ROOT, .value = value, .result = BUSY };
	send_off(rank, scatter);
}

static void all_call(const char *key)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		call(rank, key);
}

static int result_of(uint32_t rank)
{
	while (calls[rank].result == BUSY)
		turn(NULL);
	while (waits_inside(rank))
		turn(NULL);
	return calls[rank].result;
}

static void all_end_with(int result)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(result_of(rank), result);
}

/* Checks that nothing has changed before the boundary, and everything after it. */
static void all_apply(const char *key)
{
	job_check(&job);
	job_expect(&job, 0, key, value);
	if (!strcmp(key, "fp32"))
		job_expect_lp_of(&job, 0, value);
	all_pass(passed(0) + 3);
	job_check(&job);
}

static void nobody_applies(void)
{
	job_check(&job);
	all_pass(passed(0) + 3);
	job_check(&job);
}

static void open_unconnected(const struct job_group *group)
{
	boundaries_open(WORLD, group);
	memset(calls, 0, sizeof(calls));
	wait_ms = WAIT_MS;
	job_fill(value, FRAG_F32, NUMEL, 77);
}

static void open_connected(const struct job_group *group)
{
	open_unconnected(group);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(landing_init(engine_of(rank), LANDING_SLOT), 0);
	boundaries_connect();
}

static uint64_t launched(uint32_t rank)
{
	struct collective_about about = { 0 };

	communicator_about(engine_of(rank), &about);
	return about.launched;
}

/* ---- the two ways ---- */

START_TEST(all_get_theirs_by_the_communicator)
{
	static const char *const keys[] = { "fp32", "exp_avg" };

	on_devices = _i & 1;
	open_connected(groups[_i / 2]);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		job_fill(value, FRAG_F32, NUMEL, 88 + i);
		all_call(keys[i]);
		all_end_with(0);
		all_apply(keys[i]);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_ge(launched(rank), 1);
	boundaries_close();
}
END_TEST

START_TEST(a_value_on_the_roots_device)
{
	struct hidden there;

	on_devices = true;
	if (_i)
		open_unconnected(&sharded);
	else
		open_connected(&sharded);
	hidden_new(&there, devices_port(engine_of(ROOT)->registry.devices),
		   ROOT % DEVICE_HOST_DEVICES, BYTES);
	memcpy(there.at, value, BYTES);
	all_call("fp32");
	calls[ROOT].value = there.memory;
	all_end_with(0);
	all_apply("fp32");
	hidden_free(&there);
	boundaries_close();
}
END_TEST

START_TEST(a_value_of_low_precision)
{
	uint16_t low[NUMEL];

	open_connected(groups[_i]);
	job_fill(low, FRAG_BF16, NUMEL, 99);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		call(rank, "lp");
		calls[rank].value = low;
	}
	all_end_with(0);
	job_expect(&job, 0, "lp", low);
	all_pass(passed(0) + 3);
	job_check(&job);
	boundaries_close();
}
END_TEST

START_TEST(gradients_while_they_are_valid)
{
	open_connected(&sharded);
	all_call("grad");
	all_end_with(-ENODATA);
	job_grads_valid(&job);
	all_call("grad");
	all_end_with(0);
	all_apply("grad");
	job_grads_gone(&job);
	boundaries_close();
}
END_TEST

START_TEST(all_get_theirs_without_one)
{
	open_unconnected(groups[_i]);
	all_call("fp32");
	all_end_with(0);
	all_apply("fp32");
	boundaries_close();
}
END_TEST

/* If one rank has no memory that devices reach, or is at another boundary, no rank uses the
 * communicator.
 */
START_TEST(where_one_cannot_none_does)
{
	void *taken;

	open_connected(&sharded);
	if (_i)
		boundary(2);
	taken = _i ? NULL : landing_slot_get(engine_of(2));
	all_call("fp32");
	all_end_with(0);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_eq(launched(rank), 0);
	landing_slot_put(engine_of(2), taken);
	if (_i)
		for (uint32_t rank = 0; rank < WORLD; rank++)
			if (rank != 2)
				boundary(rank);
	all_apply("fp32");
	boundaries_close();
}
END_TEST

START_TEST(one_that_is_not_connected_has_its_part_by_the_host)
{
	open_unconnected(&sharded);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(landing_init(engine_of(rank), LANDING_SLOT), 0);
	boundaries_connect_some(WORLD - 1);
	all_call("fp32");
	all_end_with(0);
	for (uint32_t rank = 0; rank < WORLD - 1; rank++)
		ck_assert_uint_eq(launched(rank), 0);
	all_apply("fp32");
	boundaries_close();
}
END_TEST

/* ---- all or nothing ---- */

START_TEST(who_does_not_come_is_not_waited_for_beyond_the_time)
{
	open_connected(&sharded);
	wait_ms = SHORT_MS;
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != (uint32_t)_i)
			call(rank, "fp32");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != (uint32_t)_i)
			ck_assert_int_eq(result_of(rank), -ETIMEDOUT);
	wait_ms = WAIT_MS;
	nobody_applies();
	all_call("fp32");
	all_end_with(0);
	all_apply("fp32");
	boundaries_close();
}
END_TEST

/* The rank asks again each second.  When it gives up, its call ends, and it no longer counts as
 * arrived.
 */
START_TEST(who_has_given_up_is_not_there)
{
	open_connected(&sharded);
	wait_ms = 1500;
	call(2, "fp32");
	ck_assert_int_eq(result_of(2), -ETIMEDOUT);
	wait_ms = SHORT_MS;
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != 2)
			call(rank, "fp32");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(result_of(rank), -ETIMEDOUT);
	nobody_applies();
	boundaries_close();
}
END_TEST

/* The time is for ranks to arrive; a slow rank is waited for when all have. */
START_TEST(who_is_slow_when_all_have_come_is_waited_for)
{
	uint64_t until;

	open_unconnected(&sharded);
	wait_ms = SHORT_MS;
	all_call("fp32");
	while (LIST_EMPTY(&engine_of(ROOT)->write.transactions))
		turn(NULL);
	asleep[3] = true;
	until = monotonic_ms() + 2 * SHORT_MS;
	while (monotonic_ms() < until)
		turn(NULL);
	asleep[3] = false;
	all_end_with(0);
	all_apply("fp32");
	boundaries_close();
}
END_TEST

/* The rank's own look would find the change only within a second. */
START_TEST(who_has_been_given_other_memory_just_now_knows_it)
{
	struct job_memory *m;
	int group;

	open_connected(&sharded);
	all_call("exp_avg");
	all_end_with(0);
	all_apply("exp_avg");
	m = job_memory(&job, 2, 0, 0, "exp_avg");
	group = job.ranks[2].group[0];
	ck_assert_int_eq(frag_state_drop(job_frag(&job, 2), group, 0, "exp_avg"), 0);
	ck_assert_int_eq(
		frag_state_keep(job_frag(&job, 2), group, 0, "exp_avg", FRAG_F32, m->bytes_at),
		0);
	job_fill(value, FRAG_F32, NUMEL, 78);
	all_call("exp_avg");
	all_end_with(0);
	all_apply("exp_avg");
	boundaries_close();
}
END_TEST

START_TEST(who_has_no_room_speaks_for_all)
{
	uint64_t room;

	open_connected(&sharded);
	room = engine_of(2)->participant.bytes_max;
	engine_of(2)->participant.bytes_max = 64;
	all_call("fp32");
	all_end_with(-ENOSPC);
	nobody_applies();
	engine_of(2)->participant.bytes_max = room;
	all_call("fp32");
	all_end_with(0);
	all_apply("fp32");
	boundaries_close();
}
END_TEST

START_TEST(different_calls_are_refused)
{
	open_connected(&sharded);
	all_call("fp32");
	if (_i)
		calls[2].root = 2;
	else
		calls[2].key = "exp_avg";
	calls[2].value = value;
	all_end_with(-EINVAL);
	nobody_applies();
	boundaries_close();
}
END_TEST

/* Breaks the communicator of rank 2, so that launches of others wait for a part that never
 * comes.
 */
static void break_the_third(void *arg)
{
	uint64_t number = communicator_number(engine_of(2));

	if (number)
		communicator_break(engine_of(2), number);
	turn(arg);
}

START_TEST(a_communicator_that_fails_meanwhile)
{
	int rc;

	open_connected(&sharded);
	all_call("fp32");
	for (uint32_t n = job_random(&job, 40); n; n--)
		turn(NULL);
	break_the_third(NULL);
	rc = result_of(0);
	all_end_with(rc);
	if (rc)
		nobody_applies();
	else
		all_apply("fp32");
	boundaries_close();
}
END_TEST

static void others_lose(uint32_t lost)
{
	asleep[lost] = true;
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != lost)
			peers_lose(engine_of(rank), lost, -EIO, "gone");
}

/* The rank wakes up when the others have left, and goes on with what it was doing. */
START_TEST(who_is_lost_leaves_all_or_nothing)
{
	uint32_t lost = (uint32_t)_i, live = lost ? 0 : 1;
	struct job_memory *m;
	float before[NUMEL];

	open_connected(&replicated);
	m = job_memory(&job, live, 0, 0, "exp_avg");
	memcpy(before, m->bytes_at, m->bytes);
	wait_ms = 2 * SHORT_MS;
	all_call("exp_avg");
	for (uint32_t n = job_random(&job, 60); n; n--)
		turn(NULL);
	others_lose(lost);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (rank != lost)
			result_of(rank);
	asleep[lost] = false;
	result_of(lost);
	die(lost, true);
	all_pass(passed(live) + 3);
	if (memcmp(before, m->bytes_at, m->bytes))
		job_expect(&job, 0, "exp_avg", value);
	job_check(&job);
	boundaries_close();
}
END_TEST

/* ---- wrong calls ---- */

START_TEST(it_must_be_all_of_a_state_that_there_is)
{
	struct frag *f;
	int w;

	open_unconnected(&sharded);
	f = job_frag(&job, 1);
	w = job_number(&job, 1, 0);
	ck_assert_int_eq(frag_scatter(f, w, "fp32", 1, value, 4, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(f, w, "fp32", 1, NULL, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(f, w, "fp32", WORLD, value, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(f, w, "fp32", -1, value, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(f, 77, "fp32", 1, value, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(NULL, w, "fp32", 1, value, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(f, w, "none", 1, value, BYTES, WAIT_MS), -ENOENT);
	ck_assert_int_eq(
		frag_scatter(f, job_number(&job, 1, 2), "lp", 1, value, EVEN * 2, WAIT_MS),
		-ENOENT);
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scatter");
	TCase *t = tcase_create("scatter");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, all_get_theirs_by_the_communicator, 0, 6);
	tcase_add_loop_test(t, a_value_on_the_roots_device, 0, 2);
	tcase_add_loop_test(t, a_value_of_low_precision, 0, 3);
	tcase_add_test(t, gradients_while_they_are_valid);
	tcase_add_loop_test(t, all_get_theirs_without_one, 0, 3);
	tcase_add_loop_test(t, where_one_cannot_none_does, 0, 2);
	tcase_add_test(t, one_that_is_not_connected_has_its_part_by_the_host);
	tcase_add_loop_test(t, who_does_not_come_is_not_waited_for_beyond_the_time, 0, 2);
	tcase_add_test(t, who_has_given_up_is_not_there);
	tcase_add_test(t, who_is_slow_when_all_have_come_is_waited_for);
	tcase_add_test(t, who_has_been_given_other_memory_just_now_knows_it);
	tcase_add_test(t, who_has_no_room_speaks_for_all);
	tcase_add_loop_test(t, different_calls_are_refused, 0, 2);
	tcase_add_loop_test(t, a_communicator_that_fails_meanwhile, 0, 4);
	tcase_add_loop_test(t, who_is_lost_leaves_all_or_nothing, 0, WORLD);
	tcase_add_test(t, it_must_be_all_of_a_state_that_there_is);
	return run_suite(s, t);
}

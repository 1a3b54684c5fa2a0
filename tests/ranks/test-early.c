/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/log.h"
#include "engine/live/loop.h"
#include "tests/ports/transport-loop.h"
#include "tests/run-suite.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* frag_gather and frag_scatter of a group whose ranks have joined, in a job of which other
 * ranks have not.
 */

enum { WORLD = 2, NUMEL = 6, BYTES = NUMEL * 4, SHORT_MS = 50, WAIT_MS = 60000 };

static struct frag *ranks[WORLD];
static float master[NUMEL], value[NUMEL];
static bool comes; /* rank 1 joins while rank 0 waits */

static void turn(void *arg);

static void join_at(uint32_t rank, const char *seed)
{
	struct launch launch = { .rank = rank, .world = WORLD, .job = "early", .plain = true };

	strcpy(launch.host, "host");
	ck_assert_int_eq(api_open_over(&ranks[rank], &launch, &transport_loop, &transport_loop,
				       seed, false),
			 0);
	ranks[rank]->engine->thread.yield = turn;
}

static void join(uint32_t rank)
{
	join_at(rank, rank ? ranks[0]->engine->job.address : NULL);
}

static void turn(void *arg)
{
	if (comes && !ranks[1]) {
		join(1);
		ck_assert_int_eq(frag_ready(ranks[1]), 0);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (ranks[rank])
			loop_turn(ranks[rank]->engine, 0);
}

/* Describes a group of rank 0, or of the given rank: that rank has all of it. */
static void describe(struct frag *f, const uint32_t *rank)
{
	const uint64_t shape[] = { NUMEL };
	struct frag_tensor w = {
		.size = sizeof(w), .name = "w", .dtype = FRAG_F32, .ndim = 1, .shape = shape
	};
	struct frag_zero zero = {
		.size = sizeof(zero), .stage = 1, .ranks = rank, .nranks = 1
	};
	int param = 0;

	for (uint32_t i = 0; i < NUMEL; i++)
		master[i] = (float)i;
	ck_assert_int_eq(frag_param(f, &w), param);
	ck_assert_int_eq(frag_group(f, &param, 1, &zero), 0);
	ck_assert_int_eq(frag_state_keep(f, 0, 0, "fp32", FRAG_F32, master), 0);
}

static void open_first(void)
{
	static const uint32_t itself = 0;

	memset(ranks, 0, sizeof(ranks));
	join(0);
	describe(ranks[0], &itself);
	ck_assert_int_eq(frag_ready(ranks[0]), 0);
}

static void close_all(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (ranks[rank])
			frag_close(ranks[rank]);
}

static int gather(unsigned timeout_ms)
{
	return frag_gather(ranks[0], 0, "fp32", value, BYTES, timeout_ms);
}

static int scatter(unsigned timeout_ms)
{
	return frag_scatter(ranks[0], 0, "fp32", 0, value, BYTES, timeout_ms);
}

static void expect_said(const char *line)
{
	static char text[65536];

	log_tail(text, sizeof(text));
	ck_assert_msg(strstr(text, line) != NULL, "%s", text);
}

static void turn_until_said(const char *line)
{
	static char text[65536];
	uint64_t end = monotonic_ms() + WAIT_MS;

	for (log_tail(text, sizeof(text)); !strstr(text, line); log_tail(text, sizeof(text))) {
		ck_assert_uint_lt(monotonic_ms(), end);
		turn(NULL);
	}
}

START_TEST(who_has_not_joined_in_time_is_named)
{
	comes = false;
	open_first();
	ck_assert_int_eq(gather(SHORT_MS), -ETIMEDOUT);
	expect_said("frag_gather: job early: 1 of 2 ranks have joined; not yet: 1\n");
	ck_assert_int_eq(scatter(0), -ETIMEDOUT);
	expect_said("frag_scatter: job early: 1 of 2 ranks have joined; not yet: 1\n");
	ck_assert_int_eq(frag_get(ranks[0], 0, "fp32", value, BYTES), -EAGAIN);
	close_all();
}
END_TEST

START_TEST(a_rank_that_has_not_heard_who_has_joined_says_so)
{
	static const uint32_t itself = 1;

	comes = false;
	memset(ranks, 0, sizeof(ranks));
	join_at(1, _i ? "loop:nobody" : NULL);
	describe(ranks[1], &itself);
	ck_assert_int_eq(frag_gather(ranks[1], 0, "fp32", value, BYTES, 0), -ETIMEDOUT);
	expect_said("frag_gather: this rank has not called frag_ready\n");
	ck_assert_int_eq(frag_ready(ranks[1]), 0);
	ck_assert_int_eq(frag_gather(ranks[1], 0, "fp32", value, BYTES, SHORT_MS), -ETIMEDOUT);
	expect_said(_i ? "frag_gather: rank 0 has not answered\n"
		       : "frag_gather: rank 0 has not been found\n");
	turn_until_said(_i ? "job early: rank 0 has not been reached yet; looking for it at "
			     "loop:nobody\n"
			   : "job early: rank 0 has not been reached yet; looking for it in "
			     "this user's job "
			     "files on this host\n");
	close_all();
}
END_TEST

START_TEST(who_joins_in_time_is_waited_for)
{
	comes = true;
	open_first();
	if (_i) {
		value[1] = 77;
		ck_assert_int_eq(scatter(WAIT_MS), 0);
		while (memcmp(value, master, BYTES))
			for (uint32_t rank = 0; rank < WORLD; rank++)
				ck_assert_int_eq(frag_safe_point(ranks[rank]), 0);
	} else {
		ck_assert_int_eq(gather(WAIT_MS), 0);
		ck_assert_mem_eq(value, master, BYTES);
	}
	ck_assert_ptr_nonnull(ranks[1]);
	close_all();
}
END_TEST

START_TEST(what_cannot_be_right_is_not_waited_with)
{
	comes = false;
	open_first();
	ck_assert_int_eq(frag_gather(ranks[0], 1, "fp32", value, BYTES, WAIT_MS), -EINVAL);
	ck_assert_int_eq(frag_scatter(ranks[0], 0, NULL, 0, value, BYTES, WAIT_MS), -EINVAL);
	ranks[0]->engine->job.failure = -EPROTO;
	ck_assert_int_eq(gather(WAIT_MS), -EPROTO);
	close_all();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("early");
	TCase *t = tcase_create("early");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, who_has_not_joined_in_time_is_named);
	tcase_add_loop_test(t, a_rank_that_has_not_heard_who_has_joined_says_so, 0, 2);
	tcase_add_loop_test(t, who_joins_in_time_is_waited_for, 0, 2);
	tcase_add_test(t, what_cannot_be_right_is_not_waited_with);
	return run_suite(s, t);
}

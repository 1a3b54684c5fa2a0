/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/health.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

static const struct engine_rank two[] = {
	{ .host = "node0",
	  .address = "tcp://127.0.0.1:21017",
	  .pid = 4242,
	  .state = ENGINE_RANK_ALIVE,
	  .since_ms = 5120,
	  .way = "tls",
	  .step = 17,
	  .boundary = 35,
	  .generation = 18,
	  .phase = "stable",
	  .bytes_host = 1ull << 40,
	  .bytes_swap = 3,
	  .bytes_device = 1ull << 33,
	  .swap_errors = 5,
	  .swap_damaged = 6,
	  .fabric = true },
	{ .host = "node 1",
	  .pid = 7,
	  .state = ENGINE_RANK_LOST,
	  .why = "no answer for\n10 s",
	  .way = "zmq",
	  .phase = "step" },
};

START_TEST(what_is_written_is_read_back)
{
	char *text = health_text(two, 2);
	struct engine_rank *ranks;
	uint32_t n;

	ck_assert_int_eq(health_parse(text, &ranks, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(ranks[0].host, "node0");
	ck_assert_str_eq(ranks[0].address, "tcp://127.0.0.1:21017");
	ck_assert_int_eq(ranks[0].pid, 4242);
	ck_assert_int_eq(ranks[0].state, ENGINE_RANK_ALIVE);
	ck_assert_uint_eq(ranks[0].since_ms, 5120);
	ck_assert_str_eq(ranks[0].way, "tls");
	ck_assert_uint_eq(ranks[0].step, 17);
	ck_assert_uint_eq(ranks[0].boundary, 35);
	ck_assert_uint_eq(ranks[0].generation, 18);
	ck_assert_str_eq(ranks[0].phase, "stable");
	ck_assert_uint_eq(ranks[0].bytes_host, 1ull << 40);
	ck_assert_uint_eq(ranks[0].bytes_swap, 3);
	ck_assert_uint_eq(ranks[0].bytes_device, 1ull << 33);
	ck_assert_uint_eq(ranks[0].swap_errors, 5);
	ck_assert_uint_eq(ranks[0].swap_damaged, 6);
	ck_assert(ranks[0].fabric && !ranks[1].fabric);
	ck_assert_str_eq(ranks[0].why, "");
	ck_assert_int_eq(ranks[1].state, ENGINE_RANK_LOST);
	free(ranks);
	free(text);
}
END_TEST

START_TEST(spaces_and_newlines_do_not_break_the_table)
{
	char *text = health_text(two, 2);
	struct engine_rank *ranks;
	uint32_t n;

	ck_assert_int_eq(health_parse(text, &ranks, &n), 0);
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(ranks[1].host, "node_1");
	ck_assert_str_eq(ranks[1].address, "");
	ck_assert_str_eq(ranks[1].why, "no answer for 10 s");
	free(ranks);
	free(text);
}
END_TEST

START_TEST(columns_go_by_name)
{
	struct engine_rank *ranks;
	uint32_t n;

	ck_assert_int_eq(health_parse("rank colour step\n0 red 9\n", &ranks, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(ranks[0].step, 9);
	free(ranks);
}
END_TEST

START_TEST(another_text_is_refused)
{
	struct engine_rank *ranks;
	uint32_t n;

	ck_assert_int_eq(health_parse("", &ranks, &n), -EINVAL);
	ck_assert_int_eq(health_parse("hello\n", &ranks, &n), -EINVAL);
	ck_assert_int_eq(health_parse("rank step\n0 1\n1\n", &ranks, &n), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("health");
	TCase *t = tcase_create("health");

	tcase_add_test(t, what_is_written_is_read_back);
	tcase_add_test(t, spaces_and_newlines_do_not_break_the_table);
	tcase_add_test(t, columns_go_by_name);
	tcase_add_test(t, another_text_is_refused);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/comms.h"
#include "tests/run-suite.h"

#include <stdio.h>

static struct comms *counting(void)
{
	struct comms *c;

	setenv("FRAG_COMMS", "1", 1);
	c = comms_new();
	ck_assert_ptr_nonnull(c);
	return c;
}

/* Returns a number of the line that begins with `op` and size, by its place in the line. */
static double number(struct comms *c, const char *op, int column)
{
	char *text = comms_text(c), *line = strstr(text, op);
	double value;

	ck_assert_ptr_nonnull(line);
	for (; column > 0; column--)
		line = strchr(line, '\t') + 1;
	value = strtod(line, NULL);
	free(text);
	return value;
}

enum { SIZE = 1, COUNT, BYTES, MIN, P50, P99, MAX, ALGBW, BUSBW };

START_TEST(nothing_is_counted_unless_asked_for)
{
	char *text;

	unsetenv("FRAG_COMMS");
	ck_assert_ptr_null(comms_new());
	setenv("FRAG_COMMS", "0", 1);
	ck_assert_ptr_null(comms_new());
	setenv("FRAG_COMMS", "yes", 1);
	ck_assert_ptr_null(comms_new());
	ck_assert_uint_eq(comms_begin(NULL), 0);
	text = comms_text(NULL);
	ck_assert_str_eq(text, "off\n");
	free(text);
	comms_free(NULL);
}
END_TEST

/* calc_bw_log of DeepSpeed 0.19.8, deepspeed/utils/comms_logging.py: all_gather_into_tensor of
 * `size` bytes a rank, and send, which take ms; Gbit/s.
 */
static const struct {
	unsigned n;
	uint64_t size;
	double ms, gather_algbw, gather_busbw, send_algbw;
} deepspeed[] = {
	{ 2, 1048576, 2.5, 6.7108864, 3.3554432, 3.3554432 },
	{ 4, 1048576, 2.5, 13.4217728, 10.0663296, 3.3554432 },
	{ 8, 1048576, 2.5, 26.8435456, 23.4881024, 3.3554432 },
	{ 2, 12345, 0.04, 4.938, 2.469, 2.469 },
	{ 4, 12345, 0.04, 9.876, 7.407, 2.469 },
	{ 8, 12345, 0.04, 19.752, 17.283, 2.469 },
};

START_TEST(rates_are_by_the_fields_formulas)
{
	struct comms *c = counting();
	uint64_t ns = (uint64_t)(deepspeed[_i].ms * 1e6);

	comms_count(c, COMMS_ROUND, deepspeed[_i].n, deepspeed[_i].size * deepspeed[_i].n, ns,
		    "a.c:1");
	comms_count(c, COMMS_READ, 0, deepspeed[_i].size, ns, "a.c:2");
	ck_assert_double_eq_tol(number(c, "round\t", ALGBW), deepspeed[_i].gather_algbw, 1e-4);
	ck_assert_double_eq_tol(number(c, "round\t", BUSBW), deepspeed[_i].gather_busbw, 1e-4);
	ck_assert_double_eq_tol(number(c, "read\t", ALGBW), deepspeed[_i].send_algbw, 1e-4);
	ck_assert_double_eq_tol(number(c, "read\t", BUSBW), deepspeed[_i].send_algbw, 1e-4);
	comms_free(c);
}
END_TEST

/* Its mean leaves out the slowest tenth: of these, the only ones that matter. */
START_TEST(quantiles_are_close_and_keep_the_slow_ones)
{
	struct comms *c = counting();

	for (uint64_t us = 1; us <= 1000; us++)
		comms_count(c, COMMS_READ, 0, 4096, us * 1000, "a.c:1");
	for (int i = 0; i < 20; i++)
		comms_count(c, COMMS_READ, 0, 4097 + i, 5000000000, "a.c:1");
	ck_assert_double_eq(number(c, "read\t4096\t", COUNT), 1020);
	ck_assert_double_eq(number(c, "read\t4096\t", MIN), 1);
	ck_assert_double_eq(number(c, "read\t4096\t", MAX), 5e6);
	ck_assert_double_eq_tol(number(c, "read\t4096\t", P50), 510, 51);
	ck_assert_double_eq_tol(number(c, "read\t4096\t", P99), 5e6, 5e5);
	comms_free(c);
}
END_TEST

START_TEST(extreme_latencies_have_a_bucket)
{
	struct comms *c = counting();

	comms_count(c, COMMS_READ, 0, 1, 0, "a.c:1");
	comms_count(c, COMMS_READ, 0, UINT64_MAX, UINT64_MAX, "a.c:1");
	ck_assert_double_eq(number(c, "read\t1\t", P99), 0);
	ck_assert_double_eq_tol(number(c, "read\t9223372036854775808\t", P50), 1.76e10, 1e9);
	comms_free(c);
}
END_TEST

START_TEST(rows_are_by_operation_size_and_caller_and_bounded)
{
	struct comms *c = counting();
	static char places[2 * COMMS_ROWS][16];
	char *text;

	comms_count(c, COMMS_STAGE, 0, 1024, 1000, "a.c:1");
	comms_count(c, COMMS_STAGE, 0, 2047, 1000, "a.c:1");
	comms_count(c, COMMS_STAGE, 0, 2048, 1000, "a.c:1");
	comms_count(c, COMMS_STAGE, 0, 0, 1000, "b.c:1");
	ck_assert_double_eq(number(c, "stage\t1024\t", COUNT), 2);
	ck_assert_double_eq(number(c, "stage\t1024\t", BYTES), 3071);
	ck_assert_double_eq(number(c, "stage\t2048\t", COUNT), 1);
	ck_assert_double_eq(number(c, "stage\t0\t", COUNT), 1);
	for (int i = 0; i < 2 * COMMS_ROWS; i++) {
		snprintf(places[i], sizeof(places[i]), "c.c:%d", i);
		comms_count(c, COMMS_READ, 0, 1, 1000, places[i]);
	}
	ck_assert_double_eq(number(c, "\nothers\t", COUNT), COMMS_ROWS + 3);
	text = comms_text(c);
	ck_assert_ptr_nonnull(strstr(text, "\tc.c:1\n"));
	free(text);
	comms_free(c);
}
END_TEST

START_TEST(ranks_are_behind_the_first)
{
	struct comms *c = counting();
	char *text;

	comms_behind(c, 2, 0);
	comms_behind(c, 0, 2000);
	comms_behind(c, 0, 6000);
	text = comms_text(c);
	ck_assert_ptr_nonnull(strstr(text, "\n\nrank\tcount\tbehind_us\tbehind_max_us\n"
					   "0\t2\t4.000\t6.000\n2\t1\t0.000\t0.000\n"));
	free(text);
	comms_free(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("comms");
	TCase *t = tcase_create("comms");

	tcase_add_test(t, nothing_is_counted_unless_asked_for);
	tcase_add_loop_test(t, rates_are_by_the_fields_formulas, 0, ARRAY_SIZE(deepspeed));
	tcase_add_test(t, quantiles_are_close_and_keep_the_slow_ones);
	tcase_add_test(t, extreme_latencies_have_a_bucket);
	tcase_add_test(t, rows_are_by_operation_size_and_caller_and_bounded);
	tcase_add_test(t, ranks_are_behind_the_first);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/hyper.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <string.h>

static void check_text(double value, const char *text)
{
	char out[HYPER_TEXT_MAX];
	double back;

	ck_assert_int_eq(hyper_format(value, out), (int)strlen(text));
	ck_assert_mem_eq(out, text, strlen(text));
	ck_assert_int_eq(hyper_parse(out, strlen(text), &back), 0);
	ck_assert_mem_eq(&back, &value, sizeof(value));
}

START_TEST(text_is_the_shortest_that_reads_back)
{
	check_text(0.001, "0.001\n");
	check_text(0.1, "0.1\n");
	check_text(1.0 / 3, "0.3333333333333333\n");
	check_text(0, "0\n");
	check_text(-0.0, "-0\n");
	check_text(DBL_MAX, "1.7976931348623157e+308\n");
	check_text(5e-324, "5e-324\n");
	check_text(8190, "8190\n");
	check_text(1e-5, "1e-05\n");
	check_text(INFINITY, "inf\n");
}
END_TEST

START_TEST(nan_is_text_too)
{
	char out[HYPER_TEXT_MAX];
	double back = 0;
	int length = hyper_format(NAN, out);

	ck_assert_int_eq(hyper_parse(out, (size_t)length, &back), 0);
	ck_assert(isnan(back));
}
END_TEST

START_TEST(numbers_are_taken_with_space_around)
{
	double value;

	ck_assert_int_eq(hyper_parse("  5e-4 \n\n", 9, &value), 0);
	ck_assert_double_eq(value, 5e-4);
	ck_assert_int_eq(hyper_parse("1234", 2, &value), 0);
	ck_assert_double_eq(value, 12);
}
END_TEST

START_TEST(other_texts_are_refused)
{
	static const char *const bad[] = { "",        "\n",  "fast\n", "0.1x",
					   "0.1 0.2", "1,5", "-",      "1e-400x" };
	static const char *const lost[] = { "1e999\n", "-1e999", "1e-400\n", "-2e-324",
					    "0.0000001e-399" };
	static const char *const none[] = { "0\n", "-0", "0e-999", "0.000" };
	char zeros[8] = "1", longer[HYPER_TEXT_MAX + 1];
	double value = 7;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(hyper_parse(bad[i], strlen(bad[i]), &value), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
		ck_assert_int_eq(hyper_parse(lost[i], strlen(lost[i]), &value), -ERANGE);
	ck_assert_double_eq(value, 7);
	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		ck_assert_int_eq(hyper_parse(none[i], strlen(none[i]), &value), 0);
		ck_assert_double_eq(value, 0);
		value = 7;
	}
	ck_assert_int_eq(hyper_parse(zeros, sizeof(zeros), &value), -EINVAL);
	memset(longer, '1', sizeof(longer));
	ck_assert_int_eq(hyper_parse(longer, sizeof(longer), &value), -EINVAL);
	ck_assert_double_eq(value, 7);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hyper");
	TCase *t = tcase_create("hyper");

	tcase_add_test(t, text_is_the_shortest_that_reads_back);
	tcase_add_test(t, nan_is_text_too);
	tcase_add_test(t, numbers_are_taken_with_space_around);
	tcase_add_test(t, other_texts_are_refused);
	return run_suite(s, t);
}

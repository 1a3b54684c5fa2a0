/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/histogram.h"
#include "tests/run-suite.h"

#include <stdlib.h>
#include <string.h>

static struct histogram h;

static void setup(void)
{
	memset(&h, 0, sizeof(h));
}

START_TEST(an_empty_one_has_no_quantile)
{
	ck_assert_uint_eq(histogram_quantile(&h, 0.5), 0);
	ck_assert_uint_eq(histogram_below(&h, 20), 0);
}
END_TEST

START_TEST(sums_and_extremes_are_exact)
{
	histogram_add(&h, 1000001);
	histogram_add(&h, 17);
	histogram_add(&h, 0);
	ck_assert_uint_eq(h.count, 3);
	ck_assert_uint_eq(h.sum, 1000018);
	ck_assert_uint_eq(histogram_quantile(&h, 0), 0);
	ck_assert_uint_eq(histogram_quantile(&h, 1), 1000001);
}
END_TEST

START_TEST(small_numbers_have_a_bucket_each)
{
	for (uint64_t i = 0; i < 8; i++)
		histogram_add(&h, i);
	for (uint64_t i = 0; i < 8; i++)
		ck_assert_uint_eq(histogram_quantile(&h, (double)i / 8 + 0.01), i);
}
END_TEST

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

START_TEST(quantiles_are_off_by_a_sixteenth_at_most)
{
	static const double quantiles[] = { 0.01, 0.25, 0.5, 0.9, 0.99, 0.999 };
	enum { N = 20000 };
	static uint64_t values[N];
	uint64_t seed = 88172645463325252ULL;

	for (int i = 0; i < N; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		values[i] = seed >> (20 + seed % 44); /* of all magnitudes */
		histogram_add(&h, values[i]);
	}
	qsort(values, N, sizeof(values[0]), compare);
	for (unsigned i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
		double right = (double)values[(int)(quantiles[i] * N)];
		double got = (double)histogram_quantile(&h, quantiles[i]);

		ck_assert_double_ge(got, right * 15 / 16 - 1);
		ck_assert_double_le(got, right * 17 / 16 + 1);
	}
}
END_TEST

START_TEST(numbers_below_a_power_of_two_are_counted_exactly)
{
	histogram_add(&h, 1023);
	histogram_add(&h, 1024);
	histogram_add(&h, 1025);
	histogram_add(&h, 5);
	ck_assert_uint_eq(histogram_below(&h, 3), 1);
	ck_assert_uint_eq(histogram_below(&h, 10), 2);
	ck_assert_uint_eq(histogram_below(&h, 11), 4);
}
END_TEST

START_TEST(too_large_numbers_are_in_the_last_bucket)
{
	histogram_add(&h, UINT64_MAX);
	histogram_add(&h, (1ULL << HISTOGRAM_BITS) - 1);
	ck_assert_uint_eq(h.buckets[HISTOGRAM_BUCKETS - 1], 2);
	ck_assert_uint_eq(histogram_below(&h, 63), 2);
	ck_assert_uint_eq(histogram_quantile(&h, 0.5), (1ULL << HISTOGRAM_BITS) - 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("histogram");
	TCase *t = tcase_create("histogram");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, an_empty_one_has_no_quantile);
	tcase_add_test(t, sums_and_extremes_are_exact);
	tcase_add_test(t, small_numbers_have_a_bucket_each);
	tcase_add_test(t, quantiles_are_off_by_a_sixteenth_at_most);
	tcase_add_test(t, numbers_below_a_power_of_two_are_counted_exactly);
	tcase_add_test(t, too_large_numbers_are_in_the_last_bucket);
	return run_suite(s, t);
}

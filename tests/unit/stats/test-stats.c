/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/stats/block.h"
#include "engine/stats/stats.h"
#include "tests/run-suite.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { MANY = 100003 };

static float values[MANY];
static struct stats s;

/* Numbers of all magnitudes from 2^-20 to 2^20, of either sign. */
static void fill(void)
{
	uint64_t seed = 1;

	for (int i = 0; i < MANY; i++) {
		seed = seed * 6364136223846793005 + 1442695040888963407;
		values[i] = ldexpf((float)((int64_t)seed >> 40), (int)(seed % 41) - 43);
	}
}

static void ck_close(double value, long double want)
{
	ck_assert_msg(fabsl(value - want) <= 1e-12L * fabsl(want), "%.17g is not %.17Lg", value,
		      want);
}

/* Adds with bins and without, which is another way, and compares. */
static void add(enum frag_dtype dtype, const void *from, uint64_t n)
{
	struct stats fast;

	stats_init(&fast, false);
	stats_add(&fast, dtype, from, n, 0);
	stats_init(&s, true);
	stats_add(&s, dtype, from, n, 0);
	ck_assert_uint_eq(s.count, n);
	ck_assert_uint_eq(s.finite + s.nan + s.inf, n);
	ck_assert_uint_eq(fast.count, n);
	ck_assert_uint_eq(fast.finite, s.finite);
	ck_assert_uint_eq(fast.nan, s.nan);
	ck_assert_uint_eq(fast.zero, s.zero);
	ck_assert_uint_eq(fast.first_nan, s.first_nan);
	ck_assert_uint_eq(fast.first_inf, s.first_inf);
	if (!s.finite)
		return;
	ck_assert(fast.min == s.min && fast.max == s.max);
	if (isfinite(stats_norm(&s))) /* some norms are no float64 */
		ck_close(stats_norm(&fast), stats_norm(&s));
	ck_assert(fabs(fast.mean - s.mean) <= 1e-12 * stats_absmax(&s));
	ck_assert(fabs(stats_deviation(&fast) - stats_deviation(&s)) <=
		  1e-9 * stats_deviation(&s) + 1e-15 * stats_absmax(&s));
}

/* Compares s with what a loop over the finite ones of n values finds. */
static void ck_values(const float *from, uint64_t n)
{
	long double sum = 0, squares = 0, deviations = 0;
	uint64_t finite = 0, zero = 0;
	float min = INFINITY, max = -INFINITY;

	for (uint64_t i = 0; i < n; i++) {
		if (!isfinite(from[i]))
			continue;
		finite++;
		zero += from[i] == 0;
		sum += from[i];
		squares += (long double)from[i] * from[i];
		min = fminf(min, from[i]);
		max = fmaxf(max, from[i]);
	}
	for (uint64_t i = 0; i < n; i++)
		if (isfinite(from[i]))
			deviations += (from[i] - sum / finite) * (from[i] - sum / finite);
	ck_assert_uint_eq(s.finite, finite);
	ck_assert_uint_eq(s.zero, zero);
	ck_assert_double_eq(s.min, (double)min);
	ck_assert_double_eq(s.max, (double)max);
	ck_assert_double_eq(stats_absmax(&s), fmax(fabs((double)min), fabs((double)max)));
	ck_close(stats_norm(&s), sqrtl(squares));
	ck_close(stats_deviation(&s), sqrtl(deviations / finite));
	ck_assert_double_le(fabs(stats_mean(&s) - (double)(sum / finite)),
			    1e-13 * (double)sqrtl(squares / finite));
}

START_TEST(values_are_those_of_a_loop)
{
	fill();
	for (uint64_t n = 1; n < 40; n++) {
		add(FRAG_F32, values, n);
		ck_values(values, n);
	}
	add(FRAG_F32, values, MANY);
	ck_values(values, MANY);
	ck_assert_uint_eq(s.first_nan, STATS_NONE);
	ck_assert_uint_eq(s.first_inf, STATS_NONE);
}
END_TEST

START_TEST(what_is_not_finite_is_counted_and_found)
{
	fill();
	values[70001] = NAN;
	values[70002] = -NAN;
	values[90000] = INFINITY;
	values[40] = -INFINITY;
	values[5] = 0;
	values[6] = -0.0f;
	values[7] = 1e-45f;
	add(FRAG_F32, values, MANY);
	ck_values(values, MANY);
	ck_assert_uint_eq(s.nan, 2);
	ck_assert_uint_eq(s.first_nan, 70001);
	ck_assert_uint_eq(s.inf, 2);
	ck_assert_uint_eq(s.first_inf, 40);
	ck_assert_uint_eq(s.bins[-149 - STATS_EXPONENT_MIN], 1);
}
END_TEST

START_TEST(parts_joined_are_the_whole)
{
	const uint64_t ends[] = { 0, 1, 1000, 1024, 70002, MANY };
	struct stats whole, part, joined;

	fill();
	values[70001] = NAN;
	values[3] = INFINITY;
	add(FRAG_F32, values, MANY);
	whole = s;
	stats_init(&joined, true);
	for (size_t i = ARRAY_SIZE(ends) - 1; i > 0; i--) { /* the last part first */
		stats_init(&part, true);
		stats_add(&part, FRAG_F32, values + ends[i - 1], ends[i] - ends[i - 1],
			  ends[i - 1]);
		stats_join(&joined, &part);
	}
	s = joined;
	ck_values(values, MANY);
	ck_assert_uint_eq(s.first_nan, 70001);
	ck_assert_uint_eq(s.first_inf, 3);
	ck_assert_uint_eq(s.count, MANY);
	ck_assert_mem_eq(joined.bins, whole.bins, sizeof(whole.bins));
}
END_TEST

START_TEST(nothing_has_no_mean)
{
	const float nan[] = { NAN, NAN };

	add(FRAG_F32, values, 0);
	ck_assert(isnan(stats_mean(&s)) && isnan(stats_norm(&s)) && isnan(s.min));
	add(FRAG_F32, nan, 2);
	ck_assert(isnan(stats_mean(&s)) && isnan(stats_absmax(&s)) && isnan(s.max));
	ck_assert_uint_eq(s.nan, 2);
}
END_TEST

START_TEST(a_large_mean_does_not_hide_the_deviation)
{
	static double large[10000];

	for (int i = 0; i < 10000; i++)
		large[i] = 1e9 + (i % 2 ? 1e-3 : -1e-3);
	add(FRAG_F64, large, 10000);
	ck_assert_double_eq_tol(stats_deviation(&s), 1e-3, 1e-7);
	ck_assert_double_eq_tol(stats_mean(&s), 1e9, 1e-5);
}
END_TEST

START_TEST(all_dtypes_but_complex_ones)
{
	const uint16_t bf16[] = { 0x3f80, 0xc000, 0x7fc0, 0xff80, 0x0001 };
	const uint16_t f16[] = { 0x3c00, 0xc000, 0x7e00, 0x7c00, 0x0001 };
	const uint8_t e4m3[] = { 0x38, 0xc0, 0x7f, 0x00 };
	const int8_t i8[] = { -128, 127, 0 };
	const uint8_t truth[] = { 0, 7, 1 };
	const int32_t i32[] = { INT32_MIN, 5 };
	const uint64_t u64[] = { UINT64_MAX, 0 };

	add(FRAG_BF16, bf16, 5);
	ck_assert_uint_eq(s.nan, 1);
	ck_assert_uint_eq(s.first_inf, 3);
	ck_assert_double_eq(s.min, -2);
	ck_assert_double_eq(s.max, 1);
	add(FRAG_F16, f16, 5);
	ck_assert_uint_eq(s.first_nan, 2);
	ck_assert_double_eq(stats_mean(&s), (1 - 2 + ldexp(1, -24)) / 3);
	add(FRAG_F8_E4M3, e4m3, 4);
	ck_assert_uint_eq(s.nan, 1);
	ck_assert_double_eq(s.min, -2);
	add(FRAG_I8, i8, 3);
	ck_assert_double_eq(s.min, -128);
	ck_assert_uint_eq(s.zero, 1);
	add(FRAG_BOOL, truth, 3);
	ck_assert_double_eq(s.max, 1);
	add(FRAG_I32, i32, 2);
	ck_assert_double_eq(s.min, INT32_MIN);
	add(FRAG_U64, u64, 2);
	ck_assert_double_eq(s.max, 18446744073709551616.0);
	ck_assert(!stats_has(FRAG_C64) && !stats_has(FRAG_C32) && !stats_has(FRAG_C128));
	ck_assert(!stats_has(0));
}
END_TEST

START_TEST(bins_are_powers_of_two)
{
	const double some[] = { 1, 1.99, -2, 0.5, 0, DBL_MIN, DBL_MAX, DBL_TRUE_MIN };

	add(FRAG_F64, some, ARRAY_SIZE(some));
	ck_assert_uint_eq(s.bins[0 - STATS_EXPONENT_MIN], 2);
	ck_assert_uint_eq(s.bins[1 - STATS_EXPONENT_MIN], 1);
	ck_assert_uint_eq(s.bins[-1 - STATS_EXPONENT_MIN], 1);
	ck_assert_uint_eq(s.bins[-1022 - STATS_EXPONENT_MIN], 1);
	ck_assert_uint_eq(s.bins[-1074 - STATS_EXPONENT_MIN], 1);
	ck_assert_uint_eq(s.bins[0], 1);
	ck_assert_uint_eq(s.bins[STATS_BINS - 1], 1);
	s.bins[3] = 7;
	stats_init(&s, false);
	stats_add(&s, FRAG_F64, some, ARRAY_SIZE(some), 0);
	ck_assert_uint_eq(s.bins[3], 7);
}
END_TEST

/* The norm of n times x is |x| * sqrt(n), also where the square of x is no float64. */
START_TEST(magnitudes_of_any_float64)
{
	const double some[] = { DBL_MAX / 64, 1e155, -1e200, 1e-155, -1e-200, DBL_TRUE_MIN };
	static double wide[4000];
	struct wire_sums sums;
	struct stats part;

	for (size_t i = 0; i < ARRAY_SIZE(some); i++) {
		for (int k = 0; k < 4000; k++)
			wide[k] = k % 2 ? some[i] : -some[i];
		add(FRAG_F64, wide, 2500);
		ck_close(stats_norm(&s), fabsl(some[i]) * 50);
		ck_close(stats_deviation(&s), fabsl(some[i]));
		ck_assert_double_le(fabs(stats_mean(&s)), fabs(some[i]) / 1e9);
		stats_init(&part, false); /* as another rank has them, over the wire */
		stats_add(&part, FRAG_F64, wide, 1100, 2500);
		stats_to_wire(&sums, &part);
		stats_from_wire(&part, &sums, 0);
		stats_join(&s, &part);
		ck_close(stats_norm(&s), fabsl(some[i]) * 60);
	}
}
END_TEST

START_TEST(large_numbers_and_zeros_and_small_ones)
{
	static double wide[3 * 1024];

	for (int k = 0; k < 1024; k++)
		wide[k] = 1e-200;
	add(FRAG_F64, wide, 2 * 1024);
	ck_close(stats_norm(&s), 1e-200L * 32);
	ck_close(stats_deviation(&s), 0.5e-200L);
	ck_close(stats_mean(&s), 0.5e-200L);
	wide[2500] = 3e300;
	wide[2501] = -4e300;
	add(FRAG_F64, wide, 3 * 1024);
	ck_close(stats_norm(&s), 5e300L);
	ck_assert_uint_eq(s.zero, 2 * 1024 - 2);
	for (int k = 0; k < 3 * 1024; k++)
		wide[k] = DBL_MAX;
	add(FRAG_F64, wide, 3 * 1024);
	ck_assert_double_eq(stats_mean(&s), DBL_MAX);
	ck_assert_double_le(stats_deviation(&s), 1e-9 * DBL_MAX);
	ck_assert(isinf(stats_norm(&s))); /* as it is: 55 times as much */
}
END_TEST

enum signs { ANY_SIGN, NO_SIGN, ALL_SIGNS, SIGNS };

/* Fills n elements of the dtype with any bits, without NaN and infinities. */
static void fill_bits(enum frag_dtype dtype, uint8_t *to, unsigned n, enum signs signs)
{
	unsigned size = frag_dtype_size(dtype);
	uint64_t seed = 7;
	float wide;

	for (unsigned i = 0; i < n; i++) {
		do {
			seed = seed * 6364136223846793005 + 1442695040888963407;
			memcpy(to + i * size, (const uint8_t *)&seed + 4, size);
			dtype_convert(FRAG_F32, &wide, dtype, to + i * size, 1);
		} while (!isfinite(wide));
		if (i % 37 == 5)
			memset(to + i * size, 0, size);
		if (signs != ANY_SIGN)
			to[i * size + size - 1] &= 0x7f;
		if (signs == ALL_SIGNS)
			to[i * size + size - 1] |= 0x80;
	}
}

static void ck_way(const struct block_ways *way, enum frag_dtype dtype, uint8_t *from,
		   unsigned n, enum signs signs)
{
	struct block_sums want, sums;
	unsigned size = frag_dtype_size(dtype);
	const struct block_ways *last = way;

	for (unsigned i = 0; block_ways(i); i++)
		last = block_ways(i); /* is without vector instructions of a kind */
	fill_bits(dtype, from, n, signs);
	ck_assert(block_add_up(&want, last, dtype, from, n));
	ck_assert(block_add_up(&sums, way, dtype, from, n));
	ck_assert_double_eq(sums.sum, want.sum);
	ck_assert_double_eq(sums.squares, want.squares);
	ck_assert_double_eq(sums.min, want.min);
	ck_assert_double_eq(sums.max, want.max);
	ck_assert_uint_eq(sums.zero, want.zero);
	ck_assert_uint_ge(want.zero, (n - 6) / 37 + 1);
	for (unsigned i = 0; i < n; i += 1 + i / 64) {
		uint8_t kept[4];

		memcpy(kept, from + i * size, size);
		memset(from + i * size, 0xff, size); /* NaN */
		ck_assert(!block_add_up(&sums, way, dtype, from, n));
		memcpy(from + i * size, kept, size);
	}
}

/* At addresses that are multiples of the element's size alone. */
START_TEST(all_instructions_of_this_processor_come_to_the_same_bits)
{
	const enum frag_dtype dtypes[] = { FRAG_F32, FRAG_BF16, FRAG_F16, FRAG_F8_E5M2 };
	const unsigned sizes[] = { BLOCK_MULTIPLE, 5 * BLOCK_MULTIPLE, BLOCK_MAX };
	const struct block_ways *way;
	enum signs signs = (enum signs)_i;

	for (unsigned i = 0; (way = block_ways(i)); i++)
		for (unsigned d = 0; d < ARRAY_SIZE(dtypes); d++)
			for (unsigned n = 0; n < ARRAY_SIZE(sizes); n++)
				ck_way(way, dtypes[d],
				       (uint8_t *)values + frag_dtype_size(dtypes[d]), sizes[n],
				       signs);
}
END_TEST

/* The squares of such elements say next to nothing of their deviation. */
START_TEST(elements_close_together_have_a_deviation)
{
	for (int i = 0; i < MANY; i++)
		values[i] = 16777215 - (float)(i % 2);
	add(FRAG_F32, values, MANY);
	ck_values(values, MANY);
	ck_close(stats_deviation(&s), 0.5L * sqrtl(1 - 1 / ((long double)MANY * MANY)));
	for (int i = 0; i < MANY; i++)
		values[i] = 0.1f;
	add(FRAG_F32, values, MANY);
	ck_assert_double_eq(stats_mean(&s), (double)0.1f);
	stats_init(&s, false);
	stats_add(&s, FRAG_F32, values, MANY, 0);
	ck_assert_double_eq(stats_mean(&s), (double)0.1f);
	ck_assert_double_eq(stats_deviation(&s), 0);
}
END_TEST

int main(void)
{
	TCase *t = tcase_create("stats");

	tcase_add_test(t, values_are_those_of_a_loop);
	tcase_add_test(t, what_is_not_finite_is_counted_and_found);
	tcase_add_test(t, parts_joined_are_the_whole);
	tcase_add_test(t, nothing_has_no_mean);
	tcase_add_test(t, a_large_mean_does_not_hide_the_deviation);
	tcase_add_test(t, elements_close_together_have_a_deviation);
	tcase_add_loop_test(t, all_instructions_of_this_processor_come_to_the_same_bits, 0,
			    SIGNS);
	tcase_add_test(t, all_dtypes_but_complex_ones);
	tcase_add_test(t, bins_are_powers_of_two);
	tcase_add_test(t, magnitudes_of_any_float64);
	tcase_add_test(t, large_numbers_and_zeros_and_small_ones);
	return run_suite(suite_create("stats"), t);
}

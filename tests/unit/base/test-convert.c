/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "engine/base/dtype.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ALL = 65536 };

/* A 16-bit format, for the slow reference. */
struct format {
	const char *name;
	int mantissa; /* bits */
	int least;    /* exponent of the least normal value */
	int most;     /* exponent of the greatest value */
	void (*narrow)(uint16_t *to, const uint32_t *from, size_t n);
	void (*widen)(uint32_t *to, const uint16_t *from, size_t n);
};

static const struct format formats[] = {
	{ "bf16", 7, -126, 127, convert_f32_to_bf16, convert_bf16_to_f32 },
	{ "f16", 10, -14, 15, convert_f32_to_f16, convert_f16_to_f32 },
};

static uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static uint32_t infinity_of(const struct format *f)
{
	return 0x7fffu >> f->mantissa << f->mantissa;
}

static bool is_nan(const struct format *f, uint16_t h)
{
	return (h & 0x7fffu) > infinity_of(f);
}

/* ---- slow references: doubles hold every value and every half-way point exactly ---- */

static double value_of(const struct format *f, uint16_t h)
{
	uint32_t fraction = h & ((1u << f->mantissa) - 1);
	int exponent = (h & 0x7fff) >> f->mantissa;
	double value = exponent ? ldexp(fraction + (1u << f->mantissa),
					f->least + exponent - 1 - f->mantissa)
				: ldexp(fraction, f->least - f->mantissa);

	return h & 0x8000 ? -value : value;
}

static uint16_t nan_of(const struct format *f, uint32_t bits)
{
	uint32_t payload = (bits & 0x7fffff) >> (23 - f->mantissa);

	return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)infinity_of(f) |
	       (uint16_t)(1u << (f->mantissa - 1)) | (uint16_t)payload;
}

static uint16_t nearest_even(const struct format *f, uint32_t bits)
{
	double value = fabs((double)float_of(bits));
	uint16_t sign = bits >> 16 & 0x8000;
	int exponent;
	double unit, units;

	if (isnan(value))
		return nan_of(f, bits);
	if (isinf(value))
		return sign | (uint16_t)infinity_of(f);
	if (value == 0)
		return sign;
	exponent = ilogb(value) < f->least ? f->least : ilogb(value);
	unit = ldexp(1, exponent - f->mantissa);
	units = floor(value / unit);
	if (value / unit - units > 0.5 || (value / unit - units == 0.5 && fmod(units, 2) == 1))
		units += 1;
	if (units * unit >= ldexp(1, f->most + 1))
		return sign | (uint16_t)infinity_of(f);
	return sign |
	       (uint16_t)(((uint32_t)(exponent - f->least) << f->mantissa) + (uint32_t)units);
}

/* ---- widening ---- */

static void widen_all(const struct format *f, uint16_t *h, uint32_t *bits)
{
	for (int i = 0; i < ALL; i++)
		h[i] = (uint16_t)i;
	f->widen(bits, h, ALL);
}

START_TEST(widening_is_exact_for_every_value)
{
	const struct format *f = &formats[_i];
	static uint16_t h[ALL];
	static uint32_t bits[ALL];

	widen_all(f, h, bits);
	for (int i = 0; i < ALL; i++) {
		if (is_nan(f, h[i])) {
			if (bits[i] !=
			    ((h[i] & 0x8000u) << 16 | 0x7f800000 |
			     (h[i] & ((1u << f->mantissa) - 1)) << (23 - f->mantissa)))
				ck_abort_msg("%s: nan %04x gives %08x", f->name, i, bits[i]);
		} else if ((h[i] & 0x7fffu) == infinity_of(f)) {
			ck_assert_uint_eq(bits[i],
					  bits_of(h[i] & 0x8000 ? -INFINITY : INFINITY));
		} else if (bits[i] != bits_of((float)value_of(f, h[i]))) {
			ck_abort_msg("%s: %04x gives %08x", f->name, i, bits[i]);
		}
	}
}
END_TEST

START_TEST(every_value_comes_back_from_its_widening)
{
	const struct format *f = &formats[_i];
	static uint16_t h[ALL], back[ALL];
	static uint32_t bits[ALL];
	uint16_t quiet = (uint16_t)(1u << (f->mantissa - 1));

	widen_all(f, h, bits);
	f->narrow(back, bits, ALL);
	for (int i = 0; i < ALL; i++)
		if (back[i] != (is_nan(f, h[i]) ? (h[i] | quiet) : h[i]))
			ck_abort_msg("%s: %04x comes back as %04x", f->name, h[i], back[i]);
}
END_TEST

/* ---- narrowing ---- */

static void narrow_one(const struct format *f, uint32_t bits)
{
	uint16_t to;

	f->narrow(&to, &bits, 1);
	if (to != nearest_even(f, bits))
		ck_abort_msg("%s: %08x gives %04x, not %04x", f->name, bits, to,
			     nearest_even(f, bits));
}

/* Each value, what is half-way to the next, and what is a little to both sides of these. */
START_TEST(narrowing_rounds_to_even_around_every_boundary)
{
	const struct format *f = &formats[_i];
	static uint16_t h[ALL];
	static uint32_t bits[ALL];

	widen_all(f, h, bits);
	for (int i = 0; i < ALL; i++) {
		uint32_t next = bits[i == ALL - 1 ? i : i + 1];
		uint32_t middle = bits[i] + (next - bits[i]) / 2;

		for (uint32_t near = 0; near < 3; near++) {
			narrow_one(f, bits[i] + near - 1);
			narrow_one(f, middle + near - 1);
		}
	}
}
END_TEST

START_TEST(narrowing_of_random_bits_is_the_reference)
{
	const struct format *f = &formats[_i];
	const char *given = getenv("TEST_SEED");
	uint64_t state = given ? strtoull(given, NULL, 0) : monotonic_ns() | 1;

	printf("TEST_SEED=%llu\n", (unsigned long long)state);
	fflush(stdout);
	for (int i = 0; i < 300000; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		narrow_one(f, (uint32_t)(state >> 32));
	}
}
END_TEST

static uint16_t narrow(int format, float value)
{
	uint32_t bits = bits_of(value);
	uint16_t to;

	formats[format].narrow(&to, &bits, 1);
	return to;
}

START_TEST(known_values)
{
	ck_assert_uint_eq(narrow(0, -0.0f), 0x8000);
	ck_assert_uint_eq(narrow(1, -0.0f), 0x8000);
	ck_assert_uint_eq(narrow(0, 1.0f), 0x3f80);
	ck_assert_uint_eq(narrow(1, 1.0f), 0x3c00);
	ck_assert_uint_eq(narrow(1, 65504.0f), 0x7bff);
	ck_assert_uint_eq(narrow(1, 65519.996f), 0x7bff);
	ck_assert_uint_eq(narrow(1, 65520.0f), 0x7c00);
	ck_assert_uint_eq(narrow(1, -1e30f), 0xfc00);
	ck_assert_uint_eq(narrow(0, 3.4028235e38f), 0x7f80);
	ck_assert_uint_eq(narrow(1, 0x1p-24f), 0x0001);
	ck_assert_uint_eq(narrow(1, 0x1p-25f), 0x0000);
	ck_assert_uint_eq(narrow(1, 0x1.000002p-25f), 0x0001);
	ck_assert_uint_eq(narrow(1, 0x1.ffffp-15f), 0x0400);
	ck_assert_uint_eq(narrow(0, 0x1p-133f), 0x0001);
	ck_assert_uint_eq(narrow(0, 0x1p-134f), 0x0000);
}
END_TEST

START_TEST(nan_stays_nan_however_small_its_payload)
{
	static const uint32_t nans[] = { 0x7f800001, 0xff800001, 0x7fbfffff, 0x7fffffff,
					 0xffffffff, 0x7fc00000, 0x7fa12345 };

	for (size_t i = 0; i < ARRAY_SIZE(nans); i++)
		for (size_t f = 0; f < ARRAY_SIZE(formats); f++) {
			uint16_t to;

			formats[f].narrow(&to, &nans[i], 1);
			ck_assert(is_nan(&formats[f], to));
			ck_assert_uint_eq(to >> 15, nans[i] >> 31);
			ck_assert_uint_eq(to, nan_of(&formats[f], nans[i]));
		}
}
END_TEST

/* ---- whatever the length and the state of the processor ---- */

START_TEST(every_length_writes_its_elements_and_no_more)
{
	const struct format *f = &formats[_i];

	for (size_t n = 0; n < 70; n++) {
		uint32_t from[70], wide[71];
		uint16_t to[71], one;

		for (size_t i = 0; i < n; i++)
			from[i] = 0x3f812345u * (uint32_t)(i + 1);
		to[n] = 0xbeef;
		wide[n] = 0xdeadbeef;
		f->narrow(to, from, n);
		f->widen(wide, to, n);
		ck_assert_uint_eq(to[n], 0xbeef);
		ck_assert_uint_eq(wide[n], 0xdeadbeef);
		for (size_t i = 0; i < n; i++) {
			f->narrow(&one, &from[i], 1);
			ck_assert_uint_eq(to[i], one);
		}
	}
}
END_TEST

START_TEST(no_floating_point_exception_is_raised)
{
	const struct format *f = &formats[_i];
	static uint16_t h[ALL];
	static uint32_t bits[ALL];

	widen_all(f, h, bits);
	for (int i = 0; i < ALL; i++)
		bits[i] ^= (uint32_t)i * 2654435761u >> 16;
	feclearexcept(FE_ALL_EXCEPT);
	f->narrow(h, bits, ALL);
	f->widen(bits, h, ALL);
	ck_assert_int_eq(fetestexcept(FE_ALL_EXCEPT), 0);
}
END_TEST

START_TEST(rounding_mode_of_the_trainer_does_not_matter)
{
	const struct format *f = &formats[_i];
	uint32_t bits[] = { 0x3f808001, 0xbf808001, 0x3f801001,
			    0xbf801001, 0x33000001, 0xb3000001 };
	uint16_t to[ARRAY_SIZE(bits)];
	static const int modes[] = { FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO };

	for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
		ck_assert_int_eq(fesetround(modes[m]), 0);
		f->narrow(to, bits, ARRAY_SIZE(bits));
		fesetround(FE_TONEAREST);
		for (size_t i = 0; i < ARRAY_SIZE(bits); i++)
			ck_assert_uint_eq(to[i], nearest_even(f, bits[i]));
	}
}
END_TEST

/* What stands where other formats have the greatest exponent. */
enum top { INFINITE, ONE_NAN, NUMBERS };

struct float8 {
	void (*widen)(uint32_t *to, const uint8_t *from, size_t n);
	int mantissa; /* bits */
	int bias;     /* of the exponent */
	enum top top;
};

static const struct float8 float8s[] = {
	{ convert_e4m3_to_f32, 3, 7, ONE_NAN },
	{ convert_e5m2_to_f32, 2, 15, INFINITE },
	{ convert_e4m3fnuz_to_f32, 3, 8, NUMBERS }, /* -0 is NaN */
	{ convert_e5m2fnuz_to_f32, 2, 16, NUMBERS },
};

static double float8_value(const struct float8 *f, int b)
{
	int exponent = (b & 0x7f) >> f->mantissa, fraction = b & ((1 << f->mantissa) - 1);
	double value = exponent ? ldexp(fraction + (1 << f->mantissa),
					exponent - f->bias - f->mantissa)
				: ldexp(fraction, 1 - f->bias - f->mantissa);
	bool highest = exponent == 0x7f >> f->mantissa;

	if ((f->top == ONE_NAN && (b & 0x7f) == 0x7f) || (f->top == NUMBERS && b == 0x80) ||
	    (f->top == INFINITE && highest && fraction))
		value = NAN;
	else if (f->top == INFINITE && highest)
		value = INFINITY;
	return b & 0x80 ? -value : value;
}

START_TEST(float8_widens_exactly)
{
	const struct float8 *f = &float8s[_i];

	for (int b = 0; b < 256; b++) {
		uint8_t byte = (uint8_t)b;
		double value = float8_value(f, b);
		uint32_t got;

		f->widen(&got, &byte, 1);
		ck_assert_msg(isnan(value) ? isnan(float_of(got))
					   : got == bits_of((float)value),
			      "%02x: %a, not %a", b, (double)float_of(got), value);
	}
}
END_TEST

START_TEST(exponents_alone_widen_exactly)
{
	for (int b = 0; b < 256; b++) {
		uint8_t byte = (uint8_t)b;
		uint32_t got;

		convert_e8m0_to_f32(&got, &byte, 1);
		ck_assert_msg(b == 255 ? isnan(float_of(got))
				       : (double)float_of(got) == ldexp(1, b - 127),
			      "%02x: %a", b, (double)float_of(got));
	}
}
END_TEST

START_TEST(larger_numbers_are_rounded_to_the_next)
{
	const int64_t i64 = (1LL << 40) + (1 << 16) + 1, even = (1LL << 40) + (1 << 16);
	const uint64_t u64 = UINT64_MAX;
	const int32_t i32 = -16777219;
	const uint32_t u32 = 4294967040U;
	const double f64 = 0x1.000002p-140;
	float got;

	ck_assert_int_eq(dtype_round_to_f32(&got, FRAG_I64, &i64, 1), 0);
	ck_assert_uint_eq(bits_of(got), bits_of(0x1.000002p40F));
	ck_assert_int_eq(dtype_round_to_f32(&got, FRAG_I64, &even, 1), 0);
	ck_assert_uint_eq(bits_of(got), bits_of(0x1p40F));
	ck_assert_int_eq(dtype_round_to_f32(&got, FRAG_U64, &u64, 1), 0);
	ck_assert_uint_eq(bits_of(got), bits_of(0x1p64F));
	ck_assert_int_eq(dtype_round_to_f32(&got, FRAG_I32, &i32, 1), 0);
	ck_assert_uint_eq(bits_of(got), bits_of(-16777220));
	ck_assert_int_eq(dtype_round_to_f32(&got, FRAG_U32, &u32, 1), 0);
	ck_assert_uint_eq(bits_of(got), bits_of(4294967040.0F));
	ck_assert_int_eq(dtype_round_to_f32(&got, FRAG_F64, &f64, 1), 0);
	ck_assert_uint_eq(bits_of(got), bits_of(0x1p-140F));
	ck_assert_int_eq(dtype_round_to_f32(&got, FRAG_C64, &f64, 1), -EOPNOTSUPP);
}
END_TEST
START_TEST(small_integers_widen_exactly)
{
	for (int i = 0; i < ALL; i++) {
		int16_t i16 = (int16_t)i;
		uint16_t u16 = (uint16_t)i;
		int8_t i8 = (int8_t)i;
		uint8_t u8 = (uint8_t)i;
		uint32_t got[5];

		convert_i16_to_f32(&got[0], &i16, 1);
		convert_u16_to_f32(&got[1], &u16, 1);
		convert_i8_to_f32(&got[2], &i8, 1);
		convert_u8_to_f32(&got[3], &u8, 1);
		convert_bool_to_f32(&got[4], &u8, 1);
		ck_assert_uint_eq(got[0], bits_of(i16));
		ck_assert_uint_eq(got[1], bits_of(u16));
		ck_assert_uint_eq(got[2], bits_of(i8));
		ck_assert_uint_eq(got[3], bits_of(u8));
		ck_assert_uint_eq(got[4], bits_of(u8 ? 1 : 0));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("convert");
	TCase *t = tcase_create("convert");
	int n = ARRAY_SIZE(formats);

	tcase_add_loop_test(t, widening_is_exact_for_every_value, 0, n);
	tcase_add_loop_test(t, every_value_comes_back_from_its_widening, 0, n);
	tcase_add_loop_test(t, narrowing_rounds_to_even_around_every_boundary, 0, n);
	tcase_add_loop_test(t, narrowing_of_random_bits_is_the_reference, 0, n);
	tcase_add_loop_test(t, float8_widens_exactly, 0, ARRAY_SIZE(float8s));
	tcase_add_test(t, exponents_alone_widen_exactly);
	tcase_add_test(t, larger_numbers_are_rounded_to_the_next);
	tcase_add_test(t, small_integers_widen_exactly);
	tcase_add_test(t, known_values);
	tcase_add_test(t, nan_stays_nan_however_small_its_payload);
	tcase_add_loop_test(t, every_length_writes_its_elements_and_no_more, 0, n);
	tcase_add_loop_test(t, no_floating_point_exception_is_raised, 0, n);
	tcase_add_loop_test(t, rounding_mode_of_the_trainer_does_not_matter, 0, n);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/base/element.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Asserts what is wrong alone: Check writes each assertion that holds to a file, which takes
 * longer than a text, and there are 300,000.
 */
static const char *text(enum frag_dtype dtype, uint64_t bits)
{
	static char out[ELEMENT_TEXT_MAX];
	size_t length = element_format(dtype, &bits, out);

	if (length != strlen(out) || length > element_width(dtype))
		ck_abort_msg("%s: %zu characters: %s", frag_dtype_name(dtype), length, out);
	return out;
}

START_TEST(texts_have_the_fewest_digits)
{
	static const struct {
		enum frag_dtype dtype;
		uint64_t bits;
		const char *want;
	} cases[] = {
		{ FRAG_F32, 0, "0" },
		{ FRAG_F32, 0x80000000, "-0" },
		{ FRAG_F32, 0x3f800000, "1" },
		{ FRAG_F32, 0x3dcccccd, "0.1" },
		{ FRAG_F32, 0x3dccccce, "0.10000001" },
		{ FRAG_F32, 0x3eaaaaab, "0.33333334" },
		{ FRAG_F32, 0x7f7fffff, "3.4028235e+38" },
		{ FRAG_F32, 1, "1e-45" },
		{ FRAG_F32, 0x807fffff, "-1.1754942e-38" },
		{ FRAG_F32, 0x7f800000, "inf" },
		{ FRAG_F32, 0xff800000, "-inf" },
		{ FRAG_F32, 0xffc12345, "nan" },
		{ FRAG_F64, 0x3fb999999999999a, "0.1" },
		{ FRAG_F64, 0x3fd5555555555555, "0.3333333333333333" },
		{ FRAG_F64, 1, "5e-324" },
		{ FRAG_F64, 0xffefffffffffffff, "-1.7976931348623157e+308" },
		{ FRAG_F16, 0x2e66, "0.1" },
		{ FRAG_F16, 0x3555, "0.3333" },
		{ FRAG_F16, 0x7bff, "6.55e+04" },
		{ FRAG_F16, 1, "6e-08" },
		{ FRAG_BF16, 0x3dcd, "0.1" },
		{ FRAG_BF16, 0x3eab, "0.334" },
		{ FRAG_BF16, 0x7fc0, "nan" },
		{ FRAG_F8_E4M3, 0x7e, "448" },
		{ FRAG_F8_E5M2, 0xfc, "-inf" },
		{ FRAG_F8_E8M0, 0x80, "2" },
		{ FRAG_I8, 0x80, "-128" },
		{ FRAG_U8, 0x80, "128" },
		{ FRAG_I64, 1ull << 63, "-9223372036854775808" },
		{ FRAG_U64, UINT64_MAX, "18446744073709551615" },
		{ FRAG_U16, 0xffff, "65535" },
		{ FRAG_I32, 0xffffffff, "-1" },
		{ FRAG_BOOL, 7, "1" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		ck_assert_str_eq(text(cases[i].dtype, cases[i].bits), cases[i].want);
}
END_TEST

/* All elements of the small dtypes; of the others, some of each exponent. */
START_TEST(texts_read_as_the_same_element)
{
	for (enum frag_dtype dtype = FRAG_F32; dtype <= FRAG_F8_E8M0; dtype++) {
		size_t size = frag_dtype_size(dtype);
		uint64_t step = size <= 2 ? 1 : size == 4 ? 0x10fedu : 0x10fedcba98765u;
		uint64_t last = size < 8 ? (1ull << 8 * size) - 1 : UINT64_MAX;

		if (!element_width(dtype))
			continue;
		for (uint64_t bits = 0, n = last / step; n; n--, bits += step) {
			const char *t = text(dtype, bits);
			uint64_t back = 0;

			if (element_parse(dtype, t, strlen(t), &back))
				ck_abort_msg("%s: refused: %s", frag_dtype_name(dtype), t);
			if (!strcmp(t, "nan") || dtype == FRAG_BOOL)
				ck_assert_str_eq(text(dtype, back), t);
			else if (back != bits)
				ck_abort_msg("%s: %s", frag_dtype_name(dtype), t);
		}
	}
}
END_TEST

static uint64_t parsed(enum frag_dtype dtype, const char *t)
{
	uint64_t bits = 0;

	ck_assert_msg(!element_parse(dtype, t, strlen(t), &bits), "%s", t);
	return bits;
}

START_TEST(numbers_are_rounded_to_the_nearest)
{
	ck_assert_uint_eq(parsed(FRAG_F32, "0.5\n"), 0x3f000000);
	ck_assert_uint_eq(parsed(FRAG_F32, "16777217"), 0x4b800000);
	ck_assert_uint_eq(parsed(FRAG_F16, "-0.1"), 0xae66);
	ck_assert_uint_eq(parsed(FRAG_BF16, "1.00390625"), 0x3f80);          /* a tie */
	ck_assert_uint_eq(parsed(FRAG_BF16, "1.01171875"), 0x3f82);          /* a tie */
	ck_assert_uint_eq(parsed(FRAG_BF16, "1.00390625000000001"), 0x3f80); /* is the tie */
	ck_assert_uint_eq(parsed(FRAG_BF16, "1.0039062500000003"), 0x3f81);  /* is not */
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "447"), 0x7e);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "449"), 0x7e);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "-464"), 0xfe); /* a tie */
	ck_assert_uint_eq(parsed(FRAG_F8_E5M2, "61439"), 0x7b);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3FNUZ, "247.9"), 0x7f);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "-0"), 0x80);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "1.0625"), 0x38); /* a tie */
	ck_assert_uint_eq(parsed(FRAG_I8, " -128 "), 0x80);
	ck_assert_uint_eq(parsed(FRAG_U64, "18446744073709551615"), UINT64_MAX);
	ck_assert_uint_eq(parsed(FRAG_BOOL, "1"), 1);
	ck_assert_uint_eq(parsed(FRAG_F32, "-inf"), 0xff800000);
	ck_assert_uint_eq(parsed(FRAG_BF16, "nan"), 0x7fc0);
}
END_TEST

START_TEST(small_numbers_are_rounded_to_zero)
{
	ck_assert_uint_eq(parsed(FRAG_F32, "7e-46"), 0);
	ck_assert_uint_eq(parsed(FRAG_F32, "7.1e-46"), 1);
	ck_assert_uint_eq(parsed(FRAG_F32, "-1e-60"), 0x80000000);
	ck_assert_uint_eq(parsed(FRAG_F64, "1e-400"), 0);
	ck_assert_uint_eq(parsed(FRAG_F64, "-1e-400"), 1ull << 63);
	ck_assert_uint_eq(parsed(FRAG_F16, "1e-9"), 0);
	ck_assert_uint_eq(parsed(FRAG_BF16, "-1e-60"), 0x8000);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "1e-9"), 0);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "-1e-9"), 0x80);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "0.0009765625"), 0); /* a tie */
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3, "0.00098"), 1);
	ck_assert_uint_eq(parsed(FRAG_F8_E4M3FNUZ, "-1e-9"), 0);
}
END_TEST

START_TEST(what_is_no_element_is_refused)
{
	static const struct {
		enum frag_dtype dtype;
		const char *text;
		int rc;
	} cases[] = {
		{ FRAG_F32, "", -EINVAL },
		{ FRAG_F32, "x", -EINVAL },
		{ FRAG_F32, "1 2", -EINVAL },
		{ FRAG_F32, "\n", -EINVAL },
		{ FRAG_F32, "1e39", -ERANGE },
		{ FRAG_F32, "1e999 x", -EINVAL },
		{ FRAG_F64, "1e999", -ERANGE },
		{ FRAG_F16, "65520", -ERANGE },
		{ FRAG_BF16, "3.4e38", -ERANGE },
		{ FRAG_F8_E4M3, "464.00001", -ERANGE },
		{ FRAG_F8_E4M3, "-480", -ERANGE },
		{ FRAG_F8_E5M2, "61440", -ERANGE }, /* ties to even: to infinity */
		{ FRAG_F8_E4M3FNUZ, "248", -ERANGE },
		{ FRAG_F8_E4M3, "inf", -ERANGE },
		{ FRAG_F8_E8M0, "0", -ERANGE },
		{ FRAG_F8_E8M0, "-5", -ERANGE },
		{ FRAG_I8, "128", -ERANGE },
		{ FRAG_I8, "-129", -ERANGE },
		{ FRAG_I8, "0.5", -EINVAL },
		{ FRAG_I8, "", -EINVAL },
		{ FRAG_U64, "x", -EINVAL },
		{ FRAG_U8, "-1", -ERANGE },
		{ FRAG_U64, "-1", -ERANGE },
		{ FRAG_U8, "256", -ERANGE },
		{ FRAG_BOOL, "2", -ERANGE },
		{ FRAG_I64, "9223372036854775808", -ERANGE },
		{ FRAG_C64, "1", -EOPNOTSUPP },
	};
	uint64_t bits = 42;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int rc = element_parse(cases[i].dtype, cases[i].text, strlen(cases[i].text),
				       &bits);

		ck_assert_msg(rc == cases[i].rc, "%s: %d", cases[i].text, rc);
		ck_assert_uint_eq(bits, 42);
	}
	ck_assert_int_eq(element_parse(FRAG_F32, "1\0", 2, &bits), -EINVAL);
}
END_TEST

static uint64_t rounded(enum frag_dtype to, enum frag_dtype from, const void *value)
{
	uint64_t bits = 0;

	ck_assert_int_eq(dtype_round(to, &bits, from, value, 1), 0);
	return bits;
}

#define OF(type, value) (&(type){ value })

START_TEST(other_dtypes_are_rounded_once)
{
	/* Rounding to float32 first would make ties of what lies next to one. */
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F64, OF(double, 0x1.01p0)), 0x3f80);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F64, OF(double, 0x1.0100000000001p0)),
			  0x3f81);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F64, OF(double, 0x1.02ffffffffffep0)),
			  0x3f81);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F64, OF(double, -0x1.0100000000001p0)),
			  0xbf81);
	ck_assert_uint_eq(rounded(FRAG_F16, FRAG_F64, OF(double, 0x1.0020000000001p0)), 0x3c01);
	ck_assert_uint_eq(rounded(FRAG_F16, FRAG_F64, OF(double, 65519.999999999)), 0x7bff);
	ck_assert_uint_eq(rounded(FRAG_F16, FRAG_F64, OF(double, 65520)), 0x7c00);
	ck_assert_uint_eq(rounded(FRAG_F16, FRAG_F64, OF(double, 1e300)), 0x7c00);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F64, OF(double, DBL_MAX)), 0x7f80);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F64, OF(double, 5e-324)), 0);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F64, OF(double, -0.0)), 0x8000);
	ck_assert_uint_eq(rounded(FRAG_F32, FRAG_F64, OF(double, 0x1.0000010000001p0)),
			  0x3f800001);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_I64, OF(int64_t, (0x101ll << 54) + 1)),
			  0x5e81);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_I64, OF(int64_t, -(0x101ll << 54))), 0xde80);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_U64, OF(uint64_t, UINT64_MAX)), 0x5f80);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_I64, OF(int64_t, INT64_MIN)), 0xdf00);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_I32, OF(int32_t, 0x1010001)), 0x4b81);
	ck_assert_uint_eq(rounded(FRAG_F16, FRAG_U32, OF(uint32_t, 65519)), 0x7bff);
	ck_assert_uint_eq(rounded(FRAG_F32, FRAG_I64, OF(int64_t, 16777217)), 0x4b800000);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F16, OF(uint16_t, 0x3c05)), 0x3f81);
	ck_assert_uint_eq(rounded(FRAG_F16, FRAG_BF16, OF(uint16_t, 0x7f00)), 0x7c00);
	ck_assert_uint_eq(rounded(FRAG_F16, FRAG_U8, OF(uint8_t, 200)), 0x5a40);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_F32, OF(uint32_t, 0x7f800001)), 0x7fc0);
	ck_assert_uint_eq(rounded(FRAG_BF16, FRAG_BF16, OF(uint16_t, 0x7f81)), 0x7f81);
}
END_TEST

START_TEST(nan_stays_nan_of_all_dtypes)
{
	static const enum frag_dtype to[] = { FRAG_F32, FRAG_F16, FRAG_BF16 };

	for (size_t i = 0; i < ARRAY_SIZE(to); i++) {
		uint64_t quiet = rounded(to[i], FRAG_F64, OF(double, (double)NAN));
		uint64_t loud = rounded(to[i], FRAG_F64, OF(uint64_t, 0x7ff0000000000001));

		ck_assert_str_eq(text(to[i], quiet), "nan");
		ck_assert_str_eq(text(to[i], loud), "nan");
	}
}
END_TEST

START_TEST(many_are_as_one)
{
	enum { MANY = 1500 };
	static double from[MANY];
	static uint16_t to[MANY], one;

	for (int i = 0; i < MANY; i++)
		from[i] = (i - 700) * 1.2345678901234567;
	ck_assert_int_eq(dtype_round(FRAG_F16, to, FRAG_F64, from, MANY), 0);
	for (int i = 0; i < MANY; i++) {
		ck_assert_int_eq(dtype_round(FRAG_F16, &one, FRAG_F64, &from[i], 1), 0);
		ck_assert_uint_eq(to[i], one);
	}
}
END_TEST

START_TEST(what_cannot_be_rounded_is_told_without_elements)
{
	for (enum frag_dtype from = FRAG_F32; from <= FRAG_F8_E8M0; from++)
		ck_assert_int_eq(dtype_round(FRAG_BF16, NULL, from, NULL, 0),
				 element_width(from) ? 0 : -EOPNOTSUPP);
	ck_assert_int_eq(dtype_round(FRAG_F64, NULL, FRAG_F32, NULL, 0), -EOPNOTSUPP);
	ck_assert_int_eq(dtype_round(FRAG_I8, NULL, FRAG_I8, NULL, 0), -EOPNOTSUPP);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("element");
	TCase *t = tcase_create("element");

	tcase_add_test(t, texts_have_the_fewest_digits);
	tcase_add_test(t, texts_read_as_the_same_element);
	tcase_add_test(t, numbers_are_rounded_to_the_nearest);
	tcase_add_test(t, small_numbers_are_rounded_to_zero);
	tcase_add_test(t, what_is_no_element_is_refused);
	tcase_add_test(t, other_dtypes_are_rounded_once);
	tcase_add_test(t, nan_stays_nan_of_all_dtypes);
	tcase_add_test(t, many_are_as_one);
	tcase_add_test(t, what_cannot_be_rounded_is_told_without_elements);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/catalog/operation.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char *const texts[] = { "*= 0.5", "*= -3",  "/= 3",     "/= 1e-9", "+= 0.1",
				     "-= 1e5", "*= nan", "+= 1e-40", "-= inf" };

static double expected(const char *text, double a)
{
	double b = strtod(text + 2, NULL);

	return *text == '*' ? a * b : *text == '/' ? a / b : *text == '+' ? a + b : a - b;
}

static struct operation parse(enum frag_dtype dtype, const char *text)
{
	struct operation o;

	ck_assert_int_eq(operation_parse(&o, dtype, text), 0);
	return o;
}

/* The sign and the payload of a NaN that an operation makes depend on the compiler. */
static bool is_nan(enum frag_dtype dtype, uint16_t element)
{
	float value;

	dtype_convert(FRAG_F32, &value, dtype, &element, 1);
	return isnan(value);
}

START_TEST(every_element_of_16_bits_is_rounded_by_float32)
{
	enum frag_dtype dtype = _i % 2 ? FRAG_BF16 : FRAG_F16;
	struct operation o = parse(dtype, texts[_i / 2]);
	static uint16_t elements[1 << 16], want[1 << 16];

	for (uint32_t i = 0; i < ARRAY_SIZE(elements); i++) {
		float value;

		elements[i] = (uint16_t)i;
		dtype_convert(FRAG_F32, &value, dtype, &elements[i], 1);
		value = (float)expected(texts[_i / 2], (double)value);
		dtype_convert(dtype, &want[i], FRAG_F32, &value, 1);
	}
	ck_assert_int_eq(operation_apply(&o, dtype, elements, ARRAY_SIZE(elements)), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(elements); i++)
		ck_assert(elements[i] == want[i] ||
			  (is_nan(dtype, elements[i]) && is_nan(dtype, want[i])));
}
END_TEST

START_TEST(float32_and_float64_are_computed_in_float64)
{
	const float values[] = { 0, -0.0f, 1e-45f, 0.1f, -3.7f, 3e38f, INFINITY, NAN };

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		struct operation o = parse(FRAG_F32, texts[_i]);
		float narrow = values[i];
		double wide = (double)values[i], want = expected(texts[_i], wide);
		float rounded = (float)want;

		ck_assert_int_eq(operation_apply(&o, FRAG_F32, &narrow, 1), 0);
		ck_assert_int_eq(operation_apply(&o, FRAG_F64, &wide, 1), 0);
		ck_assert_mem_eq(&narrow, &rounded, sizeof(narrow));
		ck_assert_mem_eq(&wide, &want, sizeof(wide));
	}
}
END_TEST

START_TEST(a_value_is_that_of_element_parse_in_every_dtype)
{
	for (int d = 1; frag_dtype_size((enum frag_dtype)d); d++) {
		enum frag_dtype dtype = (enum frag_dtype)d;
		unsigned char elements[3 * ELEMENT_BYTES_MAX], one[ELEMENT_BYTES_MAX] = "";
		size_t size = frag_dtype_size(dtype);
		struct operation o;
		int rc = element_parse(dtype, "1", 1, one);

		ck_assert_int_eq(operation_parse(&o, dtype, "= 1"), rc);
		ck_assert_int_eq(operation_parse(&o, dtype, "1"), rc);
		if (rc)
			memset(o.value, 0, sizeof(o.value));
		memset(elements, 0xee, sizeof(elements));
		if (!rc)
			ck_assert_int_eq(operation_apply(&o, dtype, elements, 3), 0);
		for (size_t i = 0; i < 3 && !rc; i++)
			ck_assert_mem_eq(elements + i * size, one, size);
		ck_assert_int_eq(operation_parse(&o, dtype, "zero"), 0);
		ck_assert_int_eq(operation_apply(&o, dtype, elements, 3), 0);
		for (size_t i = 0; i < 3 * size; i++)
			ck_assert_uint_eq(elements[i], 0);
	}
}
END_TEST

START_TEST(dtypes_without_arithmetic_are_refused_and_keep_their_bytes)
{
	struct operation o = parse(FRAG_F32, "*= 2"), other;

	for (int d = 1; frag_dtype_size((enum frag_dtype)d); d++) {
		enum frag_dtype dtype = (enum frag_dtype)d;
		unsigned char elements[2 * ELEMENT_BYTES_MAX], before[sizeof(elements)];
		bool has = dtype == FRAG_F64 || dtype == FRAG_F32 || dtype == FRAG_BF16 ||
			   dtype == FRAG_F16;

		memset(elements, 0x3f, sizeof(elements));
		memcpy(before, elements, sizeof(before));
		ck_assert_int_eq(operation_parse(&other, dtype, "*= 2"), has ? 0 : -EOPNOTSUPP);
		ck_assert_int_eq(operation_apply(&o, dtype, elements, 2),
				 has ? 0 : -EOPNOTSUPP);
		ck_assert_int_eq(!memcmp(elements, before, sizeof(before)), !has);
	}
}
END_TEST

START_TEST(what_is_no_operation_is_refused)
{
	static const char *const bad[] = { "",    "=",   "*=",   "*= x",  "*= 2 3",
					   "/ 2", "two", "%= 2", "= 1 2", "zeros" };
	struct operation o;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_int_eq(operation_parse(&o, FRAG_F32, bad[i]), -EINVAL);
	ck_assert_int_eq(operation_parse(&o, FRAG_F16, "= 1e6"), -ERANGE);
	ck_assert_int_eq(operation_parse(&o, FRAG_U8, "-1"), -ERANGE);
	ck_assert_int_eq(operation_parse(&o, FRAG_F64, "*= 1e400"), -ERANGE);
	ck_assert_int_eq(operation_parse(&o, FRAG_F64, "*= 1e-400"), -ERANGE);
	ck_assert_int_eq(operation_parse(&o, FRAG_F64, "*= inf"), 0);
	ck_assert_int_eq(operation_parse(&o, FRAG_F32, "/= 0"), -EDOM);
	ck_assert_int_eq(operation_parse(&o, FRAG_F32, "/= -0.0"), -EDOM);
	ck_assert_int_eq(operation_parse(&o, FRAG_F32, "*= 0"), 0);
}
END_TEST

START_TEST(an_operation_reads_as_it_is_written)
{
	static const char *const same[] = { "*= 0.5", "/= 3", "+= 1e-40", "-= -2",
					    "zero",   "= 1",  "= -0.1",   "= nan" };
	char text[OPERATION_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		struct operation o = parse(FRAG_F32, same[i]);

		operation_format(&o, FRAG_F32, text);
		ck_assert_str_eq(text, same[i]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("operation");
	TCase *t = tcase_create("operation");

	tcase_add_loop_test(t, every_element_of_16_bits_is_rounded_by_float32, 0,
			    2 * (int)ARRAY_SIZE(texts));
	tcase_add_loop_test(t, float32_and_float64_are_computed_in_float64, 0,
			    (int)ARRAY_SIZE(texts));
	tcase_add_test(t, a_value_is_that_of_element_parse_in_every_dtype);
	tcase_add_test(t, dtypes_without_arithmetic_are_refused_and_keep_their_bytes);
	tcase_add_test(t, what_is_no_operation_is_refused);
	tcase_add_test(t, an_operation_reads_as_it_is_written);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "engine/stats/stats.h"
#include "tests/cuda/device-suite.h"

#include <errno.h>
#include <math.h>

enum { ELEMENTS = 1 << 16 };

static const struct {
	enum device_what what;
	unsigned from, to; /* bytes of an element */
} conversions[] = {
	{ DEVICE_F32_TO_BF16, 4, 2 },
	{ DEVICE_BF16_TO_F32, 2, 4 },
	{ DEVICE_F32_TO_F16, 4, 2 },
	{ DEVICE_F16_TO_F32, 2, 4 },
};

/* All values of 16 bits; of 32 those whose upper half is any and lower half near what decides.
 */
static void fill_elements(void *elements, unsigned size)
{
	static const uint32_t lower[] = { 0,      1,      0x0fff, 0x1000, 0x1001,
					  0x7fff, 0x8000, 0x8001, 0xffff };
	uint16_t *half = elements;
	uint32_t *f32 = elements;

	for (uint32_t i = 0; i < ELEMENTS; i++)
		if (size == 2)
			half[i] = (uint16_t)i;
		else
			f32[i] = i << 16 | lower[next_random(ARRAY_SIZE(lower))];
}

static void convert_here(enum device_what what, void *to, const void *from, uint64_t count)
{
	switch (what) {
	case DEVICE_F32_TO_BF16:
		convert_f32_to_bf16(to, from, count);
		break;
	case DEVICE_BF16_TO_F32:
		convert_bf16_to_f32(to, from, count);
		break;
	case DEVICE_F32_TO_F16:
		convert_f32_to_f16(to, from, count);
		break;
	default:
		convert_f16_to_f32(to, from, count);
	}
}

/* From element skip on: where it is not aligned to sixteen bytes too. */
static void convert_all_but(int i, uint64_t skip)
{
	uint64_t from_size = ELEMENTS * conversions[i].from,
		 to_size = ELEMENTS * conversions[i].to;
	uint8_t *from = malloc(from_size), *expected = calloc(1, to_size),
		*seen = calloc(1, to_size);
	uint8_t *on_device = here->alloc(0, from_size), *result = here->alloc(0, to_size);

	fill_elements(from, conversions[i].from);
	here->put(on_device, from, from_size);
	here->put(result, expected, to_size);
	convert_here(conversions[i].what, expected + skip * conversions[i].to,
		     from + skip * conversions[i].from, ELEMENTS - skip);
	ck_assert_int_eq(
		run_io((struct device_io){ .what = conversions[i].what,
					   .size = ELEMENTS - skip,
					   .to = result + skip * conversions[i].to,
					   .from = on_device + skip * conversions[i].from }),
		here->has_kernels ? 0 : -ENOSYS);
	here->get(seen, result, to_size);
	if (here->has_kernels)
		ck_assert_mem_eq(seen, expected, to_size);
	here->free(on_device);
	here->free(result);
	free(from);
	free(expected);
	free(seen);
}

START_TEST(the_device_converts_to_the_same_bits)
{
	convert_all_but(_i, 0);
	convert_all_but(_i, 1);
	convert_all_but(_i, ELEMENTS - 5);
}
END_TEST

/* The device's sums of the first count elements are those of stats.h. */
static void expect_sums(enum device_what what, enum frag_dtype dtype, const void *elements,
			uint64_t count)
{
	uint64_t size = ELEMENTS * frag_dtype_size(dtype);
	struct device_sums seen = { .squares = -1 };
	uint8_t *memory = here->alloc(0, size);
	struct stats own;

	here->put(memory, elements, size);
	ck_assert_int_eq(run_io((struct device_io){
				 .what = what, .size = count, .to = &seen, .from = memory }),
			 here->has_kernels ? 0 : -ENOSYS);
	here->free(memory);
	if (!here->has_kernels)
		return;
	stats_init(&own, false);
	stats_add(&own, dtype, elements, count, 0);
	ck_assert_uint_eq(seen.finite, own.finite);
	ck_assert_uint_eq(seen.nan, own.nan);
	ck_assert_uint_eq(seen.inf, own.inf);
	ck_assert_uint_eq(seen.zero, own.zero);
	ck_assert_uint_eq(seen.first_nan, own.first_nan);
	ck_assert_uint_eq(seen.first_inf, own.first_inf);
	ck_assert_double_eq(seen.min, own.finite ? own.min : 0);
	ck_assert_double_eq(seen.max, own.finite ? own.max : 0);
	ck_assert_double_le(fabs(seen.squares - own.squares), 1e-9 * own.squares);
	ck_assert_double_le(fabs(seen.deviations - own.deviations), 1e-9 * own.deviations);
	ck_assert_double_le(fabs(seen.mean - own.mean),
			    1e-9 * fmax(fabs(seen.min), fabs(seen.max)));
}

START_TEST(sums_are_those_of_statistics)
{
	float *values = calloc(ELEMENTS, sizeof(*values));
	uint16_t *half = calloc(ELEMENTS, sizeof(*half));

	for (uint32_t i = 0; i < ELEMENTS; i++) {
		values[i] = (float)next_random(1000) - 500;
		if (i % 1000 == 1)
			values[i] = i % 3 ? NAN : -INFINITY;
	}
	expect_sums(DEVICE_SUMS_F32, FRAG_F32, values, ELEMENTS);
	expect_sums(DEVICE_SUMS_F32, FRAG_F32, values, 0);
	expect_sums(DEVICE_SUMS_F32, FRAG_F32, values, 1);
	for (uint32_t i = 0; i < ELEMENTS; i++)
		half[i] = i % 2 ? 0xff80 : 0xc040; /* -infinity and -3 */
	expect_sums(DEVICE_SUMS_BF16, FRAG_BF16, half, ELEMENTS);
	for (uint32_t i = 0; i < ELEMENTS; i++)
		half[i] = (uint16_t)(i % 2 ? 0x7e00 : 0x4200 + i % 1000); /* NaN, 3 and more */
	expect_sums(DEVICE_SUMS_F16, FRAG_F16, half, ELEMENTS);
	for (uint32_t i = 0; i < ELEMENTS; i++)
		values[i] = i ? 1.1f : NAN;
	expect_sums(DEVICE_SUMS_F32, FRAG_F32, values, 1);
	expect_sums(DEVICE_SUMS_F32, FRAG_F32, values, ELEMENTS);
	free(values);
	free(half);
}
END_TEST

void device_suite_add_arithmetic(TCase *c)
{
	tcase_add_loop_test(c, the_device_converts_to_the_same_bits, 0,
			    ARRAY_SIZE(conversions));
	tcase_add_test(c, sums_are_those_of_statistics);
}

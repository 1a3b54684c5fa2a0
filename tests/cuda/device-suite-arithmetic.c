/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "tests/cuda/device-suite.h"

#include <errno.h>

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

void device_suite_add_arithmetic(TCase *c)
{
	tcase_add_loop_test(c, the_device_converts_to_the_same_bits, 0,
			    ARRAY_SIZE(conversions));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#ifdef HAVE_CUDA
#include "engine/base/convert.h"
#include "engine/rank/devices.h"
#include "engine/rank/registry-version.h"
#include "tests/cuda/device-stub.h"

#include <errno.h>
#include <string.h>

/* Rows of a registry that are converted on the device: what is called, and what comes of it. */

enum { NUMEL = 3000, SKIP = 5 };

static struct registry registry;
static void *stream;

static void open_registry(void)
{
	stub_reset();
	ck_assert_int_eq(registry_init(&registry), 0);
	ck_assert_int_eq(devices_open(&registry.devices, &device_cuda, &device_test_options),
			 0);
	stream = here->stream_new(0);
	ck_assert_int_eq(devices_use(registry.devices, 0, stream), 0);
}

static void close_registry(void)
{
	registry_fini(&registry);
	here->stream_free(stream);
}

static uint32_t keep_row(const char *key, enum frag_dtype dtype, void *memory)
{
	int row;

	ck_assert_int_eq(registry_keep(&registry, STATE_WHOLE, 0, 0, key, dtype, NUMEL, memory),
			 0);
	row = registry_find(&registry, STATE_WHOLE, 0, 0, key, &dtype);
	ck_assert_int_ge(row, 0);
	return (uint32_t)row;
}

static int convert(uint32_t to, uint32_t from)
{
	return registry_device_convert(&registry, &(struct registry_elements){ to, SKIP },
				       &(struct registry_elements){ from, SKIP }, NUMEL - SKIP);
}

/* The runtime's calls since the last reset that copy. */
static unsigned copies(void)
{
	return stub_count("MemcpyAsync", true) + stub_count("MemcpyAsync", false);
}

START_TEST(rows_are_converted_on_the_device_behind_the_trainers_stream)
{
	uint32_t *f32 = here->alloc(0, NUMEL * 4), *back = here->alloc(0, NUMEL * 4);
	uint16_t *half = here->alloc(0, NUMEL * 2), expected[NUMEL] = { 0 };
	uint32_t from = keep_row("from", FRAG_F32, f32),
		 to = keep_row("to", _i ? FRAG_F16 : FRAG_BF16, half);
	uint32_t wide = keep_row("back", FRAG_F32, back);
	struct devices_figures f;

	memset(half, 0, NUMEL * 2);
	memset(back, 0, NUMEL * 4);
	for (int i = 0; i < NUMEL; i++)
		f32[i] = 0x3f800000 + 0x4321u * (uint32_t)i;
	if (_i)
		convert_f32_to_f16(expected + SKIP, f32 + SKIP, NUMEL - SKIP);
	else
		convert_f32_to_bf16(expected + SKIP, f32 + SKIP, NUMEL - SKIP);
	stub_reset();
	ck_assert_int_eq(convert(to, from), 0);
	ck_assert_mem_eq(half, expected, sizeof(expected));
	ck_assert_uint_eq(copies(), 0);
	take_calls();
	ck_assert_ptr_eq(call_of("EventRecord", 0)->stream, stream);
	ck_assert_uint_eq(call_of("LaunchKernel", 0)->size, NUMEL - SKIP);
	ck_assert(!call_of("LaunchKernel", 0)->trainers);
	ck_assert_ptr_ne(call_of("LaunchKernel", 0)->stream, stream);
	ck_assert_int_eq(convert(wide, to), 0);
	if (_i)
		ck_assert_uint_eq(back[NUMEL - 1], convert_one_f16_to_f32(half[NUMEL - 1]));
	else
		ck_assert_uint_eq(back[NUMEL - 1], convert_one_bf16_to_f32(half[NUMEL - 1]));
	ck_assert_uint_eq(back[SKIP - 1], 0);
	ck_assert_int_eq(convert(wide, from), 0); /* of equal dtypes: a copy there */
	ck_assert_mem_eq(back + SKIP, f32 + SKIP, (NUMEL - SKIP) * 4);
	ck_assert_uint_eq(copies(), u64_div_ceil((NUMEL - SKIP) * 4, CHUNK));
	devices_figures(registry.devices, &f);
	ck_assert_uint_eq(f.from_bytes + f.to_bytes + f.errors, 0);
	here->free(f32);
	here->free(half);
	here->free(back);
}
END_TEST

START_TEST(what_is_on_two_devices_is_left_to_the_host)
{
	void *other = here->stream_new(1);
	uint32_t *f32 = here->alloc(0, NUMEL * 4);
	uint16_t *half = here->alloc(1, NUMEL * 2);
	struct registry_version *version;
	uint32_t from = keep_row("from", FRAG_F32, f32), to;

	ck_assert_int_eq(devices_use(registry.devices, 1, other), 0);
	to = keep_row("to", FRAG_BF16, half);
	ck_assert_int_eq(convert(to, from), -EOPNOTSUPP);
	ck_assert_int_eq(registry_version_newest(&registry, registry.states.epoch + 1, from, 0,
						 4, &version),
			 -ESTALE);
	here->stream_free(other);
	here->free(f32);
	here->free(half);
}
END_TEST

START_TEST(what_the_device_refuses_is_left_to_the_host)
{
	static uint32_t host[NUMEL];
	uint32_t *f32 = here->alloc(0, NUMEL * 4);
	uint16_t *half = here->alloc(0, NUMEL * 2);
	uint32_t from = keep_row("from", FRAG_F32, f32), to = keep_row("to", FRAG_BF16, half);
	uint32_t other = keep_row("i16", FRAG_I16, half),
		 here_row = keep_row("h", FRAG_F32, host);

	ck_assert_int_eq(convert(other, from), -EOPNOTSUPP);
	ck_assert_int_eq(convert(to, here_row), -EOPNOTSUPP);
	ck_assert_int_eq(convert(here_row, to), -EOPNOTSUPP);
	ck_assert_int_eq(convert(to, 1000), -EOPNOTSUPP);
	ck_assert_int_eq(registry_device_convert(&registry,
						 &(struct registry_elements){ to, 1 },
						 &(struct registry_elements){ from, 0 }, NUMEL),
			 -EINVAL);
	stub_capture(true);
	ck_assert_int_eq(convert(to, from), -EBUSY);
	stub_capture(false);
	stub_fail("LaunchKernel", 1, cudaErrorUnknown);
	ck_assert_int_eq(convert(to, from), -EIO);
	here->free(f32);
	here->free(half);
}
END_TEST

TCase *convert_cases(void)
{
	TCase *c = tcase_create("convert");

	if (!trainer_cuda.has_kernels)
		return c;
	tcase_add_checked_fixture(c, open_registry, close_registry);
	tcase_add_loop_test(c, rows_are_converted_on_the_device_behind_the_trainers_stream, 0,
			    2);
	tcase_add_test(c, what_is_on_two_devices_is_left_to_the_host);
	tcase_add_test(c, what_the_device_refuses_is_left_to_the_host);
	return c;
}

#endif

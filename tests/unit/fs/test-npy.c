/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/npy.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

static void check_header(enum frag_dtype dtype, uint32_t ndim, const uint64_t *shape,
			 const char *want)
{
	unsigned char out[NPY_HEADER_MAX];
	int size = npy_header(dtype, shape, ndim, out);

	ck_assert_int_gt(size, 0);
	ck_assert_int_eq(size % 64, 0);
	ck_assert_mem_eq(out, "\x93NUMPY\x01\x00", 8);
	ck_assert_int_eq(out[8] + 256 * out[9], size - 10);
	ck_assert_mem_eq(out + 10, want, strlen(want));
	for (int i = 10 + (int)strlen(want); i < size - 1; i++)
		ck_assert_int_eq(out[i], ' ');
	ck_assert_int_eq(out[size - 1], '\n');
}

START_TEST(shapes_are_tuples)
{
	check_header(FRAG_F32, 0, NULL,
		     "{'descr': '<f4', 'fortran_order': False, 'shape': (), }");
	check_header(FRAG_F32, 1, (uint64_t[]){ 7 },
		     "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }");
	check_header(
		FRAG_F32, 3, (uint64_t[]){ 2, 0, 1ull << 40 },
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0, 1099511627776), }");
}
END_TEST

START_TEST(dtypes_have_their_names)
{
	unsigned char out[NPY_HEADER_MAX];
	static const char *const want[] = {
		[FRAG_F32] = "<f4",     [FRAG_F64] = "<f8",         [FRAG_F16] = "<f2",
		[FRAG_BF16] = "<u2",    [FRAG_I8] = "|i1",          [FRAG_I16] = "<i2",
		[FRAG_I32] = "<i4",     [FRAG_I64] = "<i8",         [FRAG_U8] = "|u1",
		[FRAG_BOOL] = "|b1",    [FRAG_U16] = "<u2",         [FRAG_U32] = "<u4",
		[FRAG_U64] = "<u8",     [FRAG_C32] = "<u4",         [FRAG_C64] = "<c8",
		[FRAG_C128] = "<c16",   [FRAG_F8_E4M3FNUZ] = "|u1", [FRAG_F8_E5M2FNUZ] = "|u1",
		[FRAG_F8_E8M0] = "|u1", [FRAG_F8_E4M3] = "|u1",     [FRAG_F8_E5M2] = "|u1"
	};

	for (int dtype = FRAG_F32; dtype <= FRAG_F8_E8M0; dtype++) {
		ck_assert_int_gt(npy_header((enum frag_dtype)dtype, NULL, 0, out), 0);
		ck_assert_mem_eq(out + 21, want[dtype], strlen(want[dtype]));
		ck_assert_int_eq(out[21 + strlen(want[dtype])], '\'');
		ck_assert_int_eq(atoi(want[dtype] + 2),
				 (int)frag_dtype_size((enum frag_dtype)dtype));
	}
}
END_TEST

START_TEST(the_longest_shape_fits)
{
	unsigned char out[NPY_HEADER_MAX];
	uint64_t shape[FRAG_DIMS_MAX];

	memset(shape, 0xff, sizeof(shape));
	ck_assert_int_eq(npy_header(FRAG_F32, shape, FRAG_DIMS_MAX, out) % 64, 0);
	ck_assert_ptr_nonnull(strstr((char *)out + 10, "18446744073709551615), }"));
}
END_TEST

START_TEST(what_is_no_array_is_refused)
{
	unsigned char out[NPY_HEADER_MAX];
	uint64_t shape[FRAG_DIMS_MAX + 1] = { 0 };

	ck_assert_int_eq(npy_header(0, shape, 1, out), -EINVAL);
	ck_assert_int_eq(npy_header(FRAG_F8_E8M0 + 1, shape, 1, out), -EINVAL);
	ck_assert_int_eq(npy_header(FRAG_F32, shape, FRAG_DIMS_MAX + 1, out), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("npy");
	TCase *t = tcase_create("npy");

	tcase_add_test(t, shapes_are_tuples);
	tcase_add_test(t, dtypes_have_their_names);
	tcase_add_test(t, the_longest_shape_fits);
	tcase_add_test(t, what_is_no_array_is_refused);
	return run_suite(s, t);
}

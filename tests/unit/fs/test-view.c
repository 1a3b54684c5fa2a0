/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/view.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const uint64_t shape[] = { 2, 3 };
static const struct engine_param matrix = { .ndim = 2, .shape = shape, .numel = 6 };
static const float values[] = { 0.5f, -0.1f, 3, 1e-30f, INFINITY, -2 };

static struct engine_state state_of(enum frag_dtype dtype, uint64_t numel)
{
	return (struct engine_state){ .dtype = dtype, .bytes = numel * frag_dtype_size(dtype) };
}

static struct view view_of(const char *name)
{
	struct engine_state state = state_of(FRAG_F32, 6);
	struct view v;

	ck_assert_msg(!view_init(&v, name, &state, &matrix), "%s", name);
	return v;
}

START_TEST(files_are_a_header_and_cells)
{
	static const struct {
		const char *name;
		uint64_t head, bytes;
	} cases[] = {
		{ "", 0, 24 },
		{ ".npy", 128, 152 },
		{ ".bf16", 0, 12 },
		{ ".f16", 0, 12 },
		{ ".f32", 0, 24 },
		{ ".txt", 0, 6 * 16 },
		{ "[1]", 0, 12 },
		{ "[1,2].npy", 128, 132 },
		{ "[:,::-2].txt", 0, 4 * 16 },
		{ "[0:0].npy", 128, 128 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct view v = view_of(cases[i].name);

		ck_assert_uint_eq(v.head, cases[i].head);
		ck_assert_msg(v.bytes == cases[i].bytes, "%s: %lu", cases[i].name,
			      (unsigned long)v.bytes);
	}
}
END_TEST

START_TEST(headers_have_the_shape_of_the_slice)
{
	struct view v = view_of("[:,1:].npy");
	unsigned char header[NPY_HEADER_MAX];

	view_header(&v, header);
	ck_assert_mem_eq(header + 10,
			 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 59);
}
END_TEST

START_TEST(texts_are_in_columns_and_rows)
{
	struct view v = view_of(".txt");
	char out[6 * 16 + 1] = "";

	view_fill(&v, 0, 6, values, out);
	ck_assert_str_eq(out, "            0.5            -0.1               3\n"
			      "          1e-30             inf              -2\n");
	view_fill(&v, 2, 2, values + 2, out);
	out[32] = '\0';
	ck_assert_str_eq(out, "              3\n          1e-30 ");
}
END_TEST

START_TEST(elements_are_rounded)
{
	struct view bf16 = view_of(".bf16"), f16 = view_of(".f16");
	static const uint16_t as_bf16[] = { 0x3f00, 0xbdcd, 0x4040, 0x0da2, 0x7f80, 0xc000 };
	static const uint16_t as_f16[] = { 0x3800, 0xae66, 0x4200, 0, 0x7c00, 0xc000 };
	char out[12];

	view_fill(&bf16, 0, 6, values, out);
	ck_assert_mem_eq(out, as_bf16, sizeof(out));
	view_fill(&f16, 0, 6, values, out);
	ck_assert_mem_eq(out, as_f16, sizeof(out));
}
END_TEST

START_TEST(ranges_can_be_written)
{
	static const struct {
		const char *name;
		bool is_range;
		uint64_t start;
	} cases[] = {
		{ "", true, 0 },        { ".npy", true, 0 },     { "[1].npy", true, 12 },
		{ "[1,1:]", true, 16 }, { "[:,1]", false, 0 },   { "[::-1].npy", false, 0 },
		{ ".f32", false, 0 },   { "[0].txt", false, 0 }, { "[...]", true, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct view v = view_of(cases[i].name);
		uint64_t start;

		ck_assert_msg(view_is_range(&v, &start) == cases[i].is_range, "%s",
			      cases[i].name);
		ck_assert(view_is_writable(&v) == cases[i].is_range);
		if (cases[i].is_range)
			ck_assert_uint_eq(start, cases[i].start);
	}
}
END_TEST

START_TEST(elements_have_indices)
{
	static const char *const wrong[] = { "",  "1",     "2,0",  "0,3", "0,0,0", "0,:",
					     ":", "[0,0]", "0, 0", "...", "()",    "x" };
	struct engine_state state = state_of(FRAG_F32, 6), complex = state_of(FRAG_C64, 6);
	struct view v;

	ck_assert_int_eq(view_init_element(&v, "1,-1", &state, &matrix), 0);
	ck_assert_uint_eq(v.slice.first, 5);
	ck_assert_uint_eq(v.bytes, 0);
	ck_assert(view_is_writable(&v));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		ck_assert_msg(view_init_element(&v, wrong[i], &state, &matrix) == -ENOENT, "%s",
			      wrong[i]);
	ck_assert_int_eq(view_init_element(&v, "1,1", &complex, &matrix), -ENOENT);
}
END_TEST

/* As a step, of a parameter that is a matrix, and what an optimizer packs. */
START_TEST(states_of_other_sizes_are_numbers_or_rows)
{
	struct engine_state step = state_of(FRAG_I64, 1), packed = state_of(FRAG_U8, 100);
	struct view v;

	ck_assert_int_eq(view_init_element(&v, "()", &step, &matrix), 0);
	ck_assert_int_eq(view_init(&v, ".txt", &step, &matrix), 0);
	ck_assert_uint_eq(v.bytes, 21);
	ck_assert_int_eq(view_init(&v, "[99]", &packed, &matrix), 0);
	ck_assert_uint_eq(v.slice.first, 99);
	ck_assert_int_eq(view_init(&v, "[1,1]", &packed, &matrix), -ENOENT);
}
END_TEST

START_TEST(complex_numbers_are_raw_alone)
{
	struct engine_state state = state_of(FRAG_C64, 6);
	struct view v;

	ck_assert_int_eq(view_init(&v, ".bf16", &state, &matrix), -ENOENT);
	ck_assert_int_eq(view_init(&v, ".txt", &state, &matrix), -ENOENT);
	ck_assert_int_eq(view_init(&v, "[1].npy", &state, &matrix), 0);
	ck_assert_uint_eq(v.bytes, 128 + 3 * 8);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("view");
	TCase *t = tcase_create("view");

	tcase_add_test(t, files_are_a_header_and_cells);
	tcase_add_test(t, headers_have_the_shape_of_the_slice);
	tcase_add_test(t, texts_are_in_columns_and_rows);
	tcase_add_test(t, elements_are_rounded);
	tcase_add_test(t, ranges_can_be_written);
	tcase_add_test(t, elements_have_indices);
	tcase_add_test(t, states_of_other_sizes_are_numbers_or_rows);
	tcase_add_test(t, complex_numbers_are_raw_alone);
	return run_suite(s, t);
}

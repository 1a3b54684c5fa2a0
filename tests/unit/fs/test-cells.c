/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/cells.h"
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

static struct cells cells_of(const char *name)
{
	struct engine_state state = state_of(FRAG_F32, 6);
	struct cells c;

	ck_assert_msg(!cells_init(&c, name, &state, &matrix), "%s", name);
	return c;
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
		struct cells c = cells_of(cases[i].name);

		ck_assert_uint_eq(c.head, cases[i].head);
		ck_assert_msg(c.bytes == cases[i].bytes, "%s: %lu", cases[i].name,
			      (unsigned long)c.bytes);
	}
}
END_TEST

START_TEST(headers_have_the_shape_of_the_slice)
{
	struct cells c = cells_of("[:,1:].npy");
	unsigned char header[NPY_HEADER_MAX];

	cells_header(&c, header);
	ck_assert_mem_eq(header + 10,
			 "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", 59);
}
END_TEST

START_TEST(texts_are_in_columns_and_rows)
{
	struct cells c = cells_of(".txt");
	char out[6 * 16 + 1] = "";

	cells_fill(&c, 0, 6, values, out);
	ck_assert_str_eq(out, "            0.5            -0.1               3\n"
			      "          1e-30             inf              -2\n");
	cells_fill(&c, 2, 2, values + 2, out);
	out[32] = '\0';
	ck_assert_str_eq(out, "              3\n          1e-30 ");
}
END_TEST

START_TEST(elements_are_rounded)
{
	struct cells bf16 = cells_of(".bf16"), f16 = cells_of(".f16");
	static const uint16_t as_bf16[] = { 0x3f00, 0xbdcd, 0x4040, 0x0da2, 0x7f80, 0xc000 };
	static const uint16_t as_f16[] = { 0x3800, 0xae66, 0x4200, 0, 0x7c00, 0xc000 };
	char out[12];

	cells_fill(&bf16, 0, 6, values, out);
	ck_assert_mem_eq(out, as_bf16, sizeof(out));
	cells_fill(&f16, 0, 6, values, out);
	ck_assert_mem_eq(out, as_f16, sizeof(out));
}
END_TEST

START_TEST(elements_can_be_written_as_bytes)
{
	static const struct {
		const char *name;
		bool is_range, is_writable;
		uint64_t start;
	} cases[] = {
		{ "", true, true, 0 },         { ".npy", true, true, 0 },
		{ "[1].npy", true, true, 12 }, { "[1,1:]", true, true, 16 },
		{ "[:,1]", false, true, 0 },   { "[::-1].npy", false, true, 0 },
		{ ".f32", false, false, 0 },   { "[0].txt", false, false, 0 },
		{ "[...]", true, true, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cells c = cells_of(cases[i].name);
		uint64_t start;

		ck_assert_msg(cells_is_range(&c, &start) == cases[i].is_range, "%s",
			      cases[i].name);
		ck_assert(cells_is_writable(&c) == cases[i].is_writable);
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
	struct cells c;

	ck_assert_int_eq(cells_init_element(&c, "1,-1", &state, &matrix), 0);
	ck_assert_uint_eq(c.slice.first, 5);
	ck_assert_uint_eq(c.bytes, 0);
	ck_assert(cells_is_writable(&c));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		ck_assert_msg(cells_init_element(&c, wrong[i], &state, &matrix) == -ENOENT,
			      "%s", wrong[i]);
	ck_assert_int_eq(cells_init_element(&c, "1,1", &complex, &matrix), -ENOENT);
}
END_TEST

/* As a step, of a parameter that is a matrix, and what an optimizer packs. */
START_TEST(states_of_other_sizes_are_numbers_or_rows)
{
	struct engine_state step = state_of(FRAG_I64, 1), packed = state_of(FRAG_U8, 100);
	struct cells c;

	ck_assert_int_eq(cells_init_element(&c, "()", &step, &matrix), 0);
	ck_assert_int_eq(cells_init(&c, ".txt", &step, &matrix), 0);
	ck_assert_uint_eq(c.bytes, 21);
	ck_assert_int_eq(cells_init(&c, "[99]", &packed, &matrix), 0);
	ck_assert_uint_eq(c.slice.first, 99);
	ck_assert_int_eq(cells_init(&c, "[1,1]", &packed, &matrix), -ENOENT);
}
END_TEST

START_TEST(complex_numbers_are_raw_alone)
{
	struct engine_state state = state_of(FRAG_C64, 6);
	struct cells c;

	ck_assert_int_eq(cells_init(&c, ".bf16", &state, &matrix), -ENOENT);
	ck_assert_int_eq(cells_init(&c, ".txt", &state, &matrix), -ENOENT);
	ck_assert_int_eq(cells_init(&c, "[1].npy", &state, &matrix), 0);
	ck_assert_uint_eq(c.bytes, 128 + 3 * 8);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cells");
	TCase *t = tcase_create("cells");

	tcase_add_test(t, files_are_a_header_and_cells);
	tcase_add_test(t, headers_have_the_shape_of_the_slice);
	tcase_add_test(t, texts_are_in_columns_and_rows);
	tcase_add_test(t, elements_are_rounded);
	tcase_add_test(t, elements_can_be_written_as_bytes);
	tcase_add_test(t, elements_have_indices);
	tcase_add_test(t, states_of_other_sizes_are_numbers_or_rows);
	tcase_add_test(t, complex_numbers_are_raw_alone);
	return run_suite(s, t);
}

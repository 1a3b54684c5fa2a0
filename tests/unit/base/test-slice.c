/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/slice.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What NumPy makes of an array of the shape with the elements 0, 1, 2 ... */
static const struct {
	uint32_t ndim;
	uint64_t shape[3];
	const char *text, *of_shape, *elements;
} cases[] = {
	/* clang-format off */
	{ 2, { 3, 4 }, "[1]", "4", "4 5 6 7" },
	{ 2, { 3, 4 }, "[-1]", "4", "8 9 10 11" },
	{ 2, { 3, 4 }, "[:]", "3 4", "0 1 2 3 4 5 6 7 8 9 10 11" },
	{ 2, { 3, 4 }, "[...]", "3 4", "0 1 2 3 4 5 6 7 8 9 10 11" },
	{ 2, { 3, 4 }, "[()]", "3 4", "0 1 2 3 4 5 6 7 8 9 10 11" },
	{ 2, { 3, 4 }, "[1:3]", "2 4", "4 5 6 7 8 9 10 11" },
	{ 2, { 3, 4 }, "[:,1]", "3", "1 5 9" },
	{ 2, { 3, 4 }, "[:,-1]", "3", "3 7 11" },
	{ 2, { 3, 4 }, "[0:2,1:3]", "2 2", "1 2 5 6" },
	{ 2, { 3, 4 }, "[::-1]", "3 4", "8 9 10 11 4 5 6 7 0 1 2 3" },
	{ 2, { 3, 4 }, "[::-1,::-1]", "3 4", "11 10 9 8 7 6 5 4 3 2 1 0" },
	{ 2, { 3, 4 }, "[::2,::3]", "2 2", "0 3 8 11" },
	{ 2, { 3, 4 }, "[2,3]", "", "11" },
	{ 2, { 3, 4 }, "[-3,-4]", "", "0" },
	{ 2, { 3, 4 }, "[...,0]", "3", "0 4 8" },
	{ 2, { 3, 4 }, "[0,...]", "4", "0 1 2 3" },
	{ 2, { 3, 4 }, "[1,...,2]", "", "6" },
	{ 2, { 3, 4 }, "[1:1]", "0 4", "" },
	{ 2, { 3, 4 }, "[5:]", "0 4", "" },
	{ 2, { 3, 4 }, "[:100]", "3 4", "0 1 2 3 4 5 6 7 8 9 10 11" },
	{ 2, { 3, 4 }, "[-100:2]", "2 4", "0 1 2 3 4 5 6 7" },
	{ 2, { 3, 4 }, "[2:0:-1]", "2 4", "8 9 10 11 4 5 6 7" },
	{ 2, { 3, 4 }, "[:0:-1,::-2]", "2 2", "11 9 7 5" },
	{ 2, { 3, 4 }, "[100::-1]", "3 4", "8 9 10 11 4 5 6 7 0 1 2 3" },
	{ 2, { 3, 4 }, "[:-100:-1]", "3 4", "8 9 10 11 4 5 6 7 0 1 2 3" },
	{ 2, { 3, 4 }, "[::99999999999999999999]", "1 4", "0 1 2 3" },
	{ 2, { 3, 4 }, "[-1:-99999999999999999999:-1]", "3 4", "8 9 10 11 4 5 6 7 0 1 2 3" },
	{ 2, { 3, 4 }, "[1,]", "4", "4 5 6 7" },
	{ 2, { 3, 4 }, "[ 0:2 , 1 ]", "2", "1 5" },
	{ 2, { 3, 4 }, "[+1]", "4", "4 5 6 7" },
	{ 2, { 3, 4 }, "[1:2,:]", "1 4", "4 5 6 7" },
	{ 3, { 2, 3, 4 }, "[1]", "3 4", "12 13 14 15 16 17 18 19 20 21 22 23" },
	{ 3, { 2, 3, 4 }, "[:,1]", "2 4", "4 5 6 7 16 17 18 19" },
	{ 3, { 2, 3, 4 }, "[:,:,1]", "2 3", "1 5 9 13 17 21" },
	{ 3, { 2, 3, 4 }, "[:,0:2]", "2 2 4", "0 1 2 3 4 5 6 7 12 13 14 15 16 17 18 19" },
	{ 3, { 2, 3, 4 }, "[:,::2,::-1]", "2 2 4",
	  "3 2 1 0 11 10 9 8 15 14 13 12 23 22 21 20" },
	{ 3, { 2, 3, 4 }, "[...,1:3]", "2 3 2", "1 2 5 6 9 10 13 14 17 18 21 22" },
	{ 3, { 2, 3, 4 }, "[0,...,3]", "3", "3 7 11" },
	{ 3, { 2, 3, 4 }, "[1,2,3]", "", "23" },
	{ 3, { 2, 3, 4 }, "[...]", "2 3 4",
	  "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23" },
	{ 3, { 2, 3, 4 }, "[::-1,0]", "2 4", "12 13 14 15 0 1 2 3" },
	{ 3, { 2, 3, 4 }, "[:,:,::-1]", "2 3 4",
	  "3 2 1 0 7 6 5 4 11 10 9 8 15 14 13 12 19 18 17 16 23 22 21 20" },
	{ 3, { 2, 3, 4 }, "[:,1:2,0:4]", "2 1 4", "4 5 6 7 16 17 18 19" },
	{ 0, { 0 }, "[...]", "", "0" },
	{ 0, { 0 }, "[()]", "", "0" },
	{ 1, { 5 }, "[3]", "", "3" },
	{ 1, { 5 }, "[::2]", "3", "0 2 4" },
	{ 1, { 5 }, "[::-1]", "5", "4 3 2 1 0" },
	{ 1, { 5 }, "[1:-1]", "3", "1 2 3" },
	{ 1, { 5 }, "[-2:]", "2", "3 4" },
	{ 1, { 5 }, "[3::-2]", "2", "3 1" },
	{ 2, { 0, 4 }, "[:]", "0 4", "" },
	{ 2, { 0, 4 }, "[:,1]", "0", "" },
	{ 2, { 0, 4 }, "[::-1,::-1]", "0 4", "" },
	/* clang-format on */
};

static void add(char *list, uint64_t n)
{
	sprintf(list + strlen(list), *list ? " %" PRIu64 : "%" PRIu64, n);
}

START_TEST(slices_are_those_of_numpy)
{
	char shape[64] = "", elements[256] = "";
	struct slice s;
	const char *end;

	ck_assert_int_eq(slice_parse(&s, cases[_i].text, &end, cases[_i].shape, cases[_i].ndim),
			 0);
	ck_assert_str_eq(end, "");
	for (uint32_t i = 0; i < s.ndim; i++)
		add(shape, s.shape[i]);
	ck_assert_str_eq(shape, cases[_i].of_shape);
	for (uint64_t k = 0; k < s.numel; k++) {
		struct slice_run run = slice_run(&s, k), next;

		add(elements, run.first);
		ck_assert_uint_le(run.count, s.numel - k);
		next = slice_run(&s, k + (run.count > 1));
		ck_assert_int_eq((int64_t)(next.first - run.first),
				 run.count > 1 ? run.step : 0);
	}
	ck_assert_msg(!strcmp(elements, cases[_i].elements), "%s: %s", cases[_i].text,
		      elements);
}
END_TEST

START_TEST(axes_that_adjoin_are_one)
{
	static const struct {
		const char *text;
		uint32_t naxes;
		bool is_range;
	} of_2_3_4[] = {
		{ "[...]", 1, true },      { "[1]", 1, true },
		{ "[1,1:3]", 1, true },    { "[1,2,3]", 0, true },
		{ "[1,2,1:3]", 1, true },  { "[:,1]", 2, false },
		{ "[:,1,2]", 1, false },   { "[:,:,2]", 1, false },
		{ "[:,:,1:3]", 2, false }, { "[::-1,::-1,::-1]", 1, false },
		{ "[0:0]", 0, true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(of_2_3_4); i++) {
		struct slice s;
		const char *end;

		ck_assert_int_eq(
			slice_parse(&s, of_2_3_4[i].text, &end, (uint64_t[]){ 2, 3, 4 }, 3), 0);
		if (s.numel)
			ck_assert_uint_eq(s.naxes, of_2_3_4[i].naxes);
		ck_assert_msg(slice_is_range(&s) == of_2_3_4[i].is_range, "%s",
			      of_2_3_4[i].text);
	}
}
END_TEST

START_TEST(what_follows_a_slice_is_left)
{
	struct slice s;
	const char *end;

	ck_assert_int_eq(slice_parse(&s, "[1].npy", &end, (uint64_t[]){ 2 }, 1), 0);
	ck_assert_str_eq(end, ".npy");
	ck_assert_int_eq(slice_parse(&s, "[1] [0]", &end, (uint64_t[]){ 2 }, 1), 0);
	ck_assert_str_eq(end, " [0]");
}
END_TEST

static int parse(const char *text)
{
	struct slice s;
	const char *end;

	return slice_parse(&s, text, &end, (uint64_t[]){ 3, 4 }, 2);
}

START_TEST(what_is_no_slice_is_refused)
{
	static const char *const wrong[] = {
		"",       "1",     "[",     "[]",     "[1",        "[,]",   "[a]",    "[1:2:0]",
		"[1::0]", "[--1]", "[1 2]", "[....]", "[...,...]", "[1.5]", "[None]", "[(1,2)]",
		"[1;2]",  "[()",   "[(]",   " [1]",   "[1:2:3:1]", "[0x1]", "[- 1]",  "[1,,2]"
	};
	static const char *const beyond[] = { "[3]",
					      "[-4]",
					      "[0,4]",
					      "[0,-5]",
					      "[0,0,0]",
					      "[:,:,:]",
					      "[...,0,0,0]",
					      "[99999999999999999999]",
					      "[-99999999999999999999]" };
	char many[256] = "[";

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		ck_assert_msg(parse(wrong[i]) == -EINVAL, "%s", wrong[i]);
	for (size_t i = 0; i < ARRAY_SIZE(beyond); i++)
		ck_assert_msg(parse(beyond[i]) == -ERANGE, "%s", beyond[i]);
	for (int i = 0; i < 40; i++)
		strcat(many, ":,");
	strcat(many, "]");
	ck_assert_int_eq(parse(many), -ERANGE);
}
END_TEST

START_TEST(shapes_that_no_memory_has_are_sliced)
{
	const uint64_t large[] = { 1ull << 40, 0, 1ull << 62, 1ull << 62 };
	struct slice s;
	const char *end;

	ck_assert_int_eq(slice_parse(&s, "[5,:,::-3]", &end, large, 4), 0);
	ck_assert_uint_eq(s.numel, 0);
	ck_assert_int_eq(slice_parse(&s, "[0]", &end, (uint64_t[]){ UINT64_MAX }, 1), -ERANGE);
}
END_TEST

/* The elements of a slice of an array of 2 dimensions that are in a box, counted in the box. */
static uint64_t in_box(const struct slice *s, const uint64_t *shape, const uint64_t *from,
		       const uint64_t *size, bool *out)
{
	uint64_t n = 0;

	for (uint64_t k = 0; k < s->numel; k++) {
		uint64_t at = slice_run(s, k).first, i = at / shape[1], j = at % shape[1];

		if (i < from[0] || i - from[0] >= size[0] || j < from[1] ||
		    j - from[1] >= size[1])
			continue;
		out[(i - from[0]) * size[1] + j - from[1]] = true;
		n++;
	}
	return n;
}

START_TEST(the_part_of_a_slice_in_a_box_rises)
{
	const uint64_t shape[] = { 5, 7 }, from[] = { _i % 3, _i % 4 };
	const uint64_t size[] = { 5 - from[0] - _i % 2, 7 - from[1] - _i % 3 };
	static const char *const texts[] = { "[:]",       "[::-1,::-1]", "[1:4,2:6]",
					     "[::2,::3]", "[:,3]",       "[4]",
					     "[3::-2]",   "[:,::-2]",    "[2,5::-4]",
					     "[0:0]",     "[:,1:2]",     "[4,6]" };
	bool want[35] = { false };
	struct slice s, part;
	const char *end;
	uint64_t k = 0;

	ck_assert_int_eq(slice_parse(&s, texts[_i % ARRAY_SIZE(texts)], &end, shape, 2), 0);
	slice_in_box(&s, from, size, &part);
	ck_assert_uint_eq(part.numel, in_box(&s, shape, from, size, want));
	ck_assert(!part.numel || slice_rises(&part));
	for (uint64_t at = 0; at < size[0] * size[1]; at++) {
		ck_assert_uint_eq(slice_count_before(&part, at), k);
		if (want[at])
			ck_assert_uint_eq(slice_run(&part, k++).first, at);
	}
	ck_assert_uint_eq(k, part.numel);
	slice_in_box(&s, NULL, NULL, &part);
	ck_assert_uint_eq(part.numel, s.numel);
	ck_assert(!part.numel || slice_rises(&part));
}
END_TEST

START_TEST(axes_that_do_not_rise_are_found)
{
	static const struct slice bad[] = {
		{ .numel = 2 },
		{ .numel = 1, .first = INT64_MAX },
		{ .numel = 2, .naxes = 1, .axes = { { 2, 0 } } },
		{ .numel = 2, .naxes = 1, .axes = { { 2, -1 } } },
		{ .numel = 1, .naxes = 1, .axes = { { 1, 1 } } },
		{ .numel = 3, .naxes = 1, .axes = { { 2, 1 } } },
		{ .numel = 4, .naxes = 2, .axes = { { 2, 1 }, { 2, 1 } } },
		{ .numel = 6, .naxes = 2, .axes = { { 2, 2 }, { 3, 1 } } },
		{ .numel = 2, .naxes = 1, .first = 1, .axes = { { 2, INT64_MAX } } },
		{ .numel = 3, .naxes = 1, .axes = { { 3, INT64_MAX } } },
		{ .numel = 2, .naxes = FRAG_DIMS_MAX + 1 },
		{ .numel = 0,
		  .naxes = 2,
		  .axes = { { 1ull << 32, 1ll << 33 }, { 1ull << 32, 1 } } },
	};

	ck_assert(!slice_rises(&bad[_i]));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("slice");
	TCase *t = tcase_create("slice");

	tcase_add_loop_test(t, slices_are_those_of_numpy, 0, ARRAY_SIZE(cases));
	tcase_add_test(t, axes_that_adjoin_are_one);
	tcase_add_test(t, what_follows_a_slice_is_left);
	tcase_add_test(t, what_is_no_slice_is_refused);
	tcase_add_test(t, shapes_that_no_memory_has_are_sliced);
	tcase_add_loop_test(t, the_part_of_a_slice_in_a_box_rises, 0, 12 * 12);
	tcase_add_loop_test(t, axes_that_do_not_rise_are_found, 0, 12);
	return run_suite(s, t);
}

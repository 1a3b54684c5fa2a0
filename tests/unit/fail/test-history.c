/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/fail/history.h"
#include "tests/fail/linearize.h"
#include "tests/run-suite.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The checker of histories must find what is wrong with these, made by hand. */

static char *said;
static struct history_counts counts;

static void teardown(void)
{
	free(said);
	said = NULL;
}

/* One client's lines, or one rank's; NULL ends them. */
static unsigned check(int stage, const char *const *files)
{
	struct history *h = history_new();
	size_t size;
	FILE *out;
	unsigned wrong;

	teardown();
	out = open_memstream(&said, &size);
	for (; *files; files++) {
		char *text = strdup(*files);
		FILE *in = fmemopen(text, strlen(text), "r");

		ck_assert_int_eq(history_load(h, in, out), 0);
		fclose(in);
		free(text);
	}
	wrong = history_check(h, stage, out, &counts);
	fclose(out);
	history_free(h);
	return wrong;
}

#define CHECK(stage, ...) check(stage, (const char *const[]){ __VA_ARGS__, NULL })

#define ACCEPTED(...) ck_assert_msg(!CHECK(__VA_ARGS__), "%s", said)

/* words: of the line that says what is wrong. */
#define REFUSED(words, ...)                                                                    \
	do {                                                                                   \
		ck_assert_uint_gt(CHECK(__VA_ARGS__), 0);                                      \
		ck_assert_msg(strstr(said, words), "%s", said);                                \
	} while (0)

/* Steps 1 and 2 at 100 to 110 and 200 to 210, on two ranks; edit 5 of p0 goes in between, edit
 * 6 behind.
 */
#define STEPS                                                                                  \
	"B 1 100\nS 1 108 1 1 1 1\nB 2 200\nS 2 208 20481 2 2 2\nB 3 300\nS 3 308 24577 3 3 "  \
	"3\n"
#define LATER                                                                                  \
	"B 1 102\nS 1 110 1 1 1 1\nB 2 202\nS 2 210 20481 2 2 2\nB 3 302\nS 3 310 24577 3 3 "  \
	"3\n"
#define EDITS "W 0 5 120\nD 0 5 150 0\nW 0 6 220\nD 0 6 250 0\n"
#define JOB STEPS, LATER, EDITS

START_TEST(what_can_be_is_accepted)
{
	ACCEPTED(1, JOB);
	ck_assert_uint_eq(counts.edits, 2);
	ck_assert_uint_eq(counts.steps, 3);
	ACCEPTED(1, JOB,
		 "R 0 0 0 10 20\nR 0 0 1 115 117\nR 0 1 20480 160 170\nR 0 0 20481 206 208\n");
	ACCEPTED(1, JOB, "R 0 0 1 125 140\nR 0 0 20480 141 142\n", "R 0 0 1 125 140\n");
	ACCEPTED(1, JOB,
		 "R 3 1 0 104 105\nR 3 0 1 104 105\nG 0 10 20\nG 2000000 103 104\nG 4000001 "
		 "211 212\n");
	ck_assert_uint_eq(counts.reads, 2);
}
END_TEST

START_TEST(an_old_value_behind_an_edit)
{
	REFUSED("no order explains", 1, JOB, "R 0 0 1 151 160\n");
	REFUSED("no order explains", 1, JOB, "R 0 1 20482 260 270\n");
}
END_TEST

START_TEST(a_value_before_its_edit)
{
	REFUSED("no order explains", 1, JOB, "R 0 0 20480 112 119\n");
}
END_TEST

START_TEST(two_reads_that_turn_back)
{
	REFUSED("no order explains", 1, JOB, "R 0 0 20480 121 130\n", "R 0 0 1 131 140\n");
	REFUSED("no order explains", 1, JOB, "R 2 0 2 203 204\n", "R 2 0 1 205 206\n");
}
END_TEST

START_TEST(a_step_too_early_or_missing)
{
	REFUSED("no order explains", 1, JOB, "R 2 0 2 150 199\n");
	REFUSED("no order explains", 1, JOB, "R 2 0 1 211 212\n");
	REFUSED("no order explains", 1, JOB, "R 0 0 20482 212 213\n");
}
END_TEST

/* Each of two edits in one window is seen, in one order by one reader, in the other by another.
 */
START_TEST(edits_in_two_orders)
{
	static const char edits[] = "W 1 1 120\nD 1 1 190 0\n",
			  others[] = "W 1 2 120\nD 1 2 190 0\n";

	ACCEPTED(1, "B 1 100\nS 1 110 -1 1 -1 -1\n", edits, others,
		 "R 1 0 4096 130 140\nR 1 0 8192 150 160\n");
	REFUSED("no order explains", 1, "B 1 100\nS 1 110 -1 1 -1 -1\n", edits, others,
		"R 1 0 4096 130 140\nR 1 0 8192 150 160\n", "R 1 0 4096 170 180\n");
}
END_TEST

START_TEST(torn_files)
{
	REFUSED("torn", 1, JOB, "R 0 0 1 115 117\nT 0 0 1 20480\n");
}
END_TEST

START_TEST(values_of_nobody)
{
	REFUSED("nobody has set", 1, JOB, "R 0 0 28672 160 170\n");
	REFUSED("nobody has set", 1, JOB, "R 1 0 20480 160 170\n");
	REFUSED("nobody has set", 1, JOB, "R 1 0 -1 160 170\n");
	REFUSED("nobody has set", 1, "B 1 100\nS 1 110 4096 -1 -1 -1\n");
}
END_TEST

START_TEST(refused_edits_that_are_there)
{
	ACCEPTED(1, JOB, "W 0 7 120\nD 0 7 150 4\nR 0 0 20480 160 170\n");
	ck_assert_uint_eq(counts.refused, 1);
	REFUSED("was refused", 1, JOB, "W 0 7 120\nD 0 7 150 4\nR 0 0 28672 130 140\n");
	REFUSED("was refused", 1, "W 0 7 120\nD 0 7 150 4\n",
		"B 1 100\nS 1 140 28672 -1 -1 -1\n");
}
END_TEST

START_TEST(edits_that_never_returned)
{
	static const char killed[] = "W 3 9 120\n", kill[] = "K 130 writer\n";

	ACCEPTED(1, JOB, killed, kill, "R 3 0 1 160 170\n");
	ck_assert_uint_eq(counts.aborted, 1);
	REFUSED("no order explains", 1, JOB, killed, kill,
		"R 3 0 36864 160 170\nR 3 0 1 180 190\n");
	REFUSED("no order explains", 1, JOB, killed, kill, "R 3 0 36864 110 119\n");
}
END_TEST

/* Its mount was killed, which may have committed it. */
START_TEST(edits_of_which_nobody_knows)
{
	static const char edit[] = "W 3 9 120\nD 3 9 150 103\n", kill[] = "K 130 mount\n";

	ACCEPTED(1, JOB, edit, kill, "R 3 0 1 160 170\n");
	REFUSED("no order explains", 1, JOB, edit, kill, "R 3 0 36864 110 119\n");
}
END_TEST

START_TEST(ranks_that_do_not_agree)
{
	REFUSED("ranks have 1 and 2 of p3", 1, STEPS, "B 1 102\nS 1 110 1 1 1 2\n", EDITS);
	REFUSED("steps are missing", 1, "B 1 100\nS 1 110 1 1 1 1\nB 2 200\nS 2 210 2 1 2 2\n");
	REFUSED("it had gone", 1, EDITS,
		"B 1 100\nS 1 210 20481 1 1 1\nB 2 212\nS 2 310 24577 2 2 2\nB 3 320\nS 3 410 "
		"20483 3 3 3\n");
}
END_TEST

START_TEST(an_edit_that_returns_before_all_ranks_have_it)
{
	REFUSED("ended step 1 without it", 1, STEPS, LATER,
		"W 0 5 90\nD 0 5 109 0\nW 0 6 220\nD 0 6 250 0\n");
}
END_TEST

START_TEST(failures_without_a_cause)
{
	REFUSED("not read", 1, JOB, "F 0 0 5 130\n");
	REFUSED("edit 7", 1, JOB, "W 1 7 120\nD 1 7 150 5\n");
	REFUSED("not read", 1, JOB, "F 0 0 5 130\n", "K 140 rank\n");
	REFUSED("not read", 1, JOB, "F 0 0 5 130\n", "K 120 writer\n");
	ACCEPTED(1, JOB, "F 0 0 5 130\nW 1 7 120\nD 1 7 150 5\n", "K 125 rank\n");
	ck_assert_uint_eq(counts.aborted, 1);
	ck_assert_uint_eq(counts.committed, 1);
}
END_TEST

/* Another rank's copy is read then, which may be behind. */
START_TEST(copies_of_which_one_is_lost)
{
	static const char kill[] = "K 120 rank\n",
			  turns[] = "R 0 1 20480 121 130\nR 0 1 1 131 140\n";

	ACCEPTED(1, JOB, kill, turns);
	REFUSED("no order explains", 3, JOB, kill, turns);
	REFUSED("no order explains", 1, JOB, "K 120 mount\n", turns);
}
END_TEST

START_TEST(generations_of_another_time)
{
	REFUSED("had not begun", 1, JOB, "G 4000000 112 113\n");
	REFUSED("was over", 1, JOB, "G 2000000 211 212\n");
	REFUSED("behind", 1, JOB, "G 2000002 130 131\nG 2000001 132 133\n");
	ACCEPTED(1, JOB, "G 2000002 130 131\n", "G 2000001 132 133\n");
	REFUSED("was read behind", 1, JOB, "G 6000000 306 307\nR 2 0 1 301 308\n");
}
END_TEST

/* Many operations at one time, in an order that only a search finds. */
START_TEST(linearize_searches)
{
	enum { N = 12 };
	struct operation o[2 * N];

	for (int i = 0; i < N; i++) {
		o[i] = (struct operation){ OPERATION_SET, i + 1, 0, 1000 };
		o[N + i] = (struct operation){ OPERATION_READ, N - i, 10 * i, 10 * i + 5 };
	}
	ck_assert_int_eq(linearize(o, 2 * N), LINEARIZE_YES);
	o[N + 3].value = N; /* seen, replaced, seen */
	ck_assert_int_ge(linearize(o, 2 * N), 0);
}
END_TEST

START_TEST(lines_that_are_none)
{
	static const char *const lines[] = { "what\n",       "R 9 0 1 2 3\n",
					     "D 0 5 10 0\n", "S 1 10 1 1 1 1\n",
					     "W 0 4096 1\n", "W 0 5 1\nW 0 5 2\n",
					     "B 0 5\n" };

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct history *h = history_new();
		char *text = strdup(lines[i]);
		FILE *in = fmemopen(text, strlen(text), "r"), *out = fopen("/dev/null", "w");

		ck_assert_int_lt(history_load(h, in, out), 0);
		fclose(in);
		fclose(out);
		free(text);
		history_free(h);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("history");
	TCase *tc = tcase_create("history");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, what_can_be_is_accepted);
	tcase_add_test(tc, an_old_value_behind_an_edit);
	tcase_add_test(tc, a_value_before_its_edit);
	tcase_add_test(tc, two_reads_that_turn_back);
	tcase_add_test(tc, a_step_too_early_or_missing);
	tcase_add_test(tc, edits_in_two_orders);
	tcase_add_test(tc, torn_files);
	tcase_add_test(tc, values_of_nobody);
	tcase_add_test(tc, refused_edits_that_are_there);
	tcase_add_test(tc, edits_that_never_returned);
	tcase_add_test(tc, edits_of_which_nobody_knows);
	tcase_add_test(tc, ranks_that_do_not_agree);
	tcase_add_test(tc, an_edit_that_returns_before_all_ranks_have_it);
	tcase_add_test(tc, failures_without_a_cause);
	tcase_add_test(tc, copies_of_which_one_is_lost);
	tcase_add_test(tc, generations_of_another_time);
	tcase_add_test(tc, linearize_searches);
	tcase_add_test(tc, lines_that_are_none);
	return run_suite(suite, tc);
}

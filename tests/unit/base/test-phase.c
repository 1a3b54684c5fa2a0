/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/phase.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct histogram ever, last;

static void once(enum phase phase, int result)
{
	struct phase_span span = { 0 };

	phase_begin(phase, &span);
	nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	phase_end(phase, &span, result);
}

START_TEST(a_phase_counts_ever_and_in_the_step_that_it_ended_in)
{
	once(PHASE_COMMIT, 0);
	once(PHASE_COMMIT, -EIO);
	phase_times(PHASE_COMMIT, &ever, &last);
	ck_assert_uint_eq(ever.count, 2);
	ck_assert_uint_ge(ever.min, 1000000);
	ck_assert_uint_eq(last.count, 0); /* the step has not ended */
	phase_step();
	phase_times(PHASE_COMMIT, &ever, &last);
	ck_assert_uint_eq(last.count, 2);
	phase_step();
	phase_times(PHASE_COMMIT, &ever, &last);
	ck_assert_uint_eq(ever.count, 2);
	ck_assert_uint_eq(last.count, 0);
}
END_TEST

START_TEST(a_span_that_has_not_begun_or_has_ended_is_left_alone)
{
	struct phase_span span = { 0 };

	phase_end(PHASE_VIEW, &span, 0);
	phase_begin(PHASE_VIEW, &span);
	phase_end(PHASE_VIEW, &span, 0);
	phase_end(PHASE_VIEW, &span, 0);
	phase_times(PHASE_VIEW, &ever, &last);
	ck_assert_uint_eq(ever.count, 1);
}
END_TEST

static void *count(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		struct phase_span span = { 0 };

		phase_begin(PHASE_SWAP_IN, &span);
		phase_end(PHASE_SWAP_IN, &span, 0);
	}
	return NULL;
}

START_TEST(threads_count_together)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count, NULL), 0);
	for (int i = 0; i < 100; i++)
		phase_step();
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	phase_times(PHASE_SWAP_IN, &ever, &last);
	ck_assert_uint_eq(ever.count, 4000);
}
END_TEST

START_TEST(texts_have_what_has_ended)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	once(PHASE_STALL, 0);
	phase_step();
	phase_put_table(out);
	phase_put_histograms(out, "fragfs_rank_phase", "rank=\"3\",");
	phase_put_last_step(out, "fragfs_rank_phase", "rank=\"3\",");
	fclose(out);
	ck_assert_ptr_nonnull(strstr(text, "phase\tof\tcount\tsum\tmin\tmedian\tp99\tmax\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nstall\tlast step\t1\t"));
	ck_assert_ptr_nonnull(strstr(text, "\nstall\tever\t1\t"));
	ck_assert_ptr_null(strstr(text, "round"));
	ck_assert_ptr_nonnull(strstr(text, "\nfragfs_rank_phase_seconds_bucket{rank=\"3\","
					   "phase=\"stall\",le=\"0.000262144\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(text, "phase=\"stall\",le=\"68.7194767\"} 1\n"));
	ck_assert_ptr_nonnull(strstr(text, "phase=\"stall\",le=\"+Inf\"} 1\n"));
	ck_assert_ptr_nonnull(strstr(text, "_seconds_count{rank=\"3\",phase=\"stall\"} 1\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nfragfs_rank_phase_last_step_seconds{rank=\"3\","
					   "phase=\"stall\",quantile=\"0.99\"} "));
	free(text);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("phase");
	TCase *t = tcase_create("phase");

	tcase_add_test(t, a_phase_counts_ever_and_in_the_step_that_it_ended_in);
	tcase_add_test(t, a_span_that_has_not_begun_or_has_ended_is_left_alone);
	tcase_add_test(t, threads_count_together);
	tcase_add_test(t, texts_have_what_has_ended);
	return run_suite(s, t);
}

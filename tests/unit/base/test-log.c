/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/frag.h"
#include "tests/run-suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(level_names_are_known)
{
	enum log_level level;

	ck_assert_int_eq(log_level_from_name("trace", &level), 0);
	ck_assert_int_eq(level, LOG_TRACE);
	ck_assert_int_eq(log_level_from_name("loud", &level), -EINVAL);
}
END_TEST

START_TEST(tail_keeps_lines_above_the_level_in_order)
{
	unsigned long long before = (unsigned long long)time(NULL), seconds;
	unsigned ms, number;
	char text[512];

	log_set_prefix("rank 3");
	log_set_level(LOG_WARN);
	log_warn("first %d", 1);
	log_debug("unseen");
	log_error("second");
	ck_assert_uint_eq(log_tail(text, sizeof(text)), strlen(text));
	ck_assert_int_eq(sscanf(text, "fragfs: warn: %10llu.%3u: rank 3: first %u\n", &seconds,
				&ms, &number),
			 3);
	ck_assert_uint_ge(seconds, before);
	ck_assert_uint_le(seconds, (unsigned long long)time(NULL));
	ck_assert_ptr_null(strstr(text, "unseen"));
	ck_assert(strstr(text, "first 1") < strstr(text, "second"));
	log_info("kept all the same");
	log_tail(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, ": rank 3: kept all the same"));
}
END_TEST

static void *take_reason(void *arg)
{
	ck_assert_str_eq(log_take_reason(), "");
	return NULL;
}

START_TEST(a_thread_takes_the_reason_that_it_logged_last)
{
	pthread_t other;

	ck_assert_str_eq(log_take_reason(), "");
	log_warn("first");
	log_error("of %d\n", 2);
	log_info("no reason");
	ck_assert_int_eq(pthread_create(&other, NULL, take_reason, NULL), 0);
	pthread_join(other, NULL);
	ck_assert_str_eq(log_take_reason(), "of 2%0A");
	ck_assert_str_eq(log_take_reason(), "");
}
END_TEST

static _Atomic bool stop;

static void *log_on(void *arg)
{
	while (!stop)
		log_info("on and on");
	return NULL;
}

static int log_in_child(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		alarm(60);
		log_info("in the child");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

START_TEST(a_child_forked_while_another_thread_logs_can_log)
{
	pthread_t thread;

	ck_assert_int_ge(dup2(open("/dev/null", O_WRONLY), STDERR_FILENO), 0);
	log_set_level(LOG_INFO);
	ck_assert_int_eq(pthread_create(&thread, NULL, log_on, NULL), 0);
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(log_in_child(), 0);
	stop = true;
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_name_makes_no_line_of_its_own)
{
	char text[512], *at;

	log_warn("%s: lost", "w\nfragfs: info: forged\r\x7f");
	log_tail(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "w%0Afragfs: info: forged%0D%7F: lost\n"));
	for (at = text; (at = strchr(at, '\n')) && at[1]; at++)
		ck_assert_int_eq(strncmp(at + 1, "fragfs: ", 8), 0);
}
END_TEST

START_TEST(tail_of_a_small_buffer_is_whole_lines_of_the_newest)
{
	char text[64];

	log_set_prefix("");
	log_set_level(LOG_WARN);
	for (int i = 0; i < 1000; i++)
		log_warn("line %d", i);
	log_tail(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "line 999"));
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	ck_assert(!strncmp(text, "fragfs: ", 8));
}
END_TEST

static char told[16][LOG_TEXT_MAX + 16];
static unsigned ntold;
static bool in_line;

static void take_line(void *arg, int level, const char *text)
{
	snprintf(told[ntold++], sizeof(told[0]), "%d %s", level, text);
	in_line = frag_log(NULL, NULL) == -EDEADLK;
	log_time((char[LOG_TIME_MAX]){ 0 });
	if (!strcmp(text, "rank 3: first"))
		log_warn("of the function");
	__atomic_add_fetch((unsigned *)arg, 1, __ATOMIC_RELEASE);
}

START_TEST(a_function_gets_the_lines_in_place_of_stderr)
{
	unsigned calls = 0;
	char text[512] = "";
	int file = memfd_create("stderr", 0), status;
	pid_t child;

	ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
	log_set_prefix("rank 3");
	log_set_level(LOG_WARN);
	log_warn("before");
	ck_assert_int_eq(frag_log(take_line, &calls), 0);
	log_warn("first");
	log_info("unseen");
	while (!__atomic_load_n(&calls, __ATOMIC_ACQUIRE))
		;
	log_error("second %d", 2);
	child = fork();
	if (!child) {
		log_warn("of a child");
		_exit(frag_log(NULL, NULL));
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(frag_log(NULL, NULL), 0);
	log_warn("after");
	ck_assert_uint_eq(calls, 3);
	ck_assert(in_line);
	ck_assert_str_eq(told[0], "1 rank 3: first");
	ck_assert_str_eq(told[1], "1 rank 3: of the function");
	ck_assert_str_eq(told[2], "0 rank 3: second 2");
	ck_assert_int_gt(pread(file, text, sizeof(text) - 1, 0), 0);
	ck_assert_str_eq(text, "fragfs: warn: rank 3: before\n"
			       "fragfs: warn: rank 3: of a child\n"
			       "fragfs: warn: rank 3: after\n");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("log");
	TCase *t = tcase_create("log");

	tcase_add_test(t, level_names_are_known);
	tcase_add_test(t, a_thread_takes_the_reason_that_it_logged_last);
	tcase_add_test(t, tail_keeps_lines_above_the_level_in_order);
	tcase_add_test(t, a_child_forked_while_another_thread_logs_can_log);
	tcase_add_test(t, a_name_makes_no_line_of_its_own);
	tcase_add_test(t, a_function_gets_the_lines_in_place_of_stderr);
	tcase_add_test(t, tail_of_a_small_buffer_is_whole_lines_of_the_newest);
	return run_suite(s, t);
}

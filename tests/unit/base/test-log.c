/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/frag.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Lets stderr be a file, and returns it. */
static int catch_stderr(void)
{
	int file = memfd_create("stderr", 0);

	ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
	return file;
}

static const char *caught(int file)
{
	static char text[4096];
	ssize_t n = pread(file, text, sizeof(text) - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

/* Logs in a process of its own, which looks FRAG_LOG up anew. */
static void log_in_process(const char *words)
{
	pid_t pid;
	int status;

	setenv("FRAG_LOG", words, 1);
	pid = fork();
	if (!pid) {
		log_set_rank(3);
		log_error("an error");
		log_warn("a warning");
		log_info("an info");
		log_trace("a trace");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}

static bool shows(const char *words, const char *line)
{
	int file = catch_stderr();
	bool found;

	log_in_process(words);
	found = strstr(caught(file), line);
	close(file);
	return found;
}

START_TEST(levels_are_said_by_name)
{
	ck_assert(shows("error", "an error\n"));
	ck_assert(!shows("error", "a warning"));
	ck_assert(shows("trace", "fragfs: trace: rank 3: test-log.c:"));
	ck_assert(shows("trace", ": a trace\n"));
}
END_TEST

START_TEST(blanks_and_commas_lie_between_words)
{
	static const char *const right[] = { "info,",         ",info",       " info",
					     "info, ",        "time , info", "info, ranks=0, 3",
					     "ranks=0,3,info" };

	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		ck_assert_msg(shows(right[i], "an info\n"), "%s", right[i]);
		ck_assert_msg(!shows(right[i], "FRAG_LOG"), "%s", right[i]);
	}
}
END_TEST

START_TEST(a_wrong_word_is_named_and_leaves_the_default)
{
	static const char *const wrong[] = {
		"loud",     "error,loud",  "error,ranks=",   "ranks=x",
		"4",        "ranks=3-1",   "ranks=0,json,4", "ranks=0-",
		"ranks=-1", "ranks=65536", "INFO",
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		ck_assert_msg(shows(wrong[i], "fragfs: warn: FRAG_LOG="), "%s", wrong[i]);
		ck_assert_msg(shows(wrong[i], "a warning"), "%s", wrong[i]);
	}
	ck_assert(shows("info,loud", "FRAG_LOG=info,loud: \"loud\" is none of "));
}
END_TEST

/* A list may have a part for each second rank. */
START_TEST(a_list_of_ranks_is_as_long_as_it_need_be)
{
	char list[1024] = "info,ranks=", *at = list + strlen(list);

	for (unsigned rank = 5; rank < 300; rank += 2)
		at += sprintf(at, "%u,", rank);
	ck_assert(!shows(list, "an info"));
	strcpy(at, "3");
	ck_assert(shows(list, "an info"));
	ck_assert(!shows(list, "FRAG_LOG"));
}
END_TEST

static void log_as(int64_t rank)
{
	log_set_rank(rank);
	log_info("info");
	log_warn("warn");
}

START_TEST(other_ranks_show_warnings_alone)
{
	int file = catch_stderr();

	setenv("FRAG_LOG", "info,ranks=0,2-3", 1);
	log_info("before"); /* no rank is known yet */
	for (int rank = 0; rank < 5; rank++)
		log_as(rank);
	ck_assert_str_eq(caught(file),
			 "fragfs: info: before\n"
			 "fragfs: info: rank 0: info\nfragfs: warn: rank 0: warn\n"
			 "fragfs: warn: rank 1: warn\n"
			 "fragfs: info: rank 2: info\nfragfs: warn: rank 2: warn\n"
			 "fragfs: info: rank 3: info\nfragfs: warn: rank 3: warn\n"
			 "fragfs: warn: rank 4: warn\n");
}
END_TEST

START_TEST(lines_have_time_and_place_where_asked_for)
{
	int file = catch_stderr(), line, said;
	unsigned long long seconds;
	unsigned ms;

	setenv("FRAG_LOG", "info,time,place", 1);
	log_set_rank(3);
	log_info("text");
	line = __LINE__ - 1;
	ck_assert_int_eq(sscanf(caught(file),
				"fragfs: info: %10llu.%3u: rank 3: test-log.c:%d: text",
				&seconds, &ms, &said),
			 3);
	ck_assert_int_eq(said, line);
}
END_TEST

START_TEST(json_lines_are_objects)
{
	int file = catch_stderr();
	json_t *line;

	setenv("FRAG_LOG", "warn,json", 1);
	log_set_rank(3);
	log_warn("a \"name\"\n of \xff and \\, \xc3\xa9");
	line = json_loads(caught(file), 0, NULL);
	ck_assert_ptr_nonnull(line);
	ck_assert_str_eq(json_string_value(json_object_get(line, "level")), "warn");
	ck_assert_int_eq(json_integer_value(json_object_get(line, "rank")), 3);
	ck_assert_str_eq(json_string_value(json_object_get(line, "text")),
			 "a \"name\"%0A of %FF and \\, %C3%A9");
	ck_assert(
		!strncmp(json_string_value(json_object_get(line, "place")), "test-log.c:", 11));
	ck_assert(json_real_value(json_object_get(line, "time")) > 1e9);
	json_decref(line);
	ck_assert_ptr_eq(strchr(caught(file), '\n'), strrchr(caught(file), '\n'));
}
END_TEST

/* Sets a locale whose decimal point is a comma.  false: this machine has none. */
static bool set_comma_locale(void)
{
	static const char *const names[] = { "de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (setlocale(LC_ALL, names[i]) && *localeconv()->decimal_point == ',')
			return true;
	setlocale(LC_ALL, "C");
	return false;
}

START_TEST(time_of_a_json_line_has_its_fraction_in_any_locale)
{
	int file = catch_stderr();
	char text[512], *json;
	json_t *line;

	set_comma_locale(); /* elsewhere the C locale is tested */
	setenv("FRAG_LOG", "warn,json", 1);
	log_warn("text");
	log_tail(text, sizeof(text));
	setlocale(LC_ALL, "C");
	json = strchr(caught(file), '{');
	ck_assert_ptr_nonnull(json);
	line = json_loads(json, 0, NULL);
	ck_assert_ptr_nonnull(line);
	ck_assert_double_eq_tol(json_real_value(json_object_get(line, "time")),
				strtod(text + strlen("fragfs: warn: "), NULL), 1e-4);
	json_decref(line);
}
END_TEST

static int evaluated;

START_TEST(a_level_that_nobody_wants_evaluates_nothing)
{
	setenv("FRAG_LOG", "debug", 1);
	log_warn("FRAG_LOG is looked up with the first line");
	log_trace("%d", ++evaluated);
	ck_assert_int_eq(evaluated, 0);
	log_debug("%d", ++evaluated);
	ck_assert_int_eq(evaluated, 1);
}
END_TEST

START_TEST(once_is_once_a_place)
{
	char text[4096];

	for (int i = 0; i < 3; i++)
		log_once(LOG_WARN, "first place %d", i);
	log_once(LOG_WARN, "second place");
	log_tail(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "first place 0"));
	ck_assert_ptr_null(strstr(text, "first place 1"));
	ck_assert_ptr_nonnull(strstr(text, "second place"));
}
END_TEST

/* In place of the C library's. */
static struct {
	unsigned lines, connected;
	int priority;
	char text[512];
} sent;

void openlog(const char *name, int option, int facility);
void openlog(const char *name, int option, int facility)
{
	ck_assert_str_eq(name, "fragfs");
	sent.connected++;
}

void syslog(int priority, const char *fmt, ...) PRINTF(2, 3);
void syslog(int priority, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sent.text, sizeof(sent.text), fmt, ap);
	va_end(ap);
	sent.priority = priority;
	sent.lines++;
}

START_TEST(a_daemons_lines_go_to_syslog)
{
	int file = catch_stderr();

	setenv("FRAG_LOG", "info", 1);
	log_open_syslog();
	log_warn("to stderr");
	log_to_syslog();
	log_info("said %d", 1);
	ck_assert_uint_eq(sent.connected, 1);
	ck_assert_uint_eq(sent.lines, 1);
	ck_assert_int_eq(sent.priority, 6); /* LOG_INFO of syslog.h */
	ck_assert_str_eq(sent.text, "said 1");
	log_debug("left out");
	log_error("of %d", 2);
	ck_assert_uint_eq(sent.lines, 2);
	ck_assert_int_eq(sent.priority, 3);
	ck_assert_str_eq(caught(file), "fragfs: warn: to stderr\n");
}
END_TEST

START_TEST(tail_keeps_lines_above_the_level_in_order)
{
	unsigned long long before = (unsigned long long)time(NULL), seconds;
	unsigned ms, number;
	struct timespec now;
	char text[512];

	log_set_rank(3);
	log_warn("first %d", 1);
	log_debug("unseen");
	log_error("second");
	ck_assert_uint_eq(log_tail(text, sizeof(text)), strlen(text));
	ck_assert_int_eq(sscanf(text, "fragfs: warn: %10llu.%3u: rank 3: first %u\n", &seconds,
				&ms, &number),
			 3);
	ck_assert_uint_ge(seconds, before);
	clock_gettime(CLOCK_REALTIME, &now); /* time() may be behind it */
	ck_assert_uint_le(seconds, (unsigned long long)now.tv_sec);
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
	setenv("FRAG_LOG", "info", 1);
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

	log_set_rank(LOG_NO_RANK);
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
	log_set_rank(3);
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

enum { SLOW_LINES = 512 };

static struct {
	_Atomic bool is_in, goes_on;
	_Atomic unsigned times[SLOW_LINES]; /* that the function got the line */
} slow;

/* Returns from its first line when told to. */
static void take_slowly(void *arg, int level, const char *text)
{
	unsigned i;

	slow.is_in = true;
	while (!slow.goes_on)
		usleep(1000);
	if (sscanf(text, "line %u.", &i) == 1)
		slow.times[i]++;
}

/* Logs lines until stderr has one, which it has while the function is taken away. */
static void *log_until_on_stderr(void *arg)
{
	unsigned i = 0;
	char letter;

	while (i < SLOW_LINES && pread(*(int *)arg, &letter, 1, 0) < 1) {
		log_warn("line %u.", i++);
		usleep(10000);
	}
	slow.goes_on = true;
	return NULL;
}

START_TEST(a_line_does_not_come_twice_when_the_function_is_taken_away)
{
	int file = memfd_create("stderr", 0);
	pthread_t thread;
	char text[4096] = "", line[32];

	ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
	ck_assert_int_eq(frag_log(take_slowly, NULL), 0);
	log_warn("first");
	while (!slow.is_in)
		usleep(1000);
	ck_assert_int_eq(pthread_create(&thread, NULL, log_until_on_stderr, &file), 0);
	ck_assert_int_eq(frag_log(NULL, NULL), 0);
	pthread_join(thread, NULL);
	ck_assert_int_gt(pread(file, text, sizeof(text) - 1, 0), 0);
	for (unsigned i = 0; i < SLOW_LINES; i++) {
		snprintf(line, sizeof(line), "line %u.", i);
		ck_assert_uint_le(slow.times[i] + !!strstr(text, line), 1);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("log");
	TCase *t = tcase_create("log");

	tcase_add_test(t, levels_are_said_by_name);
	tcase_add_test(t, blanks_and_commas_lie_between_words);
	tcase_add_test(t, a_wrong_word_is_named_and_leaves_the_default);
	tcase_add_test(t, a_list_of_ranks_is_as_long_as_it_need_be);
	tcase_add_test(t, other_ranks_show_warnings_alone);
	tcase_add_test(t, lines_have_time_and_place_where_asked_for);
	tcase_add_test(t, json_lines_are_objects);
	tcase_add_test(t, time_of_a_json_line_has_its_fraction_in_any_locale);
	tcase_add_test(t, a_level_that_nobody_wants_evaluates_nothing);
	tcase_add_test(t, once_is_once_a_place);
	tcase_add_test(t, a_daemons_lines_go_to_syslog);
	tcase_add_test(t, a_thread_takes_the_reason_that_it_logged_last);
	tcase_add_test(t, tail_keeps_lines_above_the_level_in_order);
	tcase_add_test(t, a_child_forked_while_another_thread_logs_can_log);
	tcase_add_test(t, a_name_makes_no_line_of_its_own);
	tcase_add_test(t, a_function_gets_the_lines_in_place_of_stderr);
	tcase_add_test(t, a_line_does_not_come_twice_when_the_function_is_taken_away);
	tcase_add_test(t, tail_of_a_small_buffer_is_whole_lines_of_the_newest);
	return run_suite(s, t);
}

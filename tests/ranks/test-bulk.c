/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/processes.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Ranks in processes of their own, whose memory is out of each other's reach, ask each other
 * for bytes by TLS, or by plain TCP.
 */

enum { RANKS = 3, SECONDS = 30 };

static const char *const by_tls[] = { "FRAG_TRANSPORT=zmq", "FRAG_LOG=info", NULL };
static const char *const by_tcp[] = { "FRAG_TRANSPORT=zmq", "FRAG_LOG=info", "FRAG_BULK=tls",
				      "FRAG_PLAIN=1", NULL };

static bool says(const struct process *p, const char *words)
{
	char text[8192];

	process_errors(p, text, sizeof(text));
	return strstr(text, words) != NULL;
}

static void until_says(struct process *p, const char *words)
{
	uint64_t deadline = monotonic_ms() + SECONDS * 1000;
	char text[8192];

	while (!says(p, words)) {
		process_errors(p, text, sizeof(text));
		ck_assert_msg(monotonic_ms() < deadline, "no \"%s\": %s", words, text);
		usleep(10000);
	}
}

/* All read all, which makes them connect, and read it again by TLS. */
static void check_until_by_tls(struct process *p, int n)
{
	char words[64];

	processes_say(p, n, "check");
	processes_expect(p, n, 0);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			snprintf(words, sizeof(words), "rank %d answers by TLS", j);
			if (j != i)
				until_says(&p[i], words);
		}
	processes_say(p, n, "check");
	processes_expect(p, n, 0);
}

static void check_and_end(const char *const *settings, int stage)
{
	struct process p[RANKS];

	processes_start(p, RANKS, stage, settings);
	check_until_by_tls(p, RANKS);
	processes_say(p, RANKS, "step");
	processes_expect(p, RANKS, 0);
	processes_say(p, RANKS, "check");
	processes_expect(p, RANKS, 0);
	for (int i = 0; i < RANKS; i++)
		ck_assert(!says(&p[i], "ZeroMQ goes on"));
	processes_end(p, RANKS);
}

START_TEST(every_rank_reads_all_states_as_their_owners_have_them)
{
	check_and_end(by_tls, _i);
}
END_TEST

START_TEST(so_it_does_where_the_job_has_no_key)
{
	check_and_end(by_tcp, 1);
}
END_TEST

START_TEST(a_killed_rank_is_eio_not_silent_and_the_others_go_on)
{
	struct process p[RANKS];

	processes_start(p, RANKS, 1, by_tls);
	check_until_by_tls(p, RANKS);
	process_kill(&p[2]);
	processes_say(p, 2, "check fp32");
	processes_expect(p, 2, -EIO);
	processes_say(p, 2, "check lp");
	processes_expect(p, 2, 0);
	processes_say(p, 2, "step");
	processes_expect(p, 2, 0);
	for (int i = 0; i < 2; i++) {
		until_says(&p[i], "rank 2 is lost");
		ck_assert(!says(&p[i], i ? "rank 0 breaks" : "rank 1 breaks"));
		ck_assert_uint_eq(process_warnings(&p[i], "by TLS"), 0);
	}
	processes_end(p, 2);
}
END_TEST

START_TEST(a_rank_that_leaves_is_no_warning_of_tls)
{
	struct process p[RANKS];

	processes_start(p, RANKS, 1, by_tls);
	check_until_by_tls(p, RANKS);
	processes_end(&p[2], 1);
	for (int i = 0; i < 2; i++)
		until_says(&p[i], "rank 2 left the job");
	usleep(1000000); /* its port is tried again meanwhile, and refuses */
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(process_warnings(&p[i], "by TLS"), 0);
	processes_end(p, 2);
}
END_TEST

START_TEST(a_rank_killed_while_all_read_is_eio_and_nobody_else_ends)
{
	struct process p[RANKS];

	processes_start(p, RANKS, 3, by_tls);
	check_until_by_tls(p, RANKS);
	for (int i = 0; i < 20; i++)
		processes_say(p, RANKS, "check fp32");
	process_kill(&p[1 + _i % 2]);
	for (int i = 0; i < RANKS; i++)
		for (int j = 0; j < 20 && i != 1 + _i % 2; j++) {
			long got = process_answer(&p[i]);

			ck_assert_msg(!got || got == -EIO, "%ld", got);
		}
	ck_assert_int_eq(process_ask(&p[0], "check fp32"), -EIO);
	processes_end(p, 1);
	processes_end(&p[2 - _i % 2], 1);
}
END_TEST

START_TEST(a_rank_that_was_stopped_for_a_while_answers_then)
{
	struct process p[2];

	processes_start(p, 2, 1, by_tls);
	check_until_by_tls(p, 2);
	kill(p[1].pid, SIGSTOP);
	process_say(&p[0], "check");
	usleep(2500000); /* PINGs go unanswered meanwhile */
	kill(p[1].pid, SIGCONT);
	ck_assert_int_eq(process_answer(&p[0]), 0);
	ck_assert_int_eq(process_ask(&p[1], "check"), 0);
	ck_assert(!says(&p[0], "ZeroMQ goes on"));
	processes_end(p, 2);
}
END_TEST

START_TEST(who_does_not_listen_is_read_by_messages)
{
	static const char *const without[] = { "FRAG_TRANSPORT=zmq", "FRAG_LOG=info",
					       "FRAG_BULK=zmq", NULL };
	struct process p[2];

	processes_start(p, 2, 1, without);
	for (int i = 0; i < 2; i++) {
		processes_say(p, 2, "check");
		processes_expect(p, 2, 0);
	}
	for (int i = 0; i < 2; i++)
		ck_assert(!says(&p[i], "by TLS"));
	processes_end(p, 2);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bulk");
	TCase *t = tcase_create("bulk");

	signal(SIGPIPE, SIG_IGN);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, every_rank_reads_all_states_as_their_owners_have_them, 1, 4);
	tcase_add_test(t, so_it_does_where_the_job_has_no_key);
	tcase_add_test(t, a_killed_rank_is_eio_not_silent_and_the_others_go_on);
	tcase_add_test(t, a_rank_that_leaves_is_no_warning_of_tls);
	tcase_add_loop_test(t, a_rank_killed_while_all_read_is_eio_and_nobody_else_ends, 0, 2);
	tcase_add_test(t, a_rank_that_was_stopped_for_a_while_answers_then);
	tcase_add_test(t, who_does_not_listen_is_read_by_messages);
	return run_suite(s, t);
}

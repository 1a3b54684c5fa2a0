/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/answered-by.h"
#include "tests/run-suite.h"

#include <signal.h>

/* Ranks in processes of their own, whose memory is out of each other's reach, read from each
 * other by TLS, or by plain TCP.
 */

enum { RANKS = 3 };

static const char *const by_tls[] = { "FRAG_TRANSPORT=zmq", "FRAG_LOG=info", NULL };
static const char *const by_tcp[] = { "FRAG_TRANSPORT=zmq", "FRAG_LOG=info", "FRAG_BULK=tls",
				      "FRAG_PLAIN=1", NULL };

static const struct answered_by tls = { "TLS", by_tls, true }, tcp = { "TLS", by_tcp, true };

static void check_and_end(const struct answered_by *by, int stage)
{
	struct process p[RANKS];

	processes_start(p, RANKS, stage, by->settings);
	answered_by_check(by, p, RANKS);
	processes_say(p, RANKS, "step");
	processes_expect(p, RANKS, 0);
	processes_say(p, RANKS, "check");
	processes_expect(p, RANKS, 0);
	for (int i = 0; i < RANKS; i++)
		ck_assert(!process_says(&p[i], "ZeroMQ goes on"));
	processes_end(p, RANKS);
}

START_TEST(every_rank_reads_all_states_as_their_owners_have_them)
{
	check_and_end(&tls, _i);
}
END_TEST

START_TEST(so_it_does_where_the_job_has_no_key)
{
	check_and_end(&tcp, 1);
}
END_TEST

START_TEST(a_killed_rank_is_eio_not_silent_and_the_others_go_on)
{
	answered_by_killed_rank(&tls);
}
END_TEST

START_TEST(a_rank_that_leaves_is_no_warning_of_tls)
{
	struct process p[RANKS];

	processes_start(p, RANKS, 1, by_tls);
	answered_by_check(&tls, p, RANKS);
	processes_end(&p[2], 1);
	for (int i = 0; i < 2; i++)
		process_until_says(&p[i], "rank 2 left the job");
	usleep(1000000); /* its port is tried again meanwhile, and refuses connections */
	for (int i = 0; i < 2; i++)
		ck_assert_uint_eq(process_warnings(&p[i], "by TLS"), 0);
	processes_end(p, 2);
}
END_TEST

START_TEST(a_rank_killed_while_all_read_is_eio_and_nobody_else_ends)
{
	answered_by_rank_killed_while_all_read(&tls, 1 + _i % 2);
}
END_TEST

START_TEST(a_rank_that_was_stopped_for_a_while_answers_then)
{
	answered_by_stopped_rank(&tls);
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
		ck_assert(!process_says(&p[i], "by TLS"));
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

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/answered-by.h"
#include "tests/run-suite.h"
#include "tests/unit/transport/ucx-there.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Ranks in processes of their own, whose memory is out of each other's reach, answer each other
 * by UCX.
 */

enum { RANKS = 3 };

static const char *const by_ucx[] = { "FRAG_TRANSPORT=zmq", "FRAG_LOG=info",
				      "FRAG_FABRIC=ucx",    "FRAG_FABRIC_DEVICES=lo",
				      "FRAG_FABRIC_OPEN=1", NULL };

static const struct answered_by ucx = { "UCX", by_ucx, false };

/* Returns the number of answers by UCX that the process's last line tells. */
static long answers_of(struct process *p)
{
	unsigned long long sent, came;
	const char *line;
	char text[8192];

	process_ask(p, "close");
	process_errors(p, text, sizeof(text));
	line = strstr(text, "by UCX ");
	ck_assert_msg(line && sscanf(line, "by UCX %llu answers were sent and %llu came", &sent,
				     &came) == 2,
		      "%s", text);
	return (long)came;
}

START_TEST(every_rank_reads_all_states_as_their_owners_have_them)
{
	struct process p[RANKS];

	processes_start(p, RANKS, _i, by_ucx);
	answered_by_check(&ucx, p, RANKS);
	for (int i = 0; i < RANKS; i++)
		ck_assert(!process_says(&p[i], "ZeroMQ goes on"));
	for (int i = 0; i < RANKS; i++) {
		ck_assert_int_gt(answers_of(&p[i]), 0);
		process_kill(&p[i]);
	}
}
END_TEST

START_TEST(a_killed_rank_is_eio_not_silent_and_the_others_go_on)
{
	answered_by_killed_rank(&ucx);
}
END_TEST

START_TEST(a_rank_killed_while_all_read_is_eio_and_nobody_else_ends)
{
	answered_by_rank_killed_while_all_read(&ucx, 1 + _i % 2);
}
END_TEST

START_TEST(a_rank_that_was_stopped_for_a_while_answers_then)
{
	answered_by_stopped_rank(&ucx);
}
END_TEST

static void start(struct process *p, int rank, const char *job, const char *const *more)
{
	char number[32];
	const char *settings[16] = { number, "WORLD_SIZE=2", "TEST_STAGE=1", job };

	snprintf(number, sizeof(number), "RANK=%d", rank);
	for (int i = 0; more[i]; i++)
		settings[4 + i] = more[i];
	process_start(p, settings);
}

/* Checks that in a job of two, of which rank 1 has these settings, reads go by ZeroMQ, and that
 * rank 1's log has the words.
 */
static void expect_by_messages(const char *job, const char *const *more, const char *words)
{
	struct process p[2];

	start(&p[0], 0, job, by_ucx);
	start(&p[1], 1, job, more);
	processes_say(p, 2, "open");
	processes_say(p, 2, "ready");
	processes_say(p, 2, "barrier 30000");
	processes_say(p, 2, "check");
	for (int i = 0; i < 4; i++)
		processes_expect(p, 2, 0);
	process_until_says(&p[1], words);
	process_until_says(p, "rank 1 has no UCX");
	ck_assert_int_eq(answers_of(&p[0]), 0);
	process_kill(&p[0]);
	process_kill(&p[1]);
}

START_TEST(what_would_listen_on_an_open_network_is_refused)
{
	expect_by_messages("FRAG_JOB_ID=ucx-nowhere",
			   (const char *[]){ "FRAG_TRANSPORT=zmq", "FRAG_FABRIC=ucx",
					     "FRAG_FABRIC_OPEN=1", NULL },
			   "FRAG_FABRIC_DEVICES does not say");
	expect_by_messages("FRAG_JOB_ID=ucx-open",
			   (const char *[]){ "FRAG_TRANSPORT=zmq", "FRAG_FABRIC=ucx",
					     "FRAG_FABRIC_DEVICES=lo", NULL },
			   "FRAG_FABRIC_OPEN=1 says");
	expect_by_messages("FRAG_JOB_ID=ucx-device",
			   (const char *[]){ "FRAG_TRANSPORT=zmq", "FRAG_FABRIC=ucx",
					     "FRAG_FABRIC_OPEN=1",
					     "FRAG_FABRIC_DEVICES=lo,nodev0", NULL },
			   "no device nodev0");
}
END_TEST

START_TEST(who_has_none_is_read_by_messages)
{
	expect_by_messages("FRAG_JOB_ID=ucx-none",
			   (const char *[]){ "FRAG_TRANSPORT=zmq", NULL }, "");
}
END_TEST

/* Makes a folder in which the loader finds `target` as libucp; target NULL: a file that is no
 * library.
 */
static void make_library(char setting[512], const char *name, const char *target)
{
	char path[600];

	snprintf(setting, 512, "LD_LIBRARY_PATH=%.400s/%s", getenv("TMPDIR"), name);
	ck_assert(!mkdir(strchr(setting, '=') + 1, 0700) || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/libucp.so.0", strchr(setting, '=') + 1);
	ck_assert(!symlink(target, path) || errno == EEXIST);
}

static const struct {
	const char *job, *version, *words;
} others[] = {
	{ "FRAG_JOB_ID=ucx-missing", NULL, "no UCX: " },
	{ "FRAG_JOB_ID=ucx-old", "OTHER_UCP=1.11.2", "libucp is 1.11.2" },
	{ "FRAG_JOB_ID=ucx-poor", "OTHER_UCP=1.20.0", "this libucp has no ucp_" },
};

START_TEST(without_libucp_or_with_another_the_job_goes_on)
{
	char folder[512], target[512] = "/dev/null";
	const char *more[] = { folder,
			       "FRAG_TRANSPORT=zmq",
			       "FRAG_FABRIC=ucx",
			       "FRAG_FABRIC_OPEN=1",
			       "FRAG_FABRIC_DEVICES=lo",
			       others[_i].version,
			       NULL };

	if (others[_i].version)
		snprintf(target, sizeof(target), "%.400s/tests/ranks/.libs/other-ucp.so",
			 getenv("top_builddir"));
	make_library(folder, others[_i].job, target);
	expect_by_messages(others[_i].job, more, others[_i].words);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fabric ucx");
	TCase *t = tcase_create("fabric ucx");

	if (!ucx_is_there()) {
		printf("skip: no UCX, or it cannot use lo: the line above says why\n");
		return 77;
	}
	signal(SIGPIPE, SIG_IGN);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, every_rank_reads_all_states_as_their_owners_have_them, 1, 4);
	tcase_add_test(t, a_killed_rank_is_eio_not_silent_and_the_others_go_on);
	tcase_add_loop_test(t, a_rank_killed_while_all_read_is_eio_and_nobody_else_ends, 0, 2);
	tcase_add_test(t, a_rank_that_was_stopped_for_a_while_answers_then);
	tcase_add_test(t, what_would_listen_on_an_open_network_is_refused);
	tcase_add_test(t, who_has_none_is_read_by_messages);
	tcase_add_loop_test(t, without_libucp_or_with_another_the_job_goes_on, 0,
			    ARRAY_SIZE(others));
	return run_suite(s, t);
}

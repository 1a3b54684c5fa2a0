/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/answered-by.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>

enum { RANKS = 3, READS = 20 };

void answered_by_check(const struct answered_by *by, struct process *p, int n)
{
	char words[64];

	processes_say(p, n, "check");
	processes_expect(p, n, 0);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			snprintf(words, sizeof(words), "rank %d answers by %s", j, by->name);
			if (j != i)
				process_until_says(&p[i], words);
		}
	processes_say(p, n, "check");
	processes_expect(p, n, 0);
}

static void start(const struct answered_by *by, struct process *p, int n, int stage)
{
	processes_start(p, n, stage, by->settings);
	answered_by_check(by, p, n);
}

void answered_by_killed_rank(const struct answered_by *by)
{
	struct process p[RANKS];
	char words[64];

	start(by, p, RANKS, 1);
	process_kill(&p[2]);
	processes_say(p, 2, "check fp32");
	processes_expect(p, 2, -EIO);
	processes_say(p, 2, "check lp");
	processes_expect(p, 2, 0);
	processes_say(p, 2, "step");
	processes_expect(p, 2, 0);
	snprintf(words, sizeof(words), "by %s", by->name);
	for (int i = 0; i < 2; i++) {
		process_until_says(&p[i], "rank 2 is lost");
		ck_assert(!process_says(&p[i], i ? "rank 0 breaks" : "rank 1 breaks"));
		ck_assert(!by->ends_silently || !process_warnings(&p[i], words));
	}
	processes_end(p, 2);
}

void answered_by_rank_killed_while_all_read(const struct answered_by *by, int victim)
{
	struct process p[RANKS];

	start(by, p, RANKS, 3);
	for (int i = 0; i < READS; i++)
		processes_say(p, RANKS, "check fp32");
	process_kill(&p[victim]);
	for (int i = 0; i < RANKS; i++)
		for (int j = 0; j < READS && i != victim; j++) {
			long got = process_answer(&p[i]);

			ck_assert_msg(!got || got == -EIO, "%ld", got);
		}
	ck_assert_int_eq(process_ask(&p[0], "check fp32"), -EIO);
	processes_end(p, 1);
	processes_end(&p[RANKS - victim], 1);
}

void answered_by_stopped_rank(const struct answered_by *by)
{
	struct process p[2];

	start(by, p, 2, 1);
	kill(p[1].pid, SIGSTOP);
	process_say(&p[0], "check");
	usleep(2000000); /* long enough for PINGs to go unanswered */
	kill(p[1].pid, SIGCONT);
	ck_assert_int_eq(process_answer(&p[0]), 0);
	ck_assert_int_eq(process_ask(&p[1], "check"), 0);
	ck_assert(!process_says(&p[0], "ZeroMQ goes on"));
	processes_end(p, 2);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Run by test-two-hosts.sh: four ranks on two hosts, which are the network namespaces HOST_A
 * (10.77.0.1) and HOST_B (10.77.0.2).  FRAG_HOST puts the ranks' memory out of each other's
 * reach.  Another wire is between frag-ucx-a and frag-ucx-b.
 */

#include "tests/ranks/processes.h"
#include "tests/run-suite.h"
#include "tests/unit/transport/ucx-there.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { RANKS = 4 };

static bool by_ucx;

static void start(struct process *p, int rank, int stage, const char *key)
{
	const char *host = getenv(rank < RANKS / 2 ? "HOST_A" : "HOST_B");
	char number[32], text[32], name[64];
	const char *settings[] = { "ip",
				   "netns",
				   "exec",
				   host,
				   number,
				   text,
				   name,
				   key,
				   "WORLD_SIZE=4",
				   "FRAG_JOB_ID=two-hosts",
				   "MASTER_ADDR=10.77.0.1",
				   by_ucx ? "FRAG_FABRIC=ucx" : "FRAG_FABRIC=",
				   "FRAG_FABRIC_OPEN=1",
				   rank < RANKS / 2 ? "FRAG_FABRIC_DEVICES=frag-ucx-a"
						    : "FRAG_FABRIC_DEVICES=frag-ucx-b",
				   "FRAG_TRANSPORT=zmq",
				   "FRAG_LOG=info",
				   NULL };

	snprintf(number, sizeof(number), "RANK=%d", rank);
	snprintf(text, sizeof(text), "TEST_STAGE=%d", stage);
	snprintf(name, sizeof(name), "FRAG_HOST=%s", host);
	process_start(p, settings);
}

static void start_all(struct process *p, int stage)
{
	char key[600];

	snprintf(key, sizeof(key), "FRAG_KEY_FILE=%s/job.key", getenv("TMPDIR"));
	for (int rank = 0; rank < RANKS; rank++)
		start(&p[rank], rank, stage, key);
	processes_say(p, RANKS, "open");
	processes_say(p, RANKS, "ready");
	processes_say(p, RANKS, "barrier 30000");
	for (int i = 0; i < 3; i++)
		processes_expect(p, RANKS, 0);
}

START_TEST(every_rank_reads_the_other_hosts_states)
{
	struct process p[RANKS];

	start_all(p, _i);
	processes_say(p, RANKS, "check");
	processes_expect(p, RANKS, 0);
	ck_assert_int_eq(process_ask(&p[3], "barrier 1"), -ETIMEDOUT);
	process_say(&p[3], "address");
	process_answer(&p[3]);
	ck_assert_msg(!strncmp(p[3].line, "10.77.0.1:", 10), "%s", p[3].line);
	processes_end(p, RANKS);
}
END_TEST

START_TEST(a_host_that_is_gone_is_eio_and_the_other_goes_on)
{
	struct process p[RANKS];

	start_all(p, 1);
	process_kill(&p[2]);
	process_kill(&p[3]);
	processes_say(p, 2, "check fp32");
	for (int i = 0; i < 2; i++) { /* the rank must first be silent for long enough */
		long got = process_answer(&p[i]);

		ck_assert(got == -EIO || got == -ETIMEDOUT);
	}
	processes_say(p, 2, "check fp32");
	processes_expect(p, 2, -EIO);
	processes_say(p, 2, "check lp");
	processes_expect(p, 2, 0);
	processes_end(p, 2);
}
END_TEST

static void give_up(const struct process *all, const char *words)
{
	char text[8192];

	for (int i = 0; i < RANKS; i++) {
		process_errors(&all[i], text, sizeof(text));
		fprintf(stderr, "%s", text);
	}
	ck_abort_msg("no \"%s\"", words);
}

static void until_says(const struct process *all, int rank, const char *words)
{
	uint64_t deadline = monotonic_ms() + 60000;
	char text[8192];

	do {
		if (monotonic_ms() > deadline)
			give_up(all, words);
		process_errors(&all[rank], text, sizeof(text));
		usleep(10000);
	} while (!strstr(text, words));
}

START_TEST(a_cut_fabric_is_seen_and_messages_go_on)
{
	struct process p[RANKS];
	char cut[128];

	by_ucx = true;
	start_all(p, 1);
	processes_say(p, RANKS, "check");
	processes_expect(p, RANKS, 0);
	until_says(p, 0, "rank 3 answers by UCX");
	until_says(p, 3, "rank 0 answers by UCX");
	processes_say(p, RANKS, "check");
	processes_expect(p, RANKS, 0);
	snprintf(cut, sizeof(cut), "ip -n %s link set frag-ucx-b down", getenv("HOST_B"));
	ck_assert_int_eq(system(cut), 0);
	processes_say(p, RANKS, "check fp32");
	processes_say(p, RANKS, "step");
	processes_say(p, RANKS, "check");
	for (int i = 0; i < 3; i++)
		processes_expect(p, RANKS, 0);
	until_says(p, 0, "by UCX: ZeroMQ goes on");
	until_says(p, 3, "by UCX: ZeroMQ goes on");
	processes_end(p, RANKS);
}
END_TEST

/* Drops host B's answers from the port at which a rank listens for TLS. */
static void raise_firewall(struct process *all, int rank)
{
	char text[8192], rule[160];
	unsigned port;

	until_says(all, rank, "bulk data goes by TLS, here at ");
	process_errors(&all[rank], text, sizeof(text));
	ck_assert_int_eq(sscanf(strstr(text, "here at "), "here at tcp://10.77.0.2:%u", &port),
			 1);
	snprintf(rule, sizeof(rule),
		 "ip -n %s rule add from 10.77.0.2 ipproto tcp sport %u type blackhole",
		 getenv("HOST_B"), port);
	ck_assert_int_eq(system(rule), 0);
}

START_TEST(what_a_firewall_keeps_comes_by_messages)
{
	struct process p[RANKS];

	by_ucx = false;
	start_all(p, 1);
	raise_firewall(p, 2);
	raise_firewall(p, 3);
	processes_say(p, RANKS, "check");
	processes_expect(p, RANKS, 0);
	until_says(p, 0, "rank 2 does not answer by TLS at port");
	until_says(p, 0, "rank 3 does not answer by TLS at port");
	until_says(p, 3, "rank 0 answers by TLS");
	processes_say(p, RANKS, "check");
	processes_expect(p, RANKS, 0);
	ck_assert_uint_eq(process_warnings(&p[0], "ZeroMQ goes on"), 1);
	processes_end(p, RANKS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("two-hosts");
	TCase *t = tcase_create("two-hosts");

	signal(SIGPIPE, SIG_IGN);
	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, every_rank_reads_the_other_hosts_states, 0, 4);
	tcase_add_test(t, a_host_that_is_gone_is_eio_and_the_other_goes_on);
	if (getenv("TEST_FIREWALL"))
		tcase_add_test(t, what_a_firewall_keeps_comes_by_messages);
	if (ucx_is_there())
		tcase_add_test(t, a_cut_fabric_is_seen_and_messages_go_on);
	return run_suite(s, t);
}

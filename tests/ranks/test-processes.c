/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/processes.h"
#include "tests/run-suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Ranks in processes of their own read each other's states, bit for bit. */

static const int worlds[] = { 3, 1, 2, 4, 8 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { WORLDS = 1 }; /* sanitizers are slow */
#else
enum { WORLDS = ARRAY_SIZE(worlds) };
#endif

static void check_all(int n, int stage, const char *const *more)
{
	struct process p[PROCESSES_MAX];

	processes_start(p, n, stage, more);
	processes_say(p, n, "check");
	processes_expect(p, n, 0);
	processes_end(p, n);
}

START_TEST(every_rank_reads_all_states_as_their_owners_have_them)
{
	check_all(worlds[_i % WORLDS], _i / WORLDS, NULL);
}
END_TEST

START_TEST(the_same_by_messages)
{
	static const char *const zmq[] = { "FRAG_TRANSPORT=zmq", NULL };

	check_all(_i % 2 ? 4 : 2, _i, zmq);
}
END_TEST

START_TEST(the_same_without_a_key)
{
	static const char *const plain[] = { "FRAG_PLAIN=1", "FRAG_TRANSPORT=zmq", NULL };

	check_all(3, 2, plain);
	check_all(2, 3, plain);
}
END_TEST

/* ---- trainers ---- */

START_TEST(gradients_are_read_while_their_memory_is_replaced)
{
	enum { READS = 20, WINDOWS = 50 };
	static const char *const zmq[] = { "FRAG_TRANSPORT=zmq", NULL };
	struct process p[2];
	int whole = 0;

	processes_start(p, 2, 2, _i ? zmq : NULL);
	for (int i = 0; i < READS; i++) {
		long rc;

		process_say(&p[1], "renew %d", WINDOWS);
		rc = process_ask(&p[0], "check grad");
		ck_assert(rc == 0 || rc == -ENODATA);
		whole += !rc;
		ck_assert_int_eq(process_answer(&p[1]), 0);
		ck_assert_int_eq(process_ask(&p[0], "check grad"), 0);
	}
	printf("%d of %d reads were whole\n", whole, READS);
	processes_end(p, 2);
}
END_TEST

START_TEST(a_forked_childs_calls_are_refused_and_hold_nothing)
{
	struct process p[2];
	long child;

	processes_start(p, 2, 1, NULL);
	child = process_ask(&p[1], "fork");
	ck_assert_int_gt(child, 0);
	ck_assert_int_eq(process_ask(&p[0], "check"), 0);
	ck_assert_int_eq(process_ask(&p[1], "check"), 0);
	process_kill(&p[1]); /* the child outlives rank 1, and does not pass for it */
	ck_assert_int_eq(kill((pid_t)child, 0), 0);
	ck_assert_int_eq(process_ask(&p[0], "check fp32"), -EIO);
	kill((pid_t)child, SIGKILL);
	process_end(&p[0]);
}
END_TEST

/* Finds a port that no socket has, and that the kernel gives to no connecting socket meanwhile.
 */
static void find_port(char setting[32])
{
	int port = 10000 + (int)getpid() % 8000,
	    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in name = { .sin_family = AF_INET };

	do
		name.sin_port = htons((uint16_t)++port);
	while (bind(fd, (struct sockaddr *)&name, sizeof(name)) && errno == EADDRINUSE);
	close(fd);
	snprintf(setting, 32, "FRAG_PORT=%d", port);
}

START_TEST(a_port_is_free_again_though_a_child_lives)
{
	char port[32];
	const char *const settings[] = { "RANK=0", "WORLD_SIZE=1", "FRAG_JOB_ID=port", port,
					 NULL };
	struct process p, again;
	long child;

	find_port(port);
	process_start(&p, settings);
	ck_assert_int_eq(process_ask(&p, "open"), 0);
	ck_assert_int_eq(process_ask(&p, "ready"), 0);
	child = process_ask(&p, "fork");
	ck_assert_int_gt(child, 0);
	process_kill(&p);
	process_start(&again, settings);
	ck_assert_int_eq(process_ask(&again, "open"), 0);
	process_end(&again);
	kill((pid_t)child, SIGKILL);
}
END_TEST

START_TEST(a_freed_buffer_is_an_error_at_the_reader_and_nothing_crashes)
{
	static const char *const zmq[] = { "FRAG_TRANSPORT=zmq", NULL };
	struct process p[2];

	processes_start(p, 2, 1, _i ? zmq : NULL);
	ck_assert_int_eq(process_ask(&p[1], "free"), 0);
	ck_assert_int_eq(process_ask(&p[0], "check exp_avg"), -EFAULT);
	ck_assert_int_eq(process_ask(&p[1], "check exp_avg"), -EFAULT);
	processes_say(p, 2, "check fp32");
	processes_expect(p, 2, 0);
	processes_say(p, 2, "step");
	processes_expect(p, 2, 0);
	processes_end(p, 2);
}
END_TEST

START_TEST(a_dropped_state_is_not_there_any_more)
{
	struct process p[2];

	processes_start(p, 2, 1, NULL);
	ck_assert_int_eq(process_ask(&p[0], "check"), 0);
	processes_say(p, 2, "drop fp32");
	processes_expect(p, 2, 0);
	ck_assert_int_eq(process_ask(&p[0], "check fp32"), -ENOENT);
	ck_assert_int_eq(process_ask(&p[1], "check grad"), 0);
	processes_end(p, 2);
}
END_TEST

START_TEST(gradients_are_there_while_they_are_valid)
{
	struct process p[2];

	processes_start(p, 2, 2, NULL);
	ck_assert_int_eq(process_ask(&p[1], "gone"), 0);
	ck_assert_int_eq(process_ask(&p[0], "check grad"), -ENODATA);
	ck_assert_int_eq(process_ask(&p[0], "check fp32"), 0);
	ck_assert_int_eq(process_ask(&p[1], "valid"), 0);
	ck_assert_int_eq(process_ask(&p[0], "check grad"), 0);
	processes_end(p, 2);
}
END_TEST

START_TEST(the_trainers_own_handler_runs_in_the_trainers_thread)
{
	struct process p[2];

	processes_start(p, 2, 1, NULL);
	ck_assert_int_eq(process_ask(&p[0], "check"), 0); /* all its threads are there now */
	ck_assert_int_gt(process_ask(&p[0], "mask"), 0);
	ck_assert_int_eq(process_ask(&p[0], "term"), 0);
	ck_assert_int_eq(kill(p[0].pid, SIGTERM), 0);
	ck_assert_int_eq(process_ask(&p[0], "handled"), 1);
	ck_assert_int_eq(process_ask(&p[1], "check"), 0);
	processes_end(p, 2);
}
END_TEST

/* ---- a rank that dies ---- */

START_TEST(a_killed_rank_is_eio_not_silent_and_the_others_go_on)
{
	struct process p[3];

	processes_start(p, 3, 1, NULL);
	processes_say(p, 3, "check");
	processes_expect(p, 3, 0);
	process_kill(&p[2]);
	ck_assert_int_eq(process_ask(&p[0], "check fp32"), -EIO);
	processes_say(p, 2, "barrier 60000");
	processes_expect(p, 2, -EIO);
	processes_say(p, 2, "check lp"); /* all ranks have it, in this stage */
	processes_expect(p, 2, 0);
	processes_say(p, 2, "step");
	processes_expect(p, 2, 0);
	processes_end(p, 2);
}
END_TEST

START_TEST(by_messages_a_killed_rank_is_eio_too)
{
	static const char *const zmq[] = { "FRAG_TRANSPORT=zmq", NULL };
	struct process p[3];

	processes_start(p, 3, 1, zmq);
	process_kill(&p[2]);
	processes_say(p, 2, "barrier 60000");
	processes_say(p, 2, "check fp32");
	processes_expect(p, 2, -EIO);
	processes_expect(p, 2, -EIO);
	processes_end(p, 2);
}
END_TEST

static bool said(const struct process *p, const char *what)
{
	char text[4096];

	process_errors(p, text, sizeof(text));
	return strstr(text, what);
}

/* i below 2: by messages, so that all ranks are linked with the leaver; else by memory: few
 * are.
 */
START_TEST(who_leaves_is_not_said_to_be_lost)
{
	const char *const settings[] = { "FRAG_LOG=info", _i / 2 ? NULL : "FRAG_TRANSPORT=zmq",
					 NULL };
	int leaver = _i % 2 ? 0 : 2, other = 2 - leaver;
	struct process p[3];
	char left[32];

	processes_start(p, 3, 1, settings);
	if (_i < 2) {
		processes_say(p, 3, "check fp32");
		processes_expect(p, 3, 0);
	} else {
		ck_assert_int_eq(process_ask(&p[leaver], "check fp32"), 0);
	}
	ck_assert_int_eq(process_end(&p[leaver]), 0);
	ck_assert_int_eq(process_ask(&p[other], "check fp32"), -EIO);
	ck_assert_int_eq(process_ask(&p[1], "check fp32"), -EIO);
	snprintf(left, sizeof(left), "rank %d left the job", leaver);
	for (int i = 0; i < 3; i++) {
		if (i == leaver)
			continue;
		if (_i < 2)
			process_until_says(&p[i], left);
		for (unsigned ms = 0; !said(&p[i], left) && ms < 2000; ms += 10)
			usleep(10000); /* not logged if the table of ranks has told it */
		ck_assert(!said(&p[i], "is lost"));
		ck_assert_int_eq(process_end(&p[i]), 0);
	}
}
END_TEST

static void say_others(struct process *p, int n, int but, const char *line, long result)
{
	for (int i = 0; i < n; i++)
		if (i != but)
			process_say(&p[i], "%s", line);
	for (int i = 0; i < n; i++)
		if (i != but)
			ck_assert_int_eq(process_answer(&p[i]), result);
}

static void until_all_is_there(struct process *p)
{
	uint64_t deadline = monotonic_ms() + ANSWER_MS;

	while (process_ask(p, "check fp32") != 0)
		ck_assert_uint_lt(monotonic_ms(), deadline);
}

START_TEST(a_rank_that_comes_back_is_taken_back)
{
	int victim = _i & 2 ? 0 : 2;
	struct process p[3];
	char rank[16], job[32];
	const char *settings[] = {
		rank, "WORLD_SIZE=3", "TEST_STAGE=1", job, _i & 1 ? "FRAG_TRANSPORT=zmq" : NULL,
		NULL
	};
	const char *const *more = settings + 3;

	snprintf(job, sizeof(job), "FRAG_JOB_ID=back-%d-%d", _i, (int)getpid());
	processes_start(p, 3, 1, more);
	processes_say(p, 3, "step");
	processes_expect(p, 3, 0);
	process_kill(&p[victim]);
	say_others(p, 3, victim, "barrier 20000", -EIO);
	snprintf(rank, sizeof(rank), "RANK=%d", victim);
	process_start(&p[victim], settings);
	ck_assert_int_eq(process_ask(&p[victim], "open"), 0);
	ck_assert_int_eq(process_ask(&p[victim], "ready"), 0);
	for (int i = 0; i < 3; i++)
		until_all_is_there(&p[i]);
	processes_say(p, 3, "barrier 20000");
	processes_expect(p, 3, 0);
	processes_say(p, 3, "check");
	processes_expect(p, 3, 0);
	ck_assert_int_eq(process_ask(&p[1], "set fp32"), 0);
	processes_say(p, 3, "step");
	processes_expect(p, 3, 0);
	processes_say(p, 3, "check exp_avg");
	processes_expect(p, 3, 0);
	processes_end(p, 3);
}
END_TEST

/* A rank comes back while the others' gradients are valid: its next gradients are valid with
 * theirs, or it restores the valid ones.
 */
START_TEST(a_rank_that_comes_back_counts_windows_of_gradients_as_the_others)
{
	int victim = _i & 2 ? 0 : 2;
	bool restores = _i & 1;
	struct process p[3];
	char rank[16], job[32];
	const char *settings[] = { rank, "WORLD_SIZE=3", "TEST_STAGE=1", job, NULL };

	snprintf(job, sizeof(job), "FRAG_JOB_ID=window-%d-%d", _i, (int)getpid());
	processes_start(p, 3, 1, settings + 3);
	process_kill(&p[victim]);
	say_others(p, 3, victim, "barrier 20000", -EIO);
	snprintf(rank, sizeof(rank), "RANK=%d", victim);
	process_start(&p[victim], settings);
	ck_assert_int_eq(process_ask(&p[victim], "open"), 0);
	ck_assert_int_eq(process_ask(&p[victim], "ready later"), 0);
	for (int i = 0; i < 3; i++)
		until_all_is_there(&p[i]);
	processes_say(p, 3, "barrier 20000");
	processes_expect(p, 3, 0);
	if (restores) {
		ck_assert_int_eq(process_ask(&p[victim], "valid"), 0);
	} else {
		processes_say(p, 3, "gone");
		processes_expect(p, 3, 0);
		processes_say(p, 3, "valid");
		processes_expect(p, 3, 0);
	}
	processes_say(p, 3, "check grad");
	processes_expect(p, 3, 0);
	ck_assert_int_eq(process_ask(&p[1], "set grad"), 0);
	processes_say(p, 3, "step");
	processes_expect(p, 3, 0);
	processes_say(p, 3, "check grad");
	processes_expect(p, 3, 1); /* 1: the bits differ */
	processes_end(p, 3);
}
END_TEST

START_TEST(nobody_waits_for_a_dead_rank_0)
{
	struct process p[3];

	processes_start(p, 3, 1, NULL);
	process_kill(&p[0]);
	processes_say(p + 1, 2, "barrier 20000");
	processes_expect(p + 1, 2, -EIO);
	processes_end(p + 1, 2);
}
END_TEST

/* ---- attaching fails, training does not ---- */

/* Checks that open answers rc, that one line with the words is logged, and that the process
 * goes on.
 */
static void expect_failure(const char *const *settings, long rc, const char *words)
{
	struct process p;
	char text[1024];

	process_start(&p, settings);
	ck_assert_int_eq(process_ask(&p, "open"), rc);
	ck_assert_int_eq(process_ask(&p, "step"), -1);
	ck_assert_int_eq(process_ask(&p, "rank"), -EINVAL);
	ck_assert_int_eq(process_ask(&p, "barrier 1000"), -EINVAL);
	process_errors(&p, text, sizeof(text));
	ck_assert_msg(strstr(text, words) != NULL, "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "not attached"));
	ck_assert_int_eq(process_end(&p), 0);
}

START_TEST(a_bad_environment_is_a_warning)
{
	expect_failure((const char *[]){ "RANK=x", "WORLD_SIZE=2", NULL }, -EINVAL, "RANK");
	expect_failure((const char *[]){ "RANK=2", "WORLD_SIZE=2", NULL }, -EINVAL, "RANK");
	expect_failure((const char *[]){ "RANK=0", NULL }, -EINVAL, "not attached");
	expect_failure((const char *[]){ NULL }, -EINVAL, "not attached");
}
END_TEST

START_TEST(a_taken_port_is_a_warning)
{
	char port[32];
	struct process p;

	find_port(port);
	process_start(&p, (const char *[]){ "RANK=0", "WORLD_SIZE=1", "FRAG_JOB_ID=first", port,
					    NULL });
	ck_assert_int_eq(process_ask(&p, "open"), 0);
	expect_failure(
		(const char *[]){ "RANK=0", "WORLD_SIZE=1", "FRAG_JOB_ID=second", port, NULL },
		-EADDRINUSE, "in use");
	process_end(&p);
}
END_TEST

static void make_key(char setting[512], const char *name, mode_t mode, char fill)
{
	const char *folder = getenv("TMPDIR");
	char key[65];
	FILE *file;

	snprintf(setting, 512, "FRAG_KEY_FILE=%.400s/%s", folder ? folder : "/tmp", name);
	file = fopen(strchr(setting, '=') + 1, "we");
	ck_assert_ptr_nonnull(file);
	memset(key, fill, 64);
	key[64] = '\0';
	fprintf(file, "%s\n", key);
	ck_assert_int_eq(fchmod(fileno(file), mode), 0);
	fclose(file);
}

START_TEST(a_key_file_that_others_can_read_is_a_warning)
{
	char key[512];

	make_key(key, "open.key", 0644, 'a');
	expect_failure(
		(const char *[]){ "RANK=0", "WORLD_SIZE=1", "FRAG_JOB_ID=open", key, NULL },
		-EACCES, "open.key");
}
END_TEST

START_TEST(another_rank_with_such_a_key_file_says_so_once)
{
	char key[512], text[1024];
	struct process p;

	make_key(key, "open.key", 0644, 'a');
	process_start(&p, (const char *[]){ "RANK=1", "WORLD_SIZE=2", "FRAG_JOB_ID=open",
					    "MASTER_ADDR=127.0.0.1", key, NULL });
	ck_assert_int_eq(process_ask(&p, "open"), 0);
	ck_assert_int_eq(process_ask(&p, "ready"), 0);
	ck_assert_int_eq(process_ask(&p, "barrier 20000"), -EACCES);
	ck_assert_int_eq(process_errors(&p, text, sizeof(text)), 1);
	ck_assert_ptr_nonnull(strstr(text, "open.key"));
	process_end(&p);
}
END_TEST

/* Rank 1 is not let into the job: it and rank 0 give up when their barrier ends, and go on. */
static void expect_apart(const char *zero, const char *one)
{
	struct process p[2];
	char port[32];
	const char *settings[] = { "RANK=0",
				   "WORLD_SIZE=2",
				   "FRAG_JOB_ID=apart",
				   "MASTER_ADDR=127.0.0.1",
				   port,
				   zero,
				   NULL };
	char text[1024];

	find_port(port);
	process_start(&p[0], settings);
	ck_assert_int_eq(process_ask(&p[0], "open"), 0);
	settings[0] = "RANK=1";
	settings[5] = one;
	process_start(&p[1], settings);
	ck_assert_int_eq(process_ask(&p[1], "open"), 0);
	processes_say(p, 2, "ready");
	processes_expect(p, 2, 0);
	process_until_says(&p[1], "looking for it at");
	process_until_says(&p[1], "does not accept");
	processes_say(p, 2, "barrier 500");
	for (int i = 0; i < 2; i++)
		ck_assert_int_lt(process_answer(&p[i]), 0);
	/* both lines, and one that rank 1 waited in vain */
	ck_assert_int_eq(process_errors(&p[1], text, sizeof(text)), 3);
	ck_assert_msg(strstr(text, "frag_barrier: ") != NULL, "%s", text);
	processes_say(p, 2, "step");
	processes_expect(p, 2, 0);
	processes_end(p, 2);
}

START_TEST(ranks_of_different_keys_do_not_meet)
{
	char a[512], b[512];

	make_key(a, "a.key", 0600, 'a');
	make_key(b, "b.key", 0600, 'b');
	expect_apart(a, b);
	expect_apart(a, "FRAG_PLAIN=1");
	expect_apart("FRAG_PLAIN=1", b);
}
END_TEST

/* ---- launchers ---- */

static void expect_job(const char *const *zero, const char *const *one)
{
	struct process p[2];

	process_start(&p[0], zero);
	process_start(&p[1], one);
	processes_say(p, 2, "open");
	processes_say(p, 2, "ready");
	processes_say(p, 2, "barrier 30000");
	processes_say(p, 2, "check");
	for (int i = 0; i < 4; i++)
		processes_expect(p, 2, 0);
	ck_assert_int_eq(process_ask(&p[0], "rank"), 0);
	ck_assert_int_eq(process_ask(&p[1], "rank"), 1);
	processes_end(p, 2);
}

START_TEST(torchrun_mpirun_and_srun_are_understood)
{
	expect_job((const char *[]){ "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0",
				     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
				     "TORCHELASTIC_RUN_ID=none", NULL },
		   (const char *[]){ "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1",
				     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
				     "TORCHELASTIC_RUN_ID=none", NULL });
	expect_job((const char *[]){ "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2",
				     "PMIX_NAMESPACE=prterun-host-1234@1", NULL },
		   (const char *[]){ "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
				     "PMIX_NAMESPACE=prterun-host-1234@1", NULL });
	expect_job((const char *[]){ "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=77",
				     "SLURM_STEP_ID=0", "SLURM_LAUNCH_NODE_IPADDR=127.0.0.1",
				     NULL },
		   (const char *[]){ "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=77",
				     "SLURM_STEP_ID=0", "SLURM_LAUNCH_NODE_IPADDR=127.0.0.1",
				     NULL });
}
END_TEST

static TCase *reading(void)
{
	TCase *t = tcase_create("reading");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, every_rank_reads_all_states_as_their_owners_have_them, 0,
			    4 * WORLDS);
	tcase_add_loop_test(t, the_same_by_messages, 0, 4);
	tcase_add_test(t, the_same_without_a_key);
	return t;
}

static TCase *training(void)
{
	TCase *t = tcase_create("training");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, gradients_are_read_while_their_memory_is_replaced, 0, 2);
	tcase_add_test(t, a_forked_childs_calls_are_refused_and_hold_nothing);
	tcase_add_test(t, a_port_is_free_again_though_a_child_lives);
	tcase_add_loop_test(t, a_freed_buffer_is_an_error_at_the_reader_and_nothing_crashes, 0,
			    2);
	tcase_add_test(t, a_dropped_state_is_not_there_any_more);
	tcase_add_test(t, gradients_are_there_while_they_are_valid);
	tcase_add_test(t, the_trainers_own_handler_runs_in_the_trainers_thread);
	return t;
}

static TCase *dying(void)
{
	TCase *t = tcase_create("dying");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_killed_rank_is_eio_not_silent_and_the_others_go_on);
	tcase_add_test(t, by_messages_a_killed_rank_is_eio_too);
	tcase_add_loop_test(t, who_leaves_is_not_said_to_be_lost, 0, 4);
	tcase_add_loop_test(t, a_rank_that_comes_back_is_taken_back, 0, 4);
	tcase_add_loop_test(t, a_rank_that_comes_back_counts_windows_of_gradients_as_the_others,
			    0, 4);
	tcase_add_test(t, nobody_waits_for_a_dead_rank_0);
	return t;
}

/* Other programs have the first ports of the range. */
static const struct others {
	unsigned ports;
	bool listen; /* listens without an answer; else connections are refused */
} others[] = { { 3, true }, { 20, false } };

START_TEST(others_ports_before_rank_0s_cost_little)
{
	const struct others *o = &others[_i];
	const char *settings[] = { "RANK=0",
				   "WORLD_SIZE=2",
				   "FRAG_JOB_ID=behind",
				   "MASTER_ADDR=127.0.0.1",
				   "FRAG_PLAIN=1",
				   NULL,
				   NULL };
	struct process p[2];
	uint64_t before;
	int held[20];

	for (unsigned i = 0; i < o->ports; i++) {
		struct sockaddr_in name = { .sin_family = AF_INET,
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					    .sin_port = htons((uint16_t)(21017 + i)) };

		held[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (!bind(held[i], (struct sockaddr *)&name, sizeof(name)) && o->listen)
			listen(held[i], 8);
	}
	process_start(&p[0], settings);
	settings[0] = "RANK=1";
	settings[5] = "XDG_RUNTIME_DIR=/nowhere"; /* as on another host */
	process_start(&p[1], settings);
	before = monotonic_ms();
	processes_say(p, 2, "open");
	processes_say(p, 2, "ready");
	processes_say(p, 2, "barrier 60000");
	for (int i = 0; i < 3; i++)
		processes_expect(p, 2, 0);
	ck_assert_uint_lt(monotonic_ms() - before,
			  25000); /* less than a timeout for each silent port */
	processes_end(p, 2);
	for (unsigned i = 0; i < o->ports; i++)
		close(held[i]);
}
END_TEST

static TCase *attaching(void)
{
	TCase *t = tcase_create("attaching");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_bad_environment_is_a_warning);
	tcase_add_test(t, a_taken_port_is_a_warning);
	tcase_add_test(t, a_key_file_that_others_can_read_is_a_warning);
	tcase_add_test(t, another_rank_with_such_a_key_file_says_so_once);
	tcase_add_test(t, ranks_of_different_keys_do_not_meet);
	tcase_add_loop_test(t, others_ports_before_rank_0s_cost_little, 0, ARRAY_SIZE(others));
	tcase_add_test(t, torchrun_mpirun_and_srun_are_understood);
	return t;
}

int main(void)
{
	Suite *s = suite_create("processes");

	signal(SIGPIPE, SIG_IGN);
	suite_add_tcase(s, reading());
	suite_add_tcase(s, training());
	suite_add_tcase(s, dying());
	return run_suite(s, attaching());
}

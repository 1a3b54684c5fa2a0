/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* frag_open and engine_open. */

#include "engine/api/api.h"
#include "engine/base/log.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/keyfile.h"
#include "tests/run-suite.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { TIMEOUT_MS = 300 };

static char why[400];

static void be_rank_0_of(const char *world, const char *job)
{
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", world, 1);
	setenv("FRAG_JOB_ID", job, 1);
	setenv("FRAG_PLAIN", "1", 1);
}

static int look_at(const char *source, const char *key_file)
{
	struct engine_options o = { .source = source,
				    .timeout_ms = TIMEOUT_MS,
				    .plain = !key_file,
				    .key_file = key_file };
	struct engine *e;
	int rc = engine_open(&e, &o, why, sizeof(why));

	if (!rc)
		engine_close(e);
	return rc;
}

/* Retries, because the other process may not be scheduled for as long as a call waits. */
static int look_until_answered(const char *source, const char *key_file)
{
	uint64_t end = monotonic_ms() + 60000;
	int rc;

	do
		rc = look_at(source, key_file);
	while (rc == -ETIMEDOUT && monotonic_ms() < end);
	return rc;
}

START_TEST(a_process_is_one_rank)
{
	struct frag *f, *more;

	be_rank_0_of("1", "one");
	ck_assert_int_eq(frag_open(&f, NULL), 0);
	ck_assert_int_eq(frag_open(&more, NULL), -EBUSY);
	ck_assert_ptr_null(more);
	frag_close(f);
	ck_assert_int_eq(frag_open(&f, NULL), 0);
	frag_close(f);
}
END_TEST

START_TEST(a_rank_waits_for_the_others_no_longer_than_it_is_told)
{
	struct frag *f;

	be_rank_0_of("2", "waits");
	ck_assert_int_eq(frag_open(&f, NULL), 0);
	ck_assert_int_eq(frag_ready(f), 0);
	ck_assert_int_eq(frag_wait_ready(f, 10), -ETIMEDOUT);
	frag_close(f);
	be_rank_0_of("1", "waits");
	ck_assert_int_eq(frag_open(&f, NULL), 0);
	ck_assert_int_eq(frag_ready(f), 0);
	ck_assert_int_eq(frag_wait_ready(f, 60000), 0);
	frag_close(f);
}
END_TEST

/* Starts a process that is the job's rank 0 until it is told to end. */
static pid_t start_job(int end[2])
{
	pid_t pid;
	int up[2];
	struct frag *f;
	char c;

	ck_assert(!pipe(up) && !pipe(end));
	pid = fork();
	if (!pid) {
		close(end[1]);
		c = frag_open(&f, NULL) ? 'n' : 'y';
		if (write(up[1], &c, 1) == 1 && read(end[0], &c, 1) == 0)
			frag_close(f);
		_exit(0);
	}
	close(end[0]);
	ck_assert_int_eq(read(up[0], &c, 1), 1);
	ck_assert_int_eq(c, 'y');
	close(up[0]);
	close(up[1]);
	return pid;
}

static void end_job(pid_t pid, int end[2])
{
	close(end[1]);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(two_jobs_of_one_name_are_refused)
{
	struct frag *f;
	int end[2];
	pid_t pid;

	be_rank_0_of("1", "twice");
	pid = start_job(end);
	ck_assert_int_eq(frag_open(&f, NULL), -EEXIST);
	end_job(pid, end);
	ck_assert_int_eq(frag_open(&f, NULL), 0);
	frag_close(f);
}
END_TEST

START_TEST(a_job_that_cannot_leave_its_address_is_not_published)
{
	struct jobfile found;
	struct frag *f;

	be_rank_0_of("1", "nowhere");
	setenv("FRAG_RDZV", "file:/nowhere/rendezvous", 1);
	ck_assert_int_eq(frag_open(&f, NULL), -ENOENT);
	ck_assert_int_eq(jobfile_find("nowhere", &found), -ENOENT);
}
END_TEST

START_TEST(a_job_that_is_not_complete_is_eagain)
{
	struct jobfile job;
	int end[2];
	pid_t pid;

	be_rank_0_of("2", "half");
	pid = start_job(end);
	ck_assert_int_eq(jobfile_find("half", &job), 0);
	ck_assert_int_eq(look_until_answered(job.address, NULL), -EAGAIN);
	ck_assert_str_eq(why, "job half: 0 of 2 ranks have joined; not yet: 0 1");
	end_job(pid, end);
}
END_TEST

START_TEST(who_listens_and_says_nothing_is_etimedout)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CLEANUP(close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t size = sizeof(name);
	char source[64];

	ck_assert(!bind(fd, (struct sockaddr *)&name, sizeof(name)) && !listen(fd, 8) &&
		  !getsockname(fd, (struct sockaddr *)&name, &size));
	snprintf(source, sizeof(source), "127.0.0.1:%d", ntohs(name.sin_port));
	ck_assert_int_eq(look_at(source, NULL), -ETIMEDOUT);
}
END_TEST

START_TEST(another_key_is_eacces)
{
	uint8_t key[KEYFILE_BYTES];
	char path[400], used[500];
	struct jobfile job;
	int end[2];
	pid_t pid;

	be_rank_0_of("1", "locked");
	unsetenv("FRAG_PLAIN");
	snprintf(path, sizeof(path), "%s/another.key", getenv("XDG_RUNTIME_DIR"));
	ck_assert_int_eq(keyfile_create("", path, used, sizeof(used), key), 0);
	pid = start_job(end);
	ck_assert_int_eq(jobfile_find("locked", &job), 0);
	ck_assert_int_eq(look_until_answered(job.address, path), -EACCES);
	end_job(pid, end);
}
END_TEST

START_TEST(a_folder_of_something_else_is_einval)
{
	struct engine_options o = { .source = getenv("XDG_RUNTIME_DIR"), .writable = true };
	struct engine *e;

	ck_assert_int_eq(engine_open(&e, &o, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "no checkpoint that is known"));
}
END_TEST

static bool was_said(const char *what)
{
	static char text[65536];

	log_tail(text, sizeof(text));
	return strstr(text, what);
}

START_TEST(a_wrong_setting_is_said_at_the_door)
{
	struct frag *f;

	be_rank_0_of("1", "wrong");
	setenv("FRAG_GATHER_MEM", "much", 1);
	ck_assert_int_eq(frag_open(&f, NULL), 0);
	ck_assert(was_said("FRAG_GATHER_MEM=much is no number of bytes"));
	frag_close(f);
	setenv("FRAG_PTRACER", "foo", 1);
	ck_assert_int_eq(frag_open(&f, NULL), -EINVAL);
	ck_assert(was_said("not attached: FRAG_PTRACER=foo is not any"));
}
END_TEST

static const struct {
	const char *file, *dir, *said;
} swaps[] = {
	{ "{\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/nowhere/x\"}}", "",
	  "no states on NVMe (FRAG_SWAP_CONFIG: offload_optimizer.nvme_path): the folder "
	  "/nowhere/x: No" },
	{ "{\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/nowhere/x\"}}", "",
	  "no states on NVMe (FRAG_SWAP_CONFIG: offload_param.nvme_path): the folder "
	  "/nowhere/x: "
	  "No" },
	{ "{\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/there\"}}",
	  "/nowhere/x", "no states on NVMe (FRAG_SWAP_DIR): the folder /nowhere/x: No" },
};

START_TEST(what_names_a_folder_for_states_that_is_not_there_is_named)
{
	char path[400];
	struct frag *f;
	FILE *file;

	be_rank_0_of("1", "swapped");
	snprintf(path, sizeof(path), "%s/swap.json", getenv("TMPDIR"));
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(swaps[_i].file, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	setenv("FRAG_SWAP_CONFIG", path, 1);
	setenv("FRAG_SWAP_DIR", swaps[_i].dir, 1);
	setenv("FRAG_PINNED_MEM", "64K", 1);
	ck_assert_int_eq(frag_open(&f, NULL), -ENOENT);
	ck_assert_msg(was_said(swaps[_i].said), "%s", swaps[_i].said);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("open");
	TCase *t = tcase_create("open");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_rank_waits_for_the_others_no_longer_than_it_is_told);
	tcase_add_test(t, a_process_is_one_rank);
	tcase_add_test(t, two_jobs_of_one_name_are_refused);
	tcase_add_test(t, a_job_that_cannot_leave_its_address_is_not_published);
	tcase_add_test(t, a_job_that_is_not_complete_is_eagain);
	tcase_add_test(t, who_listens_and_says_nothing_is_etimedout);
	tcase_add_test(t, another_key_is_eacces);
	tcase_add_test(t, a_folder_of_something_else_is_einval);
	tcase_add_test(t, a_wrong_setting_is_said_at_the_door);
	tcase_add_loop_test(t, what_names_a_folder_for_states_that_is_not_there_is_named, 0,
			    ARRAY_SIZE(swaps));
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/machine.h"
#include "engine/launch/jobfile.h"
#include "engine/launch/keyfile.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char scratch[PATH_MAX / 4];
static char folder[PATH_MAX / 2];

static void make_scratch(void)
{
	const char *base = getenv("TMPDIR");

	snprintf(scratch, sizeof(scratch), "%s/test-jobfile.XXXXXX", base ? base : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(scratch));
	snprintf(folder, sizeof(folder), "%s/fragfs", scratch);
	setenv("XDG_RUNTIME_DIR", scratch, 1);
}

static void remove_scratch(void)
{
	pid_t pid = fork();

	if (!pid) {
		execlp("rm", "rm", "-rf", scratch, NULL);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

static struct jobfile job_of(const char *name, pid_t pid)
{
	struct jobfile j = { .address = "127.0.0.1:21017", .world = 4, .pid = pid };

	snprintf(j.job, sizeof(j.job), "%s", name);
	ck_assert_int_eq(machine_start_time(pid, &j.start_time), 0);
	return j;
}

static const char *path_of(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void put_text(const char *path, const char *text, size_t size, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, size), (ssize_t)size);
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static pid_t start_child(void)
{
	pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	ck_assert_int_gt(pid, 0);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(what_is_published_is_found)
{
	struct jobfile j = job_of("job 1", getpid()), found;
	struct stat st;

	snprintf(j.key_file, sizeof(j.key_file), "/a path/with = signs");
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(jobfile_find("job 1", &found), 0);
	ck_assert_str_eq(found.job, j.job);
	ck_assert_str_eq(found.address, j.address);
	ck_assert_str_eq(found.key_file, j.key_file);
	ck_assert_uint_eq(found.world, 4);
	ck_assert_int_eq(found.pid, getpid());
	ck_assert_uint_eq(found.start_time, j.start_time);
	ck_assert_int_eq(jobfile_find_port(21017, &found), 0);
	ck_assert_int_eq(jobfile_find_port(21018, &found), -ENOENT);
	ck_assert_int_eq(jobfile_find("job", &found), -ENOENT);
	ck_assert_int_eq(stat(folder, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	jobfile_remove("job 1");
	ck_assert_int_eq(jobfile_find("job 1", &found), -ENOENT);
}
END_TEST

static pid_t start_later_child(void)
{
	uint64_t ours, start_time;
	pid_t pid = start_child();

	machine_start_time(getpid(), &ours);
	while (!machine_start_time(pid, &start_time) && start_time == ours) {
		end_child(pid);
		pid = start_child();
	}
	return pid;
}

/* A process that is ending is there for a while yet, when another has its port already. */
START_TEST(of_two_jobs_at_one_port_the_later_is_meant)
{
	pid_t later = start_later_child();
	struct jobfile found;

	for (int swap = 0; swap < 2; swap++) {
		struct jobfile a = job_of(swap ? "a" : "b", getpid()),
			       b = job_of(swap ? "b" : "a", later);

		ck_assert_int_eq(jobfile_publish(&a, NULL), 0);
		ck_assert_int_eq(jobfile_publish(&b, NULL), 0);
		ck_assert_int_eq(jobfile_find_port(21017, &found), 0);
		ck_assert_str_eq(found.job, b.job);
	}
	jobfile_remove("a");
	jobfile_remove("b");
	end_child(later);
}
END_TEST

START_TEST(publishing_again_replaces)
{
	struct jobfile j = job_of("j", getpid()), found;

	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	snprintf(j.address, sizeof(j.address), "10.0.0.1:9");
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(jobfile_find("j", &found), 0);
	ck_assert_str_eq(found.address, "10.0.0.1:9");
}
END_TEST

START_TEST(a_path_of_ones_own_is_used)
{
	struct jobfile j = job_of("shared", getpid()), found;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/rendezvous", scratch);
	ck_assert_int_eq(jobfile_publish(&j, path), 0);
	ck_assert_int_eq(jobfile_read(path, &found), 0);
	ck_assert_str_eq(found.job, "shared");
	ck_assert_int_eq(jobfile_find("shared", &found), -ENOENT);
}
END_TEST

static void count(void *arg, const struct jobfile *j)
{
	ck_assert_uint_eq(j->world, 4);
	++*(int *)arg;
}

START_TEST(a_dead_job_is_as_good_as_absent)
{
	pid_t child = start_child();
	struct jobfile j = job_of("dead", child), alive = job_of("alive", getpid()), found;
	int seen = 0;

	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(jobfile_publish(&alive, NULL), 0);
	ck_assert_int_eq(jobfile_list(count, &seen), 2);
	end_child(child);
	ck_assert_int_eq(jobfile_find("dead", &found), -ENOENT);
	ck_assert_int_eq(jobfile_list(count, &seen), 1);
	ck_assert_int_eq(seen, 3);
}
END_TEST

static bool is_there(const char *name)
{
	return !access(path_of(name), F_OK);
}

static void make_old(const char *name)
{
	struct timespec times[2] = { { time(NULL) - 100000, 0 }, { time(NULL) - 100000, 0 } };

	ck_assert_int_eq(utimensat(AT_FDCWD, path_of(name), times, 0), 0);
}

START_TEST(what_dead_processes_left_is_swept_and_no_more)
{
	pid_t child = start_child();
	struct jobfile j = job_of("dead", child), again = job_of("again", child),
		       alive = job_of("alive", getpid());
	uint8_t key[KEYFILE_BYTES];
	char path[PATH_MAX], far[] = "job=far\naddress=a:1\nworld=4\npid=1\nstart_time=1\n"
				     "machine=other\n";

	ck_assert_int_eq(keyfile_create("dead", NULL, path, sizeof(path), key), 0);
	ck_assert_int_eq(keyfile_create("alive", NULL, path, sizeof(path), key), 0);
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(jobfile_publish(&again, NULL), 0);
	ck_assert_int_eq(jobfile_publish(&alive, NULL), 0);
	put_text(path_of("far.job"), far, strlen(far), 0600);
	jobfile_sweep();
	ck_assert(is_there("dead.job") && is_there("dead.key"));
	end_child(child);
	/* one that starts anew has its key already, and is not published yet */
	ck_assert_int_eq(keyfile_create("again", NULL, path, sizeof(path), key), 0);
	jobfile_sweep();
	ck_assert(is_there("dead.job") && is_there("dead.key")); /* it may be started again */
	ck_assert_int_eq(jobfile_left("dead", &j), 0);
	ck_assert_int_eq(jobfile_left("alive", &j), -ENOENT);
	make_old("dead.job");
	make_old("far.job");
	make_old("alive.job");
	jobfile_sweep();
	ck_assert(!is_there("dead.job") && !is_there("dead.key"));
	ck_assert(is_there("alive.job") && is_there("alive.key"));
	ck_assert(is_there("again.key") && is_there("far.job"));
}
END_TEST

START_TEST(a_killed_process_whose_parent_has_not_looked_is_dead)
{
	pid_t child = start_child();
	struct jobfile j = job_of("killed", child), found;
	siginfo_t info;

	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(jobfile_find("killed", &found), -ENOENT);
	ck_assert_int_eq(jobfile_left("killed", &found), 0);
	end_child(child);
}
END_TEST

START_TEST(a_pid_used_again_is_another_process)
{
	struct jobfile j = job_of("old", getpid()), found;

	j.start_time--;
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(jobfile_find("old", &found), -ENOENT);
}
END_TEST

START_TEST(a_job_of_another_machine_does_not_live_here)
{
	char text[512];
	struct jobfile j = job_of("far", getpid()), found;
	uint8_t key[KEYFILE_BYTES];
	char path[PATH_MAX];

	ck_assert_int_eq(keyfile_create("far", NULL, path, sizeof(path), key), 0);
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	snprintf(text, sizeof(text),
		 "job=far\naddress=a:1\nworld=4\npid=%d\nstart_time=%llu\nmachine=other\n",
		 (int)getpid(), (unsigned long long)j.start_time);
	put_text(path_of("far.job"), text, strlen(text), 0600);
	ck_assert_int_eq(jobfile_read(path_of("far.job"), &found), 0);
	ck_assert(!found.is_of_here);
	ck_assert_int_eq(jobfile_find("far", &found), -ENOENT);
	jobfile_remove("far"); /* it may live there */
	ck_assert(is_there("far.job") && is_there("far.key"));
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	jobfile_remove("far");
	ck_assert(!is_there("far.job") && !is_there("far.key"));
}
END_TEST

START_TEST(anothers_files_are_left)
{
	pid_t child = start_child();
	struct jobfile j = job_of("theirs", child), found;

	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	jobfile_remove("theirs");
	ck_assert_int_eq(jobfile_find("theirs", &found), 0);
	end_child(child);
	jobfile_remove("theirs");
	ck_assert_int_eq(access(path_of("theirs.job"), F_OK), -1);
}
END_TEST

START_TEST(a_file_that_others_may_write_is_not_trusted)
{
	struct jobfile j = job_of("open", getpid()), found;

	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(chmod(path_of("open.job"), 0620), 0);
	ck_assert_int_eq(jobfile_read(path_of("open.job"), &found), -EACCES);
	ck_assert_int_eq(jobfile_find("open", &found), -EACCES);
	ck_assert_int_eq(chmod(path_of("open.job"), 0600), 0);
	ck_assert_int_eq(chmod(folder, 0777), 0);
	ck_assert_int_eq(jobfile_find("open", &found), -EACCES);
}
END_TEST

START_TEST(a_file_of_another_user_is_not_trusted)
{
	struct jobfile j = job_of("theirs", getpid()), found;
	uint8_t key[KEYFILE_BYTES];
	char why[256], path[PATH_MAX];

	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(keyfile_create("theirs", NULL, path, sizeof(path), key), 0);
	ck_assert_int_eq(chown(path, 65534, 65534), 0);
	ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)), -EACCES);
	ck_assert_int_eq(chown(path_of("theirs.job"), 65534, 65534), 0);
	ck_assert_int_eq(jobfile_find("theirs", &found), -EACCES);
	ck_assert_int_eq(chown(folder, 65534, 65534), 0);
	ck_assert_int_eq(jobfile_find("theirs", &found), -EACCES);
}
END_TEST

START_TEST(what_is_no_job_file_is_refused)
{
	static const char *const bad[] = {
		"",
		"job=x\n",
		"nonsense",
		"job=x\naddress=a:1\nworld=4\npid=x\nstart_time=1\n",
		"job=x\naddress=a:1\nworld=-4\npid=1\nstart_time=1\n",
		"job=x\naddress=a:1\nworld=4\npid=99999999999\nstart_time=1\n",
		"job=\naddress=a:1\nworld=4\npid=1\nstart_time=1\n",
	};
	static char large[10000];
	char path[PATH_MAX];
	struct jobfile found;

	snprintf(path, sizeof(path), "%s/bad", scratch);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		put_text(path, bad[i], strlen(bad[i]), 0600);
		ck_assert_msg(jobfile_read(path, &found) == -EINVAL, "%s", bad[i]);
	}
	memset(large, '\n', sizeof(large));
	put_text(path, large, sizeof(large), 0600);
	ck_assert_int_eq(jobfile_read(path, &found), -EINVAL);
	memset(large, 'a', 300);
	memcpy(large, "job=", 4);
	put_text(path, large, 301, 0600);
	ck_assert_int_eq(jobfile_read(path, &found), -EINVAL);
	put_text(path, "job=x\0address=a:1\n", 19, 0600);
	ck_assert_int_eq(jobfile_read(path, &found), -EINVAL);
	ck_assert_int_eq(jobfile_read(scratch, &found), -EISDIR);
	ck_assert_int_eq(jobfile_read("/dev/null", &found), -EINVAL);
	put_text(path, "job=x\naddress=a:1\nworld=4\npid=1\nstart_time=1\nlater=y\n", 53, 0600);
	ck_assert_int_eq(jobfile_read(path, &found), 0);
}
END_TEST

START_TEST(a_name_that_leaves_the_folder_is_refused)
{
	struct jobfile j = job_of("../x", getpid()), found;

	ck_assert_int_eq(jobfile_publish(&j, NULL), -EINVAL);
	ck_assert_int_eq(jobfile_find("../x", &found), -EINVAL);
	snprintf(j.job, sizeof(j.job), "a\nworld=9");
	ck_assert_int_eq(jobfile_publish(&j, NULL), -EINVAL);
}
END_TEST

START_TEST(home_serves_where_there_is_no_runtime_directory)
{
	struct jobfile j = job_of("home", getpid()), found;
	char path[PATH_MAX];

	unsetenv("XDG_RUNTIME_DIR");
	setenv("HOME", scratch, 1);
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(jobfile_find("home", &found), 0);
	snprintf(path, sizeof(path), "%s/.cache/fragfs/home.job", scratch);
	ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(a_home_that_is_none_is_no_place)
{
	struct jobfile found;
	char home[1300];
	size_t at = (size_t)snprintf(home, sizeof(home), "%s", scratch);

	unsetenv("XDG_RUNTIME_DIR");
	while (at < 1100) {
		at += (size_t)snprintf(home + at, sizeof(home) - at, "/%0100d", 0);
		ck_assert_int_eq(mkdir(home, 0700), 0);
	}
	setenv("HOME", home, 1);
	ck_assert_int_eq(jobfile_find("far", &found), -ENAMETOOLONG);
	if (geteuid())
		return; /* only root may be somebody else */
	setenv("HOME", "/", 1);
	for (uid_t uid = 65534; uid < 65536; uid++) { /* nobody, without a home; not a user */
		ck_assert_int_eq(seteuid(uid), 0);
		ck_assert_int_eq(jobfile_find("none", &found), -ENOENT);
		ck_assert_int_eq(seteuid(0), 0);
	}
}
END_TEST

START_TEST(a_record_under_anothers_name_is_not_that_job)
{
	struct jobfile j = job_of("one", getpid()), found;
	char from[PATH_MAX];

	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	snprintf(from, sizeof(from), "%s", path_of("one.job"));
	ck_assert_int_eq(rename(from, path_of("other.job")), 0);
	ck_assert_int_eq(jobfile_find("other", &found), -ENOENT);
}
END_TEST

START_TEST(paths_that_are_too_long_are_refused)
{
	struct jobfile j = job_of("long", getpid());
	static char path[PATH_MAX];
	uint8_t key[KEYFILE_BYTES];
	char used[8];

	memset(path, 'a', sizeof(path) - 1);
	ck_assert_int_eq(jobfile_publish(&j, path), -ENAMETOOLONG);
	ck_assert_int_eq(keyfile_create("long", NULL, used, sizeof(used), key), -ENAMETOOLONG);
}
END_TEST

START_TEST(a_key_that_was_made_is_loaded)
{
	uint8_t key[KEYFILE_BYTES], loaded[KEYFILE_BYTES], other[KEYFILE_BYTES];
	char path[PATH_MAX], why[256];
	struct stat st;

	ck_assert_int_eq(keyfile_create("j", NULL, path, sizeof(path), key), 0);
	ck_assert_str_eq(path, path_of("j.key"));
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(keyfile_load(path, loaded, NULL, why, sizeof(why)), 0);
	ck_assert_mem_eq(key, loaded, sizeof(key));
	ck_assert_int_eq(keyfile_create("k", NULL, path, sizeof(path), other), 0);
	ck_assert_mem_ne(key, other, sizeof(key));
}
END_TEST

START_TEST(no_umask_shuts_us_out_or_lets_others_in)
{
	static const mode_t masks[] = { 0, 022, 0777 };
	uint8_t key[KEYFILE_BYTES];
	char path[PATH_MAX], name[32];
	struct jobfile found;
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
		mode_t before = umask(masks[i]);
		struct jobfile j = job_of("j", getpid());

		snprintf(name, sizeof(name), "j%zu", i);
		strcpy(j.job, name);
		snprintf(path, sizeof(path), "%s/%zu", scratch, i);
		mkdir(path, 0700);
		chmod(path, 0700);
		setenv("XDG_RUNTIME_DIR", path, 1);
		ck_assert_int_eq(keyfile_create(name, NULL, path, sizeof(path), key), 0);
		ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
		umask(before);
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0600);
		ck_assert_int_eq(jobfile_find(name, &found), 0);
		*strrchr(path, '/') = '\0';
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0700);
	}
}
END_TEST

START_TEST(a_symbolic_link_in_the_place_of_a_key_is_not_followed)
{
	uint8_t key[KEYFILE_BYTES];
	char path[PATH_MAX], target[PATH_MAX];
	struct stat st;

	ck_assert_int_eq(keyfile_create("other", NULL, path, sizeof(path), key), 0);
	snprintf(target, sizeof(target), "%s/target", scratch);
	ck_assert_int_eq(symlink(target, path_of("j.key")), 0);
	ck_assert_int_eq(keyfile_create("j", NULL, path, sizeof(path), key), 0);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert(S_ISREG(st.st_mode));
	ck_assert_int_eq(access(target, F_OK), -1);
	ck_assert_int_eq(symlink(target, path_of("own")), 0);
	ck_assert_int_eq(keyfile_create("j", path_of("own"), path, sizeof(path), key), -EEXIST);
	ck_assert_int_eq(access(target, F_OK), -1);
}
END_TEST

START_TEST(a_symbolic_link_in_the_place_of_the_folder_is_refused)
{
	uint8_t key[KEYFILE_BYTES];
	char path[PATH_MAX], elsewhere[PATH_MAX];
	struct jobfile found;

	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", scratch);
	ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
	ck_assert_int_eq(symlink(elsewhere, folder), 0);
	ck_assert_int_eq(keyfile_create("j", NULL, path, sizeof(path), key), -EACCES);
	ck_assert_int_eq(jobfile_find("j", &found), -EACCES);
	strcat(elsewhere, "/j.key");
	ck_assert_int_eq(access(elsewhere, F_OK), -1);
}
END_TEST

START_TEST(a_key_of_a_dead_job_is_replaced_and_of_a_living_one_not)
{
	uint8_t first[KEYFILE_BYTES], second[KEYFILE_BYTES];
	struct jobfile j = job_of("j", getpid());
	char path[PATH_MAX];

	ck_assert_int_eq(keyfile_create("j", NULL, path, sizeof(path), first), 0);
	ck_assert_int_eq(keyfile_create("j", NULL, path, sizeof(path), second), 0);
	ck_assert_mem_ne(first, second, sizeof(first));
	ck_assert_int_eq(jobfile_publish(&j, NULL), 0);
	ck_assert_int_eq(keyfile_create("j", NULL, path, sizeof(path), first), -EEXIST);
	ck_assert_int_eq(keyfile_create("j", path_of("j.key"), path, sizeof(path), first),
			 -EEXIST);
}
END_TEST

START_TEST(keys_are_raw_or_hexadecimal)
{
	uint8_t key[KEYFILE_BYTES];
	char path[PATH_MAX], why[256], hex[67];

	snprintf(path, sizeof(path), "%s/key", scratch);
	put_text(path, "01234567890123456789012345678901", 32, 0400);
	ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)), 0);
	ck_assert_mem_eq(key, "01234567890123456789012345678901", 32);
	memset(hex, 'A', 64);
	memcpy(hex + 62, "0f\nx", 4);
	chmod(path, 0600);
	put_text(path, hex, 64, 0600);
	ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)), 0);
	ck_assert_uint_eq(key[0], 0xaa);
	ck_assert_uint_eq(key[31], 0x0f);
	put_text(path, hex, 65, 0600);
	ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)), 0);
	for (size_t size = 0; size < 67; size++) {
		put_text(path, hex, size, 0600);
		if (size != 32 && size != 64 && size != 65)
			ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)),
					 -EINVAL);
	}
	ck_assert_ptr_nonnull(strstr(why, path));
	hex[5] = 'g';
	put_text(path, hex, 64, 0600);
	ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(keyfile_load(scratch, key, NULL, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, ": it is a folder"));
}
END_TEST

START_TEST(a_key_for_readers_is_told_from_the_jobs)
{
	uint8_t key[KEYFILE_BYTES], loaded[KEYFILE_BYTES];
	char path[PATH_MAX], why[256], text[80];
	bool readers = false;

	snprintf(path, sizeof(path), "%s/key", scratch);
	snprintf(text, sizeof(text), "readers %064x\n", 0xabc);
	put_text(path, text, strlen(text), 0600);
	ck_assert_int_eq(keyfile_load(path, loaded, &readers, why, sizeof(why)), 0);
	ck_assert(readers);
	ck_assert_uint_eq(loaded[31], 0xbc);
	ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)), -EACCES);
	ck_assert_ptr_nonnull(strstr(why, "for readers only"));
	put_text(path, text, strlen(text) - 2, 0600);
	ck_assert_int_eq(keyfile_load(path, loaded, &readers, why, sizeof(why)), -EINVAL);
	put_text(path, text + 8, strlen(text + 8), 0600);
	ck_assert_int_eq(keyfile_load(path, loaded, &readers, why, sizeof(why)), 0);
	ck_assert(!readers);
}
END_TEST

START_TEST(a_key_that_others_may_read_is_refused)
{
	uint8_t key[KEYFILE_BYTES];
	char path[PATH_MAX], why[256];

	ck_assert_int_eq(keyfile_create("j", NULL, path, sizeof(path), key), 0);
	ck_assert_int_eq(chmod(path, 0640), 0);
	ck_assert_int_eq(keyfile_load(path, key, NULL, why, sizeof(why)), -EACCES);
	ck_assert_ptr_nonnull(strstr(why, path));
	ck_assert_int_eq(keyfile_load("/nonexistent", key, NULL, why, sizeof(why)), -ENOENT);
}
END_TEST

/* Who cannot look has not seen that it ended. */
START_TEST(a_process_is_not_gone_because_there_are_no_descriptors)
{
	struct rlimit before, none;
	uint64_t start_time;
	int rc;

	ck_assert_int_eq(machine_start_time(-1, &start_time), -ESRCH);
	getrlimit(RLIMIT_NOFILE, &before);
	none = (struct rlimit){ 0, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	rc = machine_start_time(getpid(), &start_time);
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_int_eq(rc, -EMFILE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("jobfile");
	TCase *t = tcase_create("jobfile");

	tcase_add_checked_fixture(t, make_scratch, remove_scratch);
	tcase_add_test(t, what_is_published_is_found);
	tcase_add_test(t, a_process_is_not_gone_because_there_are_no_descriptors);
	tcase_add_test(t, of_two_jobs_at_one_port_the_later_is_meant);
	tcase_add_test(t, publishing_again_replaces);
	tcase_add_test(t, a_path_of_ones_own_is_used);
	tcase_add_test(t, a_dead_job_is_as_good_as_absent);
	tcase_add_test(t, what_dead_processes_left_is_swept_and_no_more);
	tcase_add_test(t, a_killed_process_whose_parent_has_not_looked_is_dead);
	tcase_add_test(t, a_pid_used_again_is_another_process);
	tcase_add_test(t, a_job_of_another_machine_does_not_live_here);
	tcase_add_test(t, anothers_files_are_left);
	tcase_add_test(t, a_file_that_others_may_write_is_not_trusted);
	if (!geteuid())
		tcase_add_test(t, a_file_of_another_user_is_not_trusted);
	else
		puts("skipped: a_file_of_another_user_is_not_trusted: only root can make one");
	tcase_add_test(t, what_is_no_job_file_is_refused);
	tcase_add_test(t, a_name_that_leaves_the_folder_is_refused);
	tcase_add_test(t, home_serves_where_there_is_no_runtime_directory);
	tcase_add_test(t, a_home_that_is_none_is_no_place);
	tcase_add_test(t, a_record_under_anothers_name_is_not_that_job);
	tcase_add_test(t, paths_that_are_too_long_are_refused);
	tcase_add_test(t, a_key_that_was_made_is_loaded);
	tcase_add_test(t, no_umask_shuts_us_out_or_lets_others_in);
	tcase_add_test(t, a_symbolic_link_in_the_place_of_a_key_is_not_followed);
	tcase_add_test(t, a_symbolic_link_in_the_place_of_the_folder_is_refused);
	tcase_add_test(t, a_key_of_a_dead_job_is_replaced_and_of_a_living_one_not);
	tcase_add_test(t, keys_are_raw_or_hexadecimal);
	tcase_add_test(t, a_key_for_readers_is_told_from_the_jobs);
	tcase_add_test(t, a_key_that_others_may_read_is_refused);
	return run_suite(s, t);
}

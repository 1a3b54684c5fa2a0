/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/sandbox.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Each case is a process of its own: Check forks. */

static char root[] = "/tmp/test-sandbox-XXXXXX";
static char inside[64], outside[64], deeper[64];

static void write_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	close(fd);
}

static void make_files(void)
{
	char folder[64];

	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(folder, sizeof(folder), "%s/in", root);
	mkdir(folder, 0700);
	snprintf(inside, sizeof(inside), "%s/in/a", root);
	snprintf(deeper, sizeof(deeper), "%s/in/new", root);
	snprintf(outside, sizeof(outside), "%s/b", root);
	write_file(inside);
	write_file(outside);
}

static void remove_files(void)
{
	char folder[64];

	snprintf(folder, sizeof(folder), "%s/in", root);
	unlink(inside);
	unlink(deeper);
	unlink(outside);
	rmdir(folder);
	rmdir(root);
}

static bool has_landlock(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >
	       0;
}

static void enter(bool writable)
{
	char folder[64];
	const struct sandbox_folder only = { folder, writable };

	snprintf(folder, sizeof(folder), "%s/in", root);
	ck_assert_int_eq(sandbox_enter(&only, 1), 0);
}

/* 0, or the errno. */
static int try_open(const char *path, int flags)
{
	int fd = open(path, flags, 0600), rc = fd < 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	return rc;
}

START_TEST(its_folder_can_be_read_and_nothing_else)
{
	int before = open(outside, O_RDONLY);
	char byte;

	enter(false);
	ck_assert_int_eq(try_open(inside, O_RDONLY), 0);
	ck_assert_int_eq(read(before, &byte, 1), 1);
	if (!has_landlock())
		return;
	ck_assert_int_eq(try_open(outside, O_RDONLY), EACCES);
	ck_assert_int_eq(try_open("/etc/passwd", O_RDONLY), EACCES);
	ck_assert_int_eq(try_open(inside, O_RDWR), EACCES);
	ck_assert_int_eq(try_open(deeper, O_RDWR | O_CREAT), EACCES);
	ck_assert_int_eq(unlink(inside), -1);
	ck_assert_int_eq(errno, EACCES);
}
END_TEST

START_TEST(a_writable_folder_takes_a_journal)
{
	enter(true);
	ck_assert_int_eq(try_open(inside, O_RDWR), 0);
	ck_assert_int_eq(try_open(deeper, O_RDWR | O_CREAT | O_EXCL), 0);
	ck_assert_int_eq(unlink(deeper), 0);
	if (!has_landlock())
		return;
	ck_assert_int_eq(try_open(outside, O_RDWR), EACCES);
	ck_assert_int_eq(mkdir(deeper, 0700), -1);
	ck_assert_int_eq(symlink("/etc", deeper), -1);
}
END_TEST

START_TEST(root_sets_times_of_files_that_it_may_write)
{
	const struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
	bool writable = _i;
	int fd = open(inside, O_RDWR);

	ck_assert(fd >= 0 && !fchown(fd, 65534, 65534));
	enter(writable);
	ck_assert_int_eq(futimens(fd, times), writable ? 0 : -1);
	close(fd);
}
END_TEST

START_TEST(no_program_no_network_no_mount)
{
	char path[] = "/bin/true", *const argv[] = { path, NULL };

	enter(false);
	ck_assert_int_eq(execv(argv[0], argv), -1);
	ck_assert(errno == EPERM || errno == EACCES);
	ck_assert_int_eq(socket(AF_INET, SOCK_STREAM, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(socket(AF_UNIX, SOCK_STREAM, 0), -1);
	ck_assert_int_eq(mount("none", root, "tmpfs", 0, NULL), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(chroot("/"), -1);
	ck_assert_int_eq(errno, EPERM);
}
END_TEST

/* Landlock lets a process do that to files which it may not open. */
START_TEST(no_file_gets_other_permissions_or_another_owner)
{
	int fd = open(inside, O_RDWR);

	enter(true);
	ck_assert_int_eq(chmod(outside, 0777), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fchmodat(AT_FDCWD, outside, 0777, 0), -1);
	ck_assert_int_eq(fchmod(fd, 0777), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(chown(outside, geteuid(), getegid()), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fchown(fd, geteuid(), getegid()), -1);
	ck_assert_int_eq(fchownat(AT_FDCWD, outside, geteuid(), getegid(), 0), -1);
	ck_assert_int_eq(setxattr(outside, "user.x", "", 0, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fsetxattr(fd, "user.x", "", 0, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	close(fd);
}
END_TEST

START_TEST(x32_is_no_way_around)
{
#ifdef __x86_64__
	enter(false);
	ck_assert_int_eq(syscall(0x40000000 | 41, AF_INET, SOCK_STREAM, 0), -1);
	ck_assert_int_eq(errno, EPERM);
#endif
}
END_TEST

START_TEST(what_it_starts_is_in_it_too)
{
	pid_t pid;
	int status;

	enter(false);
	pid = fork();
	if (!pid)
		_exit(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(a_folder_that_is_not_there_is_said)
{
	const struct sandbox_folder missing = { "/nowhere/at/all", false };

	if (has_landlock())
		ck_assert_int_eq(sandbox_enter(&missing, 1), -ENOENT);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sandbox");
	TCase *c = tcase_create("all");

	tcase_add_unchecked_fixture(c, make_files, remove_files);
	tcase_add_test(c, its_folder_can_be_read_and_nothing_else);
	tcase_add_test(c, a_writable_folder_takes_a_journal);
	if (!geteuid())
		tcase_add_loop_test(c, root_sets_times_of_files_that_it_may_write, 0, 2);
	else
		puts("skipped: root_sets_times_of_files_that_it_may_write");
	tcase_add_test(c, no_program_no_network_no_mount);
	tcase_add_test(c, no_file_gets_other_permissions_or_another_owner);
	tcase_add_test(c, x32_is_no_way_around);
	tcase_add_test(c, what_it_starts_is_in_it_too);
	tcase_add_test(c, a_folder_that_is_not_there_is_said);
	return run_suite(suite, c);
}

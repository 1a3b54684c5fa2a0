/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/device-suite.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* What processes have in common.  The other one is this program again, told by TEST_OTHER what to do: a forked child can do
 * nothing with devices.
 */

enum { SIZE = 100003, CHILD_S = 60 };

static int copy(void *to, const void *from)
{
	return run_io((struct device_io){
		.what = DEVICE_COPY, .to = to, .from = from, .size = SIZE });
}

static bool is_all(const uint8_t *bytes, uint8_t value)
{
	return bytes[0] == value && !memcmp(bytes, bytes + 1, SIZE - 1);
}

static void fill(void *memory, uint8_t value)
{
	uint8_t *host = malloc(SIZE);

	memset(host, value, SIZE);
	ck_assert_int_eq(copy(memory, host), 0);
	free(host);
}

static void expect(const void *memory, uint8_t value)
{
	uint8_t *host = malloc(SIZE);

	ck_assert_int_eq(copy(host, memory), 0);
	ck_assert(is_all(host, value));
	free(host);
}

/* ---- the other process ---- */

static struct {
	pid_t pid;
	int to, from;
} other;

static void start_other(const char *what)
{
	int in[2], out[2];

	ck_assert(!pipe(in) && !pipe(out));
	other.pid = fork();
	if (!other.pid) {
		setenv("TEST_OTHER", what, 1);
		dup2(in[0], 0);
		dup2(out[1], 3);
		close(in[1]);
		close(out[0]);
		execl("/proc/self/exe", "other", NULL);
		_exit(1);
	}
	close(in[0]);
	close(out[1]);
	other.to = in[1];
	other.from = out[0];
}

static void tell(int fd, const void *bytes, size_t size)
{
	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
}

static void hear(int fd, void *bytes, size_t size)
{
	ck_assert_int_eq(read(fd, bytes, size), (ssize_t)size);
}

static void expect_other(int status)
{
	int ended;

	ck_assert_int_eq(waitpid(other.pid, &ended, 0), other.pid);
	ck_assert_int_eq(ended, status);
	close(other.to);
	close(other.from);
}

static void kill_other(void)
{
	kill(other.pid, SIGKILL);
	expect_other(SIGKILL);
}

/* Reads 1, writes 2; goes when it is told. */
static void map_in_other(void)
{
	struct device_handle handle;
	void *memory;
	char byte = 0;

	hear(0, &handle, sizeof(handle));
	ck_assert_int_eq(here->ops->map(device, 0, &handle, &memory), 0);
	expect(memory, 1);
	fill(memory, 2);
	tell(3, &byte, 1);
	hear(0, &byte, 1);
	here->ops->unmap(device, 0, memory);
}

/* It has 3 in it; goes when it is told. */
static void share_in_other(void)
{
	struct device_handle handle;
	void *memory;
	char byte;

	ck_assert_int_eq(here->ops->share(device, 0, SIZE, &memory, &handle), 0);
	fill(memory, 3);
	tell(3, &handle, sizeof(handle));
	hear(0, &byte, 1);
	here->ops->unshare(device, memory);
}

START_TEST(do_as_told)
{
	alarm(CHILD_S);
	port_open();
	if (!strcmp(getenv("TEST_OTHER"), "map"))
		map_in_other();
	else
		share_in_other();
	port_close();
}
END_TEST

TCase *device_suite_other(void)
{
	TCase *c = getenv("TEST_OTHER") ? tcase_create("other") : NULL;

	if (!c)
		return NULL;
	tcase_add_test(c, do_as_told);
	return c;
}

/* ---- this one ---- */

/* false: this machine's devices cannot. */
static bool share(void **memory, struct device_handle *handle)
{
	int rc = here->ops->share(device, 0, SIZE, memory, handle);

	ck_assert(!rc || rc == -EOPNOTSUPP);
	return !rc;
}

static bool share_with_other(void **memory)
{
	struct device_handle handle;
	char byte;

	if (!share(memory, &handle))
		return false;
	fill(*memory, 1);
	start_other("map");
	tell(other.to, &handle, sizeof(handle));
	hear(other.from, &byte, 1);
	expect(*memory, 2);
	return true;
}

START_TEST(another_process_reads_and_writes_what_is_shared)
{
	void *memory;
	char byte = 0;

	if (!share_with_other(&memory))
		return;
	tell(other.to, &byte, 1);
	expect_other(0);
	expect(memory, 2);
	here->ops->unshare(device, memory);
}
END_TEST

START_TEST(a_process_that_has_it_mapped_may_be_killed)
{
	void *memory;

	if (!share_with_other(&memory))
		return;
	kill_other();
	expect(memory, 2);
	fill(memory, 4);
	expect(memory, 4);
	here->ops->unshare(device, memory);
}
END_TEST

START_TEST(what_a_process_that_is_killed_had_shared_is_no_trap)
{
	struct device_handle handle;
	uint8_t *host = malloc(SIZE);
	void *memory, *probe;
	int rc;

	if (!share(&probe, &handle))
		return;
	here->ops->unshare(device, probe);
	start_other("share");
	hear(other.from, &handle, sizeof(handle));
	ck_assert_int_eq(here->ops->map(device, 0, &handle, &memory), 0);
	expect(memory, 3);
	kill_other();
	rc = copy(host, memory);
	ck_assert(!rc || rc == -EIO || rc == -EFAULT);
	here->ops->unmap(device, 0, memory);
	ck_assert_int_eq(here->ops->map(device, 0, &handle, &memory), -EIO);
	free(host);
}
END_TEST

START_TEST(a_process_maps_its_own)
{
	int last = here->ndevices() - 1;
	struct device_handle handle;
	void *memory, *mapped[2];

	if (!share(&memory, &handle))
		return;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(here->ops->map(device, i * last, &handle, &mapped[i]), 0);
	fill(mapped[0], 5);
	expect(memory, 5);
	here->ops->unmap(device, 0, mapped[0]);
	fill(memory, 6);
	ck_assert_int_eq(run_io((struct device_io){ .number = last,
						    .to = (uint8_t *)mapped[1] + 1,
						    .from = mapped[1],
						    .size = 1 }),
			 0);
	here->ops->unmap(device, last, mapped[1]);
	expect(memory, 6);
	here->ops->unshare(device, memory);
}
END_TEST

START_TEST(what_cannot_be_shared_or_mapped_is_refused)
{
	struct device_handle handle = { { 0 } };
	void *memory;

	ck_assert_int_eq(here->ops->share(device, 0, 0, &memory, &handle), -EINVAL);
	ck_assert_int_eq(here->ops->share(device, -1, SIZE, &memory, &handle), -EINVAL);
	ck_assert_int_eq(here->ops->map(device, 1000, &handle, &memory), -EINVAL);
	ck_assert_int_eq(here->ops->map(device, 0, &handle, &memory), -EIO);
}
END_TEST

/* What has not been given back by then is no longer known. */
START_TEST(close_ends_what_is_shared)
{
	struct device_handle handle;
	void *memory;

	share(&memory, &handle);
}
END_TEST

void device_suite_add_sharing(TCase *c)
{
	tcase_add_test(c, another_process_reads_and_writes_what_is_shared);
	tcase_add_test(c, a_process_that_has_it_mapped_may_be_killed);
	tcase_add_test(c, what_a_process_that_is_killed_had_shared_is_no_trap);
	tcase_add_test(c, a_process_maps_its_own);
	tcase_add_test(c, what_cannot_be_shared_or_mapped_is_refused);
	tcase_add_test(c, close_ends_what_is_shared);
}

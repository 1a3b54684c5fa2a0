/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/control-page.h"
#include "engine/transport/transport.h"
#include "tests/ports/transport-loop.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* The owner of the memory is a child whose memory has the addresses of ours, and other content;
 * for loop it is this process.
 */
enum { DATA = 4 << 20, HOLE = 1 << 20, PAGE = 4096 };

static const struct transport_ops *const variants[] = { &transport_loop, &transport_host };

static const struct transport_ops *ops;
static struct transport *t;
static struct control_page *control; /* the owner's */
static struct control_page seen;
static uint8_t *data;  /* the owner's */
static uint8_t *local; /* DATA bytes */
static pid_t owner;
static int to_owner[2], from_owner[2];
static int memfd;

static uint8_t byte_at(size_t i)
{
	return (uint8_t)((i * 2654435761u) >> 13);
}

static void *map_pages(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	return p;
}

/* ---- what the owner does when told to ---- */

enum command { FREE_HOLE, FREE_CONTROL, CHANGE_COOKIE, MAP_MEMFD, SEAL, FREE_ALL, EXEC };

static void map_memfd(void)
{
	void *p;

	memfd = memfd_create("data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memfd < 0 || ftruncate(memfd, DATA))
		_exit(3);
	p = mmap(data, DATA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd, 0);
	if (p != data)
		_exit(4);
	for (size_t i = 0; i < DATA; i++)
		data[i] = byte_at(i);
}

static void obey(enum command command)
{
	switch (command) {
	case FREE_HOLE:
		munmap(data + HOLE, PAGE);
		break;
	case FREE_CONTROL:
		munmap(control, PAGE);
		break;
	case CHANGE_COOKIE:
		control->cookie[1]++;
		break;
	case MAP_MEMFD:
		map_memfd();
		break;
	case SEAL:
		if (fcntl(memfd, F_ADD_SEALS,
			  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE))
			_exit(5);
		break;
	case FREE_ALL:
		munmap(data, DATA);
		break;
	case EXEC:
		execlp("sleep", "sleep", "60", NULL);
		_exit(6);
	}
}

static void own(void)
{
	uint8_t command;

	for (size_t i = 0; i < DATA; i++)
		data[i] = byte_at(i);
	control->cookie[0] = 0x1234;
	control->cookie[1] = 0x5678;
	control->step = 42;
	while (owner != getpid() && write(from_owner[1], &memfd, sizeof(memfd)) > 0 &&
	       read(to_owner[0], &command, 1) == 1)
		obey(command);
}

static void hear_owner(void)
{
	struct pollfd poller = { .fd = from_owner[0], .events = POLLIN };

	ck_assert_int_eq(poll(&poller, 1, 20000), 1);
	if (read(from_owner[0], &memfd, sizeof(memfd)) <= 0)
		memfd = -1; /* it has become another program */
}

static void tell_owner(enum command command)
{
	uint8_t byte = (uint8_t)command;

	if (owner == getpid()) {
		obey(command);
		return;
	}
	ck_assert_int_eq(write(to_owner[1], &byte, 1), 1);
	hear_owner();
}

static void start_owner(void)
{
	ck_assert_int_eq(pipe2(to_owner, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(from_owner, O_CLOEXEC), 0);
	owner = fork();
	ck_assert_int_ge(owner, 0);
	if (!owner) {
		close(to_owner[1]);
		own();
		_exit(0);
	}
	close(from_owner[1]);
	hear_owner();
}

static void setup(int variant)
{
	struct transport_config config = { .bind = NULL };

	ops = variants[variant];
	control = map_pages(PAGE);
	data = map_pages(DATA);
	local = map_pages(DATA);
	memset(data, 0xee, DATA);
	if (ops == &transport_loop) {
		owner = getpid();
		own();
	} else {
		start_owner();
	}
	ck_assert_int_eq(ops->open(&t, &config), 0);
}

static void kill_owner(void)
{
	if (owner != getpid())
		ck_assert_int_eq(kill(owner, SIGKILL), 0);
}

static void reap_owner(void)
{
	if (owner != getpid())
		ck_assert_int_eq(waitpid(owner, NULL, 0), owner);
}

static void teardown(void)
{
	ops->close(t);
	kill_owner();
	reap_owner();
}

static struct transport_target target(void)
{
	return (struct transport_target){ .pid = owner,
					  .control = (uintptr_t)control,
					  .cookie = { 0x1234, 0x5678 } };
}

static uint32_t attach(void)
{
	struct transport_target who = target();
	uint32_t peer = UINT32_MAX;

	ck_assert_int_eq(ops->attach(t, &who, &peer), 0);
	return peer;
}

static int get(uint32_t peer, size_t offset, size_t size)
{
	struct iovec here = { local, size }, there = { data + offset, size };

	return ops->get(t, peer, &here, 1, &there, 1, &seen, sizeof(seen));
}

static void expect_data(const uint8_t *p, size_t offset, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (p[i] != byte_at(offset + i))
			ck_abort_msg("byte %zu is %u", offset + i, p[i]);
}

START_TEST(bytes_and_then_the_control_page_are_copied)
{
	uint32_t peer;

	setup(_i);
	peer = attach();
	memset(&seen, 0, sizeof(seen));
	ck_assert_int_eq(get(peer, 12345, 1 << 20), 0);
	expect_data(local, 12345, 1 << 20);
	ck_assert_uint_eq(seen.step, 42);
	ck_assert_uint_eq(seen.cookie[0], 0x1234);
	teardown();
}
END_TEST

START_TEST(the_two_sides_may_be_cut_differently)
{
	struct iovec there[] = {
		{ data, 0 }, { NULL, 10 }, { NULL, 1 }, { NULL, 0 }, { NULL, 5000 }
	};
	struct iovec here[] = { { NULL, 3 }, { NULL, 0 }, { NULL, 5000 }, { NULL, 8 } };

	setup(_i);
	there[1].iov_base = data + 100;
	there[2].iov_base = data + 50;
	there[4].iov_base = data + 9000;
	here[0].iov_base = local;
	here[2].iov_base = local + 100;
	here[3].iov_base = local + 6000;
	ck_assert_int_eq(ops->get(t, attach(), here, ARRAY_SIZE(here), there, ARRAY_SIZE(there),
				  &seen, sizeof(seen)),
			 0);
	expect_data(local, 100, 3);
	expect_data(local + 100, 103, 7);
	expect_data(local + 107, 50, 1);
	expect_data(local + 108, 9000, 4992);
	expect_data(local + 6000, 9000 + 4992, 8);
	teardown();
}
END_TEST

/* n ranges of 3 bytes, 7 apart. */
static struct iovec *ranges(uint8_t *base, size_t n)
{
	struct iovec *v = calloc(n, sizeof(*v));

	ck_assert_ptr_nonnull(v);
	for (size_t i = 0; i < n; i++)
		v[i] = (struct iovec){ base + 7 * i, 3 };
	return v;
}

START_TEST(there_may_be_more_ranges_than_one_call_takes)
{
	const unsigned counts[] = { 1, IOV_MAX - 1, IOV_MAX, IOV_MAX + 1, 10 * IOV_MAX };
	uint32_t peer;

	setup(_i);
	peer = attach();
	for (size_t c = 0; c < ARRAY_SIZE(counts); c++) {
		unsigned n = counts[c];
		struct iovec *here = ranges(local, n), *there = ranges(data, n);
		struct iovec one = { local, 3 * n };

		memset(local, 0, DATA);
		ck_assert_int_eq(ops->get(t, peer, here, n, there, n, &seen, sizeof(seen)), 0);
		for (unsigned i = 0; i < n; i++)
			expect_data(local + 7 * i, 7 * i, 3);
		ck_assert_uint_eq(local[3], 0);
		memset(&seen, 0, sizeof(seen));
		ck_assert_int_eq(ops->get(t, peer, &one, 1, there, n, &seen, sizeof(seen)), 0);
		for (unsigned i = 0; i < n; i++)
			expect_data(local + 3 * i, 7 * i, 3);
		ck_assert_uint_eq(seen.step, 42);
		one.iov_base = data;
		ck_assert_int_eq(ops->get(t, peer, here, n, &one, 1, &seen, sizeof(seen)), 0);
		for (unsigned i = 0; i < n; i++)
			expect_data(local + 7 * i, 3 * i, 3);
		free(here);
		free(there);
	}
	teardown();
}
END_TEST

START_TEST(no_range_at_all_is_the_control_page)
{
	setup(_i);
	memset(&seen, 0, sizeof(seen));
	ck_assert_int_eq(ops->get(t, attach(), NULL, 0, NULL, 0, &seen, sizeof(seen)), 0);
	ck_assert_uint_eq(seen.step, 42);
	teardown();
}
END_TEST

START_TEST(what_was_freed_is_a_fault_and_the_rest_is_not)
{
	uint32_t peer;

	setup(_i);
	peer = attach();
	tell_owner(FREE_HOLE);
	ck_assert_int_eq(get(peer, HOLE, 1), -EFAULT);
	ck_assert_int_eq(get(peer, HOLE - 1, 2), -EFAULT);
	ck_assert_int_eq(get(peer, 0, DATA), -EFAULT);
	ck_assert_int_eq(get(peer, HOLE + PAGE, 100), 0);
	expect_data(local, HOLE + PAGE, 100);
	ck_assert_int_eq(get(peer, 0, HOLE), 0);
	teardown();
}
END_TEST

START_TEST(addresses_that_cannot_be_are_refused)
{
	struct iovec here = { local, 100 };
	const struct iovec bad[] = { { (void *)UINTPTR_MAX, 100 },
				     { (void *)(UINTPTR_MAX - 99), 100 },
				     { (void *)(UINTPTR_MAX / 2), 100 },
				     { NULL, 100 } };
	uint32_t peer;

	setup(_i);
	here.iov_base = local;
	peer = attach();
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int rc = ops->get(t, peer, &here, 1, &bad[i], 1, &seen, sizeof(seen));

		ck_assert(rc == -EFAULT || rc == -EINVAL);
	}
	teardown();
}
END_TEST

START_TEST(another_cookie_is_stale)
{
	struct transport_target other;
	uint32_t peer = 77, attached;

	setup(_i);
	other = target();
	other.cookie[0]++;
	ck_assert_int_eq(ops->attach(t, &other, &peer), -ESTALE);
	other = target();
	other.control += 8;
	ck_assert_int_eq(ops->attach(t, &other, &peer), -ESTALE);
	other.control = 8;
	ck_assert_int_eq(ops->attach(t, &other, &peer), -ESTALE);
	ck_assert_uint_eq(peer, 77);
	attached = attach();
	tell_owner(CHANGE_COOKIE);
	ck_assert_int_eq(get(attached, 0, 100), -ESTALE);
	teardown();
}
END_TEST

START_TEST(without_a_control_page_it_is_stale)
{
	uint32_t peer;

	setup(_i);
	peer = attach();
	tell_owner(FREE_CONTROL);
	ck_assert_int_eq(get(peer, 0, 100), -ESTALE);
	teardown();
}
END_TEST

START_TEST(a_call_that_contradicts_itself_is_refused)
{
	struct iovec here = { local, 100 }, there = { data, 99 };
	struct transport_target who;
	uint32_t peer, other;

	setup(_i);
	here.iov_base = local;
	there.iov_base = data;
	peer = attach();
	ck_assert_int_eq(ops->get(t, peer, &here, 1, &there, 1, &seen, sizeof(seen)), -EINVAL);
	ck_assert_int_eq(ops->get(t, peer, &here, 1, &here, 1, &seen, 15), -EINVAL);
	ck_assert_int_eq(get(peer + 1, 0, 100), -ENOTCONN);
	ops->detach(t, peer);
	ck_assert_int_eq(get(peer, 0, 100), -ENOTCONN);
	ops->detach(t, peer);
	who = target();
	who.pid = 0;
	ck_assert_int_lt(ops->attach(t, &who, &other), 0);
	who.pid = -1;
	ck_assert_int_lt(ops->attach(t, &who, &other), 0);
	teardown();
}
END_TEST

/* ---- several threads ---- */

static void *get_often(void *arg)
{
	uint32_t peer = *(uint32_t *)arg;
	uint8_t room[1000];
	struct control_page page;

	for (size_t i = 0; i < 2000; i++) {
		struct iovec here = { room, sizeof(room) }, there = { data + i, sizeof(room) };

		ck_assert_int_eq(ops->get(t, peer, &here, 1, &there, 1, &page, sizeof(page)),
				 0);
		expect_data(room, i, sizeof(room));
	}
	return NULL;
}

static void *attach_often(void *arg)
{
	for (int i = 0; i < 300; i++) {
		uint32_t peer = attach();

		if (ops->share)
			ops->share(t, *(uint32_t *)arg, i % 2 ? memfd : -1, (uintptr_t)data,
				   DATA);
		ops->detach(t, peer);
	}
	return NULL;
}

START_TEST(any_thread_may_get_while_another_attaches)
{
	pthread_t thread[3];
	uint32_t peer;

	setup(_i);
	if (ops->share) {
		tell_owner(MAP_MEMFD);
		tell_owner(SEAL);
	}
	peer = attach();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(
			pthread_create(&thread[i], NULL, i ? get_often : attach_often, &peer),
			0);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	teardown();
}
END_TEST

/* ---- host alone ---- */

START_TEST(a_killed_process_is_gone)
{
	struct transport_target who;
	uint32_t peer, other;

	setup(1);
	peer = attach();
	kill_owner();
	ck_assert_int_eq(waitid(P_PID, (id_t)owner, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(get(peer, 0, 100), -ESRCH); /* a zombie */
	reap_owner();
	ck_assert_int_eq(get(peer, 0, 100), -ESRCH);
	who = target();
	ck_assert_int_eq(ops->attach(t, &who, &other), -ESRCH);
	ops->close(t);
}
END_TEST

START_TEST(a_process_that_runs_another_program_is_stale)
{
	struct transport_target who;
	uint32_t peer;

	setup(1);
	peer = attach();
	tell_owner(EXEC);
	ck_assert_int_eq(get(peer, 0, 100), -ESTALE);
	who = target();
	ck_assert_int_eq(ops->attach(t, &who, &peer), -ESTALE);
	teardown();
}
END_TEST

START_TEST(a_process_of_another_user_is_not_permitted)
{
	uint32_t peer;
	int status;
	pid_t pid;

	setup(1);
	pid = fork();
	if (!pid) {
		struct transport_target who = target();

		_exit(setgid(65534) || setuid(65534) || ops->attach(t, &who, &peer) != -EPERM);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	teardown();
}
END_TEST

START_TEST(a_sealed_memfd_is_read_by_mapping)
{
	uint32_t peer;

	setup(1);
	peer = attach();
	tell_owner(MAP_MEMFD);
	tell_owner(SEAL);
	ck_assert_int_eq(ops->share(t, peer, memfd, (uintptr_t)data, DATA), 0);
	tell_owner(FREE_ALL); /* so that it can come by the mapping only */
	memset(&seen, 0, sizeof(seen));
	ck_assert_int_eq(get(peer, 100, DATA - 200), 0);
	expect_data(local, 100, DATA - 200);
	ck_assert_uint_eq(seen.step, 42);
	ck_assert_int_eq(ops->share(t, peer, -1, (uintptr_t)data, DATA), 0);
	ck_assert_int_eq(get(peer, 100, 100), -EFAULT);
	teardown();
}
END_TEST

START_TEST(a_range_may_lie_partly_in_a_mapping)
{
	uint32_t peer;

	setup(1);
	peer = attach();
	tell_owner(MAP_MEMFD);
	tell_owner(SEAL);
	ck_assert_int_eq(ops->share(t, peer, memfd, (uintptr_t)data, HOLE + PAGE), 0);
	tell_owner(FREE_HOLE);
	ck_assert_int_eq(get(peer, 0, DATA), 0); /* the hole is mapped, the end is not */
	expect_data(local, 0, DATA);
	ck_assert_int_eq(get(peer, HOLE + PAGE - 10, 20), 0);
	expect_data(local, HOLE + PAGE - 10, 20);
	ck_assert_int_eq(ops->share(t, peer, -1, (uintptr_t)data, 1), 0);
	ck_assert_int_eq(get(peer, 0, DATA), -EFAULT);
	teardown();
}
END_TEST

START_TEST(a_dead_process_is_gone_though_its_memory_is_mapped)
{
	uint32_t peer;

	setup(1);
	peer = attach();
	tell_owner(MAP_MEMFD);
	tell_owner(SEAL);
	ck_assert_int_eq(ops->share(t, peer, memfd, (uintptr_t)data, DATA), 0);
	kill_owner();
	reap_owner();
	ck_assert_int_eq(get(peer, 0, 100), -ESRCH);
	ops->close(t);
}
END_TEST

START_TEST(what_is_not_sealed_is_not_mapped)
{
	uint32_t peer;

	setup(1);
	peer = attach();
	tell_owner(MAP_MEMFD);
	ck_assert_int_eq(ops->share(t, peer, memfd, (uintptr_t)data, DATA), -EPERM);
	tell_owner(SEAL);
	ck_assert_int_eq(ops->share(t, peer, memfd, (uintptr_t)data, DATA + 1), -EINVAL);
	ck_assert_int_eq(ops->share(t, peer, memfd, (uintptr_t)data, 0), -EINVAL);
	ck_assert_int_eq(ops->share(t, peer, memfd, UINT64_MAX, 2), -EINVAL);
	ck_assert_int_eq(ops->share(t, peer, 9999, (uintptr_t)data, DATA), -ENOENT);
	ck_assert_int_lt(ops->share(t, peer, from_owner[1], (uintptr_t)data, DATA), 0);
	ck_assert_int_eq(ops->share(t, peer + 1, memfd, (uintptr_t)data, DATA), -ENOTCONN);
	ck_assert_int_eq(get(peer, 0, DATA), 0);
	expect_data(local, 0, DATA);
	teardown();
}
END_TEST

START_TEST(loop_attaches_its_own_process_only)
{
	struct transport_target who;
	uint32_t peer;

	setup(0);
	who = target();
	who.pid = getppid();
	ck_assert_int_eq(ops->attach(t, &who, &peer), -EPERM);
	ck_assert_ptr_null(ops->share);
	teardown();
}
END_TEST

int main(void)
{
	const TTest *const both[] = {
		bytes_and_then_the_control_page_are_copied,
		the_two_sides_may_be_cut_differently,
		there_may_be_more_ranges_than_one_call_takes,
		no_range_at_all_is_the_control_page,
		what_was_freed_is_a_fault_and_the_rest_is_not,
		addresses_that_cannot_be_are_refused,
		another_cookie_is_stale,
		without_a_control_page_it_is_stale,
		a_call_that_contradicts_itself_is_refused,
		any_thread_may_get_while_another_attaches,
	};
	const TTest *const host[] = {
		a_killed_process_is_gone,
		a_process_that_runs_another_program_is_stale,
		a_sealed_memfd_is_read_by_mapping,
		a_range_may_lie_partly_in_a_mapping,
		a_dead_process_is_gone_though_its_memory_is_mapped,
		what_is_not_sealed_is_not_mapped,
	};
	Suite *s = suite_create("transport-memory");
	TCase *c = tcase_create("transport-memory");

	for (size_t i = 0; i < ARRAY_SIZE(both); i++)
		tcase_add_loop_test(c, both[i], 0, ARRAY_SIZE(variants));
	for (size_t i = 0; i < ARRAY_SIZE(host); i++)
		tcase_add_test(c, host[i]);
	tcase_add_test(c, loop_attaches_its_own_process_only);
	if (!geteuid())
		tcase_add_test(c, a_process_of_another_user_is_not_permitted);
	else
		puts("skipped: a_process_of_another_user_is_not_permitted: only root can be "
		     "one");
	return run_suite(s, c);
}

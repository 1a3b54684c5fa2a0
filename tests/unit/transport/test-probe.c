/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Whether anybody listens at an address, and what errors of sockets are called. */

#include "engine/base/dtype.h"
#include "engine/base/fork.h"
#include "engine/transport/transport-probe.h"
#include "engine/transport/transport-socket.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

static struct transport_bell bell;
static struct transport_probes probes = { .bell = &bell };
static bool tells_at_once; /* the machine: connect itself says that it was refused */

int __real_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size)
{
	int flags = fcntl(fd, F_GETFL), rc;

	if (!tells_at_once)
		return __real_connect(fd, to, size);
	fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
	rc = __real_connect(fd, to, size);
	fcntl(fd, F_SETFL, flags);
	return rc;
}

static void setup(void)
{
	ck_assert_int_eq(transport_bell_open(&bell), 0);
}

static void teardown(void)
{
	transport_probe_close(&probes);
	transport_bell_close(&bell);
}

/* A port that is ours. */
static int hold_port(char address[64])
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert(!bind(fd, (struct sockaddr *)&name, sizeof(name)) &&
		  !getsockname(fd, (struct sockaddr *)&name, &size));
	snprintf(address, 64, "tcp://127.0.0.1:%d", ntohs(name.sin_port));
	return fd;
}

START_TEST(nobody_there_is_refused)
{
	uint32_t peer = 0;
	char address[64];
	CLEANUP(close) int fd = hold_port(address);

	tells_at_once = _i;
	ck_assert_int_eq(transport_probe_start(&probes, 7, address), 0);
	ck_assert_int_eq(transport_probe_start(&probes, 7, address), -EALREADY);
	for (uint64_t end = monotonic_ms() + 60000; !peer && monotonic_ms() < end;) {
		transport_probe_turn(&probes);
		transport_probe_refused(&probes, &peer);
	}
	ck_assert_uint_eq(peer, 7);
	ck_assert_uint_eq(probes.n, 0);
}
END_TEST

START_TEST(somebody_there_is_not)
{
	uint32_t peer;
	char address[64];
	CLEANUP(close) int fd = hold_port(address);

	ck_assert_int_eq(listen(fd, 0), 0);
	ck_assert_int_eq(transport_probe_start(&probes, 1, address), 0);
	for (uint64_t end = monotonic_ms() + 60000; probes.n && monotonic_ms() < end;)
		transport_probe_turn(&probes);
	ck_assert_uint_eq(probes.n, 0);
	ck_assert(!transport_probe_refused(&probes, &peer));
}
END_TEST

START_TEST(a_probe_ends_when_nothing_comes)
{
	char address[64];
	CLEANUP(close) int fd = hold_port(address);
	struct sockaddr_in name;
	socklen_t size = sizeof(name);
	uint32_t peer;
	int full[3]; /* connections that nobody takes: no more are answered */

	ck_assert(!listen(fd, 0) && !getsockname(fd, (struct sockaddr *)&name, &size));
	for (unsigned i = 0; i < ARRAY_SIZE(full); i++) {
		full[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		connect(full[i], (struct sockaddr *)&name, size);
	}
	ck_assert_int_eq(transport_probe_start(&probes, 1, address), 0);
	transport_probe_turn(&probes);
	ck_assert_uint_eq(probes.n, 1);
	scarce_skip_ms(60000);
	transport_probe_turn(&probes);
	ck_assert_uint_eq(probes.n, 0);
	ck_assert(!transport_probe_refused(&probes, &peer));
	for (unsigned i = 0; i < ARRAY_SIZE(full); i++)
		close(full[i]);
}
END_TEST

START_TEST(what_is_no_address_is_einval)
{
	ck_assert_int_eq(transport_probe_start(&probes, 1, "loop:3"), -EINVAL);
	ck_assert_int_eq(transport_probe_start(&probes, 1, "tcp://host:3"), -EINVAL);
}
END_TEST

START_TEST(errors_of_libzmq_have_names_here)
{
	static const struct {
		int is, means;
	} errors[] = { { ENODEV, -EADDRNOTAVAIL },  { EPROTONOSUPPORT, -EINVAL },
		       { ENOCOMPATPROTO, -EINVAL }, { EHOSTUNREACH, -ENOTCONN },
		       { EADDRINUSE, -EADDRINUSE }, { ETERM, -EIO } };

	for (unsigned i = 0; i < ARRAY_SIZE(errors); i++) {
		errno = errors[i].is;
		ck_assert_int_eq(transport_socket_error(), errors[i].means);
	}
}
END_TEST

START_TEST(other_limits)
{
	ck_assert_int_eq(fork_close(FORK_FD_MAX), -ENFILE);
	ck_assert_int_eq(dtype_convert(FRAG_U8, NULL, FRAG_F32, NULL, 0), -EOPNOTSUPP);
}
END_TEST

static bool is_open_in_a_child(int fd)
{
	pid_t child = fork();
	int status = -1;

	if (!child)
		_exit(fcntl(fd, F_GETFD) >= 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WEXITSTATUS(status);
}

/* libzmq's thread may close a descriptor, and another one use its number, before it is listed.
 */
START_TEST(a_number_that_is_used_again_stays_open_in_a_child)
{
	int fd = memfd_create("ours", 0), other = memfd_create("another's", 0), copy = dup(fd);

	ck_assert(fd >= 0 && other >= 0 && copy >= 0);
	ck_assert_int_eq(fork_close_as(fd, copy), 0);
	ck_assert(!is_open_in_a_child(fd));
	ck_assert(is_open_in_a_child(copy));
	ck_assert_int_eq(dup2(other, fd), fd);
	ck_assert(is_open_in_a_child(fd));
	ck_assert_int_eq(fork_close_as(fd, copy), 0);
	ck_assert(is_open_in_a_child(fd));
	fork_forget(fd);
	close(fd);
	close(copy);
	close(other);
}
END_TEST

/* i: 1: somebody listens.  A child that was made by clone(2) alone closes nothing: its copy of
 * the descriptor is here a duplicate.
 */
START_TEST(what_a_child_keeps_of_a_probe_wakes_nobody)
{
	struct pollfd poller = { .events = POLLIN };
	uint32_t peer;
	char address[64];
	CLEANUP(close) int fd = hold_port(address);
	int kept;

	if (_i)
		ck_assert_int_eq(listen(fd, 0), 0);
	ck_assert_int_eq(transport_probe_start(&probes, 1, address), 0);
	ck_assert(!is_open_in_a_child(probes.probes[0].fd));
	kept = dup(probes.probes[0].fd);
	ck_assert_int_ge(kept, 0);
	for (uint64_t end = monotonic_ms() + 60000; probes.n && monotonic_ms() < end;) {
		transport_probe_turn(&probes);
		transport_probe_refused(&probes, &peer);
	}
	ck_assert_uint_eq(probes.n, 0);
	transport_bell_hush(&bell);
	poller.fd = bell.epoll;
	ck_assert_int_eq(poll(&poller, 1, 0), 0);
	close(kept);
}
END_TEST

START_TEST(more_addresses_than_a_fork_can_forget_are_refused)
{
	char address[64];
	int n;

	ck_assert_int_eq(fork_close_at("nowhere"), -EINVAL);
	for (n = 1; n <= FORK_ADDRESSES_MAX; n++) {
		snprintf(address, sizeof(address), "tcp://127.0.0.1:%d", n);
		ck_assert_int_eq(fork_close_at(address), 0);
	}
	ck_assert_int_eq(fork_close_at("tcp://127.0.0.1:9999"), -ENFILE);
	fork_forget_at("tcp://127.0.0.1:1");
	ck_assert_int_eq(fork_close_at("tcp://127.0.0.1:9999"), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("probe");
	TCase *t = tcase_create("probe");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, nobody_there_is_refused, 0, 2);
	tcase_add_test(t, somebody_there_is_not);
	tcase_add_test(t, a_probe_ends_when_nothing_comes);
	tcase_add_test(t, what_is_no_address_is_einval);
	tcase_add_test(t, errors_of_libzmq_have_names_here);
	tcase_add_test(t, other_limits);
	tcase_add_test(t, a_number_that_is_used_again_stays_open_in_a_child);
	tcase_add_loop_test(t, what_a_child_keeps_of_a_probe_wakes_nobody, 0, 2);
	tcase_add_test(t, more_addresses_than_a_fork_can_forget_are_refused);
	return run_suite(s, t);
}

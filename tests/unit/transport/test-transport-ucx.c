/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/ucx/ucx.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/transport-suite.h"
#include "tests/unit/transport/transports.h"
#include "tests/unit/transport/ucx-there.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

static struct side sides[2];
static const struct variant *const ucx = &variants[UCX];

static int open_at(struct transport **t, const char *bind, const char *devices)
{
	struct transport_config config = { .bind = bind, .devices = devices };

	return transport_ucx.open(t, &config);
}

/* ---- addresses ---- */

START_TEST(what_cannot_be_opened_is_refused)
{
	struct transport *t;

	ck_assert_int_eq(open_at(&t, "ucx://203.0.113.1", "lo"), -EADDRNOTAVAIL);
	ck_assert_int_eq(open_at(&t, "nonsense", "lo"), -EINVAL);
	ck_assert_int_eq(open_at(&t, "ucx://127.0.0.1:70000", "lo"), -EINVAL);
	ck_assert_int_eq(open_at(&t, "ucx://127.0.0.1", NULL), -EINVAL);
}
END_TEST

/* In a process that has not loaded it. */
START_TEST(without_its_library_it_is_not_supported)
{
	struct rlimit before, none;
	struct transport *t;
	int rc;

	getrlimit(RLIMIT_NOFILE, &before);
	none = (struct rlimit){ 0, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	rc = open_at(&t, "ucx://127.0.0.1", "lo");
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_int_eq(rc, -ENOTSUP);
}
END_TEST

#ifdef HAVE_UCX
START_TEST(its_errors_are_errnos)
{
	ck_assert_int_eq(ucx_errno(UCS_OK), 0);
	ck_assert_int_eq(ucx_errno(UCS_ERR_BUSY), -EADDRINUSE);
	ck_assert_int_eq(ucx_errno(UCS_ERR_NO_MEMORY), -ENOMEM);
	ck_assert_int_eq(ucx_errno(UCS_ERR_NO_DEVICE), -EADDRNOTAVAIL);
	ck_assert_int_eq(ucx_errno(UCS_ERR_UNREACHABLE), -EADDRNOTAVAIL);
	ck_assert_int_eq(ucx_errno(UCS_ERR_IO_ERROR), -EIO);
}
END_TEST
#endif

/* ---- the trainer's process ---- */

static uint64_t caught_signals(void)
{
	CLEANUP(free) char *line = NULL;
	size_t room = 0;
	uint64_t mask = 0, threads = (uint64_t)3 << 31; /* glibc's own, once there are any */
	FILE *file = fopen("/proc/self/status", "re");

	while (getline(&line, &room, file) > 0)
		if (!strncmp(line, "SigCgt:", 7))
			mask = strtoull(line + 7, NULL, 16);
	fclose(file);
	return mask & ~threads;
}

START_TEST(the_trainers_signals_stay_its_own)
{
	uint64_t before = caught_signals();

	side_open(&sides[0], ucx);
	ck_assert_uint_eq(caught_signals(), before);
	side_close(&sides[0]);
	ck_assert_uint_eq(caught_signals(), before);
}
END_TEST

/* The descriptor listens: at this host's addresses of that device alone? */
static void count_listener(int fd, unsigned *here, unsigned *elsewhere)
{
	struct sockaddr_in name = { .sin_family = AF_UNSPEC };
	socklen_t size = sizeof(name), one = sizeof(int);
	int listens = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &one) || !listens ||
	    getsockname(fd, (struct sockaddr *)&name, &size) || name.sin_family != AF_INET)
		return;
	*here += name.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
	*elsewhere += name.sin_addr.s_addr != htonl(INADDR_LOOPBACK);
}

START_TEST(it_listens_on_the_devices_it_was_given_alone)
{
	unsigned here = 0, elsewhere = 0;

	side_open(&sides[0], ucx);
	for (int fd = 0; fd < 256; fd++)
		count_listener(fd, &here, &elsewhere);
	ck_assert_uint_gt(here, 0);
	ck_assert_uint_eq(elsewhere, 0);
	side_close(&sides[0]);
}
END_TEST

/* ---- peers that end ---- */

static uint32_t next_gone(struct side *s)
{
	uint64_t end = monotonic_ms() + WAIT_MS;
	uint32_t gone;

	while (!transport_ucx.gone(s->t, &gone)) {
		ck_assert_uint_lt(monotonic_ms(), end);
		sides_poll(s, 1, 20);
	}
	return gone;
}

/* ---- processes that end ---- */

enum { BLOCK = 1 << 20 };

static char server[64]; /* its address */

static void answer_with_blocks(struct side *s)
{
	static const uint8_t block[BLOCK];

	side_send(s, s->from, block, sizeof(block));
}

static void serve_for_ever(int ready)
{
	const char *address;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	side_open(&sides[1], ucx);
	sides[1].received = answer_with_blocks;
	address = transport_ucx.address(sides[1].t);
	if (write(ready, address, strlen(address) + 1) < 0)
		_exit(1);
	for (;;)
		sides_poll(&sides[1], 1, 1000);
}

/* A process that answers each message with a block; the one here is connected to it. */
static pid_t start_server(uint32_t *peer)
{
	int ready[2];
	pid_t child;

	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	if (!child)
		serve_for_ever(ready[1]);
	ck_assert_int_gt(read(ready[0], server, sizeof(server)), 0);
	close(ready[0]);
	close(ready[1]);
	side_open(&sides[0], ucx);
	ck_assert_int_eq(transport_ucx.connect(sides[0].t, server, peer), 0);
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* None of its threads goes on when it returns. */
static void stop(pid_t child)
{
	kill(child, SIGSTOP);
	ck_assert_int_eq(waitpid(child, NULL, WUNTRACED), child);
}

/* Asks for n blocks, and waits for the first half of them. */
static void ask_for(uint32_t peer, int n)
{
	int before = sides[0].count;

	for (int i = 0; i < n; i++)
		ck_assert_int_eq(side_send(&sides[0], peer, "more", 4), 0);
	sides_wait(sides, 1, 0, before + n / 2);
}

START_TEST(a_peer_killed_in_the_middle_is_seen_and_nothing_else_ends)
{
	uint32_t peer;
	pid_t child = start_server(&peer);

	ask_for(peer, 16);
	end(child);
	ck_assert_uint_eq(next_gone(&sides[0]), peer);
	transport_ucx.disconnect(sides[0].t, peer);
	peer = side_connect(&sides[0], &sides[0]);
	sides[0].count = 0;
	ck_assert_int_eq(side_send(&sides[0], peer, "me", 2), 0);
	sides_wait(sides, 1, 0, 1);
	side_close(&sides[0]);
}
END_TEST

START_TEST(a_stopped_peer_fills_its_queue_and_goes_on_when_it_does)
{
	static const uint8_t block[BLOCK];
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	uint32_t peer;
	pid_t child = start_server(&peer);
	int sent = 0, before, rc;

	ask_for(peer, 4);
	sides_wait(sides, 1, 0, 4);
	before = sides[0].count;
	stop(child);
	while (!(rc = side_send(&sides[0], peer, block, sizeof(block))) && sent < 1000) {
		sides_poll(sides, 1, 0);
		sent++;
	}
	ck_assert_int_eq(rc, -EAGAIN);
	kill(child, SIGCONT);
	while (sides[0].count < before + sent) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(sides, 1, 100);
	}
	end(child);
	side_close(&sides[0]);
}
END_TEST

START_TEST(closing_waits_for_no_stopped_peer)
{
	uint64_t since;
	uint32_t peer;
	pid_t child = start_server(&peer);

	ask_for(peer, 4);
	stop(child);
	for (int i = 0; i < 8; i++) {
		static const uint8_t block[BLOCK];

		side_send(&sides[0], peer, block, sizeof(block));
	}
	since = monotonic_ms();
	side_close(&sides[0]);
	ck_assert_uint_lt(monotonic_ms() - since, WAIT_MS);
	end(child);
}
END_TEST

/* Opens both sides, of which side 0 sends one message.  Returns side 1 as a peer of side 0. */
static uint32_t open_both(void)
{
	uint32_t peer;

	side_open(&sides[0], ucx);
	side_open(&sides[1], ucx);
	peer = side_connect(&sides[0], &sides[1]);
	ck_assert_int_eq(side_send(&sides[0], peer, "one", 3), 0);
	sides_wait(sides, 2, 1, 1);
	return peer;
}

/* Waits until the child has ended well, sends another message, and closes both sides. */
static void go_on_without(pid_t child, uint32_t peer)
{
	int status;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(side_send(&sides[0], peer, "two", 3), 0);
	sides_wait(sides, 2, 1, 2);
	side_close(&sides[0]);
	side_close(&sides[1]);
}

START_TEST(a_forked_child_closes_nothing_of_its_parents)
{
	uint32_t peer = open_both();
	pid_t child = fork();

	if (!child) {
		side_close(&sides[0]);
		_exit(0);
	}
	go_on_without(child, peer);
}
END_TEST

START_TEST(a_forked_child_does_not_keep_the_port)
{
	uint32_t peer = open_both();
	int port = side_port(&sides[1]);
	pid_t child;

	ck_assert_int_gt(count_at_port(port), 0);
	child = fork();
	if (!child)
		_exit(count_at_port(port));
	go_on_without(child, peer);
}
END_TEST

/* ---- a machine that has nothing left ---- */

/* What it has received is counted, and answered with the same; without a word to Check, which
 * needs memory.
 */
static void receive_quietly(void *owner, uint32_t peer, const void *data, size_t size)
{
	struct side *s = owner;
	struct iovec part = { (void *)(uintptr_t)data, size };

	s->count++;
	if (s == &sides[1])
		transport_ucx.send(s->t, peer, &part, 1);
}

/* One message there and one back, however often they must be sent.  -ETIMEDOUT: they never
 * came.
 */
static int exchange(uint32_t peer)
{
	static uint8_t block[BLOCK];
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	struct iovec part = { block, sizeof(block) };
	int rc = 0;

	for (unsigned i = 0; !sides[0].count && (!rc || rc == -EAGAIN); i++) {
		struct pollfd fds[2];

		if (monotonic_ms() >= deadline)
			return -ETIMEDOUT;
		if (i % 32 == 0)
			rc = transport_ucx.send(sides[0].t, peer, &part, 1);
		for (int j = 0; j < 2; j++)
			fds[j] = (struct pollfd){ .fd = transport_ucx.fd(sides[j].t),
						  .events = POLLIN };
		poll(fds, 2, 10);
		for (int j = 0; j < 2; j++)
			transport_ucx.turn(sides[j].t, receive_quietly, &sides[j], 16);
	}
	return sides[0].count ? 0 : rc;
}

static int try_all(void)
{
	const struct transport_config config = { .bind = ucx->bind, .devices = "lo" };
	uint32_t peer;
	int rc = 0;

	for (int i = 0; i < 2; i++) {
		sides[i] = (struct side){ .ops = &transport_ucx, .turn_max = 16 };
		rc = rc ? rc : transport_ucx.open(&sides[i].t, &config);
	}
	if (!rc)
		rc = transport_ucx.connect(sides[0].t, transport_ucx.address(sides[1].t),
					   &peer);
	if (!rc)
		rc = exchange(peer);
	for (int i = 0; i < 2; i++)
		transport_ucx.close(sides[i].t);
	return rc;
}

START_TEST(where_memory_lacks_it_says_so_or_comes_through_all_the_same)
{
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = try_all();
		failed = scarce_end();
		ck_assert_msg(
			!rc || (failed && (rc == -ENOMEM || rc == -EMFILE || rc == -ENOTCONN)),
			"%u: %d", n, rc);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

static TCase *own_tests(void)
{
	TCase *t = tcase_create("ucx alone");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_cannot_be_opened_is_refused);
	if (!getenv("CK_FORK"))
		tcase_add_test(t, without_its_library_it_is_not_supported);
#ifdef HAVE_UCX
	tcase_add_test(t, its_errors_are_errnos);
#endif
	tcase_add_test(t, the_trainers_signals_stay_its_own);
	tcase_add_test(t, it_listens_on_the_devices_it_was_given_alone);
	tcase_add_test(t, a_peer_killed_in_the_middle_is_seen_and_nothing_else_ends);
	tcase_add_test(t, a_stopped_peer_fills_its_queue_and_goes_on_when_it_does);
	tcase_add_test(t, closing_waits_for_no_stopped_peer);
	tcase_add_test(t, a_forked_child_closes_nothing_of_its_parents);
	tcase_add_test(t, a_forked_child_does_not_keep_the_port);
	tcase_add_test(t, where_memory_lacks_it_says_so_or_comes_through_all_the_same);
	return t;
}

int main(void)
{
	Suite *s;

	if (!ucx_is_there()) {
		printf("skip: no UCX, or it cannot use lo: the line above says why\n");
		return 77;
	}
	s = suite_create("transport ucx");
	suite_add_tcase(s, transport_suite(UCX));
	suite_add_tcase(s, transport_suite_listening(UCX));
	return run_suite(s, own_tests());
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/key.h"
#include "engine/base/log.h"
#include "engine/transport/transport-queue.h"
#include "tests/run-suite.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/transports.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <zmq.h>

static struct side sides[SIDES_MAX];

static void exchange(int from, int to, int n)
{
	uint32_t peer = side_connect(&sides[from], &sides[to]);
	int before = sides[to].count;

	ck_assert_int_eq(side_send(&sides[from], peer, "good", 4), 0);
	sides_wait(sides, n, to, before + 1);
	ck_assert_int_eq(sides[to].count, before + 1);
	ck_assert_mem_eq(sides[to].data, "good", 4);
}

static int open_at(struct transport **t, const char *address)
{
	struct transport_config config = { .bind = address };

	return transport_zmq.open(t, &config);
}

/* ---- addresses ---- */

START_TEST(what_cannot_be_bound_is_refused)
{
	struct transport *t;

	ck_assert_int_eq(open_at(&t, "tcp://203.0.113.1:0"), -EADDRNOTAVAIL);
	ck_assert_int_eq(open_at(&t, "nonsense"), -EINVAL);
	ck_assert_int_eq(open_at(&t, "tcp://"), -EINVAL);
	ck_assert_int_eq(open_at(&t, "tcp://127.0.0.1:70000"), -EINVAL);
	ck_assert_int_eq(open_at(&t, "tcp://no such host:1"), -EADDRNOTAVAIL);
}
END_TEST

START_TEST(without_an_address_it_connects_out)
{
	side_open_with(&sides[0], &variants[CURVE], (struct transport_config){ .bind = NULL });
	side_open(&sides[1], &variants[CURVE]);
	ck_assert_str_eq(transport_zmq.address(sides[0].t), "");
	exchange(0, 1, 2);
	ck_assert_int_eq(side_send(&sides[1], sides[1].from, "back", 4), 0);
	sides_wait(sides, 2, 0, 1);
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

/* ---- strangers ---- */

static int stranger(int port)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_port = htons((uint16_t)port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	return fd;
}

static size_t fill_garbage(int kind, uint8_t *out, size_t size, unsigned *seed)
{
	static const uint8_t greeting[] = { 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1 };
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

	for (size_t i = 0; i < size; i++)
		out[i] = (uint8_t)(kind == 0 ? 0 : kind == 1 ? 0xff : rand_r(seed) >> 7);
	if (kind == 3 || kind == 4) {
		memset(out, 0, 64);
		memcpy(out, greeting, sizeof(greeting));
		memcpy(out + 12, kind == 3 ? "NULL" : "CURVE", kind == 3 ? 4 : 5);
	}
	if (kind == 5)
		memcpy(out, http, sizeof(http));
	return kind == 6 ? 1 : size;
}

START_TEST(garbage_is_not_delivered_and_changes_nothing)
{
	unsigned seed = 1;
	uint8_t garbage[4096];

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	exchange(1, 0, 2);
	for (int i = 0; i < 70; i++) {
		int fd = stranger(side_port(&sides[0]));
		size_t size = fill_garbage(i % 7, garbage, sizeof(garbage), &seed);
		ssize_t n = send(fd, garbage, size, MSG_NOSIGNAL);

		ck_assert(n > 0 || errno == EPIPE || errno == ECONNRESET);
		sides_poll(sides, 2, 0);
		close(fd);
	}
	exchange(1, 0, 2);
	ck_assert_int_eq(sides[0].count, 2);
	ck_assert_int_eq(sides[1].count, 0);
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

static void wait_for_log(int n, const char *text)
{
	static char lines[65536];
	uint64_t deadline = monotonic_ms() + WAIT_MS;

	do {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(sides, n, 50);
		log_tail(lines, sizeof(lines));
	} while (!strstr(lines, text));
}

static void wait_until_refused(int n, struct side *side, uint32_t peer)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;

	while (!transport_zmq.refused(side->t, peer)) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(sides, n, 50);
	}
}

/* 1 is refused by 0, and 2, opened like 0, is not. */
static void expect_refusal(const struct variant *own, const struct variant *other)
{
	uint32_t peer;

	side_open(&sides[0], own);
	side_open(&sides[1], other);
	peer = side_connect(&sides[1], &sides[0]);
	ck_assert(!transport_zmq.refused(sides[1].t, peer));
	ck_assert_int_eq(side_send(&sides[1], peer, "bad", 3), 0);
	wait_until_refused(2, &sides[1], peer);
	side_open(&sides[2], own);
	exchange(2, 0, 3);
	ck_assert_int_eq(sides[0].count, 1);
	ck_assert_int_eq(sides[1].count, 0);
	for (int i = 0; i < 3; i++)
		side_close(&sides[i]);
}

START_TEST(who_has_no_key_does_not_get_in)
{
	expect_refusal(&variants[CURVE], &variants[PLAIN]);
}
END_TEST

START_TEST(who_has_a_key_does_not_get_into_a_plain_one)
{
	expect_refusal(&variants[PLAIN], &variants[CURVE]);
}
END_TEST

START_TEST(who_has_another_key_does_not_get_in)
{
	static const uint8_t key[32] = "the secret of another job, here";
	const struct variant other = { "other", &transport_zmq, key, "tcp://127.0.0.1", "" };

	expect_refusal(&variants[CURVE], &other);
}
END_TEST

static void job_keys(char public[41], char secret[41])
{
	zmq_z85_encode(secret, job_key, 32);
	ck_assert_int_eq(zmq_curve_public(public, secret), 0);
}

/* Someone with that pair of keys, who knows whom it speaks to. */
static void expect_refusal_of(const char *public, const char *secret)
{
	char job_public[41], job_secret[41];
	void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);

	job_keys(job_public, job_secret);
	side_open(&sides[0], &variants[CURVE]);
	zmq_setsockopt(socket, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, job_public, 41);
	zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public, 41);
	zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret, 41);
	ck_assert_int_eq(zmq_connect(socket, transport_zmq.address(sides[0].t)), 0);
	ck_assert_int_eq(zmq_send(socket, "bad", 3, 0), 3);
	wait_for_log(1, "refused");
	side_open(&sides[1], &variants[CURVE]);
	exchange(1, 0, 2);
	ck_assert_int_eq(sides[0].count, 1);
	zmq_close(socket);
	zmq_ctx_term(context);
	side_close(&sides[0]);
	side_close(&sides[1]);
}

START_TEST(who_knows_the_public_key_and_has_another_pair_does_not_get_in)
{
	char public[41], secret[41];

	ck_assert_int_eq(zmq_curve_keypair(public, secret), 0);
	expect_refusal_of(public, secret);
}
END_TEST

START_TEST(a_reader_that_says_it_has_the_jobs_key_does_not_get_in)
{
	char job_public[41], job_secret[41], readers[41];
	uint8_t key[32];

	job_keys(job_public, job_secret);
	ck_assert_int_eq(key_for_readers(job_key, key), 0);
	zmq_z85_encode(readers, key, 32);
	expect_refusal_of(job_public, readers);
}
END_TEST

START_TEST(a_reader_is_known_as_one)
{
	struct variant reader = variants[CURVE];
	uint8_t key[32];

	ck_assert_int_eq(key_for_readers(job_key, key), 0);
	reader.key = key;
	side_open(&sides[0], &variants[CURVE]);
	side_open_with(&sides[1], &reader, (struct transport_config){ .reads_only = true });
	side_open(&sides[2], &variants[CURVE]);
	for (int again = 0; again < 2; again++) {
		exchange(1, 0, 3);
		ck_assert(transport_zmq.reads_only(sides[0].t, sides[0].from));
		ck_assert_int_eq(side_send(&sides[0], sides[0].from, "answer", 6), 0);
		sides_wait(sides, 3, 1, again + 1);
		ck_assert(!transport_zmq.reads_only(sides[1].t, sides[1].from));
		exchange(2, 0, 3);
		ck_assert(!transport_zmq.reads_only(sides[0].t, sides[0].from));
	}
	for (int i = 0; i < 3; i++)
		side_close(&sides[i]);
}
END_TEST

START_TEST(without_keys_nobody_is_a_reader)
{
	side_open(&sides[0], &variants[PLAIN]);
	side_open(&sides[1], &variants[PLAIN]);
	exchange(1, 0, 2);
	ck_assert(!transport_zmq.reads_only(sides[0].t, sides[0].from));
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

START_TEST(a_reader_serves_nobody)
{
	struct transport_config config = { .bind = "tcp://127.0.0.1", .reads_only = true };
	uint8_t key[32];
	struct transport *t;

	ck_assert_int_eq(key_for_readers(job_key, key), 0);
	config.key = key;
	ck_assert_int_eq(transport_zmq.open(&t, &config), -EACCES);
}
END_TEST

/* Someone who serves something else at the address that we were given. */
START_TEST(who_answers_garbage_can_be_connected_anew)
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(name);
	int server = socket(AF_INET, SOCK_STREAM, 0), fd, rc;
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	uint8_t garbage[4096];
	uint32_t peer, anew;
	char address[64];
	unsigned seed = 1;

	ck_assert_int_eq(bind(server, (struct sockaddr *)&name, size), 0);
	ck_assert_int_eq(listen(server, 1), 0);
	getsockname(server, (struct sockaddr *)&name, &size);
	snprintf(address, sizeof(address), "tcp://127.0.0.1:%d", ntohs(name.sin_port));
	side_open(&sides[0], &variants[CURVE]);
	ck_assert_int_eq(transport_zmq.connect(sides[0].t, address, &peer), 0);
	fd = accept(server, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	fill_garbage(3, garbage, sizeof(garbage), &seed); /* another mechanism */
	ck_assert_int_gt(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL), 0);
	while ((rc = side_send(&sides[0], peer, "x", 1)) != -ENOTCONN) {
		ck_assert(!rc || rc == -EAGAIN);
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(sides, 1, 10);
	}
	close(fd);
	close(server);
	side_open_with(&sides[1], &variants[CURVE],
		       (struct transport_config){ .bind = address });
	ck_assert_int_eq(transport_zmq.connect(sides[0].t, address, &anew), 0);
	ck_assert_uint_ne(anew, peer);
	ck_assert_int_eq(side_send(&sides[0], anew, "good", 4), 0);
	sides_wait(sides, 2, 1, 1);
	ck_assert_mem_eq(sides[1].data, "good", 4);
	ck_assert_int_eq(sides[0].count, 0);
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

START_TEST(who_asks_and_does_not_take_has_a_bounded_number_of_bytes_kept)
{
	static const uint8_t block[1 << 20];
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	int sent = 0, full = 0, before;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	exchange(1, 0, 2);
	while (full < 20 && sent < 1000) { /* 20 times in a row: what can flow has flown */
		int rc = side_send(&sides[0], sides[0].from, block, sizeof(block));

		ck_assert(!rc || rc == -EAGAIN);
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sent += !rc;
		full = rc ? full + 1 : 0;
		if (rc)
			sides_poll(sides, 1, 10);
	}
	/* here, there, and in the kernel */
	ck_assert_int_lt(sent, TRANSPORT_QUEUE_PEER / (int)sizeof(block) + 64 + 32);
	ck_assert_int_eq(side_send(&sides[0], sides[0].from, "small", 5), 0);
	before = sides[0].count;
	side_open(&sides[2], &variants[_i]);
	exchange(2, 0, 3); /* others are answered */
	ck_assert_int_eq(side_send(&sides[0], sides[0].from, block, sizeof(block)), 0);
	ck_assert_int_eq(sides[0].count, before + 1);
	sides_wait(sides, 3, 1, sent + 1);
	ck_assert_int_eq(
		side_send(&sides[0], side_connect(&sides[0], &sides[1]), block, sizeof(block)),
		0); /* and again there is room */
	for (int i = 0; i < 3; i++)
		side_close(&sides[i]);
}
END_TEST

/* Half of what the process may open is its own. */
START_TEST(strangers_that_stay_leave_descriptors_to_others)
{
	enum { LIMIT = 256, COME = 600 };
	struct rlimit limit;
	int hold[2], in[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(hold), 0);
	ck_assert_int_eq(pipe(in), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = LIMIT;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	side_open_with(&sides[0], &variants[_i],
		       (struct transport_config){ .bind = "tcp://127.0.0.1", .expected = 2 });
	side_open(&sides[1], &variants[_i]);
	exchange(1, 0, 2);
	pid = fork();
	if (!pid) {
		limit.rlim_cur = limit.rlim_max < 4 * COME ? limit.rlim_max : 4 * COME;
		setrlimit(RLIMIT_NOFILE, &limit);
		for (int i = 0; i < COME; i++)
			stranger(side_port(&sides[0]));
		_exit(write(hold[1], "x", 1) != 1 || read(in[0], &byte, 1) < 0);
	}
	ck_assert_int_eq(fcntl(hold[0], F_SETFL, O_NONBLOCK), 0);
	for (uint64_t end = monotonic_ms() + WAIT_MS; read(hold[0], &byte, 1) != 1;) {
		ck_assert_uint_lt(monotonic_ms(), end);
		sides_poll(sides, 2, 5);
	}
	wait_for_log(2, "the newest are closed");
	exchange(1, 0, 2);
	for (uint64_t end = monotonic_ms() + WAIT_MS;
	     count_sockets() > LIMIT / 4 + 2 + 8;) { /* of ours */
		ck_assert_uint_lt(monotonic_ms(), end);
		sides_poll(sides, 2, 5);
	}
	close(in[1]);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	limit.rlim_cur = limit.rlim_max; /* nobody turns the others while this one is opened */
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	side_open(&sides[2], &variants[_i]); /* there is room again */
	exchange(2, 0, 3);
	for (int i = 0; i < 3; i++)
		side_close(&sides[i]);
}
END_TEST

static void wait_for_sockets(int port, int n)
{
	for (int i = 0; count_at_port(port) != n; i++) {
		ck_assert_int_lt(i, 1000);
		usleep(20000);
	}
}

/* A child that sends a message to the address which it gets by *tell, and stays.  It is forked
 * before there are threads.
 */
static pid_t fork_sender(int *tell)
{
	struct side *s = &sides[1];
	char address[64] = "";
	int ends[2];
	uint32_t peer;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	*tell = ends[1];
	if (pid) {
		close(ends[0]);
		return pid;
	}
	close(ends[1]); /* read(2) ends with the parent */
	if (read(ends[0], address, sizeof(address) - 1) < 1)
		_exit(1);
	side_open_with(s, &variants[PLAIN], (struct transport_config){ .bind = NULL });
	if (s->ops->connect(s->t, address, &peer) || side_send(s, peer, "good", 4))
		_exit(1);
	for (;;)
		sides_poll(s, 1, 1000);
}

/* The next connection may have the same descriptor before we turn, and not have spoken. */
START_TEST(who_is_killed_has_gone_though_another_has_its_descriptor)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int next = socket(AF_INET, SOCK_STREAM, 0); /* early: its number is not free then */
	int tell, port;
	const char *address;
	pid_t pid = fork_sender(&tell);
	uint32_t gone;

	side_open(&sides[0], &variants[PLAIN]);
	port = side_port(&sides[0]);
	address = transport_zmq.address(sides[0].t);
	ck_assert_int_gt(write(tell, address, strlen(address)), 0);
	sides_wait(sides, 1, 0, 1);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	wait_for_sockets(port, 1); /* which listens */
	to.sin_port = htons((uint16_t)port);
	ck_assert_int_eq(connect(next, (const struct sockaddr *)&to, sizeof(to)), 0);
	wait_for_sockets(port, 2);
	side_turn(&sides[0]);
	ck_assert(transport_zmq.gone(sides[0].t, &gone));
	ck_assert_uint_eq(gone, sides[0].from);
	close(next);
	close(tell);
	side_close(&sides[0]);
}
END_TEST

/* A plain peer that speaks ZMTP well, and yet is none of us. */
START_TEST(messages_of_another_shape_are_dropped)
{
	static uint8_t large[TRANSPORT_MESSAGE_MAX + 1];
	void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
	void *named = zmq_socket(context, ZMQ_DEALER), *big = zmq_socket(context, ZMQ_DEALER);
	const char *address;

	side_open(&sides[0], &variants[PLAIN]);
	address = transport_zmq.address(sides[0].t);
	zmq_setsockopt(named, ZMQ_ROUTING_ID, "rank 0", 6);
	zmq_connect(named, address);
	zmq_connect(socket, address);
	zmq_connect(big, address);
	zmq_send(named, "bad", 3, 0);
	zmq_send(big, large, sizeof(large), 0);
	for (int i = 0; i < 10; i++)
		zmq_send(socket, "part", 4, ZMQ_SNDMORE);
	zmq_send(socket, "end", 3, 0);
	zmq_send(socket, "good", 4, 0); /* of one part: it passes, behind those before */
	sides_wait(sides, 1, 0, 1);
	ck_assert_uint_eq(sides[0].size, 4);
	side_open(&sides[1], &variants[PLAIN]);
	exchange(1, 0, 2);
	ck_assert_int_eq(sides[0].count, 2);
	zmq_setsockopt(big, ZMQ_LINGER, &(int){ 0 }, sizeof(int));
	zmq_close(named);
	zmq_close(big);
	zmq_close(socket);
	zmq_ctx_term(context);
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

/* ---- in somebody else's process ---- */

static bool blocks_all_signals(const char *path)
{
	unsigned long long mask = 0;
	char line[256];
	FILE *f = fopen(path, "re");

	if (!f)
		return true; /* ended since */
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "SigBlk: %llx", &mask) == 1)
			break;
	fclose(f);
	return (~mask & 0x7fffffff & ~(1ull << (SIGKILL - 1) | 1ull << (SIGSTOP - 1))) == 0;
}

START_TEST(its_threads_take_no_signals)
{
	char path[512];
	struct dirent *entry;
	sigset_t before, after;
	int threads = 0;
	DIR *dir;

	pthread_sigmask(SIG_BLOCK, NULL, &before);
	side_open(&sides[0], &variants[CURVE]);
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	for (int i = 1; i < 32; i++)
		ck_assert_int_eq(sigismember(&before, i), sigismember(&after, i));
	dir = opendir("/proc/self/task");
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		ck_assert(blocks_all_signals(path));
		threads++;
	}
	ck_assert_int_ge(threads, 2);
	closedir(dir);
	side_close(&sides[0]);
}
END_TEST

START_TEST(too_few_descriptors_are_an_error)
{
	struct rlimit limit = { .rlim_cur = 20, .rlim_max = 20 };
	struct transport *t;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(open_at(&t, "tcp://127.0.0.1"), -EMFILE);
}
END_TEST

/* A child that counts its sockets and lives on until its input ends. */
static pid_t fork_worker(int *hold, int *sockets)
{
	int in[2], out[2], own = socket(AF_INET, SOCK_STREAM, 0);
	pid_t pid;

	ck_assert_int_eq(pipe(in), 0);
	ck_assert_int_eq(pipe(out), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		char byte;

		close(in[1]);
		*sockets = count_sockets();
		_exit(write(out[1], sockets, sizeof(*sockets)) < 0 ||
		      read(in[0], &byte, 1) < 0);
	}
	close(in[0]);
	close(out[1]);
	ck_assert_int_eq(read(out[0], sockets, sizeof(*sockets)), sizeof(*sockets));
	close(out[0]);
	close(own);
	*hold = in[1];
	return pid;
}

START_TEST(a_forked_child_keeps_no_socket)
{
	char address[64];
	int hold, sockets, before = count_sockets();
	struct transport *t;
	pid_t pid;

	for (int i = 0; i < 3; i++)
		side_open(&sides[i], &variants[CURVE]);
	exchange(0, 1, 3);
	exchange(1, 2, 3);
	exchange(2, 0, 3);
	for (int i = 0; i < 3; i++)
		side_turn(&sides[i]); /* what has been opened is known by now */
	ck_assert_int_ge(count_sockets(), before + 3 * 3);
	pid = fork_worker(&hold, &sockets);
	ck_assert_int_eq(sockets, before + 1); /* its own */
	snprintf(address, sizeof(address), "%s", transport_zmq.address(sides[0].t));
	for (int i = 0; i < 3; i++)
		side_close(&sides[i]);
	ck_assert_int_eq(kill(pid, 0), 0);
	ck_assert_int_eq(open_at(&t, address), 0);
	transport_zmq.close(t);
	close(hold);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
END_TEST

/* libzmq's thread accepts; whether we have turned since makes no difference. */
START_TEST(a_forked_child_keeps_nobody_who_has_just_connected)
{
	int port, status;
	uint32_t peer;
	pid_t pid;

	side_open(&sides[0], &variants[PLAIN]);
	side_open_with(&sides[1], &variants[PLAIN], (struct transport_config){ .bind = NULL });
	port = side_port(&sides[0]);
	peer = side_connect(&sides[1], &sides[0]);
	ck_assert_int_eq(side_send(&sides[1], peer, "here", 4), 0);
	for (int i = 0; count_at_port(port) < 2; i++) { /* it listens, and has accepted */
		ck_assert_int_lt(i, 1000);
		sides_poll(&sides[1], 1, 20);
	}
	pid = fork();
	if (!pid)
		_exit(count_at_port(port));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	sides_wait(sides, 2, 0, 1); /* and it has harmed nobody */
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

START_TEST(a_forked_child_keeps_a_socket_that_is_not_ours)
{
	int hold, sockets, before, own[64];
	pid_t pid;

	side_open(&sides[0], &variants[PLAIN]);
	side_open(&sides[1], &variants[PLAIN]);
	exchange(0, 1, 2);
	side_turn(&sides[0]);
	side_close(&sides[0]);
	side_close(&sides[1]);
	for (int i = 0; i < 64; i++) /* the same numbers */
		own[i] = socket(AF_INET, SOCK_STREAM, 0);
	before = count_sockets();
	pid = fork_worker(&hold, &sockets);
	ck_assert_int_eq(sockets, before + 1);
	close(hold);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	for (int i = 0; i < 64; i++)
		close(own[i]);
}
END_TEST

START_TEST(a_forked_child_may_close_and_open_its_own)
{
	int status;
	pid_t pid;

	side_open(&sides[0], &variants[CURVE]);
	side_open(&sides[1], &variants[CURVE]);
	exchange(0, 1, 2);
	pid = fork();
	if (!pid) {
		side_close(&sides[0]);
		side_close(&sides[1]);
#ifdef __SANITIZE_THREAD__
		_exit(0); /* it lets no child start threads */
#endif
		side_open(&sides[2], &variants[CURVE]);
		side_open(&sides[3], &variants[CURVE]);
		ck_assert_int_eq(
			side_send(&sides[2], side_connect(&sides[2], &sides[3]), "x", 1), 0);
		sides_wait(sides + 2, 2, 1, 1);
		side_close(&sides[2]);
		side_close(&sides[3]);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	exchange(1, 0, 2);
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport-zmq");
	TCase *t = tcase_create("transport-zmq");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_cannot_be_bound_is_refused);
	tcase_add_test(t, without_an_address_it_connects_out);
	tcase_add_loop_test(t, garbage_is_not_delivered_and_changes_nothing, PLAIN, CURVE + 1);
	tcase_add_test(t, who_has_no_key_does_not_get_in);
	tcase_add_test(t, who_has_a_key_does_not_get_into_a_plain_one);
	tcase_add_test(t, who_has_another_key_does_not_get_in);
	tcase_add_test(t, who_knows_the_public_key_and_has_another_pair_does_not_get_in);
	tcase_add_test(t, a_reader_that_says_it_has_the_jobs_key_does_not_get_in);
	tcase_add_test(t, a_reader_is_known_as_one);
	tcase_add_test(t, without_keys_nobody_is_a_reader);
	tcase_add_test(t, a_reader_serves_nobody);
	tcase_add_test(t, who_answers_garbage_can_be_connected_anew);
	tcase_add_loop_test(t, who_asks_and_does_not_take_has_a_bounded_number_of_bytes_kept,
			    PLAIN, CURVE + 1);
	tcase_add_loop_test(t, strangers_that_stay_leave_descriptors_to_others, PLAIN,
			    CURVE + 1);
	tcase_add_test(t, messages_of_another_shape_are_dropped);
	tcase_add_test(t, its_threads_take_no_signals);
	tcase_add_test(t, too_few_descriptors_are_an_error);
	tcase_add_test(t, who_is_killed_has_gone_though_another_has_its_descriptor);
	tcase_add_test(t, a_forked_child_keeps_no_socket);
	tcase_add_test(t, a_forked_child_keeps_nobody_who_has_just_connected);
	tcase_add_test(t, a_forked_child_keeps_a_socket_that_is_not_ours);
	tcase_add_test(t, a_forked_child_may_close_and_open_its_own);
	return run_suite(s, t);
}

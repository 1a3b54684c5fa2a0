/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/key.h"
#include "engine/base/log.h"
#include "engine/transport/transport-common.h"
#include "tests/run-suite.h"
#include "tests/unit/transport/sockets.h"
#include "tests/unit/transport/transports.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

static void close_sides(int n)
{
	for (int i = 0; i < n; i++)
		side_close(&sides[i]);
}

static void wait_until_refused(int n, struct side *side, uint32_t peer)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;

	while (!transport_tls.refused(side->t, peer)) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(sides, n, 50);
	}
}

/* Polls until the peer is not connected any more. */
static void wait_until_not_connected(int n, struct side *side, uint32_t peer)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	int rc;

	while ((rc = side_send(side, peer, "x", 1)) != -ENOTCONN) {
		ck_assert(!rc || rc == -EAGAIN);
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(sides, n, 10);
	}
}

/* ---- addresses ---- */

static int open_at(const char *address)
{
	struct transport_config config = { .bind = address };
	struct transport *t;

	return transport_tls.open(&t, &config);
}

START_TEST(what_cannot_be_bound_is_refused)
{
	ck_assert_int_eq(open_at("tcp://203.0.113.1:0"), -EADDRNOTAVAIL);
	ck_assert_int_eq(open_at("nonsense"), -EINVAL);
	ck_assert_int_eq(open_at("tcp://"), -EINVAL);
	ck_assert_int_eq(open_at("tcp://127.0.0.1:70000"), -EINVAL);
	ck_assert_int_eq(open_at("tcp://no such host:1"), -EINVAL);
}
END_TEST

START_TEST(too_few_descriptors_are_an_error)
{
	struct rlimit limit = { .rlim_cur = 5, .rlim_max = 5 };

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(open_at("tcp://127.0.0.1"), -EMFILE);
}
END_TEST

/* ---- keys ---- */

/* 1 is refused by 0, and 2, opened like 0, is not. */
static void expect_refusal(const struct variant *own, const struct variant *other)
{
	uint32_t peer;

	side_open(&sides[0], own);
	side_open(&sides[1], other);
	peer = side_connect(&sides[1], &sides[0]);
	ck_assert(!transport_tls.refused(sides[1].t, peer));
	ck_assert_int_eq(side_send(&sides[1], peer, "bad", 3), 0);
	wait_until_refused(2, &sides[1], peer);
	side_open(&sides[2], own);
	exchange(2, 0, 3);
	ck_assert_int_eq(sides[0].count, 1);
	ck_assert_int_eq(sides[1].count, 0);
	close_sides(3);
}

START_TEST(who_has_no_key_does_not_get_in)
{
	expect_refusal(&variants[TLS], &variants[TLS_PLAIN]);
}
END_TEST

START_TEST(who_has_a_key_does_not_get_into_a_plain_one)
{
	expect_refusal(&variants[TLS_PLAIN], &variants[TLS]);
}
END_TEST

START_TEST(who_has_another_key_does_not_get_in)
{
	static const uint8_t key[32] = "the secret of another job, here";
	struct variant other = variants[TLS];

	other.key = key;
	expect_refusal(&variants[TLS], &other);
}
END_TEST

/* A reader has the readers' key, and would derive from it what the job's key gives. */
START_TEST(a_reader_that_says_it_has_the_jobs_key_does_not_get_in)
{
	struct variant other = variants[TLS];
	uint8_t key[32];

	ck_assert_int_eq(key_for_readers(job_key, key), 0);
	other.key = key;
	expect_refusal(&variants[TLS], &other);
}
END_TEST

START_TEST(a_reader_is_known_as_one)
{
	struct variant reader = variants[TLS];
	uint8_t key[32];

	ck_assert_int_eq(key_for_readers(job_key, key), 0);
	reader.key = key;
	side_open(&sides[0], &variants[TLS]);
	side_open_with(&sides[1], &reader, (struct transport_config){ .reads_only = true });
	side_open(&sides[2], &variants[TLS]);
	for (int again = 0; again < 2; again++) {
		exchange(1, 0, 3);
		ck_assert(transport_tls.reads_only(sides[0].t, sides[0].from));
		ck_assert_int_eq(side_send(&sides[0], sides[0].from, "answer", 6), 0);
		sides_wait(sides, 3, 1, again + 1);
		ck_assert(!transport_tls.reads_only(sides[1].t, sides[1].from));
		exchange(2, 0, 3);
		ck_assert(!transport_tls.reads_only(sides[0].t, sides[0].from));
	}
	close_sides(3);
}
END_TEST

START_TEST(a_reader_serves_nobody)
{
	struct transport_config config = { .bind = "tcp://127.0.0.1", .reads_only = true };
	struct transport *t;
	uint8_t key[32];

	ck_assert_int_eq(key_for_readers(job_key, key), 0);
	config.key = key;
	ck_assert_int_eq(transport_tls.open(&t, &config), -EACCES);
}
END_TEST

/* ---- sockets of strangers ---- */

static int listen_anywhere(char address[64])
{
	struct sockaddr_in name = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, size), 0);
	ck_assert_int_eq(listen(fd, 4), 0);
	getsockname(fd, (struct sockaddr *)&name, &size);
	snprintf(address, 64, "tcp://127.0.0.1:%d", ntohs(name.sin_port));
	return fd;
}

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
	static const uint8_t hello[] = { 0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3 };
	static const uint8_t greeting[] = "frag 1\r\n\377\377\377\177";

	for (size_t i = 0; i < size; i++)
		out[i] = (uint8_t)(kind == 0 ? 0 : kind == 1 ? 0xff : rand_r(seed) >> 7);
	if (kind == 3)
		memcpy(out, hello, sizeof(hello));
	if (kind == 4 || kind == 5) /* and a size that is too large, or none */
		memcpy(out, greeting, kind == 4 ? sizeof(greeting) - 1 : 8);
	return kind == 6 ? 1 : kind == 5 ? 8 : size;
}

START_TEST(garbage_is_not_delivered_and_changes_nothing)
{
	unsigned seed = 1;
	uint8_t garbage[4096];
	int idle;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	idle = stranger(side_port(&sides[0])); /* says nothing */
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
	close(idle);
	close_sides(2);
}
END_TEST

/* Someone who serves something else at the address that we were given. */
START_TEST(who_answers_garbage_can_be_connected_anew)
{
	uint8_t garbage[4096];
	uint32_t peer, anew;
	char address[64];
	unsigned seed = 1;
	int fd, server = listen_anywhere(address);

	side_open(&sides[0], &variants[_i]);
	ck_assert_int_eq(transport_tls.connect(sides[0].t, address, &peer), 0);
	fd = accept(server, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	fill_garbage(2, garbage, sizeof(garbage), &seed);
	ck_assert_int_gt(send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL), 0);
	wait_until_not_connected(1, &sides[0], peer);
	close(fd);
	close(server);
	side_open_with(&sides[1], &variants[_i], (struct transport_config){ .bind = address });
	ck_assert_int_eq(transport_tls.connect(sides[0].t, address, &anew), 0);
	ck_assert_uint_ne(anew, peer);
	ck_assert_int_eq(side_send(&sides[0], anew, "good", 4), 0);
	sides_wait(sides, 2, 1, 1);
	ck_assert_mem_eq(sides[1].data, "good", 4);
	ck_assert_int_eq(sides[0].count, 0);
	close_sides(2);
}
END_TEST

/* ---- a server with a certificate ---- */

static void certify(SSL_CTX *context)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	X509_NAME *name = X509_get_subject_name(x);

	ck_assert_ptr_nonnull(key);
	ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	X509_gmtime_adj(X509_getm_notBefore(x), -1000);
	X509_gmtime_adj(X509_getm_notAfter(x), 1000000);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const uint8_t *)"127.0.0.1", -1,
				   -1, 0);
	X509_set_issuer_name(x, name);
	X509_set_pubkey(x, key);
	ck_assert_int_gt(X509_sign(x, key, EVP_sha256()), 0);
	ck_assert_int_eq(SSL_CTX_use_certificate(context, x), 1);
	ck_assert_int_eq(SSL_CTX_use_PrivateKey(context, key), 1);
	X509_free(x);
	EVP_PKEY_free(key);
}

static void *serve_with_certificate(void *arg)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	SSL *ssl;
	int fd = accept(*(int *)arg, NULL, NULL);
	long got = 0;

	certify(context);
	ssl = SSL_new(context);
	SSL_set_fd(ssl, fd);
	if (SSL_accept(ssl) == 1) {
		char bytes[64];

		got = SSL_read(ssl, bytes, sizeof(bytes));
	}
	SSL_free(ssl);
	SSL_CTX_free(context);
	close(fd);
	return (void *)(got > 0 ? got : 0);
}

/* TLS without the job's key would be safe from nobody who stands between the two. */
START_TEST(a_server_with_a_certificate_and_no_key_is_refused)
{
	char address[64];
	int server = listen_anywhere(address);
	pthread_t thread;
	uint32_t peer;
	void *got;

	signal(SIGPIPE, SIG_IGN);
	side_open(&sides[0], &variants[TLS]);
	ck_assert_int_eq(pthread_create(&thread, NULL, serve_with_certificate, &server), 0);
	ck_assert_int_eq(transport_tls.connect(sides[0].t, address, &peer), 0);
	ck_assert_int_eq(side_send(&sides[0], peer, "secret", 6), 0);
	wait_until_refused(1, &sides[0], peer);
	close_sides(1);
	pthread_join(thread, &got);
	ck_assert_ptr_null(got);
	close(server);
}
END_TEST

/* ---- somebody between the two ---- */

struct relay {
	int server, ends[2];
	char address[64];
	size_t passed; /* bytes from the client to the server */
	size_t at;     /* of these, where it changes a byte, or hangs up */
	bool hang_up;
	bool done;
};

static void relay_close(struct relay *r)
{
	for (int i = 0; i < 2; i++) {
		if (r->ends[i] >= 0)
			close(r->ends[i]);
		r->ends[i] = -1;
	}
}

/* False: it is to hang up. */
static bool tamper(struct relay *r, uint8_t *bytes, ssize_t *n)
{
	bool here = !r->done && r->at < r->passed + (size_t)*n;

	r->passed += (size_t)*n;
	r->done |= here;
	if (here && r->hang_up)
		*n -= (ssize_t)(r->passed - r->at);
	else if (here)
		bytes[(size_t)*n - (r->passed - r->at)] ^= 1;
	return !(here && r->hang_up);
}

static void relay_turn(struct relay *r, int port)
{
	uint8_t bytes[65536];
	bool goes_on = true;

	if (r->ends[0] < 0) {
		r->ends[0] = accept4(r->server, NULL, NULL, SOCK_NONBLOCK);
		if (r->ends[0] < 0)
			return;
		r->ends[1] = stranger(port);
	}
	for (int i = 0; i < 2 && goes_on; i++) {
		ssize_t n = recv(r->ends[i], bytes, sizeof(bytes), MSG_DONTWAIT);

		if (n > 0 && !i)
			goes_on = tamper(r, bytes, &n);
		if (n > 0)
			goes_on &= send(r->ends[!i], bytes, (size_t)n, MSG_NOSIGNAL) == n;
		else
			goes_on &= n < 0 && errno == EAGAIN;
	}
	if (!goes_on)
		relay_close(r);
}

/* What comes is what was sent, and each at most once, though some is lost. */
static void exchange_through(struct relay *r, bool hang_up, size_t at)
{
	static uint8_t block[50000], got[50000];
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	uint32_t peer, next = 0, n = 0;

	r->hang_up = hang_up;
	r->at = at;
	side_open(&sides[0], &variants[TLS]);
	side_open(&sides[1], &variants[TLS]);
	ck_assert_int_eq(transport_tls.connect(sides[0].t, r->address, &peer), 0);
	while (!r->done || next < 8) { /* until one arrives that was sent after it */
		int before = sides[1].count;

		ck_assert_uint_lt(monotonic_ms(), deadline);
		memset(block, (int)(n & 0xff), sizeof(block));
		memcpy(block, &n, sizeof(n));
		if (n < 8 || r->done) {
			int rc = side_send(&sides[0], peer, block, sizeof(block));

			ck_assert(!rc || rc == -EAGAIN);
			n += !rc;
		}
		relay_turn(r, side_port(&sides[1]));
		sides_poll(sides, 2, 1);
		if (sides[1].count == before)
			continue;
		memcpy(&next, sides[1].data, sizeof(next));
		ck_assert_uint_lt(next, n);
		memset(got, (int)(next & 0xff), sizeof(got));
		memcpy(got, &next, sizeof(next));
		ck_assert_uint_eq(sides[1].size, sizeof(got));
		ck_assert(!memcmp(sides[1].data, got, sizeof(got)));
	}
	close_sides(2);
}

static const size_t places[] = { 3, 40, 300, 320, 400, 470, 20000, 52000, 120001 };

START_TEST(what_is_cut_on_the_way_is_not_delivered)
{
	struct relay r = { .ends = { -1, -1 } };

	r.server = listen_anywhere(r.address);
	ck_assert_int_eq(fcntl(r.server, F_SETFL, O_NONBLOCK), 0);
	exchange_through(&r, true, places[_i]);
	relay_close(&r);
	close(r.server);
}
END_TEST

/* In the handshake it looks like another key: nothing is delivered then. */
START_TEST(what_is_changed_on_the_way_is_not_delivered)
{
	struct relay r = { .ends = { -1, -1 } };

	r.server = listen_anywhere(r.address);
	ck_assert_int_eq(fcntl(r.server, F_SETFL, O_NONBLOCK), 0);
	exchange_through(&r, false, places[_i]);
	relay_close(&r);
	close(r.server);
}
END_TEST

/* ---- bounds ---- */

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
	/* here, and in the kernel */
	ck_assert_int_lt(sent, TRANSPORT_QUEUE_PEER / (int)sizeof(block) + 32);
	ck_assert_int_eq(side_send(&sides[0], sides[0].from, "small", 5), 0);
	before = sides[0].count;
	side_open(&sides[2], &variants[_i]);
	exchange(2, 0, 3); /* others are answered */
	ck_assert_int_eq(side_send(&sides[0], sides[0].from, block, sizeof(block)), 0);
	ck_assert_int_eq(sides[0].count, before + 1);
	sides_wait(sides, 3, 1, sent + 1);
	close_sides(3);
}
END_TEST

enum { BLOCK = 1 << 20, QUESTIONS = 60, ANSWERS_UNDER_WAY = 40 };

static void answer_with_a_block(struct side *s)
{
	static const uint8_t block[BLOCK];

	ck_assert_int_eq(side_send(s, s->from, block, sizeof(block)), 0);
}

/* Else the answers would be copied, to be kept. */
START_TEST(who_does_not_take_answers_is_not_asked_for_more_questions)
{
	uint32_t peer;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	exchange(1, 0, 2);
	sides[0].received = answer_with_a_block;
	peer = side_connect(&sides[1], &sides[0]);
	for (int i = 0; i < QUESTIONS; i++)
		ck_assert_int_eq(side_send(&sides[1], peer, "ask", 3), 0);
	for (int i = 0; i < 50; i++)
		sides_poll(sides, 1, 10);
	ck_assert_int_gt(sides[0].count, 1);
	ck_assert_int_lt(sides[0].count, ANSWERS_UNDER_WAY);
	sides_wait(sides, 2, 1, QUESTIONS);
	ck_assert_uint_eq(sides[1].size, BLOCK);
	sides[0].received = NULL;
	close_sides(2);
}
END_TEST

static void *taken, *given;

static void take_room(struct side *s)
{
	given = aligned_alloc(4096, TRANSPORT_ROOM);
	taken = transport_tls.exchange(s->t, given);
	if (!taken)
		free(given);
}

START_TEST(the_memory_of_a_large_message_is_exchanged)
{
	static uint8_t block[BLOCK];
	void *first, *first_given;
	uint32_t peer;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	exchange(1, 0, 2);
	sides[0].received = take_room;
	peer = side_connect(&sides[1], &sides[0]);
	memset(block, 'a', BLOCK);
	ck_assert_int_eq(side_send(&sides[1], peer, block, BLOCK), 0);
	sides_wait(sides, 2, 0, 2);
	first = taken;
	first_given = given;
	ck_assert(first && !memcmp(first, block, BLOCK));
	memset(block, 'b', BLOCK);
	ck_assert_int_eq(side_send(&sides[1], peer, block, BLOCK), 0);
	sides_wait(sides, 2, 0, 3);
	ck_assert_ptr_eq(taken, first_given); /* it is used again */
	ck_assert(!memcmp(taken, block, BLOCK));
	memset(block, 'a', BLOCK);
	ck_assert(!memcmp(first, block, BLOCK));
	free(first);
	free(taken);
	ck_assert_int_eq(side_send(&sides[1], peer, "small", 5), 0);
	sides_wait(sides, 2, 0, 4);
	ck_assert_ptr_null(taken);
	sides[0].received = NULL;
	close_sides(2);
}
END_TEST

START_TEST(strangers_that_stay_leave_descriptors_to_others)
{
	enum { LIMIT = 256, COME = 150 };
	struct rlimit limit;
	int fds[COME];

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = LIMIT;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	side_open_with(&sides[0], &variants[_i],
		       (struct transport_config){ .bind = "tcp://127.0.0.1", .expected = 2 });
	side_open(&sides[1], &variants[_i]);
	exchange(1, 0, 2);
	for (int i = 0; i < COME; i++) {
		fds[i] = stranger(side_port(&sides[0]));
		sides_poll(sides, 2, 0);
	}
	ck_assert_int_lt(count_sockets(), COME + LIMIT / 4 + 2 + 8);
	exchange(1, 0, 2);
	for (int i = 0; i < COME; i++)
		close(fds[i]);
	side_open(&sides[2], &variants[_i]); /* there is room again */
	exchange(2, 0, 3);
	close_sides(3);
}
END_TEST

/* ---- in somebody else's process ---- */

START_TEST(a_forked_child_keeps_no_socket)
{
	int status, before = count_sockets();
	pid_t pid;

	for (int i = 0; i < 3; i++)
		side_open(&sides[i], &variants[TLS]);
	exchange(0, 1, 3);
	exchange(1, 2, 3);
	ck_assert_int_ge(count_sockets(), before + 3 + 2 * 2);
	pid = fork();
	if (!pid) {
		int left = count_sockets() - before;

		close_sides(3);
		_exit(left);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	exchange(0, 1, 3);
	close_sides(3);
}
END_TEST

static void answer(void *owner, uint32_t peer, const void *data, size_t size)
{
	side_send(owner, peer, data, size);
}

/* Asserts nothing: check would write its note of it to the file that it shares with its child,
 * and exit would cut the note in two.
 */
static void *turn_for_ever(void *arg)
{
	struct side *both = arg;

	for (;;)
		for (int i = 0; i < 2; i++)
			transport_tls.turn(both[i].t, answer, &both[i], 1);
	return NULL;
}

/* OpenSSL ends with the process, in a function of atexit. */
START_TEST(a_process_may_exit_while_its_engines_go_on)
{
	for (int i = 0; i < 10; i++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			static uint8_t block[100000];
			pthread_t thread;

			alarm(30);
			side_open(&sides[0], &variants[TLS]);
			side_open(&sides[1], &variants[TLS]);
			side_send(&sides[0], side_connect(&sides[0], &sides[1]), block,
				  sizeof(block));
			pthread_create(&thread, NULL, turn_for_ever, sides);
			usleep((useconds_t)(20000 + i * 300));
			exit(0);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("transport-tls");
	TCase *t = tcase_create("transport-tls");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, what_cannot_be_bound_is_refused);
	tcase_add_test(t, too_few_descriptors_are_an_error);
	tcase_add_test(t, who_has_no_key_does_not_get_in);
	tcase_add_test(t, who_has_a_key_does_not_get_into_a_plain_one);
	tcase_add_test(t, who_has_another_key_does_not_get_in);
	tcase_add_test(t, a_reader_that_says_it_has_the_jobs_key_does_not_get_in);
	tcase_add_test(t, a_reader_is_known_as_one);
	tcase_add_test(t, a_reader_serves_nobody);
	tcase_add_loop_test(t, garbage_is_not_delivered_and_changes_nothing, TLS_PLAIN,
			    TLS + 1);
	tcase_add_loop_test(t, who_answers_garbage_can_be_connected_anew, TLS_PLAIN, TLS + 1);
	tcase_add_test(t, a_server_with_a_certificate_and_no_key_is_refused);
	tcase_add_loop_test(t, what_is_cut_on_the_way_is_not_delivered, 0, ARRAY_SIZE(places));
	tcase_add_loop_test(t, what_is_changed_on_the_way_is_not_delivered, 6,
			    ARRAY_SIZE(places));
	tcase_add_loop_test(t, who_asks_and_does_not_take_has_a_bounded_number_of_bytes_kept,
			    TLS_PLAIN, TLS + 1);
	tcase_add_loop_test(t, who_does_not_take_answers_is_not_asked_for_more_questions,
			    TLS_PLAIN, TLS + 1);
	tcase_add_loop_test(t, the_memory_of_a_large_message_is_exchanged, TLS_PLAIN, TLS + 1);
	tcase_add_loop_test(t, strangers_that_stay_leave_descriptors_to_others, TLS_PLAIN,
			    TLS + 1);
	tcase_add_test(t, a_forked_child_keeps_no_socket);
	tcase_add_test(t, a_process_may_exit_while_its_engines_go_on);
	return run_suite(s, t);
}

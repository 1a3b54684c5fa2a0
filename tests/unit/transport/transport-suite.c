/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/transport/transport-suite.h"
#include "tests/unit/transport/transports.h"

#include <pthread.h>

static struct side sides[SIDES_MAX];
static int nsides;

static void open_sides(int variant, int n)
{
	for (nsides = 0; nsides < n; nsides++)
		side_open(&sides[nsides], &variants[variant]);
}

static void open_sides_with(int variant, int n, struct transport_config config)
{
	config.bind = variants[variant].bind;
	for (nsides = 0; nsides < n; nsides++)
		side_open_with(&sides[nsides], &variants[variant], config);
}

static void close_sides(void)
{
	while (nsides)
		side_close(&sides[--nsides]);
}

static uint32_t number_from(const struct side *s)
{
	uint32_t number;

	ck_assert_uint_eq(s->size, sizeof(number));
	memcpy(&number, s->data, sizeof(number));
	return number;
}

static void expect_next(struct side *s)
{
	ck_assert_uint_eq(number_from(s), (uint32_t)s->count - 1);
}

/* Sends or, where the queue is full, lets the others read. */
static void send_surely(struct side *s, uint32_t peer, const void *data, size_t size)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	int rc;

	while ((rc = side_send(s, peer, data, size)) == -EAGAIN) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(sides, nsides, 10);
	}
	ck_assert_int_eq(rc, 0);
}

START_TEST(messages_arrive_once_and_in_order)
{
	uint32_t peer;

	open_sides(_i, 2);
	sides[1].received = expect_next;
	peer = side_connect(&sides[0], &sides[1]);
	for (uint32_t i = 0; i < 3000; i++)
		send_surely(&sides[0], peer, &i, sizeof(i));
	sides_wait(sides, 2, 1, 3000);
	sides_poll(sides, 2, 0);
	ck_assert_int_eq(sides[1].count, 3000);
	close_sides();
}
END_TEST

START_TEST(parts_arrive_as_one_message)
{
	struct iovec parts[] = { { (void *)(uintptr_t) "ab", 2 },
				 { NULL, 0 },
				 { (void *)(uintptr_t) "cde", 3 } };

	open_sides(_i, 2);
	ck_assert_int_eq(sides[0].ops->send(sides[0].t, side_connect(&sides[0], &sides[1]),
					    parts, ARRAY_SIZE(parts)),
			 0);
	sides_wait(sides, 2, 1, 1);
	ck_assert_uint_eq(sides[1].size, 5);
	ck_assert_mem_eq(sides[1].data, "abcde", 5);
	close_sides();
}
END_TEST

static void answer_the_same(struct side *s)
{
	ck_assert_int_eq(side_send(s, s->from, s->data, s->size), 0);
}

START_TEST(answers_come_back_from_the_number_sent_to)
{
	uint32_t peer[3];

	open_sides(_i, 4);
	sides[3].received = answer_the_same;
	for (uint32_t i = 0; i < 3; i++) {
		peer[i] = side_connect(&sides[i], &sides[3]);
		send_surely(&sides[i], peer[i], &i, sizeof(i));
	}
	for (uint32_t i = 0; i < 3; i++) {
		sides_wait(sides, 4, (int)i, 1);
		ck_assert_uint_eq(sides[i].from, peer[i]);
		ck_assert_uint_eq(number_from(&sides[i]), i);
	}
	ck_assert_int_eq(sides[3].count, 3);
	close_sides();
}
END_TEST

START_TEST(both_may_connect_each_other)
{
	uint32_t there, back;

	open_sides(_i, 2);
	there = side_connect(&sides[0], &sides[1]);
	back = side_connect(&sides[1], &sides[0]);
	send_surely(&sides[0], there, "there", 5);
	send_surely(&sides[1], back, "back", 4);
	sides_wait(sides, 2, 0, 1);
	sides_wait(sides, 2, 1, 1);
	ck_assert_mem_eq(sides[0].data, "back", 4);
	ck_assert_mem_eq(sides[1].data, "there", 5);
	close_sides();
}
END_TEST

START_TEST(one_may_connect_itself)
{
	open_sides(_i, 1);
	send_surely(&sides[0], side_connect(&sides[0], &sides[0]), "me", 2);
	sides_wait(sides, 1, 0, 1);
	ck_assert_mem_eq(sides[0].data, "me", 2);
	close_sides();
}
END_TEST

START_TEST(sizes_up_to_the_greatest_arrive_and_no_larger_is_sent)
{
	static uint8_t large[TRANSPORT_MESSAGE_MAX + 1];
	const size_t size[] = {
		0, 1, 254, 255, 256, 8191, 8192, 1 << 20, TRANSPORT_MESSAGE_MAX
	};
	uint32_t peer;

	for (size_t i = 0; i < sizeof(large); i++)
		large[i] = (uint8_t)(i * 2654435761u >> 16);
	open_sides(_i, 2);
	peer = side_connect(&sides[0], &sides[1]);
	for (size_t i = 0; i < ARRAY_SIZE(size); i++) {
		send_surely(&sides[0], peer, large, size[i]);
		sides_wait(sides, 2, 1, (int)i + 1);
		ck_assert_uint_eq(sides[1].size, size[i]);
		ck_assert(!memcmp(sides[1].data, large, size[i]));
	}
	ck_assert_int_eq(side_send(&sides[0], peer, large, sizeof(large)), -EMSGSIZE);
	close_sides();
}
END_TEST

START_TEST(a_size_that_overflows_is_too_large)
{
	struct iovec parts[] = { { sides, SIZE_MAX }, { sides, 2 } };

	open_sides(_i, 2);
	ck_assert_int_eq(
		sides[0].ops->send(sides[0].t, side_connect(&sides[0], &sides[1]), parts, 2),
		-EMSGSIZE);
	close_sides();
}
END_TEST

START_TEST(a_full_queue_says_so_and_recovers)
{
	static const uint8_t block[1 << 20];
	uint32_t peer;
	int sent = 0, rc;

	open_sides_with(_i, 2, (struct transport_config){ .queue_max = 4 });
	peer = side_connect(&sides[0], &sides[1]);
	while (!(rc = side_send(&sides[0], peer, block, sizeof(block))))
		ck_assert_int_lt(++sent, 1000);
	ck_assert_int_eq(rc, -EAGAIN);
	ck_assert_int_ge(sent, 4);
	sides_wait(sides, 2, 1, sent);
	send_surely(&sides[0], peer, "more", 4);
	sides_wait(sides, 2, 1, sent + 1);
	ck_assert_uint_eq(sides[1].size, 4);
	close_sides();
}
END_TEST

START_TEST(who_reads_nothing_fills_the_queue)
{
	static const uint8_t block[1 << 20];
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	uint32_t peer;
	int sent = 0, full = 0;

	open_sides_with(_i, 2, (struct transport_config){ .queue_max = 4 });
	peer = side_connect(&sides[0], &sides[1]);
	while (full < 20 && sent < 1000) { /* 20 times in a row: what can flow has flown */
		int rc = side_send(&sides[0], peer, block, sizeof(block));

		ck_assert(!rc || rc == -EAGAIN);
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sent += !rc;
		full = rc ? full + 1 : 0;
		if (rc)
			sides_poll(sides, 1, 10);
	}
	ck_assert_int_lt(sent, 1000);
	sides_wait(sides, 2, 1, sent);
	close_sides();
}
END_TEST

START_TEST(who_is_not_known_is_not_connected)
{
	uint32_t peer;

	open_sides(_i, 2);
	ck_assert_int_eq(side_send(&sides[0], 0, "x", 1), -ENOTCONN);
	ck_assert_int_eq(side_send(&sides[0], UINT32_MAX, "x", 1), -ENOTCONN);
	peer = side_connect(&sides[0], &sides[1]);
	sides[0].ops->disconnect(sides[0].t, peer);
	ck_assert_int_eq(side_send(&sides[0], peer, "x", 1), -ENOTCONN);
	sides[0].ops->disconnect(sides[0].t, peer);
	ck_assert_uint_ne(side_connect(&sides[0], &sides[1]), peer);
	close_sides();
}
END_TEST

START_TEST(who_has_left_is_not_connected)
{
	uint64_t deadline = monotonic_ms() + WAIT_MS;
	int rc;

	open_sides(_i, 2);
	send_surely(&sides[0], side_connect(&sides[0], &sides[1]), "x", 1);
	sides_wait(sides, 2, 1, 1);
	side_close(&sides[0]);
	while ((rc = side_send(&sides[1], sides[1].from, "x", 1)) != -ENOTCONN) {
		ck_assert(!rc || rc == -EAGAIN);
		ck_assert_uint_lt(monotonic_ms(), deadline);
		sides_poll(&sides[1], 1, 10);
	}
	side_close(&sides[1]);
}
END_TEST

START_TEST(connecting_nobody_takes_a_queue_full)
{
	uint32_t peer;
	int rc, sent = 0;

	open_sides_with(_i, 1, (struct transport_config){ .queue_max = 8 });
	ck_assert_int_eq(sides[0].ops->connect(sides[0].t, variants[_i].nobody, &peer), 0);
	while (!(rc = side_send(&sides[0], peer, "x", 1)))
		ck_assert_int_lt(++sent, 1000);
	ck_assert_int_eq(rc, -EAGAIN);
	ck_assert_int_ge(sent, 8);
	close_sides();
}
END_TEST

START_TEST(what_is_no_address_is_refused)
{
	static const char *const bad[] = { "",
					   "nonsense",
					   "tcp://",
					   "tcp://127.0.0.1",
					   "tcp://127.0.0.1:",
					   "tcp://127.0.0.1:0",
					   "tcp://127.0.0.1:65536",
					   "tcp://127.0.0.1:1x",
					   "tcp://:1",
					   "udp://127.0.0.1:1",
					   "ucx://",
					   "ucx://127.0.0.1",
					   "ucx://127.0.0.1:",
					   "ucx://127.0.0.1:0",
					   "ucx://127.0.0.1:65536",
					   "ucx://127.0.0.1:1x",
					   "ucx://127.0.0:1",
					   "ucx://a name of a host:1",
					   "ucx://:1",
					   "loop:",
					   "loop:x",
					   "loop:1x",
					   "loop:-1" };
	uint32_t peer = 77;

	open_sides(_i, 1);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(sides[0].ops->connect(sides[0].t, bad[i], &peer) == -EINVAL, "%s",
			      bad[i]);
	ck_assert_uint_eq(peer, 77);
	close_sides();
}
END_TEST

START_TEST(the_descriptor_stays_readable_until_all_is_taken)
{
	struct pollfd poller;
	uint32_t peer;

	open_sides(_i, 2);
	peer = side_connect(&sides[0], &sides[1]);
	sides[1].turn_max = 1;
	sides[1].received = expect_next;
	for (uint32_t i = 0; i < 200; i++)
		send_surely(&sides[0], peer, &i, sizeof(i));
	sides_wait(sides, 2, 1, 200);
	poller = (struct pollfd){ .fd = sides[1].ops->fd(sides[1].t), .events = POLLIN };
	for (int i = 0; poll(&poller, 1, 0) == 1; i++) { /* and falls silent then */
		ck_assert_int_lt(i, 100);
		side_turn(&sides[1]);
	}
	close_sides();
}
END_TEST

struct volley {
	uint32_t peer;
	int left;
};

static void hit_back(struct side *s)
{
	struct volley *v = s->arg;

	if (v->left && v->left--)
		ck_assert_int_eq(side_send(s, v->peer, s->data, s->size), 0);
}

/* libzmq's descriptor tells of news once, to whatever call looks first: here it is often send.
 */
START_TEST(no_wakeup_is_lost_while_both_send)
{
	struct volley volley[2] = { { .left = 2000 }, { .left = 2000 } };

	open_sides(_i, 2);
	for (int i = 0; i < 2; i++) {
		volley[i].peer = side_connect(&sides[i], &sides[!i]);
		sides[i].arg = &volley[i];
		sides[i].received = hit_back;
		sides[i].turn_max = 1;
	}
	for (uint32_t i = 0; i < 20; i++)
		send_surely(&sides[i % 2], volley[i % 2].peer, &i, sizeof(i));
	sides_wait(sides, 2, 0, 2010);
	sides_wait(sides, 2, 1, 2010);
	close_sides();
}
END_TEST

static void *play(void *arg)
{
	struct side *s = arg;

	sides_wait(s, 1, 0, 510);
	return NULL;
}

START_TEST(each_may_have_a_thread_of_its_own)
{
	struct volley volley[4];
	pthread_t thread[4];

	open_sides(_i, 4);
	for (int i = 0; i < 4; i++) {
		volley[i] = (struct volley){ side_connect(&sides[i], &sides[i ^ 1]), 500 };
		sides[i].arg = &volley[i];
		sides[i].received = hit_back;
		for (uint32_t j = 0; j < 10; j++)
			send_surely(&sides[i], volley[i].peer, &j, sizeof(j));
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, play, &sides[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	close_sides();
}
END_TEST

START_TEST(no_more_peers_than_peers_max)
{
	uint32_t peer[4];

	open_sides_with(_i, 5, (struct transport_config){ .peers_max = 3 });
	for (int i = 0; i < 3; i++)
		peer[i] = side_connect(&sides[0], &sides[i + 1]);
	ck_assert_int_eq(
		sides[0].ops->connect(sides[0].t, sides[4].ops->address(sides[4].t), &peer[3]),
		-ENFILE);
	sides[0].ops->disconnect(sides[0].t, peer[1]);
	peer[3] = side_connect(&sides[0], &sides[4]);
	ck_assert_int_eq(side_send(&sides[0], peer[1], "x", 1), -ENOTCONN);
	close_sides();
}
END_TEST

START_TEST(who_was_heard_least_recently_makes_room)
{
	uint32_t out[4], in[4];

	open_sides_with(_i, 5, (struct transport_config){ .peers_max = 3 });
	for (int i = 0; i < 3; i++) {
		out[i] = side_connect(&sides[i], &sides[4]);
		send_surely(&sides[i], out[i], "x", 1);
		sides_wait(sides, 5, 4, i + 1);
		in[i] = sides[4].from;
	}
	send_surely(&sides[0], out[0], "x", 1); /* so it is 1 */
	sides_wait(sides, 5, 4, 4);
	ck_assert_uint_eq(sides[4].from, in[0]);
	out[3] = side_connect(&sides[3], &sides[4]);
	send_surely(&sides[3], out[3], "x", 1);
	sides_wait(sides, 5, 4, 5);
	in[3] = sides[4].from;
	ck_assert_int_eq(side_send(&sides[4], in[1], "x", 1), -ENOTCONN);
	ck_assert_int_eq(side_send(&sides[4], in[0], "0", 1), 0);
	ck_assert_int_eq(side_send(&sides[4], in[3], "3", 1), 0);
	sides_wait(sides, 5, 0, 1);
	sides_wait(sides, 5, 3, 1);
	send_surely(&sides[1], out[1], "x", 1); /* it comes again, by another number */
	sides_wait(sides, 5, 4, 6);
	ck_assert_uint_ne(sides[4].from, in[1]);
	send_surely(&sides[4], sides[4].from, "1", 1);
	sides_wait(sides, 5, 1, 1);
	close_sides();
}
END_TEST

TCase *transport_case(int variant, const TTest *const *tests, size_t n)
{
	TCase *t = tcase_create(variants[variant].name);

	tcase_set_timeout(t, 60);
	for (size_t i = 0; i < n; i++)
		tcase_add_loop_test(t, tests[i], variant, variant + 1);
	return t;
}

TCase *transport_suite(int variant)
{
	const TTest *const tests[] = {
		messages_arrive_once_and_in_order,
		parts_arrive_as_one_message,
		answers_come_back_from_the_number_sent_to,
		both_may_connect_each_other,
		one_may_connect_itself,
		sizes_up_to_the_greatest_arrive_and_no_larger_is_sent,
		a_size_that_overflows_is_too_large,
		a_full_queue_says_so_and_recovers,
		who_reads_nothing_fills_the_queue,
		who_is_not_known_is_not_connected,
		who_has_left_is_not_connected,
		connecting_nobody_takes_a_queue_full,
		what_is_no_address_is_refused,
		the_descriptor_stays_readable_until_all_is_taken,
		no_wakeup_is_lost_while_both_send,
		each_may_have_a_thread_of_its_own,
		no_more_peers_than_peers_max,
		who_was_heard_least_recently_makes_room,
	};
	return transport_case(variant, tests, ARRAY_SIZE(tests));
}

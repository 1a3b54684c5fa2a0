/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/transport/transport-suite.h"
#include "tests/unit/transport/transports.h"

#include <stdio.h>

enum { ADDRESS = 64 };

static struct side sides[3];

static void address_of(const struct side *s, char address[ADDRESS])
{
	snprintf(address, ADDRESS, "%s", s->ops->address(s->t));
}

static void open_at(struct side *s, int variant, const char *address)
{
	side_open_with(s, &variants[variant], (struct transport_config){ .bind = address });
}

/* ---- addresses ---- */

START_TEST(a_free_port_lies_below_the_ephemeral_ones)
{
	char address[ADDRESS];
	const char *colon;
	int port;

	side_open(&sides[0], &variants[_i]);
	address_of(&sides[0], address);
	colon = strrchr(address, ':');
	port = atoi(colon + 1);
	ck_assert_int_ge(port, 20000);
	ck_assert_int_le(port, 32767);
	ck_assert_uint_eq(colon - address, strlen(variants[_i].bind));
	ck_assert(!strncmp(address, variants[_i].bind, strlen(variants[_i].bind)));
	side_close(&sides[0]);
}
END_TEST

START_TEST(an_exact_port_is_taken_and_free_again_after_close)
{
	struct transport_config config = { .key = variants[_i].key, .devices = "lo" };
	char address[ADDRESS];
	struct transport *t;

	side_open(&sides[0], &variants[_i]);
	address_of(&sides[0], address);
	config.bind = address;
	ck_assert_int_eq(variants[_i].ops->open(&t, &config), -EADDRINUSE);
	side_close(&sides[0]);
	for (int i = 0; i < 3; i++) {
		open_at(&sides[0], _i, address);
		ck_assert_str_eq(sides[0].ops->address(sides[0].t), address);
		side_close(&sides[0]);
	}
}
END_TEST

/* ---- peers that come and go ---- */

/* Who side 0 says has gone. */
static uint32_t next_gone(void)
{
	uint64_t end = monotonic_ms() + WAIT_MS;
	uint32_t gone;

	while (!sides[0].ops->gone(sides[0].t, &gone)) {
		ck_assert_uint_lt(monotonic_ms(), end);
		sides_poll(sides, 1, 20);
	}
	return gone;
}

START_TEST(that_nobody_listens_any_more_is_told)
{
	uint32_t peer, gone;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	peer = side_connect(&sides[0], &sides[1]);
	ck_assert_int_eq(side_send(&sides[0], peer, "here", 4), 0);
	sides_wait(sides, 2, 1, 1);
	ck_assert(!sides[0].ops->gone(sides[0].t, &gone));
	side_close(&sides[1]);
	ck_assert_uint_eq(next_gone(), peer);
	side_close(&sides[0]);
}
END_TEST

START_TEST(that_who_connected_to_us_has_gone_is_told)
{
	uint32_t peers[2], gone;

	side_open(&sides[0], &variants[_i]);
	for (int i = 0; i < 2; i++) {
		open_at(&sides[1 + i], _i, NULL);
		ck_assert_int_eq(side_send(&sides[1 + i],
					   side_connect(&sides[1 + i], &sides[0]), "good", 4),
				 0);
		sides_wait(sides, 2 + i, 0, 1 + i);
		peers[i] = sides[0].from;
	}
	ck_assert(!sides[0].ops->gone(sides[0].t, &gone));
	side_close(&sides[1]);
	ck_assert_uint_eq(next_gone(), peers[0]);
	ck_assert(!sides[0].ops->gone(sides[0].t, &gone));
	ck_assert_int_eq(side_send(&sides[0], peers[0], "none", 4), -ENOTCONN);
	ck_assert_int_eq(side_send(&sides[0], peers[1], "back", 4), 0);
	sides[1] = sides[2];
	sides_wait(sides, 2, 1, 1);
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

START_TEST(all_that_it_sent_comes_before_that_it_has_gone)
{
	enum { MESSAGES = 20 };
	uint32_t peer;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	peer = side_connect(&sides[0], &sides[1]);
	ck_assert_int_eq(side_send(&sides[0], peer, "here", 4), 0);
	sides_wait(sides, 2, 1, 1);
	for (int i = 0; i < MESSAGES; i++)
		ck_assert_int_eq(side_send(&sides[1], sides[1].from, "last", 4), 0);
	side_close(&sides[1]);
	sides[0].turn_max = 1;
	ck_assert_uint_eq(next_gone(), peer);
	ck_assert_int_eq(sides[0].count, MESSAGES);
	side_close(&sides[0]);
}
END_TEST

static void send_until_it_arrives(uint32_t peer, const char *text)
{
	uint64_t end = monotonic_ms() + WAIT_MS;

	while (!sides[1].count) {
		ck_assert_uint_lt(monotonic_ms(), end);
		side_send(&sides[0], peer, text, strlen(text));
		sides_poll(sides, 2, 20);
	}
	ck_assert_mem_eq(sides[1].data, text, strlen(text));
}

START_TEST(who_comes_later_at_the_address_gets_what_was_sent)
{
	char address[ADDRESS];
	uint32_t peer;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	address_of(&sides[1], address);
	side_close(&sides[1]);
	ck_assert_int_eq(sides[0].ops->connect(sides[0].t, address, &peer), 0);
	ck_assert_int_eq(side_send(&sides[0], peer, "early", 5), 0);
	for (int i = 0; i < 3; i++)
		sides_poll(sides, 1, 20);
	open_at(&sides[1], _i, address);
	sides_wait(sides, 2, 1, 1);
	ck_assert_mem_eq(sides[1].data, "early", 5);
	side_close(&sides[1]); /* and one who comes back */
	open_at(&sides[1], _i, address);
	send_until_it_arrives(peer, "again");
	side_close(&sides[0]);
	side_close(&sides[1]);
}
END_TEST

START_TEST(what_was_sent_just_before_close_arrives)
{
	uint32_t peer;

	side_open(&sides[0], &variants[_i]);
	side_open(&sides[1], &variants[_i]);
	peer = side_connect(&sides[1], &sides[0]);
	ck_assert_int_eq(side_send(&sides[1], peer, "hello", 5), 0);
	sides_wait(sides, 2, 0, 1);
	ck_assert_int_eq(side_send(&sides[1], peer, "bye", 3), 0);
	side_close(&sides[1]);
	sides_wait(sides, 1, 0, 2);
	ck_assert_mem_eq(sides[0].data, "bye", 3);
	side_close(&sides[0]);
}
END_TEST

TCase *transport_suite_listening(int variant)
{
	const TTest *const tests[] = {
		a_free_port_lies_below_the_ephemeral_ones,
		an_exact_port_is_taken_and_free_again_after_close,
		that_nobody_listens_any_more_is_told,
		that_who_connected_to_us_has_gone_is_told,
		all_that_it_sent_comes_before_that_it_has_gone,
		who_comes_later_at_the_address_gets_what_was_sent,
		what_was_sent_just_before_close_arrives,
	};
	return transport_case(variant, tests, ARRAY_SIZE(tests));
}

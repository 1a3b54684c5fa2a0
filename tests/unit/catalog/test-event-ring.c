/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/event-ring.h"
#include "tests/run-suite.h"

#include <string.h>

static struct event_ring events;
static char out[4 * EVENT_RING_LINE_MAX];

static void add(int n)
{
	event_ring_add(&events, json_pack("{s:i}", "n", n));
}

static void setup(void)
{
	memset(&events, 0, sizeof(events));
}

static void teardown(void)
{
	event_ring_fini(&events);
}

START_TEST(lines_come_in_order_and_once)
{
	uint64_t after = 0;

	add(1);
	add(2);
	ck_assert_uint_eq(event_ring_read(&events, &after, out, sizeof(out)), 16);
	ck_assert_mem_eq(out, "{\"n\":1}\n{\"n\":2}\n", 16);
	ck_assert_uint_eq(after, 2);
	ck_assert_uint_eq(event_ring_read(&events, &after, out, sizeof(out)), 0);
	add(3);
	ck_assert_uint_eq(event_ring_read(&events, &after, out, sizeof(out)), 8);
	ck_assert_mem_eq(out, "{\"n\":3}\n", 8);
}
END_TEST

START_TEST(who_is_too_slow_hears_how_many_were_lost)
{
	uint64_t after = 1;

	for (int n = 1; n <= EVENT_RING_KEPT + 12; n++)
		add(n);
	event_ring_read(&events, &after, out, sizeof(out));
	ck_assert_mem_eq(out, "{\"event\":\"lost\",\"count\":11}\n{\"n\":13}\n", 37);
	ck_assert_uint_eq(after, events.count);
}
END_TEST

START_TEST(lines_are_whole_and_the_rest_waits)
{
	CLEANUP(free) char *text = calloc(1, EVENT_RING_LINE_MAX);
	uint64_t after = 0;
	size_t n;

	memset(text, 'x', EVENT_RING_LINE_MAX / 2);
	for (int i = 0; i < 3; i++)
		event_ring_add(&events, json_pack("{s:s}", "t", text));
	n = event_ring_read(&events, &after, out, EVENT_RING_LINE_MAX);
	ck_assert_uint_eq(after, 1);
	ck_assert_int_eq(out[n - 1], '\n');
	event_ring_read(&events, &after, out, sizeof(out));
	ck_assert_uint_eq(after, 3);
}
END_TEST

START_TEST(what_has_no_line_is_dropped)
{
	CLEANUP(free) char *text = calloc(1, EVENT_RING_LINE_MAX + 1);

	memset(text, 'x', EVENT_RING_LINE_MAX);
	event_ring_add(&events, json_pack("{s:s}", "t", text));
	event_ring_add(&events, NULL);
	ck_assert_uint_eq(events.count, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("events");
	TCase *t = tcase_create("events");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, lines_come_in_order_and_once);
	tcase_add_test(t, who_is_too_slow_hears_how_many_were_lost);
	tcase_add_test(t, lines_are_whole_and_the_rest_waits);
	tcase_add_test(t, what_has_no_line_is_dropped);
	return run_suite(s, t);
}

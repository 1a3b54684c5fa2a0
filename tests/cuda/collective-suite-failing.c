/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/collective-suite.h"

#include <errno.h>
#include <string.h>

/* How communicators fail, begin and end. */

enum { SIZE = 100000, WAIT_MS = 30000, STUCK_MS = 300 };

/* ---- what fails ---- */

static struct collective_options in_a_hurry(void)
{
	struct collective_options before = collective_test_options;

	collective_test_options.stuck_ms = collective_test_options.wait_ms = STUCK_MS;
	collective_test_options.end_ms = many->end_ms;
	return before;
}

static void hurried_open(void)
{
	in_a_hurry();
	many_open();
}

static void expect_failed(unsigned rank, int error)
{
	struct collective_about about;
	struct part p = { .io = { .nmoves = 0 } };

	ck_assert_int_eq(many->ops->state(ranks[rank]), error);
	ck_assert_int_eq(part_start(rank, &p), error);
	many->ops->about(ranks[rank], &about);
	ck_assert_int_eq(about.state, error);
	ck_assert_str_ne(about.error, "");
}

static void expect_over(unsigned rank)
{
	uint64_t end = monotonic_ms() + WAIT_MS;

	while (!many->ops->is_over(ranks[rank]) && monotonic_ms() < end)
		short_pause();
	ck_assert(many->ops->is_over(ranks[rank]));
}

static void start_receiving(struct part *p, struct collective_move *m, void *to)
{
	*m = (struct collective_move){ false, many->nranks - 1, SIZE, to };
	start_moves(0, p, m, 1);
}

START_TEST(a_peer_that_does_not_come_is_timed_out)
{
	uint64_t began = monotonic_ms();
	struct collective_move m;
	struct part p[2];
	void *to;

	if (many->nranks == 1)
		return;
	to = here->alloc(0, SIZE);
	start_receiving(&p[0], &m, to);
	start_moves(0, &p[1], NULL, 0);
	ck_assert_int_eq(part_wait(&p[0]), -ETIMEDOUT);
	ck_assert_int_eq(part_wait(&p[1]), -ETIMEDOUT);
	ck_assert_uint_ge(monotonic_ms() - began, 300);
	expect_failed(0, -ETIMEDOUT);
	here->free(to);
}
END_TEST

START_TEST(an_event_that_does_not_come_is_timed_out)
{
	void *stream = here->stream_new(0);
	struct device_event *event;
	struct part p = { .io = { .nmoves = 0 } };
	int rc;

	here->hold(stream);
	ck_assert_int_eq(here->ops->mark(device, 0, stream, &event), 0);
	p.io.after = event;
	ck_assert_int_eq(part_start(0, &p), 0);
	rc = part_wait(&p);
	ck_assert(rc == -ETIMEDOUT || rc == -EIO); /* the library may not let go */
	expect_failed(0, -ETIMEDOUT);
	here->go(stream);
	here->ops->unmark(device, event);
	here->stream_free(stream);
}
END_TEST

/* For longer than an operation may take: it, and one behind it, have their time from when they
 * can begin.
 */
START_TEST(a_stream_that_is_busy_takes_none_of_its_time)
{
	uint64_t until = monotonic_ms() + 2 * STUCK_MS;
	struct collective_options before = in_a_hurry();
	struct collective_move m[2];
	struct device_event *event;
	struct part p[2];
	void *stream, *to, *from;

	collective_test_options.wait_ms = WAIT_MS;
	many_open();
	stream = here->stream_new(0);
	to = here->alloc(0, SIZE);
	from = here->alloc(0, SIZE);
	m[0] = (struct collective_move){ true, 0, SIZE, from };
	m[1] = (struct collective_move){ false, 0, SIZE, to };
	here->hold(stream);
	ck_assert_int_eq(here->ops->mark(device, 0, stream, &event), 0);
	p[0].io = (struct collective_io){ .nmoves = 2, .moves = m, .after = event };
	ck_assert_int_eq(part_start(0, &p[0]), 0);
	start_moves(0, &p[1], m, 2);
	while (monotonic_ms() < until)
		short_pause();
	ck_assert(!part_is_over(&p[0]) && !part_is_over(&p[1]));
	here->go(stream);
	expect_done(p, 2);
	here->ops->unmark(device, event);
	here->stream_free(stream);
	here->free(from);
	here->free(to);
	many_close();
	collective_test_options = before;
}
END_TEST

START_TEST(abort_ends_what_is_under_way)
{
	struct collective_move m;
	struct part p;
	void *to;

	if (many->nranks == 1)
		return;
	to = here->alloc(0, SIZE);
	start_receiving(&p, &m, to);
	ck_assert(!many->ops->is_over(ranks[0]));
	many->ops->abort(ranks[0]);
	ck_assert_int_eq(part_wait(&p), -ECANCELED);
	expect_failed(0, -ECANCELED);
	expect_over(0);
	many->ops->abort(ranks[0]);
	expect_failed(0, -ECANCELED);
	here->free(to);
}
END_TEST

START_TEST(abort_with_nothing_under_way)
{
	many->ops->abort(ranks[0]);
	expect_failed(0, -ECANCELED);
	expect_over(0);
}
END_TEST

START_TEST(close_ends_what_is_under_way)
{
	struct collective_move m;
	struct part p;
	void *to;

	many_open();
	to = here->alloc(0, SIZE);
	if (many->nranks > 1) {
		start_receiving(&p, &m, to);
		ranks_close(many->nranks);
		ck_assert_int_eq(part_wait(&p), -ECANCELED);
	} else {
		ranks_close(many->nranks);
	}
	here->free(to);
	port_close();
}
END_TEST

START_TEST(after_a_failure_those_that_are_left_go_on)
{
	uint8_t *memory;
	struct collective_move moves[2];
	struct part p[2];
	unsigned n;

	in_a_hurry();
	many_open();
	n = many->nranks > 1 ? many->nranks - 1 : 1;
	for (unsigned r = 0; r < many->nranks; r++)
		many->ops->abort(ranks[r]);
	ranks_close(many->nranks);
	collective_test_options.stuck_ms = 20000;
	ranks_open(n);
	expect_ready(n);
	memory = device_bytes(0, 2 * SIZE);
	moves[0] = (struct collective_move){ true, 0, SIZE, memory };
	moves[1] = (struct collective_move){ false, 0, SIZE, memory + SIZE };
	start_moves(0, &p[0], moves, 2);
	expect_done(p, 1);
	expect_on_device(memory + SIZE, 0, 0, SIZE);
	here->free(memory);
	ranks_close(n);
	port_close();
}
END_TEST

/* ---- how it begins ---- */

START_TEST(a_rank_that_does_not_come_is_not_waited_for)
{
	collective_test_options.open_ms = 300;
	port_open();
	open_some(1, 2);
	ck_assert_int_eq(rank_opened(0), -ETIMEDOUT);
	expect_failed(0, -ETIMEDOUT);
	ranks_close(1);
	port_close();
}
END_TEST

START_TEST(what_is_being_opened_can_be_closed)
{
	struct collective_id a, b;
	struct part p = { .io = { .nmoves = 0 } };

	port_open();
	open_some(1, 2);
	a = wait_for_id(ranks[0]);
	ck_assert_int_eq(many->ops->state(ranks[0]), -EINPROGRESS);
	ck_assert_int_eq(part_start(0, &p), -EINPROGRESS);
	ranks_close(1);
	open_some(1, 2);
	b = wait_for_id(ranks[0]);
	ck_assert_mem_ne(&a, &b, sizeof(a));
	many->ops->abort(ranks[0]);
	ck_assert_int_eq(rank_opened(0), -ECANCELED);
	ranks_close(1);
	port_close();
}
END_TEST

START_TEST(options_are_checked)
{
	struct collective_options o;

	port_open();
	o = options_of(0);
	ck_assert_int_eq(many->ops->open(&ranks[0], &o, 0, 0, NULL), -EINVAL);
	ck_assert_int_eq(many->ops->open(&ranks[0], &o, 1, 1, NULL), -EINVAL);
	ck_assert_int_eq(many->ops->open(&ranks[0], &o, 0, 1u << 31, NULL), -EINVAL);
	port_close();
}
END_TEST

TCase *collective_suite_failing(void)
{
	TCase *c = tcase_create("failing");

	tcase_add_checked_fixture(c, hurried_open, many_close);
	tcase_add_test(c, a_peer_that_does_not_come_is_timed_out);
	tcase_add_test(c, an_event_that_does_not_come_is_timed_out);
	tcase_add_test(c, abort_ends_what_is_under_way);
	tcase_add_test(c, abort_with_nothing_under_way);
	return c;
}

TCase *collective_suite_opening(void)
{
	TCase *c = tcase_create("opening");

	tcase_add_test(c, a_stream_that_is_busy_takes_none_of_its_time);
	tcase_add_test(c, close_ends_what_is_under_way);
	tcase_add_test(c, after_a_failure_those_that_are_left_go_on);
	tcase_add_test(c, a_rank_that_does_not_come_is_not_waited_for);
	tcase_add_test(c, what_is_being_opened_can_be_closed);
	tcase_add_test(c, options_are_checked);
	return c;
}

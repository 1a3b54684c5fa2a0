/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ports/collective-host.h"
#include "tests/cuda/collective-suite.h"
#include "tests/ranks/scarce.h"

#include <errno.h>

/* The suite over collective-host.c, and how that is made to fail. */

static const struct many host = { &collective_host, &trainer_host, 3, 1000 };

/* Without a device: memory of the process. */
static void open_bare(void)
{
	struct collective_id id;

	ck_assert_int_eq(collective_host.open(&ranks[0], &collective_test_options, 0, 2, NULL),
			 0);
	ck_assert_int_eq(collective_host.id(ranks[0], &id), 0);
	ck_assert_int_eq(collective_host.open(&ranks[1], &collective_test_options, 1, 2, &id),
			 0);
	ck_assert_int_eq(rank_opened(0), 0);
	ck_assert_int_eq(rank_opened(1), 0);
}

static void close_bare(void)
{
	ranks_close(2);
}

static int start_move(unsigned rank, struct part *p, struct collective_move *m, bool to_peer,
		      uint64_t size)
{
	static uint8_t memory[2][100];

	*m = (struct collective_move){ to_peer, !rank, size, memory[rank] };
	p->io = (struct collective_io){ .nmoves = 1, .moves = m };
	return part_start(rank, p);
}

START_TEST(a_rank_that_is_held_is_silent)
{
	struct collective_move m[2];
	struct part p[2];

	collective_host_hold(ranks[1], true);
	ck_assert_int_eq(start_move(0, &p[0], &m[0], true, 100), 0);
	ck_assert_int_eq(start_move(1, &p[1], &m[1], false, 100), 0);
	ck_assert(!part_is_over(&p[0]) && !part_is_over(&p[1]));
	collective_host_hold(ranks[1], false);
	ck_assert_int_eq(part_wait(&p[0]), 0);
	ck_assert_int_eq(part_wait(&p[1]), 0);
}
END_TEST

START_TEST(a_rank_that_is_broken_fails)
{
	struct collective_move m;
	struct part p;

	ck_assert_int_eq(start_move(0, &p, &m, true, 100), 0);
	collective_host_break(ranks[0]);
	ck_assert_int_eq(part_wait(&p), -EIO);
	ck_assert_int_eq(collective_host.state(ranks[0]), -EIO);
	ck_assert_int_eq(collective_host.state(ranks[1]), 0);
}
END_TEST

START_TEST(sizes_that_differ_fail_on_both_sides)
{
	struct collective_move m[2];
	struct part p[2];

	ck_assert_int_eq(start_move(0, &p[0], &m[0], true, 100), 0);
	ck_assert_int_eq(start_move(1, &p[1], &m[1], false, 99), 0);
	ck_assert_int_eq(part_wait(&p[0]), -EIO);
	ck_assert_int_eq(part_wait(&p[1]), -EIO);
}
END_TEST

START_TEST(a_rank_is_there_once)
{
	struct collective_id id;
	struct collective *c;

	ck_assert_int_eq(collective_host.id(ranks[0], &id), 0);
	ck_assert_int_eq(collective_host.open(&c, &collective_test_options, 1, 2, &id),
			 -EINVAL);
	ck_assert_int_eq(collective_host.open(&c, &collective_test_options, 2, 3, &id),
			 -EINVAL);
}
END_TEST

static void ignore(struct collective_io *io, int result)
{
}

static int open_and_launch(void)
{
	struct collective_options o = collective_test_options;
	struct part p = { .io = { .nmoves = 0 } };
	struct collective *c;
	int rc = collective_host.open(&c, &o, 0, 1, NULL);

	if (rc)
		return rc;
	p.io.done = ignore;
	rc = collective_host.launch(c, &p.io);
	collective_host.close(c);
	return rc;
}

START_TEST(without_memory_or_threads_nothing_is_opened_or_launched)
{
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = open_and_launch();
		failed = scarce_end();
		ck_assert(failed ? rc == -ENOMEM || rc == -EAGAIN : !rc);
	} while (failed);
	ck_assert_uint_gt(n, 4);
}
END_TEST

int main(void)
{
	TCase *c = tcase_create("host");

	tcase_add_checked_fixture(c, open_bare, close_bare);
	tcase_add_test(c, a_rank_that_is_held_is_silent);
	tcase_add_test(c, a_rank_that_is_broken_fails);
	tcase_add_test(c, sizes_that_differ_fail_on_both_sides);
	tcase_add_test(c, a_rank_is_there_once);
	tcase_add_test(c, without_memory_or_threads_nothing_is_opened_or_launched);
	return collective_suite_run(&host, (TCase *const[]){ c, NULL });
}

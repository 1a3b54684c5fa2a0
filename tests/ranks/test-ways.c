/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"

#include "engine/collective-host.h"
#include "engine/communicator.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* By which library ranks' devices are connected: all by the same, by another when one cannot. */

enum { WORLD = 3 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };
static const struct collective_options options = { .open_ms = 5000 };

static int open_none(struct collective **c, const struct collective_options *o, unsigned rank,
		     unsigned nranks, const struct collective_id *id)
{
	return -ENODEV;
}

/* By whoever is to join it. */
static int open_alone(struct collective **c, const struct collective_options *o, unsigned rank,
		      unsigned nranks, const struct collective_id *id)
{
	return id ? -EIO : collective_host.open(c, o, rank, nranks, id);
}

/* Fails while it is being opened, as one that finds no library. */
static int be_none(struct collective *c)
{
	return -ENODEV;
}

static struct collective_ops named(const char *name)
{
	struct collective_ops ops = collective_host;

	ops.name = name;
	return ops;
}

static void expect_said(uint32_t rank, const char *what)
{
	struct engine *e = engine_of(rank);
	char *text;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	pthread_mutex_lock(&e->lock);
	communicator_describe(e, out);
	pthread_mutex_unlock(&e->lock);
	fclose(out);
	ck_assert_msg(strstr(text, what) != NULL, "%s", text);
	free(text);
}

static void use_all(const struct collective_ops *ops, const struct collective_ops *other)
{
	boundaries_open(WORLD, &sharded);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(communicator_use(engine_of(rank), ops, &options), 0);
		communicator_may_use(engine_of(rank), other);
	}
}

static void until_connected(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		while (!communicator_number(engine_of(rank)))
			turn(NULL);
}

static void turn_some(unsigned n)
{
	while (n--)
		turn(NULL);
}

static void be_elsewhere(uint32_t rank)
{
	struct launch *l = &engine_of(rank)->launch;

	snprintf(l->host, sizeof(l->host), "elsewhere");
}

START_TEST(another_one_is_tried_where_one_does_not_connect_all)
{
	struct collective_ops first = named("first");

	if (_i == 2)
		first.open = open_alone;
	else if (_i)
		first.open = open_none;
	else
		first.state = be_none;
	use_all(&first, &collective_host);
	until_connected();
	expect_said(0, "connected, ranks 0 1 2\nlibrary host 1, ");
	boundaries_close();
}
END_TEST

START_TEST(what_has_connected_those_that_live_is_kept)
{
	struct collective_ops first = named("first");

	use_all(&first, &collective_host);
	until_connected();
	expect_said(0, "library first 1, ");
	die(2, true);
	while (communicator_ranks(engine_of(0)) != 2 || !communicator_number(engine_of(0)))
		turn(NULL);
	expect_said(0, "connected, ranks 0 1\n");
	expect_said(0, "library first 1, ");
	boundaries_close();
}
END_TEST

START_TEST(one_for_one_host_does_not_connect_several)
{
	struct collective_ops near = named("near");

	near.one_host = true;
	use_all(&near, NULL);
	be_elsewhere(0);
	while (communicator_number(engine_of(0)))
		turn(NULL);
	turn_some(300);
	expect_said(0, "last error: near: ranks are on several hosts\n");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		communicator_may_use(engine_of(rank), &collective_host);
	until_connected();
	expect_said(0, "library host 1, ");
	boundaries_close();
}
END_TEST

START_TEST(who_has_another_one_is_not_connected)
{
	struct collective_ops other = named("other");

	boundaries_open(WORLD, &sharded);
	ck_assert_int_eq(communicator_use(engine_of(0), &collective_host, &options), 0);
	ck_assert_int_eq(communicator_use(engine_of(1), &other, &options), 0);
	turn_some(1000);
	expect_said(0, "last error: rank 1 is not in it: Operation not supported\n");
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ways");
	TCase *t = tcase_create("ways");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, another_one_is_tried_where_one_does_not_connect_all, 0, 3);
	tcase_add_test(t, what_has_connected_those_that_live_is_kept);
	tcase_add_test(t, one_for_one_host_does_not_connect_several);
	tcase_add_test(t, who_has_another_one_is_not_connected);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}

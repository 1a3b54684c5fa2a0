/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/boundaries.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "tests/ports/collective-host.h"
#include "engine/node/peers.h"
#include "engine/rounds/communicator.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Ranks get connected whichever rank fails or is silent meanwhile, and without the library's
 * deadlines, which are an hour.
 */

enum { WORLD = 4, HOUR_MS = 3600000, SILENCE_MS = 20000, BUSY = 1 };

static const struct job_group sharded = { .stage = 2, .nparams = 2, .params = { 0, 1 } };

static void use_library(uint32_t rank, const struct collective_ops *ops)
{
	static const struct collective_options options = { .open_ms = HOUR_MS,
							   .stuck_ms = HOUR_MS };

	ck_assert_int_eq(communicator_use(engine_of(rank), ops, &options), 0);
}

static void use(uint32_t rank)
{
	use_library(rank, &collective_host);
}

static void open_job(void)
{
	boundaries_open(WORLD, &sharded);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		engine_of(rank)->timeout_ms = SILENCE_MS;
}

static bool says(uint32_t rank, const char *text)
{
	char said[1024] = "";
	FILE *out = fmemopen(said, sizeof(said), "w");

	ck_assert_ptr_nonnull(out);
	setvbuf(out, NULL, _IOFBF, 1024);
	communicator_describe(engine_of(rank), out);
	fclose(out);
	return strstr(said, text);
}

static void until_it_says(uint32_t rank, const char *text)
{
	while (!says(rank, text))
		turn(NULL);
}

static bool are_connected(uint32_t ranks)
{
	uint64_t number = communicator_number(engine_of(0));
	bool are = number;

	for (uint32_t rank = 0; rank < ranks; rank++)
		are &= communicator_number(engine_of(rank)) == number &&
		       communicator_ranks(engine_of(rank)) == ranks;
	return are;
}

static void until_connected(uint32_t ranks)
{
	while (!are_connected(ranks))
		turn(NULL);
}

static void lose(uint32_t of, uint32_t rank)
{
	ck_assert_int_eq(peers_reach(engine_of(of), rank), 0);
	engine_of(of)->peers[rank].silent = true;
}

START_TEST(who_has_no_library_takes_no_part)
{
	open_job();
	for (uint32_t rank = 0; rank + 1 < WORLD; rank++)
		use(rank);
	until_connected(WORLD - 1);
	ck_assert_int_eq(communicator_member(engine_of(0), WORLD - 1), -ENOENT);
	ck_assert_int_eq(communicator_member(engine_of(WORLD - 1), 0), -ENOENT);
	boundaries_close();
}
END_TEST

/* Rank 1 fails while it opens the communicator, and its DISBAND is lost: rank 0, which makes
 * the communicator, asks rank 1 whether it has it, before all have.
 */
START_TEST(who_fails_unheard_while_it_is_opened_is_asked)
{
	open_job();
	loss = (struct loss){ .from = 0, .to = 3, .type = WIRE_FORM };
	for (uint32_t rank = 0; rank < WORLD; rank++)
		use(rank);
	until_it_says(1, "connecting");
	until_it_says(2, "connecting");
	loss = (struct loss){ .from = 1, .to = 0, .type = WIRE_DISBAND };
	asleep[3] = true;
	lose(1, 2);
	while (!loss.dropped)
		turn(NULL);
	loss.type = 0;
	asleep[3] = false;
	until_connected(WORLD);
	boundaries_close();
}
END_TEST

/* ---- ids of communicators ---- */

static int status;

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	status = answer->status;
	return false;
}

/* Rank 3 tells rank 2 to take part in a communicator. */
static int form(const struct wire_form *body, const uint32_t *ranks, size_t size)
{
	ck_assert_int_eq(
		peers_call(engine_of(3), 2, WIRE_FORM, body, ranks, size, on_answer, NULL, 0),
		0);
	for (status = BUSY; status == BUSY;)
		turn(NULL);
	return status;
}

START_TEST(what_cannot_be_joined_is_refused)
{
	static const struct wire_form two = { .number = 7, .count = 2 };
	static const uint32_t ranks[] = { 3, 2, 1, 0, 3 }, strange[] = { WORLD, 2 };

	open_job();
	use(2);
	ck_assert_int_eq(form(&(struct wire_form){ .number = 7, .count = 1 }, ranks, 4),
			 -EINVAL);
	ck_assert_int_eq(form(&(struct wire_form){ .number = 7, .count = WORLD + 1 }, ranks,
			      sizeof(ranks)),
			 -EINVAL);
	ck_assert_int_eq(form(&two, ranks, 4), -EINVAL);
	ck_assert_int_eq(form(&two, strange, 8), -EINVAL);
	ck_assert_int_eq(form(&two, ranks + 2, 8), -ENOENT);
	ck_assert(says(2, "not connected\n"));
	ck_assert_int_eq(form(&two, ranks, 8), 0);
	ck_assert_int_eq(form(&two, ranks, 8), 0);
	ck_assert(says(2, "connecting, ranks 3 2\n"));
	boundaries_close();
}
END_TEST

START_TEST(an_id_is_for_once)
{
	static const struct wire_form two = { .number = 7, .count = 2 };
	static const struct wire_form made = { .number = 8, .count = 2, .made = 1 };
	static const uint32_t ranks[] = { 3, 2 };

	open_job();
	use(2);
	ck_assert_int_eq(form(&made, ranks, 8), -ENOENT);
	ck_assert_int_eq(form(&two, ranks, 8), 0);
	communicator_fail(engine_of(2), 7, "it is the test's will");
	until_it_says(2, "not connected");
	ck_assert_int_eq(form(&two, ranks, 8), -ENOENT);
	ck_assert(says(2, "not connected\n"));
	boundaries_close();
}
END_TEST

/* Rank 2, which asks, holds itself for the lowest rank that lives. */
START_TEST(who_asks_joins_no_other)
{
	static const struct wire_form two = { .number = 7, .count = 2 };
	static const uint32_t ranks[] = { 3, 2 };

	open_job();
	loss = (struct loss){ .from = 2, .to = 3, .type = WIRE_INVITE };
	use(2);
	lose(2, 0);
	lose(2, 1);
	while (!loss.dropped)
		turn(NULL);
	ck_assert_int_eq(form(&two, ranks, 8), -EBUSY);
	boundaries_close();
}
END_TEST

static int open_nothing(struct collective **c, const struct collective_options *o,
			unsigned rank, unsigned nranks, const struct collective_id *id)
{
	return -ENODEV;
}

/* Fails while the collective is opened, as if there were no library. */
static int be_nothing(struct collective *c)
{
	return -ENODEV;
}

START_TEST(a_library_that_does_not_open_is_tried_again)
{
	static const struct {
		uint32_t rank;
		bool opens;
		const char *error;
	} cases[] = { { 0, false, "last error: host: No such device\n" },
		      { 0, true, "last error: No such device\n" },
		      { 1, false, "last error: rank 1 is not in it: No such device\n" } };
	struct collective_ops ops = collective_host;

	if (cases[_i].opens)
		ops.state = be_nothing;
	else
		ops.open = open_nothing;
	open_job();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		use_library(rank, rank == cases[_i].rank ? &ops : &collective_host);
	until_it_says(0, cases[_i].error);
	ops = collective_host;
	until_connected(WORLD);
	boundaries_close();
}
END_TEST

/* Makes no assertion while there is no memory. */
START_TEST(without_memory_it_is_not_joined)
{
	static const struct wire_form two = { .number = 7, .count = 2 };
	static const uint32_t ranks[] = { 3, 2 };
	struct wire_header header = { .type = WIRE_FORM, .request = 77, .rank = 3 };

	open_job();
	use(2);
	ck_assert_int_eq(peers_reach(engine_of(2), 3), 0);
	for (unsigned n = 1; n <= 2; n++) {
		scarce_begin(n, 1);
		communicator_serve(engine_of(2), engine_of(2)->peers[3].link, &header, &two,
				   ranks, sizeof(ranks));
		ck_assert_uint_eq(scarce_end(), 1);
		ck_assert(says(2, "not connected\n"));
	}
	boundaries_close();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("communicator");
	TCase *t = tcase_create("communicator");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, who_has_no_library_takes_no_part);
	tcase_add_test(t, who_fails_unheard_while_it_is_opened_is_asked);
	tcase_add_test(t, what_cannot_be_joined_is_refused);
	tcase_add_test(t, an_id_is_for_once);
	tcase_add_test(t, who_asks_joins_no_other);
	tcase_add_loop_test(t, a_library_that_does_not_open_is_tried_again, 0, 3);
	tcase_add_test(t, without_memory_it_is_not_joined);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/event-log.h"
#include "tests/ranks/observed.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/node/peers.h"
#include "engine/watch/edit-history.h"
#include "engine/watch/watch.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* What the log says of the job's edits when the rank that keeps their history cannot be asked,
 * or answers nonsense.
 */

static bool log_has(const char *what)
{
	CLEANUP(free) char *text = engine_text(observer, "log");

	ck_assert_ptr_nonnull(text);
	return strstr(text, what);
}

static bool is_told(void)
{
	return log_has("fragfs: job: {\"event\":\"edit\"");
}

/* Returns true if every rank keeps an event: each has a part of "w", which was edited. */
static bool all_keep(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (!job_frag(&job, rank)->engine->event_log->ring.count)
			return false;
	return true;
}

static void setup(void)
{
	static const float value[NUMEL];

	open_far();
	ck_assert_int_eq(frag_set(job_frag(&job, 0), job_number(&job, 0, 0), "fp32", value,
				  sizeof(value)),
			 0);
	job_boundary(&job);
	for (int i = 0; i < TURNS && !all_keep(); i++)
		turn(NULL);
	ck_assert(is_told());
}

static bool is_unknown(int error)
{
	char line[200];

	snprintf(line, sizeof(line), "what became of the job's edits is not known: %s\n",
		 strerror(error));
	return log_has(line);
}

static const struct unknown {
	struct fault fault;
	int error;
} unknowns[] = {
	{ { FAULT_SEND, .type = WIRE_WAIT, .result = -EMSGSIZE, .count = MANY }, EMSGSIZE },
	{ { FAULT_SEND, .type = WIRE_CHANGED, .count = MANY }, ETIMEDOUT },
	{ { FAULT_SEND, .type = WIRE_CHANGED, .acked = true, .result = -EACCES, .count = MANY },
	  EACCES },
	{ { FAULT_SEND, .type = WIRE_CHANGED, .acked = true, .count = MANY }, EPROTO },
	{ { FAULT_SEND, .type = WIRE_CHANGED, .poked = true, .poke = 1, .count = MANY,
	    .poke_at = offsetof(struct wire_changed, size) },
	  EPROTO },
	{ { FAULT_SEND, .type = WIRE_CHANGED, .poked = true, .count = MANY,
	    .poke_at = offsetof(struct wire_changed, events) },
	  EPROTO },
};

START_TEST(what_a_rank_does_not_tell_is_said_to_be_unknown)
{
	const struct fault *fault = faults_add(&unknowns[_i].fault);

	ck_assert(is_unknown(unknowns[_i].error));
	ck_assert_uint_gt(fault->fired, 0);
	faults_clear();
	ck_assert(is_told());
}
END_TEST

START_TEST(a_rank_that_kept_no_older_lines_is_named)
{
	struct engine *e = job_frag(&job, 1)->engine;

	for (unsigned i = 0; i < EVENT_RING_KEPT; i++)
		event_log_add_lines(e, "{\"event\":\"made up\"}\n", 20);
	while (!log_has(" rank 1 has dropped its 1 oldest events: "))
		turn(NULL);
	ck_assert(!log_has("\"lost\""));
	ck_assert(!log_has("rank 0 has dropped"));
}
END_TEST

START_TEST(without_ranks_it_is_said_that_none_can_tell)
{
	ck_assert(is_told());
	for (uint32_t rank = 0; rank < WORLD; rank++)
		peers_lose(observer, rank, -EIO, "the test says so");
	ck_assert(log_has(": no rank lives that can tell what became of the job's edits\n"));
	ck_assert(!log_has("not known"));
}
END_TEST

START_TEST(without_memory_there_is_no_log_or_less_of_it)
{
	unsigned n = 0, failed;

	do {
		CLEANUP(free) char *text = NULL;

		edit_history_free(observer); /* as before the observer's first look */
		observer->watch->edit_history = NULL;
		scarce_begin(++n, 1);
		text = engine_text(observer, "log");
		failed = scarce_end();
		ck_assert(text || failed);
		ck_assert(is_told());
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("past");
	TCase *t = tcase_create("past");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, close_job);
	tcase_add_loop_test(t, what_a_rank_does_not_tell_is_said_to_be_unknown, 0,
			    ARRAY_SIZE(unknowns));
	tcase_add_test(t, a_rank_that_kept_no_older_lines_is_named);
	tcase_add_test(t, without_ranks_it_is_said_that_none_can_tell);
	tcase_add_test(t, without_memory_there_is_no_log_or_less_of_it);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include "engine/live/loop.h"

#include <check.h>
#include <string.h>

/* An edit of more bytes than a message has.  Its ranks are to copy them out of the mount's
 * memory, and cannot, so the bytes are sent.  tests/mount/test-copied-edit.sh has ranks that
 * can.
 */

enum { WORLD = 2, BYTES = 5 << 20 };

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { BYTES / 4 } } };
static const struct job_group groups[] = { { .stage = 1, .nparams = 1 } };

static struct job job;
static struct engine *observer;

static void turn(void *arg)
{
	job_turn(&job);
	if (observer)
		loop_turn(observer, 0);
}

static bool has_ended;
static int result;

static void on_write(struct engine_write *write, int rc)
{
	result = rc;
	has_ended = true;
}

static void write_all(const uint8_t *bytes)
{
	struct engine_address a = { ENGINE_PARAM, .param = 0, .key = "exp_avg" };
	struct engine_extent extent = { 0, BYTES, bytes };
	struct engine_write write = { .extents = &extent, .nextents = 1, .done = on_write };
	uint64_t size, deadline = monotonic_ms() + JOB_WAIT_MS;

	ck_assert_int_eq(engine_file_open(observer, &a, &write.file, &size), 0);
	ck_assert_uint_eq(size, BYTES);
	engine_write(observer, &write);
	while (!has_ended && monotonic_ms() < deadline) {
		for (int i = 0; i < 20; i++)
			turn(NULL);
		job_boundary(&job);
	}
	ck_assert(has_ended);
	engine_file_close(write.file);
}

START_TEST(who_cannot_copy_is_sent_it_in_messages)
{
	uint8_t *bytes = malloc(BYTES);

	ck_assert_ptr_nonnull(bytes);
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(i % 251);
	job_open(&job,
		 &(struct job_spec){ .world = WORLD, JOB_PARAMS(params), JOB_GROUPS(groups) });
	job_observe(&job, &observer, "host 0", turn);
	observer->write.allowed = true;
	observer->write.by_memory = true; /* the ranks, in this process, refuse */
	write_all(bytes);
	ck_assert_int_eq(result, 0);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		const struct job_memory *m = job_memory(&job, rank, 0, 0, "exp_avg");

		ck_assert_uint_eq(m->bytes, BYTES / WORLD);
		ck_assert(!memcmp(m->bytes_at, bytes + rank * m->bytes, m->bytes));
	}
	ck_assert_uint_eq(atomic_load(&observer->counters.staged_memory), 0);
	ck_assert_uint_eq(atomic_load(&observer->counters.staged_messages), BYTES);
	ck_assert(observer->peers[0].wants_staged && observer->peers[1].wants_staged);
	free(bytes);
	loop_free(observer);
	observer = NULL;
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("copied-edits");
	TCase *t = tcase_create("copied-edits");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, who_cannot_copy_is_sent_it_in_messages);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/faults.h"
#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include "engine/live/loop.h"
#include "engine/node/event-log.h"
#include "engine/node/file.h"
#include "engine/read/prefetch.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* A sequential reader on another host, for which the engine asks the next requests ahead by
 * message, while the job trains on, ranks are lost and messages get lost.
 */

enum {
	WORLD = 3,
	PART = 64 << 10,
	PARTS = 13, /* the last one is short */
	BYTES = PART * (PARTS - 1) + 4096,
};

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { BYTES / 4 } } };
static const struct job_group groups[] = { { .stage = 1, .nparams = 1 } };

static struct job job;
static struct engine *observer;
static struct engine_file *file;

static void turn(void *arg)
{
	job_turn(&job);
	if (observer)
		loop_turn(observer, 0);
}

static struct engine_file *open_state(void)
{
	struct engine_address a = { ENGINE_PARAM, .param = 0, .key = "exp_avg" };
	struct engine_file *f;
	uint64_t bytes;

	ck_assert_int_eq(engine_file_open(observer, &a, &f, &bytes), 0);
	ck_assert_uint_eq(bytes, BYTES);
	return f;
}

static void begin(void)
{
	faults_clear();
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   .hosts = WORLD,
					   .messages = faults_over(&transport_loop),
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups) });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn;
	job_observe(&job, &observer, "elsewhere", turn);
	observer->read.asks_ahead = true;
	file = open_state();
}

static void end(void)
{
	engine_file_close(file);
	loop_free(observer);
	observer = NULL;
	job_close(&job);
}

/* ---- one request ---- */

static uint8_t got[BYTES];
static int64_t result;
static bool has_ended;

static void on_read(struct engine_read *read, const void *data, int64_t n)
{
	if (n > 0)
		memcpy(got + read->offset, data, (size_t)n);
	result = n;
	has_ended = true;
}

static struct engine_read part(unsigned number)
{
	return (struct engine_read){
		.file = file, .offset = (uint64_t)number * PART, .size = PART, .done = on_read
	};
}

static int64_t size_of(unsigned number)
{
	return number < PARTS - 1 ? PART : BYTES % PART;
}

static int64_t finish(void)
{
	uint64_t deadline = monotonic_ms() + JOB_WAIT_MS;

	while (!has_ended && monotonic_ms() < deadline)
		turn(NULL);
	ck_assert(has_ended);
	return result;
}

static int64_t read_part(unsigned number)
{
	struct engine_read read = part(number);

	has_ended = false;
	engine_read(observer, &read);
	return finish();
}

static void read_parts(unsigned from, unsigned to)
{
	for (unsigned i = from; i < to; i++)
		ck_assert_int_eq(read_part(i), size_of(i));
}

static bool is_whole(void)
{
	return !memcmp(got, job_truth(&job, 0, "exp_avg"), BYTES);
}

static unsigned listed(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < REMOTE_AHEAD; i++)
		n += file->remote.reads[i] != NULL;
	return n;
}

static void settle(void)
{
	for (int i = 0; i < 200; i++)
		turn(NULL);
}

/* A step that sets all elements of the state. */
static void step(int value)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct job_memory *m = job_memory(&job, rank, 0, 0, "exp_avg");

		memset(m->bytes_at, value, m->bytes);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
}

/* ---- tests ---- */

START_TEST(each_byte_is_asked_for_once_and_is_right)
{
	begin();
	read_parts(0, PARTS);
	ck_assert(is_whole());
	ck_assert_uint_eq(atomic_load(&observer->counters.owner_bytes_messages), BYTES);
	ck_assert_uint_eq(listed(), 0);
	end();
}
END_TEST

/* The engine would ask ahead for requests of the last one's size, which this reader does not
 * make.
 */
START_TEST(a_reader_of_requests_of_many_sizes_has_none_asked_ahead)
{
	begin();
	for (uint64_t at = 0, size = PART; at < BYTES; at += size, size ^= 8192) {
		struct engine_read read = part(0);

		read.offset = at;
		read.size = (size_t)u64_min(size, BYTES - at);
		has_ended = false;
		engine_read(observer, &read);
		ck_assert_int_eq(finish(), (int64_t)read.size);
		ck_assert_uint_eq(listed(), 0);
	}
	ck_assert(is_whole());
	ck_assert_uint_eq(atomic_load(&observer->counters.owner_bytes_messages), BYTES);
	end();
}
END_TEST

START_TEST(what_has_come_is_there_without_a_turn)
{
	struct engine_read read;

	begin();
	read_parts(0, 4);
	ck_assert_uint_eq(listed(), REMOTE_AHEAD);
	settle();
	read = part(4);
	has_ended = false;
	engine_read(observer, &read);
	ck_assert(has_ended);
	ck_assert_int_eq(result, PART);
	read_parts(5, PARTS);
	ck_assert(is_whole());
	end();
}
END_TEST

START_TEST(it_is_of_the_view_whatever_steps_come_between)
{
	begin();
	for (unsigned i = 0; i < PARTS; i++) {
		ck_assert_int_eq(read_part(i), size_of(i));
		if (job_random(&job, 2))
			settle();
		step((int)i + 1);
	}
	ck_assert(is_whole());
	end();
}
END_TEST

START_TEST(a_seek_forgets_what_was_asked)
{
	begin();
	read_parts(0, 5);
	ck_assert_int_eq(read_part(11), PART);
	read_parts(2, PARTS);
	read_parts(0, 2);
	ck_assert(is_whole());
	end();
}
END_TEST

/* The cancelled request was asked ahead, and its bytes are on their way. */
START_TEST(a_request_that_is_cancelled_ends)
{
	struct engine_read read;

	begin();
	read_parts(0, 3);
	settle();
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_DATA, .delay = 100 });
	ck_assert_int_eq(read_part(3), PART);
	for (int i = 0; i < _i; i++)
		turn(NULL);
	ck_assert_uint_eq(listed(), REMOTE_AHEAD);
	read = part(6);
	has_ended = false;
	engine_read(observer, &read);
	ck_assert(!has_ended);
	engine_read_cancel(observer, &read);
	ck_assert_int_eq(finish(), -ECANCELED);
	read_parts(4, PARTS);
	ck_assert(is_whole());
	end();
}
END_TEST

START_TEST(a_file_is_closed_while_bytes_are_under_way)
{
	struct engine_file *first;

	begin();
	read_parts(0, 4);
	ck_assert_uint_eq(listed(), REMOTE_AHEAD);
	first = file;
	file = open_state();
	engine_file_close(first);
	read_parts(0, PARTS);
	ck_assert(is_whole());
	end();
}
END_TEST

START_TEST(the_engine_ends_while_bytes_are_under_way)
{
	begin();
	read_parts(0, 4);
	end();
}
END_TEST

/* The reader's own request ends with the error, and no request that was asked ahead. */
START_TEST(a_rank_that_is_lost_is_said_of_its_bytes)
{
	unsigned i = 4;
	int64_t n;

	begin();
	observer->timeout_ms = 1000;
	read_parts(0, 4);
	job_close_rank(&job, 2);
	while ((n = read_part(i)) == PART)
		i++;
	ck_assert(n == -EIO || n == -ETIMEDOUT);
	ck_assert_uint_ge(i, 2 * BYTES / WORLD / PART);
	ck_assert_int_eq(read_part(0), PART);
	ck_assert(!memcmp(got, job_truth(&job, 0, "exp_avg"), PART));
	end();
}
END_TEST

static unsigned evictions(void)
{
	const struct event_ring *ring = &observer->event_log->ring;
	unsigned n = 0;

	for (uint64_t i = ring->count; i && i + EVENT_RING_KEPT > ring->count; i--)
		n += strstr(ring->lines[i % EVENT_RING_KEPT], "\"view-evicted\"") != NULL;
	return n;
}

START_TEST(a_view_that_is_dropped_is_told_by_the_readers_own_request)
{
	begin();
	read_parts(0, 4);
	settle();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		view_owner_expire(&job_frag(&job, rank)->engine->view_owner, UINT64_MAX);
	read_parts(4, 7);
	settle();
	ck_assert_uint_eq(evictions(), 0);
	ck_assert_int_eq(read_part(7), -ESTALE);
	settle();
	ck_assert_uint_eq(evictions(), 1);
	end();
}
END_TEST

/* Rounds are tried again after a time, as without asking ahead. */
START_TEST(rounds_are_tried_again_for_who_is_asked_ahead)
{
	_Atomic uint64_t *tried;

	begin();
	tried = &observer->counters.rounds_fallback[WIRE_FALLBACK_REACH];
	ck_assert_int_eq(prefetch_init(observer, "auto"), 0);
	observer->read.prefetch->min = 0;
	read_parts(0, 5);
	ck_assert_uint_eq(listed(), REMOTE_AHEAD);
	for (unsigned i = 5; i < 8; i++) {
		uint64_t before = atomic_load(tried);

		observer->read.prefetch->retry_ms = 0;
		read_parts(i, i + 1);
		settle();
		ck_assert_uint_gt(atomic_load(tried), before);
	}
	read_parts(8, PARTS);
	ck_assert(is_whole());
	end();
}
END_TEST

START_TEST(lost_answers_are_asked_for_again)
{
	begin();
	read_parts(0, 3);
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_DATA, .nth = 2, .count = 3 });
	read_parts(3, PARTS);
	ck_assert(is_whole());
	end();
}
END_TEST

START_TEST(nothing_is_asked_ahead_where_it_is_off)
{
	begin();
	observer->read.asks_ahead = false;
	read_parts(0, 6);
	ck_assert_uint_eq(listed(), 0);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reading-ahead");
	TCase *t = tcase_create("reading-ahead");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, each_byte_is_asked_for_once_and_is_right);
	tcase_add_test(t, a_reader_of_requests_of_many_sizes_has_none_asked_ahead);
	tcase_add_test(t, what_has_come_is_there_without_a_turn);
	tcase_add_loop_test(t, it_is_of_the_view_whatever_steps_come_between, 0, 3);
	tcase_add_test(t, a_seek_forgets_what_was_asked);
	tcase_add_loop_test(t, a_request_that_is_cancelled_ends, 0, 6);
	tcase_add_test(t, a_file_is_closed_while_bytes_are_under_way);
	tcase_add_test(t, the_engine_ends_while_bytes_are_under_way);
	tcase_add_test(t, a_rank_that_is_lost_is_said_of_its_bytes);
	tcase_add_test(t, a_view_that_is_dropped_is_told_by_the_readers_own_request);
	tcase_add_test(t, rounds_are_tried_again_for_who_is_asked_ahead);
	tcase_add_test(t, lost_answers_are_asked_for_again);
	tcase_add_test(t, nothing_is_asked_ahead_where_it_is_off);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/observed.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/base/log.h"
#include "engine/live/loop.h"
#include "engine/node/file.h"
#include "engine/read/waiting.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An observer's reads that need ranks which are behind the others, or inside a step. */

enum { PART = 8, READERS = 40, BEHIND = 2, LOG_ROOM = 1 << 16 };

static void (*const open_ways[])(void) = { open_near, open_far };

static void begin_step_of(uint32_t rank)
{
	ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
}

static void end_step_of(uint32_t rank)
{
	ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
}

/* Sets each element that the rank has to value, in a step. */
static void step_of(uint32_t rank, float value)
{
	struct job_memory *m = job_memory(&job, rank, 0, 0, "fp32");
	float *at = (float *)(void *)m->bytes_at;

	begin_step_of(rank);
	for (uint64_t i = 0; i < m->bytes / sizeof(*at); i++)
		at[i] = value;
	end_step_of(rank);
}

/* Ranks at rest at steps 3, 2 and 1. */
static void skew(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		for (uint32_t step = 1; step <= WORLD - rank; step++)
			step_of(rank, (float)step);
}

static void open_skewed(int way)
{
	open_ways[way]();
	skew();
}

static void turn_for(uint64_t ms)
{
	for (uint64_t until = monotonic_ms() + ms; monotonic_ms() < until;)
		turn(NULL);
}

struct reader {
	struct engine_read read;
	struct engine_file *file;
	bool ended;
	int64_t result;
	float first, last;
};

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	struct reader *r = read->owner;

	r->ended = true;
	r->result = result;
	if (result < (int64_t)sizeof(float))
		return;
	memcpy(&r->first, data, sizeof(r->first));
	memcpy(&r->last, (const uint8_t *)data + result - sizeof(r->last), sizeof(r->last));
}

static void start(struct reader *r, enum engine_address_kind kind, const char *key,
		  uint64_t offset, uint32_t size)
{
	*r = (struct reader){ .file = open_state(kind, key) };
	r->read = (struct engine_read){
		.file = r->file, .offset = offset, .size = size, .done = on_read, .owner = r
	};
	engine_read(observer, &r->read);
}

static int64_t end(struct reader *r)
{
	for (int i = 0; i < TURNS && !r->ended; i++)
		turn(NULL);
	ck_assert(r->ended);
	engine_file_close(r->file);
	return r->result;
}

static void ck_said(const char *text, const char *words)
{
	ck_assert_msg(strstr(text, words), "no '%s' in: %s", words, text);
}

static unsigned count_words(const char *text, const char *words)
{
	unsigned n = 0;

	for (; (text = strstr(text, words)); text++)
		n++;
	return n;
}

static char *log_now(void)
{
	static char text[LOG_ROOM];

	text[log_tail(text, sizeof(text) - 1)] = '\0';
	return text;
}

START_TEST(who_waits_for_a_rank_that_is_behind_is_named_and_told_and_ends)
{
	CLEANUP(free) char *text = NULL;
	struct reader reader;

	open_skewed(_i);
	start(&reader, ENGINE_PARAM, "fp32", 0, BYTES);
	turn_for(5000);
	ck_assert(!reader.ended);
	text = engine_text(observer, "inflight");
	ck_said(text, "read w fp32 bytes 0 of 148");
	ck_said(text, "for rank 2, at boundary 2 (step 1, phase stable) for ");
	ck_said(text, "must come to boundary 6, and for 1 more rank");
	ck_assert_ptr_null(strstr(text, "no progress for 2 ms"));
	ck_assert_int_eq(end(&reader), -ETIME);
	ck_assert_uint_eq(count_words(log_now(), "w/fp32 waits "), 1);
	ck_assert_uint_eq(count_words(log_now(), "w/fp32 cannot be read: waits "), 1);
	close_job();
}
END_TEST

/* Returns true if a wait for the rank alone, which begins at `at`, is logged a second later. */
static bool is_told(const struct engine_file *file, uint32_t rank, uint64_t at)
{
	unsigned before = count_words(log_now(), "w/fp32 waits ");
	struct waiting w = { 0 };

	pthread_mutex_lock(&observer->lock);
	waiting_begin(&w, false, 0, at);
	waiting_add(observer, &w, rank, at);
	for (uint64_t now = at; now <= at + 1000; now += 100)
		waiting_check(observer, &w, file, now);
	pthread_mutex_unlock(&observer->lock);
	return count_words(log_now(), "w/fp32 waits ") > before;
}

/* The clock is set by the test. */
START_TEST(a_rank_has_one_line_in_five_seconds_and_one_until_it_moves)
{
	struct engine_file *file;
	struct peer *p;
	uint64_t at;

	open_skewed(_i);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), -ETIME);
	file = open_state(ENGINE_PARAM, "fp32");
	p = &observer->peers[2];
	at = p->told_ms + 10000;
	ck_assert(!is_told(file, 2, at)); /* the log has told where the rank stands */
	p->moves++;
	ck_assert(is_told(file, 2, at));
	p->moves++;
	ck_assert(!is_told(file, 2, at + 1000));
	ck_assert(is_told(file, 1, at + 1000)); /* a line of another rank */
	ck_assert(!is_told(file, 2, at + 3999));
	ck_assert(is_told(file, 2, at + 5000));
	ck_assert(!is_told(file, 2, at + 20000));
	engine_file_close(file);
	close_job();
}
END_TEST

START_TEST(bytes_of_ranks_that_are_not_behind_come_at_once)
{
	struct reader reader;

	open_skewed(_i);
	start(&reader, ENGINE_PARAM, "fp32", 0, PART);
	turn_for(200);
	ck_assert_int_eq(end(&reader), PART);
	ck_assert(reader.first == 3);
	close_job();
}
END_TEST

START_TEST(a_rank_that_comes_on_is_waited_for_and_the_file_is_of_one_generation)
{
	struct reader reader;

	open_skewed(_i);
	start(&reader, ENGINE_PARAM, "fp32", 0, BYTES);
	for (float step = 2; step <= 3; step++) {
		turn_for(observer->timeout_ms * 4 / 5);
		ck_assert(!reader.ended);
		step_of(BEHIND, step);
		if (step > 2)
			step_of(1, step);
	}
	step_of(0, 4); /* the former bytes are kept for the file */
	ck_assert_int_eq(end(&reader), BYTES);
	ck_assert(reader.first == 3 && reader.last == 3);
	close_job();
}
END_TEST

/* A step of ten minutes is no stop if the one before took as long. */
START_TEST(a_step_may_take_twice_as_long_as_the_last)
{
	struct reader reader;

	open_ways[_i]();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		begin_step_of(rank);
	scarce_skip_ms(600000);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		end_step_of(rank);
	turn_for(2000);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		begin_step_of(rank);
	start(&reader, ENGINE_PARAM, "exp_avg", 0, BYTES);
	for (int i = 0; i < 60;
	     i++) { /* no rank becomes silent, because the time is skipped in small pieces */
		scarce_skip_ms(1000);
		turn_for(50);
	}
	ck_assert(!reader.ended);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		end_step_of(rank);
	ck_assert_int_eq(end(&reader), BYTES);
	close_job();
}
END_TEST

START_TEST(a_step_that_does_not_end_ends_the_read_and_a_later_one_has_it)
{
	struct engine_file *file;
	CLEANUP(free) char *text = NULL;
	struct reader reader;

	open_ways[_i]();
	begin_step_of(1);
	start(&reader, ENGINE_PARAM, "exp_avg", 0, BYTES);
	turn_for(3000);
	text = engine_text(observer, "inflight");
	ck_said(text, "for rank 1, at boundary 1 (step 0, phase step) for ");
	ck_said(text, "must end what it is changing");
	file = reader.file;
	for (int i = 0; i < TURNS && !reader.ended; i++)
		turn(NULL);
	ck_assert_int_eq(reader.result, -ETIME);
	ck_assert_uint_eq(observer->peers[1].state, ENGINE_RANK_ALIVE);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		if (rank != 1)
			begin_step_of(rank);
		end_step_of(rank);
	}
	turn_for(1000);
	ck_assert_int_eq(read_file(file, 0, BYTES, false, false), BYTES);
	engine_file_close(file);
	close_job();
}
END_TEST

/* ---- reads by the training thread ---- */

enum { TRAINER = 4242 }; /* number of the training thread */

/* Makes TRAINER the training thread of rank `own` alone; in this process one thread trains all
 * ranks.
 */
static void trained_by(uint32_t own)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		atomic_store(&job_frag(&job, rank)->engine->registry.control->trainer,
			     rank == own ? TRAINER : TRAINER + 1);
	turn_for(1500); /* a PING brings the change, or a look at the control page */
}

static void start_by_trainer(struct reader *reader, const char *key)
{
	*reader = (struct reader){ .file = open_state(ENGINE_PARAM, key) };
	reader->read = (struct engine_read){ .file = reader->file,
					     .size = BYTES,
					     .thread = TRAINER,
					     .done = on_read,
					     .owner = reader };
	engine_read(observer, &reader->read);
}

static int64_t read_by_trainer(const char *key)
{
	struct reader reader;

	start_by_trainer(&reader, key);
	return end(&reader);
}

static unsigned deadlocks_told(void)
{
	return count_words(log_now(), " cannot be read by the thread that trains rank ");
}

START_TEST(a_training_thread_that_waits_for_itself_is_told_so)
{
	for (uint32_t own = 0; own < WORLD; own++) {
		unsigned told;

		open_near();
		trained_by(own);
		told = deadlocks_told();
		ck_assert_int_eq(read_by_trainer("fp32"), BYTES);
		ck_assert_int_eq(read_by_trainer("grad"), -EDEADLK);
		ck_assert_int_eq(read_by_trainer("grad"), -EDEADLK);
		ck_assert_uint_eq(deadlocks_told(), told + 1);
		begin_step_of(own);
		trained_by(own);
		ck_assert_int_eq(read_by_trainer("exp_avg"), -EDEADLK);
		ck_assert_uint_eq(deadlocks_told(), told + 2);
		for (uint32_t rank = 0; rank < WORLD; rank++) {
			if (rank != own)
				begin_step_of(rank);
			end_step_of(rank);
		}
		trained_by(own);
		ck_assert_int_eq(read_by_trainer("exp_avg"), BYTES);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			ck_assert_int_eq(frag_grads_valid(job_frag(&job, rank), 1), 0);
		ck_assert_int_eq(read_by_trainer("grad"), BYTES);
		close_job();
	}
}
END_TEST

/* The reader's own window has begun, so another rank is about to make its gradients valid: the
 * read waits.
 */
START_TEST(a_training_thread_waits_for_others)
{
	struct reader reader;

	open_near();
	ck_assert_int_eq(frag_grads_valid(job_frag(&job, 0), 1), 0);
	trained_by(0);
	start_by_trainer(&reader, "grad");
	turn_for(1500);
	ck_assert(!reader.ended);
	for (uint32_t rank = 1; rank < WORLD; rank++)
		ck_assert_int_eq(frag_grads_valid(job_frag(&job, rank), 1), 0);
	ck_assert_int_eq(end(&reader), BYTES);
	close_job();
}
END_TEST

/* The reader's own rank was asked while it was changing states for a moment. */
START_TEST(a_training_thread_waits_for_others_whatever_its_own_rank_had_answered)
{
	struct reader reader;
	struct control_page *own;

	open_near();
	trained_by(0);
	own = job_frag(&job, 0)->engine->registry.control;
	begin_step_of(1);
	atomic_fetch_add(&own->sequence, 1);
	start_by_trainer(&reader, "exp_avg");
	turn_for(50);
	atomic_fetch_add(&own->sequence, 1);
	turn_for(1500);
	ck_assert(!reader.ended);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		if (rank != 1)
			begin_step_of(rank);
		end_step_of(rank);
	}
	ck_assert_int_eq(end(&reader), BYTES);
	close_job();
}
END_TEST

static void on_written(struct engine_write *write, int result)
{
	*(int *)write->owner = result;
}

/* *result is 1 until the end. */
static void turn_until_done(const int *result)
{
	for (int i = 0; i < TURNS && *result == 1; i++)
		turn(NULL);
}

static int write_by(pid_t thread, struct engine_write *write)
{
	static float value[NUMEL];
	static const struct engine_extent extent = { 0, BYTES, value };
	static int result;

	result = 1;
	*write = (struct engine_write){ .file = open_state(ENGINE_PARAM, "fp32"),
					.extents = &extent,
					.nextents = 1,
					.thread = thread,
					.done = on_written,
					.owner = &result };
	engine_write(observer, write);
	turn_for(1500);
	if (result <= 0)
		return result;
	job_boundary(&job);
	turn_until_done(&result);
	ck_assert_int_eq(result, 0);
	return 1;
}

START_TEST(an_edit_by_a_training_thread_is_refused_before_it_waits)
{
	CLEANUP(free) char *log = NULL;
	struct engine_write write;

	open_near();
	observer->write.allowed = true;
	trained_by(1);
	ck_assert_int_eq(write_by(TRAINER, &write), -EDEADLK);
	ck_assert(write.logged);
	engine_file_close(write.file);
	log = engine_text(observer, "log");
	ck_said(log, "its writer is the thread that trains a rank");
	ck_assert_int_eq(write_by(TRAINER + 7, &write), 1);
	engine_file_close(write.file);
	close_job();
}
END_TEST

static void on_frozen(struct engine_freeze *freeze, int result)
{
	*(int *)freeze->owner = result;
}

START_TEST(an_edit_past_the_end_of_its_file_is_refused)
{
	static const struct engine_extent extents[] = { { BYTES - 4, 8, "1234567" },
							{ BYTES + 1, 0, NULL } };
	int result = 1;
	struct engine_write write = {
		.extents = &extents[_i], .nextents = 1, .done = on_written, .owner = &result
	};

	open_near();
	observer->write.allowed = true;
	write.file = open_state(ENGINE_PARAM, "fp32");
	engine_write(observer, &write);
	turn_until_done(&result);
	ck_assert_int_eq(result, -EFBIG);
	engine_file_close(write.file);
	close_job();
}
END_TEST

/* The edit's file is of the job's former life. */
START_TEST(an_edit_of_a_job_that_was_started_again_is_stale)
{
	static const struct engine_extent extent = { 0, 4, "123" };
	int result = 1;
	struct engine_write write = {
		.extents = &extent, .nextents = 1, .done = on_written, .owner = &result
	};

	open_near();
	observer->write.allowed = true;
	write.file = open_state(ENGINE_PARAM, "fp32");
	write.file->incarnation++;
	engine_write(observer, &write);
	turn_until_done(&result);
	ck_assert_int_eq(result, -ESTALE);
	engine_file_close(write.file);
	close_job();
}
END_TEST

START_TEST(a_freeze_by_a_training_thread_is_refused)
{
	int result = 1;
	struct engine_freeze freeze = {
		.ms = 1000, .thread = TRAINER, .done = on_frozen, .owner = &result
	};

	open_near();
	observer->write.allowed = true;
	trained_by(1);
	engine_freeze(observer, &freeze);
	turn_until_done(&result);
	ck_assert_int_eq(result, -EDEADLK);
	close_job();
}
END_TEST

/* On another host another thread may have the same number. */
START_TEST(nothing_is_concluded_of_a_training_thread_of_another_host)
{
	struct engine_write write;

	open_far();
	observer->write.allowed = true;
	trained_by(1);
	ck_assert_int_eq(write_by(TRAINER, &write), 1);
	engine_file_close(write.file);
	close_job();
}
END_TEST

static uint64_t fails_within(int64_t error)
{
	uint64_t before = turned_ms;

	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), error);
	return turned_ms - before;
}

/* The time counts since the ranks stand, not since the read waits. */
START_TEST(ranks_that_have_stood_for_long_are_not_waited_for_as_long_again)
{
	struct reader reader;

	open_skewed(_i);
	if (_i) /* on another host no reader has heard of them before */
		ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), -ETIME);
	/* no file is read, and the ranks are seen to stand */
	turn_for(observer->timeout_ms + 2000);
	ck_assert_uint_lt(fails_within(-ETIME), observer->timeout_ms / 2);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_lt(fails_within(-ETIME), 500);
	ck_said(log_now(), "; now/ shows it as it stands");
	step_of(BEHIND, 2); /* the rank goes on, so it is waited for */
	turn_for(1000);
	start(&reader, ENGINE_PARAM, "fp32", 0, BYTES);
	turn_for(observer->timeout_ms / 2);
	ck_assert(!reader.ended);
	step_of(BEHIND, 3);
	step_of(1, 3);
	ck_assert_int_eq(end(&reader), BYTES);
	close_job();
}
END_TEST

/* i: the way to the bytes; 2 and more: the whole file, which could be read without a view if it
 * is small.
 */
START_TEST(who_is_not_to_wait_does_not)
{
	open_skewed(_i % 2);
	ck_assert_int_eq(read_at(BYTES - PART, PART, "fp32", true, false), -EAGAIN);
	begin_step_of(1);
	for (uint32_t size = PART; size <= BYTES; size += BYTES - PART) {
		uint64_t before = turned_ms;

		ck_assert_int_eq(read_at(0, size, "exp_avg", true, false), -EAGAIN);
		ck_assert_uint_lt(turned_ms - before, 1000);
		ck_assert_int_eq(read_at(0, size, "grad", true, false), -ENODATA);
	}
	close_job();
}
END_TEST

/* i: the way to the bytes.  The view will never be complete, so reads of other ranks wait less.
 */
START_TEST(who_waits_beside_a_lost_rank_is_told_of_that_one_soon)
{
	struct engine_file *file;
	uint64_t before;

	open_skewed(_i);
	file = open_state(ENGINE_PARAM, "fp32");
	job_close_rank(&job, 1);
	turn_for(2000);
	before = turned_ms;
	ck_assert_int_eq(read_file(file, BYTES - PART, PART, false, false), -EIO);
	ck_assert_uint_lt(turned_ms - before, observer->timeout_ms / 2);
	engine_file_close(file);
	close_job();
}
END_TEST

START_TEST(who_is_not_to_wait_does_not_wait_for_an_answer)
{
	open_far();
	ck_assert_int_eq(read_at(0, PART, "fp32", false, false), PART);
	faults_add(&(struct fault){ FAULT_SEND, .of = observer->messages.transport,
				    .count = MANY });
	ck_assert_int_eq(read_at(BYTES - PART, PART, "exp_avg", true, false), -EAGAIN);
	close_job();
}
END_TEST

/* ---- the observer ends ---- */

static void on_end(struct engine_read *read, const void *data, int64_t result)
{
	struct reader *r = read->owner;

	r->ended = true;
	r->result = result;
	engine_file_close(read->file);
}

static void on_write_end(struct engine_write *write, int result)
{
	*(int *)write->owner = result;
	engine_file_close(write->file);
}

START_TEST(what_an_observer_has_under_way_ends_with_it)
{
	static float value[NUMEL];
	static const struct engine_extent extent = { 0, BYTES, value };
	struct reader reader = { 0 };
	int frozen = 1, written = 1;
	struct engine_freeze freeze = { .ms = 1000, .done = on_frozen, .owner = &frozen };
	struct engine_write write = {
		.extents = &extent, .nextents = 1, .done = on_write_end, .owner = &written
	};

	open_skewed(_i);
	observer->write.allowed = true;
	start(&reader, ENGINE_PARAM, "fp32", 0, BYTES);
	reader.read.done = on_end;
	write.file = open_state(ENGINE_PARAM, "exp_avg");
	engine_write(observer, &write);
	engine_freeze(observer, &freeze);
	turn_for(100);
	loop_free(observer);
	observer = NULL;
	ck_assert(reader.ended);
	ck_assert_int_eq(reader.result, -ECANCELED);
	ck_assert_int_eq(written, -ECANCELED);
	ck_assert_int_eq(frozen, -ECANCELED);
	close_job();
}
END_TEST

START_TEST(what_a_rank_holds_is_read_at_once_but_gradients_have_their_window)
{
	struct engine_address a = { ENGINE_RANK_PARAM, .rank = 1, .key = "grad" };
	struct engine_file *file;
	uint64_t bytes;

	open_skewed(_i);
	begin_step_of(1);
	a.key[0] = '\0';
	snprintf(a.key, sizeof(a.key), "fp32");
	ck_assert_int_eq(engine_file_open(observer, &a, &file, &bytes), 0);
	ck_assert_int_eq(read_file(file, 0, PART, false, false), PART);
	engine_file_close(file);
	snprintf(a.key, sizeof(a.key), "grad");
	ck_assert_int_eq(engine_file_open(observer, &a, &file, &bytes), 0);
	ck_assert_int_eq(read_file(file, 0, PART, false, false), -ETIME);
	ck_said(log_now(), "w/grad cannot be read: waits ");
	ck_said(log_now(), "must have valid gradients");
	job_grads_valid(&job);
	ck_assert_int_eq(read_file(file, 0, PART, false, false), PART);
	engine_file_close(file);
	close_job();
}
END_TEST

static uint64_t messages_of(const struct engine *e)
{
	return atomic_load(&e->counters.messages_out);
}

/* In 8 s each reader asks its rank less than three times a second, and control pages are looked
 * at for all readers together.
 */
START_TEST(many_that_wait_ask_little)
{
	static struct reader readers[READERS];
	uint64_t before, bytes;

	open_skewed(_i % 2);
	if (_i >= 2)
		begin_step_of(BEHIND);
	for (int i = 0; i < READERS; i++)
		start(&readers[i], ENGINE_PARAM, "fp32", BYTES - PART, PART);
	turn_for(1000);
	before = messages_of(observer);
	bytes = atomic_load(&observer->counters.owner_bytes_messages) +
		atomic_load(&observer->counters.owner_bytes_memory);
	turn_for(8000);
	ck_assert_uint_lt(messages_of(observer) - before, READERS * 8 * 3);
	ck_assert_uint_eq(atomic_load(&observer->counters.owner_bytes_messages) +
				  atomic_load(&observer->counters.owner_bytes_memory),
			  bytes);
	for (int i = 0; i < READERS; i++)
		ck_assert_int_eq(end(&readers[i]), -ETIME);
	ck_assert_uint_eq(count_words(log_now(), "w/fp32 waits "), 1);
	ck_assert_uint_eq(count_words(log_now(), "w/fp32 cannot be read: waits "), 1);
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("waiting");
	TCase *t = tcase_create("waiting");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, who_waits_for_a_rank_that_is_behind_is_named_and_told_and_ends,
			    0, 2);
	tcase_add_loop_test(t, a_rank_has_one_line_in_five_seconds_and_one_until_it_moves, 0,
			    2);
	tcase_add_loop_test(t, bytes_of_ranks_that_are_not_behind_come_at_once, 0, 2);
	tcase_add_loop_test(
		t, a_rank_that_comes_on_is_waited_for_and_the_file_is_of_one_generation, 0, 2);
	tcase_add_loop_test(t, a_step_may_take_twice_as_long_as_the_last, 0, 2);
	tcase_add_test(t, a_training_thread_that_waits_for_itself_is_told_so);
	tcase_add_test(t, a_training_thread_waits_for_others);
	tcase_add_test(t,
		       a_training_thread_waits_for_others_whatever_its_own_rank_had_answered);
	tcase_add_test(t, an_edit_by_a_training_thread_is_refused_before_it_waits);
	tcase_add_test(t, nothing_is_concluded_of_a_training_thread_of_another_host);
	tcase_add_loop_test(t, a_step_that_does_not_end_ends_the_read_and_a_later_one_has_it, 0,
			    2);
	tcase_add_loop_test(t, ranks_that_have_stood_for_long_are_not_waited_for_as_long_again,
			    0, 2);
	tcase_add_loop_test(t, who_is_not_to_wait_does_not, 0, 2);
	tcase_add_test(t, a_freeze_by_a_training_thread_is_refused);
	tcase_add_loop_test(t, an_edit_past_the_end_of_its_file_is_refused, 0, 2);
	tcase_add_test(t, an_edit_of_a_job_that_was_started_again_is_stale);
	tcase_add_loop_test(t, who_waits_beside_a_lost_rank_is_told_of_that_one_soon, 0, 2);
	tcase_add_test(t, who_is_not_to_wait_does_not_wait_for_an_answer);
	tcase_add_loop_test(t, what_an_observer_has_under_way_ends_with_it, 0, 2);
	tcase_add_loop_test(
		t, what_a_rank_holds_is_read_at_once_but_gradients_have_their_window, 0, 2);
	tcase_add_loop_test(t, many_that_wait_ask_little, 0, 4);
	return run_suite(s, t);
}

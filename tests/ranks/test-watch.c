/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"

#include "engine/live/loop.h"
#include "engine/node/event-log.h"
#include "engine/node/peers.h"
#include "engine/watch/watch.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* An observer that waits for the job, on the ranks' host (by memory) and on another (by
 * messages).
 */

enum { WORLD = 2, MANY = 64 };

static const struct job_param params[] = { { "w", .ndim = 2, .shape = { 9, 7 } } };
static const struct job_group groups[] = { { .stage = 2, .nparams = 1, .params = { 0 } } };

static struct job job;
static struct engine *observer;

static void turn(void *arg)
{
	loop_turn(observer, 0);
	job_turn(&job);
}

/* Turns all engines until *what is n. */
static void turn_until(const unsigned *what, unsigned n)
{
	uint64_t deadline = monotonic_ms() + JOB_WAIT_MS;

	while (*what != n) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		turn(NULL);
	}
}

static void open_observer(const char *host)
{
	job_observe(&job, &observer, host, turn);
	observer->write.allowed = true;
}

static const char *const hosts[] = { "host 0", "elsewhere" };

static void open_job(int host)
{
	job_open(&job,
		 &(struct job_spec){ .world = WORLD, JOB_PARAMS(params), JOB_GROUPS(groups) });
	open_observer(hosts[host]);
}

static void close_job(void)
{
	loop_free(observer);
	job_close(&job);
}

static unsigned done, cancelled;

static void came(struct engine_wait *wait, int result)
{
	done++;
	cancelled += result == -ECANCELED;
}

/* Starts waits whose `seen` is the present state of the job. */
static void start(struct engine_wait *waits, unsigned n)
{
	struct engine_job now;

	done = cancelled = 0;
	do { /* an observer that is behind hears of changes first */
		struct engine_wait first = { .done = came };

		engine_job(observer, &now);
		first.seen = engine_changes(observer);
		engine_wait(observer, &first);
		for (int i = 0; i < 20; i++)
			turn(NULL);
		engine_wait_cancel(observer, &first);
		turn_until(&done, 1);
		done = 0;
	} while (!cancelled);
	cancelled = 0;
	for (unsigned i = 0; i < n; i++) {
		waits[i] =
			(struct engine_wait){ .seen = engine_changes(observer), .done = came };
		engine_wait(observer, &waits[i]);
	}
	for (int i = 0; i < 20; i++)
		turn(NULL);
	ck_assert_uint_eq(done, 0);
}

/* Waits until the engine has heard something for which a thread in a hurry was told to come
 * again.
 */
static void wait_for_epoch(uint64_t seen)
{
	struct engine_wait wait = { .seen = seen, .done = came };

	done = 0;
	engine_wait_epoch(observer, &wait);
	turn_until(&done, 1);
}

START_TEST(who_is_in_a_hurry_is_told_to_come_again)
{
	struct engine_address nothing = { .kind = ENGINE_RANK_PARAM, .rank = 1, .key = "none" };
	struct engine_hurry hurry = { 0 };
	struct engine_state states[8];
	struct engine_file *file;
	uint64_t bytes, seen;
	int rc;

	open_job(_i);
	engine_hurry(&hurry);
	seen = engine_epoch(observer);
	ck_assert_int_eq(engine_rank_states(observer, 1, 0, states, 8), -EAGAIN);
	while ((rc = engine_rank_states(observer, 1, 0, states, 8)) == -EAGAIN) {
		wait_for_epoch(seen);
		seen = engine_epoch(observer);
	}
	ck_assert_int_gt(rc, 0);

	/* The answer that there is no such state must be newer than the question. */
	seen = engine_epoch(observer);
	ck_assert_int_eq(engine_file_open(observer, &nothing, &file, &bytes), -EAGAIN);
	wait_for_epoch(seen);
	ck_assert_int_eq(engine_file_open(observer, &nothing, &file, &bytes), -ENOENT);
	engine_hurry(NULL);
	close_job();
}
END_TEST

START_TEST(a_wait_for_the_epoch_is_cancelled)
{
	struct engine_wait wait = { .done = came };

	open_job(_i);
	while (!_i && !(observer->peers[0].states && observer->peers[1].states))
		turn(NULL); /* tables of its own host come without a request */
	done = cancelled = 0;
	wait.seen = engine_epoch(observer);
	engine_wait_epoch(observer, &wait);
	for (int i = 0; i < 20; i++)
		turn(NULL);
	ck_assert_uint_eq(done, 0);
	engine_wait_cancel(observer, &wait);
	turn_until(&done, 1);
	ck_assert_uint_eq(cancelled, 1);
	close_job();
}
END_TEST

static void step(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
	}
}

START_TEST(a_step_ends_all_waits)
{
	struct engine_wait waits[MANY];
	struct engine_job now;
	uint64_t asked;

	open_job(_i);
	start(waits, MANY);
	asked = observer->counters.messages_out;
	step();
	turn_until(&done, MANY);
	ck_assert_uint_eq(cancelled, 0);
	engine_job(observer, &now);
	ck_assert_uint_eq(now.step, 1);
	ck_assert_str_eq(now.phase, "stable");
	/* 64 waits cost as much as one: at most a new WAIT, and PINGs */
	ck_assert_uint_le(observer->counters.messages_out - asked, 3);
	close_job();
}
END_TEST

START_TEST(a_cancelled_wait_ends_and_the_others_go_on)
{
	struct engine_wait waits[3];

	open_job(_i);
	start(waits, 3);
	engine_wait_cancel(observer, &waits[1]);
	turn_until(&done, 1);
	ck_assert_uint_eq(cancelled, 1);
	step();
	turn_until(&done, 3);
	ck_assert_uint_eq(cancelled, 1);
	close_job();
}
END_TEST

START_TEST(nobody_waits_and_nothing_is_asked)
{
	struct engine_wait wait;
	uint64_t deadline;

	open_job(_i);
	start(&wait, 1);
	step();
	turn_until(&done, 1);
	deadline = monotonic_ms() + JOB_WAIT_MS;
	/* the observer's last WAIT is answered in time */
	while (!LIST_EMPTY(&job_frag(&job, 0)->engine->serve.waits)) {
		ck_assert_uint_lt(monotonic_ms(), deadline);
		turn(NULL);
	}
	ck_assert(!watch_ticks(observer));
	step();
	for (int i = 0; i < 50; i++)
		turn(NULL);
	ck_assert(LIST_EMPTY(&job_frag(&job, 0)->engine->serve.waits));
	close_job();
}
END_TEST

START_TEST(an_old_page_of_another_rank_does_not_take_the_job_back)
{
	struct engine_job before, now;
	struct peer *old;

	open_job(1);
	step();
	step();
	do {
		turn(NULL);
		engine_job(observer, &before);
	} while (before.step != 2);
	old = &observer->peers[1];
	old->control = observer->peers[0].control;
	memcpy(old->control.cookie, old->entry.cookie, sizeof(old->control.cookie));
	old->control.step = old->control.generation = 1;
	peers_lose(observer, 0, -EIO, "lost by the test");
	engine_job(observer, &now);
	ck_assert_uint_eq(now.step, 2);
	ck_assert_uint_eq(now.generation, before.generation);
	old->incarnation++; /* the process is of a job that was started again */
	engine_job(observer, &now);
	ck_assert_uint_eq(now.step, 1);
	ck_assert_uint_eq(now.generation, 1);
	close_job();
}
END_TEST

START_TEST(the_end_of_the_job_is_a_change)
{
	struct engine_wait wait;
	struct engine_job now;

	open_job(_i);
	observer->timeout_ms = 300;
	start(&wait, 1);
	for (uint32_t rank = WORLD; rank-- > 0;) {
		for (int i = 0; i < 10; i++)
			turn(NULL);
		job_close_rank(&job, rank);
	}
	job.spec.world = 0;
	turn_until(&done, 1);
	do {
		turn(NULL);
		engine_job(observer, &now);
	} while (strcmp(now.phase, "closed"));
	ck_assert_uint_eq(now.alive, 0);
	close_job();
}
END_TEST

START_TEST(the_engines_end_ends_waits)
{
	struct engine_wait waits[2];

	open_job(_i);
	start(waits, 2);
	close_job();
	ck_assert_uint_eq(cancelled, 2);
}
END_TEST

/* ---- events ---- */

static struct engine_events *stream;

/* Returns the next line, turning all engines until there is one. */
static json_t *next_event(void)
{
	static char line[EVENT_RING_LINE_MAX];
	uint64_t deadline = monotonic_ms() + JOB_WAIT_MS;
	json_t *event;
	size_t n = 0;

	do {
		while (!engine_events_read(stream, line + n, 1)) {
			ck_assert_uint_lt(monotonic_ms(), deadline);
			turn(NULL);
		}
	} while (line[n++] != '\n');
	event = json_loadb(line, n, 0, NULL);
	ck_assert_msg(json_is_object(event), "%.*s", (int)n, line);
	return event;
}

static const char *text_of(json_t *event, const char *key)
{
	const char *text = json_string_value(json_object_get(event, key));

	return text ? text : "";
}

static json_int_t number_of(json_t *event, const char *key)
{
	return json_integer_value(json_object_get(event, key));
}

/* Returns the next event of that name; events before it are passed over. */
static json_t *next_called(const char *name)
{
	json_t *event = next_event();

	while (strcmp(text_of(event, "event"), name)) {
		ck_assert_str_eq(text_of(event, "event"), "step");
		json_decref(event);
		event = next_event();
	}
	ck_assert_double_gt(json_real_value(json_object_get(event, "time")), 1e9);
	return event;
}

static void open_stream(int host)
{
	open_job(host);
	ck_assert_int_eq(engine_events_open(observer, &stream), 0);
}

static void close_stream(void)
{
	engine_events_close(stream);
	close_job();
}

static float value[63];

static void set_by_rank(uint32_t rank)
{
	ck_assert_int_eq(frag_set(job_frag(&job, rank), job_number(&job, rank, 0), "fp32",
				  value, sizeof(value)),
			 0);
	job_boundary(&job);
}

static void expect_edit_by(uint32_t rank)
{
	json_t *event = next_called("edit"), *by = json_object_get(event, "by");

	ck_assert_int_eq(number_of(by, "rank"), rank);
	ck_assert_int_eq(number_of(by, "pid"), getpid());
	ck_assert_int_eq(number_of(by, "uid"), getuid());
	ck_assert_str_ne(text_of(by, "host"), "");
	ck_assert_str_eq(text_of(event, "param"), "w");
	ck_assert_str_eq(text_of(event, "state"), "fp32");
	ck_assert_int_eq(number_of(event, "bytes"), sizeof(value));
	ck_assert_int_gt(number_of(event, "boundary"), 0);
	ck_assert_str_eq(text_of(event, "outcome"), "committed");
	json_decref(event);
}

START_TEST(steps_and_edits_are_told_in_order)
{
	json_t *event;

	open_stream(_i);
	for (uint32_t i = 1; i <= 3; i++) {
		step();
		event = next_called("step");
		ck_assert_int_eq(number_of(event, "step"), i);
		ck_assert_str_eq(text_of(event, "phase"), "stable");
		json_decref(event);
		set_by_rank(i % WORLD);
		expect_edit_by(i % WORLD);
	}
	close_stream();
}
END_TEST

START_TEST(what_was_before_it_was_opened_is_not_told)
{
	open_job(_i);
	set_by_rank(1);
	step();
	for (int i = 0; i < 10; i++)
		turn(NULL);
	ck_assert_int_eq(engine_events_open(observer, &stream), 0);
	set_by_rank(0);
	expect_edit_by(0);
	engine_events_close(stream);
	set_by_rank(0);
	for (int i = 0; i < 30; i++)
		turn(NULL);
	ck_assert_int_eq(engine_events_open(observer, &stream), 0);
	set_by_rank(1);
	expect_edit_by(1);
	close_stream();
}
END_TEST

/* Also by an observer that opened after the edits. */
START_TEST(the_log_says_what_became_of_edits)
{
	CLEANUP(free) char *before = NULL, *after = NULL;

	open_job(_i);
	before = engine_text(observer, "log");
	ck_assert_ptr_nonnull(before);
	ck_assert_ptr_null(strstr(before, "job: "));
	set_by_rank(1);
	loop_free(observer);
	open_observer(hosts[_i]);
	after = engine_text(observer, "log");
	ck_assert_ptr_nonnull(after);
	ck_assert_ptr_nonnull(strstr(after, "fragfs: job: {\"event\":\"edit\""));
	ck_assert_ptr_nonnull(strstr(after, "\"outcome\":\"committed\""));
	ck_assert_ptr_nonnull(strstr(after, "\"by\":{\"rank\":1,"));
	close_job();
}
END_TEST

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	while ((text = strstr(text, word))) {
		text++;
		n++;
	}
	return n;
}

static void expect_one_edit_in_the_log(void)
{
	CLEANUP(free) char *log = engine_text(observer, "log");

	ck_assert_ptr_nonnull(log);
	ck_assert_uint_eq(count(log, "\"event\":\"edit\""), 1);
	ck_assert_uint_eq(count(log, "\"param\":\"w\",\"state\":\"fp32\""), 1);
}

/* At first two ranks know the edit, then one. */
START_TEST(an_edit_has_one_line_whoever_is_lost)
{
	json_t *event;

	open_stream(_i);
	set_by_rank(1);
	expect_edit_by(1);
	expect_one_edit_in_the_log();
	observer->timeout_ms = 1500;
	job_close_rank(&job, 0);
	event = next_called("rank-left");
	json_decref(event);
	for (int i = 0; i < 50; i++) {
		turn(NULL);
		poll(NULL, 0, 1);
	}
	ck_assert(!engine_events_ready(stream)); /* rank 1 sends no line that rank 0 has sent */
	expect_one_edit_in_the_log();
	close_stream();
}
END_TEST

/* A rank that tells the number of the newest line is not waited for, and no line is missed
 * meanwhile.
 */
START_TEST(a_stream_is_opened_in_a_hurry)
{
	struct engine_hurry hurry = { 0 };
	uint64_t seen;
	int rc;

	open_job(_i);
	set_by_rank(1);
	for (int i = 0; i < 10; i++)
		turn(NULL);
	engine_hurry(&hurry);
	seen = engine_epoch(observer);
	while ((rc = engine_events_open(observer, &stream)) == -EAGAIN) {
		wait_for_epoch(seen);
		seen = engine_epoch(observer);
	}
	engine_hurry(NULL);
	ck_assert_int_eq(rc, 0);
	set_by_rank(0);
	expect_edit_by(0);
	close_stream();
}
END_TEST

static int written;

static void on_written(struct engine_write *write, int result)
{
	done++;
	written = result;
}

START_TEST(an_edit_that_is_taken_back_is_told_with_why)
{
	struct engine_address address = { .kind = ENGINE_PARAM, .key = "fp32" };
	struct engine_extent extent = { 4, 8, value };
	struct engine_write write = { .extents = &extent, .nextents = 1, .done = on_written };
	uint64_t bytes;
	json_t *event;

	open_stream(_i);
	ck_assert_int_eq(engine_file_open(observer, &address, &write.file, &bytes), 0);
	done = 0;
	engine_write(observer, &write);
	for (int i = 0; i < 30; i++) /* no rank comes to its boundary */
		turn(NULL);
	engine_write_cancel(observer, &write);
	turn_until(&done, 1);
	ck_assert_int_eq(written, -ECANCELED);
	event = next_called("edit");
	ck_assert_str_eq(text_of(event, "outcome"), "aborted");
	ck_assert_str_eq(text_of(event, "why"), strerror(ECANCELED));
	ck_assert_int_eq(number_of(event, "bytes"), 8);
	ck_assert_ptr_null(json_object_get(json_object_get(event, "by"), "rank"));
	json_decref(event);
	engine_file_close(write.file);
	close_stream();
}
END_TEST

static int64_t got;

static void on_read(struct engine_read *read, const void *data, int64_t result)
{
	done++;
	got = result;
}

static int64_t read_some(struct engine_file *file, uint64_t offset)
{
	struct engine_read read = {
		.file = file, .offset = offset, .size = 8, .done = on_read
	};

	done = 0;
	engine_read(observer, &read);
	turn_until(&done, 1);
	return got;
}

START_TEST(a_view_that_an_owner_dropped_is_told)
{
	struct engine_address address = { .kind = ENGINE_PARAM, .key = "fp32" };
	struct engine_file *file;
	uint64_t bytes;
	json_t *event;

	open_stream(1); /* no reader on this host needs the owner to find the bytes */
	ck_assert_int_eq(engine_file_open(observer, &address, &file, &bytes), 0);
	ck_assert_int_eq(read_some(file, 0), 8);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		view_owner_expire(&job_frag(&job, rank)->engine->view_owner, UINT64_MAX);
	ck_assert_int_eq(read_some(file, 8), -ESTALE);
	event = next_called("view-evicted");
	ck_assert_str_eq(text_of(event, "param"), "w");
	ck_assert_str_eq(text_of(event, "state"), "fp32");
	ck_assert(json_is_integer(json_object_get(event, "generation")));
	ck_assert_int_eq(number_of(event, "generation"),
			 job_frag(&job, 0)->engine->registry.control->generation);
	json_decref(event);
	engine_file_close(file);
	close_stream();
}
END_TEST

START_TEST(a_rank_that_leaves_is_told)
{
	json_t *event;

	open_stream(_i);
	for (int i = 0; i < 10; i++)
		turn(NULL);
	observer->timeout_ms = 1500;
	job_close_rank(&job, 1);
	event = next_called("rank-left");
	ck_assert_int_eq(number_of(event, "rank"), 1);
	json_decref(event);
	close_stream();
}
END_TEST

START_TEST(a_rank_that_was_silent_and_answers_again_is_told)
{
	struct frag *f;
	json_t *event;

	open_stream(1);
	for (int i = 0; i < 10; i++)
		turn(NULL);
	observer->timeout_ms = 1500;
	f = job.ranks[1].f;
	job.ranks[1].f = NULL; /* the rank is not turned */
	event = next_called("rank-lost");
	ck_assert_int_eq(number_of(event, "rank"), 1);
	ck_assert_str_ne(text_of(event, "why"), "");
	json_decref(event);
	job.ranks[1].f = f;
	event = next_called("rank-back");
	ck_assert_int_eq(number_of(event, "rank"), 1);
	json_decref(event);
	close_stream();
}
END_TEST

START_TEST(a_slow_reader_hears_how_many_he_missed)
{
	json_t *event;

	open_stream(_i);
	for (int i = 0; i < EVENT_RING_KEPT + 5; i++)
		event_log_edit(observer,
			       &(struct event_settled){ .boundary = 1 + (uint64_t)i });
	event = next_event();
	ck_assert_str_eq(text_of(event, "event"), "lost");
	ck_assert_int_eq(number_of(event, "count"), 5);
	json_decref(event);
	for (int i = 5; i < EVENT_RING_KEPT + 5; i++) {
		event = next_event();
		ck_assert_int_eq(number_of(event, "boundary"), 1 + i);
		json_decref(event);
	}
	ck_assert(!engine_events_ready(stream));
	close_stream();
}
END_TEST

START_TEST(events_of_a_rank_that_are_none_are_left_out)
{
	static const char lines[] =
		"{\"event\":\"a\"}\nnonsense\n[1]\n\xff\n{\"event\":\"b\"}\n{\"ev";
	json_t *event;

	open_stream(_i);
	event_log_add_lines(observer, lines, sizeof(lines) - 1);
	event = next_event();
	ck_assert_str_eq(text_of(event, "event"), "a");
	json_decref(event);
	event = next_event();
	ck_assert_str_eq(text_of(event, "event"), "b");
	json_decref(event);
	ck_assert(!engine_events_ready(stream));
	close_stream();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("watch");
	TCase *t = tcase_create("watch");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, who_is_in_a_hurry_is_told_to_come_again, 0, 2);
	tcase_add_loop_test(t, a_wait_for_the_epoch_is_cancelled, 0, 2);
	tcase_add_loop_test(t, a_step_ends_all_waits, 0, 2);
	tcase_add_loop_test(t, a_cancelled_wait_ends_and_the_others_go_on, 0, 2);
	tcase_add_loop_test(t, nobody_waits_and_nothing_is_asked, 0, 2);
	tcase_add_test(t, an_old_page_of_another_rank_does_not_take_the_job_back);
	tcase_add_loop_test(t, the_end_of_the_job_is_a_change, 0, 2);
	tcase_add_loop_test(t, the_engines_end_ends_waits, 0, 2);
	tcase_add_loop_test(t, steps_and_edits_are_told_in_order, 0, 2);
	tcase_add_loop_test(t, what_was_before_it_was_opened_is_not_told, 0, 2);
	tcase_add_loop_test(t, the_log_says_what_became_of_edits, 0, 2);
	tcase_add_loop_test(t, an_edit_has_one_line_whoever_is_lost, 0, 2);
	tcase_add_loop_test(t, a_stream_is_opened_in_a_hurry, 0, 2);
	tcase_add_loop_test(t, an_edit_that_is_taken_back_is_told_with_why, 0, 2);
	tcase_add_test(t, a_view_that_an_owner_dropped_is_told);
	tcase_add_loop_test(t, a_rank_that_leaves_is_told, 0, 2);
	tcase_add_test(t, a_rank_that_was_silent_and_answers_again_is_told);
	tcase_add_loop_test(t, a_slow_reader_hears_how_many_he_missed, 0, 1);
	tcase_add_loop_test(t, events_of_a_rank_that_are_none_are_left_out, 0, 1);
	return run_suite(s, t);
}

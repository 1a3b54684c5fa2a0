/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/job/join-internal.h"
#include "engine/live/loop.h"
#include "engine/read/readahead.h"
#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What an engine does in its turns without a request. */

static const struct job_param params[] = { { "w", .ndim = 1, .shape = { 64 } } };
static const struct job_group groups[] = { { .stage = 1, .nparams = 1, .params = { 0 } } };

static struct job job;
static struct engine *e; /* rank 0 */

enum { LONG_AGO_MS = 1, TURNS = 16 };

static void setup(void)
{
	job_open(&job,
		 &(struct job_spec){ .world = 2, JOB_PARAMS(params), JOB_GROUPS(groups) });
	e = job_frag(&job, 0)->engine;
}

static void teardown(void)
{
	job_close(&job);
}

static void turn(void)
{
	for (int i = 0; i < TURNS; i++)
		job_turn(&job);
}

static const struct view *open_view(uint64_t now_ms)
{
	enum frag_dtype dtype;
	int row = registry_find(&e->registry, STATE_PARTITION, (uint32_t)job.ranks[0].group[0],
				0, "fp32", &dtype);
	struct view_run run = { .row = (uint32_t)row, .size = 128 };
	struct view_request q = { .id = { 1, 2 }, .runs = &run, .nruns = 1 };
	struct view view;

	ck_assert_int_eq(view_owner_open(&e->view_owner, &e->registry, &q, now_ms, &view), 0);
	return LIST_FIRST(&e->view_owner.list);
}

START_TEST(views_of_an_observer_that_went_silent_are_dropped)
{
	open_view(monotonic_ms());
	turn();
	ck_assert_uint_gt(e->view_owner.pool.lent, 0);
	view_owner_touch(&e->view_owner, 0, 0, LONG_AGO_MS);
	turn();
	ck_assert_uint_eq(e->view_owner.pool.lent, 0);
	ck_assert_ptr_null(LIST_FIRST(&e->view_owner.list));
}
END_TEST

static const struct view *aged_view(void)
{
	const struct view *view = open_view(LONG_AGO_MS);

	view_owner_touch(&e->view_owner, 0, 0, monotonic_ms());
	return view;
}

START_TEST(a_job_that_steps_copies_ahead_for_its_views)
{
	const struct view *view;

	frag_step_begin(job_frag(&job, 0));
	frag_step_end(job_frag(&job, 0));
	/* the next change of states is due */
	atomic_store(&e->registry.control->interval_ns, 0);
	view = aged_view();
	turn();
	ck_assert_int_eq(view->state, VIEW_LIVE);
	ck_assert_uint_eq(view->copied, 128);
}
END_TEST

static const struct control_page *one_step(void)
{
	frag_step_begin(job_frag(&job, 0));
	frag_step_end(job_frag(&job, 0));
	return e->registry.control;
}

START_TEST(what_the_trainer_does_for_readers_is_counted_and_nothing_else)
{
	const struct control_page *page = one_step();
	uint64_t held;

	ck_assert_uint_eq(atomic_load(&page->held_ns), 0);
	ck_assert_uint_eq(atomic_load(&page->kept_bytes), 0);
	open_view(monotonic_ms());
	one_step();
	held = atomic_load(&page->held_ns);
	ck_assert_uint_gt(held, 0);
	ck_assert_uint_eq(atomic_load(&page->kept_bytes), 128);
	view_owner_close(&e->view_owner, (uint64_t[]){ 1, 2 });
	one_step();
	ck_assert_uint_eq(atomic_load(&page->held_ns), held);
}
END_TEST

START_TEST(the_page_says_when_a_generation_came_about_and_how_far_apart_boundaries_are)
{
	const struct control_page *page = e->registry.control;
	uint64_t before = atomic_load(&page->generation_ns), now = clock_ns(CLOCK_REALTIME);

	ck_assert_uint_gt(before, 0);
	ck_assert_uint_le(before, now);
	ck_assert_uint_eq(atomic_load(&page->boundary_ns), 0);
	frag_step_begin(job_frag(&job, 0));
	ck_assert_uint_ge(atomic_load(&page->boundary_ns), now);
	ck_assert_uint_eq(atomic_load(&page->interval_ns), 0);
	ck_assert_uint_eq(atomic_load(&page->generation_ns), before);
	frag_step_end(job_frag(&job, 0));
	ck_assert_uint_gt(atomic_load(&page->interval_ns), 0);
	before = atomic_load(&page->generation_ns);
	ck_assert_uint_ge(before, now);
	frag_safe_point(job_frag(&job, 0));
	ck_assert_uint_gt(atomic_load(&page->boundary_ns), before);
	ck_assert_uint_eq(atomic_load(&page->generation_ns), before);
}
END_TEST

START_TEST(a_job_at_rest_copies_nothing)
{
	const struct view *view = aged_view();

	turn();
	ck_assert_uint_eq(view->copied, 0);
}
END_TEST

static uint64_t messages_out(struct engine *of)
{
	return atomic_load(&of->counters.messages_out);
}

/* After a restart: the engine at that address is of another life of the job, and has a newer
 * table.
 */
START_TEST(a_table_that_is_refused_is_not_asked_for_again_and_again)
{
	struct engine *other = job_frag(&job, 1)->engine;
	uint64_t before;

	other->job.incarnation++;
	other->job.membership = 0;
	other->peers[0].pinged_ms = 0;
	before = messages_out(other);
	turn();
	/* a PING, whose answer tells of the table */
	ck_assert_uint_gt(messages_out(other), before);
	before = messages_out(other);
	turn();
	ck_assert_uint_eq(messages_out(other), before);
	other->job.incarnation--;
}
END_TEST

static void publish_more(struct frag *f, uint32_t from, uint32_t to)
{
	static uint8_t byte;
	char name[FRAG_KEY_MAX + 1];

	for (; from < to; from++) {
		snprintf(name, sizeof(name), "%0*u", FRAG_KEY_MAX, from);
		ck_assert_int_eq(frag_publish(f, name, &byte, 1), 0);
	}
}

START_TEST(a_table_of_states_that_changes_while_it_is_fetched_is_fetched_anew)
{
	enum { MANY = 12000 }; /* two messages */
	struct frag *f = job_frag(&job, 1);
	const struct peer *p = &e->peers[1];
	uint64_t deadline = monotonic_ms() + JOB_WAIT_MS;
	static char log[1 << 17];

	publish_more(f, 0, MANY);
	peer_fetch_states(&e->peers[1]);
	while (p->incoming.size < WIRE_CHUNK && monotonic_ms() < deadline)
		job_turn(&job);
	publish_more(f, MANY, MANY + 1);
	while ((!p->states || p->states->epoch != f->engine->registry.states.epoch) &&
	       monotonic_ms() < deadline) {
		peer_fetch_states(&e->peers[1]);
		job_turn(&job);
	}
	ck_assert_uint_eq(p->states->epoch, f->engine->registry.states.epoch);
	log_tail(log, sizeof(log));
	ck_assert_ptr_null(strstr(log, "damaged"));
}
END_TEST

START_TEST(reads_by_message_are_counted)
{
	uint64_t bytes;

	job_close(&job);
	job_open(&job,
		 &(struct job_spec){
			 .world = 2, .hosts = 2, JOB_PARAMS(params), JOB_GROUPS(groups) });
	e = job_frag(&job, 0)->engine;
	bytes = job_bytes(&job, 0, "fp32");
	CLEANUP(free) uint8_t *got = malloc(bytes);
	ck_assert_int_eq(
		frag_get(job_frag(&job, 0), job_number(&job, 0, 0), "fp32", got, bytes), 0);
	ck_assert_uint_eq(atomic_load(&e->counters.reads), 1);
	ck_assert_uint_eq(atomic_load(&e->counters.read_bytes), bytes);
}
END_TEST

/* ---- ranks that have not joined ---- */

enum { WAITING = 3, SECONDS = 25 };

static struct frag *waiting[2]; /* the two of three ranks that have joined */

static void open_waiting(uint32_t rank, const char *seed)
{
	struct launch launch = { .rank = rank, .world = WAITING, .job = "half", .plain = true };

	ck_assert_int_eq(
		api_open_over(&waiting[rank], &launch, &transport_loop, NULL, seed, false), 0);
	ck_assert_int_eq(frag_ready(waiting[rank]), 0);
}

static const char *turn_waiting(void)
{
	static char log[1 << 17];

	for (int i = 0; i < TURNS; i++)
		for (int rank = 0; rank < 2; rank++)
			loop_turn(waiting[rank]->engine, 0);
	log_tail(log, sizeof(log));
	return log;
}

START_TEST(who_has_not_come_is_said_ever_later)
{
	static const char said[] =
		"after 25 s: job half: 2 of 3 ranks have joined; not yet: 2\n";
	const char *seed, *log;

	open_waiting(0, NULL);
	seed = waiting[0]->engine->job.address;
	open_waiting(1, seed);
	while (!waiting[1]->engine->job.join->nmissing)
		turn_waiting();
	ck_assert_ptr_null(strstr(turn_waiting(), "not yet"));
	for (int rank = 0; rank < 2; rank++)
		waiting[rank]->engine->job.join->rank.since_ms -= SECONDS * 1000;
	log = turn_waiting();
	log = strstr(log, said);
	ck_assert(log && strstr(log + 1, said)); /* logged by both ranks */
	ck_assert_uint_ge(waiting[0]->engine->job.join->rank.say_ms, 2 * SECONDS * 1000);
	frag_close(waiting[1]);
	frag_close(waiting[0]);
}
END_TEST

/* ---- ranks whose shared descriptions differ ---- */

enum { DIFFERENT = 3, PAIRED = 200 };

static struct frag *different[DIFFERENT];

static void open_different(uint32_t rank, uint32_t world, int stage, bool more)
{
	static const uint64_t shape[] = { 64 };
	struct launch launch = { .rank = rank, .world = world, .job = "apart", .plain = true };
	struct frag_tensor t = { sizeof(t), .name = "w", .dtype = FRAG_F32, .ndim = 1,
				 .shape = shape };
	struct frag_zero z = { sizeof(z), .stage = stage };
	int param;

	ck_assert_int_eq(api_open_over(&different[rank], &launch, &transport_loop, NULL,
				       rank ? different[0]->engine->job.address : NULL, false),
			 0);
	param = frag_param(different[rank], &t);
	ck_assert_int_eq(frag_group(different[rank], &param, 1, &z), 0);
	t.name = "more";
	ck_assert(!more || frag_param(different[rank], &t) == 1);
	ck_assert_int_eq(frag_ready(different[rank]), 0);
}

static void turn_different(uint32_t world)
{
	for (uint32_t rank = 0; rank < world; rank++)
		loop_turn(different[rank]->engine, 0);
}

static void close_different(uint32_t world)
{
	while (world)
		frag_close(different[--world]);
}

static bool all_have_failed(void)
{
	for (uint32_t rank = 0; rank < DIFFERENT; rank++)
		if (!different[rank]->engine->job.failure)
			return false;
	return true;
}

static bool is_between_hellos(const struct join *j)
{
	return j->state == JOIN_HELLO && j->nmissing && !j->waiting;
}

static void turn_pair(uint32_t a, uint32_t b)
{
	loop_turn(different[a]->engine, 0);
	loop_turn(different[b]->engine, 0);
}

START_TEST(all_ranks_hear_of_one_that_describes_a_group_differently)
{
	static const char said[] = "rank 2 describes group 0 differently: stage 2, not 1";
	struct engine *zero;

	for (uint32_t rank = 0; rank < 2; rank++)
		open_different(rank, DIFFERENT, 1, false);
	while (!is_between_hellos(different[1]->engine->job.join))
		turn_different(2);
	open_different(2, DIFFERENT, 2, false);
	zero = different[0]->engine;
	while (!zero->job.join->zero.refusal)
		turn_pair(0, 2);
	ck_assert_int_eq(zero->job.join->zero.refusal, -EINVAL);
	zero->job.join->zero.refuse_until_ms = UINT64_MAX;
	for (int i = 0; i < PAIRED; i++)
		turn_pair(0, 2);
	/* not yet: once rank 0's call has failed, its trainer may end */
	ck_assert_int_eq(zero->job.failure, 0);
	while (!all_have_failed())
		turn_different(DIFFERENT);
	for (uint32_t rank = 0; rank < DIFFERENT; rank++) {
		ck_assert_int_eq(different[rank]->engine->job.failure, -EINVAL);
		ck_assert_ptr_nonnull(strstr(different[rank]->engine->job.why, said));
		ck_assert_int_eq(frag_barrier(different[rank], 0), -EINVAL);
	}
	close_different(DIFFERENT);
}
END_TEST

START_TEST(a_rank_that_cannot_be_told_why_is_not_waited_for_for_ever)
{
	struct engine *zero;

	for (uint32_t rank = 0; rank < 2; rank++)
		open_different(rank, 2, 1 + (int)rank, false);
	zero = different[0]->engine;
	while (!zero->job.join->zero.refusal)
		turn_different(2);
	zero->job.join->zero.refuse_until_ms = LONG_AGO_MS;
	loop_turn(zero, 0);
	ck_assert_int_eq(zero->job.failure, -EINVAL);
	close_different(2);
}
END_TEST

static const struct {
	int stage;
	bool more;
	const char *said;
} backs[] = {
	{ 2, false, ": rank 1 describes group 0 differently: stage 2, not 1" },
	{ 1, true, ": rank 1 describes what the job does not have: parameters 1, groups 0" },
};

START_TEST(a_rank_that_comes_back_as_another_says_what_is)
{
	struct engine *one;

	for (uint32_t rank = 0; rank < 2; rank++)
		open_different(rank, 2, 1, false);
	while (!different[1]->engine->job.ready)
		turn_different(2);
	frag_close(different[1]);
	open_different(1, 2, backs[_i].stage, backs[_i].more);
	one = different[1]->engine;
	different[0]->engine->peers[1].heard_ms = LONG_AGO_MS;
	while (!one->job.failure)
		turn_different(2);
	ck_assert_int_eq(one->job.failure, -EINVAL);
	ck_assert_msg(strstr(one->job.why, backs[_i].said) != NULL, "%s", one->job.why);
	close_different(2);
}
END_TEST

/* ---- a read of all of a small file ---- */

static int64_t result;

static void on_read(struct engine_read *read, const void *data, int64_t n)
{
	if (n > 0)
		ck_assert_mem_eq(data, job_truth(&job, 0, "fp32"), (size_t)n);
	result = n;
}

static void begin_read(struct engine_read *read)
{
	struct engine_address address;
	uint64_t bytes;

	*read = (struct engine_read){ .size = ENGINE_READ_MAX, .done = on_read };
	ck_assert_int_eq(
		api_address_of(job_frag(&job, 0), job_number(&job, 0, 0), "fp32", &address), 0);
	ck_assert_int_eq(engine_file_open(e, &address, &read->file, &bytes), 0);
	result = 0;
	engine_read(e, read);
}

static void end_read(struct engine_read *read)
{
	while (!result)
		job_turn(&job);
	ck_assert_int_eq(result, (int64_t)job_bytes(&job, 0, "fp32"));
	engine_file_close(read->file);
}

static void all_step(int (*hook)(struct frag *f))
{
	for (uint32_t rank = 0; rank < 2; rank++)
		ck_assert_int_eq(hook(job_frag(&job, rank)), 0);
}

START_TEST(a_small_file_read_within_a_step_waits_for_its_end_without_a_view)
{
	struct engine_read read;
	uint64_t views;

	begin_read(&read);
	end_read(&read); /* the reader has all links now */
	views = e->read.view_number;
	all_step(frag_step_begin);
	begin_read(&read);
	ck_assert_int_eq(result, 0);
	all_step(frag_step_end);
	end_read(&read);
	ck_assert_uint_eq(e->read.view_number, views);
}
END_TEST

START_TEST(one_that_waits_long_gets_a_view)
{
	struct engine_read read;
	uint64_t views = e->read.view_number;

	all_step(frag_step_begin);
	begin_read(&read);
	while (e->read.view_number == views)
		job_turn(&job);
	all_step(frag_step_end);
	end_read(&read);
}
END_TEST

/* ---- a state of two requests ---- */

static const struct job_param large[] = { { "w", .ndim = 1,
					    .shape = { READAHEAD_BUFFER / sizeof(float) } } };

static void setup_large(void)
{
	job_open(&job, &(struct job_spec){ .world = 2, JOB_PARAMS(large), JOB_GROUPS(groups) });
	e = job_frag(&job, 0)->engine;
}

static struct engine_file *open_large(void)
{
	struct engine_address address;
	struct engine_file *file;
	uint64_t bytes;

	ck_assert_int_eq(
		api_address_of(job_frag(&job, 0), job_number(&job, 0, 0), "fp32", &address), 0);
	ck_assert_int_eq(engine_file_open(e, &address, &file, &bytes), 0);
	ck_assert_uint_eq(bytes, READAHEAD_BUFFER);
	return file;
}

static void on_part(struct engine_read *read, const void *data, int64_t n)
{
	const uint8_t *truth = job_truth(&job, 0, "fp32");

	ck_assert_int_eq(n, ENGINE_READ_MAX);
	ck_assert_mem_eq(data, truth + read->offset, (size_t)n);
	result = n;
}

static void read_large(struct engine_file *file, uint64_t offset)
{
	struct engine_read read = {
		.file = file, .offset = offset, .size = ENGINE_READ_MAX, .done = on_part
	};

	result = 0;
	engine_read(e, &read);
	while (!result)
		job_turn(&job);
}

static void step_large(void)
{
	all_step(frag_step_begin);
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct job_memory *m = job_memory(&job, rank, 0, 0, "fp32");

		memset(m->bytes_at, 0x55, m->bytes);
	}
	all_step(frag_step_end);
}

START_TEST(a_file_of_two_requests_is_copied_at_the_first_and_needs_no_view)
{
	struct engine_file *file = open_large();
	uint64_t views;

	read_large(file, 0); /* the reader has all links now */
	engine_file_close(file);
	views = e->read.view_number;
	file = open_large();
	read_large(file, 0);
	ck_assert_uint_eq(e->read.nwhole, 1);
	step_large();
	read_large(file, ENGINE_READ_MAX);
	ck_assert_uint_eq(e->read.view_number, views);
	engine_file_close(file);
	ck_assert_uint_eq(e->read.nwhole, 0);
}
END_TEST

START_TEST(one_that_is_read_from_its_middle_or_beside_too_many_gets_a_view)
{
	struct engine_file *file = open_large();

	atomic_store(&e->read.nwhole, _i ? 1000 : 0);
	read_large(file, _i ? 0 : ENGINE_READ_MAX);
	atomic_store(&e->read.nwhole, 0);
	ck_assert(file->view_is_ready);
	step_large();
	read_large(file, _i ? ENGINE_READ_MAX : 0);
	engine_file_close(file);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("turn");
	TCase *t = tcase_create("turn");
	TCase *two = tcase_create("two requests");

	tcase_add_checked_fixture(two, setup_large, teardown);
	tcase_add_test(two, a_file_of_two_requests_is_copied_at_the_first_and_needs_no_view);
	tcase_add_loop_test(
		two, one_that_is_read_from_its_middle_or_beside_too_many_gets_a_view, 0, 2);

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, views_of_an_observer_that_went_silent_are_dropped);
	tcase_add_test(t, a_job_that_steps_copies_ahead_for_its_views);
	tcase_add_test(t, a_job_at_rest_copies_nothing);
	tcase_add_test(t, what_the_trainer_does_for_readers_is_counted_and_nothing_else);
	tcase_add_test(
		t, the_page_says_when_a_generation_came_about_and_how_far_apart_boundaries_are);
	tcase_add_test(t, a_table_that_is_refused_is_not_asked_for_again_and_again);
	tcase_add_test(t, a_table_of_states_that_changes_while_it_is_fetched_is_fetched_anew);
	tcase_add_test(t, reads_by_message_are_counted);
	tcase_add_test(t, who_has_not_come_is_said_ever_later);
	tcase_add_test(t, all_ranks_hear_of_one_that_describes_a_group_differently);
	tcase_add_test(t, a_rank_that_cannot_be_told_why_is_not_waited_for_for_ever);
	tcase_add_loop_test(t, a_rank_that_comes_back_as_another_says_what_is, 0,
			    ARRAY_SIZE(backs));
	tcase_add_test(t, a_small_file_read_within_a_step_waits_for_its_end_without_a_view);
	tcase_add_test(t, one_that_waits_long_gets_a_view);
	suite_add_tcase(s, two);
	return run_suite(s, t);
}

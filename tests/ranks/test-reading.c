/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/observed.h"
#include "tests/run-suite.h"

#include "engine/job/join-internal.h"
#include "engine/node/file.h"
#include "engine/read/onesided-read.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* An observer's views while the job trains on, and memory or messages fail between two reads.
 */

enum { PART = 8 }; /* bytes of a read that needs a view; a read of the whole file needs none */

static struct engine_file *file;

static void begin_step(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
}

static void end_step(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
}

/* A step that changes all elements of the state. */
static void step(const char *key)
{
	begin_step();
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct job_memory *m = job_memory(&job, rank, 0, 0, key);

		memset(m->bytes_at, 0x55, m->bytes);
	}
	end_step();
}

static bool reads_as_before(void)
{
	return read_file(file, 0, PART, false, false) == PART &&
	       !memcmp(read_bytes, job_truth(&job, 0, "exp_avg"), PART);
}

/* Opens a file whose view's bytes are kept in a room of the owner by now.  known: the observer
 * knows that.
 */
static void open_kept_view(bool known)
{
	open_near();
	file = open_state(ENGINE_PARAM, "exp_avg");
	ck_assert(reads_as_before());
	step("exp_avg");
	if (known)
		ck_assert(reads_as_before());
}

static void end(void)
{
	engine_file_close(file);
	close_job();
}

/* A rank that stops before it is first read can be read. */
START_TEST(tables_of_its_own_host_come_before_they_are_needed)
{
	open_near();
	for (int i = 0; i < TURNS && !(observer->peers[1].states && observer->peers[2].states);
	     i++)
		turn(NULL);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_ptr_nonnull(observer->peers[rank].states);
	close_job();
	open_far();
	for (int i = 0; i < 100; i++)
		turn(NULL);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_ptr_null(observer->peers[rank].states);
	close_job();
}
END_TEST

static const struct job_group twice = {
	.stage = 1, .replicas = 2, .nparams = 2, .params = { 0, 2 }
};
static const struct job_group sharded = { .stage = 3, .nparams = 2, .params = { 0, 2 } };

static bool is_asked_for(uint32_t rank)
{
	const struct peer *p = &observer->peers[rank];

	return p->states || p->fetch;
}

static void no_result(struct engine_read *read, const void *data, int64_t result)
{
}

/* A thousand tables, asked for one after the other, would take a thousand round trips. */
START_TEST(all_tables_that_are_missing_are_asked_for_at_once)
{
	struct engine_read read = { .size = PART, .done = no_result };

	open_group(&sharded);
	file = read.file = open_state(ENGINE_PARAM, "exp_avg");
	engine_read(observer, &read);
	for (int i = 0; i < TURNS && !is_asked_for(1); i++)
		turn(NULL);
	for (uint32_t rank = 1; rank < 4; rank++)
		ck_assert(is_asked_for(rank));
	ck_assert(!observer->peers[1].states);
	engine_read_cancel(observer, &read);
	for (int i = 0; i < 20; i++)
		turn(NULL);
	end();
}
END_TEST

static void on_written(struct engine_write *write, int result)
{
	*(int *)write->owner = result;
}

static int edit(void)
{
	static const float value = 1;
	struct engine_extent extent = { 0, sizeof(value), &value };
	int result = 1;
	struct engine_write write = {
		.extents = &extent, .nextents = 1, .done = on_written, .owner = &result
	};

	write.file = open_state(ENGINE_PARAM, "fp32");
	engine_write(observer, &write);
	for (int i = 0; i < TURNS && result > 0; i++) {
		job_boundary(&job);
		turn(NULL);
	}
	engine_file_close(write.file);
	return result;
}

/* The newest tables tell that no rank keeps a whole copy beside its piece. */
START_TEST(an_edit_of_pieces_fetches_no_table_anew)
{
	uint64_t asked_ns[4];

	open_group(&sharded);
	observer->write.allowed = true;
	ck_assert_int_eq(edit(), 0);
	for (uint32_t rank = 0; rank < 4; rank++)
		asked_ns[rank] = observer->peers[rank].asked_ns;
	ck_assert_int_eq(edit(), 0);
	for (uint32_t rank = 0; rank < 4; rank++) {
		ck_assert_uint_eq(observer->peers[rank].asked_ns, asked_ns[rank]);
		ck_assert_uint_gt(observer->peers[rank].states_ns, asked_ns[rank]);
	}
	close_job();
}
END_TEST

/* A copy that a rank has registered since then gets the edit. */
START_TEST(a_table_that_is_not_the_newest_is_fetched)
{
	static double lr;
	uint64_t asked_ns;

	open_group(&sharded);
	observer->write.allowed = true;
	ck_assert_int_eq(edit(), 0);
	asked_ns = observer->peers[2].asked_ns;
	ck_assert_int_eq(frag_hyper(job_frag(&job, 2), 0, "lr", &lr), 0);
	ck_assert_int_eq(edit(), 0);
	ck_assert_uint_gt(observer->peers[2].asked_ns, asked_ns);
	close_job();
}
END_TEST

/* A job may have a thousand copies; to read one of them the tables of others are not fetched.
 */
START_TEST(one_of_several_copies_is_asked_for)
{
	open_group(&twice);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	ck_assert_mem_eq(read_bytes, job_truth(&job, 0, "fp32"), BYTES);
	for (uint32_t rank = 0; rank < 4; rank++)
		ck_assert_int_eq(observer->peers[rank].states != NULL, rank < 2);
	close_job();
}
END_TEST

START_TEST(another_copy_is_read_where_one_has_died)
{
	open_group(&twice);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	job_close_rank(&job, 1);
	for (int i = 0; i < TURNS && observer->peers[1].state != ENGINE_RANK_LOST; i++)
		read_at(0, BYTES, "fp32", false, false);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	ck_assert_mem_eq(read_bytes, job_truth(&job, 0, "fp32"), BYTES);
	ck_assert_ptr_nonnull(observer->peers[3].states);
	close_job();
}
END_TEST

/* Each of a thousand ranks has a table with a row for each of its states. */
START_TEST(the_health_of_ranks_costs_no_tables)
{
	struct engine_rank r;

	open_far();
	free(engine_text(observer, "health"));
	for (int i = 0; i < 100; i++)
		turn(NULL);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert(engine_rank(observer, rank, &r));
		ck_assert_uint_eq(r.state, ENGINE_RANK_ALIVE);
		ck_assert_str_eq(r.phase, "stable");
		ck_assert_uint_gt(r.bytes_host, 0);
		ck_assert_str_eq(r.way, "zmq");
		ck_assert_ptr_null(observer->peers[rank].states);
	}
	close_job();
}
END_TEST

START_TEST(a_view_goes_on_through_steps)
{
	open_kept_view(false);
	for (int i = 0; i < 3; i++)
		ck_assert(reads_as_before());
	end();
}
END_TEST

static const struct {
	int result;
	int64_t read;
} gets[] = { { -EFAULT, PART }, { -EIO, -EIO }, { -EPERM, -EACCES } };

START_TEST(a_room_that_cannot_be_read_is_asked_for_or_an_error)
{
	const struct fault *fault;

	open_kept_view(true);
	fault = faults_add(&(struct fault){ FAULT_GET, .result = gets[_i].result });
	ck_assert_int_eq(read_file(file, 0, PART, false, false), gets[_i].read);
	ck_assert_uint_eq(fault->fired, 1);
	end();
}
END_TEST

/* The rank may have left: its LEAVE, or another rank's word of it, may still be under way. */
START_TEST(a_rank_that_is_found_gone_has_left_or_is_lost)
{
	enum { LAST = BYTES - PART }; /* byte of the last rank */
	struct engine *last;

	open_near();
	file = open_state(ENGINE_PARAM, "exp_avg");
	ck_assert(reads_as_before());
	last = job_frag(&job, WORLD - 1)->engine;
	last->job.ready = _i; /* 0: it dies without a LEAVE */
	job_close_rank(&job, WORLD - 1);
	faults_add(&(struct fault){ FAULT_GET, .result = -ESRCH });
	ck_assert_int_eq(onesided_read(observer, file, LAST, read_bytes, PART, "test"),
			 -EAGAIN);
	ck_assert_int_eq(observer->peers[WORLD - 1].state, ENGINE_RANK_ALIVE);
	for (int i = 0; i < TURNS && peer_is_live(&observer->peers[WORLD - 1]); i++)
		turn(NULL);
	ck_assert_int_eq(observer->peers[WORLD - 1].state, ENGINE_RANK_LOST);
	ck_assert_int_eq(peer_has_left(&observer->peers[WORLD - 1]), _i);
	ck_assert_int_eq(read_file(file, LAST, PART, false, false), -EIO);
	end();
}
END_TEST

static struct view *view_of(uint32_t rank)
{
	return LIST_FIRST(&job_frag(&job, rank)->engine->view_owner.list);
}

START_TEST(a_room_that_is_not_complete_is_asked_for)
{
	open_kept_view(_i);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		if (view_of(rank))
			atomic_store(&view_pool_label(view_of(rank)->buffer)->complete, 0);
	ck_assert(reads_as_before());
	end();
}
END_TEST

START_TEST(a_table_that_has_shrunk_is_not_read_beyond_its_end)
{
	uint32_t nrows[WORLD];

	open_near();
	file = open_state(ENGINE_PARAM, "exp_avg");
	ck_assert(reads_as_before());
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		nrows[rank] = observer->peers[rank].states->nrows;
		observer->peers[rank].states->nrows = 0;
	}
	ck_assert(reads_as_before());
	for (uint32_t rank = 0; rank < WORLD; rank++)
		observer->peers[rank].states->nrows = nrows[rank];
	end();
}
END_TEST

static unsigned whole;

static void on_whole(struct engine_read *read, const void *data, int64_t result)
{
	ck_assert_int_eq(result, BYTES);
	ck_assert_mem_eq(data, job_truth(&job, 0, "fp32"), BYTES);
	whole++;
}

START_TEST(two_that_wait_for_the_end_of_a_step_get_one_and_the_same)
{
	struct engine_read reads[2];
	const struct fault *fault;

	open_near();
	/* after this the tables are there */
	ck_assert_int_eq(read_at(0, PART, "exp_avg", false, false), PART);
	file = open_state(ENGINE_PARAM, "fp32");
	begin_step();
	for (int i = 0; i < 2; i++) {
		reads[i] =
			(struct engine_read){ .file = file, .size = BYTES, .done = on_whole };
		engine_read(observer, &reads[i]);
	}
	turn(NULL);
	ck_assert_uint_eq(whole, 0);
	end_step();
	/* of the first of the two reads */
	fault = faults_add(&(struct fault){ FAULT_GET, .result = -EIO });
	for (int i = 0; i < TURNS && whole < 2; i++)
		turn(NULL);
	ck_assert_uint_eq(whole, 2);
	ck_assert_uint_eq(fault->fired, 1);
	end();
}
END_TEST

START_TEST(gradients_that_are_not_there_are_not_waited_for)
{
	open_far();
	file = open_state(ENGINE_PARAM, "grad");
	ck_assert_int_eq(read_file(file, 0, PART, true, false), -ENODATA);
	/* the next read comes before the owners are asked again */
	file->view.retry_ms = UINT64_MAX;
	ck_assert_int_eq(read_file(file, 0, PART, true, false), -ENODATA);
	file->view.retry_ms = 0;
	job_grads_valid(&job);
	ck_assert_int_eq(read_file(file, 0, PART, true, false), PART);
	end();
}
END_TEST

START_TEST(what_comes_with_the_next_generation_is_waited_for)
{
	const struct fault *fault;

	open_far();
	file = open_state(ENGINE_PARAM, "exp_avg");
	fault = faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_DATA, .poked = true,
					    .poke = (uint32_t)-EAGAIN,
					    .poke_at = offsetof(struct wire_data, status) });
	ck_assert_int_eq(read_file(file, 0, PART, false, false), PART);
	ck_assert_uint_eq(fault->fired, 1);
	end();
}
END_TEST

START_TEST(a_rank_0_that_tells_of_another_job_is_not_believed)
{
	const struct fault *fault;

	open_far();
	fault = faults_add(
		&(struct fault){ FAULT_SEND, .type = WIRE_WELCOME, .poked = true, .poke = 7,
				 .poke_at = offsetof(struct wire_welcome, catalog_hash) });
	observer->job.join->state = JOIN_HELLO;
	for (int i = 0; i < TURNS && !fault->fired; i++)
		turn(NULL);
	ck_assert_uint_eq(fault->fired, 1);
	file = open_state(ENGINE_PARAM, "exp_avg");
	ck_assert(reads_as_before());
	ck_assert(observer->job.ready && !observer->job.failure);
	end();
}
END_TEST

START_TEST(who_waits_for_room_that_nobody_gives_back_is_told)
{
	struct engine_file *first, *second;

	open_far();
	job_frag(&job, 0)->engine->view_owner.pool.max = 4096; /* room for one view */
	first = open_state(ENGINE_PARAM, "exp_avg");
	second = open_state(ENGINE_PARAM, "exp_avg_sq");
	ck_assert_int_eq(read_file(first, 0, 8, false, false), 8);
	ck_assert_int_eq(read_file(second, 0, 8, false, false), -ENOMEM);
	ck_assert_int_eq(read_file(second, 0, 8, false, false),
			 -ENOMEM); /* at once, for some time */
	engine_file_close(first);
	for (uint64_t until = monotonic_ms() + 1000; monotonic_ms() < until;)
		turn(NULL);
	ck_assert_int_eq(read_file(second, 0, 8, false, false), 8);
	engine_file_close(second);
	close_job();
}
END_TEST

START_TEST(a_read_whose_view_is_never_heard_of_ends)
{
	open_far();
	file = open_state(ENGINE_PARAM, "exp_avg");
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_VIEW_OPEN, .count = MANY });
	ck_assert_int_eq(read_file(file, 0, 8, false, false), -ETIMEDOUT);
	faults_clear();
	engine_file_close(file);
	close_job();
}
END_TEST

/* By message, in several requests at a time.  i 1: one of the requests cannot be sent. */
START_TEST(a_large_state_is_got_whole_or_not_and_nothing_of_it_comes_later)
{
	enum { LARGE = (5 << 20) / sizeof(float) + 3 };
	static const struct job_param params[] = { { "w", .ndim = 1, .shape = { LARGE } } };
	static const struct job_group groups[] = {
		{ .stage = 1, .nparams = 1, .params = { 0 } }
	};
	static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_KEEP } };
	const uint64_t bytes = LARGE * sizeof(float);
	CLEANUP(free) uint8_t *got = malloc(bytes);
	struct job two;

	job_open(&two, &(struct job_spec){ .world = 2,
					   .hosts = 2,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   JOB_KEYS(keys),
					   .lp = JOB_LP_NONE,
					   .messages = faults_over(&transport_loop) });
	if (_i)
		faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_READ, .nth = 2,
					    .result = -EMSGSIZE });
	ck_assert_int_eq(
		frag_get(job_frag(&two, 1), job_number(&two, 1, 0), "fp32", got, bytes),
		_i ? -EMSGSIZE : 0);
	ck_assert(LIST_EMPTY(&job_frag(&two, 1)->engine->read.remote));
	if (!_i)
		ck_assert_mem_eq(got, job_truth(&two, 0, "fp32"), bytes);
	faults_clear();
	job_close(&two);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reading");
	TCase *t = tcase_create("reading");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, who_waits_for_room_that_nobody_gives_back_is_told);
	tcase_add_test(t, a_read_whose_view_is_never_heard_of_ends);
	tcase_add_test(t, tables_of_its_own_host_come_before_they_are_needed);
	tcase_add_test(t, all_tables_that_are_missing_are_asked_for_at_once);
	tcase_add_test(t, an_edit_of_pieces_fetches_no_table_anew);
	tcase_add_test(t, a_table_that_is_not_the_newest_is_fetched);
	tcase_add_test(t, one_of_several_copies_is_asked_for);
	tcase_add_test(t, another_copy_is_read_where_one_has_died);
	tcase_add_test(t, the_health_of_ranks_costs_no_tables);
	tcase_add_test(t, a_view_goes_on_through_steps);
	tcase_add_loop_test(t, a_room_that_cannot_be_read_is_asked_for_or_an_error, 0,
			    ARRAY_SIZE(gets));
	tcase_add_loop_test(t, a_rank_that_is_found_gone_has_left_or_is_lost, 0, 2);
	tcase_add_loop_test(t, a_room_that_is_not_complete_is_asked_for, 0, 2);
	tcase_add_test(t, a_table_that_has_shrunk_is_not_read_beyond_its_end);
	tcase_add_test(t, two_that_wait_for_the_end_of_a_step_get_one_and_the_same);
	tcase_add_test(t, gradients_that_are_not_there_are_not_waited_for);
	tcase_add_test(t, what_comes_with_the_next_generation_is_waited_for);
	tcase_add_test(t, a_rank_0_that_tells_of_another_job_is_not_believed);
	tcase_add_loop_test(t, a_large_state_is_got_whole_or_not_and_nothing_of_it_comes_later,
			    0, 2);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/live/loop.h"
#include "engine/node/peers.h"
#include "tests/ranks/observed.h"
#include "tests/run-suite.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

/* States whose memory is other memory in each step, read by an observer.  Memory that was given
 * back is freed, so that a sanitizer finds a reader of it.
 */

enum { STEPS = 5, PART = 8 };

static float *memory[WORLD];

/* Allocates the rank's partition anew, each element value. */
static float *new_partition(uint32_t rank, float value)
{
	uint64_t numel = frag_partition_numel(job_frag(&job, rank), 0, 0);
	float *partition = malloc(numel * sizeof(float));

	for (uint64_t i = 0; i < numel; i++)
		partition[i] = value;
	return partition;
}

static void move_all(const char *key, float value)
{
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		float *old = memory[rank];

		memory[rank] = value != 0 ? new_partition(rank, value) : NULL;
		ck_assert_int_eq(frag_state_move(job_frag(&job, rank), 0, 0, key, memory[rank]),
				 0);
		free(old);
	}
}

static void each_rank(int (*call)(struct frag *f))
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(call(job_frag(&job, rank)), 0);
}

static void expect_bytes(float value, uint64_t size)
{
	for (uint64_t i = 0; i < size / sizeof(float); i++)
		ck_assert(((const float *)(const void *)read_bytes)[i] == value);
}

static void expect_read(const char *key, float value)
{
	ck_assert_int_eq(read_at(0, BYTES, key, false, false), BYTES);
	expect_bytes(value, BYTES);
	ck_assert_int_eq(read_at(BYTES - PART, PART, key, false, false), PART);
	expect_bytes(value, PART);
}

static void open_one(int far)
{
	if (far)
		open_far();
	else
		open_near();
}

static void close_all(const char *key)
{
	move_all(key, 0);
	close_job();
}

START_TEST(gradients_that_are_new_in_each_step_are_read_in_each)
{
	uint64_t epoch = 0;

	open_one(_i);
	for (int i = 1; i <= STEPS; i++) {
		struct registry *r = &job_frag(&job, 1)->engine->registry;

		move_all("grad", (float)i);
		epoch = i == 1 ? r->states.epoch : epoch;
		ck_assert_uint_eq(r->states.epoch, epoch);
		job_grads_valid(&job);
		expect_read("grad", (float)i);
		job_grads_gone(&job);
		move_all("grad", 0);
		ck_assert_int_eq(read_at(0, BYTES, "grad", true, false), -ENODATA);
		job_boundary(&job);
	}
	close_all("grad");
}
END_TEST

static int turns;

/* Makes the next gradients valid while a reader waits for them. */
static void turn_to_next_window(void *arg)
{
	turn(arg);
	if (++turns == 100) {
		move_all("grad", 7);
		job_grads_valid(&job);
	}
}

static int64_t result;

static void on_read(struct engine_read *read, const void *data, int64_t n)
{
	result = n;
	if (n > 0)
		memcpy(read_bytes, data, (size_t)n);
}

START_TEST(a_read_of_gradients_without_memory_waits_for_their_window)
{
	struct engine_read read = { .size = _i / 2 ? PART : BYTES, .done = on_read };

	open_one(_i % 2);
	move_all("grad", 0);
	read.file = open_state(ENGINE_PARAM, "grad");
	result = turns = 0;
	engine_read(observer, &read);
	while (!result)
		turn_to_next_window(NULL);
	ck_assert_int_eq(result, (int64_t)read.size);
	expect_bytes(7, read.size);
	engine_file_close(read.file);
	close_all("grad");
}
END_TEST

START_TEST(an_open_file_keeps_gradients_whose_memory_was_freed)
{
	struct engine_file *file;

	open_one(_i);
	move_all("grad", 3);
	job_grads_valid(&job);
	file = open_state(ENGINE_PARAM, "grad");
	ck_assert_int_eq(read_file(file, 0, PART, false, false), PART);
	move_all("grad", 4); /* in the window of the gradients */
	ck_assert_int_eq(read_file(file, PART, PART, false, false), PART);
	expect_bytes(3, PART);
	job_grads_gone(&job);
	move_all("grad", 0);
	ck_assert_int_eq(read_file(file, BYTES - PART, PART, false, false), PART);
	expect_bytes(3, PART);
	engine_file_close(file);
	close_all("grad");
}
END_TEST

START_TEST(gradients_that_have_no_memory_in_their_window_are_no_data)
{
	open_one(_i);
	move_all("grad", 0);
	job_grads_valid(&job);
	ck_assert_int_eq(read_at(0, BYTES, "grad", false, false), -ENODATA);
	ck_assert_int_eq(read_at(0, PART, "grad", false, false), -ENODATA);
	close_all("grad");
}
END_TEST

START_TEST(a_read_of_gradients_waits_for_a_window_that_is_shown)
{
	struct engine_read read = { .size = _i / 2 ? PART : BYTES, .done = on_read };

	open_one(_i % 2);
	move_all("grad", 0);
	read.file = open_state(ENGINE_PARAM, "grad");
	result = 0;
	engine_read(observer, &read);
	for (int i = 0; i < STEPS; i++) {
		each_rank(frag_grads_skip);
		for (int n = 0; n < 20; n++)
			turn(NULL);
		ck_assert_int_eq(result, 0);
	}
	move_all("grad", 7);
	each_rank(frag_grads_gone);
	job_grads_valid(&job);
	while (!result)
		turn(NULL);
	ck_assert_int_eq(result, (int64_t)read.size);
	expect_bytes(7, read.size);
	engine_file_close(read.file);
	each_rank(frag_grads_skip); /* does as frag_grads_gone in a window */
	ck_assert_int_eq(read_at(0, BYTES, "grad", true, false), -ENODATA);
	close_all("grad");
}
END_TEST

static bool is_told(int fd)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0) == 1;
}

START_TEST(a_rank_hears_that_its_states_are_asked_for)
{
	static const struct job_param params[] = { { "w", .ndim = 1, .shape = { NUMEL } } };
	static const struct job_group groups[] = { { .nparams = 1, .params = { 0 } } };
	struct job alone;
	uint64_t one = 0;
	struct frag *f;
	int fd[2];

	job_open(&alone,
		 &(struct job_spec){ .world = 2, JOB_PARAMS(params), JOB_GROUPS(groups) });
	f = job_frag(&alone, 1);
	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(frag_asked(f, -1), 0);
	ck_assert_int_eq(frag_asked(f, fd[1]), 0);
	ck_assert(!is_told(fd[0]));
	job_close(&alone);
	ck_assert(is_told(fd[0]));
	ck_assert_int_eq(read(fd[0], &one, sizeof(one)), sizeof(one));

	open_one(_i);
	f = job_frag(&job, 1);
	ck_assert_int_ge(frag_asked(f, fd[1]), 0);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	ck_assert(is_told(fd[0]));
	ck_assert_int_eq(read(fd[0], &one, sizeof(one)), sizeof(one));
	ck_assert(!is_told(fd[0]));
	ck_assert_int_eq(frag_asked(f, -1), 1);
	ck_assert_int_eq(frag_asked(f, fd[1]), 1);
	ck_assert(is_told(fd[0]));
	ck_assert_int_eq(frag_asked(f, 9999), -EBADF);
	close_job();
}
END_TEST

static bool is_asked(uint32_t rank)
{
	return frag_asked(job_frag(&job, rank), -1) == 1;
}

/* Turns long enough for a silent observer to be forgotten. */
static void turn_for_long(void)
{
	uint64_t end = turned_ms + 3 * job_frag(&job, 1)->engine->timeout_ms;

	while (turned_ms < end)
		turn(NULL);
}

START_TEST(a_rank_forgets_observers_that_have_gone)
{
	uint64_t one = 0;
	int fd[2];

	open_one(_i);
	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	ck_assert(is_asked(1));
	turn_for_long();
	ck_assert(is_asked(1)); /* asked by an observer that reads nothing */
	loop_free(observer);
	observer = NULL;
	turn_for_long();
	ck_assert(!is_asked(1));
	ck_assert_int_eq(frag_asked(job_frag(&job, 1), fd[1]), 0);
	ck_assert(!is_told(fd[0]));
	observe();
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	ck_assert(is_asked(1));
	ck_assert(is_told(fd[0]));
	ck_assert_int_eq(read(fd[0], &one, sizeof(one)), sizeof(one));
	close_job();
	close(fd[0]);
	close(fd[1]);
}
END_TEST

static int welcomes;

static bool on_welcome(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	(void)e, (void)owner, (void)tag;
	welcomes += answer->type == WIRE_WELCOME;
	return false;
}

/* The observer is that of a mount that outlived its job, whose address this job has now. */
START_TEST(an_observer_of_another_job_does_not_count)
{
	welcomes = 0;
	open_one(_i);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	ck_assert(is_asked(0));
	observer->job.hash ^= 1;
	/* ten of them pass in the time in which an observer is forgotten */
	for (int n = 1; n <= 30; n++) {
		uint64_t end = turned_ms + job_frag(&job, 0)->engine->timeout_ms / 10;

		ck_assert_int_eq(
			peers_call(observer, 0, WIRE_HELLO, NULL, NULL, 0, on_welcome, NULL, 0),
			0);
		while (welcomes < n || turned_ms < end)
			turn(NULL);
	}
	ck_assert(!is_asked(0));
	close_job();
}
END_TEST

START_TEST(an_observer_that_was_silent_asks_anew)
{
	struct engine *stopped;
	uint64_t one = 0;
	int fd[2];

	open_one(_i);
	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	stopped = observer;
	observer = NULL;
	turn_for_long();
	ck_assert_int_eq(frag_asked(job_frag(&job, 1), fd[1]), 0);
	observer = stopped;
	move_all("grad", 7);
	job_grads_valid(&job);
	expect_read("grad", 7);
	ck_assert(is_asked(1));
	ck_assert(is_told(fd[0]));
	ck_assert_int_eq(read(fd[0], &one, sizeof(one)), sizeof(one));
	close_all("grad");
	close(fd[0]);
	close(fd[1]);
}
END_TEST

START_TEST(a_rank_that_has_asked_counts_for_ever)
{
	float whole[NUMEL];

	open_one(_i);
	loop_free(observer);
	observer = NULL;
	ck_assert(!is_asked(1));
	ck_assert_int_eq(frag_get(job_frag(&job, 0), 0, "fp32", whole, BYTES), 0);
	ck_assert(is_asked(1));
	turn_for_long();
	ck_assert(is_asked(1));
	job_close(&job);
}
END_TEST

static int declare(struct frag *f)
{
	return frag_state_keep(f, 0, 0, "later", FRAG_F32, NULL);
}

START_TEST(a_declared_state_is_there_and_gets_its_memory_in_a_step)
{
	open_one(_i);
	each_rank(declare);
	ck_assert_int_eq(read_at(0, BYTES, "later", false, false), -ENODATA);
	ck_assert_int_eq(frag_get_bytes(job_frag(&job, 1), job_number(&job, 1, 0), "later"),
			 BYTES);
	for (int i = 1; i <= STEPS; i++) {
		each_rank(frag_step_begin);
		move_all("later", (float)i);
		each_rank(frag_step_end);
		expect_read("later", (float)i);
	}
	close_all("later");
}
END_TEST

/* ---- in pieces ---- */

enum { PARAMS = 2 };

static float *pieces[WORLD][PARAMS];

static int numbers_of(uint32_t rank, int numbers[PARAMS])
{
	struct frag_fragment at;
	int n = 0;

	for (uint32_t i = 0; i < PARAMS; i++) {
		numbers[n] = job_number(&job, rank, 2 * i);
		n += !frag_fragment(job_frag(&job, rank), numbers[n], &at);
	}
	return n;
}

/* Allocates the rank's pieces anew, each element value; 0: frees them.  Returns how many there
 * are.
 */
static size_t make_pieces(uint32_t rank, int numbers[PARAMS], float value)
{
	int n = numbers_of(rank, numbers);
	struct frag_fragment at;

	for (int i = 0; i < n; i++) {
		ck_assert_int_eq(frag_fragment(job_frag(&job, rank), numbers[i], &at), 0);
		free(pieces[rank][i]);
		pieces[rank][i] = value != 0 ? malloc(at.numel * sizeof(float)) : NULL;
		for (uint64_t j = 0; value != 0 && j < at.numel; j++)
			pieces[rank][i][j] = value;
	}
	return (size_t)n;
}

static void move_pieces(float value)
{
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		int numbers[PARAMS];
		size_t n = make_pieces(rank, numbers, value);

		ck_assert_int_eq(frag_fragments_move(job_frag(&job, rank), numbers, n, "own",
						     value != 0 ? (void **)pieces[rank] : NULL),
				 0);
	}
}

/* Keeps new pieces, each element value; value 0: declares them, without memory. */
static void keep_pieces(float value, int expected)
{
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		int numbers[PARAMS];
		size_t n = make_pieces(rank, numbers, value);

		ck_assert_int_eq(frag_fragments_keep(job_frag(&job, rank), numbers, n, "own",
						     FRAG_F32,
						     value != 0 ? (void **)pieces[rank] : NULL),
				 expected);
	}
}

START_TEST(a_state_in_pieces_gets_other_memory_in_each_step)
{
	open_one(_i);
	keep_pieces(0, 0);
	ck_assert_int_eq(read_at(0, BYTES, "own", false, false), -ENODATA);
	for (int i = 1; i <= STEPS; i++) {
		each_rank(frag_step_begin);
		move_pieces((float)i);
		each_rank(frag_step_end);
		expect_read("own", (float)i);
	}
	ck_assert_int_eq(frag_state_move(job_frag(&job, 0), 0, 0, "own", NULL), 0);
	ck_assert_int_eq(read_at(0, BYTES, "own", false, false), -ENODATA);
	move_pieces(0);
	close_job();
}
END_TEST

START_TEST(pieces_that_are_declared_may_still_be_kept)
{
	open_one(_i);
	keep_pieces(0, 0);
	keep_pieces(0, 0);
	ck_assert_int_eq(read_at(0, BYTES, "own", false, false), -ENODATA);
	keep_pieces(1, 0);
	expect_read("own", 1);
	ck_assert_int_eq(frag_fragment_keep(job_frag(&job, 0), job_number(&job, 0, 0), "own",
					    FRAG_F32, memory),
			 -EEXIST);
	move_pieces(0);
	close_job();
}
END_TEST

static void move_lp(const struct job_memory *m, uint32_t rank, void *to)
{
	ck_assert_int_eq(frag_lp_move(job_frag(&job, rank),
				      job_number(&job, rank, (uint32_t)m->param), 0, to),
			 0);
}

/* Moves the rank's whole low-precision parameters to `to`, one behind the other; NULL: back. */
static void move_lps(uint32_t rank, uint8_t *to)
{
	for (uint32_t i = 0; i < job.ranks[rank].nmemory; i++) {
		const struct job_memory *m = &job.ranks[rank].memory[i];

		if (m->kind != STATE_LP)
			continue;
		if (to)
			memcpy(to, m->bytes_at, m->bytes);
		move_lp(m, rank, to ? to : m->bytes_at);
		to += to ? m->bytes : 0;
	}
}

START_TEST(low_precision_values_are_read_from_where_they_are_now)
{
	static uint8_t moved[WORLD][PARAMS * 2 * BYTES];
	uint64_t bytes;

	open_one(_i);
	bytes = job_bytes(&job, 0, "lp");
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		move_lps(rank, moved[rank]);
		for (uint32_t i = 0; i < job.ranks[rank].nmemory; i++)
			if (job.ranks[rank].memory[i].kind == STATE_LP)
				memset(job.ranks[rank].memory[i].bytes_at, 0,
				       job.ranks[rank].memory[i].bytes);
	}
	ck_assert_int_eq(read_at(0, (uint32_t)bytes, "lp", false, false), (int64_t)bytes);
	ck_assert_mem_eq(read_bytes, job_truth(&job, 0, "lp"), bytes);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(
			frag_lp_move(job_frag(&job, rank), job_number(&job, rank, 0), 0, NULL),
			0);
	ck_assert_int_eq(read_at(0, (uint32_t)bytes, "lp", false, false), -ENODATA);
	close_job();
}
END_TEST

START_TEST(low_precision_values_may_come_late)
{
	static const struct job_param one[] = { { "w", .ndim = 1, .shape = { NUMEL } } };
	static const struct job_group all[] = { { .stage = 3, .nparams = 1 } };
	const void *truth;
	int rc;

	job_open(&job,
		 &(struct job_spec){
			 .world = WORLD, JOB_PARAMS(one), JOB_GROUPS(all), .lp = JOB_LP_NONE });
	truth = job_truth(&job, 0, "lp");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_lp_move(job_frag(&job, rank), job_number(&job, rank, 0),
					      0, (void *)(uintptr_t)truth),
				 0);
	while ((rc = frag_get(job_frag(&job, 0), job_number(&job, 0, 0), "lp", read_bytes,
			      job_bytes(&job, 0, "lp"))) == -ENOENT)
		job_turn(&job); /* until rank 0 has the new tables */
	ck_assert_int_eq(rc, 0);
	ck_assert_mem_eq(read_bytes, truth, job_bytes(&job, 0, "lp"));
	job_close(&job);
}
END_TEST

START_TEST(what_cannot_be_moved_stays_as_it_was)
{
	float value[NUMEL];
	void *library, *const some[] = { value };
	struct frag *f;
	int param;

	open_near();
	f = job_frag(&job, 0);
	param = job_number(&job, 0, 0);
	ck_assert_int_eq(frag_state_alloc(f, 0, 0, "mine", FRAG_F32, &library), 0);
	ck_assert_int_eq(frag_state_move(f, 0, 0, "mine", value), -EOPNOTSUPP);
	ck_assert_int_eq(frag_state_move(f, 0, 0, "none", value), -ENOENT);
	ck_assert_int_eq(frag_state_move(f, 0, 9, "fp32", value), -ENOENT);
	ck_assert_int_eq(frag_lp_move(f, param, FRAG_SHARD, value), -ENOENT);
	ck_assert_int_eq(frag_lp_move(f, param, 2 * FRAG_SHARD, value), -EINVAL);
	ck_assert_int_eq(frag_lp_move(f, 99, 0, value), -EINVAL);
	ck_assert_int_eq(frag_state_move(f, -1, 0, "fp32", value), -EINVAL);
	ck_assert_int_eq(frag_state_move(f, 0, 0, NULL, value), -EINVAL);
	ck_assert_int_eq(frag_fragments_move(f, &param, 1, "none", some), -ENOENT);
	ck_assert_int_eq(frag_fragments_move(f, &(int){ 99 }, 1, "fp32", some), -EINVAL);
	ck_assert_int_eq(frag_fragments_move(f, NULL, 1, "fp32", some), -EINVAL);
	ck_assert_int_eq(read_at(0, BYTES, "fp32", false, false), BYTES);
	ck_assert_mem_eq(read_bytes, job_truth(&job, 0, "fp32"), BYTES);
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("moves");
	TCase *t = tcase_create("moves");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, gradients_that_are_new_in_each_step_are_read_in_each, 0, 2);
	tcase_add_loop_test(t, a_read_of_gradients_without_memory_waits_for_their_window, 0, 4);
	tcase_add_loop_test(t, an_open_file_keeps_gradients_whose_memory_was_freed, 0, 2);
	tcase_add_loop_test(t, gradients_that_have_no_memory_in_their_window_are_no_data, 0, 2);
	tcase_add_loop_test(t, a_read_of_gradients_waits_for_a_window_that_is_shown, 0, 4);
	tcase_add_loop_test(t, a_rank_hears_that_its_states_are_asked_for, 0, 2);
	tcase_add_loop_test(t, a_rank_forgets_observers_that_have_gone, 0, 2);
	tcase_add_loop_test(t, an_observer_of_another_job_does_not_count, 0, 2);
	tcase_add_loop_test(t, an_observer_that_was_silent_asks_anew, 0, 2);
	tcase_add_loop_test(t, a_rank_that_has_asked_counts_for_ever, 0, 2);
	tcase_add_loop_test(t, a_declared_state_is_there_and_gets_its_memory_in_a_step, 0, 2);
	tcase_add_loop_test(t, a_state_in_pieces_gets_other_memory_in_each_step, 0, 2);
	tcase_add_loop_test(t, pieces_that_are_declared_may_still_be_kept, 0, 2);
	tcase_add_loop_test(t, low_precision_values_are_read_from_where_they_are_now, 0, 2);
	tcase_add_test(t, low_precision_values_may_come_late);
	tcase_add_test(t, what_cannot_be_moved_stays_as_it_was);
	return run_suite(s, t);
}

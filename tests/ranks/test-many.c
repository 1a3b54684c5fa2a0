/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include "engine/base/log.h"
#include "engine/live/loop.h"
#include "engine/rank/view-owner.h"

#include <check.h>
#include <errno.h>
#include <string.h>

/* An open file of several states: flat partitions and boxes, in the host's memory and on NVMe,
 * in reach of the observer's memory or by message.
 */

enum { WORLD = 3, WAIT_MS = 60000, ROUNDS = 40, STATES = 18, ROOM = 32 << 10 };

static const struct job_param params[] = {
	{ "flat", .ndim = 2, .shape = { 11, 37 } },
	{ "scalar", .ndim = 0 },
	{ "columns", .ndim = 2, .shape = { 9, 13 }, .ncuts = 1, .cuts = { { 1, 0 } } },
	{ "short", .ndim = 1, .shape = { 2 } },
	{ "rows", .ndim = 2, .shape = { 7, 3 } },
	{ "frozen", .ndim = 1, .shape = { 5 }, .flags = FRAG_FROZEN },
};
static const struct job_group groups[] = {
	{ .stage = 2, .nparams = 3, .params = { 3, 0, 1 } },
	{ .sharding = FRAG_FSDP2, .nparams = 2, .params = { 2, 4 } },
};
static const struct job_key keys[] = {
	{ "fp32", FRAG_F32, JOB_KEEP },
	{ "grad", FRAG_F32, JOB_KEEP },
	{ "exp_avg", FRAG_F16, JOB_KEEP },
	{ "exp_avg_sq", FRAG_F32, JOB_SWAP },
};

static struct job job;
static struct engine *observer;
static uint8_t truth[ROOM], came[ROOM];
static uint64_t bytes;
static struct engine_file *file;

static void turn(void *arg)
{
	job_turn(&job);
	if (observer)
		loop_turn(observer, 0);
}

static void open_job(bool near)
{
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   .hosts = near ? 1 : WORLD,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   JOB_KEYS(keys) });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn;
	job_observe(&job, &observer, near ? "host 0" : "elsewhere", turn);
	observer->write.allowed = true;
	job_boundary(&job); /* from this boundary on views have the bytes on NVMe */
}

static void close_job(void)
{
	engine_file_close(file);
	loop_free(observer);
	observer = NULL;
	job_close(&job);
}

static void copy_truth(const struct engine_address *list, uint32_t n)
{
	bytes = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t size = job_bytes(&job, list[i].param, list[i].key);

		memcpy(truth + bytes, job_truth(&job, list[i].param, list[i].key), size);
		bytes += size;
	}
}

/* Opens the named states of all parameters in a drawn order, some of them twice. */
static void open_some(const char *const *names, unsigned count)
{
	struct engine_address list[STATES];
	uint64_t size;

	for (uint32_t i = 0; i < STATES; i++) {
		list[i] = (struct engine_address){ ENGINE_PARAM };
		list[i].param = job_random(&job, ARRAY_SIZE(params));
		strcpy(list[i].key, list[i].param == 5 ? "lp" : names[job_random(&job, count)]);
	}
	copy_truth(list, STATES);
	ck_assert_int_eq(engine_file_open_many(observer, list, STATES, &file, &size), 0);
	ck_assert_uint_eq(size, bytes);
}

static int64_t result;
static bool ended;

static void on_read(struct engine_read *read, const void *data, int64_t n)
{
	if (n > 0)
		memcpy(came, data, (size_t)n);
	result = n;
	ended = true;
}

static int64_t read_range(uint64_t offset, uint64_t size, bool cancel)
{
	struct engine_read read = {
		.file = file, .offset = offset, .size = size, .done = on_read
	};

	ended = false;
	engine_read(observer, &read);
	if (cancel && !ended)
		engine_read_cancel(observer, &read);
	for (uint64_t until = monotonic_ms() + WAIT_MS; !ended && monotonic_ms() < until;)
		turn(NULL);
	ck_assert(ended);
	return result;
}

static void check_some(void)
{
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t offset = job_random(&job, (uint32_t)bytes);
		uint64_t size = 1 + job_random(&job, (uint32_t)(bytes - offset));

		ck_assert_int_eq(read_range(offset, size, false), (int64_t)size);
		ck_assert_mem_eq(came, truth + offset, size);
	}
}

static const char *const all[] = { "fp32", "exp_avg", "exp_avg_sq", "lp" };

START_TEST(any_bytes_of_many_states_are_read)
{
	open_job(_i);
	for (int i = 0; i < 4; i++) {
		open_some(all, ARRAY_SIZE(all));
		if (i % 2)
			check_some();
		ck_assert_int_eq(read_range(0, 1 << 20, false), (int64_t)bytes);
		ck_assert_mem_eq(came, truth, bytes);
		ck_assert_int_eq(read_range(bytes, 7, false), 0);
		check_some();
		if (i < 3)
			engine_file_close(file);
	}
	close_job();
}
END_TEST

/* All states of a rank in one tier are one view. */
START_TEST(a_file_of_many_states_is_few_views)
{
	open_job(_i);
	open_some(all, ARRAY_SIZE(all));
	check_some();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_uint_le(atomic_load(&job_frag(&job, rank)->engine->view_owner.count),
				  2);
	close_job();
}
END_TEST

/* The trainers go on during one of the reads. */
START_TEST(all_states_are_of_one_generation)
{
	open_job(_i);
	open_some(all, ARRAY_SIZE(all));
	check_some();
	for (int step = 1; step < 4; step++) {
		for (uint32_t rank = 0; rank < WORLD; rank++)
			ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			for (uint32_t i = 0; i < job.ranks[rank].nmemory; i++) {
				struct job_memory *m = &job.ranks[rank].memory[i];

				if (!m->swapped)
					memset(m->bytes_at, 0x50 + step, m->bytes);
			}
		check_some();
		for (uint32_t rank = 0; rank < WORLD; rank++)
			ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
		check_some();
	}
	engine_file_close(file);
	open_some(all, 2);
	ck_assert_int_eq(read_range(0, 1 << 20, false), (int64_t)bytes);
	for (uint32_t i = 0; i < bytes; i++)
		ck_assert(came[i] == 0x53);
	close_job();
}
END_TEST

START_TEST(gradients_of_many_are_waited_for_and_the_wait_is_cancelled)
{
	struct engine_address list[] = { { ENGINE_PARAM, .key = "grad" },
					 { ENGINE_PARAM, .param = 2, .key = "grad" } };
	uint64_t size;

	open_job(_i);
	copy_truth(list, ARRAY_SIZE(list));
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), 0);
	ck_assert_int_eq(read_range(8, size - 8, true), -ECANCELED);
	job_grads_valid(&job);
	check_some();
	close_job();
}
END_TEST

START_TEST(a_lost_rank_costs_its_own_bytes)
{
	struct engine_address list[] = { { ENGINE_PARAM, .param = 4, .key = "fp32" },
					 { ENGINE_PARAM, .param = 4, .key = "exp_avg" } };
	uint64_t size;

	open_job(_i);
	copy_truth(list, ARRAY_SIZE(list));
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), 0);
	check_some();
	engine_file_close(file);
	job_close_rank(&job, 2);
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), 0);
	for (int i = 0; i < 20000 && observer->peers[2].state != ENGINE_RANK_LOST; i++) {
		read_range(76, 8, false); /* of rank 2: asks for the bytes */
		turn(NULL);
	}
	ck_assert_int_eq(read_range(76, 8, false), -EIO);
	ck_assert_int_eq(read_range(0, 64, false), 64);
	ck_assert_mem_eq(came, truth, 64);
	ck_assert_int_eq(read_range(84 + 4, 8, false), 8);
	ck_assert_mem_eq(came, truth + 84 + 4, 8);
	close_job();
}
END_TEST

static void on_write(struct engine_write *write, int status)
{
	result = status;
}

START_TEST(other_lists_are_refused_and_no_list_is_written)
{
	struct engine_address list[] = { { ENGINE_PARAM, .key = "fp32" },
					 { ENGINE_PARAM, .key = "exp_avg" } };
	struct engine_extent extent = { 0, 4, "abc" };
	struct engine_write write = { .extents = &extent, .nextents = 1, .done = on_write };
	uint64_t size;

	open_job(true);
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), 0);
	write.file = file;
	engine_write(observer, &write);
	ck_assert_int_eq(result, -EACCES);
	engine_file_close(file);
	strcpy(list[1].key, "grad");
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), -EINVAL);
	strcpy(list[1].key, "none");
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), -ENOENT);
	strcpy(list[1].key, "fp32");
	list[1].now = true;
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), -EINVAL);
	list[1] = (struct engine_address){ ENGINE_RANK_PARAM, .key = "fp32" };
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), -EINVAL);
	file = NULL;
	close_job();
}
END_TEST

START_TEST(one_that_needs_more_than_may_be_kept_is_told_so)
{
	struct engine_address list[] = { { ENGINE_PARAM, .key = "fp32" },
					 { ENGINE_PARAM, .key = "exp_avg" } };
	char text[4096];
	uint64_t size;

	open_job(_i);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_frag(&job, rank)->engine->view_owner.pool.max = 600;
	ck_assert_int_eq(engine_file_open_many(observer, list, 2, &file, &size), 0);
	ck_assert_int_eq(read_range(1, 100, false), -ENOMEM);
	log_tail(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "flat/fp32 and 1 more state cannot be read: rank "));
	ck_assert_ptr_nonnull(strstr(text, "start the job with a larger FRAG_VIEW_MEM"));
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("many");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, any_bytes_of_many_states_are_read, 0, 2);
	tcase_add_loop_test(t, a_file_of_many_states_is_few_views, 0, 2);
	tcase_add_loop_test(t, all_states_are_of_one_generation, 0, 2);
	tcase_add_loop_test(t, gradients_of_many_are_waited_for_and_the_wait_is_cancelled, 0,
			    2);
	tcase_add_loop_test(t, a_lost_rank_costs_its_own_bytes, 0, 2);
	tcase_add_test(t, other_lists_are_refused_and_no_list_is_written);
	tcase_add_loop_test(t, one_that_needs_more_than_may_be_kept_is_told_so, 0, 2);
	return run_suite(s, t);
}

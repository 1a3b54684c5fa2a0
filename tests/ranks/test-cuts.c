/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/run-suite.h"

#include "engine/live/loop.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An observer of parameters that are cut along other dimensions than 0: reads of any ranges,
 * views, edits of any bytes, and the places of fragments.
 */

enum { WORLD = 4, ROUNDS = 60, EXTENTS = 5, WAIT_MS = 60000, TRAINER = 4242 };

static const struct job_param params[] = {
	{ "m.columns", .ndim = 2, .shape = { 9, 13 }, .ncuts = 1, .cuts = { { 1, 0 } } },
	{ "m.grid", .ndim = 3, .shape = { 5, 3, 6 }, .ncuts = 2,
	  .cuts = { { 2, 2 }, { 0, 0 } } },
	{ "m.rows", .ndim = 2, .shape = { 7, 3 } },
};
static const struct job_group groups[] = {
	{ .sharding = FRAG_FSDP2, .nparams = 3, .params = { 0, 1, 2 } },
};

static struct job job;
static struct engine *observer;

static void turn(void *arg)
{
	job_turn(&job);
	if (observer)
		loop_turn(observer, 0);
}

/* near: the ranks' memory is in the observer's reach. */
static void open_job_with(bool near, enum job_lp lp)
{
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   .hosts = near ? 1 : WORLD,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   .lp = lp });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn;
	job_observe(&job, &observer, near ? "host 0" : "elsewhere", turn);
	observer->write.allowed = true;
}

static void open_job(bool near)
{
	open_job_with(near, JOB_LP_FITTING);
}

static void close_job(void)
{
	loop_free(observer);
	observer = NULL;
	job_close(&job);
}

static struct engine_file *open_state(uint32_t param, const char *key)
{
	struct engine_address a = { ENGINE_PARAM, .param = param };
	struct engine_file *file;
	uint64_t bytes;

	snprintf(a.key, sizeof(a.key), "%s", key);
	ck_assert_int_eq(engine_file_open(observer, &a, &file, &bytes), 0);
	ck_assert_uint_eq(bytes, job_bytes(&job, param, key));
	return file;
}

/* ---- reading ---- */

static uint8_t came[4096];
static int64_t result;
static bool ended;

static void on_read(struct engine_read *read, const void *data, int64_t n)
{
	if (n > 0)
		memcpy(came, data, (size_t)n);
	result = n;
	ended = true;
}

static void turn_until(const bool *over, uint32_t *turns)
{
	for (uint64_t until = monotonic_ms() + WAIT_MS; !*over && monotonic_ms() < until;) {
		turn(NULL);
		if (turns && ++*turns % 16 == 15)
			job_boundary(&job);
	}
	ck_assert(*over);
}

static int64_t read_by(pid_t thread, struct engine_file *file, uint64_t offset, uint64_t size,
		       bool cancel)
{
	struct engine_read read = {
		.file = file, .offset = offset, .size = size, .thread = thread, .done = on_read
	};

	ended = false;
	engine_read(observer, &read);
	if (cancel && !ended)
		engine_read_cancel(observer, &read);
	turn_until(&ended, NULL);
	return result;
}

static int64_t read_file(struct engine_file *file, uint64_t offset, uint64_t size, bool cancel)
{
	return read_by(0, file, offset, size, cancel);
}

static void check_range(struct engine_file *file, uint32_t param, const char *key)
{
	uint64_t bytes = job_bytes(&job, param, key);
	uint64_t offset = job_random(&job, (uint32_t)bytes);
	uint64_t size = 1 + job_random(&job, (uint32_t)(bytes - offset));

	ck_assert_int_eq(read_file(file, offset, size, false), (int64_t)size);
	ck_assert_mem_eq(came, (const uint8_t *)job_truth(&job, param, key) + offset, size);
}

static const char *const keys[] = { "fp32", "exp_avg", "lp" };

START_TEST(any_bytes_are_read)
{
	open_job(_i);
	for (uint32_t param = 0; param < ARRAY_SIZE(params); param++)
		for (unsigned k = 0; k < ARRAY_SIZE(keys); k++) {
			struct engine_file *file = open_state(param, keys[k]);
			uint64_t bytes = job_bytes(&job, param, keys[k]);

			for (int i = 0; i < ROUNDS; i++)
				check_range(file, param, keys[k]);
			ck_assert_int_eq(read_file(file, 0, 1 << 20, false), (int64_t)bytes);
			ck_assert_mem_eq(came, job_truth(&job, param, keys[k]), bytes);
			ck_assert_int_eq(read_file(file, bytes, 7, false), 0);
			engine_file_close(file);
		}
	close_job();
}
END_TEST

/* Returns the observer's count of reads, which .frag/metrics shows. */
static uint64_t reads_counted(void)
{
	return atomic_load(&observer->counters.reads);
}

START_TEST(a_leaf_is_gathered_in_file_order)
{
	uint8_t all[8192], *at = all;
	struct frag *f;

	open_job(_i);
	f = job_frag(&job, 1);
	ck_assert_int_eq(frag_leaf(f, FRAG_LEAF_NAME, "m", 1), 1);
	for (unsigned k = 0; k < ARRAY_SIZE(keys); k++, at = all) {
		int64_t bytes = frag_leaf_get_bytes(f, job_number(&job, 1, 0), keys[k]);

		ck_assert(bytes > 0 && bytes <= (int64_t)sizeof(all));
		ck_assert_int_eq(
			frag_leaf_get(f, job_number(&job, 1, 0), keys[k], all, (uint64_t)bytes),
			0);
		for (uint32_t p = 0; p < ARRAY_SIZE(params); p++) {
			uint64_t size = job_bytes(&job, p, keys[k]);

			ck_assert_mem_eq(at, job_truth(&job, p, keys[k]), size);
			at += size;
		}
		ck_assert_int_eq(at - all, bytes);
	}
	close_job();
}
END_TEST

START_TEST(a_range_moves_its_bytes_only_and_counts_as_a_read)
{
	struct engine_file *file;
	uint64_t before, reads;

	open_job(true);
	file = open_state(0, "fp32");
	/* the observer has the tables now */
	ck_assert_int_eq(read_file(file, 4, 400, false), 400);
	engine_file_close(file);
	file = open_state(0, "fp32");
	before = atomic_load(&observer->counters.owner_bytes_memory) +
		 atomic_load(&observer->counters.owner_bytes_messages);
	reads = reads_counted();
	ck_assert_int_eq(read_file(file, 60, 100, false), 100);
	ck_assert_uint_eq(atomic_load(&observer->counters.owner_bytes_memory) +
				  atomic_load(&observer->counters.owner_bytes_messages),
			  before + 100);
	ck_assert_uint_eq(reads_counted(), reads + 1);
	engine_file_close(file);
	close_job();
}
END_TEST

START_TEST(a_view_is_of_one_generation)
{
	struct engine_file *file;

	open_job(_i);
	file = open_state(0, "exp_avg");
	check_range(file, 0, "exp_avg");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct job_memory *m = job_memory(&job, rank, 0, 0, "exp_avg");

		memset(m->bytes_at, 0x55, m->bytes);
	}
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
	for (int i = 0; i < ROUNDS; i++)
		check_range(file, 0, "exp_avg");
	engine_file_close(file);
	close_job();
}
END_TEST

START_TEST(a_read_that_waits_is_cancelled)
{
	struct engine_file *file;

	open_job(_i);
	file = open_state(1, "grad"); /* the gradients are not valid */
	ck_assert_int_eq(read_file(file, 8, 200, true), -ECANCELED);
	job_grads_valid(&job);
	check_range(file, 1, "grad");
	engine_file_close(file);
	close_job();
}
END_TEST

/* In this process one thread trains all ranks. */
START_TEST(a_training_thread_that_waits_for_itself_is_told_so)
{
	struct engine_file *file;
	uint64_t until = monotonic_ms() + WAIT_MS;

	open_job(true);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		atomic_store(&job_frag(&job, rank)->engine->registry.control->trainer,
			     TRAINER + rank);
	while (observer->peers[1].control.trainer != TRAINER + 1 && monotonic_ms() < until)
		turn(NULL);
	file = open_state(0, "grad"); /* the gradients are not valid */
	ck_assert_int_eq(read_by(TRAINER + 1, file, 8, 200, false), -EDEADLK);
	engine_file_close(file);
	close_job();
}
END_TEST

/* ---- low-precision values that come late ---- */

START_TEST(late_pieces_have_no_padding)
{
	static uint16_t pieces[WORLD][4096];

	open_job_with(true, JOB_LP_NONE);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		int param = job_number(&job, rank, 0);
		struct frag *f = job_frag(&job, rank);
		struct registry *r = &f->engine->registry;
		struct frag_fragment own;
		enum frag_dtype dtype;
		int row;

		ck_assert_int_eq(frag_lp_move(f, param, 0, pieces[rank]), -EINVAL);
		ck_assert_int_eq(frag_lp_move(f, param, FRAG_SHARD, pieces[rank]), 0);
		ck_assert_int_eq(frag_fragment(f, param, &own), 0);
		row = registry_find(r, STATE_LP_SHARD, (uint32_t)param, 0, "", &dtype);
		ck_assert_int_ge(row, 0);
		ck_assert_uint_eq(r->states.rows[row].numel, own.numel);
	}
	close_job();
}
END_TEST

/* ---- writing ---- */

static void on_write(struct engine_write *write, int status)
{
	result = status;
	ended = true;
}

/* Draws sorted extents of any bytes, some of them several in one element. */
static size_t draw_extents(uint64_t bytes, const uint8_t *value, struct engine_extent *extents,
			   uint8_t *expected)
{
	uint64_t at = 0;
	size_t n = 0;

	for (; n < EXTENTS && at < bytes; n++) {
		uint64_t gap = job_random(&job, 2) ? u64_min(3, bytes - at) : bytes - at;
		uint64_t offset = at + job_random(&job, (uint32_t)gap);
		uint64_t size = 1 + job_random(&job, (uint32_t)(bytes - offset));

		size = u64_min(size, job_random(&job, 2) ? 2 : bytes / EXTENTS);
		extents[n] = (struct engine_extent){ offset, size, value + offset };
		memcpy(expected + offset, value + offset, size);
		at = offset + size;
	}
	return n;
}

/* Changes the truth of the low-precision parameter, for each element of which a byte was
 * written.
 */
static void expect_lp(uint32_t param, uint64_t first, uint64_t end, const uint8_t *master)
{
	uint64_t bytes = job_bytes(&job, param, "lp");
	uint8_t lp[4096], before[4096];

	memcpy(before, job_truth(&job, param, "lp"), bytes);
	job_expect_lp_of(&job, param, master);
	memcpy(lp, job_truth(&job, param, "lp"), bytes);
	memcpy(before + first * 2, lp + first * 2, (end - first) * 2);
	job_expect(&job, param, "lp", before);
}

START_TEST(an_edit_of_any_bytes_is_what_all_holders_have)
{
	uint8_t value[4096], expected[4096];
	struct engine_extent extents[EXTENTS];
	uint32_t turns = 0;

	open_job(_i);
	for (uint32_t i = 0; i < ROUNDS / 4; i++) {
		uint32_t param = i % ARRAY_SIZE(params);
		uint64_t bytes = job_bytes(&job, param, "fp32");
		struct engine_write write = { .file = open_state(param, "fp32"),
					      .extents = extents,
					      .done = on_write };

		job_fill(value, FRAG_F32, bytes / 4, 1000 + i);
		memcpy(expected, job_truth(&job, param, "fp32"), bytes);
		write.nextents = draw_extents(bytes, value, extents, expected);
		ended = false;
		engine_write(observer, &write);
		turn_until(&ended, &turns);
		ck_assert_int_eq(result, 0);
		engine_file_close(write.file);
		job_expect(&job, param, "fp32", expected);
		for (unsigned k = 0; k < write.nextents; k++) {
			uint64_t first = extents[k].offset / 4;
			uint64_t end = (extents[k].offset + extents[k].size + 3) / 4;

			expect_lp(param, first, end, expected);
		}
		job_check(&job);
	}
	close_job();
}
END_TEST

/* ---- places of fragments ---- */

static uint32_t fragments;

static void see(void *arg, const struct engine_fragment *f)
{
	static const uint64_t columns[WORLD][4] = {
		{ 0, 0, 9, 4 }, { 0, 4, 9, 4 }, { 0, 8, 9, 4 }, { 0, 12, 9, 1 }
	};
	static const uint64_t grid[WORLD][6] = { { 0, 0, 0, 3, 3, 3 },
						 { 3, 0, 0, 2, 3, 3 },
						 { 0, 0, 3, 3, 3, 3 },
						 { 3, 0, 3, 2, 3, 3 } };
	uint32_t param = *(uint32_t *)arg;

	ck_assert_uint_eq(f->rank, fragments++);
	if (param == 0)
		ck_assert_mem_eq(f->box, columns[f->rank], sizeof(columns[0]));
	else if (param == 1)
		ck_assert_mem_eq(f->box, grid[f->rank], sizeof(grid[0]));
	else
		ck_assert_ptr_null(f->box);
}

START_TEST(fragments_are_boxes)
{
	open_job(true);
	for (uint32_t param = 0; param < ARRAY_SIZE(params); param++) {
		fragments = 0;
		engine_fragments(observer, param, "fp32", see, &param);
		ck_assert_uint_eq(fragments, WORLD);
	}
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuts");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, any_bytes_are_read, 0, 2);
	tcase_add_loop_test(t, a_leaf_is_gathered_in_file_order, 0, 2);
	tcase_add_test(t, a_range_moves_its_bytes_only_and_counts_as_a_read);
	tcase_add_test(t, a_training_thread_that_waits_for_itself_is_told_so);
	tcase_add_test(t, late_pieces_have_no_padding);
	tcase_add_loop_test(t, a_view_is_of_one_generation, 0, 2);
	tcase_add_loop_test(t, a_read_that_waits_is_cancelled, 0, 2);
	tcase_add_loop_test(t, an_edit_of_any_bytes_is_what_all_holders_have, 0, 2);
	tcase_add_test(t, fragments_are_boxes);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/rank/devices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Low-precision parameters in an arena, as other ranks and open files see them while blocks
 * come, go and move.
 */

enum { PARAMS = 6, UNIT = 256, ARENA = 64 * UNIT, STEP = UNIT };

static const struct job_param params[PARAMS] = {
	{ "a", .ndim = 2, .shape = { 15, 70 } },
	{ "b", .ndim = 1, .shape = { 3 } },
	{ "c", .ndim = 1, .shape = { 700 } },
	{ "empty", .ndim = 1, .shape = { 0 } },
	{ "e", .ndim = 2, .shape = { 33, 11 } },
	{ "f", .ndim = 1, .shape = { 129 }, .dtype = FRAG_F32 },
};
static const struct job_group groups[] = {
	{ .stage = 3, .nparams = PARAMS - 1, .params = { 0, 1, 2, 3, 4 } },
	{ .stage = 1, .nparams = 1, .params = { 5 } }
};

static struct job job;
static struct frag *f; /* rank 0 */
static unsigned told;  /* count of calls of moved() */
static void *told_of[PARAMS];

static void moved(void *arg, int param, unsigned flags, void *memory)
{
	ck_assert_ptr_eq(arg, &job);
	ck_assert_uint_eq(flags, param == job_number(&job, 0, 5) ? 0 : FRAG_SHARD);
	told_of[param] = memory;
	told++;
}

static void open_arena(void)
{
	struct frag_arena config = { sizeof(config), ARENA - 3, moved, &job, NULL };

	ck_assert_int_eq(frag_arena_open(f, &config), 0);
}

/* Where the arena is. */
enum place { LIBRARYS, LIBRARYS_FAR, OURS, ON_DEVICE, PLACES };

static struct hidden on_device;
static _Alignas(4096) uint8_t ours[ARENA];

static void open_ours(void *memory)
{
	struct frag_arena config = { sizeof(config), ARENA, moved, &job, memory };

	ck_assert_int_eq(frag_arena_open(f, &config), 0);
}

static unsigned torn_writes; /* how many of the next copies to the device fail half way */
static struct device_io torn;
static struct device_io *torn_of;

static void end_torn(struct device_io *io, int result)
{
	(void)io, (void)result;
	torn_of->done(torn_of, -EIO);
}

static void submit(struct device *d, struct device_io *io)
{
	struct device_where from, to;

	if (!torn_writes || device_host.where(d, io->from, &from) ||
	    device_host.where(d, io->to, &to) || from.number >= 0 || to.number < 0) {
		device_host.submit(d, io);
		return;
	}
	torn_writes--;
	torn = *io;
	torn.size /= 2;
	torn.done = end_torn;
	torn_of = io;
	device_host.submit(d, &torn);
}

static const struct device_ops *port(void)
{
	static struct device_ops ops;

	ops = device_host;
	ops.submit = submit;
	return &ops;
}

static void setup(int place)
{
	job_open(&job, &(struct job_spec){ .world = 2,
					   .hosts = place == LIBRARYS_FAR ? 2 : 0,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   .on_device = place == ON_DEVICE,
					   .device_ops = port() });
	f = job_frag(&job, 0);
	told = 0;
	if (place == ON_DEVICE) {
		hidden_new(&on_device, devices_port(f->engine->registry.devices), 0, ARENA);
		open_ours(on_device.memory);
	} else if (place == OURS) {
		open_ours(ours);
	} else {
		open_arena();
	}
}

static void teardown(void)
{
	job_close(&job);
	if (on_device.memory) {
		on_device.device = NULL; /* the job has closed the device */
		hidden_free(&on_device);
		on_device.memory = NULL;
	}
}

static struct frag_arena_figures figures(void)
{
	struct frag_arena_figures now = { .size = sizeof(now) };

	ck_assert_int_eq(frag_arena_figures(f, &now), 0);
	return now;
}

static uint64_t alloc(uint64_t bytes)
{
	uint64_t block = 0;

	ck_assert_int_eq(frag_arena_alloc(f, bytes, &block), 0);
	return block;
}

static unsigned flags_of(uint32_t param)
{
	return param == 5 ? 0 : FRAG_SHARD;
}

static uint64_t assign(uint32_t param)
{
	int number = job_number(&job, 0, param);
	uint64_t block = alloc(job_bytes(&job, param, "lp") + UNIT);

	ck_assert_int_eq(frag_arena_assign(f, number, flags_of(param), block, 16), 0);
	return block;
}

/* Checks the values as rank 1 gets them from rank 0, and as rank 0 has them. */
static void check_values(void)
{
	for (uint32_t rank = 0; rank < 2; rank++)
		for (uint32_t p = 0; p < PARAMS; p++) {
			uint64_t bytes = job_bytes(&job, p, "lp");
			CLEANUP(free) uint8_t *out = malloc(bytes + 1);

			ck_assert_int_eq(frag_get(job_frag(&job, rank),
						  job_number(&job, rank, p), "lp", out, bytes),
					 0);
			ck_assert_mem_eq(out, job_truth(&job, p, "lp"), bytes);
		}
}

/* Spoils the trainer's own buffers, which no reader may read any more. */
static void spoil_buffers(void)
{
	struct job_rank *r = &job.ranks[0];

	for (uint32_t i = 0; i < r->nmemory; i++)
		if (r->memory[i].kind == STATE_LP_SHARD)
			memset(r->memory[i].bytes_at, 0x77, r->memory[i].bytes);
}

/* Allocates blocks with holes between all of them. */
static void scatter(uint64_t block[PARAMS])
{
	uint64_t hole[PARAMS];

	for (uint32_t p = 0; p < PARAMS; p++) {
		hole[p] = alloc(UNIT + p * UNIT / 2);
		block[p] = assign(p);
	}
	for (uint32_t p = 0; p < PARAMS; p++)
		ck_assert_int_eq(frag_arena_release(f, hole[p]), 0);
	spoil_buffers();
}

START_TEST(every_rank_reads_the_same_values_after_each_step_of_a_compaction)
{
	uint64_t block[PARAMS];
	unsigned steps = 0;
	int64_t n;

	setup(_i);
	scatter(block);
	check_values();
	ck_assert_uint_gt(figures().holes, 1);
	while ((n = frag_arena_compact(f, 0, STEP + UNIT - 1)) > 0) {
		ck_assert_int_eq(n, STEP);
		check_values();
		steps++;
	}
	ck_assert_int_eq(n, 0);
	ck_assert_uint_eq(figures().holes, 1);
	ck_assert_uint_eq(figures().largest, figures().free);
	ck_assert_uint_eq(figures().moved, steps * STEP);
	ck_assert_uint_eq(told, PARAMS);
	for (uint32_t p = 0; p < PARAMS; p++) {
		int number = job_number(&job, 0, p);
		uint64_t of;
		void *memory;

		ck_assert_int_eq(frag_arena_find(f, number, flags_of(p), &of, &memory), 0);
		ck_assert_uint_eq(of, block[p]);
		ck_assert_ptr_eq(told_of[number], memory);
	}
	teardown();
}
END_TEST

START_TEST(a_value_set_while_it_is_half_moved_arrives_whole)
{
	uint64_t bytes, block[PARAMS], size;
	CLEANUP(free) uint8_t *value = NULL;
	void *memory;

	setup(_i);
	scatter(block);
	bytes = job_bytes(&job, 2, "fp32");
	value = malloc(bytes);
	for (int step = 0; frag_arena_memory(f, block[2], &memory, &size) != -EAGAIN; step++) {
		ck_assert_int_lt(step, 64);
		ck_assert_int_eq(frag_arena_compact(f, 0, STEP), STEP);
	}
	ck_assert_int_eq(frag_arena_pin(f, block[2]), -EAGAIN);
	ck_assert_int_eq(frag_arena_find(f, job_number(&job, 0, 2), FRAG_SHARD, NULL, &memory),
			 -EAGAIN);
	ck_assert_int_eq(frag_arena_unassign(f, job_number(&job, 0, 0), FRAG_SHARD), 0);
	ck_assert_int_eq(frag_arena_assign(f, job_number(&job, 0, 0), FRAG_SHARD, block[2], 0),
			 -EAGAIN);
	job_fill(value, FRAG_F32, job_numel(&job, 2), 5);
	ck_assert_int_eq(
		frag_set(job_frag(&job, 1), job_number(&job, 1, 2), "fp32", value, bytes), 0);
	job_expect(&job, 2, "fp32", value);
	job_expect_lp_of(&job, 2, value);
	job_boundary(&job);
	bytes = job_bytes(&job, 2, "lp");
	while (frag_arena_compact(f, 0, STEP) > 0) {
		ck_assert_int_eq(
			frag_get(job_frag(&job, 1), job_number(&job, 1, 2), "lp", value, bytes),
			0);
		ck_assert_mem_eq(value, job_truth(&job, 2, "lp"), bytes);
	}
	teardown();
}
END_TEST

/* ---- open files ---- */

static uint64_t view_of(uint32_t param)
{
	struct engine *e = f->engine;
	enum frag_dtype dtype;
	int row = registry_find(&e->registry, param == 5 ? STATE_LP : STATE_LP_SHARD,
				(uint32_t)job_number(&job, 0, param), 0, "", &dtype);
	struct view_run run = { .row = (uint32_t)row,
				.size = job_bytes(&job, param, "lp") / (param == 5 ? 1 : 2) };
	struct view_request q = { .id = { 1, 2 }, .runs = &run, .nruns = 1 };
	struct view view;

	ck_assert_int_ge(row, 0);
	ck_assert_int_eq(
		view_owner_open(&e->view_owner, &e->registry, &q, monotonic_ms(), &view), 0);
	return run.size;
}

static void check_view(uint64_t size, uint32_t param)
{
	CLEANUP(free) uint8_t *out = malloc(size);

	ck_assert_int_eq(view_owner_read(&f->engine->view_owner, &f->engine->registry,
					 (uint64_t[]){ 1, 2 }, 0, out, size),
			 0);
	ck_assert_mem_eq(out, job_truth(&job, param, "lp"), size);
}

START_TEST(an_open_file_shows_the_same_through_a_compaction_without_a_copy)
{
	uint64_t block[PARAMS];
	uint64_t size;

	setup(_i ? OURS : LIBRARYS);
	scatter(block);
	size = view_of(2);
	while (frag_arena_compact(f, 0, STEP) > 0)
		check_view(size, 2);
	check_view(size, 2);
	ck_assert_uint_eq(atomic_load(&f->engine->registry.control->kept_bytes), 0);
	teardown();
}
END_TEST

START_TEST(an_open_file_keeps_what_is_released_under_it)
{
	uint64_t block;
	uint64_t size;
	void *memory;
	uint64_t bytes;

	setup(0);
	block = assign(4);
	size = view_of(4);
	if (_i == 0)
		ck_assert_int_eq(frag_arena_release(f, block), 0);
	else if (_i == 1)
		ck_assert_int_eq(
			frag_arena_release_param(f, job_number(&job, 0, 4), FRAG_SHARD), 0);
	else if (_i == 2)
		ck_assert_int_eq(frag_arena_unassign(f, job_number(&job, 0, 4), FRAG_SHARD), 0);
	else
		ck_assert_int_eq(frag_arena_close(f), 0);
	check_view(size, 4);
	if (_i < 2)
		ck_assert_int_eq(frag_arena_memory(f, block, &memory, &bytes), -ENOENT);
	if (_i < 3)
		ck_assert_int_eq(
			frag_arena_find(f, job_number(&job, 0, 4), FRAG_SHARD, NULL, NULL),
			-ENOENT);
	teardown();
}
END_TEST

/* ---- blocks ---- */

START_TEST(enough_but_scattered_is_eagain_until_it_is_compacted)
{
	uint64_t block[4], big;

	setup(0);
	for (int i = 0; i < 4; i++)
		block[i] = alloc(ARENA / 4);
	ck_assert_int_eq(frag_arena_alloc(f, 1, &big), -ENOSPC);
	ck_assert_int_eq(frag_arena_compact(f, 1, ARENA), -ENOSPC);
	frag_arena_release(f, block[0]);
	frag_arena_release(f, block[2]);
	ck_assert_int_eq(frag_arena_alloc(f, ARENA / 2, &big), -EAGAIN);
	ck_assert_uint_eq(figures().largest, ARENA / 4);
	ck_assert_int_eq(frag_arena_compact(f, ARENA / 2, ARENA), ARENA / 4);
	ck_assert_int_eq(frag_arena_compact(f, ARENA / 2, ARENA), 0);
	ck_assert_int_eq(frag_arena_alloc(f, ARENA / 2, &big), 0);
	ck_assert_uint_eq(figures().free, 0);
	ck_assert_uint_eq(figures().used_max, ARENA);
	ck_assert_uint_eq(figures().blocks, 3);
	teardown();
}
END_TEST

START_TEST(a_pinned_block_stays_and_is_not_released)
{
	uint64_t low, pinned, bytes;
	void *before, *after;

	setup(0);
	low = alloc(ARENA / 4);
	pinned = alloc(ARENA / 4);
	ck_assert_int_eq(frag_arena_memory(f, pinned, &before, &bytes), 0);
	ck_assert_uint_eq(bytes, ARENA / 4);
	ck_assert_int_eq(frag_arena_pin(f, pinned), 0);
	ck_assert_int_eq(frag_arena_release(f, low), 0);
	ck_assert_int_eq(frag_arena_compact(f, ARENA / 4 * 3, ARENA), -EBUSY);
	ck_assert_int_eq(frag_arena_compact(f, 0, ARENA), 0);
	ck_assert_int_eq(frag_arena_release(f, pinned), -EBUSY);
	ck_assert_int_eq(frag_arena_memory(f, pinned, &after, &bytes), 0);
	ck_assert_ptr_eq(before, after);
	ck_assert_int_eq(frag_arena_unpin(f, pinned), 0);
	ck_assert_int_eq(frag_arena_unpin(f, pinned), -EINVAL);
	ck_assert_int_eq(frag_arena_compact(f, ARENA / 4 * 3, ARENA), ARENA / 4);
	ck_assert_int_eq(frag_arena_release(f, pinned), 0);
	teardown();
}
END_TEST

START_TEST(bytes_in_an_arena_are_counted_once)
{
	_Atomic uint64_t *counted;
	uint64_t with, block;

	setup(0);
	counted = &f->engine->registry.control->bytes_host;
	with = atomic_load(counted);
	block = assign(2);
	ck_assert_uint_eq(atomic_load(counted), with - job_bytes(&job, 2, "lp") / 2);
	ck_assert_int_eq(frag_arena_release(f, block), 0);
	ck_assert_uint_eq(atomic_load(counted), with - job_bytes(&job, 2, "lp") / 2);
	ck_assert_int_eq(frag_arena_close(f), 0);
	ck_assert_uint_eq(atomic_load(counted), with - job_bytes(&job, 2, "lp") / 2 - ARENA);
	teardown();
}
END_TEST

/* Addresses are the device's, whose memory only the port touches. */
START_TEST(an_arena_on_a_device_is_the_devices)
{
	const struct control_page *c;
	uint64_t with, block, hole, most;
	int number;
	void *memory;

	setup(ON_DEVICE);
	c = f->engine->registry.control;
	most = job_bytes(&job, 0, "lp") / 2;
	number = job_number(&job, 0, 0);
	with = c->bytes_device;
	/* less than the block that slides over it: by way of the host's memory */
	hole = alloc(UNIT);
	block = assign(0);
	ck_assert_uint_eq(c->bytes_device, with - most);
	ck_assert_int_eq(frag_arena_memory(f, block, &memory, &most), 0);
	ck_assert_ptr_eq(memory, (uint8_t *)on_device.memory + UNIT);
	ck_assert_int_eq(frag_arena_release(f, hole), 0);
	ck_assert_int_gt(frag_arena_compact(f, 0, ARENA), UNIT);
	ck_assert_ptr_eq(told_of[number], (uint8_t *)on_device.memory + 16);
	check_values();
	ck_assert_int_eq(frag_update_lp(f, number), 0);
	ck_assert_int_eq(frag_arena_close(f), 0);
	ck_assert_uint_eq(c->bytes_device, with - ARENA - job_bytes(&job, 0, "lp") / 2);
	teardown();
}
END_TEST

static void expect_lp(uint32_t param)
{
	for (uint32_t rank = 0; rank < 2; rank++)
		ck_assert_int_eq(
			frag_update_lp(job_frag(&job, rank), job_number(&job, rank, param)), 0);
	job_expect_lp_of(&job, param, job_truth(&job, param, "fp32"));
}

/* The parameter moves over itself, by less than its size.  When the device has written half of
 * it, the other half is overwritten, too.
 */
START_TEST(a_write_that_fails_half_way_is_made_again)
{
	uint64_t hole;

	setup(ON_DEVICE);
	hole = alloc(UNIT);
	assign(0);
	assign(2);
	ck_assert_int_eq(frag_arena_release(f, hole), 0);
	torn_writes = 1;
	ck_assert_int_gt(frag_arena_compact(f, 0, ARENA), UNIT);
	ck_assert_uint_eq(torn_writes, 0);
	check_values();
	teardown();
}
END_TEST

START_TEST(what_a_device_has_lost_is_seen_by_nobody)
{
	uint64_t hole, block, size, bytes;
	struct view_look look;
	CLEANUP(free) uint8_t *out = NULL;
	int number;

	setup(ON_DEVICE);
	bytes = job_bytes(&job, 0, "lp");
	out = malloc(bytes);
	number = job_number(&job, 0, 0);
	assign(2); /* lies before the hole, and is not moved */
	hole = alloc(UNIT);
	block = assign(0);
	size = view_of(0);
	ck_assert_int_eq(frag_arena_release(f, hole), 0);
	torn_writes = 2;
	ck_assert_int_eq(frag_arena_compact(f, 0, ARENA), -EIO);
	ck_assert_uint_eq(torn_writes, 0);
	ck_assert_int_eq(frag_arena_find(f, number, FRAG_SHARD, NULL, NULL), -ENOENT);
	ck_assert_int_eq(frag_get(job_frag(&job, 1), job_number(&job, 1, 0), "lp", out, bytes),
			 -ENOENT);
	ck_assert_int_eq(
		view_owner_look(&f->engine->view_owner, (uint64_t[]){ 1, 2 }, 0, size, &look),
		0);
	ck_assert_ptr_null(look.version);
	ck_assert_int_eq(
		registry_covers(&f->engine->registry, look.epoch, look.row, look.at, size),
		-ESTALE);
	/* the block itself is still there, and moves */
	ck_assert_int_gt(frag_arena_compact(f, 0, ARENA), 0);
	ck_assert_int_eq(frag_arena_assign(f, number, FRAG_SHARD, block, 16), 0);
	expect_lp(0);
	expect_lp(2);
	teardown();
}
END_TEST

static unsigned turns_left;

static void turn(void *arg)
{
	(void)arg;
	if (turns_left && !--turns_left)
		registry_move_end(&f->engine->registry, NULL, NULL);
	job_turn(&job);
}

START_TEST(who_reads_while_bytes_move_on_a_device_asks_again)
{
	uint64_t bytes = 15 * 70 * 2;
	CLEANUP(free) uint8_t *out = malloc(bytes);

	setup(ON_DEVICE);
	assign(0);
	turns_left = 40;
	ck_assert_int_eq(registry_move_begin(&f->engine->registry), 0);
	job_frag(&job, 1)->engine->thread.yield = turn;
	ck_assert_int_eq(frag_get(job_frag(&job, 1), job_number(&job, 1, 0), "lp", out, bytes),
			 0);
	ck_assert_mem_eq(out, job_truth(&job, 0, "lp"), bytes);
	ck_assert_uint_eq(turns_left, 0);
	teardown();
}
END_TEST

/* The file was opened while the values were in the host's memory. */
START_TEST(an_open_file_goes_on_when_its_parameter_moves_to_a_device)
{
	uint64_t size;

	setup(ON_DEVICE);
	ck_assert_int_eq(frag_arena_close(f), 0);
	ck_assert_int_eq(frag_lp_move(f, job_number(&job, 0, 2), FRAG_SHARD, NULL), 0);
	ck_assert_int_eq(frag_lp_move(f, job_number(&job, 0, 2), FRAG_SHARD,
				      (uint8_t *)(uintptr_t)job_truth(&job, 2, "lp")),
			 0);
	size = view_of(2);
	open_ours(on_device.memory);
	assign(2);
	check_view(size, 2);
	check_values();
	teardown();
}
END_TEST

START_TEST(what_has_no_values_here_gets_those_of_the_block)
{
	int number;
	uint64_t block, bytes, size;
	void *memory;
	uint8_t out[2];

	setup(0);
	number = job_number(&job, 0, 1);
	block = assign(1);
	ck_assert_int_eq(frag_arena_unassign(f, number, FRAG_SHARD), 0);
	ck_assert_int_eq(frag_arena_memory(f, block, &memory, &size), 0);
	memset(memory, 0x3c, size);
	ck_assert_int_eq(frag_arena_assign(f, number, FRAG_SHARD, block, 2), 0);
	bytes = sizeof(out);
	ck_assert_int_eq(
		frag_get_range(job_frag(&job, 1), job_number(&job, 1, 1), "lp", 0, out, bytes),
		0);
	ck_assert_mem_eq(out, "\x3c\x3c", 2);
	teardown();
}
END_TEST

/* ---- misuse ---- */

START_TEST(misuse_is_an_errno)
{
	struct frag_arena none = { sizeof(none), 0, NULL, NULL, NULL },
			  one = { sizeof(one), 1, NULL, NULL, NULL };
	struct frag_arena vast = { sizeof(vast), INT64_MAX - 4096, NULL, NULL, NULL };
	struct frag_arena odd[] = { { sizeof(none), UNIT + 1, NULL, NULL, ours },
				    { sizeof(none), UNIT, NULL, NULL, ours + 16 } };
	struct frag_arena_figures short_of = { .size = 1 };
	uint64_t block = 0, size;
	int number;
	void *memory;

	setup(0);
	number = job_number(&job, 0, 5);
	ck_assert_int_eq(frag_arena_open(f, &one), -EEXIST);
	ck_assert_int_eq(frag_arena_alloc(f, 0, &block), -EINVAL);
	ck_assert_int_eq(frag_arena_release(f, 0), -ENOENT);
	ck_assert_int_eq(frag_arena_release(f, UINT64_MAX), -ENOENT);
	ck_assert_int_eq(frag_arena_memory(f, 77, &memory, &size), -ENOENT);
	ck_assert_int_eq(frag_arena_pin(f, 77), -ENOENT);
	ck_assert_int_eq(frag_arena_unpin(f, 77), -ENOENT);
	block = alloc(UNIT * 4);
	ck_assert_int_eq(frag_arena_assign(f, -1, 0, block, 0), -EINVAL);
	ck_assert_int_eq(frag_arena_assign(f, 99, 0, block, 0), -EINVAL);
	ck_assert_int_eq(frag_arena_assign(f, number, 2, block, 0), -EINVAL);
	ck_assert_int_eq(frag_arena_assign(f, number, 0, 77, 0), -ENOENT);
	ck_assert_int_eq(frag_arena_assign(f, number, 0, block, 2), -EINVAL);
	ck_assert_int_eq(frag_arena_assign(f, number, 0, block, UNIT * 4), -EINVAL);
	ck_assert_int_eq(frag_arena_assign(f, number, 0, block, UINT64_MAX - 3), -EINVAL);
	ck_assert_int_eq(frag_arena_assign(f, number, 0, block, UNIT), 0);
	ck_assert_int_eq(frag_arena_assign(f, number, 0, block, 0), -EEXIST);
	ck_assert_int_eq(frag_arena_unassign(f, -1, 0), -EINVAL);
	ck_assert_int_eq(frag_arena_unassign(f, number, FRAG_SHARD), -ENOENT);
	ck_assert_int_eq(frag_arena_release_param(f, number, FRAG_SHARD), -ENOENT);
	ck_assert_int_eq(frag_arena_release_param(f, 99, 0), -EINVAL);
	ck_assert_int_eq(frag_arena_find(f, 99, 0, NULL, NULL), -EINVAL);
	ck_assert_int_eq(frag_arena_compact(f, 0, UNIT - 1), -EINVAL);
	ck_assert_int_eq(frag_arena_figures(f, NULL), -EINVAL);
	ck_assert_int_eq(frag_arena_figures(f, &short_of), -EINVAL);
	ck_assert_int_eq(frag_arena_close(f), 0);
	ck_assert_int_eq(frag_arena_close(f), -ENOENT);
	ck_assert_int_eq(frag_arena_alloc(f, 1, &block), -ENOENT);
	ck_assert_int_eq(frag_arena_open(f, &none), -EINVAL);
	ck_assert_int_eq(frag_arena_open(f, NULL), -EINVAL);
	ck_assert_int_eq(frag_arena_open(f, &vast), -ENOMEM);
	ck_assert_int_eq(frag_arena_open(f, &odd[0]), -EINVAL);
	ck_assert_int_eq(frag_arena_open(f, &odd[1]), -EINVAL);
	open_arena();
	ck_assert_int_eq(frag_arena_open(NULL, &one), -EINVAL);
	ck_assert_int_eq(frag_arena_compact(NULL, 0, UNIT), -EINVAL);
	teardown();
}
END_TEST

/* ---- without memory ---- */

/* A call that is refused changes nothing, and succeeds the next time.  i: 1: on a device. */
START_TEST(without_memory_it_says_so_and_nothing_is_lost)
{
	int64_t moved = -1;
	unsigned n = 1;

	setup(_i ? ON_DEVICE : LIBRARYS);
	ck_assert_int_eq(frag_arena_close(f), 0);
	for (unsigned failed = 1; failed; n++) {
		struct frag_arena config = { sizeof(config), ARENA, NULL, NULL,
					     _i ? on_device.memory : NULL };
		int opened;

		scarce_begin(n, 1);
		opened = frag_arena_open(f, &config);
		failed = scarce_end();
		ck_assert(!opened || (failed && opened == -ENOMEM));
		if (!opened && failed)
			ck_assert_int_eq(frag_arena_close(f), 0);
	}
	ck_assert_uint_gt(n, 3);
	for (uint32_t p = 0; p < PARAMS; p++) {
		uint64_t block = alloc(4 * UNIT + job_bytes(&job, p, "lp"));
		int assigned = -1;

		for (n = 1; assigned; n++) {
			scarce_begin(n, 1);
			assigned = frag_arena_assign(f, job_number(&job, 0, p), flags_of(p),
						     block, 0);
			scarce_end();
			ck_assert(!assigned || assigned == -ENOMEM);
			if (_i)
				job_boundary(&job); /* marks the stream anew */
			check_values();
		}
		ck_assert_uint_gt(n, 2);
	}
	spoil_buffers();
	ck_assert_int_eq(frag_arena_release_param(f, job_number(&job, 0, 3), FRAG_SHARD), 0);
	for (n = 1; moved < 0; n++) {
		scarce_begin(n, 1);
		moved = frag_arena_compact(f, 0, UNIT);
		scarce_end();
		ck_assert(moved > 0 || moved == -ENOMEM);
	}
	ck_assert_uint_gt(n, 2);
	teardown();
}
END_TEST

/* ---- many ---- */

/* Returns a block's handle; 0: there is no room for it. */
static uint64_t alloc_or_compact(uint64_t bytes)
{
	int64_t moved = 1;
	uint64_t block;
	int rc;

	while ((rc = frag_arena_alloc(f, bytes, &block)) == -EAGAIN && moved)
		moved = frag_arena_compact(f, 0, UNIT * (1 + job_random(&job, 9)));
	ck_assert(!rc || rc == -ENOSPC);
	return rc ? 0 : block;
}

/* Random use; checks every parameter that is assigned, so that no move may lose one. */
START_TEST(random_use_loses_nothing)
{
	uint64_t block[PARAMS] = { 0 }, other[8] = { 0 };

	setup(_i ? ON_DEVICE : LIBRARYS);
	for (uint32_t p = 0; p < PARAMS; p++)
		block[p] = assign(p);
	spoil_buffers();
	for (int round = 0; round < 400; round++) {
		uint32_t i = job_random(&job, ARRAY_SIZE(other));

		if (other[i])
			ck_assert_int_eq(frag_arena_release(f, other[i]), 0);
		other[i] = other[i] ? 0 : alloc_or_compact(job_random(&job, 8 * UNIT) + 1);
		frag_arena_compact(f, job_random(&job, 16) * UNIT, UNIT);
		if (round % 16 == 0)
			check_values();
	}
	check_values();
	for (uint32_t p = 0; p < PARAMS; p++)
		ck_assert_int_eq(frag_arena_release(f, block[p]), 0);
	teardown();
}
END_TEST

START_TEST(a_whole_copy_of_what_is_not_cut_by_rows_has_no_place_in_it)
{
	static const struct job_param cut[] = {
		{ "columns", .ndim = 2, .shape = { 4, 6 }, .ncuts = 1, .cuts = { { 1, 0 } } },
	};
	static const struct job_group group[] = { { .sharding = FRAG_FSDP2, .nparams = 1 } };
	int number;

	job_open(&job,
		 &(struct job_spec){
			 .world = 2, .lp = JOB_LP_NONE, JOB_PARAMS(cut), JOB_GROUPS(group) });
	f = job_frag(&job, 0);
	open_arena();
	number = job_number(&job, 0, 0);
	ck_assert_int_eq(frag_arena_assign(f, number, 0, alloc(UNIT * 4), 0), -EINVAL);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena in a job");
	TCase *tcase = tcase_create("arena");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase,
			    every_rank_reads_the_same_values_after_each_step_of_a_compaction, 0,
			    PLACES);
	tcase_add_loop_test(tcase, a_value_set_while_it_is_half_moved_arrives_whole, 0, PLACES);
	tcase_add_loop_test(
		tcase, an_open_file_shows_the_same_through_a_compaction_without_a_copy, 0, 2);
	tcase_add_test(tcase, an_arena_on_a_device_is_the_devices);
	tcase_add_test(tcase, a_write_that_fails_half_way_is_made_again);
	tcase_add_test(tcase, what_a_device_has_lost_is_seen_by_nobody);
	tcase_add_test(tcase, who_reads_while_bytes_move_on_a_device_asks_again);
	tcase_add_test(tcase, an_open_file_goes_on_when_its_parameter_moves_to_a_device);
	tcase_add_loop_test(tcase, an_open_file_keeps_what_is_released_under_it, 0, 4);
	tcase_add_test(tcase, enough_but_scattered_is_eagain_until_it_is_compacted);
	tcase_add_test(tcase, a_pinned_block_stays_and_is_not_released);
	tcase_add_test(tcase, bytes_in_an_arena_are_counted_once);
	tcase_add_test(tcase, what_has_no_values_here_gets_those_of_the_block);
	tcase_add_test(tcase, misuse_is_an_errno);
	tcase_add_test(tcase, a_whole_copy_of_what_is_not_cut_by_rows_has_no_place_in_it);
	tcase_add_loop_test(tcase, without_memory_it_says_so_and_nothing_is_lost, 0, 2);
	tcase_add_loop_test(tcase, random_use_loses_nothing, 0, 2);
	return run_suite(suite, tcase);
}

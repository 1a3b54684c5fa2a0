/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ports/device-host.h"
#include "tests/ranks/observed.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/base/thread.h"
#include "engine/node/peers.h"
#include "engine/rank/registry-place.h"
#include "engine/rank/registry-fetch.h"

#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* States that an observer orders to another tier while they are read, edited and swept. */

enum { ROUNDS = 30, PART = 8, LONG_MS = 1 << 30 };

/* Opens with long timeouts, because turns put the clock ahead, and the disk of a loaded machine
 * does not keep up.
 */
static void open_places(const struct device_ops *devices)
{
	open_tier(JOB_SWAP, devices);
	observer->write.allowed = true;
	observer->timeout_ms = LONG_MS;
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_frag(&job, rank)->engine->timeout_ms = LONG_MS;
}

static void open_swapped(void)
{
	open_places(NULL);
}

static struct registry *registry_of(uint32_t rank)
{
	return &job_frag(&job, rank)->engine->registry;
}

static uint32_t row_of(uint32_t rank, const char *key)
{
	int row = registry_find(registry_of(rank), STATE_PARTITION, 0, 0, key,
				&(enum frag_dtype){ 0 });

	ck_assert_int_ge(row, 0);
	return (uint32_t)row;
}

static enum state_tier tier_of(uint32_t rank, const char *key)
{
	return registry_tier(registry_of(rank), row_of(rank, key));
}

static void *address_of(uint32_t rank, const char *key)
{
	return (void *)(uintptr_t)registry_of(rank)
		->states.rows[row_of(rank, key)]
		.extents[0]
		.address;
}

static void expect_tier(const char *key, enum state_tier tier)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(tier_of(rank, key), tier);
}

static void order(const char *states, const char *tier)
{
	ck_assert_int_eq(engine_place(observer, states, tier), 0);
}

static uint8_t got[BYTES];
static int64_t got_size;

static void on_got(struct engine_read *read, const void *data, int64_t result)
{
	got_size = result;
	if (result > 0)
		memcpy(got, data, (size_t)result);
}

/* Reads; returns when the read is over, however many turns that takes. */
static void get(struct engine_file *file, uint64_t offset, uint64_t size)
{
	struct engine_read read = {
		.file = file, .offset = offset, .size = size, .done = on_got
	};

	got_size = 0;
	engine_read(observer, &read);
	while (!got_size)
		turn(NULL);
	ck_assert_int_eq(got_size, (int64_t)size);
}

static bool reads_as(struct engine_file *file, uint64_t from, const void *truth)
{
	get(file, from, BYTES - from);
	return !memcmp(got, (const uint8_t *)truth + from, BYTES - from);
}

static void expect_read(const char *key)
{
	struct engine_file *file = open_state(ENGINE_PARAM, key);

	ck_assert(reads_as(file, 0, job_truth(&job, 0, key)));
	engine_file_close(file);
}

START_TEST(states_move_at_a_boundary_and_stay_what_they_are)
{
	open_swapped();
	order("params/w/exp*", "host");
	expect_tier("exp_avg", STATE_SWAP);
	expect_read("exp_avg");
	job_boundary(&job);
	expect_tier("exp_avg", STATE_HOST);
	expect_tier("fp32", STATE_SWAP);
	expect_read("exp_avg");
	job_check(&job);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		void *memory;
		struct control_page *c = registry_of(rank)->control;
		uint64_t bytes = frag_partition_numel(job_frag(&job, rank), 0, 0) * 4;

		ck_assert_uint_eq(c->bytes_host, bytes + NUMEL * 2 + 3 * 2 + 2);
		ck_assert_uint_eq(c->swap_bytes, bytes);
		ck_assert_int_eq(frag_local_view(job_frag(&job, rank), 0, "exp_avg", &memory,
						 &(enum frag_dtype){ 0 }),
				 0);
	}
	order("params/w/*", "swap");
	job_boundary(&job);
	expect_tier("exp_avg", STATE_SWAP);
	expect_read("exp_avg");
	job_check(&job);
	close_job();
}
END_TEST

/* An edit under way: its bytes are staged in one tier and applied in another. */
static struct engine_write edit;
static uint8_t edited[BYTES];
static int edit_result;

static void on_edited(struct engine_write *write, int result)
{
	edit_result = result;
}

static void begin_edit(struct engine_file *file, uint64_t seed)
{
	static struct engine_extent all;

	job_fill(edited, FRAG_F32, NUMEL, seed);
	all = (struct engine_extent){ 0, BYTES, edited };
	edit_result = 1;
	edit = (struct engine_write){
		.file = file, .extents = &all, .nextents = 1, .done = on_edited
	};
	engine_write(observer, &edit);
}

static void turns(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		turn(NULL);
}

/* A file that was opened before an edit, and was read in part, shows the same bytes through a
 * move, the edit, and a move back.
 */
START_TEST(open_files_and_edits_go_through_moves)
{
	unsigned ntiers = _i ? STATE_TIERS : STATE_DEVICE, tier;

	open_places(_i ? &device_host : NULL);
	for (int i = 0; i < ROUNDS; i++) {
		struct engine_file *before = open_state(ENGINE_PARAM, "exp_avg"),
				   *to = open_state(ENGINE_PARAM, "exp_avg");
		uint8_t old[BYTES];

		memcpy(old, job_truth(&job, 0, "exp_avg"), BYTES);
		if (job_random(&job, 2))
			get(before, 0, PART);
		else
			ck_assert(reads_as(before, 0, old));
		begin_edit(to, (uint64_t)i + 1);
		turns(job_random(&job, 12));
		tier = (unsigned)job_random(&job, ntiers);
		order(job_random(&job, 2) ? "params/*/*" : "params/w/exp_avg",
		      states_tier_names[tier]);
		while (edit_result == 1) {
			job_boundary(&job);
			turns(job_random(&job, 6));
		}
		ck_assert_int_eq(edit_result, 0);
		job_expect(&job, 0, "exp_avg", edited);
		job_boundary(&job);
		ck_assert(reads_as(before, PART, old));
		engine_file_close(before);
		engine_file_close(to);
		expect_read("exp_avg");
		expect_read("fp32");
		expect_tier("exp_avg", tier);
		job_check(&job);
	}
	close_job();
}
END_TEST

/* Sets all of a state by a sweep of two states. */
static void sweep(struct frag *f, const char *key, const char *other, float value)
{
	const struct frag_swept states[] = { { key, 0 }, { other, FRAG_READ_ONLY } };
	uint64_t first, numel, done = 0;
	struct frag_sweep *s;
	void *memory[2];

	ck_assert_int_eq(frag_sweep_begin(f, 0, 0, states, 2, &s), 0);
	while (frag_sweep_next(s, &first, &numel, memory) == 1) {
		ck_assert_uint_eq(first, done);
		done += numel;
		for (uint64_t i = 0; i < numel; i++) {
			((float *)memory[0])[i] = value;
			((float *)memory[1])[i] = -1; /* read-only: the change is forgotten */
		}
	}
	frag_sweep_end(s);
	ck_assert_uint_eq(done, frag_partition_numel(f, 0, 0));
}

static void expect_all(const char *key, float value)
{
	struct engine_file *file = open_state(ENGINE_PARAM, key);
	float all[NUMEL];

	for (int i = 0; i < NUMEL; i++)
		all[i] = value;
	ck_assert(reads_as(file, 0, all));
	engine_file_close(file);
}

/* A state on a device, beside a state on the disk, and beside one on the device. */
START_TEST(states_on_a_device_are_swept_in_memory_of_the_host)
{
	enum frag_dtype dtype;
	void *memory;

	open_places(&device_host);
	for (int i = 0; i < 2; i++) {
		order(i ? "params/*/*" : "params/w/exp_avg", "device");
		job_boundary(&job);
		expect_tier("exp_avg", STATE_DEVICE);
		expect_tier("fp32", i ? STATE_DEVICE : STATE_SWAP);
		for (uint32_t rank = 0; rank < WORLD; rank++) {
			struct frag *f = job_frag(&job, rank);

			ck_assert_int_eq(frag_step_begin(f), 0);
			sweep(f, "exp_avg", "fp32", (float)(i + 7));
			ck_assert_int_eq(frag_step_end(f), 0);
		}
		expect_all("exp_avg", (float)(i + 7));
		expect_read("fp32");
	}
	ck_assert_int_eq(frag_local_view(job_frag(&job, 0), 0, "exp_avg", &memory, &dtype),
			 -EOPNOTSUPP);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct control_page *c = registry_of(rank)->control;
		struct frag *f = job_frag(&job, rank);

		ck_assert_uint_eq(c->swap_bytes, 0);
		ck_assert_uint_gt(c->bytes_device, frag_partition_numel(f, 0, 0) * 8 - 1);
		ck_assert_int_eq(frag_state_drop(f, 0, 0, "exp_avg"), 0);
	}
	close_job(); /* fp32 is still there */
}
END_TEST

/* The sweep would put back old values over those that the trainer has put from memory of the
 * host.
 */
START_TEST(a_sweep_of_a_device_overwrites_nothing_that_was_put_meanwhile)
{
	static const struct frag_swept states[] = { { "fp32", 0 } };
	float values[NUMEL] = { 5 };
	struct frag_fragment own;
	uint64_t first, numel, bytes;
	struct frag_sweep *s;
	struct frag *f;
	void *memory;

	open_places(&device_host);
	f = job_frag(&job, 0);
	order("params/w/fp32", "device");
	job_boundary(&job);
	expect_tier("fp32", STATE_DEVICE);
	ck_assert_int_eq(frag_fragment(f, 0, &own), 0);
	bytes = own.numel * sizeof(*values);
	ck_assert_int_eq(frag_step_begin(f), 0);
	ck_assert_int_eq(frag_sweep_begin(f, 0, 0, states, 1, &s), 0);
	ck_assert_int_eq(frag_local_set(f, 0, "fp32", values, bytes), 0);
	ck_assert_int_eq(frag_sweep_next(s, &first, &numel, &memory), 1);
	ck_assert_float_eq(*(float *)memory, 5);
	*(float *)memory = 6;
	ck_assert_int_eq(frag_state_put(f, 0, 0, "fp32", 0, values, 1, 0), -EBUSY);
	ck_assert_int_eq(frag_state_put(f, 0, 0, "fp32", 0, values, 1, FRAG_ADD), -EBUSY);
	ck_assert_int_eq(frag_state_clear(f, 0, 0, "fp32"), -EBUSY);
	ck_assert_int_eq(frag_local_set(f, 0, "fp32", values, bytes), -EBUSY);
	ck_assert_int_eq(frag_update_hp(f, 0), -EBUSY);
	ck_assert_int_eq(frag_sweep_next(s, &first, &numel, &memory), 0);
	ck_assert_int_eq(frag_local_get(f, 0, "fp32", values, bytes), 0);
	ck_assert_float_eq(values[0], 6);
	ck_assert_int_eq(frag_state_put(f, 0, 0, "fp32", 0, &(float){ 1 }, 1, FRAG_ADD), 0);
	frag_sweep_end(s);
	ck_assert_int_eq(frag_local_get(f, 0, "fp32", values, bytes), 0);
	ck_assert_float_eq(values[0], 7);
	ck_assert_int_eq(frag_step_end(f), 0);
	close_job();
}
END_TEST

static struct device_ops failing;
static bool fails;

static void submit_or_fail(struct device *d, struct device_io *io)
{
	if (fails)
		io->done(io, -EIO);
	else
		device_host.submit(d, io);
}

/* Bytes that could not be copied from the device, or back, or had no memory, are copied by the
 * next call.
 */
START_TEST(a_sweep_goes_on_after_errors_of_a_device)
{
	static const struct frag_swept states[] = { { "exp_avg", 0 } };
	uint64_t first, numel;
	struct frag_sweep *s;
	void *memory[1] = { &numel };
	struct frag *f;

	fails = false;
	failing = device_host;
	failing.submit = submit_or_fail;
	open_places(&failing);
	order("params/w/exp_avg", "device");
	job_boundary(&job);
	expect_tier("exp_avg", STATE_DEVICE);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		f = job_frag(&job, rank);
		ck_assert_int_eq(frag_step_begin(f), 0);
		ck_assert_int_eq(frag_sweep_begin(f, 0, 0, states, 1, &s), 0);
		scarce_begin(1, 1);
		ck_assert_int_eq(frag_sweep_next(s, &first, &numel, memory), -ENOMEM);
		ck_assert_uint_eq(scarce_end(), 1);
		fails = true;
		ck_assert_int_eq(frag_sweep_next(s, &first, &numel, memory), -EIO);
		ck_assert_ptr_null(memory[0]);
		fails = false;
		ck_assert_int_eq(frag_sweep_next(s, &first, &numel, memory), 1);
		ck_assert_uint_eq(numel, frag_partition_numel(f, 0, 0));
		for (uint64_t i = 0; i < numel; i++)
			((float *)memory[0])[i] = 3;
		fails = true;
		ck_assert_int_eq(frag_sweep_next(s, &first, &numel, memory), -EIO);
		ck_assert_ptr_nonnull(memory[0]);
		fails = false;
		ck_assert_int_eq(frag_sweep_next(s, &first, &numel, memory), 0);
		frag_sweep_end(s);
		ck_assert_int_eq(frag_step_end(f), 0);
	}
	expect_all("exp_avg", 3);
	fails = true;
	order("params/w/exp_avg", "host");
	for (uint32_t rank = 0; rank < WORLD; rank++)
		frag_safe_point(job_frag(&job, rank));
	fails = false;
	expect_tier("exp_avg", STATE_DEVICE);
	expect_all("exp_avg", 3);
	close_job();
}
END_TEST

static struct device_ops strict;
static atomic_bool is_held;
static unsigned freed, freed_early;

static void free_strictly(struct device *d, int number, void *memory)
{
	freed++;
	freed_early += atomic_load(&is_held);
	device_host.free(d, number, memory);
}

static int mark_captured(struct device *d, int number, void *stream, struct device_event **e)
{
	return -EBUSY;
}

static void *go_soon(void *arg)
{
	const struct timespec pause = { .tv_nsec = 50000000 };

	nanosleep(&pause, NULL);
	atomic_store(&is_held, false);
	device_host_go(job.ranks[0].stream);
	return arg;
}

/* The stream goes on soon, or too late, or is captured.  Bytes that open files show of a state
 * are copied from its memory, which is the device's until the copy is over.
 */
START_TEST(a_dropped_state_is_freed_behind_its_stream)
{
	enum { SOON, LATE, CAPTURED };
	struct engine_file *file;
	struct device *port;
	pthread_t thread;
	uint8_t old[BYTES];
	void *memory;

	freed = freed_early = 0;
	strict = device_host;
	strict.free = free_strictly;
	observed_devices.timeout_ms = _i == LATE ? 50 : 0;
	open_places(&strict);
	observed_devices = (struct frag_devices){ 0 };
	port = devices_port(registry_of(0)->devices);
	order("params/w/exp_avg", "device");
	job_boundary(&job);
	expect_tier("exp_avg", STATE_DEVICE);
	memory = address_of(0, "exp_avg");
	memcpy(old, job_truth(&job, 0, "exp_avg"), BYTES);
	file = open_state(ENGINE_PARAM, "exp_avg");
	get(file, 0, PART);
	atomic_store(&is_held, true);
	device_host_hold(job.ranks[0].stream);
	if (_i == SOON)
		ck_assert_int_eq(thread_start(&thread, go_soon, NULL), 0);
	if (_i == CAPTURED)
		strict.mark = mark_captured;
	ck_assert_int_eq(frag_state_drop(job_frag(&job, 0), 0, 0, "exp_avg"), 0);
	strict.mark = device_host.mark;
	if (_i == SOON)
		pthread_join(thread, NULL);
	else
		go_soon(NULL);
	ck_assert_uint_eq(freed_early, 0);
	ck_assert_uint_eq(freed, _i == SOON);
	ck_assert(reads_as(file, 0, old));
	engine_file_close(file);
	if (!freed) /* the memory was left to the device */
		device_host.free(port, 0, memory);
	close_job();
}
END_TEST

static struct device_ops full;

static int no_memory(struct device *d, int number, uint64_t size, void **memory)
{
	return -ENOMEM;
}

START_TEST(a_device_without_room_takes_no_state)
{
	full = device_host;
	full.alloc = no_memory;
	open_places(&full);
	order("params/w/exp_avg", "device");
	job_boundary(&job);
	expect_tier("exp_avg", STATE_SWAP);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_uint_eq(registry_of(rank)->placing.failed, 1);
		ck_assert_int_eq(registry_of(rank)->placing.error, -ENOMEM);
	}
	expect_read("exp_avg");
	job_check(&job);
	close_job();
}
END_TEST

/* A number without a device opens the port, and leaves the rank without a device. */
START_TEST(a_rank_whose_device_is_refused_takes_no_state)
{
	const struct frag_devices wrong = { .size = sizeof(wrong), .number = 99 };

	open_swapped();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(api_devices_over(job_frag(&job, rank), &wrong, &device_host),
				 -EINVAL);
	order("params/w/exp_avg", "device");
	job_boundary(&job);
	expect_tier("exp_avg", STATE_SWAP);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(registry_of(rank)->placing.error, -ENODEV);
	expect_read("exp_avg");
	job_check(&job);
	close_job();
}
END_TEST

static void on_fetched(struct registry_fetch *f, int status)
{
	ck_abort_msg("a fetch was begun, and ended with %d", status);
}

/* A state leaves its device between a reader's version and the copy of its bytes. */
START_TEST(a_version_of_a_state_that_has_left_its_device_is_made_again)
{
	struct registry_fetch fetch = { .size = 4,
					.memory = &(float){ 0 },
					.done = on_fetched };
	struct registry *r;

	open_places(&device_host);
	r = registry_of(0);
	order("params/w/exp_avg", "device");
	job_boundary(&job);
	ck_assert_int_eq(registry_version_newest(r, r->states.epoch, row_of(0, "exp_avg"), 0, 4,
						 &fetch.version),
			 0);
	order("params/w/exp_avg", "swap");
	job_boundary(&job);
	ck_assert_int_eq(registry_fetch_begin(r, &fetch), -EAGAIN);
	registry_version_put(fetch.version);
	expect_read("exp_avg");
	close_job();
}
END_TEST

/* All ranks but rank 1 make a step; views of rank 1 then wait for their generation. */
static void leave_rank_1_behind(void)
{
	for (uint32_t rank = 0; rank < WORLD; rank += 2) {
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
	}
}

static void let_rank_1_follow(void)
{
	ck_assert_int_eq(frag_step_begin(job_frag(&job, 1)), 0);
	ck_assert_int_eq(frag_step_end(job_frag(&job, 1)), 0);
}

/* The view waits for its generation on rank 1, which is behind, while its row moves. */
START_TEST(a_view_that_waits_for_a_generation_finds_the_row_where_it_is)
{
	static const char *const tiers[] = { "host", "swap" };
	struct engine_file *file;

	open_swapped();
	if (_i) {
		order("params/w/exp_avg", "host");
		job_boundary(&job);
	}
	leave_rank_1_behind();
	file = open_state(ENGINE_PARAM, "exp_avg");
	get(file, 0, PART); /* rank 0 has these bytes */
	order("params/w/exp_avg", tiers[_i]);
	ck_assert_int_eq(frag_step_begin(job_frag(&job, 1)), 0);
	ck_assert_int_eq(tier_of(1, "exp_avg"), _i ? STATE_SWAP : STATE_HOST);
	ck_assert_int_eq(frag_step_end(job_frag(&job, 1)), 0);
	ck_assert(reads_as(file, 0, job_truth(&job, 0, "exp_avg")));
	engine_file_close(file);
	job_boundary(&job);
	expect_read("exp_avg");
	close_job();
}
END_TEST

/* Two states of rank 1 are in one view, and one of them is to move. */
START_TEST(a_view_that_waits_for_two_rows_finds_them_in_one_tier)
{
	struct view_run runs[] = { { .size = PART }, { .size = PART } };
	struct view_request q = { .id = { 9, 9 }, .runs = runs, .nruns = 2 };
	struct registry *r;
	struct view_owner *views;
	struct view_look look;
	struct view view;

	open_swapped();
	r = registry_of(1);
	views = &job_frag(&job, 1)->engine->view_owner;
	leave_rank_1_behind();
	runs[0].row = (uint32_t)registry_find(r, STATE_PARTITION, 0, 0, "fp32",
					      &(enum frag_dtype){ 0 });
	runs[1].row = (uint32_t)registry_find(r, STATE_PARTITION, 0, 0, "exp_avg",
					      &(enum frag_dtype){ 0 });
	q.epoch = r->states.epoch;
	q.want = control_page_content(registry_of(0)->control, false);
	ck_assert_int_eq(view_owner_open(views, r, &q, monotonic_ms(), &view), 0);
	ck_assert_int_eq(view.state, VIEW_FUTURE);
	order("params/w/exp_avg", "host");
	ck_assert_int_eq(frag_step_begin(job_frag(&job, 1)), 0);
	ck_assert_int_eq(tier_of(1, "exp_avg"), STATE_SWAP);
	ck_assert_int_eq(frag_step_end(job_frag(&job, 1)), 0);
	ck_assert_int_eq(tier_of(1, "exp_avg"), STATE_HOST);
	for (uint64_t at = 0; at <= PART; at += PART) {
		ck_assert_int_eq(view_owner_look(views, q.id, at, PART, &look), 0);
		ck_assert_ptr_nonnull(look.version);
		registry_version_put(look.version);
	}
	q.want += MANY; /* at a later generation of this view the rows would be in two tiers */
	ck_assert_int_eq(view_owner_open(views, r, &q, monotonic_ms(), &view), -ESTALE);
	view_owner_close(views, q.id);
	close_job();
}
END_TEST

/* The row goes to memory of the host, where rank 1 has no room to preserve bytes. */
START_TEST(a_view_without_memory_for_its_row_ends)
{
	struct engine_file *file;

	open_swapped();
	leave_rank_1_behind();
	file = open_state(ENGINE_PARAM, "exp_avg");
	get(file, 0, PART);
	order("params/w/exp_avg", "host");
	job_frag(&job, 1)->engine->view_owner.pool.max = 0;
	let_rank_1_follow();
	ck_assert_int_eq(tier_of(1, "exp_avg"), STATE_HOST);
	ck_assert_int_eq(read_file(file, 0, BYTES, false, false), -ESTALE);
	engine_file_close(file);
	close_job();
}
END_TEST

static struct compute *operation_on(uint32_t rank, const char *key)
{
	struct compute *c = malloc(sizeof(*c));

	ck_assert_ptr_nonnull(c);
	*c = (struct compute){ .row = row_of(rank, key),
			       .epoch = registry_of(rank)->states.epoch,
			       .dtype = FRAG_F32,
			       .slice = { .numel = 1, .naxes = 1, .axes = { { 1, 1 } } },
			       .end = 1,
			       .operation = { .sign = '*', .number = 1 } };
	return c;
}

static const uint64_t staged[2] = { 77, 7 };
static bool undecided;

/* Called while rank 1 waits for a decision. */
static void abort_late(void *arg)
{
	if (undecided)
		ck_assert_int_eq(tier_of(1, "fp32"), STATE_HOST);
	undecided = false;
	participant_hear(&job_frag(&job, 1)->engine->participant, staged, false);
	turn(arg);
}

/* The operation of the edit was accepted for one tier, and would be applied in another. */
START_TEST(a_state_that_an_edit_computes_stays_until_the_edit_is_over)
{
	struct engine *e;
	struct wire_prepare prepare = { .transaction = { staged[0], staged[1] }, .holder = 1 };

	open_swapped();
	e = job_frag(&job, 1)->engine;
	order("params/w/*", "host");
	job_boundary(&job);
	ck_assert_int_eq(participant_stage_compute(&e->participant, staged, 0, monotonic_ms(),
						   false, operation_on(1, "exp_avg")),
			 0);
	order("params/w/*", "swap");
	prepare.boundary = atomic_load(&registry_of(1)->control->boundary) + 1;
	ck_assert_int_eq(participant_prepare(&e->participant, &e->registry, &prepare, NULL,
					     monotonic_ms()),
			 0);
	undecided = true;
	e->thread.yield = abort_late;
	ck_assert_int_eq(frag_safe_point(job_frag(&job, 1)), 0);
	ck_assert(!undecided);
	e->thread.yield = turn;
	ck_assert_int_eq(tier_of(1, "exp_avg"), STATE_SWAP);

	order("params/w/*", "host");
	job_boundary(&job);
	ck_assert_int_eq(participant_stage_compute(&e->participant, (uint64_t[2]){ 78, 7 }, 0,
						   monotonic_ms(), false,
						   operation_on(1, "exp_avg")),
			 0);
	order("params/w/*", "swap");
	job_boundary(&job);
	ck_assert_int_eq(tier_of(0, "exp_avg"), STATE_SWAP);
	ck_assert_int_eq(tier_of(1, "exp_avg"), STATE_HOST);
	ck_assert_int_eq(tier_of(1, "fp32"), STATE_SWAP);
	participant_drop(&e->participant, (uint64_t[2]){ 78, 7 });
	job_boundary(&job);
	ck_assert_int_eq(tier_of(1, "exp_avg"), STATE_SWAP);
	job_check(&job);
	close_job();
}
END_TEST

START_TEST(a_state_that_is_to_leave_memory_takes_no_scattered_operation)
{
	enum { MANY_RUNS = COMPUTE_RUNS_MAX + 1 };
	struct compute *c;

	open_swapped();
	order("params/w/*", "host");
	job_boundary(&job);
	c = operation_on(0, "exp_avg");
	c->slice = (struct slice){ .numel = MANY_RUNS,
				   .naxes = 1,
				   .axes = { { MANY_RUNS, 1 << 13 } } };
	c->end = MANY_RUNS;
	ck_assert(!compute_is_scattered(c, registry_of(0)));
	order("params/w/*", "swap");
	ck_assert(compute_is_scattered(c, registry_of(0)));
	free(c);
	close_job();
}
END_TEST

START_TEST(a_sweep_is_not_disturbed)
{
	static const struct frag_swept states[] = { { "fp32", FRAG_READ_ONLY },
						    { "exp_avg", FRAG_READ_ONLY } };
	struct frag *f;
	struct frag_sweep *sweep;
	uint64_t first, numel;
	void *memory[2];

	open_swapped();
	f = job_frag(&job, 0);
	order("params/*/*", "host");
	ck_assert_int_eq(frag_sweep_begin(f, 0, 0, states, 2, &sweep), 0);
	ck_assert_int_eq(frag_sweep_then(sweep, 0, 0), 0);
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 1);
	job_boundary(&job);
	ck_assert_int_eq(tier_of(0, "fp32"), STATE_SWAP);
	ck_assert_int_eq(tier_of(1, "fp32"), STATE_HOST);
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 0);
	frag_sweep_end(sweep);
	job_boundary(&job);
	expect_tier("fp32", STATE_HOST);
	ck_assert_int_eq(frag_sweep_begin(f, 0, 0, states, 2, &sweep), 0);
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 1);
	ck_assert_uint_eq(numel, frag_partition_numel(f, 0, 0));
	frag_sweep_end(sweep);
	job_check(&job);
	close_job();
}
END_TEST

static void expect_check(const char *states, const char *tier, int rc)
{
	ck_assert_int_eq(engine_place_check(observer, states, tier), rc);
}

/* The sender of the first order is told that a second order has replaced it. */
START_TEST(an_order_that_is_replaced_is_known_to_be)
{
	open_swapped();
	expect_check("params/w/exp_avg", "swap", 0);
	expect_check("params/w/exp_avg", "host", -ECANCELED);
	order("params/w/exp_avg", "host");
	expect_check("params/w/exp_avg", "host", -EBUSY);
	order("params/w/exp*", "swap");
	expect_check("params/w/exp_avg", "host", -ECANCELED);
	expect_check("params/w/exp_avg", "swap", 0);
	order("params/w/exp_avg", "host");
	job_boundary(&job);
	expect_check("params/w/exp_avg", "host", 0);
	expect_check("params/w/*", "host", -ECANCELED);
	expect_check("params/w/momentum", "host", -ENOENT);
	expect_check("params/w/exp_avg", "tape", -EINVAL);
	expect_tier("fp32", STATE_SWAP);
	close_job();
}
END_TEST

START_TEST(orders_that_cannot_be_carried_out_are_refused)
{
	char key[FRAG_KEY_MAX + 16] = "params/w/";
	char pattern[sizeof(((struct wire_place *)0)->pattern) + 13] = "params/";

	open_swapped();
	ck_assert_int_eq(engine_place(observer, "params/w/momentum", "host"), -ENOENT);
	ck_assert_int_eq(engine_place(observer, "params/x*/fp32", "host"), -ENOENT);
	ck_assert_int_eq(engine_place(observer, "params/frozen/*", "host"), -ENOENT);
	ck_assert_int_eq(engine_place(observer, "params/w/fp32", "device"), -EOPNOTSUPP);
	ck_assert_int_eq(engine_place(observer, "params/w/bf16", "swap"), -EOPNOTSUPP);
	ck_assert_int_eq(engine_place(observer, "params/w/fp32", "tape"), -EINVAL);
	memset(key + 9, 'k', FRAG_KEY_MAX + 1);
	ck_assert_int_eq(engine_place(observer, key, "host"), -ENAMETOOLONG);
	memset(pattern + 7, '*', sizeof(pattern) - 13);
	strcpy(pattern + sizeof(pattern) - 6, "/fp32");
	ck_assert_int_eq(engine_place(observer, pattern, "host"), -ENAMETOOLONG);
	ck_assert_int_eq(engine_place(observer, "w/fp32", "host"), -EINVAL);
	ck_assert_int_eq(engine_place(observer, "params/fp32", "host"), -EINVAL);
	observer->write.allowed = false;
	ck_assert_int_eq(engine_place(observer, "params/w/fp32", "host"), -EROFS);
	job_boundary(&job);
	expect_tier("fp32", STATE_SWAP);
	close_job();

	open_near(); /* with the trainers' own memory */
	observer->write.allowed = true;
	ck_assert_int_eq(engine_place(observer, "params/w/fp32", "swap"), -EOPNOTSUPP);
	ck_assert_int_eq(engine_place(observer, "params/w/fp32", "host"), 0);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_state_alloc(job_frag(&job, rank), 0, 0, "momentum",
						  FRAG_F32, NULL),
				 0);
	ck_assert_int_eq(engine_place(observer, "params/w/momentum", "swap"), -EOPNOTSUPP);
	close_job();
}
END_TEST

static struct transport *messages_of(uint32_t rank)
{
	return job_frag(&job, rank)->engine->messages.transport;
}

/* Rank 1 has no room for the order at first, and then there is no room for messages to it. */
START_TEST(a_rank_that_cannot_take_an_order_is_asked_again)
{
	open_swapped();
	faults_add(&(struct fault){ FAULT_SEND, WIRE_ACK, messages_of(1), .acked = true,
				    .result = -EAGAIN });
	faults_add(&(struct fault){ FAULT_SEND, WIRE_PLACE, .nth = WORLD + 1, .count = 3,
				    .result = -EAGAIN });
	order("params/w/exp_avg", "host");
	faults_clear();
	job_boundary(&job);
	expect_tier("exp_avg", STATE_HOST);
	close_job();
}
END_TEST

/* A rank answers PINGs, but no order. */
START_TEST(an_order_that_some_rank_has_taken_is_not_late)
{
	open_swapped();
	observer->timeout_ms = 3000;
	faults_add(&(struct fault){ FAULT_SEND, WIRE_ACK, messages_of(1), .count = MANY });
	order("params/w/exp_avg", "host");
	faults_clear();
	faults_add(&(struct fault){ FAULT_SEND, WIRE_PLACE, .count = MANY });
	ck_assert_int_eq(engine_place(observer, "params/w/exp_avg", "swap"), -ETIMEDOUT);
	faults_clear();
	close_job();
}
END_TEST

/* A state that the library allocated without telling an address can leave its memory. */
START_TEST(allocated_states_without_an_address_move)
{
	float values[NUMEL] = { 1, 2, 3 };
	struct engine_file *file;
	struct frag *f;

	open_swapped();
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		f = job_frag(&job, rank);
		ck_assert_int_eq(frag_state_alloc(f, 0, 0, "momentum", FRAG_F32, NULL), 0);
		ck_assert_int_eq(frag_state_put(f, 0, 0, "momentum", 0, values,
						frag_partition_numel(f, 0, 0), 0),
				 0);
	}
	order("params/w/momentum", "swap");
	job_boundary(&job);
	expect_tier("momentum", STATE_SWAP);
	file = open_state(ENGINE_PARAM, "momentum");
	get(file, 0, PART);
	ck_assert(!memcmp(got, values, PART));
	engine_file_close(file);
	order("params/w/momentum", "host");
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(frag_state_drop(job_frag(&job, rank), 0, 0, "momentum"), 0);
		ck_assert(!registry_of(rank)->placing.waiting);
		ck_assert_uint_eq(registry_of(rank)->placing.waiting_bytes, 0);
	}
	job_boundary(&job);
	close_job();
}
END_TEST

static void expect_place(const char *expected)
{
	CLEANUP(free) char *text = engine_text(observer, "place");
	char *line = strchr(text, '\n') + 1;

	ck_assert(!strncmp(text, "rank\twaiting\twaiting_bytes\t", 27));
	ck_assert_msg(!strncmp(line, expected, strlen(expected)), "%s", text);
}

/* The text of one rank is damaged, and of another the table of states does not come. */
START_TEST(a_rank_that_cannot_be_asked_is_a_row_with_the_reason)
{
	char expected[200];

	open_swapped();
	expect_read("exp_avg"); /* the tables are here now */
	order("params/w/exp_avg", "host");
	job_boundary(&job);
	observer->timeout_ms = 3000;
	faults_add(&(struct fault){ FAULT_SEND, WIRE_RANK_TEXT, messages_of(0), .poked = true,
				    .poke = 0x78787878,
				    .poke_at = sizeof(struct wire_rank_text) });
	faults_add(&(struct fault){ FAULT_SEND, WIRE_STATES, messages_of(2), .count = MANY });
	snprintf(expected, sizeof(expected),
		 "0\t-\t-\t-\t-\t-\tProtocol error\n"
		 "1\t0\t0\t1\t%llu\t0\tnone\n"
		 "2\t-\t-\t-\t-\t-\tConnection timed out\n",
		 (unsigned long long)frag_partition_numel(job_frag(&job, 1), 0, 0) * 4);
	expect_place(expected);
	faults_clear();
	close_job();
}
END_TEST

/* Texts that the lowest live rank gives. */
START_TEST(no_text_comes_of_a_silent_rank)
{
	static const char *const texts[] = { "leaves", "nccl" };
	static const char of_rank_1[] = "\nfragfs_rank_phase_seconds_count{rank=\"1\"";
	CLEANUP(free) char *text = NULL;

	open_swapped();
	observer->timeout_ms = 3000;
	faults_add(
		&(struct fault){ FAULT_SEND, WIRE_RANK_TEXT, messages_of(0), .count = MANY });
	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
		ck_assert_ptr_null(engine_text(observer, texts[i]));
		ck_assert_int_eq(errno, ETIMEDOUT);
	}
	/* Without rank 0's text.  If the machine stalls, rank 1 counts as silent, too. */
	for (int i = 0; i < 20 && !(text && strstr(text, of_rank_1)); i++) {
		free(text);
		text = engine_text(observer, "metrics");
	}
	ck_assert_ptr_nonnull(strstr(text, "\nfragfs_rank_step{rank=\"0\"}"));
	ck_assert_ptr_nonnull(strstr(text, of_rank_1));
	ck_assert_ptr_null(strstr(text, "\nfragfs_rank_phase_seconds_count{rank=\"0\""));
	faults_clear();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		peers_lose(observer, rank, -EIO, "the test says so");
	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
		ck_assert_ptr_null(engine_text(observer, texts[i]));
		ck_assert_int_eq(errno, EIO);
	}
	close_job();
}
END_TEST

/* A caller in a hurry tries again at each news, until it has the result. */
START_TEST(who_may_not_wait_asks_again)
{
	static const char *const texts[] = { "metrics", "place", "leaves", "nccl" };
	struct engine_hurry hurry = { 0 };
	unsigned tries = 0;
	int rc;

	open_swapped();
	engine_hurry(&hurry);
	while ((rc = engine_place(observer, "params/w/exp_avg", "host")) == -EAGAIN) {
		tries++;
		turn(NULL);
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_gt(tries, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(texts); i++) {
		char *text;

		hurry.since_ns = 0;
		for (tries = 0; !(text = engine_text(observer, texts[i])); tries++) {
			ck_assert_int_eq(errno, EAGAIN);
			turn(NULL);
		}
		ck_assert_uint_gt(tries, 0);
		free(text);
	}
	engine_hurry(NULL);
	job_boundary(&job);
	expect_tier("exp_avg", STATE_HOST);
	close_job();
}
END_TEST

/* Without memory at the n-th call of the mount or a rank, for each n.  A rank that has taken
 * the order moves its states whatever other ranks answer.
 */
START_TEST(without_memory_an_order_is_refused)
{
	unsigned n = 0, refused = 0, failed;
	int rc;

	open_swapped();
	do {
		scarce_begin(++n, 1);
		rc = engine_place(observer, "params/w/exp_avg", "host");
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
		refused += rc != 0;
		job_boundary(&job);
		if (!rc)
			expect_tier("exp_avg", STATE_HOST);
		expect_read("exp_avg");
		order("params/w/exp_avg", "swap");
		job_boundary(&job);
		expect_tier("exp_avg", STATE_SWAP);
		job_check(&job);
	} while (failed);
	ck_assert_uint_ge(refused, 5);
	close_job();
}
END_TEST

/* The order is replaced before the row is copied, or between the copy and the switch. */
START_TEST(a_row_that_is_not_to_move_any_more_stays)
{
	struct registry *r;
	struct registry_move move;
	uint32_t row = 0;

	open_swapped();
	r = registry_of(0);
	order("params/w/exp_avg", "host");
	ck_assert(registry_place_next(r, &row));
	ck_assert_int_eq(registry_place_copy(r, row, &move), 0);
	order("params/w/exp_avg", "swap");
	registry_place_switch(r, &move);
	registry_place_end(r, &move);
	ck_assert_int_eq(registry_place_copy(r, row, &move), -ENOENT);
	ck_assert_int_eq(tier_of(0, "exp_avg"), STATE_SWAP);
	ck_assert(!r->placing.waiting && !r->placing.failed && !r->placing.moved);
	expect_read("exp_avg");
	job_check(&job);
	close_job();
}
END_TEST

static int status_of_answer;

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	status_of_answer = answer->status;
	return false;
}

/* The row is made as long as a scattered operation needs, for the rank alone: a real state of
 * that length has 256 MiB.
 */
START_TEST(a_rank_refuses_an_operation_that_is_scattered_on_nvme)
{
	struct wire_compute m = { .transaction = { staged[0], staged[1] },
				  .dtype = FRAG_F32,
				  .code = WIRE_SET,
				  .naxes = 1,
				  .axes = { { COMPUTE_RUNS_MAX + 1, 1 << 10 | 1 } } };
	struct registry *r;
	uint64_t numel;

	open_swapped();
	r = registry_of(1);
	m.state = row_of(1, "exp_avg");
	m.epoch = r->states.epoch;
	m.end = m.axes[0].count * m.axes[0].stride;
	numel = r->states.rows[m.state].numel;
	r->states.rows[m.state].numel = m.end;
	status_of_answer = 1;
	pthread_mutex_lock(&observer->lock);
	ck_assert_int_eq(peers_call(observer, 1, WIRE_COMPUTE, &m, NULL, 0, on_answer, NULL, 0),
			 0);
	pthread_mutex_unlock(&observer->lock);
	while (status_of_answer == 1)
		turn(NULL);
	r->states.rows[m.state].numel = numel;
	ck_assert_int_eq(status_of_answer, -EOPNOTSUPP);
	ck_assert_uint_eq(job_frag(&job, 1)->engine->participant.count, 0);
	close_job();
}
END_TEST

/* A rank that has no memory for a state leaves the state where it is, logs that, and goes on.
 */
START_TEST(what_finds_no_room_stays)
{
	char expected[80];
	unsigned n = 0;
	bool failed;

	open_swapped();
	snprintf(expected, sizeof(expected), "0\t1\t%llu\t0\t0\t0\tnone\n",
		 (unsigned long long)frag_partition_numel(job_frag(&job, 0), 0, 0) * 4);
	do {
		order("params/w/fp32", "host");
		expect_place(expected);
		scarce_begin(++n, 1);
		ck_assert_int_eq(frag_safe_point(job_frag(&job, 0)), 0);
		scarce_end();
		failed = registry_of(0)->placing.failed;
		ck_assert_int_eq(tier_of(0, "fp32"), failed ? STATE_SWAP : STATE_HOST);
		ck_assert(!registry_of(0)->placing.waiting);
		if (failed)
			expect_place("0\t0\t0\t0\t0\t1\tCannot allocate memory\n");
		job_check(&job);
	} while (failed);
	ck_assert_uint_gt(n, 1);
	close_job();
}
END_TEST

/* From a device to NVMe a state goes through memory of the host. */
START_TEST(what_finds_no_room_to_pass_stays_on_its_device)
{
	unsigned n = 0, stayed = 0, lacked;
	bool failed;
	void *memory;

	strict = device_host;
	strict.free = free_strictly;
	open_places(&strict);
	do {
		order("params/w/fp32", "device");
		job_boundary(&job);
		expect_tier("fp32", STATE_DEVICE);
		order("params/w/fp32", "swap");
		memory = address_of(0, "fp32");
		freed = 0;
		scarce_begin(++n, 1);
		frag_safe_point(job_frag(&job, 0));
		lacked = scarce_end();
		failed = registry_of(0)->placing.failed;
		ck_assert(lacked || freed);
		if (!failed && !freed) /* the memory was left to the device */
			device_host.free(devices_port(registry_of(0)->devices), 0, memory);
		ck_assert(lacked || !failed);
		ck_assert_int_eq(tier_of(0, "fp32"), failed ? STATE_DEVICE : STATE_SWAP);
		stayed += failed;
		for (uint32_t rank = 1; rank < WORLD; rank++)
			ck_assert_int_eq(frag_safe_point(job_frag(&job, rank)), 0);
	} while (lacked);
	ck_assert_uint_ge(stayed, 2);
	expect_read("fp32");
	job_check(&job);
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("place");
	TCase *t = tcase_create("place");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, states_move_at_a_boundary_and_stay_what_they_are);
	tcase_add_loop_test(t, open_files_and_edits_go_through_moves, 0, 2);
	tcase_add_test(t, states_on_a_device_are_swept_in_memory_of_the_host);
	tcase_add_test(t, a_sweep_of_a_device_overwrites_nothing_that_was_put_meanwhile);
	tcase_add_test(t, a_sweep_goes_on_after_errors_of_a_device);
	tcase_add_loop_test(t, a_dropped_state_is_freed_behind_its_stream, 0, 3);
	tcase_add_test(t, a_device_without_room_takes_no_state);
	tcase_add_test(t, a_rank_whose_device_is_refused_takes_no_state);
	tcase_add_test(t, a_version_of_a_state_that_has_left_its_device_is_made_again);
	tcase_add_loop_test(t, a_view_that_waits_for_a_generation_finds_the_row_where_it_is, 0,
			    2);
	tcase_add_test(t, a_view_that_waits_for_two_rows_finds_them_in_one_tier);
	tcase_add_test(t, a_view_without_memory_for_its_row_ends);
	tcase_add_test(t, a_state_that_an_edit_computes_stays_until_the_edit_is_over);
	tcase_add_test(t, a_state_that_is_to_leave_memory_takes_no_scattered_operation);
	tcase_add_test(t, a_sweep_is_not_disturbed);
	tcase_add_test(t, an_order_that_is_replaced_is_known_to_be);
	tcase_add_test(t, orders_that_cannot_be_carried_out_are_refused);
	tcase_add_test(t, a_rank_that_cannot_take_an_order_is_asked_again);
	tcase_add_test(t, an_order_that_some_rank_has_taken_is_not_late);
	tcase_add_test(t, allocated_states_without_an_address_move);
	tcase_add_test(t, a_rank_that_cannot_be_asked_is_a_row_with_the_reason);
	tcase_add_test(t, no_text_comes_of_a_silent_rank);
	tcase_add_test(t, who_may_not_wait_asks_again);
	tcase_add_test(t, without_memory_an_order_is_refused);
	tcase_add_test(t, a_row_that_is_not_to_move_any_more_stays);
	tcase_add_test(t, a_rank_refuses_an_operation_that_is_scattered_on_nvme);
	tcase_add_test(t, what_finds_no_room_stays);
	tcase_add_test(t, what_finds_no_room_to_pass_stays_on_its_device);
	return run_suite(s, t);
}

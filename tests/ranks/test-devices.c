/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/engine.h"
#include "engine/rank/devices.h"
#include "engine/watch/rank-query.h"
#include "tests/ranks/job.h"
#include "tests/ranks/value-reading.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* States in memory of devices that only the port can touch: what readers see of them while
 * streams go on, and what the trainer's own calls do.  test-access has whole parameters in all
 * layouts.
 */

enum { NUMEL = 5000, WORLD = 2 };

static const struct job_param params[] = {
	{ "a", .ndim = 1, .shape = { 7000 } },
	{ "b", .ndim = 2, .shape = { 60, 50 } },
};
static const struct job_group group = { .stage = 2, .nparams = 2, .params = { 0, 1 } };
static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_KEEP },
				       { "grad", FRAG_F32, JOB_KEEP },
				       { "exp_avg", FRAG_F32, JOB_ALLOC } };

static struct job job;

static void open_job_with(struct frag_devices devices)
{
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   JOB_PARAMS(params),
					   .groups = &group,
					   .ngroups = 1,
					   JOB_KEYS(keys),
					   .on_device = true,
					   .devices = devices });
	job_boundary(&job);
}

static void open_job(unsigned timeout_ms)
{
	open_job_with((struct frag_devices){ .timeout_ms = timeout_ms });
}

static struct frag *rank0(void)
{
	return job_frag(&job, 0);
}

static struct device_host_stream *stream0(void)
{
	return job.ranks[0].stream;
}

/* ---- work of a trainer's stream ---- */

static float filled;

static void fill(void *arg)
{
	float *to = (float *)(void *)job_memory(&job, 0, 0, 0, "fp32")->bytes_at;

	(void)arg;
	for (int i = 0; i < NUMEL; i++)
		to[i] = filled;
}

static void enqueue_fill(float value)
{
	filled = value;
	ck_assert_int_eq(device_host_enqueue(stream0(), fill, NULL), 0);
}

/* ---- reads of another rank ---- */

static int get(uint64_t at, float *value)
{
	return frag_get_range(job_frag(&job, 1), 0, "fp32", at * sizeof(*value), value,
			      sizeof(*value));
}

static float seen(uint64_t at)
{
	float value;

	ck_assert_int_eq(get(at, &value), 0);
	return value;
}

/* The stream of rank 0 goes on when a reader has waited for so many turns. */
static unsigned turns_to_go;

static void turn(void *arg)
{
	(void)arg;
	if (turns_to_go && !--turns_to_go)
		device_host_go(stream0());
	job_turn(&job);
}

START_TEST(readers_see_what_was_enqueued_before_a_step_ended)
{
	open_job(0);
	enqueue_fill(1);
	job_boundary(&job);
	ck_assert_float_eq(seen(3), 1);
	device_host_hold(stream0());
	frag_step_begin(rank0());
	enqueue_fill(2);
	frag_step_end(rank0());
	turns_to_go = 50;
	job_frag(&job, 1)->engine->thread.yield = turn;
	ck_assert_float_eq(seen(NUMEL - 1), 2);
	ck_assert_uint_eq(turns_to_go, 0);
	job_close(&job);
}
END_TEST

START_TEST(readers_do_not_wait_for_what_is_enqueued_later)
{
	open_job(0);
	enqueue_fill(1);
	frag_step_begin(rank0());
	frag_step_end(rank0());
	device_host_hold(stream0());
	enqueue_fill(2);
	ck_assert_float_eq(seen(0), 1);
	device_host_go(stream0());
	job_close(&job);
}
END_TEST

START_TEST(a_stream_that_does_not_go_on_is_no_reader_that_hangs)
{
	float value;

	open_job(200);
	device_host_hold(stream0());
	enqueue_fill(1);
	frag_safe_point(rank0());
	ck_assert_int_eq(get(0, &value), -ETIMEDOUT);
	ck_assert_uint_gt(job_frag(&job, 0)->engine->registry.control->device_errors, 0);
	device_host_go(stream0());
	frag_safe_point(rank0());
	ck_assert_float_eq(seen(0), 1);
	job_close(&job);
}
END_TEST

/* ---- open files ---- */

static struct engine_file *open_file(const char *key)
{
	struct engine_address a = { .kind = ENGINE_PARAM };
	struct engine_file *file;
	uint64_t bytes;

	strcpy(a.key, key);
	ck_assert_int_eq(engine_file_open(job_frag(&job, 1)->engine, &a, &file, &bytes), 0);
	return file;
}

static void begin_read(struct value_reading *r, struct engine_file *file, uint64_t at)
{
	*r = (struct value_reading){ .read = { .file = file,
					       .offset = at * sizeof(float),
					       .size = sizeof(float),
					       .done = value_read,
					       .owner = r } };
	engine_read(job_frag(&job, 1)->engine, &r->read);
}

static void end_read(struct value_reading *r)
{
	for (uint64_t end = monotonic_ms() + JOB_WAIT_MS; !r->ended;) {
		ck_assert_uint_lt(monotonic_ms(), end);
		turn(NULL);
	}
}

static int64_t read_value(struct engine_file *file, uint64_t at, float *value)
{
	struct value_reading r;

	begin_read(&r, file, at);
	end_read(&r);
	*value = r.value;
	return r.result;
}

static void expect_value(struct engine_file *file, uint64_t at, float value)
{
	float found;

	ck_assert_int_eq(read_value(file, at, &found), sizeof(found));
	ck_assert_float_eq(found, value);
}

/* All ranks make a step; rank 0's stream fills its state with value in it. */
static void step(float value)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		frag_step_begin(job_frag(&job, rank));
	enqueue_fill(value);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		frag_step_end(job_frag(&job, rank));
}

static const struct keep_case {
	uint64_t keep, keep_host;
	bool is_enough;
} keeps[] = {
	{ 0, 0, true },       { NUMEL * 4, 0, true },       { NUMEL * 4 - 1, 0, false },
	{ 1, 1 << 20, true }, { NUMEL * 4, 1 << 20, true },
};

START_TEST(open_files_show_what_was_preserved)
{
	struct engine_file *file, *other;
	float value;

	open_job_with((struct frag_devices){ .keep = keeps[_i].keep,
					     .keep_host = keeps[_i].keep_host });
	step(1);
	file = open_file("fp32");
	expect_value(file, 0, 1);
	device_host_hold(stream0());
	step(2);
	turns_to_go = 50;
	if (keeps[_i].is_enough) {
		expect_value(file, 0, 1);
		expect_value(file, NUMEL - 1, 1);
		ck_assert_uint_eq(turns_to_go, 0);
	} else {
		ck_assert_int_eq(read_value(file, 0, &value), -ESTALE);
	}
	other = open_file("fp32");
	expect_value(other, 7, 2);
	engine_file_close(other);
	step(3);
	if (keeps[_i].is_enough)
		expect_value(file, 7, 1);
	engine_file_close(file);
	other = open_file("fp32");
	expect_value(other, 7, 3);
	step(4);
	if (keeps[_i].is_enough)
		expect_value(other, 7, 3);
	engine_file_close(other);
	job_close(&job);
}
END_TEST

/* Each open file needs a MiB of the host's memory, of which there is one. */
START_TEST(the_host_has_room_for_so_many_open_files)
{
	struct engine_file *files[2];
	int shown = 0, gone = 0;
	float value;

	open_job_with((struct frag_devices){ .keep = 1, .keep_host = 1 << 20 });
	step(1);
	for (int i = 0; i < 2; i++) {
		files[i] = open_file("fp32");
		expect_value(files[i], 0, 1);
	}
	step(2);
	for (int i = 0; i < 2; i++) {
		int64_t rc = read_value(files[i], 0, &value);

		shown += rc == sizeof(value);
		gone += rc == -ESTALE;
		engine_file_close(files[i]);
	}
	ck_assert_int_eq(shown, 1);
	ck_assert_int_eq(gone, 1);
	job_close(&job);
}
END_TEST

START_TEST(what_changed_while_it_was_copied_is_looked_for_again)
{
	struct engine_file *file;
	struct value_reading r;

	open_job(0);
	step(1);
	file = open_file("fp32");
	expect_value(file, 0, 1);
	device_host_hold(stream0());
	job_boundary(&job); /* makes a mark, for which a live copy waits */
	begin_read(&r, file, 3);
	for (int i = 0; i < 50; i++)
		turn(NULL);
	ck_assert(!r.ended);
	step(2);
	device_host_go(stream0());
	end_read(&r);
	ck_assert_int_eq(r.result, sizeof(r.value));
	ck_assert_float_eq(r.value, 1);
	engine_file_close(file);
	job_close(&job);
}
END_TEST

/* Lets rank 0's stream go on a while after its trainer has enqueued the copies that preserve
 * the bytes of open files.
 */
static void *go_late(void *arg)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	const struct control_page *c = rank0()->engine->registry.control;

	for (uint64_t end = monotonic_ms() + JOB_WAIT_MS; !atomic_load(&c->kept_bytes);) {
		ck_assert_uint_lt(monotonic_ms(), end);
		nanosleep(&pause, NULL);
	}
	nanosleep(&pause, NULL);
	device_host_go(stream0());
	return arg;
}

START_TEST(an_edit_waits_until_what_open_files_show_is_preserved)
{
	struct engine_file *file, *other;
	float value[7000];
	pthread_t thread;

	for (size_t i = 0; i < ARRAY_SIZE(value); i++)
		value[i] = 9;
	open_job(0);
	step(1);
	file = open_file("fp32");
	expect_value(file, 0, 1);
	ck_assert_int_eq(frag_set(job_frag(&job, 1), 0, "fp32", value, sizeof(value)), 0);
	device_host_hold(stream0());
	ck_assert_int_eq(thread_start(&thread, go_late, NULL), 0);
	job_boundary(&job);
	pthread_join(thread, NULL);
	expect_value(file, 7, 1);
	engine_file_close(file);
	other = open_file("fp32");
	expect_value(other, 7, 9);
	engine_file_close(other);
	job_close(&job);
}
END_TEST

START_TEST(what_is_dropped_is_kept_for_open_files)
{
	struct engine_file *file;

	open_job(0);
	step(1);
	file = open_file("fp32");
	expect_value(file, 0, 1);
	ck_assert_int_eq(frag_state_drop(rank0(), 0, 0, "fp32"), 0);
	expect_value(file, 5, 1);
	engine_file_close(file);
	job_close(&job);
}
END_TEST

START_TEST(gradients_are_kept_when_they_go)
{
	struct engine_file *file;
	float *grad;

	open_job(0);
	grad = (float *)(void *)job_memory(&job, 0, 0, 0, "grad")->bytes_at;
	grad[4] = 5;
	job_grads_valid(&job);
	file = open_file("grad");
	expect_value(file, 4, 5);
	job_grads_gone(&job);
	grad[4] = 6;
	expect_value(file, 4, 5);
	engine_file_close(file);
	job_close(&job);
}
END_TEST

/* ---- the trainer's own calls ---- */

START_TEST(the_trainers_calls_are_in_order_with_its_stream)
{
	float value[NUMEL], *view;
	struct frag_fragment own;
	uint64_t bytes;

	open_job(0);
	ck_assert_int_eq(frag_fragment(rank0(), 0, &own), 0);
	bytes = own.numel * sizeof(*value);
	enqueue_fill(7);
	ck_assert_int_eq(frag_local_get(rank0(), 0, "fp32", value, bytes), 0);
	ck_assert_float_eq(value[17], 7);
	value[17] = 9;
	ck_assert_int_eq(frag_local_set(rank0(), 0, "fp32", value, bytes), 0);
	ck_assert_float_eq(seen(17), 9);
	ck_assert_int_eq(frag_update_lp(rank0(), 0), 0);
	ck_assert_uint_eq(((uint16_t *)(void *)job.ranks[0].memory[0].bytes_at)[17], 0x4110);
	ck_assert_int_eq(frag_state_clear(rank0(), 0, 0, "fp32"), 0);
	ck_assert_float_eq(seen(17), 0);
	ck_assert_int_eq(frag_local_view(rank0(), 0, "fp32", (void **)&view, NULL), 0);
	ck_assert_ptr_eq(view, job_memory(&job, 0, 0, 0, "fp32")->hidden.memory);
	job_close(&job);
}
END_TEST

START_TEST(other_ranks_read_what_is_published_on_a_device)
{
	struct hidden h;
	float value = 0;

	open_job(0);
	hidden_new(&h, devices_port(rank0()->engine->registry.devices), 0, 2 * sizeof(value));
	((float *)h.at)[1] = 8;
	ck_assert_int_eq(frag_publish(rank0(), "word", h.memory, 2 * sizeof(value)), 0);
	ck_assert_int_eq(frag_peer_read(job_frag(&job, 1), 0, "word", sizeof(value), &value,
					sizeof(value)),
			 0);
	ck_assert_float_eq(value, 8);
	h.device = NULL; /* the job has closed the device */
	job_close(&job);
	hidden_free(&h);
}
END_TEST

START_TEST(what_moves_to_an_arena_leaves_the_device)
{
	const struct frag_arena a = { .size = sizeof(a), .bytes = 1 << 16 };
	const struct control_page *c;
	const struct job_memory *lp;
	uint64_t block;
	void *memory;

	open_job(0);
	c = rank0()->engine->registry.control;
	lp = &job.ranks[0].memory[0];
	ck_assert_int_eq(frag_arena_open(rank0(), &a), 0);
	ck_assert_int_eq(frag_arena_alloc(rank0(), lp->bytes, &block), 0);
	ck_assert_int_eq(frag_arena_assign(rank0(), 0, 0, block, 0), 0);
	ck_assert_int_eq(frag_arena_find(rank0(), 0, 0, NULL, &memory), 0);
	ck_assert_mem_eq(memory, lp->bytes_at, lp->bytes);
	ck_assert_uint_eq(c->bytes_device, 2 * NUMEL * 4 + 10000 * 2 - lp->bytes);
	job_close(&job);
}
END_TEST

/* A port that counts pinned memory, and can refuse to pin. */
static unsigned pinned, pins_refused;

static int pin_counted(struct device *d, void *memory, uint64_t size)
{
	int rc = pins_refused ? -ENOMEM : device_host.pin(d, memory, size);

	ck_assert_uint_eq(size % 4096, 0);
	pinned += !rc;
	return rc;
}

static void unpin_counted(struct device *d, void *memory)
{
	unsigned char resident;

	ck_assert_int_eq(mincore(memory, 4096, &resident), 0); /* the memory is still mapped */
	pinned--;
	device_host.unpin(d, memory);
}

static void expect_pinned_text(const char *line)
{
	CLEANUP(free) char *text = rank_query_text(job_frag(&job, 1)->engine, 0, "pinned");

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(strstr(text, line) != NULL, "%s", text);
}

START_TEST(buffers_of_states_on_nvme_are_pinned_while_they_are_there)
{
	static const struct job_key swapped[] = { { "fp32", FRAG_F32, JOB_KEEP },
						  { "exp_avg", FRAG_F32, JOB_SWAP } };
	static const struct frag_swept sweep = { "exp_avg", 0 };
	struct device_ops port = device_host;
	struct frag_devices c = { sizeof(c), .number = 1 };
	struct frag_sweep *walk;
	struct device_where where;
	struct devices *d;
	uint64_t first, numel;
	void *memory;

	port.pin = pin_counted;
	port.unpin = unpin_counted;
	pins_refused = _i;
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   JOB_PARAMS(params),
					   .groups = &group,
					   .ngroups = 1,
					   JOB_KEYS(swapped),
					   .on_device = true,
					   .device_ops = &port });
	job_boundary(&job);
	ck_assert_uint_eq(pinned, pins_refused ? 0 : WORLD);
	expect_pinned_text(pins_refused ? "\npinned_by_devices no\n"
					: "\npinned_by_devices yes\n");
	/* the second call pins nothing again */
	ck_assert_int_eq(api_devices_over(rank0(), &c, &port), 0);
	ck_assert_uint_eq(pinned, pins_refused ? 0 : WORLD);
	d = rank0()->engine->registry.devices;
	ck_assert_int_eq(frag_sweep_begin(rank0(), 0, 0, &sweep, 1, &walk), 0);
	ck_assert_int_eq(frag_sweep_next(walk, &first, &numel, &memory), 1);
	ck_assert_int_eq(device_host.where(devices_port(d), memory, &where), 0);
	ck_assert(where.number == DEVICE_NONE && where.pinned == !pins_refused);
	frag_sweep_end(walk);
	job_close(&job);
	ck_assert_uint_eq(pinned, 0);
}
END_TEST

START_TEST(what_lies_on_a_device_is_counted)
{
	const struct control_page *c;

	open_job(0);
	c = rank0()->engine->registry.control;
	ck_assert_uint_eq(c->bytes_device, 2 * NUMEL * 4 + 10000 * 2);
	ck_assert_uint_eq(c->bytes_host, NUMEL * 4);
	seen(0);
	ck_assert_uint_eq(c->device_from_bytes, 4);
	ck_assert_int_eq(frag_state_drop(rank0(), 0, 0, "fp32"), 0);
	ck_assert_uint_eq(c->bytes_device, NUMEL * 4 + 10000 * 2);
	job_close(&job);
}
END_TEST

static int open_nothing(struct device **d, const struct device_options *options)
{
	return -ENODEV;
}

START_TEST(wrong_calls_are_refused)
{
	static const struct device_ops none = { .open = open_nothing };
	struct frag_swept sweeps[] = { { "fp32", 0 } };
	struct frag_devices c = { sizeof(c), .number = 0 };
	struct device *port;
	struct frag *f;
	struct frag_sweep *sweep;
	struct hidden h;
	float value = 0;

	open_job(0);
	f = job_frag(&job, 1);
	port = devices_port(f->engine->registry.devices);
	ck_assert_int_eq(frag_sweep_begin(f, 0, 0, sweeps, 1, &sweep), -EOPNOTSUPP);
	hidden_new(&h, port, 0, NUMEL * 4);
	ck_assert_int_eq(frag_state_keep(f, 0, 0, "m", FRAG_F32, h.memory), -EINVAL);
	ck_assert_int_eq(frag_fragment_keep(f, 0, "m", FRAG_F32, h.memory), -EINVAL);
	ck_assert_int_eq(api_devices_over(f, &c, &device_host), 0);
	ck_assert_int_eq(frag_fragment_keep(f, 0, "m", FRAG_F32, h.memory), 0);
	ck_assert_int_eq(frag_fragment_keep(f, 1, "m", FRAG_F32, &value), -EINVAL);
	c.number = DEVICE_HOST_DEVICES;
	ck_assert_int_eq(api_devices_over(f, &c, &device_host), -EINVAL);
	ck_assert_int_eq(frag_devices(f, NULL), -EINVAL);
	ck_assert_int_eq(frag_devices(NULL, &c), -EINVAL);
	ck_assert_int_eq(frag_state_drop(f, 0, 0, "m"), 0);
	hidden_free(&h);
	job_close(&job);

	job_open(&job, &(struct job_spec){ .world = 1, JOB_PARAMS(params) });
	c.number = 0;
	ck_assert_int_eq(api_devices_over(rank0(), &c, &none), -ENODEV);
	c.keep_host = UINT64_C(2) << 30;
	ck_assert_int_eq(api_devices_over(rank0(), &c, &device_host), -EINVAL);
	c.keep_host = 1; /* less than a piece */
	ck_assert_int_eq(api_devices_over(rank0(), &c, &device_host), -EINVAL);
	ck_assert_ptr_null(rank0()->engine->registry.devices);
	ck_assert_int_eq(frag_safe_point(rank0()), 0);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("devices");
	TCase *c = tcase_create("devices");

	tcase_add_test(c, readers_see_what_was_enqueued_before_a_step_ended);
	tcase_add_test(c, readers_do_not_wait_for_what_is_enqueued_later);
	tcase_add_test(c, a_stream_that_does_not_go_on_is_no_reader_that_hangs);
	tcase_add_loop_test(c, open_files_show_what_was_preserved, 0, ARRAY_SIZE(keeps));
	tcase_add_test(c, the_host_has_room_for_so_many_open_files);
	tcase_add_test(c, what_changed_while_it_was_copied_is_looked_for_again);
	tcase_add_test(c, an_edit_waits_until_what_open_files_show_is_preserved);
	tcase_add_test(c, what_is_dropped_is_kept_for_open_files);
	tcase_add_test(c, gradients_are_kept_when_they_go);
	tcase_add_test(c, the_trainers_calls_are_in_order_with_its_stream);
	tcase_add_test(c, other_ranks_read_what_is_published_on_a_device);
	tcase_add_test(c, what_moves_to_an_arena_leaves_the_device);
	tcase_add_loop_test(c, buffers_of_states_on_nvme_are_pinned_while_they_are_there, 0, 2);
	tcase_add_test(c, what_lies_on_a_device_is_counted);
	tcase_add_test(c, wrong_calls_are_refused);
	tcase_set_timeout(c, 60);
	return run_suite(s, c);
}

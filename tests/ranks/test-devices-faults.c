/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/engine.h"
#include "engine/rank/devices-internal.h"
#include "engine/read/view-reader.h"
#include "engine/rounds/send-source.h"
#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"
#include "tests/ranks/value-reading.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A port of devices whose calls fail.  Requests of states on a device meanwhile end with an
 * error or succeed all the same, the trainer goes on, and afterwards all works.
 */

enum { NUMEL = 6000, WORLD = 2 };

static const struct job_param params[] = { { "a", .ndim = 1, .shape = { 2 * NUMEL } } };
static const struct job_group group = { .stage = 2, .nparams = 1, .params = { 0 } };
static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_KEEP } };

static struct job job;

/* ---- the port ---- */

/* The call that fails, "" for none, and its result. */
static struct {
	const char *call;
	int status;
} refusal = { "", 0 };

static void refuse(const char *call, int status)
{
	refusal.call = call;
	refusal.status = status;
}

static bool refused(const char *call)
{
	return !strcmp(refusal.call, call);
}

static int where(struct device *d, const void *memory, struct device_where *found)
{
	return refused("where") ? refusal.status : device_host.where(d, memory, found);
}

static int pin(struct device *d, void *memory, uint64_t size)
{
	return refused("pin") ? refusal.status : device_host.pin(d, memory, size);
}

static int use(struct device *d, int number)
{
	return refused("use") ? refusal.status : device_host.use(d, number);
}

static int mark(struct device *d, int number, void *stream, struct device_event **event)
{
	return refused("mark") ? refusal.status : device_host.mark(d, number, stream, event);
}

static int preserve(struct device *d, int number, void *stream, const void *from, uint64_t size,
		    void *to, struct device_kept **kept)
{
	if (refused(to ? "preserve on the host" : "preserve"))
		return refusal.status;
	return device_host.preserve(d, number, stream, from, size, to, kept);
}

static void submit(struct device *d, struct device_io *io)
{
	if (refused("submit"))
		io->done(io, refusal.status);
	else
		device_host.submit(d, io);
}

static const struct device_ops *port(void)
{
	static struct device_ops ops;

	ops = device_host;
	ops.where = where;
	ops.pin = pin;
	ops.use = use;
	ops.mark = mark;
	ops.preserve = preserve;
	ops.submit = submit;
	return &ops;
}

/* ---- a job on the port ---- */

static struct frag *rank(uint32_t number)
{
	return job_frag(&job, number);
}

static void open_job(struct frag_devices devices)
{
	refuse("", 0);
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   JOB_PARAMS(params),
					   .groups = &group,
					   .ngroups = 1,
					   JOB_KEYS(keys),
					   .on_device = true,
					   .device_ops = port(),
					   .devices = devices });
	job_boundary(&job);
}

static float *state(void)
{
	return (float *)(void *)job_memory(&job, 0, 0, 0, "fp32")->bytes_at;
}

static int get(float *value)
{
	return frag_get_range(rank(1), 0, "fp32", 0, value, sizeof(*value));
}

static void expect(float expected)
{
	float value = 0;

	ck_assert_int_eq(get(&value), 0);
	ck_assert_float_eq(value, expected);
}

static void step(float value)
{
	for (uint32_t i = 0; i < WORLD; i++)
		frag_step_begin(rank(i));
	state()[0] = value;
	for (uint32_t i = 0; i < WORLD; i++)
		frag_step_end(rank(i));
}

/* ---- open files ---- */

static int open_file(struct engine_file **file)
{
	struct engine_address a = { .kind = ENGINE_PARAM, .key = "fp32" };
	uint64_t bytes;

	return engine_file_open(rank(1)->engine, &a, file, &bytes);
}

static bool nothing_is_copied(void)
{
	struct devices *d = rank(0)->engine->registry.devices;
	bool nothing;

	pthread_mutex_lock(&d->lock);
	nothing = LIST_EMPTY(&d->copies);
	pthread_mutex_unlock(&d->lock);
	return nothing;
}

/* Turns, and sets the clock ahead unless a copy is under way. */
static void turn(void)
{
	job_turn(&job);
	if (nothing_is_copied())
		scarce_skip_ms(20);
}

/* Returns the bytes, or -errno. */
static int64_t read_file(struct engine_file *file, float *value)
{
	struct value_reading r = { .read = { .file = file,
					     .size = sizeof(*value),
					     .done = value_read,
					     .owner = &r } };
	uint64_t end = monotonic_ms() + JOB_WAIT_MS;

	engine_read(rank(1)->engine, &r.read);
	while (!r.ended && monotonic_ms() < end)
		turn();
	*value = r.value;
	return r.ended ? r.result : -ETIME;
}

static struct engine_file *open_and_read(float expected)
{
	struct engine_file *file;
	float value;

	ck_assert_int_eq(open_file(&file), 0);
	ck_assert_int_eq(read_file(file, &value), sizeof(value));
	ck_assert_float_eq(value, expected);
	return file;
}

/* ---- refusals ---- */

START_TEST(memory_of_which_the_device_says_nothing_is_not_kept)
{
	struct frag *f;
	float *memory = malloc(NUMEL * sizeof(*memory));

	open_job((struct frag_devices){ 0 });
	f = rank(0);
	refuse("where", -EIO);
	ck_assert_int_eq(frag_state_keep(f, 0, 0, "m", FRAG_F32, memory), -EIO);
	ck_assert_int_eq(frag_fragment_keep(f, 0, "m", FRAG_F32, memory), -EIO);
	ck_assert_int_eq(frag_publish(f, "word", memory, 8), -EIO);
	refuse("", 0);
	ck_assert_int_eq(frag_local_get(f, 0, "m", memory, NUMEL * 4), -ENOENT);
	ck_assert_int_eq(frag_state_keep(f, 0, 0, "m", FRAG_F32, memory), 0);
	ck_assert_int_eq(frag_state_drop(f, 0, 0, "m"), 0);
	job_close(&job);
	free(memory);
}
END_TEST

START_TEST(without_what_it_needs_no_device_is_used)
{
	struct frag_devices c = { sizeof(c), .keep_host = 1 << 20 };
	unsigned n = 0, failed;
	struct frag *f;
	int rc;

	job_open(&job, &(struct job_spec){ .world = 1, JOB_PARAMS(params) });
	f = rank(0);
	refuse("pin", -ENOMEM);
	ck_assert_int_eq(api_devices_over(f, &c, port()), -ENOMEM);
	ck_assert_ptr_null(f->engine->registry.devices);
	refuse("use", -ENOMEM);
	ck_assert_int_eq(api_devices_over(f, &c, port()), -ENOMEM);
	refuse("", 0);
	ck_assert_int_eq(api_devices_over(f, &c, port()), 0);
	job_close(&job);
	do {
		job_open(&job, &(struct job_spec){ .world = 1, JOB_PARAMS(params) });
		scarce_begin(++n, 1);
		rc = api_devices_over(rank(0), &c, port());
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && (rc == -ENOMEM || rc == -EAGAIN)), "%u: %d", n,
			      rc);
		job_close(&job);
	} while (failed);
	ck_assert_uint_gt(n, 2);
}
END_TEST

/* While the trainer captures its stream at a boundary, readers get an error, and so do the
 * trainer's own calls; then all goes on.
 */
START_TEST(a_stream_that_is_captured_is_read_after_the_next_boundary)
{
	float value, own[NUMEL];

	open_job((struct frag_devices){ 0 });
	step(1);
	expect(1);
	refuse("mark", -EBUSY);
	step(2);
	ck_assert_int_eq(get(&value), -EBUSY);
	ck_assert_int_eq(frag_local_get(rank(0), 0, "fp32", own, sizeof(own)), -EBUSY);
	ck_assert_int_eq(frag_local_set(rank(0), 0, "fp32", own, sizeof(own)), -EBUSY);
	ck_assert_int_eq(frag_update_lp(rank(0), 0), -EBUSY);
	ck_assert_int_eq(frag_state_clear(rank(0), 0, 0, "fp32"), -EBUSY);
	refuse("", 0);
	job_boundary(&job);
	expect(2);
	job_close(&job);
}
END_TEST

START_TEST(copies_that_fail_are_errors_of_who_asked)
{
	float value, own[NUMEL];
	struct engine_file *file;

	open_job((struct frag_devices){ 0 });
	step(1);
	ck_assert_int_eq(open_file(&file), 0);
	refuse("submit", -EIO);
	ck_assert_int_eq(get(&value), -EIO);
	ck_assert_int_eq(read_file(file, &value), -EIO);
	ck_assert_int_eq(frag_local_get(rank(0), 0, "fp32", own, sizeof(own)), -EIO);
	ck_assert_int_eq(frag_update_lp(rank(0), 0), -EIO);
	ck_assert_int_eq(frag_state_clear(rank(0), 0, 0, "fp32"), -EIO);
	refuse("", 0);
	expect(1);
	engine_file_close(file);
	job_close(&job);
}
END_TEST

/* The view ends; the job and other views go on. */
START_TEST(what_cannot_be_preserved_ends_the_view_alone)
{
	static const struct {
		const char *call;
		int status;
	} cases[] = { { "preserve", -EIO },
		      { "preserve", -EBUSY },
		      { "preserve on the host", -EIO },
		      { "preserve on the host", -ENOMEM } };
	bool host = !strcmp(cases[_i].call, "preserve on the host");
	struct engine_file *file;
	float value;

	open_job((struct frag_devices){ .keep = host ? 1 : 0, .keep_host = 1 << 20 });
	step(1);
	file = open_and_read(1);
	refuse(cases[_i].call, cases[_i].status);
	step(2);
	ck_assert_int_eq(read_file(file, &value), -ESTALE);
	engine_file_close(file);
	refuse("", 0);
	file = open_and_read(2);
	step(3);
	ck_assert_int_eq(read_file(file, &value), sizeof(value));
	ck_assert_float_eq(value, 2);
	engine_file_close(file);
	expect(3);
	job_close(&job);
}
END_TEST

static void wait_until(bool (*is_so)(struct devices *d))
{
	struct devices *d = rank(0)->engine->registry.devices;
	bool so = false;

	for (uint64_t end = monotonic_ms() + JOB_WAIT_MS; !so;) {
		ck_assert_uint_lt(monotonic_ms(), end);
		job_turn(&job);
		pthread_mutex_lock(&d->lock);
		so = is_so(d);
		pthread_mutex_unlock(&d->lock);
	}
}

static bool host_is_lost(struct devices *d)
{
	return d->host_lost;
}

/* The stream may write to the memory for any time, so it is neither lent to others nor freed at
 * the end.
 */
START_TEST(memory_of_the_host_that_a_stuck_stream_may_write_is_left)
{
	struct engine_file *file;
	float value;

	open_job((struct frag_devices){ .keep = 1, .keep_host = 1 << 20, .timeout_ms = 50 });
	step(1);
	file = open_and_read(1);
	device_host_hold(job.ranks[0].stream);
	step(2);
	engine_file_close(file);
	wait_until(host_is_lost);
	device_host_go(job.ranks[0].stream);
	job_boundary(&job);
	file = open_and_read(2);
	step(3);
	ck_assert_int_eq(read_file(file, &value), -ESTALE); /* the room is gone */
	engine_file_close(file);
	job_close(&job);
}
END_TEST

/* ---- a machine without memory ---- */

static int try_all(void)
{
	static float own[NUMEL];
	struct frag *f = rank(0);
	int rc = frag_local_get(f, 0, "fp32", own, sizeof(own));

	if (!rc)
		rc = frag_local_set(f, 0, "fp32", own, sizeof(own));
	if (!rc)
		rc = frag_update_lp(f, 0);
	if (!rc)
		rc = frag_update_hp(f, 0);
	return rc;
}

START_TEST(the_trainers_calls_say_what_is_wanting)
{
	unsigned n = 0, failed;
	int rc;

	open_job((struct frag_devices){ 0 });
	do {
		scarce_begin(++n, _i ? 7 : 1);
		rc = try_all();
		failed = scarce_end();
		ck_assert_msg(failed ? !rc || rc == -ENOMEM : !rc, "%u: %d", n, rc);
		ck_assert_int_eq(try_all(), 0);
	} while (failed);
	ck_assert_uint_gt(n, 10);
	job_close(&job);
}
END_TEST

static bool nothing_is_kept(struct devices *d)
{
	struct pinned_figures host;
	struct device_figures port;

	pinned_figures(d->host, &host);
	d->ops->figures(d->device, &port);
	return !host.lent && !port.kept;
}

static bool is_need(int64_t rc)
{
	return rc == -ENOMEM || rc == -EAGAIN || rc == -ESTALE || rc == -EIO ||
	       rc == -ETIMEDOUT;
}

/* Opens, reads and closes a view, over a step. */
static int64_t show(float *value)
{
	struct engine_file *file;
	int64_t rc = open_file(&file);

	if (rc)
		return rc;
	rc = read_file(file, value);
	if (rc > 0) {
		step(*value + 1);
		rc = read_file(file, value);
	}
	engine_file_close(file);
	return rc;
}

START_TEST(open_files_show_one_generation_or_end)
{
	unsigned n = 0, failed;
	float value = 0;
	int64_t rc;

	open_job((struct frag_devices){
		.keep = _i ? 1 : 0, .keep_host = 1 << 20, .timeout_ms = 3600000 });
	step(0);
	do {
		float before = state()[0];

		scarce_begin(++n, 1);
		rc = show(&value);
		failed = scarce_end();
		ck_assert_msg(rc == sizeof(value) || (failed && is_need(rc)), "%u: %lld", n,
			      (long long)rc);
		if (rc > 0)
			ck_assert_float_eq(value, before);
		job_boundary(&job);
		expect(state()[0]);
		wait_until(nothing_is_kept);
	} while (failed);
	ck_assert_uint_gt(n, 10);
	job_close(&job);
}
END_TEST

/* No device sends bytes that are kept in the host's memory. */
START_TEST(what_is_kept_on_the_host_is_not_sent)
{
	struct wire_piece piece = { .size = sizeof(float) };
	struct engine_file *file;
	struct engine *e;
	struct plan plan;
	struct send_source *s;
	uint64_t id[2];
	float value;
	void *from;

	open_job((struct frag_devices){ .keep = 1, .keep_host = 4 << 20 });
	step(1);
	ck_assert_int_eq(open_file(&file), 0);
	ck_assert_int_eq(read_file(file, &value), sizeof(value));
	step(2);
	ck_assert_int_eq(view_reader_plan(file, 0, piece.size, &plan), 0);
	e = rank(plan.pieces[0].rank)->engine;
	piece.state = plan.pieces[0].row;
	piece.offset = plan.pieces[0].offset;
	piece.epoch = file->view.pieces[plan.pieces[0].view - 1].epoch;
	s = send_source_new(1, true);
	view_reader_id(file, plan.pieces[0].view, id);
	ck_assert_int_eq(send_source_from_view(e, s, id, &piece, &from), -ENOSPC);
	ck_assert_ptr_nonnull(from);
	ck_assert_int_eq(
		send_source_from(e, s, 0, piece.state, piece.offset, piece.size, &from),
		-ENOSPC);
	send_source_free(e, s);
	engine_file_close(file);
	job_close(&job);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("devices-faults");
	TCase *c = tcase_create("devices-faults");

	tcase_add_test(c, memory_of_which_the_device_says_nothing_is_not_kept);
	tcase_add_test(c, without_what_it_needs_no_device_is_used);
	tcase_add_test(c, a_stream_that_is_captured_is_read_after_the_next_boundary);
	tcase_add_test(c, copies_that_fail_are_errors_of_who_asked);
	tcase_add_loop_test(c, what_cannot_be_preserved_ends_the_view_alone, 0, 4);
	tcase_add_test(c, memory_of_the_host_that_a_stuck_stream_may_write_is_left);
	tcase_add_loop_test(c, the_trainers_calls_say_what_is_wanting, 0, 2);
	tcase_add_loop_test(c, open_files_show_one_generation_or_end, 0, 2);
	tcase_add_test(c, what_is_kept_on_the_host_is_not_sent);
	tcase_set_timeout(c, 60);
	return run_suite(s, c);
}

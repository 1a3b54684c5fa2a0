/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "tests/cuda/device-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* TEST_SEED: of ranges and values. */

enum {
	CHUNK = DEVICE_CHUNK_MIN,
	SIZE = 10 * CHUNK + 123,
	PAGE = 4096,
	JOBS = 32,
	KEEP = 4 * CHUNK
};

const struct trainer *here;
struct device *device;
struct device_options device_test_options = {
	.chunk = CHUNK, .chunks = 2, .keep = KEEP, .wait_ms = 60000, .stuck_ms = 60000
};

/* ---- requests ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended;

static void on_done(struct device_io *io, int result)
{
	struct job *j = container_of(io, struct job, io);

	if (j->unmark)
		here->ops->unmark(device, j->unmark);
	pthread_mutex_lock(&lock);
	j->result = result;
	j->over = true;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
}

void job_start(struct job *j)
{
	j->over = false;
	j->io.done = on_done;
	here->ops->submit(device, &j->io);
}

int job_wait(struct job *j)
{
	struct timespec until = thread_in_ms(60000);
	int rc = 0;

	pthread_mutex_lock(&lock);
	while (!j->over && !rc)
		rc = pthread_cond_timedwait(&ended, &lock, &until);
	pthread_mutex_unlock(&lock);
	ck_assert_int_eq(rc, 0);
	return j->result;
}

bool job_is_over(struct job *j)
{
	bool over;

	pthread_mutex_lock(&lock);
	over = j->over;
	pthread_mutex_unlock(&lock);
	return over;
}

int run_io(struct device_io io)
{
	struct job j = { .io = io };

	job_start(&j);
	return job_wait(&j);
}

void port_open(void)
{
	ck_assert_int_eq(here->ops->open(&device, &device_test_options), 0);
	here->begin(device);
	for (int i = 0; i < here->ndevices(); i++)
		ck_assert_int_eq(here->ops->use(device, i), 0);
}

void port_close(void)
{
	here->end();
	here->ops->close(device);
	device = NULL;
}

static int copy(int number, void *to, const void *from, uint64_t size)
{
	return run_io((struct device_io){
		.what = DEVICE_COPY, .number = number, .to = to, .from = from, .size = size });
}

static uint64_t seed;

void random_begin(void)
{
	const char *given = getenv("TEST_SEED");

	seed = given ? strtoull(given, NULL, 10) : monotonic_ms();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
}

uint64_t next_random(uint64_t below)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (seed >> 33) % below;
}

static void randomize(uint8_t *bytes, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)next_random(256);
}

static void *pages(uint64_t size)
{
	void *memory = aligned_alloc(PAGE, u64_div_ceil(size, PAGE) * PAGE);

	ck_assert_ptr_nonnull(memory);
	memset(memory, 0, size);
	return memory;
}

static struct device_event *mark(int number, void *stream)
{
	struct device_event *event;

	ck_assert_int_eq(here->ops->mark(device, number, stream, &event), 0);
	return event;
}

static void expect_bytes(const uint8_t *bytes, uint8_t value, uint64_t size)
{
	uint64_t same = 0; /* one assertion: each writes to Check's file */

	while (same < size && bytes[same] == value)
		same++;
	ck_assert_uint_eq(same, size);
}

static void expect_on_device(const void *memory, uint8_t value, uint64_t size)
{
	uint8_t *seen = malloc(size);

	here->get(seen, memory, size);
	expect_bytes(seen, value, size);
	free(seen);
}

/* ---- memory ---- */

START_TEST(memory_is_known_by_its_address)
{
	struct device_where where;
	void *host = pages(2 * PAGE);

	for (int i = 0; i < here->ndevices(); i++) {
		uint8_t *memory = here->alloc(i, SIZE);

		ck_assert_int_eq(here->ops->where(device, memory + SIZE - 1, &where), 0);
		ck_assert_int_eq(where.number, i);
		here->free(memory);
	}
	ck_assert_int_eq(here->ops->where(device, host, &where), 0);
	ck_assert(where.number == DEVICE_NONE && !where.pinned);
	ck_assert_int_eq(here->ops->pin(device, host, 2 * PAGE), 0);
	ck_assert_int_eq(here->ops->pin(device, host, 2 * PAGE), -EINVAL);
	ck_assert_int_eq(here->ops->where(device, (uint8_t *)host + PAGE, &where), 0);
	ck_assert(where.number == DEVICE_NONE && where.pinned);
	here->ops->unpin(device, host);
	ck_assert_int_eq(here->ops->where(device, host, &where), 0);
	ck_assert(!where.pinned);
	free(host);
}
END_TEST

static void copy_ranges(uint8_t *host)
{
	uint8_t *memory = here->alloc(0, SIZE), *truth = malloc(SIZE);

	randomize(truth, SIZE);
	here->put(memory, truth, SIZE);
	for (int round = 0; round < 50; round++) {
		uint64_t offset = next_random(SIZE);
		uint64_t size = 1 + next_random(SIZE - offset);

		if (next_random(2)) {
			ck_assert_int_eq(copy(0, host + offset, memory + offset, size), 0);
			ck_assert_mem_eq(host + offset, truth + offset, size);
		} else {
			randomize(truth + offset, size);
			memcpy(host + offset, truth + offset, size);
			ck_assert_int_eq(copy(0, memory + offset, host + offset, size), 0);
		}
	}
	here->get(host, memory, SIZE);
	ck_assert_mem_eq(host, truth, SIZE);
	here->free(memory);
	free(truth);
}

START_TEST(any_range_is_copied_both_ways)
{
	uint8_t *host = pages(SIZE);

	copy_ranges(host);
	free(host);
}
END_TEST

START_TEST(any_range_is_copied_from_and_to_pinned_memory)
{
	uint8_t *host = pages(SIZE);

	ck_assert_int_eq(here->ops->pin(device, host, u64_div_ceil(SIZE, PAGE) * PAGE), 0);
	copy_ranges(host);
	here->ops->unpin(device, host);
	free(host);
}
END_TEST

START_TEST(a_range_is_copied_on_the_device)
{
	uint8_t *from = here->alloc(0, SIZE), *to = here->alloc(0, SIZE), *truth = malloc(SIZE);
	uint8_t *seen = malloc(SIZE);

	randomize(truth, SIZE);
	here->put(from, truth, SIZE);
	ck_assert_int_eq(copy(0, to + 1, from + 3, SIZE - 3), 0);
	here->get(seen, to, SIZE);
	ck_assert_mem_eq(seen + 1, truth + 3, SIZE - 3);
	here->free(from);
	here->free(to);
	free(truth);
	free(seen);
}
END_TEST

START_TEST(many_requests_at_once)
{
	static struct job jobs[JOBS];
	uint8_t *memory = here->alloc(0, JOBS * SIZE), *truth = malloc(JOBS * SIZE);
	uint8_t *host = malloc(JOBS * SIZE);

	randomize(truth, JOBS * SIZE);
	here->put(memory, truth, JOBS * SIZE);
	for (int i = 0; i < JOBS; i++) {
		jobs[i].io = (struct device_io){ .what = DEVICE_COPY,
						 .size = 1 + next_random(SIZE),
						 .to = host + i * SIZE,
						 .from = memory + i * SIZE };
		job_start(&jobs[i]);
	}
	for (int i = 0; i < JOBS; i++) {
		ck_assert_int_eq(job_wait(&jobs[i]), 0);
		ck_assert_mem_eq(host + i * SIZE, truth + i * SIZE, jobs[i].io.size);
	}
	here->free(memory);
	free(truth);
	free(host);
}
END_TEST

START_TEST(each_device_has_its_own)
{
	uint8_t host[2][CHUNK], seen[CHUNK];

	for (int i = 0; i < here->ndevices() && i < 2; i++) {
		uint8_t *memory = here->alloc(i, CHUNK);

		memset(host[i], 7 + i, CHUNK);
		ck_assert_int_eq(copy(i, memory, host[i], CHUNK), 0);
		expect_on_device(memory, (uint8_t)(7 + i), CHUNK);
		ck_assert_int_eq(copy(!i, seen, memory, CHUNK),
				 here->ndevices() > 1 ? -EFAULT : -EINVAL);
		here->free(memory);
	}
}
END_TEST

START_TEST(memory_of_the_port_is_the_devices)
{
	uint8_t *from = pages(SIZE), *to = pages(SIZE);
	struct device_where where;
	void *memory = NULL;

	for (int i = 0; i < here->ndevices(); i++) {
		ck_assert_int_eq(here->ops->alloc(device, i, 0, &memory), -EINVAL);
		ck_assert_int_eq(here->ops->alloc(device, i, SIZE, &memory), 0);
		ck_assert_int_eq(here->ops->where(device, (uint8_t *)memory + SIZE - 1, &where),
				 0);
		ck_assert_int_eq(where.number, i);
		randomize(from, SIZE);
		ck_assert_int_eq(copy(i, memory, from, SIZE), 0);
		ck_assert_int_eq(copy(i, to, memory, SIZE), 0);
		ck_assert_mem_eq(to, from, SIZE);
		here->ops->free(device, i, memory);
	}
	ck_assert_int_eq(here->ops->alloc(device, here->ndevices(), SIZE, &memory), -EINVAL);
	ck_assert_int_eq(here->ops->alloc(device, DEVICE_NONE, SIZE, &memory), -EINVAL);
	free(from);
	free(to);
}
END_TEST

START_TEST(what_is_no_memory_of_the_device_is_refused)
{
	uint8_t host[2][64];
	uint8_t *memory = here->alloc(0, CHUNK);
	struct device_io io = {
		.what = DEVICE_F32_TO_BF16, .from = memory, .to = host[0], .size = 4
	};
	int rc;

	ck_assert_int_eq(copy(-1, host[0], memory, 64), -EINVAL);
	ck_assert_int_eq(copy(1000, host[0], memory, 64), -EINVAL);
	ck_assert_int_eq(copy(0, host[0], host[1], 64), -EFAULT);
	ck_assert_int_eq(copy(0, host[0], memory + CHUNK - 63, 64), -EFAULT);
	ck_assert_int_eq(copy(0, memory + CHUNK - 63, host[0], 64), -EFAULT);
	ck_assert_int_eq(copy(0, memory, memory + CHUNK - 63, 64), -EFAULT);
	ck_assert_int_eq(copy(0, memory + CHUNK - 63, memory, 64), -EFAULT);
	rc = run_io(io);
	ck_assert(rc == -EFAULT || rc == -ENOSYS);
	io.to = memory;
	io.from = host[0];
	rc = run_io(io);
	ck_assert(rc == -EFAULT || rc == -ENOSYS);
	io.from = memory;
	io.size = UINT64_MAX;
	rc = run_io(io);
	ck_assert(rc == -EFAULT || rc == -ENOSYS);
	here->free(memory);
	ck_assert_int_eq(here->ops->use(device, -1), -EINVAL);
	ck_assert_int_eq(here->ops->use(device, here->ndevices()), -EINVAL);
	ck_assert_int_eq(here->ops->use(device, 0), 0); /* it is already */
}
END_TEST

START_TEST(options_are_checked)
{
	struct device_options small = device_test_options, few = small, large = small;
	struct device *d;

	small.chunk = 4096;
	few.chunks = 1;
	large.chunk = 1 << 30;
	ck_assert_int_eq(here->ops->open(&d, &small), -EINVAL);
	ck_assert_int_eq(here->ops->open(&d, &few), -EINVAL);
	ck_assert_int_eq(here->ops->open(&d, &large), -EINVAL);
}
END_TEST

/* ---- streams ---- */

START_TEST(a_request_waits_for_what_the_stream_had_before)
{
	uint8_t *memory = here->alloc(0, SIZE), *host = calloc(1, SIZE);
	void *stream = here->stream_new(0);
	struct job j = { 0 };

	here->hold(stream);
	here->fill(stream, memory, 5, SIZE);
	j.unmark = mark(0, stream);
	j.io = (struct device_io){
		.what = DEVICE_COPY, .to = host, .from = memory, .size = SIZE
	};
	j.io.after = j.unmark;
	job_start(&j);
	ck_assert_int_eq(copy(0, memory, host, 1), 0); /* others go on meanwhile */
	ck_assert(!job_is_over(&j));
	expect_bytes(host, 0, SIZE);
	here->go(stream);
	ck_assert_int_eq(job_wait(&j), 0);
	expect_bytes(host, 5, SIZE);
	here->stream_free(stream);
	here->free(memory);
	free(host);
}
END_TEST

START_TEST(an_empty_request_tells_that_the_stream_has_come_there)
{
	void *stream = here->stream_new(0);
	struct job j = { 0 };

	here->hold(stream);
	j.unmark = j.io.after = mark(0, stream);
	job_start(&j);
	ck_assert_int_eq(copy(0, NULL, NULL, 0), 0);
	ck_assert(!job_is_over(&j));
	here->go(stream);
	ck_assert_int_eq(job_wait(&j), 0);
	here->stream_free(stream);
}
END_TEST

START_TEST(a_request_waits_no_longer_than_it_says)
{
	uint8_t *memory = here->alloc(0, CHUNK), *host = calloc(1, CHUNK);
	void *stream = here->stream_new(0);
	struct device_event *event;

	here->put(memory, "fragments", 9);
	here->hold(stream);
	event = mark(0, stream);
	ck_assert_int_eq(run_io((struct device_io){ .what = DEVICE_COPY,
						    .to = host,
						    .from = memory,
						    .size = CHUNK,
						    .after = event,
						    .wait_ms = 20 }),
			 -ETIMEDOUT);
	expect_bytes(host, 0, CHUNK);
	here->ops->unmark(device, event);
	here->go(stream);
	here->stream_free(stream);
	here->free(memory);
	free(host);
}
END_TEST

START_TEST(the_default_stream_is_one_too)
{
	uint8_t *memory = here->alloc(0, CHUNK), host[CHUNK] = { 0 };
	struct job j = { 0 };

	here->fill(NULL, memory, 9, CHUNK);
	j.unmark = mark(0, NULL);
	j.io = (struct device_io){
		.what = DEVICE_COPY, .to = host, .from = memory, .size = CHUNK
	};
	j.io.after = j.unmark;
	job_start(&j);
	ck_assert_int_eq(job_wait(&j), 0);
	expect_bytes(host, 9, CHUNK);
	here->free(memory);
}
END_TEST

START_TEST(close_cancels_what_has_not_begun)
{
	static struct job jobs[3];
	uint8_t *memory, host[CHUNK];
	void *stream;

	port_open();
	memory = here->alloc(0, CHUNK);
	stream = here->stream_new(0);
	here->hold(stream);
	for (int i = 0; i < 3; i++) {
		jobs[i].unmark = mark(0, stream);
		jobs[i].io = (struct device_io){
			.what = DEVICE_COPY, .to = host, .from = memory, .size = CHUNK
		};
		jobs[i].io.after = jobs[i].unmark;
		job_start(&jobs[i]);
	}
	port_close();
	for (int i = 0; i < 3; i++) {
		ck_assert(job_is_over(&jobs[i]));
		ck_assert_int_eq(jobs[i].result, -ECANCELED);
	}
	here->go(stream);
	here->stream_free(stream);
	here->free(memory);
}
END_TEST

/* ---- what is preserved ---- */

static struct device_kept *preserve(void *stream, const void *from, uint64_t size, void *to)
{
	struct device_kept *kept;

	ck_assert_int_eq(here->ops->preserve(device, 0, stream, from, size, to, &kept), 0);
	ck_assert_uint_eq(kept->size, size);
	ck_assert_int_eq(kept->number, to ? DEVICE_NONE : 0);
	return kept;
}

static int read_kept(const struct device_kept *kept, uint8_t *host)
{
	return run_io((struct device_io){ .what = DEVICE_COPY,
					  .to = host,
					  .from = kept->memory,
					  .size = kept->size,
					  .after = kept->written });
}

START_TEST(what_is_preserved_stays_when_the_trainer_goes_on)
{
	uint8_t *memory = here->alloc(0, CHUNK), host[CHUNK], *pinned = pages(CHUNK);
	void *stream = here->stream_new(0);
	struct device_kept *on_device, *on_host;

	ck_assert_int_eq(here->ops->pin(device, pinned, CHUNK), 0);
	here->hold(stream);
	here->fill(stream, memory, 1, CHUNK);
	on_device = preserve(stream, memory, CHUNK, NULL);
	on_host = preserve(stream, memory, CHUNK, pinned);
	here->fill(stream, memory, 2, CHUNK);
	expect_bytes(pinned, 0, CHUNK);
	here->go(stream);
	ck_assert_int_eq(read_kept(on_device, host), 0);
	expect_bytes(host, 1, CHUNK);
	ck_assert_int_eq(run_io((struct device_io){ .after = on_host->written }), 0);
	expect_bytes(pinned, 1, CHUNK);
	expect_on_device(memory, 2, CHUNK);
	here->ops->release(device, on_device);
	here->ops->release(device, on_host);
	here->ops->unpin(device, pinned);
	here->stream_free(stream);
	here->free(memory);
	free(pinned);
}
END_TEST

/* As an edit does: it marks the stream behind what is preserved, and writes when the stream has
 * come there.
 */
START_TEST(what_is_preserved_is_read_before_a_request_behind_it_writes)
{
	uint8_t *memory = here->alloc(0, CHUNK), old[CHUNK], new[CHUNK], host[CHUNK];
	void *stream = here->stream_new(0);
	struct job edit = { 0 };
	struct device_kept *kept;

	memset(old, 1, CHUNK);
	memset(new, 2, CHUNK);
	here->put(memory, old, CHUNK);
	here->hold(stream);
	kept = preserve(stream, memory, CHUNK, NULL);
	edit.unmark = mark(0, stream);
	edit.io = (struct device_io){
		.to = memory, .from = new, .size = CHUNK, .after = edit.unmark
	};
	job_start(&edit);
	ck_assert_int_eq(
		run_io((struct device_io){ .to = host, .from = memory, .size = CHUNK }), 0);
	ck_assert(!job_is_over(&edit));
	expect_bytes(host, 1, CHUNK);
	here->go(stream);
	ck_assert_int_eq(job_wait(&edit), 0);
	expect_on_device(memory, 2, CHUNK);
	ck_assert_int_eq(read_kept(kept, host), 0);
	expect_bytes(host, 1, CHUNK);
	here->ops->release(device, kept);
	here->stream_free(stream);
	here->free(memory);
}
END_TEST

/* Room comes back when the port's thread has seen that the stream is past it. */
static struct device_kept *preserve_when_there_is_room(const void *from, uint64_t size)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct device_kept *kept;
	int rc = -ENOSPC;

	for (uint64_t end = monotonic_ms() + 60000; rc && monotonic_ms() < end;) {
		rc = here->ops->preserve(device, 0, NULL, from, size, NULL, &kept);
		ck_assert(!rc || rc == -ENOSPC);
		if (rc)
			nanosleep(&pause, NULL);
	}
	ck_assert_int_eq(rc, 0);
	return kept;
}

START_TEST(no_more_is_preserved_than_there_is_room)
{
	uint8_t *memory = here->alloc(0, KEEP);
	void *stream = here->stream_new(0);
	struct device_kept *first, *second;
	struct device_figures f;

	first = preserve(stream, memory, CHUNK, NULL);
	here->ops->figures(device, &f);
	ck_assert_uint_eq(f.kept, CHUNK);
	ck_assert_int_eq(here->ops->preserve(device, 0, stream, memory, KEEP, NULL, &second),
			 -ENOSPC);
	here->ops->release(device, first);
	second = preserve_when_there_is_room(memory, KEEP);
	ck_assert_int_eq(run_io((struct device_io){ .after = second->written }), 0);
	here->ops->release(device, second);
	here->stream_free(stream);
	here->free(memory);
}
END_TEST

START_TEST(what_cannot_be_preserved_is_refused)
{
	uint8_t *memory = here->alloc(0, CHUNK), host[64];
	struct device_kept *kept;
	struct device_event *event;

	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, 64, host, &kept),
			 -EINVAL);
	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, 0, NULL, &kept), -EINVAL);
	ck_assert_int_eq(here->ops->preserve(device, 1000, NULL, memory, 64, NULL, &kept),
			 -EINVAL);
	ck_assert_int_eq(here->ops->mark(device, -1, NULL, &event), -EINVAL);
	here->free(memory);
}
END_TEST

START_TEST(what_is_released_may_still_be_written_by_the_stream)
{
	uint8_t *memory;
	void *stream;

	port_open();
	memory = here->alloc(0, CHUNK);
	stream = here->stream_new(0);
	here->hold(stream);
	here->ops->release(device, preserve(stream, memory, CHUNK, NULL));
	here->ops->release(device, preserve(stream, memory, CHUNK, NULL));
	port_close();
	here->go(stream);
	here->stream_free(stream);
	here->free(memory);
}
END_TEST

/* ---- all ---- */

static TCase *conformance(const struct trainer *trainer)
{
	TCase *c = tcase_create("conformance");

	here = trainer;
	random_begin();
	tcase_add_checked_fixture(c, port_open, port_close);
	tcase_add_test(c, memory_is_known_by_its_address);
	tcase_add_test(c, any_range_is_copied_both_ways);
	tcase_add_test(c, any_range_is_copied_from_and_to_pinned_memory);
	tcase_add_test(c, a_range_is_copied_on_the_device);
	tcase_add_test(c, many_requests_at_once);
	tcase_add_test(c, each_device_has_its_own);
	tcase_add_test(c, memory_of_the_port_is_the_devices);
	tcase_add_test(c, what_is_no_memory_of_the_device_is_refused);
	tcase_add_test(c, options_are_checked);
	tcase_add_test(c, a_request_waits_for_what_the_stream_had_before);
	tcase_add_test(c, an_empty_request_tells_that_the_stream_has_come_there);
	tcase_add_test(c, a_request_waits_no_longer_than_it_says);
	tcase_add_test(c, the_default_stream_is_one_too);
	tcase_add_test(c, what_is_preserved_stays_when_the_trainer_goes_on);
	tcase_add_test(c, what_is_preserved_is_read_before_a_request_behind_it_writes);
	tcase_add_test(c, no_more_is_preserved_than_there_is_room);
	tcase_add_test(c, what_cannot_be_preserved_is_refused);
	device_suite_add_arithmetic(c);
	return c;
}

static TCase *close_suite(void)
{
	TCase *c = tcase_create("close");

	tcase_add_test(c, close_cancels_what_has_not_begun);
	tcase_add_test(c, what_is_released_may_still_be_written_by_the_stream);
	return c;
}

int device_suite_run(const struct trainer *trainer, TCase *const more[])
{
	Suite *suite = suite_create(trainer->ops->name);
	SRunner *runner = srunner_create(suite);
	int failed;

	thread_cond_init(&ended);
	suite_add_tcase(suite, conformance(trainer));
	suite_add_tcase(suite, close_suite());
	for (; more && *more; more++)
		suite_add_tcase(suite, *more);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/rank/devices.h"
#include "engine/rank/registry.h"
#include "engine/swap/swapper.h"
#include "tests/cuda/device-stub.h"
#include "tests/cuda/device-suite.h"
#include "tests/ranks/scarce.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The suite over device-cuda.c on the recorded stub, and what it calls. */

#ifndef HAVE_CUDA

int main(void)
{
	printf("skip: built without CUDA: no headers to compile its stub with\n");
	return 77;
}

#else

struct stub_call calls[CALLS];
unsigned ncalls;

void take_calls(void)
{
	ncalls = stub_calls(calls, CALLS);
	ck_assert_uint_le(ncalls, CALLS);
}

int copy(void *to, const void *from, uint64_t size)
{
	return run_io((struct device_io){
		.what = DEVICE_COPY, .to = to, .from = from, .size = size });
}

bool is(const struct stub_call *c, const char *name)
{
	return !strcmp(c->name, name);
}

const struct stub_call *call_of(const char *name, unsigned from)
{
	take_calls();
	for (unsigned i = from; i < ncalls; i++)
		if (is(&calls[i], name))
			return &calls[i];
	ck_abort_msg("%s was not called", name);
}

void wait_for_calls(const char *name, unsigned n)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (uint64_t end = monotonic_ms() + 60000; stub_count(name, false) < n;) {
		ck_assert(monotonic_ms() < end);
		nanosleep(&pause, NULL);
	}
}

void reset_and_open(void)
{
	stub_reset();
	port_open();
}

/* ---- what is called, and where ---- */

START_TEST(copies_are_on_a_stream_of_the_ports_in_chunks_with_an_event_each)
{
	uint8_t *memory = here->alloc(0, 5 * CHUNK), *host = calloc(5, CHUNK);
	uint64_t bytes = 0;

	stub_reset();
	ck_assert_int_eq(copy(host, memory, 5 * CHUNK - 1), 0);
	take_calls();
	for (unsigned i = 0; i < ncalls; i++) {
		ck_assert(!calls[i].pageable);
		if (!is(&calls[i], "MemcpyAsync"))
			continue;
		ck_assert_ptr_nonnull(calls[i].stream);
		ck_assert_uint_le(calls[i].size, CHUNK);
		ck_assert_str_eq(calls[i + 1].name, "EventRecord");
		ck_assert_ptr_eq(calls[i + 1].stream, calls[i].stream);
		bytes += calls[i].size;
	}
	ck_assert_uint_eq(bytes, 5 * CHUNK - 1);
	here->free(memory);
	free(host);
}
END_TEST

START_TEST(the_next_chunk_is_under_way_before_one_has_landed)
{
	uint8_t *memory = here->alloc(0, 4 * CHUNK), *host = calloc(4, CHUNK);
	struct job j = { .io = { .to = host, .from = memory, .size = 4 * CHUNK } };

	stub_reset();
	stub_stall(true);
	job_start(&j);
	wait_for_calls("EventRecord", device_test_options.chunks);
	ck_assert_uint_eq(stub_count("MemcpyAsync", false), device_test_options.chunks);
	stub_stall(false);
	ck_assert_int_eq(job_wait(&j), 0);
	ck_assert_uint_eq(stub_count("MemcpyAsync", false), 4);
	here->free(memory);
	free(host);
}
END_TEST

START_TEST(a_small_request_does_not_wait_for_a_large_one)
{
	enum { LARGE = 400 };
	uint8_t *memory = here->alloc(0, LARGE * CHUNK), *host = calloc(LARGE, CHUNK), small[8];
	struct job large = { .io = { .to = host, .from = memory, .size = LARGE * CHUNK } };
	struct job other = { .io = { .to = small, .from = memory, .size = sizeof(small) } };

	stub_stall(true);
	stub_reset();
	job_start(&large);
	wait_for_calls("EventRecord", device_test_options.chunks);
	stub_reset();
	job_start(&other);
	wait_for_calls("PointerGetAttributes", 1); /* it has begun */
	stub_stall(false);
	ck_assert_int_eq(job_wait(&large), 0);
	ck_assert_int_eq(job_wait(&other), 0);
	take_calls();
	for (unsigned i = 0, n = 0; i < ncalls && calls[i].size != sizeof(small); i++) {
		n += is(&calls[i], "MemcpyAsync");
		ck_assert_uint_le(n, 4);
	}
	here->free(memory);
	free(host);
}
END_TEST

START_TEST(the_trainers_stream_gets_events_and_what_is_preserved)
{
	static const char *const expected[] = { "StreamIsCapturing", "EventRecord",
						"StreamIsCapturing", "StreamWaitEvent",
						"MemcpyAsync",       "EventRecord" };
	uint8_t *memory = here->alloc(0, CHUNK);
	void *stream = here->stream_new(0);
	struct device_event *event;
	struct device_kept *kept;
	unsigned n = 0;

	stub_reset();
	ck_assert_int_eq(here->ops->mark(device, 0, stream, &event), 0);
	ck_assert_int_eq(here->ops->preserve(device, 0, stream, memory, CHUNK, NULL, &kept), 0);
	ck_assert_int_eq(run_io((struct device_io){ .after = kept->written }), 0);
	take_calls();
	for (unsigned i = 0; i < ncalls; i++)
		if (calls[i].stream == stream) {
			ck_assert_uint_lt(n, ARRAY_SIZE(expected));
			ck_assert_str_eq(calls[i].name, expected[n++]);
			ck_assert(calls[i].trainers);
		}
	ck_assert_uint_eq(n, ARRAY_SIZE(expected));
	here->ops->unmark(device, event);
	here->ops->release(device, kept);
	here->stream_free(stream);
	here->free(memory);
}
END_TEST

START_TEST(no_context_is_made_on_a_device_that_is_not_used)
{
	struct device_options options = device_test_options;
	struct device *d;

	stub_reset();
	ck_assert_int_eq(device_cuda.open(&d, &options), 0);
	ck_assert(!stub_has_context(0) && !stub_has_context(1));
	ck_assert_int_eq(device_cuda.use(d, 0), 0);
	ck_assert(stub_has_context(0) && !stub_has_context(1));
	device_cuda.close(d);
	ck_assert(!stub_has_context(1));
}
END_TEST

/* Not even the first device's, which is a thread's current one at first. */
START_TEST(the_ports_thread_makes_no_context_on_another_device)
{
	struct device_options options = device_test_options;
	struct device_event *event;

	stub_reset();
	ck_assert_int_eq(cudaSetDevice(1), cudaSuccess); /* the trainer's */
	ck_assert_int_eq(device_cuda.open(&device, &options), 0);
	ck_assert_int_eq(device_cuda.use(device, 1), 0);
	ck_assert_int_eq(device_cuda.mark(device, 1, NULL, &event), 0);
	ck_assert_int_eq(run_io((struct device_io){ .number = 1, .after = event }), 0);
	device_cuda.unmark(device, event);
	device_cuda.close(device);
	ck_assert(stub_has_context(1) && !stub_has_context(0));
	ck_assert_int_eq(cudaSetDevice(0), cudaSuccess);
}
END_TEST

START_TEST(what_the_trainer_captures_is_not_spoilt)
{
	uint8_t *memory = here->alloc(0, 3 * CHUNK), *host = calloc(3, CHUNK);
	struct device_event *event;
	struct device_kept *kept;

	ck_assert_int_eq(here->ops->mark(device, 0, NULL, &event), 0);
	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, CHUNK, NULL, &kept), 0);
	stub_capture(true);
	ck_assert_int_eq(
		run_io((struct device_io){
			.to = host, .from = memory, .size = 3 * CHUNK, .after = event }),
		0);
	ck_assert_int_eq(run_io((struct device_io){ .after = kept->written }), 0);
	here->ops->release(device, kept);
	ck_assert_int_eq(copy(memory, host, 3 * CHUNK), 0);
	stub_capture(false);
	ck_assert_uint_eq(stub_spoilt(), 0);
	here->ops->unmark(device, event);
	here->free(memory);
	free(host);
}
END_TEST

/* ---- errors ---- */

static const char *lacking; /* what the runtime does not have */

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
	return lacking && !strcmp(name, lacking) ? NULL : __real_dlsym(library, name);
}

START_TEST(a_runtime_that_loads_no_kernels_converts_nothing)
{
	struct device_options options = device_test_options;
	uint8_t *memory, host[64];

	stub_reset();
	lacking = "cudaLibraryLoadData";
	ck_assert_int_eq(device_cuda.open(&device, &options), 0);
	lacking = NULL;
	ck_assert_int_eq(device_cuda.use(device, 0), 0);
	memory = here->alloc(0, CHUNK);
	ck_assert_int_eq(run_io((struct device_io){ .what = DEVICE_SUMS_F32, .from = memory }),
			 -ENOSYS);
	ck_assert_int_eq(copy(host, memory, sizeof(host)), 0);
	here->free(memory);
	device_cuda.close(device);
}
END_TEST

static int open_and_use(struct device **d)
{
	struct device_options options = device_test_options;
	int rc = device_cuda.open(d, &options);

	if (!rc && (rc = device_cuda.use(*d, 0)))
		device_cuda.close(*d);
	return rc;
}

/* The n-th need of it is not met, for each n. */
START_TEST(without_memory_a_device_is_not_used)
{
	unsigned n = 0, failed, before = stub_left();
	struct device *d;
	int rc;

	stub_pools(!_i);
	do {
		scarce_begin(++n, 1);
		rc = open_and_use(&d);
		failed = scarce_end();
		if (!rc)
			device_cuda.close(d);
		ck_assert_msg(!rc || (failed && (rc == -ENOMEM || rc == -EAGAIN)), "%u: %d", n,
			      rc);
		ck_assert_uint_eq(stub_left(), before);
	} while (failed);
	ck_assert_uint_gt(n, 3);
	stub_pools(true);
}
END_TEST

START_TEST(what_is_missing_is_said)
{
	static const struct {
		const char *library, *call;
		cudaError_t error;
		const char *line;
	} cases[] = {
		{ "no-such-library.so", NULL, 0, "no CUDA runtime: no-such-library.so" },
		{ "libpthread.so.0", NULL, 0, "too old: it has no cuda" },
		{ NULL, "GetDeviceCount", cudaErrorInsufficientDriver,
		  "for CUDA 12.2, is too old" },
		{ NULL, "GetDeviceCount", cudaErrorNoDevice, "no CUDA devices: an error" },
	};
	struct device_options options = device_test_options;
	char text[4096];
	struct device *d;

	if (cases[_i].library)
		options.library = cases[_i].library;
	stub_reset();
	if (cases[_i].call)
		stub_fail(cases[_i].call, 1, cases[_i].error);
	ck_assert_int_eq(device_cuda.open(&d, &options), -ENODEV);
	log_tail(text, sizeof(text));
	ck_assert_msg(strstr(text, cases[_i].line), "%s", text);
}
END_TEST

/* A node that no machine has shows by its line that buffers were to be there. */
START_TEST(buffers_are_near_their_device)
{
	char text[4096];
	struct device *d;

	stub_node(5000);
	ck_assert_int_eq(open_and_use(&d), 0);
	device_cuda.close(d);
	stub_node(-1);
	log_tail(text, sizeof(text));
	ck_assert_msg(strstr(text, "pinned buffers are not on NUMA node 5000"), "%s", text);
}
END_TEST

START_TEST(a_stream_that_is_captured_is_busy)
{
	uint8_t *memory = here->alloc(0, CHUNK);
	struct device_event *event;
	struct device_kept *kept;

	stub_capture(true);
	ck_assert_int_eq(here->ops->mark(device, 0, NULL, &event), -EBUSY);
	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, 64, NULL, &kept), -EBUSY);
	stub_capture(false);
	stub_fail("StreamIsCapturing", 1, cudaErrorStreamCaptureImplicit);
	ck_assert_int_eq(here->ops->mark(device, 0, NULL, &event), -EBUSY);
	here->free(memory);
}
END_TEST

START_TEST(memory_that_has_gone_is_the_requests_error_alone)
{
	uint8_t *memory = here->alloc(0, 3 * CHUNK), *host = calloc(3, CHUNK);

	stub_fail("MemcpyAsync", 2, cudaErrorInvalidValue);
	ck_assert_int_eq(copy(host, memory, 3 * CHUNK), -EFAULT);
	ck_assert_int_eq(copy(host, memory, 3 * CHUNK), 0);
	here->free(memory);
	free(host);
}
END_TEST

START_TEST(without_kernels_the_rest_works)
{
	struct device_options options = device_test_options;
	uint8_t *memory, host[64];

	stub_reset();
	stub_fail(_i ? "LibraryLoadData" : "LaunchKernel", 1, cudaErrorNoKernelImageForDevice);
	ck_assert_int_eq(device_cuda.open(&device, &options), 0);
	ck_assert_int_eq(device_cuda.use(device, 0), 0);
	memory = here->alloc(0, CHUNK);
	ck_assert_int_eq(run_io((struct device_io){ .what = DEVICE_SUMS_F32, .from = memory }),
			 -ENOSYS);
	ck_assert_int_eq(copy(host, memory, sizeof(host)), 0);
	here->free(memory);
	device_cuda.close(device);
}
END_TEST

/* ---- a device that is lost ---- */

static void open_impatient(void)
{
	struct device_options options = device_test_options;

	options.stuck_ms = 100;
	stub_reset();
	ck_assert_int_eq(device_cuda.open(&device, &options), 0);
	ck_assert_int_eq(device_cuda.use(device, 0), 0);
}

START_TEST(a_device_that_does_not_go_on_is_given_up)
{
	uint8_t *memory, *host = calloc(20, CHUNK);
	struct job jobs[2] = { 0 };

	open_impatient();
	memory = here->alloc(0, 20 * CHUNK);
	stub_stall(true);
	for (int i = 0; i < 2; i++) {
		jobs[i].io =
			(struct device_io){ .to = host, .from = memory, .size = 20 * CHUNK };
		job_start(&jobs[i]);
	}
	ck_assert_int_eq(job_wait(&jobs[0]), -EIO);
	ck_assert_int_eq(job_wait(&jobs[1]), -EIO);
	ck_assert_int_eq(copy(host, memory, 1), -EIO);
	device_cuda.close(device);
	ck_assert_uint_eq(stub_count("HostUnregister", true), 0); /* it may write there yet */
	stub_stall(false);
	stub_drain();
	here->free(memory);
	free(host);
}
END_TEST

START_TEST(a_device_that_fails_is_given_up)
{
	uint8_t *memory, host[64];
	struct device_event *event;

	open_impatient();
	memory = here->alloc(0, CHUNK);
	ck_assert_int_eq(here->ops->mark(device, 0, NULL, &event), 0);
	stub_break(cudaErrorIllegalAddress);
	ck_assert_int_eq(copy(host, memory, sizeof(host)), -EIO);
	ck_assert_int_eq(run_io((struct device_io){ .after = event }), -EIO);
	ck_assert_int_eq(copy(host, memory, sizeof(host)), -EIO);
	here->ops->unmark(device, event);
	device_cuda.close(device);
	stub_drain(); /* else what is enqueued would be done after all */
	stub_break(cudaSuccess);
	here->free(memory);
}
END_TEST

/* ---- each call fails once ---- */

static void use_all_there_is(uint8_t *memory)
{
	uint8_t *host = calloc(3, CHUNK);
	struct device_sums sums;
	struct device_event *event;
	struct device_kept *kept;

	if (!here->ops->mark(device, 0, NULL, &event)) {
		run_io((struct device_io){
			.to = host, .from = memory, .size = 3 * CHUNK, .after = event });
		here->ops->unmark(device, event);
	}
	run_io((struct device_io){
		.what = DEVICE_SUMS_F32, .to = &sums, .from = memory, .size = 100 });
	if (!here->ops->preserve(device, 0, NULL, memory, CHUNK, NULL, &kept)) {
		run_io((struct device_io){ .to = host,
					   .from = kept->memory,
					   .size = CHUNK,
					   .after = kept->written });
		here->ops->release(device, kept);
	}
	free(host);
}

static void try_with_failure(uint8_t *memory, unsigned nth)
{
	struct device_options options = device_test_options;

	stub_reset();
	stub_fail(NULL, nth, cudaErrorUnknown);
	if (device_cuda.open(&device, &options))
		return;
	if (!device_cuda.use(device, 0))
		use_all_there_is(memory);
	device_cuda.close(device);
}

START_TEST(each_call_fails_once)
{
	uint8_t *memory = here->alloc(0, 3 * CHUNK);
	unsigned nth = 1;

	setenv("FRAG_LOG", "error", 1);
	do
		try_with_failure(memory, nth++);
	while (stub_has_failed());
	printf("%u calls\n", nth);
	ck_assert_uint_gt(nth, 60);
	stub_reset();
	stub_drain(); /* streams of devices that were given up still copy from it */
	here->free(memory);
}
END_TEST

START_TEST(nothing_is_left_after_close)
{
	uint8_t *memory = here->alloc(0, 3 * CHUNK);
	unsigned before = stub_left();

	try_with_failure(memory, UINT_MAX); /* no call fails */
	ck_assert_uint_eq(stub_left(), before);
	here->free(memory);
}
END_TEST

/* What frag_devices does with the buffers of a rank that has a swap folder. */
START_TEST(buffers_of_states_on_nvme_are_registered_and_unregistered_before_they_go)
{
	struct swapper_options o = { .dir = getenv("TMPDIR"),
				     .name = "test.swap",
				     .budget = 1 << 20,
				     .slice = 1 << 16 };
	struct device_options options = device_test_options;
	unsigned before = stub_left();
	const struct stub_call *call;
	struct registry r = { 0 };
	char why[200];

	o.unlocked = _i == 1;
	ck_assert_int_eq(registry_init(&r), 0);
	ck_assert_msg(!swapper_open(&r.swapper, &o, why, sizeof(why)), "%s", why);
	ck_assert_int_eq(devices_open(&r.devices, &device_cuda, &options), 0);
	ck_assert_int_eq(devices_use(r.devices, 0, NULL), 0);
	stub_reset();
	if (_i == 2)
		stub_fail("HostRegister", 1, cudaErrorMemoryAllocation);
	registry_pin_buffers(&r);
	ck_assert_int_eq(r.buffers_on_devices, _i == 0);
	ck_assert_uint_eq(stub_count("HostRegister", true), _i == 1 ? 0 : 1);
	if (_i != 1) {
		call = call_of("HostRegister", 0);
		ck_assert_uint_eq(call->size, 1 << 20);
		registry_pin_buffers(&r);
		ck_assert_uint_eq(stub_count("HostRegister", true), _i == 2 ? 2 : 1);
	}
	registry_fini(&r);
	ck_assert_uint_eq(stub_left(), before);
}
END_TEST

static TCase *calls_and_errors(void)
{
	TCase *c = tcase_create("calls");

	tcase_add_checked_fixture(c, reset_and_open, port_close);
	tcase_add_test(c, copies_are_on_a_stream_of_the_ports_in_chunks_with_an_event_each);
	tcase_add_test(c, the_next_chunk_is_under_way_before_one_has_landed);
	tcase_add_test(c, a_small_request_does_not_wait_for_a_large_one);
	tcase_add_test(c, the_trainers_stream_gets_events_and_what_is_preserved);
	tcase_add_test(c, what_the_trainer_captures_is_not_spoilt);
	tcase_add_test(c, buffers_are_near_their_device);
	tcase_add_test(c, a_stream_that_is_captured_is_busy);
	tcase_add_test(c, memory_that_has_gone_is_the_requests_error_alone);
	return c;
}

static TCase *lives(void)
{
	TCase *c = tcase_create("lives");

	tcase_add_test(c, no_context_is_made_on_a_device_that_is_not_used);
	tcase_add_test(c, the_ports_thread_makes_no_context_on_another_device);
	tcase_add_loop_test(c, what_is_missing_is_said, 0, 4);
	tcase_add_loop_test(c, without_kernels_the_rest_works, 0, 2);
	tcase_add_test(c, a_runtime_that_loads_no_kernels_converts_nothing);
	tcase_add_loop_test(c, without_memory_a_device_is_not_used, 0, 2);
	tcase_add_test(c, a_device_that_does_not_go_on_is_given_up);
	tcase_add_test(c, a_device_that_fails_is_given_up);
	tcase_add_test(c, each_call_fails_once);
	tcase_add_test(c, nothing_is_left_after_close);
	tcase_add_loop_test(
		c, buffers_of_states_on_nvme_are_registered_and_unregistered_before_they_go, 0,
		3);
	return c;
}

int main(void)
{
	TCase *const more[] = { calls_and_errors(), lives(),         keep_cases(),
				keep_lives(),       convert_cases(), NULL };
	const char *missing;

	stub_reset();
	missing = trainer_cuda_load("libcudart-stub.so");
	if (missing)
		printf("the stub: %s\n", missing);
	return missing ? 1 : device_suite_run(&trainer_cuda, more);
}

#endif

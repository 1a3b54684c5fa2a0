/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#ifdef HAVE_CUDA
#include "tests/cuda/device-stub.h"
#include "tests/ranks/scarce.h"

#include <errno.h>
#include <string.h>

/* Where device-cuda.c has memory for what is preserved. */

static void end_kept(struct device_kept *kept)
{
	ck_assert_int_eq(run_io((struct device_io){ .after = kept->written }), 0);
	here->ops->release(device, kept);
}

static void wait_until_kept(uint64_t bytes)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	struct device_figures f;
	uint64_t end = monotonic_ms() + 60000;

	for (here->ops->figures(device, &f); f.kept != bytes; here->ops->figures(device, &f)) {
		ck_assert(monotonic_ms() < end);
		nanosleep(&pause, NULL);
	}
}

START_TEST(memory_for_what_is_preserved_has_a_stream_of_its_own)
{
	uint8_t *memory = here->alloc(0, CHUNK);
	void *stream = here->stream_new(0), *pools;
	const struct stub_call *c;
	struct device_kept *kept;
	struct job back = { 0 };

	memset(memory, 3, CHUNK);
	ck_assert_int_eq(here->ops->preserve(device, 0, stream, memory, CHUNK, NULL, &kept), 0);
	end_kept(kept);
	/* The port's thread ends this after the release, which makes the event idle. */
	ck_assert_int_eq(run_io((struct device_io){ .size = 0 }), 0);
	stub_reset();
	here->hold(stream);
	ck_assert_int_eq(here->ops->preserve(device, 0, stream, memory, CHUNK, NULL, &kept), 0);
	c = call_of("MallocFromPoolAsync", 0);
	pools = c->stream;
	ck_assert(pools && pools != stream && c->size == CHUNK);
	ck_assert(is(c + 1, "EventRecord") && c[1].stream == pools);
	ck_assert(is(c + 2, "StreamWaitEvent") && c[2].stream == stream);
	ck_assert(is(c + 3, "MemcpyAsync") && c[3].stream == stream);
	back.io = (struct device_io){
		.to = memory, .from = kept->memory, .size = CHUNK, .after = kept->written
	};
	job_start(&back);
	here->go(stream);
	ck_assert_int_eq(job_wait(&back), 0);
	ck_assert_uint_eq(memory[CHUNK - 1], 3);
	stub_reset();
	here->ops->release(device, kept);
	wait_for_calls("FreeAsync", 1);
	c = call_of("FreeAsync", 0);
	ck_assert(c->stream == pools && is(c - 1, "StreamWaitEvent") && c[-1].stream == pools);
	here->stream_free(stream);
	here->free(memory);
}
END_TEST

START_TEST(without_memory_nothing_is_marked_or_preserved)
{
	uint8_t *memory = here->alloc(0, CHUNK);
	struct device_event *event;
	struct device_kept *kept;
	unsigned n = 0, failed;
	int marked, rc;

	do {
		scarce_begin(++n, 1);
		marked = here->ops->mark(device, 0, NULL, &event);
		rc = here->ops->preserve(device, 0, NULL, memory, 64, NULL, &kept);
		failed = scarce_end();
		ck_assert_msg(!failed == (!marked && !rc), "%u: %d %d", n, marked, rc);
		ck_assert((!marked || marked == -ENOMEM) && (!rc || rc == -ENOMEM));
		if (!marked)
			here->ops->unmark(device, event);
		if (!rc)
			end_kept(kept);
	} while (failed);
	ck_assert_uint_gt(n, 2);
	here->free(memory);
}
END_TEST

START_TEST(what_is_preserved_goes_to_pinned_memory_alone)
{
	uint8_t *memory = here->alloc(0, CHUNK), *host = aligned_alloc(4096, CHUNK);
	struct device_kept *kept;

	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, 64, host, &kept),
			 -EINVAL);
	ck_assert_int_eq(here->ops->pin(device, host, CHUNK), 0);
	stub_fail("PointerGetAttributes", 1, cudaErrorMemoryAllocation);
	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, 64, host, &kept),
			 -ENOMEM);
	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, 64, host, &kept), 0);
	end_kept(kept);
	here->ops->unpin(device, host);
	free(host);
	here->free(memory);
}
END_TEST

START_TEST(a_full_device_preserves_nothing)
{
	uint8_t *memory = here->alloc(0, device_test_options.keep);
	struct device_kept *kept;

	stub_fail("MallocFromPoolAsync", 1, cudaErrorMemoryAllocation);
	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, 64, NULL, &kept),
			 -ENOMEM);
	ck_assert_int_eq(here->ops->preserve(device, 0, NULL, memory, device_test_options.keep,
					     NULL, &kept),
			 0); /* its room was given back */
	ck_assert_int_eq(run_io((struct device_io){ .after = kept->written }), 0);
	here->ops->release(device, kept);
	here->free(memory);
}
END_TEST

static const struct {
	const char *call; /* that fails; NULL: there are no pools */
} poolless[] = { { NULL },
		 { "DeviceGetAttribute" },
		 { "MemPoolCreate" },
		 { "MemPoolSetAttribute" },
		 { "MallocFromPoolAsync" },
		 { "FreeAsync" } };

static void open_without_pools(const char *call)
{
	struct device_options options = device_test_options;

	stub_reset();
	stub_pools(call != NULL);
	if (call)
		stub_fail(call, 1, cudaErrorNotSupported);
	ck_assert_int_eq(device_cuda.open(&device, &options), 0);
	ck_assert_int_eq(device_cuda.use(device, 0), 0);
	ck_assert(!call || stub_has_failed());
}

static void close_without_pools(void)
{
	device_cuda.close(device);
	stub_pools(true);
}

START_TEST(without_pools_memory_to_keep_in_is_taken_at_once)
{
	unsigned before = stub_left();
	struct device_kept *kept[4], *more;
	uint8_t *memory;

	open_without_pools(poolless[_i].call);
	ck_assert_uint_eq(call_of("Malloc", 0)->size, device_test_options.keep);
	memory = here->alloc(0, CHUNK);
	stub_reset();
	for (int i = 0; i < 4; i++) {
		memset(memory, i, CHUNK);
		ck_assert_int_eq(
			device_cuda.preserve(device, 0, NULL, memory, CHUNK, NULL, &kept[i]),
			0);
		ck_assert_int_eq(run_io((struct device_io){ .after = kept[i]->written }), 0);
	}
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(copy(memory, kept[i]->memory, CHUNK), 0);
		ck_assert_uint_eq(memory[CHUNK - 1], i);
	}
	device_cuda.release(device, kept[0]);
	device_cuda.release(device, kept[2]);
	wait_until_kept(2 * CHUNK);
	ck_assert_int_eq(device_cuda.preserve(device, 0, NULL, memory, CHUNK + 1, NULL, &more),
			 -ENOSPC); /* not in one piece */
	device_cuda.release(device, kept[1]);
	wait_until_kept(CHUNK);
	ck_assert_int_eq(device_cuda.preserve(device, 0, NULL, memory, CHUNK, NULL, &more), 0);
	end_kept(more);
	device_cuda.release(device, kept[3]);
	ck_assert_uint_eq(stub_count("Malloc", true), 0);
	here->free(memory);
	stub_reset();
	close_without_pools();
	ck_assert_uint_eq(stub_count("Free", true), 1);
	ck_assert_uint_eq(stub_left(), before);
}
END_TEST

START_TEST(a_device_without_pools_or_room_keeps_nothing)
{
	uint8_t *memory;
	struct device_kept *kept;

	stub_reset();
	stub_fail("Malloc", 1, cudaErrorMemoryAllocation);
	stub_pools(false);
	ck_assert_int_eq(device_cuda.open(&device, &device_test_options), 0);
	ck_assert_int_eq(device_cuda.use(device, 0), 0);
	memory = here->alloc(0, CHUNK);
	ck_assert_int_eq(device_cuda.preserve(device, 0, NULL, memory, CHUNK, NULL, &kept),
			 -ENOMEM);
	here->free(memory);
	close_without_pools();
}
END_TEST

/* cudaFree would wait until it has. */
START_TEST(what_a_stream_may_write_yet_is_left_at_the_end)
{
	struct device_kept *kept;
	uint8_t *memory;
	void *stream;

	open_without_pools(NULL);
	memory = here->alloc(0, CHUNK);
	stream = here->stream_new(0);
	here->hold(stream);
	ck_assert_int_eq(device_cuda.preserve(device, 0, stream, memory, CHUNK, NULL, &kept),
			 0);
	device_cuda.release(device, kept);
	stub_reset();
	close_without_pools();
	ck_assert_uint_eq(stub_count("Free", true), 0);
	here->go(stream);
	here->stream_free(stream);
	here->free(memory);
}
END_TEST

/* Of what preserve calls, each fails once.  Where it cannot be given back in a stream's order,
 * it stays.
 */
static const struct {
	const char *call;
	unsigned nth;
	bool pools;
} refused[] = { { "StreamWaitEvent", 1, true },
		{ "MemcpyAsync", 1, true },
		{ "EventRecord", 1, true },
		{ "EventRecord", 2, true },
		{ "EventRecord", 1, false } };

START_TEST(what_cannot_be_preserved_is_given_back)
{
	struct device_kept *kept;
	uint8_t *memory;

	if (refused[_i].pools)
		reset_and_open();
	else
		open_without_pools(NULL);
	memory = here->alloc(0, CHUNK);
	stub_reset();
	stub_fail(refused[_i].call, refused[_i].nth, cudaErrorUnknown);
	ck_assert_int_eq(device_cuda.preserve(device, 0, NULL, memory, CHUNK, NULL, &kept),
			 -EIO);
	ck_assert(stub_has_failed());
	wait_until_kept(refused[_i].pools ? 0 : CHUNK);
	ck_assert_uint_eq(stub_count("FreeAsync", true), refused[_i].pools);
	stub_drain();
	here->free(memory);
	close_without_pools();
}
END_TEST

TCase *keep_cases(void)
{
	TCase *c = tcase_create("keep");

	tcase_add_checked_fixture(c, reset_and_open, port_close);
	tcase_add_test(c, memory_for_what_is_preserved_has_a_stream_of_its_own);
	tcase_add_test(c, without_memory_nothing_is_marked_or_preserved);
	tcase_add_test(c, what_is_preserved_goes_to_pinned_memory_alone);
	tcase_add_test(c, a_full_device_preserves_nothing);
	return c;
}

TCase *keep_lives(void)
{
	TCase *c = tcase_create("keep-lives");

	tcase_add_loop_test(c, without_pools_memory_to_keep_in_is_taken_at_once, 0,
			    ARRAY_SIZE(poolless));
	tcase_add_test(c, a_device_without_pools_or_room_keeps_nothing);
	tcase_add_test(c, what_a_stream_may_write_yet_is_left_at_the_end);
	tcase_add_loop_test(c, what_cannot_be_preserved_is_given_back, 0, ARRAY_SIZE(refused));
	return c;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/cuda/collective-suite.h"

#include <stdio.h>

/* The suite over collective-nccl.c on the recorded stubs of the CUDA runtime and of NCCL, and
 * what it calls.
 */

#ifndef HAVE_NCCL

int main(void)
{
	printf("skip: built without NCCL: no headers to compile its stub with\n");
	return 77;
}

#else

#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "tests/cuda/stub-nccl.h"
#include "tests/cuda/stub.h"
#include "tests/ranks/scarce.h"

#include <errno.h>
#include <string.h>

enum { SIZE = 1000, CALLS = 4096 };

static const struct many nccl = { &collective_nccl, &trainer_cuda, 3, 300 };

static const char *lacking; /* what NCCL does not have */

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name)
{
	return lacking && !strcmp(name, lacking) ? NULL : __real_dlsym(library, name);
}

static void reset(void)
{
	stub_reset();
	nccl_stub_reset();
}

static void reset_and_open(void)
{
	reset();
	collective_test_options.end_ms = nccl.end_ms;
	many_open();
	reset();
}

static void close_all(void)
{
	nccl_stub_reset();
	many_close();
}

/* ---- an operation between 0 and 1 ---- */

static uint8_t *memory[2];
static struct collective_move moves[2];
static struct part parts[2];

static int start(unsigned rank)
{
	parts[rank].io = (struct collective_io){ .nmoves = 1, .moves = &moves[rank] };
	return part_start(rank, &parts[rank]);
}

static void prepare(void)
{
	for (unsigned r = 0; r < 2; r++) {
		memory[r] = here->alloc(rank_device(r), SIZE);
		memset(memory[r], 5 + (int)r, SIZE);
		moves[r] = (struct collective_move){ r == 0, !r, SIZE, memory[r] };
	}
}

static void put_away(void)
{
	for (unsigned r = 0; r < 2; r++)
		here->free(memory[r]);
}

static void expect_failed(unsigned rank, int rc, const char *text)
{
	struct collective_about about;

	ck_assert_int_eq(collective_nccl.state(ranks[rank]), rc);
	collective_nccl.about(ranks[rank], &about);
	ck_assert_msg(strstr(about.error, text) != NULL, "%s", about.error);
}

/* ---- what is called, and where ---- */

static struct nccl_stub_call calls[CALLS];
static unsigned ncalls;

static void take_calls(void)
{
	ncalls = nccl_stub_calls(calls, CALLS);
	ck_assert_uint_le(ncalls, CALLS);
}

START_TEST(a_launch_is_one_group_in_the_trainers_thread)
{
	static const char *const expected[] = { "GroupStart", "Send", "GroupEnd" };

	prepare();
	ck_assert_int_eq(start(0), 0);
	take_calls();
	ck_assert_uint_eq(ncalls, ARRAY_SIZE(expected));
	for (unsigned i = 0; i < ncalls; i++) {
		ck_assert_str_eq(calls[i].name, expected[i]);
		ck_assert(calls[i].trainers && !calls[i].signals);
		ck_assert_int_eq(calls[i].device, rank_device(0));
	}
	ck_assert_ptr_nonnull(calls[1].stream);
	ck_assert_int_eq(calls[1].peer, 1);
	ck_assert_uint_eq(calls[1].size, SIZE);
	ck_assert_int_eq(start(1), 0);
	ck_assert_int_eq(part_wait(&parts[0]), 0);
	ck_assert_int_eq(part_wait(&parts[1]), 0);
	put_away();
}
END_TEST

static void wait_for_call(unsigned (*count)(const char *name), const char *name)
{
	for (uint64_t end = monotonic_ms() + 60000; !count(name);) {
		ck_assert_uint_lt(monotonic_ms(), end);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

/* In any thread. */
static unsigned count_cuda(const char *name)
{
	return stub_count(name, true) + stub_count(name, false);
}

START_TEST(its_stream_waits_for_the_event_before_and_has_one_after)
{
	static const char *const expected[] = { "StreamWaitEvent", "EventRecord" };
	static struct stub_call all[CALLS];
	struct device_event *event;
	void *stream = NULL;
	unsigned n, k = 0;

	prepare();
	ck_assert_int_eq(here->ops->mark(device, 0, NULL, &event), 0);
	reset();
	parts[0].io = (struct collective_io){ .nmoves = 1, .moves = &moves[0], .after = event };
	ck_assert_int_eq(part_start(0, &parts[0]), 0);
	wait_for_call(count_cuda, "EventRecord"); /* later, where NCCL's thread is slow */
	n = stub_calls(all, CALLS);
	for (unsigned i = 0; i < n; i++)
		for (unsigned j = 0; j < ARRAY_SIZE(expected); j++)
			if (!strcmp(all[i].name, expected[j])) {
				ck_assert_uint_lt(k, ARRAY_SIZE(expected));
				ck_assert_str_eq(all[i].name, expected[k++]);
				ck_assert(all[i].stream &&
					  (!stream || stream == all[i].stream));
				stream = all[i].stream;
			}
	ck_assert_uint_eq(k, ARRAY_SIZE(expected));
	ck_assert_int_eq(start(1), 0);
	ck_assert_int_eq(part_wait(&parts[0]), 0);
	ck_assert_int_eq(part_wait(&parts[1]), 0);
	here->ops->unmark(device, event);
	put_away();
}
END_TEST

START_TEST(equal_pieces_are_one_call)
{
	struct part p[RANKS_MAX];
	uint8_t *to[RANKS_MAX];

	for (unsigned r = 0; r < nccl.nranks; r++) {
		to[r] = here->alloc(rank_device(r), nccl.nranks * SIZE);
		p[r].io = (struct collective_io){ .what = COLLECTIVE_GATHER_ALL,
						  .from = to[r] + r * SIZE,
						  .to = to[r],
						  .size = SIZE };
		ck_assert_int_eq(part_start(r, &p[r]), 0);
	}
	for (unsigned r = 0; r < nccl.nranks; r++)
		ck_assert_int_eq(part_wait(&p[r]), 0);
	ck_assert_uint_eq(nccl_stub_count("AllGather"), nccl.nranks);
	ck_assert_uint_eq(nccl_stub_count("Send"), 0);
	for (unsigned r = 0; r < nccl.nranks; r++)
		here->free(to[r]);
}
END_TEST

START_TEST(nothing_is_left_to_enqueue_when_nothing_moves)
{
	struct part p = { .io = { .nmoves = 0 } };

	ck_assert_int_eq(part_start(0, &p), 0);
	ck_assert_int_eq(part_wait(&p), 0);
}
END_TEST

START_TEST(the_trainers_device_stays)
{
	struct part p = { .io = { .nmoves = 0 } };

	ck_assert_int_eq(rank_device(1), 1);
	ck_assert_int_eq(part_start(1, &p), 0);
	ck_assert_int_eq(part_wait(&p), 0);
	take_calls();
	ck_assert_int_eq(calls[0].device, 1);
	nccl_stub_reset();
	ck_assert_int_eq(part_start(0, &p), 0);
	ck_assert_int_eq(part_wait(&p), 0);
	take_calls();
	ck_assert_int_eq(calls[0].device, 0);
}
END_TEST

START_TEST(a_communicator_is_small_and_does_not_block)
{
	ncclConfig_t config = nccl_stub_config();

	ck_assert_int_eq(config.blocking, 0);
	ck_assert_int_eq(config.minCTAs, 1);
	ck_assert_int_eq(config.maxCTAs, 2);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	ck_assert_str_eq(config.commName, "fragfs");
	ck_assert_int_eq(config.CTAPolicy, NCCL_CTA_POLICY_EFFICIENCY);
#endif
}
END_TEST

/* From its opening on no call is the trainer's, and each rank sends to all and hears from all
 * once.
 */
START_TEST(all_pairs_are_warm_when_it_is_ready)
{
	unsigned n = nccl.nranks;

	reset();
	many_open();
	take_calls();
	for (unsigned i = 0; i < ncalls; i++)
		ck_assert(!calls[i].trainers);
	ck_assert_uint_eq(nccl_stub_count("Send"), n * n);
	ck_assert_uint_eq(nccl_stub_count("Recv"), n * n);
	ck_assert_uint_eq(nccl_stub_count("AllGather"), n);
	ck_assert_uint_eq(nccl_stub_count("GetUniqueId"), 1);
	ck_assert_uint_eq(nccl_stub_left(), n);
	many_close();
	ck_assert_uint_eq(nccl_stub_count("CommFinalize"), n);
	ck_assert_uint_eq(nccl_stub_count("CommDestroy"), n);
	ck_assert_uint_eq(nccl_stub_count("CommAbort"), 0);
	ck_assert_uint_eq(nccl_stub_left(), 0);
}
END_TEST

/* ---- what takes long ---- */

START_TEST(what_nccl_has_not_enqueued_is_not_waited_for)
{
	prepare();
	nccl_stub_stall(true);
	ck_assert_int_eq(start(0), 0);
	ck_assert_int_eq(start(1), 0);
	ck_assert(!part_is_over(&parts[0]) && !part_is_over(&parts[1]));
	ck_assert_uint_eq(stub_count("EventRecord", true), 0);
	nccl_stub_stall(false);
	ck_assert_int_eq(part_wait(&parts[0]), 0);
	ck_assert_int_eq(part_wait(&parts[1]), 0);
	ck_assert_uint_eq(stub_count("EventRecord", false), 2);
	ck_assert_mem_eq(memory[0], memory[1], SIZE);
	put_away();
}
END_TEST

START_TEST(nothing_is_launched_behind_what_is_not_enqueued)
{
	struct part second = { .io = { .nmoves = 0 } };

	prepare();
	nccl_stub_stall(true);
	ck_assert_int_eq(start(0), 0);
	ck_assert_int_eq(part_start(0, &second), -ETIMEDOUT);
	ck_assert_int_eq(part_wait(&parts[0]), -ETIMEDOUT);
	expect_failed(0, -ETIMEDOUT, "has not enqueued");
	put_away();
}
END_TEST

START_TEST(an_error_that_comes_later_fails_it)
{
	prepare();
	ck_assert_int_eq(start(1), 0);
	nccl_stub_break(ncclRemoteError);
	ck_assert_int_eq(part_wait(&parts[1]), -EIO);
	expect_failed(1, -EIO, "an error of the stub: and more of it");
	ck_assert_uint_eq(nccl_stub_count("CommAbort"), 1);
	ck_assert_int_eq(start(1), -EIO);
	put_away();
}
END_TEST

START_TEST(an_abort_that_does_not_return_is_left_behind)
{
	uint64_t began = monotonic_ms();

	prepare();
	ck_assert_int_eq(start(1), 0);
	nccl_stub_hang("CommAbort");
	collective_nccl.abort(ranks[1]);
	ck_assert_int_eq(part_wait(&parts[1]), -EIO);
	ck_assert_uint_ge(monotonic_ms() - began, nccl.end_ms);
	expect_failed(1, -ECANCELED, "aborted");
	many_close();
	ck_assert_uint_eq(nccl_stub_left(), 1);
	nccl_stub_hang(NULL);
	while (nccl_stub_left())
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	many_open();
	put_away();
}
END_TEST

static void *launch_from_elsewhere(void *arg)
{
	*(int *)arg = start(1);
	return NULL;
}

static void wait_until_over(unsigned rank)
{
	for (uint64_t end = monotonic_ms() + 60000; !collective_nccl.is_over(ranks[rank]);) {
		ck_assert_uint_lt(monotonic_ms(), end);
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
}

START_TEST(a_launch_that_does_not_return_holds_up_nobody_else)
{
	struct part before = { .io = { .nmoves = 1, .moves = &moves[1] } };
	pthread_t thread;
	int result;

	prepare();
	ck_assert_int_eq(part_start(1, &before), 0);
	reset();
	nccl_stub_hang("GroupEnd");
	ck_assert_int_eq(thread_start(&thread, launch_from_elsewhere, &result), 0);
	wait_for_call(nccl_stub_count, "GroupEnd");
	ck_assert_int_eq(collective_nccl.state(ranks[1]), 0);
	collective_nccl.abort(ranks[1]);
	ck_assert_int_eq(part_wait(&before), -EIO);
	expect_failed(1, -ECANCELED, "aborted");
	wait_until_over(1);
	nccl_stub_hang(NULL);
	pthread_join(thread, NULL);
	ck_assert_int_eq(result, -ECANCELED);
	put_away();
}
END_TEST

/* Whichever call it is. */
START_TEST(opening_that_does_not_return_is_left_behind)
{
	static const char *const names[] = { "GetVersion", "GetUniqueId", "CommInitRankConfig",
					     "Send", "AllGather" };
	uint64_t began = monotonic_ms();

	reset();
	port_open();
	nccl_stub_hang(names[_i]);
	ck_assert_int_eq(
		collective_nccl.open(&ranks[0],
				     &(struct collective_options){ .device = device,
								   .library = "libnccl-stub.so",
								   .open_ms = 100,
								   .end_ms = 100 },
				     0, 1, NULL),
		0);
	ck_assert_int_eq(rank_opened(0), -ETIMEDOUT);
	ranks_close(1);
	ck_assert_uint_lt(monotonic_ms() - began, 10000);
	nccl_stub_hang(NULL);
	port_close();
}
END_TEST

START_TEST(warming_up_is_not_waited_for_for_ever)
{
	struct collective_options o = { .library = "libnccl-stub.so",
					.open_ms = 3000, /* what goes before is done by then */
					.end_ms = 100 };

	reset();
	port_open();
	o.device = device;
	stub_stall(true);
	ck_assert_int_eq(collective_nccl.open(&ranks[0], &o, 0, 1, NULL), 0);
	ck_assert_int_eq(rank_opened(0), -ETIMEDOUT);
	expect_failed(0, -ETIMEDOUT, "not all ranks have warmed up");
	ranks_close(1);
	stub_stall(false);
	port_close();
}
END_TEST

/* ---- what is missing ---- */

static int open_alone(const char *library)
{
	struct collective_options o = collective_test_options;

	o.library = library;
	o.device = device;
	return collective_nccl.open(&ranks[0], &o, 0, 1, NULL);
}

static const struct {
	const char *library, *lacking, *text;
	int version;
} missing[] = {
	{ "/nonexistent/libnccl.so.2", NULL, "no NCCL: /nonexistent", 0 },
	{ "libnccl-stub.so", "ncclCommGetAsyncError", "it has no ncclCommGetAsyncError", 0 },
	{ "libnccl-stub.so", NULL, "NCCL 21700 is older than 21800", 21700 },
};

START_TEST(what_is_missing_is_said)
{
	struct collective_id id;

	reset();
	port_open();
	if (missing[_i].version)
		nccl_stub_version(missing[_i].version);
	lacking = missing[_i].lacking;
	ck_assert_int_eq(open_alone(missing[_i].library), 0);
	ck_assert_int_eq(rank_opened(0), -ENODEV);
	lacking = NULL;
	ck_assert_int_eq(collective_nccl.id(ranks[0], &id), -ENODEV);
	expect_failed(0, -ENODEV, missing[_i].text);
	ranks_close(1);
	port_close();
}
END_TEST

START_TEST(a_device_that_is_not_in_use_is_refused)
{
	struct collective_options o = collective_test_options;

	reset();
	ck_assert_int_eq(collective_nccl.open(&ranks[0], &o, 0, 1, NULL), -EINVAL);
	ck_assert_int_eq(device_cuda.open(&device, &device_test_options), 0);
	o.device = device;
	ck_assert_int_eq(collective_nccl.open(&ranks[0], &o, 0, 1, NULL), -EINVAL);
	device_cuda.close(device);
}
END_TEST

START_TEST(without_memory_or_threads_it_is_not_opened)
{
	unsigned n = 0, failed;
	int rc;

	reset();
	port_open();
	do {
		scarce_begin(++n, 1);
		rc = open_alone("libnccl-stub.so");
		failed = scarce_end();
		ck_assert_int_eq(rc, failed ? n < 3 ? -ENOMEM : -EAGAIN : 0);
	} while (failed);
	ck_assert_uint_eq(n, 4);
	ck_assert_int_eq(rank_opened(0), 0);
	ranks_close(1);
	port_close();
}
END_TEST

/* ---- each call fails once ---- */

static const char *const nccl_calls[] = { "GetVersion",  "GetUniqueId", "CommInitRankConfig",
					  "GroupStart",  "Send",        "Recv",
					  "GroupEnd",    "AllGather",   "CommFinalize",
					  "CommDestroy", "CommAbort" };

static void send_to_itself(void)
{
	const struct collective_move both[] = { { true, 0, SIZE, memory[0] },
						{ false, 0, SIZE, memory[1] } };
	struct part p = { .io = { .nmoves = 2, .moves = both } };

	memset(memory[1], 0, SIZE);
	if (!part_start(0, &p) && !part_wait(&p))
		ck_assert_mem_eq(memory[0], memory[1], SIZE);
}

/* All that there is, on one rank. */
static void try_all(void)
{
	struct collective_id id;

	ck_assert_int_eq(open_alone("libnccl-stub.so"), 0);
	if (!rank_opened(0)) {
		send_to_itself();
		send_to_itself();
	} else {
		collective_nccl.id(ranks[0], &id);
	}
	ranks_close(1);
}

static void prepare_alone(void)
{
	port_open();
	for (unsigned i = 0; i < 2; i++)
		memory[i] = here->alloc(0, SIZE);
	memset(memory[0], 7, SIZE);
}

START_TEST(each_call_of_nccl_fails_once)
{
	setenv("FRAG_LOG", "error", 1);
	prepare_alone();
	for (unsigned nth = 1; nth < 4; nth++) {
		unsigned before = stub_left();

		reset();
		nccl_stub_fail(nccl_calls[_i], nth, ncclInternalError);
		try_all();
		ck_assert_uint_eq(nccl_stub_left(), 0);
		ck_assert_uint_le(stub_left(), before + 4); /* idle events of the device's */
	}
	put_away();
	port_close();
}
END_TEST

START_TEST(each_call_of_the_runtime_fails_once)
{
	unsigned nth = 0;

	setenv("FRAG_LOG", "error", 1);
	prepare_alone();
	do {
		reset();
		stub_fail(NULL, ++nth, cudaErrorUnknown);
		try_all();
		ck_assert_uint_eq(nccl_stub_left(), 0);
	} while (stub_has_failed());
	ck_assert_uint_gt(nth, 20);
	reset();
	put_away();
	port_close();
}
END_TEST

static unsigned times_said(const char *what)
{
	CLEANUP(free) char *text = log_text();
	unsigned n = 0;

	for (const char *at = text; (at = strstr(at, what)); at++)
		n++;
	return n;
}

/* The first failure is a warning; the next ones, for the same reason, are of level info. */
START_TEST(a_communicator_that_fails_again_and_again_warns_once)
{
	reset();
	port_open();
	for (unsigned i = 0; i < 6; i++) {
		nccl_stub_fail("CommInitRankConfig", 1, ncclInternalError);
		ck_assert_int_eq(open_alone("libnccl-stub.so"), 0);
		ck_assert_int_ne(rank_opened(0), 0);
		ranks_close(1);
		reset();
	}
	ck_assert_uint_eq(times_said("nccl: rank 0 of 1: "), 6);
	ck_assert_uint_eq(times_said("fragfs: warn: "), 1);
	port_close();
}
END_TEST

/* ---- all ---- */

static TCase *operations(void)
{
	TCase *c = tcase_create("operations");

	tcase_add_checked_fixture(c, reset_and_open, close_all);
	tcase_add_test(c, a_launch_is_one_group_in_the_trainers_thread);
	tcase_add_test(c, its_stream_waits_for_the_event_before_and_has_one_after);
	tcase_add_test(c, equal_pieces_are_one_call);
	tcase_add_test(c, nothing_is_left_to_enqueue_when_nothing_moves);
	tcase_add_test(c, the_trainers_device_stays);
	tcase_add_test(c, a_communicator_is_small_and_does_not_block);
	tcase_add_test(c, what_nccl_has_not_enqueued_is_not_waited_for);
	tcase_add_test(c, nothing_is_launched_behind_what_is_not_enqueued);
	tcase_add_test(c, an_error_that_comes_later_fails_it);
	tcase_add_test(c, an_abort_that_does_not_return_is_left_behind);
	tcase_add_test(c, a_launch_that_does_not_return_holds_up_nobody_else);
	return c;
}

static TCase *lives(void)
{
	TCase *c = tcase_create("lives");

	tcase_set_timeout(c, 60);
	tcase_add_test(c, all_pairs_are_warm_when_it_is_ready);
	tcase_add_loop_test(c, opening_that_does_not_return_is_left_behind, 0, 5);
	tcase_add_test(c, warming_up_is_not_waited_for_for_ever);
	tcase_add_loop_test(c, what_is_missing_is_said, 0, ARRAY_SIZE(missing));
	tcase_add_test(c, a_device_that_is_not_in_use_is_refused);
	tcase_add_test(c, without_memory_or_threads_it_is_not_opened);
	tcase_add_loop_test(c, each_call_of_nccl_fails_once, 0, ARRAY_SIZE(nccl_calls));
	tcase_add_test(c, each_call_of_the_runtime_fails_once);
	tcase_add_test(c, a_communicator_that_fails_again_and_again_warns_once);
	return c;
}

int main(void)
{
	TCase *const more[] = { operations(), lives(), NULL };
	const char *why;

	reset();
	why = trainer_cuda_load("libcudart-stub.so");
	if (why) {
		printf("the stub: %s\n", why);
		return 1;
	}
	collective_test_options.library = "libnccl-stub.so";
	return collective_suite_run(&nccl, more);
}

#endif

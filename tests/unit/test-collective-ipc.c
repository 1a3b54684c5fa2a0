/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/collective-ipc.h"
#include "engine/device-host.h"
#include "engine/log.h"
#include "engine/thread.h"
#include "tests/cuda/collective-suite.h"
#include "tests/cuda/mappings.h"
#include "tests/ranks/scarce.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* The suite over collective-ipc.c, in chunks that are small, with devices of ordinary memory; and how it fails. */

enum { SIZE = 100000, WAIT_MS = 30000 };

static const struct many ipc = { &collective_ipc, &trainer_host, 3, 1000 };

/* ---- a device whose operations fail or hang ---- */

static struct device_ops faulty;        /* all as device_host's, counted, but what follows */
static int faulty_number = DEVICE_NONE; /* of the one device that fails; DEVICE_NONE: all do */
static int share_result, map_result;
static _Atomic bool hangs, hung, map_hangs, forgets_events;
static _Atomic unsigned maps, unmaps, empty_maps;
static _Atomic(struct device_io *) swallowed;

static void wait_until(const _Atomic bool *what, bool value)
{
	uint64_t end = monotonic_ms() + WAIT_MS;

	while (atomic_load(what) != value && monotonic_ms() < end)
		short_pause();
	ck_assert(atomic_load(what) == value);
}

static bool is_faulty(int number)
{
	return faulty_number == DEVICE_NONE || faulty_number == number;
}

static int faulty_share(struct device *d, int number, uint64_t size, void **memory,
			struct device_handle *handle)
{
	if (!is_faulty(number))
		return here->ops->share(d, number, size, memory, handle);
	atomic_store(&hung, true);
	wait_until(&hangs, false);
	return share_result ? share_result : here->ops->share(d, number, size, memory, handle);
}

static int faulty_map(struct device *d, int number, const struct device_handle *handle,
		      void **memory)
{
	static const struct device_handle none;

	if (!memcmp(handle, &none, sizeof(none)))
		atomic_fetch_add(&empty_maps, 1);
	if (!is_faulty(number))
		return here->ops->map(d, number, handle, memory);
	atomic_fetch_add(&maps, 1);
	wait_until(&map_hangs, false);
	return map_result ? map_result : here->ops->map(d, number, handle, memory);
}

static void faulty_unmap(struct device *d, int number, void *memory)
{
	here->ops->unmap(d, number, memory);
	if (is_faulty(number))
		atomic_fetch_add(&unmaps, 1);
}

static void faulty_submit(struct device *d, struct device_io *io)
{
	struct device_io *none = NULL;

	if (atomic_load(&forgets_events) && io->after)
		io->done(io, -EIO);
	else if (!atomic_load(&hangs) || !atomic_compare_exchange_strong(&swallowed, &none, io))
		here->ops->submit(d, io);
}

static struct collective_options faulty_options(unsigned rank)
{
	struct collective_options o = options_of(rank);

	o.device_ops = &faulty;
	return o;
}

static void open_faulty(unsigned nranks)
{
	struct collective_id id;

	faulty = *here->ops;
	faulty.share = faulty_share;
	faulty.map = faulty_map;
	faulty.unmap = faulty_unmap;
	faulty.submit = faulty_submit;
	port_open();
	for (unsigned r = 0; r < nranks; r++) {
		struct collective_options o = faulty_options(r);

		ck_assert_int_eq(collective_ipc.open(&ranks[r], &o, r, nranks, r ? &id : NULL),
				 0);
		id = wait_for_id(ranks[0]);
	}
}

static void expect_error(unsigned rank, int rc, const char *text)
{
	struct collective_about about;

	collective_ipc.about(ranks[rank], &about);
	ck_assert_int_eq(about.state, rc);
	ck_assert_msg(strstr(about.error, text) != NULL, "%s", about.error);
}

/* What it had comes back when it returns; until then nobody waits for it. */
START_TEST(a_device_that_does_not_return_from_sharing_is_left)
{
	collective_test_options.open_ms = collective_test_options.end_ms = 100;
	atomic_store(&hangs, true);
	open_faulty(1);
	wait_until(&hung, true);
	ck_assert_int_eq(rank_opened(0), -ETIMEDOUT);
	expect_error(0, -ETIMEDOUT, "does not return");
	ranks_close(1);
	atomic_store(&hangs, false);
	port_close();
}
END_TEST

static void expect_over(unsigned rank)
{
	uint64_t end = monotonic_ms() + WAIT_MS;

	while (!collective_ipc.is_over(ranks[rank]) && monotonic_ms() < end)
		short_pause();
	ck_assert(collective_ipc.is_over(ranks[rank]));
}

/* Who waits for it looks without a pause: it must not be ready for a moment. */
static int opened_at_once(unsigned rank)
{
	uint64_t end = monotonic_ms() + WAIT_MS;
	int rc;

	while ((rc = collective_ipc.state(ranks[rank])) == -EINPROGRESS && monotonic_ms() < end)
		;
	return rc;
}

START_TEST(none_is_ready_while_one_cannot_share_or_map)
{
	unsigned failing = _i / 2;

	faulty_number = rank_device(failing);
	*(_i % 2 ? &map_result : &share_result) = -EOPNOTSUPP;
	atomic_store(&hangs, true);
	open_faulty(2);
	atomic_store(&hangs, false);
	ck_assert_int_eq(opened_at_once(!failing), -EIO);
	expect_error(!failing, -EIO, failing ? "rank 1 has left" : "rank 0 has left");
	ck_assert_int_eq(rank_opened(failing), -EOPNOTSUPP);
	expect_error(failing, -EOPNOTSUPP, _i % 2 ? "does not reach that of" : "to share");
	ck_assert_uint_eq(atomic_load(&empty_maps), 0);
	ranks_close(2);
	port_close();
}
END_TEST

/* What that had is freed: nobody had it mapped. */
START_TEST(one_that_comes_late_maps_nothing_of_who_has_left)
{
	faulty_number = rank_device(1);
	atomic_store(&hangs, true);
	open_faulty(2);
	wait_until(&hung, true);
	collective_ipc.abort(ranks[0]);
	expect_over(0);
	atomic_store(&hangs, false);
	ck_assert_int_eq(rank_opened(1), -EIO);
	expect_error(1, -EIO, "rank 0 has left");
	expect_over(1);
	ck_assert_uint_eq(atomic_load(&maps), 0);
	ranks_close(2);
	port_close();
}
END_TEST

static void wait_until_shared(unsigned n)
{
	uint64_t end = monotonic_ms() + WAIT_MS;

	while (mappings_shared() != n && monotonic_ms() < end)
		short_pause();
	ck_assert_uint_eq(mappings_shared(), n);
}

/* What it had mapped it unmaps when it returns, and others free it then, unless they have forgotten it. */
START_TEST(an_opening_that_was_left_maps_no_more)
{
	collective_test_options.end_ms = 2000; /* others let go within that */
	faulty_number = rank_device(1);
	atomic_store(&map_hangs, true);
	open_faulty(3);
	for (uint64_t end = monotonic_ms() + WAIT_MS;
	     !atomic_load(&maps) && monotonic_ms() < end;)
		short_pause();
	collective_ipc.abort(ranks[1]);
	ranks_close(3);
	if (_i)
		collective_ipc_forget(device);
	atomic_store(&map_hangs, false);
	for (uint64_t end = monotonic_ms() + WAIT_MS;
	     !atomic_load(&unmaps) && monotonic_ms() < end;)
		short_pause();
	ck_assert_uint_eq(atomic_load(&maps), 1);
	ck_assert_uint_eq(atomic_load(&unmaps), 1);
	wait_until_shared(_i ? 2 : 0);
	ranks_open(1);
	expect_ready(1);
	ranks_close(1);
	ck_assert_uint_eq(mappings_shared(), _i ? 2 : 0);
	port_close();
}
END_TEST

START_TEST(a_stage_does_not_go_back)
{
	struct collective c = { .life.about.nranks = 1 };

	ck_assert_int_eq(ipc_hall_enter(&c, 0, 1, NULL), 0);
	ipc_set_stage(&c, IPC_LEAVING);
	ipc_set_stage(&c, IPC_READY);
	ck_assert_int_eq(ipc_stage(&c, 0), IPC_LEAVING);
	ipc_set_stage(&c, IPC_GONE);
	ck_assert_int_eq(ipc_stage(&c, 0), IPC_GONE);
	ipc_hall_leave(&c);
}
END_TEST

static struct collective_move moves[2];

static void start_to_itself(struct part *p, void *memory)
{
	moves[0] = (struct collective_move){ true, 0, SIZE, memory };
	moves[1] = (struct collective_move){ false, 0, SIZE, (uint8_t *)memory + SIZE };
	start_moves(0, p, moves, 2);
}

START_TEST(a_copy_that_does_not_end_is_left)
{
	struct part p;
	void *memory;
	char text[4096];

	collective_test_options.stuck_ms = collective_test_options.end_ms = 100;
	open_faulty(1);
	ck_assert_int_eq(rank_opened(0), 0);
	memory = here->alloc(0, 2 * SIZE);
	atomic_store(&hangs, true);
	start_to_itself(&p, memory);
	ck_assert_int_eq(part_wait(&p), -EIO);
	expect_error(0, -ETIMEDOUT, "has not done its part");
	log_tail(text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "does not let go of what it was given"));
	ranks_close(1);
	here->ops->submit(device, atomic_load(&swallowed)); /* it ends at last */
	port_close();
	here->free(memory);
}
END_TEST

START_TEST(a_device_that_fails_fails_it)
{
	struct part p;
	uint8_t *memory;

	memory = here->alloc(0, 2 * SIZE);
	start_to_itself(&p, memory);
	expect_done(&p, 1);
	moves[1].size = moves[0].size =
		2 * SIZE; /* its ends are the device's, the middle is not */
	moves[1].memory = memory;
	here->free(memory);
	memory = malloc(2 * SIZE);
	ck_assert_int_eq(device_host_give(device, 0, memory, 1), 0);
	ck_assert_int_eq(device_host_give(device, 0, memory + 2 * SIZE - 1, 1), 0);
	moves[0].memory = moves[1].memory = memory;
	start_moves(0, &p, moves, 2);
	ck_assert_int_eq(part_wait(&p), -EIO);
	expect_error(0, -EIO, "device 0 failed");
	device_host_take(device, memory);
	device_host_take(device, memory + 2 * SIZE - 1);
	free(memory);
}
END_TEST

START_TEST(a_device_that_forgets_an_event_fails_it)
{
	struct part p = { .io = { .nmoves = 0 } };

	open_faulty(1);
	ck_assert_int_eq(rank_opened(0), 0);
	ck_assert_int_eq(here->ops->mark(device, 0, NULL, &p.io.after), 0);
	atomic_store(&forgets_events, true);
	ck_assert_int_eq(part_start(0, &p), 0);
	ck_assert_int_eq(part_wait(&p), -EIO);
	expect_error(0, -EIO, "device 0 failed");
	here->ops->unmark(device, p.io.after);
	ranks_close(1);
	port_close();
}
END_TEST

/* ---- others ---- */

static void expect_to_hear(unsigned rank, const char *text)
{
	uint64_t end = monotonic_ms() + WAIT_MS;

	while (!collective_ipc.state(ranks[rank]) && monotonic_ms() < end)
		short_pause();
	expect_error(rank, -EIO, text);
}

START_TEST(sizes_that_differ_fail_it)
{
	uint8_t *a = here->alloc(0, SIZE), *b = here->alloc(1, SIZE);
	const struct collective_move send = { true, 1, SIZE, a };
	const struct collective_move receive = { false, 0, SIZE - 1, b };
	struct part p[2];

	start_moves(0, &p[0], &send, 1);
	start_moves(1, &p[1], &receive, 1);
	ck_assert_int_eq(part_wait(&p[1]), -EIO);
	expect_error(1, -EIO, "a size is not that of rank 0");
	ck_assert_int_eq(part_wait(&p[0]), -EIO);
	expect_error(0, -EIO, "rank 1 has left");
	here->free(a);
	here->free(b);
}
END_TEST

START_TEST(who_leaves_is_heard_of)
{
	collective_ipc.abort(ranks[1]);
	expect_to_hear(0, "has left");
	expect_to_hear(2, "has left");
	for (unsigned r = 0; r < 3; r++)
		expect_over(r);
}
END_TEST

static void *close_first(void *unused)
{
	collective_ipc.close(ranks[0]);
	return NULL;
}

static void wait_until_unmapped(int number)
{
	uint64_t end = monotonic_ms() + WAIT_MS;

	while (mappings_of(number) && monotonic_ms() < end)
		short_pause();
	ck_assert_uint_eq(mappings_of(number), 0);
}

/* Who hears of that with nothing under way leaves too, and what it has sent is in its slots. */
START_TEST(one_is_closed_while_others_are_busy)
{
	enum { SMALL = 10000 };
	uint8_t *from, *to;
	void *stream;
	struct part p[2];
	struct collective_move m[2];
	pthread_t thread;

	many_open();
	from = device_bytes(1, SMALL);
	to = here->alloc(rank_device(2), SMALL);
	stream = here->stream_new(rank_device(2));
	m[0] = (struct collective_move){ true, 2, SMALL, from };
	m[1] = (struct collective_move){ false, 1, SMALL, to };
	here->hold(stream);
	p[0].io = (struct collective_io){ .nmoves = 1, .moves = &m[1] };
	ck_assert_int_eq(here->ops->mark(device, rank_device(2), stream, &p[0].io.after), 0);
	ck_assert_int_eq(part_start(2, &p[0]), 0);
	start_moves(1, &p[1], &m[0], 1);
	expect_done(&p[1], 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, close_first, NULL), 0);
	expect_to_hear(1, "rank 0 has left");
	wait_until_unmapped(rank_device(1));
	here->go(stream);
	expect_done(&p[0], 1);
	expect_on_device(to, 1, 0, SMALL);
	pthread_join(thread, NULL);
	collective_ipc.close(ranks[1]);
	collective_ipc.close(ranks[2]);
	ck_assert_uint_eq(mappings_shared(), 0);
	here->ops->unmark(device, p[0].io.after);
	here->stream_free(stream);
	here->free(from);
	here->free(to);
	port_close();
}
END_TEST

/* In chunks as they are without being told. */
START_TEST(large_moves_go_in_large_chunks)
{
	enum { LARGE = 5 * SIZE * 100 };
	struct collective_move m[2];
	struct part p[2];
	uint8_t *a, *b;

	collective_test_options.staging = 0;
	many_open();
	a = device_bytes(0, LARGE);
	b = here->alloc(1, LARGE);
	m[0] = (struct collective_move){ true, 1, LARGE, a };
	m[1] = (struct collective_move){ false, 0, LARGE, b };
	start_moves(0, &p[0], &m[0], 1);
	start_moves(1, &p[1], &m[1], 1);
	expect_done(p, 2);
	expect_on_device(b, 0, 0, LARGE);
	here->free(a);
	here->free(b);
	many_close();
}
END_TEST

START_TEST(an_id_is_looked_at)
{
	struct collective_options o = options_of(0);
	struct collective_id id, other = { { 0 } };
	struct collective *c;

	id = wait_for_id(ranks[0]);
	ck_assert_int_eq(collective_ipc.open(&c, &o, 0, 3, &other), -EINVAL);
	ck_assert_int_eq(collective_ipc.open(&c, &o, 0, 2, &id), -EINVAL);
	ck_assert_int_eq(collective_ipc.open(&c, &o, 0, 2000, NULL), -EINVAL);
	ck_assert_int_eq(collective_ipc.open(&c, &o, 0, 3, &id), -EIO); /* all have come */
	o.device = NULL;
	ck_assert_int_eq(collective_ipc.open(&c, &o, 0, 3, NULL), -EINVAL);
}
END_TEST

START_TEST(a_place_is_taken_once)
{
	struct collective_options o;
	struct collective_id id;
	struct collective *c;

	port_open();
	open_some(1, 2);
	o = options_of(0);
	id = wait_for_id(ranks[0]);
	ck_assert_int_eq(collective_ipc.open(&c, &o, 0, 2, &id), -EINVAL);
	ranks_close(1);
	port_close();
}
END_TEST

static void ignore(struct collective_io *io, int result)
{
}

static int open_and_launch(void)
{
	struct collective_options o = options_of(0);
	struct part p = { .io = { .nmoves = 0 } };
	struct collective *c;
	int rc = collective_ipc.open(&c, &o, 0, 1, NULL);

	if (rc)
		return rc;
	p.io.done = ignore;
	while ((rc = collective_ipc.state(c)) == -EINPROGRESS)
		short_pause();
	if (!rc)
		rc = collective_ipc.launch(c, &p.io);
	collective_ipc.close(c);
	return rc;
}

static bool is_want(int rc)
{
	return rc == -ENOMEM || rc == -EAGAIN || rc == -EIO;
}

/* What the kernel is only advised of, it may refuse. */
START_TEST(without_memory_or_threads_nothing_is_opened)
{
	unsigned n = 0, failed;
	int rc;

	port_open();
	do {
		scarce_begin(++n, 1);
		rc = open_and_launch();
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && is_want(rc)), "%u: %d", n, rc);
	} while (failed && n < 100);
	ck_assert_uint_gt(n, 6);
	port_close();
}
END_TEST

static TCase *failures(void)
{
	TCase *c = tcase_create("failures");

	tcase_add_checked_fixture(c, many_open, many_close);
	tcase_add_test(c, a_device_that_fails_fails_it);
	tcase_add_test(c, sizes_that_differ_fail_it);
	tcase_add_test(c, who_leaves_is_heard_of);
	tcase_add_test(c, an_id_is_looked_at);
	return c;
}

static TCase *lives(void)
{
	TCase *c = tcase_create("lives");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, none_is_ready_while_one_cannot_share_or_map, 0, 4);
	tcase_add_test(c, one_that_comes_late_maps_nothing_of_who_has_left);
	tcase_add_loop_test(c, an_opening_that_was_left_maps_no_more, 0, 2);
	tcase_add_test(c, a_stage_does_not_go_back);
	tcase_add_test(c, a_device_that_does_not_return_from_sharing_is_left);
	tcase_add_test(c, a_copy_that_does_not_end_is_left);
	tcase_add_test(c, a_device_that_forgets_an_event_fails_it);
	tcase_add_test(c, one_is_closed_while_others_are_busy);
	tcase_add_test(c, large_moves_go_in_large_chunks);
	tcase_add_test(c, a_place_is_taken_once);
	tcase_add_test(c, without_memory_or_threads_nothing_is_opened);
	return c;
}

int main(void)
{
	TCase *const more[] = { failures(), lives(), collective_suite_processes(), NULL };

	collective_test_options.staging = 1;
	return collective_suite_run(&ipc, more);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "tests/unit/swap/read-now.h"
#include "tests/unit/swap/swapped.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* What readers lose, or not, where there is no room, or the disk is silent; and that each wait
 * has an end.
 */

enum { SLICE_FLOATS = PLACED_SLICE / 4, FLOATS = 4 * SLICE_FLOATS };

static struct swapper_state *filled(const char *name, uint64_t floats, uint32_t value)
{
	struct swapper_state *s = placed_add(name, floats);

	placed_fill(s, value);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	return s;
}

static int read_some(struct swapper_state *s, struct swapper_pin *hold, uint64_t slice)
{
	uint8_t out[100];

	return read_now(place, s, hold, slice * PLACED_SLICE, sizeof(out), out);
}

/* -ENOSPC, most likely. */
static int send_slice(struct swapper_state *s, uint64_t slice)
{
	struct swapper_lent *l;
	int rc;

	ck_assert_int_eq(swapper_swap_in(place, s, slice, SWAPPER_WRITE, 20000, &l), 0);
	rc = swapper_swap_out(place, l);
	if (rc)
		swapper_return(place, l);
	return rc;
}

/* ---- what readers do not lose for nothing ---- */

/* The slice itself has the same bytes, under a patch. */
START_TEST(what_the_trainer_needs_too_is_not_taken_from_readers)
{
	struct swapper_state *s, *other;
	struct swapper_pin *h;

	placed_options.capacity = FLOATS * 4;
	placed_options.spare = 4096;
	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	other = placed_add("other", FLOATS);
	ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &h), 0);
	ck_assert_int_eq(swapper_write(place, s, 0, "1234", 4), 0);
	ck_assert_int_eq(swapper_publish(place), 0);
	ck_assert_int_eq(send_slice(other, 0), -ENOSPC);
	ck_assert_uint_eq(placed_figures().evicted, 0);
	ck_assert(placed_is(s, h, 0, FLOATS, 1));
	swapper_unpin(place, h);
	placed_close();
}
END_TEST

/* No ordinary memory that is given up would be enough. */
START_TEST(a_slice_larger_than_spare_memory_takes_none_from_readers)
{
	enum { FEW = 64 };
	struct swapper_state *few, *ballast;
	struct swapper_pin *h;

	placed_options.capacity = PLACED_SLICE;
	placed_options.spare = 4096;
	if (!placed_open(_i))
		return;
	ballast = filled("ballast", SLICE_FLOATS, 7);
	few = placed_add("few", FEW);
	placed_fill(few, 1);
	ck_assert_int_eq(swapper_pin(place, few, 0, FEW * 4, &h), 0);
	placed_fill(few, 2);
	ck_assert_uint_eq(placed_figures().spare, 2 * FEW * 4);
	ck_assert_int_eq(swapper_put(place, ballast, 0, (float[]){ 2 }, 1), 0);
	ck_assert_int_eq(swapper_swap_out_puts(place, ballast), -ENOSPC);
	ck_assert_uint_eq(placed_figures().evicted, 0);
	ck_assert(placed_is(few, h, 0, FEW, 1));
	swapper_unpin(place, h);
	placed_close();
}
END_TEST

static atomic_bool over;

static void *read_on(void *arg)
{
	uintptr_t wrong = 0;

	while (!over) {
		uint32_t values[1000];
		int rc = read_now(place, arg, NULL, 5000, sizeof(values), values);

		wrong += rc || memcmp(values, values + 1, sizeof(values) - 4);
	}
	return (void *)wrong;
}

/* Their buffers go to ordinary memory while they are read. */
START_TEST(readers_of_what_cannot_be_written_see_one_generation)
{
	pthread_t threads[2];
	struct swapper_state *s;
	void *wrong;

	placed_options.spare = 4 * FLOATS * 4;
	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	over = false;
	faulty_begin((struct faulty){ FAULT_ERROR, DISK_WRITE, -EIO, 1, 100000 });
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, s), 0);
	for (uint32_t step = 2; step < 40; step++) {
		placed_fill(s, step);
		if (step % 8 == 0)
			ck_assert_int_eq(swapper_flush(place, 20000), -EIO);
	}
	over = true;
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	faulty_end();
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_eq(placed_figures().spare, 0);
	ck_assert_uint_eq(placed_figures().pinned.lent, 0);
	placed_close();
}
END_TEST

/* ---- the disk is silent ---- */

START_TEST(a_disk_that_is_silent_is_a_timeout_and_may_answer_later)
{
	struct swapper_state *s;
	uint8_t out[100], zeros[100] = { 0 };

	placed_options.wait_ms = 100;
	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	memset(out, 0, sizeof(out));
	faulty_begin((struct faulty){ FAULT_DEAF, DISK_READ, 0, 1, 2 });
	ck_assert_int_eq(swapper_read_newest(place, s, 5, sizeof(out), out), -ETIMEDOUT);
	ck_assert_int_eq(swapper_read_newest(place, s, 5, sizeof(out), out), -ETIMEDOUT);
	swapper_drop(place, s);
	ck_assert_uint_eq(faulty_end(), 2);
	placed_close(); /* waits for both */
	ck_assert_mem_eq(out, zeros, sizeof(out));
}
END_TEST

START_TEST(a_disk_that_stays_silent_is_left)
{
	uint8_t out[100];
	struct swapper_state *s;

	placed_options.wait_ms = 100;
	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	faulty_begin((struct faulty){ FAULT_DEAF, DISK_READ, 0, 1, 1 });
	ck_assert_int_eq(swapper_read_newest(place, s, 5, sizeof(out), out), -ETIMEDOUT);
	swapper_close(place);
	ck_assert(placed_was_said("the disk does not answer: what it has is left to it"));
	ck_assert_uint_eq(faulty_end(), 1);
	placed_close();
}
END_TEST

/* ---- what nobody waits for is canceled ---- */

static void hold_all(enum disk_what what)
{
	faulty_begin((struct faulty){ FAULT_HOLD, what, 0, 1, 1000 });
}

START_TEST(a_read_that_is_canceled_ends_on_a_silent_disk)
{
	struct placed_answer a;
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	hold_all(DISK_READ);
	placed_ask(&a, s, NULL);
	faulty_wait_held(1);
	swapper_read_cancel(&a.read);
	ck_assert_int_eq(placed_answered(&a), -ECANCELED);
	ck_assert_uint_eq(placed_figures().errors, 0);
	ck_assert_uint_eq(faulty_end(), 1);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 1));
	placed_close();
}
END_TEST

/* What was under way when it was canceled comes all the same, and no more. */
START_TEST(a_read_that_is_canceled_begins_no_other_slice)
{
	struct placed_answer a;
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled("fp32", PLACED_SLICE / 2, 1);
	faulty_begin((struct faulty){ FAULT_DEAF, DISK_READ, 0, 1, 1000 });
	placed_ask_at(&a, s, NULL, PLACED_SLICE - sizeof(a.out) / 2);
	faulty_wait_held(1);
	swapper_read_cancel(&a.read);
	ck_assert_uint_eq(faulty_end(), 1);
	ck_assert_int_eq(placed_answered(&a), -ECANCELED);
	placed_close();
}
END_TEST

START_TEST(a_read_that_took_too_long_is_canceled)
{
	struct swapper_state *s;
	uint8_t out[100];

	placed_options.wait_ms = 100;
	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	hold_all(DISK_READ);
	ck_assert_int_eq(swapper_read_newest(place, s, 5, sizeof(out), out), -ETIMEDOUT);
	PLACED_UNTIL(!placed_figures().pins);
	ck_assert_uint_eq(faulty_end(), 1);
	placed_close();
}
END_TEST

START_TEST(a_buffer_comes_back_when_its_slice_is_not_wanted_any_more)
{
	struct swapper_state *s;
	struct swapper_lent *l;

	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	hold_all(DISK_READ);
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ, 20000, &l), 0);
	faulty_wait_held(1);
	swapper_return(place, l);
	PLACED_UNTIL(!placed_figures().pinned.lent);
	ck_assert_uint_eq(placed_figures().errors, 0);
	ck_assert_uint_eq(faulty_end(), 1);
	placed_close();
}
END_TEST

/* Its wait for an answer is two minutes. */
START_TEST(a_place_is_closed_at_once_on_a_silent_disk)
{
	struct swapper_state *s;
	uint64_t begin;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	hold_all(DISK_WRITE);
	placed_fill(s, 1);
	faulty_wait_held(4);
	begin = monotonic_ms();
	placed_close();
	ck_assert_uint_lt(monotonic_ms() - begin, 20000);
	ck_assert(!placed_was_said("does not answer"));
	ck_assert(!placed_was_said("not written"));
	ck_assert_uint_eq(faulty_end(), 4);
}
END_TEST

/* Of what a reader lost meanwhile: its room comes back when the disk answers. */
START_TEST(a_flush_ends_in_its_time)
{
	struct placed_answer a;
	struct swapper_state *s, *other;
	struct swapper_pin *h;
	uint64_t begin;

	placed_options.capacity = 2 * PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = filled("fp32", SLICE_FLOATS, 1);
	ck_assert_int_eq(swapper_pin(place, s, 0, PLACED_SLICE, &h), 0);
	placed_fill(s, 2);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_READ, 0, 1, 1 });
	placed_ask(&a, s, h);
	faulty_wait_held(1);
	other = placed_add("other", SLICE_FLOATS);
	ck_assert_int_eq(swapper_put(place, other, 0, (float[]){ 2 }, 1), 0);
	begin = monotonic_ms();
	ck_assert_int_eq(swapper_flush(place, 200), -ENOSPC);
	ck_assert_uint_lt(monotonic_ms() - begin, 20000);
	faulty_end();
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_int_eq(a.rc, 0);
	swapper_unpin(place, h);
	placed_close();
}
END_TEST

/* The slice was returned before it came, its room taken, its state dropped. */
START_TEST(what_comes_after_all_others_have_gone_is_forgotten)
{
	struct swapper_state *s, *other;
	struct swapper_lent *l;

	placed_options.capacity = PLACED_SLICE;
	placed_options.wait_ms = 100;
	if (!placed_open(_i))
		return;
	s = filled("fp32", SLICE_FLOATS, 1);
	other = placed_add("other", SLICE_FLOATS);
	faulty_begin((struct faulty){ FAULT_DEAF, DISK_READ, 0, 1, 1 });
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ, 20000, &l), 0);
	faulty_wait_held(1);
	swapper_return(place, l);
	ck_assert_int_eq(swapper_clear(place, s), 0);
	ck_assert_int_eq(send_slice(other, 0), -ENOSPC);
	ck_assert_uint_eq(placed_figures().evicted, 1);
	swapper_drop(place, s);
	ck_assert_uint_eq(faulty_end(), 1);
	placed_close();
}
END_TEST

/* ---- what is said ---- */

START_TEST(what_is_lost_is_no_zeros)
{
	struct swapper_state_figures f;
	struct swapper_state *s;

	placed_options.capacity = FLOATS * 4 + PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	for (uint64_t i = 0; i < 2; i++)
		ck_assert_int_eq(send_slice(s, i), 0);
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.lost, PLACED_SLICE);
	ck_assert_uint_eq(f.zeros, 0);
	ck_assert_uint_eq(f.disk, FLOATS * 4 - PLACED_SLICE);
	ck_assert_int_eq(swapper_publish(place), 0);
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.lost, 0);
	placed_close();
}
END_TEST

/* A rate is of the time that something was under way, however much at once. */
START_TEST(what_is_written_at_once_takes_its_time_once)
{
	enum { HELD_MS = 1000 }; /* much longer than it takes to begin and end */
	struct swapper_timer t;
	struct swapper_state *s;
	uint64_t begin;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_WRITE, 0, 1, 4 });
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_int_eq(send_slice(s, i), 0);
	faulty_wait_held(4);
	begin = monotonic_ms();
	while (monotonic_ms() < begin + HELD_MS)
		sched_yield();
	ck_assert_uint_ge(placed_figures().timers[SWAPPER_STATE][SWAPPER_OUT].busy_ns,
			  HELD_MS * 900000ULL);
	ck_assert_uint_eq(faulty_end(), 4);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	t = placed_figures().timers[SWAPPER_STATE][SWAPPER_OUT];
	ck_assert_uint_eq(t.count, 4);
	ck_assert_uint_gt(t.ns, 2 * t.busy_ns);
	ck_assert_uint_le(t.ns, 4 * t.busy_ns);
	placed_close();
}
END_TEST

static unsigned times_said(const char *what)
{
	static char text[65536];
	unsigned n = 0;

	log_tail(text, sizeof(text));
	for (const char *at = text; (at = strstr(at, what)); at++)
		n++;
	return n;
}

START_TEST(a_damaged_slice_is_said_once_however_often_it_is_read)
{
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled("fp32", FLOATS, 1);
	faulty_begin((struct faulty){ FAULT_FLIP, DISK_READ, 0, 1, 1000 });
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(read_some(s, NULL, 2), -EIO);
	ck_assert_uint_eq(times_said("damaged"), 1);
	ck_assert_int_eq(read_some(s, NULL, 3), -EIO);
	ck_assert_uint_eq(times_said(": damaged"), 2);
	ck_assert_uint_eq(faulty_end(), 21);
	ck_assert_uint_eq(placed_figures().damaged, 21);
	ck_assert_uint_eq(placed_figures().errors, 0);
	placed_close();
}
END_TEST

int main(void)
{
	const void *const tests[] = {
		what_the_trainer_needs_too_is_not_taken_from_readers,
		a_slice_larger_than_spare_memory_takes_none_from_readers,
		readers_of_what_cannot_be_written_see_one_generation,
		a_disk_that_is_silent_is_a_timeout_and_may_answer_later,
		a_disk_that_stays_silent_is_left,
		a_read_that_is_canceled_ends_on_a_silent_disk,
		a_read_that_is_canceled_begins_no_other_slice,
		a_read_that_took_too_long_is_canceled,
		a_buffer_comes_back_when_its_slice_is_not_wanted_any_more,
		a_place_is_closed_at_once_on_a_silent_disk,
		a_flush_ends_in_its_time,
		what_comes_after_all_others_have_gone_is_forgotten,
		a_damaged_slice_is_said_once_however_often_it_is_read,
		what_is_lost_is_no_zeros,
		what_is_written_at_once_takes_its_time_once,
	};

	return placed_main("place-room", tests, ARRAY_SIZE(tests));
}

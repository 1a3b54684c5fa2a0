/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/phase.h"
#include "tests/unit/swap/read-now.h"
#include "tests/unit/swap/swapped.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_FLOATS = PLACED_SLICE / 4, FLOATS = 5 * SLICE_FLOATS + 123 };

/* ---- slices ---- */

START_TEST(what_was_never_sent_is_zeros_without_the_disk)
{
	struct swapper_state *s;
	struct swapper_lent *l;
	void *memory;

	if (!placed_open(_i))
		return;
	s = placed_add("exp_avg", FLOATS);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 0));
	ck_assert_int_eq(swapper_swap_in(place, s, 5, SWAPPER_READ, 0, &l), 0);
	ck_assert_int_eq(swapper_wait(place, l, &memory), 0);
	ck_assert_uint_eq(*(uint32_t *)memory, 0);
	swapper_return(place, l);
	ck_assert_uint_eq(placed_figures().file.reads, 0);
	ck_assert_uint_eq(placed_figures().file.file_bytes, 0);
	placed_close();
}
END_TEST

START_TEST(what_is_sent_is_seen_when_published)
{
	struct swapper_state *s;
	struct swapper_lent *l;
	uint32_t *memory, seen[9];

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 1);
	ck_assert_int_eq(swapper_swap_in(place, s, 2, SWAPPER_READ | SWAPPER_WRITE, 0, &l), 0);
	ck_assert_int_eq(swapper_wait(place, l, (void **)&memory), 0);
	ck_assert_uint_eq(memory[7], 1);
	ck_assert_ptr_eq(swapper_memory(place, s, 2 * SLICE_FLOATS + 7, 10), memory + 7);
	memory[7] = 3;
	ck_assert_int_eq(
		swapper_read_newest(place, s, (2 * SLICE_FLOATS - 1) * 4, sizeof(seen), seen),
		0);
	ck_assert_uint_eq(seen[0], 1);
	ck_assert_uint_eq(seen[8], 3);
	ck_assert_int_eq(swapper_read_newest(place, s, FLOATS * 4, 1, seen), -EINVAL);
	ck_assert_ptr_null(swapper_memory(place, s, 3 * SLICE_FLOATS - 1, 2));
	ck_assert_ptr_null(swapper_memory(place, s, 0, 1));
	for (int i = 0; i < SLICE_FLOATS; i++)
		memory[i] = 2;
	ck_assert(placed_is(s, NULL, 0, FLOATS, 1));
	ck_assert_int_eq(swapper_swap_out(place, l), 0);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 1));
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 2 * SLICE_FLOATS, SLICE_FLOATS, 2));
	ck_assert(placed_is(s, NULL, 0, 2 * SLICE_FLOATS, 1));
	placed_close();
}
END_TEST

START_TEST(a_slice_is_lent_once)
{
	struct swapper_state *s;
	struct swapper_lent *l, *other;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	ck_assert_int_eq(swapper_swap_in(place, s, 6, SWAPPER_READ, 0, &l), -EINVAL);
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ, 0, &l), 0);
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ, 0, &other), -EBUSY);
	ck_assert_int_eq(swapper_clear(place, s), -EBUSY);
	swapper_return(place, l);
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ, 0, &l), 0);
	swapper_return(place, l);
	placed_close();
}
END_TEST

START_TEST(when_all_buffers_are_lent_the_caller_is_told)
{
	struct swapper_lent *l[8], *more;
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", 20 * SLICE_FLOATS);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(swapper_swap_in(place, s, i, SWAPPER_READ, 0, &l[i]), 0);
	ck_assert_int_eq(swapper_swap_in(place, s, 8, SWAPPER_READ, 1000, &more), -ENOBUFS);
	/* One that is being written comes back. */
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_WRITE, 0, 1, 1 });
	ck_assert_int_eq(swapper_swap_out(place, l[3]), 0);
	faulty_wait_held(1);
	ck_assert_int_eq(swapper_swap_in(place, s, 8, SWAPPER_READ, 0, &more), -EAGAIN);
	ck_assert_int_eq(swapper_swap_in(place, s, 8, SWAPPER_READ, 20, &more), -ETIMEDOUT);
	ck_assert_uint_eq(faulty_end(), 1);
	ck_assert_int_eq(swapper_swap_in(place, s, 8, SWAPPER_READ, 20000, &l[3]), 0);
	for (unsigned i = 0; i < 8; i++)
		swapper_return(place, l[i]);
	ck_assert_uint_eq(placed_figures().pinned.lent, 0);
	placed_close();
}
END_TEST

/* While it is written, and when it is brought in again meanwhile. */
START_TEST(what_is_being_written_is_read_from_memory)
{
	struct swapper_state *s;
	struct swapper_state_figures f;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", SLICE_FLOATS);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_WRITE, 0, 1, 2 });
	placed_fill(s, 3);
	faulty_wait_held(1);
	ck_assert(placed_is(s, NULL, 5, 1000, 3));
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.memory, SLICE_FLOATS * 4);
	placed_fill(s, 4);
	faulty_wait_held(2);
	ck_assert(placed_is(s, NULL, 5, 1000, 4));
	ck_assert_uint_eq(placed_figures().file.reads, 0);
	faulty_end();
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert(placed_is(s, NULL, 5, 1000, 4));
	ck_assert_uint_gt(placed_figures().file.reads, 0);
	ck_assert_uint_eq(placed_figures().file.extents, 1);
	placed_close();
}
END_TEST

START_TEST(one_that_is_returned_while_it_is_read_is_not_lost)
{
	struct swapper_state *s;
	struct swapper_lent *l;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", SLICE_FLOATS);
	placed_fill(s, 3);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	faulty_begin((struct faulty){ FAULT_DEAF, DISK_READ, 0, 1, 1 });
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ, 0, &l), 0);
	faulty_wait_held(1);
	swapper_return(place, l);
	ck_assert_uint_eq(placed_figures().pinned.lent, 1);
	faulty_end();
	placed_fill(s, 4);
	ck_assert(placed_is(s, NULL, 0, 100, 4));
	placed_close();
}
END_TEST

START_TEST(a_small_read_reads_little)
{
	struct swapper_figures before, after;
	struct swapper_state *s;
	uint8_t block[4096];

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 9);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	before = placed_figures();
	ck_assert_int_eq(read_now(place, s, NULL, 5000, sizeof(block), block), 0);
	after = placed_figures();
	ck_assert_uint_le(after.file.read_bytes - before.file.read_bytes, 8192);
	ck_assert_uint_eq(after.pinned.gets, before.pinned.gets);
	ck_assert_uint_eq(after.read_bytes - before.read_bytes, sizeof(block));
	ck_assert_int_eq(read_now(place, s, NULL, FLOATS * 4 - 1, 2, block), -EINVAL);
	ck_assert_int_eq(read_now(place, s, NULL, 0, 0, block), -EINVAL);
	placed_close();
}
END_TEST

START_TEST(small_states_never_leave_memory)
{
	struct swapper_state *s;

	placed_options.least = PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = placed_add("bias", 100);
	placed_fill(s, 6);
	ck_assert_int_eq(swapper_write(place, s, 4, &(uint32_t){ 8 }, 4), 0);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 1, 1, 8));
	ck_assert(placed_is(s, NULL, 2, 98, 6));
	ck_assert_uint_eq(placed_figures().small, 400);
	ck_assert_uint_eq(placed_figures().file.writes, 0);
	ck_assert_uint_eq(placed_figures().pinned.lent, 0);
	placed_close();
}
END_TEST

static void on_unread(struct swapper_read *r, int rc)
{
	*(int *)r->owner = rc;
}

static void expect_unread(struct swapper_read r)
{
	int rc = 0;

	r.done = on_unread;
	r.owner = &rc;
	swapper_read(place, &r);
	ck_assert_int_eq(rc, -EINVAL);
}

START_TEST(what_cannot_be_is_refused)
{
	struct swapper_lent *lent[9];
	struct swapper_state *s;
	struct swapper_pin *hold;

	if (!placed_open(_i))
		return;
	ck_assert_int_eq(swapper_add(place, "x", SWAPPER_STATE, 3, 1, &s), -EINVAL);
	ck_assert_int_eq(swapper_add(place, "x", SWAPPER_STATE, 8, 1ull << 62, &s), -EOVERFLOW);
	s = placed_add("none", 0);
	placed_fill(s, 1);
	ck_assert_int_eq(swapper_write(place, s, 0, "", 0), 0);
	ck_assert_int_eq(swapper_write(place, s, 0, "x", 1), -EINVAL);
	ck_assert_int_eq(swapper_write(place, s, UINT64_MAX, "x", 1), -EINVAL);
	ck_assert_int_eq(swapper_put(place, s, 0, "1234", 1), -EINVAL);
	ck_assert_int_eq(swapper_accumulate(place, s, UINT64_MAX, (float[]){ 1 }, 1), -EINVAL);
	s = placed_add("one", 1);
	placed_fill(s, 1);
	expect_unread((struct swapper_read){ .state = s });
	ck_assert_int_eq(swapper_pin(place, s, 0, 4, &hold), 0);
	expect_unread((struct swapper_read){ .state = s, .pin = hold, .offset = 1, .size = 4 });
	swapper_unpin(place, hold);
	s = placed_add("many", 9 * PLACED_SLICE / 4);
	ck_assert_int_eq(swapper_swap_in_all(place, s, SWAPPER_READ, 20000, lent), -ENOBUFS);
	ck_assert_int_eq(swapper_add(place, "b", SWAPPER_GRADIENT, 2, 4, &s), 0);
	ck_assert_int_eq(swapper_accumulate(place, s, 0, (float[]){ 1 }, 1), -EINVAL);
	placed_close();
}
END_TEST

static char why[512];

static void expect_why(const char *begin, const char *end)
{
	size_t size = strlen(why);

	ck_assert_msg(!strncmp(why, begin, strlen(begin)) && size > strlen(end) &&
			      !strcmp(why + size - strlen(end), end),
		      "%s", why);
}

START_TEST(a_place_that_cannot_be_is_said)
{
	placed_options.disk_ops = _i ? &disk_threads : NULL;
	placed_options.budget = PLACED_SLICE;
	ck_assert_int_eq(swapper_open(&place, &placed_options, why, sizeof(why)), -EINVAL);
	expect_why("pinned buffers of 16384 bytes in all (FRAG_PINNED_MEM), of ",
		   "Invalid argument");
	placed_options.budget = (uint64_t)1 << 60;
	ck_assert_int_eq(swapper_open(&place, &placed_options, why, sizeof(why)), -ENOMEM);
	expect_why("pinned buffers of 1152921504606846976 bytes in all (FRAG_PINNED_MEM), of ",
		   "Cannot allocate memory");
	placed_options.budget = 8 * PLACED_SLICE;
	placed_options.dir = "/nowhere/x";
	ck_assert_int_eq(swapper_open(&place, &placed_options, why, sizeof(why)), -ENOENT);
	ck_assert_str_eq(why, "the folder /nowhere/x: No such file or directory");
	placed_options.slice = 0;
	ck_assert_int_eq(swapper_open(&place, &placed_options, why, sizeof(why)), -EINVAL);
}
END_TEST

/* ---- walks ---- */

static void check_walk(struct swapper_state *const s[3], uint32_t step)
{
	const struct swapper_swept states[] = { { s[0], SWAPPER_READ | SWAPPER_WRITE },
						{ s[1], SWAPPER_READ },
						{ s[2], SWAPPER_WRITE } };
	struct swapper_sweep *w;
	uint64_t first, numel, sum = 0, wrong = 0;

	ck_assert_int_eq(swapper_sweep_begin(place, states, 3, &w), 0);
	while (swapper_sweep_next(w, &first, &numel) == 1) {
		uint32_t *a = swapper_sweep_memory(w, 0), *b = swapper_sweep_memory(w, 1);
		uint16_t *c = swapper_sweep_memory(w, 2);

		ck_assert_uint_eq(first, sum);
		sum += numel;
		for (uint64_t i = 0; i < numel; i++) {
			wrong += a[i] != (uint32_t)(first + i) + step || b[i] != 77;
			a[i]++;
			c[i] = (uint16_t)a[i];
		}
	}
	ck_assert_uint_eq(sum, FLOATS);
	ck_assert_uint_eq(wrong, 0);
	swapper_sweep_end(w);
	swapper_publish(place);
}

START_TEST(a_walk_brings_in_all_in_order_with_any_budget)
{
	for (unsigned buffers = 3; buffers <= 12; buffers++) {
		static uint32_t counting[FLOATS];
		struct swapper_state *s[3];

		placed_options.budget = buffers * PLACED_SLICE;
		if (!placed_open(_i))
			return;
		s[0] = placed_add("fp32", FLOATS);
		s[1] = placed_add("exp_avg", FLOATS);
		ck_assert_int_eq(swapper_add(place, "bf16", SWAPPER_PARAM, 2, FLOATS, &s[2]),
				 0);
		placed_fill(s[1], 77);
		for (uint32_t i = 0; i < FLOATS; i++)
			counting[i] = i;
		ck_assert_int_eq(swapper_write(place, s[0], 0, counting, sizeof(counting)), 0);
		for (uint32_t step = 0; step < 3; step++)
			check_walk(s, step);
		ck_assert_int_eq(swapper_flush(place, 20000), 0);
		ck_assert_uint_eq(placed_figures().pinned.lent, 0);
		placed_close();
	}
}
END_TEST

START_TEST(a_place_that_was_told_so_reads_not_ahead_and_writes_not_behind)
{
	struct swapper_swept walked;
	struct swapper_sweep *w, *next;
	uint64_t first, numel, before;

	placed_options.chunk = PLACED_SLICE / 4;
	placed_options.no_ahead = placed_options.no_behind = true;
	placed_options.unlocked = true;
	if (!placed_open(_i))
		return;
	walked = (struct swapper_swept){ placed_add("fp32", FLOATS),
					 SWAPPER_READ | SWAPPER_WRITE };
	ck_assert(!placed_figures().pinned.locked);
	placed_fill(walked.state, 1);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	before = placed_figures().file.reads;
	ck_assert_int_eq(swapper_sweep_begin(place, &walked, 1, &w), 0);
	ck_assert_int_eq(swapper_sweep_then(w, &walked, 1, &next), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(swapper_sweep_next(w, &first, &numel), 1);
		ck_assert_uint_eq(placed_figures().pinned.lent, 1);
		ck_assert_uint_eq(placed_figures().file.reads - before, (i + 1) * 4);
	}
	swapper_sweep_end(w);
	swapper_sweep_end(next);
	placed_close();
}
END_TEST

START_TEST(a_walk_that_cannot_be_is_refused)
{
	struct swapper_swept states[9];
	struct swapper_sweep *w;

	if (!placed_open(_i))
		return;
	for (unsigned i = 0; i < 9; i++)
		states[i] = (struct swapper_swept){ placed_add("x", FLOATS), SWAPPER_READ };
	ck_assert_int_eq(swapper_sweep_begin(place, states, 0, &w), -EINVAL);
	ck_assert_int_eq(swapper_sweep_begin(place, states, 9, &w), -ENOBUFS);
	states[1].state = placed_add("other", FLOATS + 1);
	ck_assert_int_eq(swapper_sweep_begin(place, states, 2, &w), -EINVAL);
	placed_close();
}
END_TEST

START_TEST(a_walk_left_midway_changes_nothing)
{
	struct swapper_state *s;
	struct swapper_sweep *w;
	uint64_t first, numel;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 5);
	ck_assert_int_eq(
		swapper_sweep_begin(place,
				    &(struct swapper_swept){ s, SWAPPER_READ | SWAPPER_WRITE },
				    1, &w),
		0);
	ck_assert_int_eq(swapper_sweep_next(w, &first, &numel), 1);
	memset(swapper_sweep_memory(w, 0), 1, numel * 4);
	swapper_sweep_end(w);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 5));
	placed_close();
}
END_TEST

/* ---- holds ---- */

START_TEST(what_is_held_stays_as_it_was)
{
	struct swapper_pin *h[4];
	struct swapper_state *s;

	placed_options.capacity = (uint64_t)6 * FLOATS * 4;
	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	for (uint32_t i = 0; i < 4; i++) {
		placed_fill(s, i + 1);
		ck_assert_int_eq(swapper_pin(place, s, 4 * i, 4 * FLOATS - 4 * i, &h[i]), 0);
	}
	placed_fill(s, 9);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert(placed_is(s, h[i], i, FLOATS - i, i + 1));
	ck_assert_int_eq(read_now(place, s, h[1], 0, 8, (char[8]){ 0 }), -EINVAL);
	ck_assert_int_eq(swapper_pin(place, s, 0, 4 * FLOATS + 1, &h[0]), -EINVAL);
	ck_assert_uint_eq(placed_figures().pins, 4);
	swapper_unpin(place, h[0]);
	swapper_drop(place, s);
	for (uint32_t i = 1; i < 4; i++) {
		ck_assert(placed_is(s, h[i], i, FLOATS - i, i + 1));
		swapper_unpin(place, h[i]);
	}
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_eq(placed_figures().file.extents, 0);
	placed_close();
}
END_TEST

/* ---- edits ---- */

START_TEST(an_edit_costs_the_disk_nothing)
{
	struct swapper_state_figures f;
	struct swapper_figures before;
	struct swapper_state *s;
	struct swapper_pin *h;
	uint32_t value = 8;

	placed_options.spare = 1 << 16;
	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 5);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &h), 0);
	before = placed_figures();
	for (int i = 0; i < 1000; i++) /* of the same place: one patch */
		ck_assert_int_eq(swapper_write(place, s, 400, &value, 4), 0);
	ck_assert_uint_eq(placed_figures().file.writes, before.file.writes);
	ck_assert_uint_eq(placed_figures().file.reads, before.file.reads);
	ck_assert_uint_eq(placed_figures().spare, 4);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 5));
	swapper_publish(place);
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.patches, 4);
	ck_assert(placed_is(s, NULL, 100, 1, 8));
	ck_assert(placed_is(s, NULL, 101, FLOATS - 101, 5));
	ck_assert(placed_is(s, h, 0, FLOATS, 5));
	swapper_unpin(place, h);
	/* What is sent back has it. */
	placed_fill(s, 6);
	ck_assert_uint_eq(placed_figures().spare, 0);
	placed_close();
}
END_TEST

START_TEST(many_edits_become_a_slice)
{
	struct swapper_state *s;

	placed_options.spare = 1 << 16;
	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 5);
	for (uint32_t i = 0; i < 40; i++)
		ck_assert_int_eq(swapper_write(place, s, i * 8, &i, 4), 0);
	swapper_publish(place);
	for (uint32_t i = 0; i < 40; i++) {
		ck_assert(placed_is(s, NULL, 2 * i, 1, i));
		ck_assert(placed_is(s, NULL, 2 * i + 1, 1, 5));
	}
	ck_assert_uint_lt(placed_figures().spare, 16 * 4 + 1);
	placed_close();
}
END_TEST

START_TEST(an_edit_is_seen_in_what_is_lent)
{
	struct swapper_state *s;
	struct swapper_lent *l;
	uint32_t *memory, value = 8;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 5);
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ | SWAPPER_WRITE, 0, &l), 0);
	ck_assert_int_eq(swapper_write(place, s, 40, &value, 4), 0);
	ck_assert_int_eq(swapper_wait(place, l, (void **)&memory), 0);
	ck_assert_uint_eq(memory[10], 8);
	ck_assert_uint_eq(memory[11], 5);
	ck_assert_int_eq(swapper_swap_out(place, l), 0);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 10, 1, 8));
	placed_close();
}
END_TEST

/* ---- gradients ---- */

START_TEST(values_are_collected_and_added)
{
	enum { N = 3 * SLICE_FLOATS };
	static float ones[N];
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	ck_assert_int_eq(swapper_add(place, "grad", SWAPPER_GRADIENT, 4, N, &s), 0);
	for (int i = 0; i < N; i++)
		ones[i] = 1;
	for (int micro = 0; micro < 3; micro++)
		for (int64_t at = N - 96; at >= 0; at -= 96) /* pieces over edges of slices */
			ck_assert_int_eq(swapper_accumulate(place, s, (uint64_t)at, ones, 96),
					 0);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 0, N, 0x40400000)); /* 3.0 */
	/* The next window begins with zeros, whatever the last has left. */
	ck_assert_int_eq(swapper_clear(place, s), 0);
	ck_assert_int_eq(swapper_put(place, s, 5, ones, 5), 0);
	ck_assert(placed_is(s, NULL, 0, N, 0x40400000));
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 0, 5, 0));
	ck_assert(placed_is(s, NULL, 5, 5, 0x3f800000));
	ck_assert(placed_is(s, NULL, 10, N - 10, 0));
	ck_assert_int_eq(swapper_clear(place, s), 0);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 0, N, 0));
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_eq(placed_figures().file.extents, 0);
	placed_close();
}
END_TEST

/* More states than buffers in which values could be collected. */
START_TEST(collecting_gives_way_to_who_needs_a_buffer)
{
	struct swapper_state *s[12];
	struct swapper_lent *l[8];

	if (!placed_open(_i))
		return;
	for (int i = 0; i < 12; i++)
		ck_assert_int_eq(
			swapper_add(place, "grad", SWAPPER_GRADIENT, 4, SLICE_FLOATS, &s[i]),
			0);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 12; i++)
			ck_assert_int_eq(swapper_accumulate(place, s[i], 7, (float[]){ 1 }, 1),
					 0);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(swapper_swap_in(place, s[i], 0, SWAPPER_READ, 20000, &l[i]),
				 0);
	for (int i = 0; i < 8; i++)
		swapper_return(place, l[i]);
	swapper_publish(place);
	for (int i = 0; i < 12; i++)
		ck_assert(placed_is(s[i], NULL, 7, 1, 0x40400000));
	placed_close();
}
END_TEST

/* ---- all of it, by chance, beside what it must be ---- */

enum { STATES = 3, HOLDS = 6, ROUNDS = 1500 };

static struct model {
	struct swapper_state *s;
	uint32_t newest[FLOATS], current[FLOATS];
	struct swapper_lent *lent[6];
} model[STATES];

static struct held {
	struct swapper_pin *hold;
	unsigned state;
	uint64_t first, numel;
	uint32_t values[FLOATS];
} held[HOLDS];

static uint32_t out[FLOATS], in[FLOATS];

static void draw_range(uint64_t *first, uint64_t *numel)
{
	*first = placed_random(FLOATS);
	*numel = 1 + placed_random(placed_random(3) ? u64_min(200, FLOATS - *first)
						    : FLOATS - *first);
}

static bool any_lent(const struct model *m)
{
	for (int i = 0; i < 6; i++)
		if (m->lent[i])
			return true;
	return false;
}

static void act_read(unsigned i, uint64_t first, uint64_t numel)
{
	ck_assert_int_eq(read_now(place, model[i].s, NULL, first * 4, numel * 4, out), 0);
	ck_assert_mem_eq(out, model[i].current + first, numel * 4);
}

static void act_look(unsigned i, uint64_t first, uint64_t numel)
{
	ck_assert_int_eq(swapper_read_newest(place, model[i].s, first * 4, numel * 4, out), 0);
	ck_assert_mem_eq(out, model[i].newest + first, numel * 4);
}

static void act_hold(unsigned i, uint64_t first, uint64_t numel)
{
	struct held *h = &held[placed_random(HOLDS)];

	if (h->hold) {
		struct swapper_state *s = model[h->state].s;
		uint64_t at = placed_random(h->numel), n = 1 + placed_random(h->numel - at);

		ck_assert_int_eq(read_now(place, s, h->hold, (h->first + at) * 4, n * 4, out),
				 0);
		ck_assert_mem_eq(out, h->values + h->first + at, n * 4);
		if (placed_random(2))
			return;
		swapper_unpin(place, h->hold);
	}
	*h = (struct held){ .state = i, .first = first, .numel = numel };
	memcpy(h->values, model[i].current, sizeof(h->values));
	ck_assert_int_eq(swapper_pin(place, model[i].s, first * 4, numel * 4, &h->hold), 0);
}

static void draw_values(uint64_t numel)
{
	for (uint64_t k = 0; k < numel; k++)
		in[k] = (uint32_t)placed_random(1u << 30);
}

static void act_write(struct model *m, uint64_t first, uint64_t numel)
{
	draw_values(numel);
	ck_assert_int_eq(swapper_write(place, m->s, first * 4, in, numel * 4), 0);
	memcpy(m->newest + first, in, numel * 4);
}

static void act_put(struct model *m, uint64_t first, uint64_t numel)
{
	if (any_lent(m))
		return;
	draw_values(numel);
	ck_assert_int_eq(swapper_put(place, m->s, first, in, numel), 0);
	memcpy(m->newest + first, in, numel * 4);
}

static void act_bring(struct model *m)
{
	unsigned slice = (unsigned)placed_random(6);
	struct swapper_lent *l;
	int rc;

	if (m->lent[slice] || any_lent(m))
		return;
	rc = swapper_swap_in(place, m->s, slice, SWAPPER_READ | SWAPPER_WRITE, 20000, &l);
	ck_assert_int_eq(rc, 0);
	m->lent[slice] = l;
}

static void act_send(struct model *m)
{
	for (unsigned i = 0; i < 6; i++) {
		uint64_t n = i < 5 ? SLICE_FLOATS : FLOATS - 5 * SLICE_FLOATS;
		void *memory;

		if (!m->lent[i])
			continue;
		ck_assert_int_eq(swapper_wait(place, m->lent[i], &memory), 0);
		ck_assert_mem_eq(memory, m->newest + i * SLICE_FLOATS, n * 4);
		if (placed_random(4)) {
			draw_values(n);
			memcpy(memory, in, n * 4);
			memcpy(m->newest + i * SLICE_FLOATS, in, n * 4);
			ck_assert_int_eq(swapper_swap_out(place, m->lent[i]), 0);
		} else {
			swapper_return(place, m->lent[i]);
		}
		m->lent[i] = NULL;
	}
}

static void act_publish(void)
{
	swapper_publish(place);
	for (int i = 0; i < STATES; i++)
		memcpy(model[i].current, model[i].newest, sizeof(model[i].current));
}

static void act_clear(struct model *m)
{
	if (placed_random(8) || any_lent(m))
		return;
	ck_assert_int_eq(swapper_clear(place, m->s), 0);
	/* Values that were collected and not published are forgotten with the rest. */
	memset(m->newest, 0, sizeof(m->newest));
}

static void act(void)
{
	unsigned i = (unsigned)placed_random(STATES);
	uint64_t first, numel;

	draw_range(&first, &numel);
	switch (placed_random(10)) {
	case 0:
		act_look(i, first, numel);
		break;
	case 1:
		act_read(i, first, numel);
		break;
	case 2:
	case 3:
		act_hold(i, first, numel);
		break;
	case 4:
		act_write(&model[i], first, numel);
		break;
	case 5:
		act_put(&model[i], first, numel);
		break;
	case 6:
		act_bring(&model[i]);
		break;
	case 7:
		act_send(&model[i]);
		break;
	case 8:
		act_publish();
		break;
	default:
		act_clear(&model[i]);
	}
}

START_TEST(whatever_is_done_it_is_what_it_must_be)
{
	placed_options.spare = placed_random(2) ? 2000 : 0;
	if (!placed_open(_i))
		return;
	memset(model, 0, sizeof(model));
	memset(held, 0, sizeof(held));
	for (int i = 0; i < STATES; i++)
		model[i].s = placed_add("x", FLOATS);
	for (int round = 0; round < ROUNDS; round++)
		act();
	for (int i = 0; i < STATES; i++)
		act_send(&model[i]);
	act_publish();
	for (unsigned i = 0; i < STATES; i++)
		act_read(i, 0, FLOATS);
	for (int i = 0; i < HOLDS; i++)
		if (held[i].hold)
			swapper_unpin(place, held[i].hold);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_eq(placed_figures().pinned.lent, 0);
	ck_assert_uint_eq(placed_figures().errors, 0);
	placed_close();
}
END_TEST

/* ---- readers beside the trainer ---- */

static atomic_bool over;

/* A hold is one generation: all its values are the same. */
static void *read_on(void *arg)
{
	struct swapper_state *s = arg;
	uint32_t *values = malloc(FLOATS * 4);
	uintptr_t wrong = 0;

	while (!over) {
		struct swapper_pin *h;

		ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &h), 0);
		for (uint64_t at = 0; at < FLOATS; at += 5000)
			wrong += read_now(place, s, h, at * 4, u64_min(5000, FLOATS - at) * 4,
					  values + at) != 0;
		for (uint64_t i = 1; i < FLOATS; i++)
			wrong += values[i] != values[0];
		swapper_unpin(place, h);
	}
	free(values);
	return (void *)wrong;
}

START_TEST(readers_see_one_generation)
{
	struct swapper_state *s;
	pthread_t threads[2];
	void *wrong;

	placed_options.capacity = (uint64_t)6 * FLOATS * 4;
	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	over = false;
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, s), 0);
	for (uint32_t step = 1; step < 60; step++)
		placed_fill(s, step);
	over = true;
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	placed_close();
}
END_TEST

START_TEST(what_it_did_can_be_told)
{
	struct swapper_state_figures f;
	struct swapper_figures all;
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.zeros, FLOATS * 4);
	placed_fill(s, 1);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.bytes, FLOATS * 4);
	ck_assert_uint_eq(f.disk, FLOATS * 4);
	ck_assert_uint_eq(f.writes, 6);
	all = placed_figures();
	ck_assert_uint_eq(all.timers[SWAPPER_STATE][SWAPPER_OUT].count, 6);
	ck_assert_uint_eq(all.timers[SWAPPER_STATE][SWAPPER_OUT].bytes, FLOATS * 4);
	ck_assert_uint_gt(all.timers[SWAPPER_STATE][SWAPPER_OUT].ns, 0);
	ck_assert_uint_eq(all.states, 1);
	ck_assert_uint_eq(all.bytes, FLOATS * 4);
	ck_assert_str_eq(swapper_timer_name(SWAPPER_GRADIENT, SWAPPER_WAIT_OUT, true),
			 "async_swap_gradient_wait");
	ck_assert_str_eq(swapper_timer_name(SWAPPER_STATE, SWAPPER_IN, true), "swap_in_state");
	ck_assert_str_eq(swapper_timer_name(SWAPPER_STATE, SWAPPER_IN, false), "swap_in_param");
	placed_close();
}
END_TEST

/* All that its timers are called. */
static const char *const deepspeed_timers[] = {
	"swap_in_param",
	"swap_out_param",
	"swap_in_gradient",
	"swap_out_gradient",
	"swap_init_write",
	"swap_submit_write",
	"swap_submit_read_param",
	"swap_wait_read_param",
	"swap_submit_read_gradient",
	"swap_submit_wait_gradient",
	"unswapped_read_gradients",
	"async_swap_gradient_wait",
	"swap_in_state",
	"swap_out_state",
	"async_swap_out_state",
	"async_swap_in_state",
	"optimizer_swap_in_state",
	"optimizer_swap_out_state",
};

static unsigned times_named(const char *name, enum swapper_kind kind, bool pipelined)
{
	unsigned n = 0;

	for (int timed = 0; timed < SWAPPER_TIMED; timed++) {
		const char *ours =
			swapper_timer_name(kind, (enum swapper_timed)timed, pipelined);

		n += ours && !strcmp(ours, name);
	}
	return n;
}

/* Low-precision parameters have names of their own: DeepSpeed's swap_in_param is of masters. */
START_TEST(timers_have_the_names_that_its_users_know)
{
	for (size_t i = 0; i < ARRAY_SIZE(deepspeed_timers); i++) {
		const char *name = deepspeed_timers[i];

		ck_assert_uint_eq(times_named(name, SWAPPER_PARAM, true), 0);
		ck_assert_uint_eq(times_named(name, SWAPPER_PARAM, false), 0);
		ck_assert_msg(times_named(name, SWAPPER_STATE, false) +
					      times_named(name, SWAPPER_STATE, true) +
					      times_named(name, SWAPPER_GRADIENT, true) >
				      0,
			      "%s", name);
	}
	ck_assert_uint_eq(times_named("swap_in_param", SWAPPER_STATE, false), 1);
	ck_assert_uint_eq(times_named("swap_in_state", SWAPPER_STATE, true), 1);
	ck_assert_uint_eq(times_named("swap_in_param", SWAPPER_STATE, true), 0);
}
END_TEST

static void expect_of_phase(enum phase phase, enum swapper_timed first,
			    enum swapper_timed second)
{
	struct swapper_figures f = placed_figures();
	struct histogram ever, step;
	uint64_t ns = 0;

	phase_times(phase, &ever, &step);
	for (int kind = 0; kind < SWAPPER_KINDS; kind++)
		for (enum swapper_timed t = first; t <= second; t++)
			ns += f.timers[kind][t].ns;
	ck_assert_uint_eq(ever.sum, ns);
}

/* An operation is measured once, for its phase and for the timer with DeepSpeed's name. */
START_TEST(a_timer_has_what_its_phase_has_measured)
{
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	for (int i = 1; i < 4; i++)
		placed_fill(s, i);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	placed_fill(s, 4);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_gt(placed_figures().timers[SWAPPER_STATE][SWAPPER_OUT].ns, 0);
	expect_of_phase(PHASE_SWAP_OUT, SWAPPER_OUT, SWAPPER_OUT);
	expect_of_phase(PHASE_SWAP_IN, SWAPPER_IN, SWAPPER_IN);
	expect_of_phase(PHASE_SWAP_WAIT, SWAPPER_WAIT_IN, SWAPPER_WAIT_OUT);
	placed_close();
}
END_TEST

START_TEST(timers_of_a_step_begin_anew_with_the_next)
{
	struct swapper_figures all;
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 1);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	all = placed_figures();
	ck_assert_uint_eq(all.last_step[SWAPPER_STATE][SWAPPER_OUT].count, 0);
	swapper_step(place);
	all = placed_figures();
	ck_assert_uint_eq(all.last_step[SWAPPER_STATE][SWAPPER_OUT].count, 6);
	ck_assert_uint_eq(all.last_step[SWAPPER_STATE][SWAPPER_OUT].bytes, FLOATS * 4);
	swapper_step(place);
	all = placed_figures();
	ck_assert_uint_eq(all.last_step[SWAPPER_STATE][SWAPPER_OUT].count, 0);
	ck_assert_uint_eq(all.timers[SWAPPER_STATE][SWAPPER_OUT].count, 6);
	placed_close();
}
END_TEST

static void sweep_to_read(struct swapper_state *s)
{
	struct swapper_sweep *w;
	uint64_t first, numel;

	ck_assert_int_eq(
		swapper_sweep_begin(place, &(struct swapper_swept){ s, SWAPPER_READ }, 1, &w),
		0);
	while (swapper_sweep_next(w, &first, &numel) == 1)
		;
	swapper_sweep_end(w);
}

/* In as many lines as that takes. */
START_TEST(a_step_says_all_of_its_timers)
{
	static const enum swapper_kind kinds[] = { SWAPPER_PARAM, SWAPPER_STATE,
						   SWAPPER_GRADIENT };
	unsigned said = 0;

	setenv("FRAG_LOG", "debug", 1);
	if (!placed_open(_i))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct swapper_state *s;

		ck_assert_int_eq(swapper_add(place, "x", kinds[i], 4, FLOATS, &s), 0);
		placed_fill(s, 1);
		ck_assert_int_eq(swapper_flush(place, 20000), 0);
		sweep_to_read(s);
	}
	swapper_step(place);
	for (int kind = 0; kind < SWAPPER_KINDS; kind++)
		for (int timed = 0; timed < SWAPPER_TIMED; timed++) {
			struct swapper_figures f = placed_figures();
			const char *name = swapper_timer_name((enum swapper_kind)kind,
							      (enum swapper_timed)timed,
							      f.ahead || f.behind);
			char words[80];

			if (!f.last_step[kind][timed].count || !name)
				continue;
			snprintf(words, sizeof(words), "| %s: ", name);
			ck_assert_msg(placed_was_said(words), "%s", name);
			said++;
		}
	ck_assert_uint_ge(said, 9);
	placed_close();
}
END_TEST

START_TEST(each_operation_is_said_where_that_is_wanted)
{
	struct swapper_state *s, *g;
	struct swapper_lent *l;
	void *memory;
	float one = 1;

	placed_options.debug = true;
	if (!placed_open(_i))
		return;
	s = placed_add("fp32", FLOATS);
	ck_assert_int_eq(swapper_add(place, "grad", SWAPPER_GRADIENT, 4, FLOATS, &g), 0);
	placed_fill(s, 1);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert(placed_was_said("swap: async_swap_out_state: fp32, slice 5: "));
	ck_assert(placed_was_said("swap: swap_out_state: fp32, slice 0: 16384 bytes, "));
	ck_assert_int_eq(swapper_swap_in(place, s, 1, SWAPPER_READ, 0, &l), 0);
	ck_assert_int_eq(swapper_wait(place, l, &memory), 0);
	swapper_return(place, l);
	ck_assert(placed_was_said("swap: async_swap_in_state: fp32, slice 1: "));
	ck_assert(placed_was_said("swap: swap_in_state: fp32, slice 1: 16384 bytes, "));
	ck_assert_int_eq(swapper_write(place, s, 40, &one, 4), 0);
	ck_assert_int_eq(swapper_put(place, g, 3, &one, 1), 0);
	ck_assert_int_eq(swapper_accumulate(place, g, 4, &one, 1), 0);
	ck_assert(placed_was_said("swap: edit: fp32, bytes 40 to 44"));
	ck_assert(placed_was_said("swap: put: grad, bytes 12 to 16"));
	ck_assert(placed_was_said("swap: add: grad, bytes 16 to 20"));
	placed_close();
}
END_TEST

int main(void)
{
	const void *const tests[] = {
		what_was_never_sent_is_zeros_without_the_disk,
		what_is_sent_is_seen_when_published,
		a_slice_is_lent_once,
		when_all_buffers_are_lent_the_caller_is_told,
		what_is_being_written_is_read_from_memory,
		one_that_is_returned_while_it_is_read_is_not_lost,
		a_small_read_reads_little,
		small_states_never_leave_memory,
		what_cannot_be_is_refused,
		a_place_that_cannot_be_is_said,
		a_walk_brings_in_all_in_order_with_any_budget,
		a_place_that_was_told_so_reads_not_ahead_and_writes_not_behind,
		a_walk_that_cannot_be_is_refused,
		a_walk_left_midway_changes_nothing,
		what_is_held_stays_as_it_was,
		an_edit_costs_the_disk_nothing,
		many_edits_become_a_slice,
		an_edit_is_seen_in_what_is_lent,
		values_are_collected_and_added,
		collecting_gives_way_to_who_needs_a_buffer,
		whatever_is_done_it_is_what_it_must_be,
		readers_see_one_generation,
		what_it_did_can_be_told,
		timers_have_the_names_that_its_users_know,
		a_timer_has_what_its_phase_has_measured,
		timers_of_a_step_begin_anew_with_the_next,
		a_step_says_all_of_its_timers,
		each_operation_is_said_where_that_is_wanted,
	};

	return placed_main("place", tests, ARRAY_SIZE(tests));
}

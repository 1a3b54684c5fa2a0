/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/unit/swap/read-now.h"
#include "tests/unit/swap/swapped.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* What DeepSpeed's swapper and its asynchronous I/O get wrong, each as a test of what swaps
 * here.  B5 and so on number what was found; the others are faults of the same code without a
 * number.
 */

enum { SLICE_FLOATS = PLACED_SLICE / 4, FLOATS = 3 * SLICE_FLOATS + 17, PARAMS = 40 };

/* ---- a small training: momentum over parameters of odd sizes, some of one element ---- */

enum { W, M, G, STATES };
static struct swapper_state *state[STATES];
static float truth[2][FLOATS];
static uint64_t ends[PARAMS]; /* of parameters, in elements */

static void start_training(void)
{
	static const char *const names[STATES] = { "fp32", "momentum", "grad" };

	for (int i = 0; i < STATES; i++)
		ck_assert_int_eq(swapper_add(place, names[i],
					     i == G ? SWAPPER_GRADIENT : SWAPPER_STATE, 4,
					     FLOATS, &state[i]),
				 0);
	memset(truth, 0, sizeof(truth));
	for (uint64_t i = 0, at = 0; i < PARAMS; i++) {
		at += placed_random(3) ? 1 + placed_random(2 * FLOATS / PARAMS) : 1;
		ends[i] = i == PARAMS - 1 ? FLOATS : u64_min(at, FLOATS);
	}
}

static float grad_of(uint64_t i, uint32_t step, uint32_t micro)
{
	return (float)((i * 7 + step * 13 + micro * 3) % 101) / 16;
}

static void put_param(uint64_t from, uint64_t to, uint32_t step, uint32_t micro)
{
	static float values[FLOATS];

	for (uint64_t i = from; i < to; i++)
		values[i - from] = grad_of(i, step, micro);
	ck_assert_int_eq(swapper_accumulate(place, state[G], from, values, to - from), 0);
}

/* The last parameter first. */
static void backward(uint32_t step, void (*look)(void))
{
	for (uint32_t micro = 0; micro < 2; micro++)
		for (int i = PARAMS - 1; i >= 0; i--) {
			put_param(i ? ends[i - 1] : 0, ends[i], step, micro);
			look();
		}
}

static void update(float *w, float *m, const float *g, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		m[i] = 0.9f * m[i] + g[i];
		w[i] -= 0.1f * m[i];
	}
}

static void optimize(void (*look)(void))
{
	const struct swapper_swept walked[STATES] = {
		{ state[W], SWAPPER_READ | SWAPPER_WRITE },
		{ state[M], SWAPPER_READ | SWAPPER_WRITE },
		{ state[G], SWAPPER_READ }
	};
	struct swapper_sweep *w;
	uint64_t first, numel;

	ck_assert_int_eq(swapper_sweep_begin(place, walked, STATES, &w), 0);
	while (swapper_sweep_next(w, &first, &numel) == 1) {
		look();
		update(swapper_sweep_memory(w, W), swapper_sweep_memory(w, M),
		       swapper_sweep_memory(w, G), numel);
		look();
	}
	swapper_sweep_end(w);
	swapper_publish(place);
}

static void train(uint32_t step, void (*look)(void))
{
	float g[FLOATS];

	ck_assert_int_eq(swapper_clear(place, state[G]), 0);
	backward(step, look);
	swapper_publish(place);
	look();
	optimize(look);
	for (uint64_t i = 0; i < FLOATS; i++)
		g[i] = grad_of(i, step, 0) + grad_of(i, step, 1);
	update(truth[W], truth[M], g, FLOATS);
}

static void expect_truth(void)
{
	static float out[FLOATS];

	for (int i = W; i <= M; i++) {
		ck_assert_int_eq(read_now(place, state[i], NULL, 0, FLOATS * 4, out), 0);
		ck_assert_mem_eq(out, truth[i], sizeof(out));
	}
}

static void look_nowhere(void)
{
}

static void look_anywhere(void)
{
	static float out[FLOATS];
	struct swapper_state *s = state[placed_random(STATES)];
	uint64_t first = placed_random(FLOATS), n = 1 + placed_random(FLOATS - first);

	if (placed_random(4) == 0)
		ck_assert_int_eq(read_now(place, s, NULL, first * 4, n * 4, out), 0);
	if (placed_random(8) == 0)
		ck_assert_int_eq(swapper_read_newest(place, s, first * 4, n * 4, out), 0);
}

/* Its documented debug loop alone changes training: unswapped gradients are read once and are
 * gone.
 */
START_TEST(b5_reading_between_backward_and_step_changes_nothing)
{
	if (!placed_open(_i))
		return;
	start_training();
	for (uint32_t step = 0; step < 4; step++) {
		train(step, step % 2 ? look_anywhere : look_nowhere);
		expect_truth();
	}
	placed_close();
}
END_TEST

/* TypeError on the ranks that own it, others hang. */
START_TEST(b9_before_the_first_step_states_are_zeros)
{
	static float out[FLOATS], zeros[FLOATS];

	if (!placed_open(_i))
		return;
	start_training();
	for (int i = 0; i < STATES; i++) {
		ck_assert_int_eq(read_now(place, state[i], NULL, 0, FLOATS * 4, out), 0);
		ck_assert_mem_eq(out, zeros, sizeof(out));
	}
	ck_assert_int_eq(swapper_write(place, state[M], 40, &(float){ 3 }, 4), 0);
	swapper_publish(place);
	truth[M][10] = 3;
	train(0, look_nowhere);
	expect_truth();
	placed_close();
}
END_TEST

static uint32_t edited;

static void set_and_get(void)
{
	uint64_t i = edited * 997 % FLOATS;
	float value = (float)edited++, seen;

	ck_assert_int_eq(swapper_write(place, state[W], i * 4, &value, 4), 0);
	ck_assert_int_eq(swapper_read_newest(place, state[W], i * 4, 4, &seen), 0);
	ck_assert(seen == value);
	ck_assert_int_eq(read_now(place, state[M], NULL, i * 4, 4, &seen), 0);
}

/* AttributeError, and then the pipeline is stuck for good. */
START_TEST(b10_gets_and_sets_work_amid_a_pipelined_step)
{
	struct swapper_sweep *w;
	const struct swapper_swept walked = { NULL, SWAPPER_READ | SWAPPER_WRITE };
	struct swapper_swept one = walked;
	uint64_t first, numel;

	placed_options.spare = _i ? 0 : 100;
	if (!placed_open(_i))
		return;
	start_training();
	train(0, look_nowhere);
	one.state = state[W];
	ck_assert_int_eq(swapper_sweep_begin(place, &one, 1, &w), 0);
	while (swapper_sweep_next(w, &first, &numel) == 1)
		for (int i = 0; i < 5; i++)
			set_and_get();
	swapper_sweep_end(w);
	swapper_publish(place);
	for (uint32_t i = 0; i < edited; i++)
		truth[W][i * 997 % FLOATS] = (float)i;
	expect_truth();
	train(1, look_nowhere);
	expect_truth();
	placed_close();
}
END_TEST

/* ---- B11: short or failed, and told that all is well ---- */

static struct swapper_state *filled(uint64_t floats)
{
	struct swapper_state *s = placed_add("fp32", floats);

	placed_fill(s, 1);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	return s;
}

START_TEST(b11_a_length_that_is_no_multiple_is_written_whole)
{
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled((1 << 18) + 1); /* 1 MiB and 4 bytes */
	ck_assert(placed_is(s, NULL, 0, (1 << 18) + 1, 1));
	placed_close();
}
END_TEST

START_TEST(b11_short_requests_are_gone_on_with)
{
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	faulty_begin((struct faulty){ FAULT_SHORT, DISK_WRITE, 0, 1, 2 });
	s = filled(FLOATS);
	ck_assert_uint_eq(faulty_end(), 2);
	faulty_begin((struct faulty){ FAULT_SHORT, DISK_READ, 0, 1, 2 });
	ck_assert(placed_is(s, NULL, 0, FLOATS, 1));
	ck_assert_uint_eq(faulty_end(), 2);
	ck_assert_uint_ge(placed_figures().file.short_requests, 4);
	placed_close();
}
END_TEST

START_TEST(b11_a_failed_read_is_an_error_and_nothing_else)
{
	struct swapper_state *s;
	struct swapper_lent *l;
	uint32_t out[16];
	void *memory;

	if (!placed_open(_i))
		return;
	s = filled(FLOATS);
	faulty_begin((struct faulty){ FAULT_ERROR, DISK_READ, -EIO, 1, 2 });
	ck_assert_int_eq(read_now(place, s, NULL, 0, 64, out), -EIO);
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ | SWAPPER_WRITE, 0, &l), 0);
	ck_assert_int_eq(swapper_wait(place, l, &memory), -EIO);
	ck_assert_int_eq(swapper_swap_out(place, l), -EIO); /* what it never had */
	ck_assert_ptr_null(swapper_memory(place, s, 0, 1));
	swapper_return(place, l);
	ck_assert_uint_eq(faulty_end(), 2);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 1));
	placed_close();
}
END_TEST

START_TEST(b11_a_failed_write_keeps_what_it_had)
{
	struct swapper_state_figures f;
	struct swapper_state *s;

	placed_options.spare = 8 * PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = filled(FLOATS);
	faulty_begin((struct faulty){ FAULT_ERROR, DISK_WRITE, -ENOSPC, 1, 2 });
	placed_fill(s, 2);
	ck_assert_int_eq(swapper_flush(place, 20000), 0); /* tried again, by then it works */
	ck_assert_uint_eq(faulty_end(), 2);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 2));
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.errors, 2);
	ck_assert_int_eq(f.error, -ENOSPC);
	placed_close();
}
END_TEST

/* 2 of 4 MiB, and rc 0. */
START_TEST(b11_a_limit_on_the_file_is_said_and_lived_with)
{
	const struct rlimit limit = { 2 * PLACED_SLICE, 2 * PLACED_SLICE };
	struct swapper_state_figures f;
	struct swapper_state *s;

	placed_options.spare = 8 * PLACED_SLICE;
	if (!placed_open(_i))
		return;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	s = placed_add("fp32", FLOATS);
	placed_fill(s, 2);
	ck_assert_int_eq(swapper_flush(place, 20000), -EFBIG);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 2));
	swapper_state_figures(place, s, &f);
	ck_assert_uint_eq(f.disk, 2 * PLACED_SLICE);
	ck_assert_uint_eq(f.memory, FLOATS * 4 - 2 * PLACED_SLICE);
	ck_assert(placed_was_said(
		"swap: fp32, bytes 32768 to 49152: not written, kept in memory: "
		"File too large"));
	placed_close();
}
END_TEST

START_TEST(b11_any_offset_into_any_memory)
{
	static uint8_t out[256];
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled(FLOATS);
	for (uint64_t offset = 0; offset < 9; offset++)
		for (uint64_t shift = 0; shift < 5; shift++) {
			memset(out, 0xee, sizeof(out));
			ck_assert_int_eq(read_now(place, s, NULL,
						  4 * (SLICE_FLOATS - 4) + offset, 64,
						  out + shift),
					 0);
			for (uint64_t i = 0; i < 64; i++)
				if (out[shift + i] != ((offset + i) % 4 == 0))
					ck_abort_msg("byte %d", (int)i);
		}
	placed_close();
}
END_TEST

START_TEST(b11_what_the_disk_lost_is_not_served)
{
	static const enum fault faults[] = { FAULT_TORN, FAULT_LOST };
	uint32_t out[FLOATS];

	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		struct swapper_state *s;

		if (!placed_open(_i))
			return;
		s = filled(SLICE_FLOATS);
		faulty_begin((struct faulty){ faults[i], DISK_WRITE, 0, 1, 1 });
		placed_fill(s, 2);
		ck_assert_int_eq(swapper_flush(place, 20000), 0);
		ck_assert_uint_eq(faulty_end(), 1);
		ck_assert_int_eq(read_now(place, s, NULL, 0, SLICE_FLOATS * 4, out), -EIO);
		placed_fill(s, 3); /* and is there again when it has been sent anew */
		ck_assert_int_eq(swapper_flush(place, 20000), 0);
		ck_assert(placed_is(s, NULL, 0, SLICE_FLOATS, 3));
		placed_close();
	}
}
END_TEST

/* ---- bits, and costs ---- */

START_TEST(b13_minus_zero_and_signalling_nans_are_kept)
{
	static const uint32_t odd[] = { 0x80000000, 0x7f800001, 0xffc12345, 0x00000001, 0 };
	uint32_t out[ARRAY_SIZE(odd)];
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled(FLOATS);
	ck_assert_int_eq(swapper_put(place, s, SLICE_FLOATS - 2, odd, ARRAY_SIZE(odd)), 0);
	swapper_publish(place);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_int_eq(read_now(place, s, NULL, (SLICE_FLOATS - 2) * 4, sizeof(out), out), 0);
	ck_assert_mem_eq(out, odd, sizeof(odd));
	placed_close();
}
END_TEST

/* 8.39 MB read for a bias of 4 KiB, 4.20 MB written to set it. */
START_TEST(a_bias_costs_its_blocks_and_setting_it_nothing)
{
	struct swapper_figures before, after;
	struct swapper_state *s;
	uint8_t bias[4096];

	placed_options.spare = sizeof(bias);
	if (!placed_open(_i))
		return;
	s = filled(FLOATS);
	before = placed_figures();
	ck_assert_int_eq(read_now(place, s, NULL, 1000, sizeof(bias), bias), 0);
	ck_assert_int_eq(swapper_write(place, s, 1000, bias, sizeof(bias)), 0);
	swapper_publish(place);
	after = placed_figures();
	ck_assert_uint_le(after.file.read_bytes - before.file.read_bytes, 8192);
	ck_assert_uint_eq(after.file.writes, before.file.writes);
	placed_close();
}
END_TEST

/* ---- without a number ---- */

/* swapped_gradients is never cleared: files of earlier steps are read again; what no piece
 * covers is what that buffer had before.
 */
START_TEST(gradients_of_earlier_steps_are_not_seen)
{
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled(FLOATS);
	ck_assert_int_eq(swapper_clear(place, s), 0);
	ck_assert_int_eq(swapper_put(place, s, 10, (float[]){ 5, 5, 5 }, 3), 0);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 0, 10, 0));
	ck_assert(placed_is(s, NULL, 13, FLOATS - 13, 0));
	placed_close();
}
END_TEST

/* A piece of another length at an offset seen before keeps the length that was first. */
START_TEST(pieces_may_have_another_length_each_time)
{
	float five[SLICE_FLOATS];
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	for (int i = 0; i < SLICE_FLOATS; i++)
		five[i] = 5;
	s = filled(FLOATS);
	for (uint64_t n = 1; n < SLICE_FLOATS; n *= 3) {
		ck_assert_int_eq(swapper_clear(place, s), 0);
		ck_assert_int_eq(swapper_accumulate(place, s, 100, five, n), 0);
		swapper_publish(place);
		ck_assert(placed_is(s, NULL, 100, n, 0x40a00000));
		ck_assert(placed_is(s, NULL, 100 + n, FLOATS - 100 - n, 0));
	}
	placed_close();
}
END_TEST

/* AMSGrad with 4 buffers: an assertion without a message. */
START_TEST(too_few_buffers_is_an_errno)
{
	struct swapper_swept walked[5];
	struct swapper_sweep *w;

	placed_options.budget = 4 * PLACED_SLICE;
	if (!placed_open(_i))
		return;
	for (int i = 0; i < 5; i++)
		walked[i] = (struct swapper_swept){ placed_add("x", FLOATS), SWAPPER_READ };
	ck_assert_int_eq(swapper_sweep_begin(place, walked, 5, &w), -ENOBUFS);
	ck_assert_int_eq(swapper_sweep_begin(place, walked, 4, &w), 0);
	swapper_sweep_end(w);
	ck_assert_uint_eq(placed_figures().pinned.lent, 0);
	placed_close();
}
END_TEST

/* It waits for everything that is under way. */
START_TEST(who_waits_waits_for_its_own)
{
	struct swapper_state *a, *b;
	struct swapper_lent *l;
	void *memory;

	if (!placed_open(_i))
		return;
	a = filled(SLICE_FLOATS);
	b = filled(SLICE_FLOATS);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_WRITE, 0, 1, 1 });
	placed_fill(a, 2);
	faulty_wait_held(1);
	ck_assert_int_eq(swapper_swap_in(place, b, 0, SWAPPER_READ, 0, &l), 0);
	ck_assert_int_eq(swapper_wait(place, l, &memory), 0);
	swapper_return(place, l);
	ck_assert_uint_eq(placed_figures().writing, 1);
	ck_assert_uint_eq(faulty_end(), 1);
	placed_close();
}
END_TEST

int main(void)
{
	const void *const tests[] = {
		b5_reading_between_backward_and_step_changes_nothing,
		b9_before_the_first_step_states_are_zeros,
		b10_gets_and_sets_work_amid_a_pipelined_step,
		b11_a_length_that_is_no_multiple_is_written_whole,
		b11_short_requests_are_gone_on_with,
		b11_a_failed_read_is_an_error_and_nothing_else,
		b11_a_failed_write_keeps_what_it_had,
		b11_a_limit_on_the_file_is_said_and_lived_with,
		b11_any_offset_into_any_memory,
		b11_what_the_disk_lost_is_not_served,
		b13_minus_zero_and_signalling_nans_are_kept,
		a_bias_costs_its_blocks_and_setting_it_nothing,
		gradients_of_earlier_steps_are_not_seen,
		pieces_may_have_another_length_each_time,
		too_few_buffers_is_an_errno,
		who_waits_waits_for_its_own,
	};

	return placed_main("deepspeed-faults", tests, ARRAY_SIZE(tests));
}

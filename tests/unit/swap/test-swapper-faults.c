/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/scarce.h"
#include "tests/unit/swap/read-now.h"
#include "tests/unit/swap/swapped.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { SLICE_FLOATS = PLACED_SLICE / 4, FLOATS = 4 * SLICE_FLOATS };

/* The bytes are on the disk, and the disk has the room of what they replaced. */
static void fill_and_flush(struct swapper_state *s, uint32_t value)
{
	placed_fill(s, value);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
}

static struct swapper_state *filled(uint32_t value)
{
	struct swapper_state *s = placed_add("fp32", FLOATS);

	fill_and_flush(s, value);
	return s;
}

static int read_some(struct swapper_state *s, struct swapper_pin *hold, uint64_t slice)
{
	uint8_t out[100];

	return read_now(place, s, hold, slice * PLACED_SLICE, sizeof(out), out);
}

/* ---- no room in the container: readers lose ---- */

START_TEST(without_room_the_oldest_reader_loses_first)
{
	struct swapper_pin *old, *young;
	struct swapper_state *s;

	placed_options.capacity = 3 * FLOATS * 4;
	if (!placed_open(_i))
		return;
	s = filled(1);
	ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &old), 0);
	fill_and_flush(s, 2);
	ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &young), 0);
	fill_and_flush(s, 3); /* all of it is used */
	ck_assert_uint_eq(placed_figures().evicted, 0);
	ck_assert(placed_is(s, old, 0, FLOATS, 1));
	fill_and_flush(s, 4);
	ck_assert_uint_eq(placed_figures().evicted, 4);
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_int_eq(read_some(s, old, i), -ESTALE);
	ck_assert(placed_is(s, young, 0, FLOATS, 2));
	swapper_unpin(place, old);
	ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &old), 0);
	fill_and_flush(s, 5);
	fill_and_flush(s, 6);
	ck_assert_int_eq(read_some(s, young, 0), -ESTALE);
	ck_assert(placed_is(s, old, 0, FLOATS, 4));
	ck_assert(placed_is(s, NULL, 0, FLOATS, 6));
	swapper_unpin(place, young);
	swapper_unpin(place, old);
	ck_assert_uint_eq(placed_figures().errors, 0);
	placed_close();
}
END_TEST

/* However many generations are held. */
START_TEST(readers_do_not_fill_the_disk)
{
	enum { STEPS = 12 };
	struct swapper_pin *holds[STEPS];
	struct swapper_state *s, *other;
	uint64_t most = 3 * 2 * FLOATS * 4 + PLACED_SLICE;

	if (!placed_open(_i))
		return;
	s = filled(1);
	other = placed_add("other", FLOATS);
	ck_assert_uint_eq(placed_figures().file.extent_bytes_limit, most);
	for (uint32_t i = 0; i < STEPS; i++) {
		ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &holds[i]), 0);
		placed_fill(s, i + 2);
		ck_assert_uint_le(placed_figures().file.extent_bytes, most);
	}
	ck_assert_int_eq(read_some(s, holds[0], 0), -ESTALE);
	ck_assert(placed_is(s, holds[STEPS - 1], 0, FLOATS, STEPS));
	ck_assert(placed_is(s, NULL, 0, FLOATS, STEPS + 1));
	ck_assert_uint_eq(placed_figures().errors, 0);
	for (uint32_t i = 0; i < STEPS; i++)
		swapper_unpin(place, holds[i]);
	swapper_drop(place, other);
	ck_assert_uint_eq(placed_figures().file.extent_bytes_limit,
			  3 * FLOATS * 4 + PLACED_SLICE);
	placed_close();
}
END_TEST

/* Half a slice more than one generation. */
START_TEST(without_room_for_two_generations_the_trainer_goes_on)
{
	struct swapper_pin *h;
	struct swapper_state *s;
	struct swapper_lent *l;

	placed_options.capacity = FLOATS * 4 + PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = filled(1);
	for (uint32_t step = 2; step < 6; step++) {
		placed_fill(s, step);
		ck_assert(placed_is(s, NULL, 0, FLOATS, step));
	}
	/* Within a step what is gone is said to be; the rest is there. */
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_int_eq(
			swapper_swap_in(place, s, i, SWAPPER_READ | SWAPPER_WRITE, 20000, &l),
			0);
		ck_assert_int_eq(swapper_swap_out(place, l), 0);
	}
	ck_assert_int_eq(read_some(s, NULL, 0), -ESTALE);
	ck_assert_int_eq(swapper_pin(place, s, 0, FLOATS * 4, &h), -ESTALE);
	ck_assert_int_eq(read_some(s, NULL, 3), 0);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 5));
	ck_assert_uint_eq(placed_figures().errors, 0);
	placed_close();
}
END_TEST

static void *let_go(void *arg)
{
	(void)arg;
	faulty_end();
	return NULL;
}

/* The reader began before: it ends, and then the trainer has the room. */
START_TEST(what_is_being_read_is_not_taken_from_the_reader)
{
	struct placed_answer a;
	struct swapper_state *s;
	struct swapper_lent *l;
	pthread_t thread;

	placed_options.capacity = FLOATS * 4;
	if (!placed_open(_i))
		return;
	s = filled(1);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_READ, 0, 1, 1 });
	placed_ask(&a, s, NULL);
	faulty_wait_held(1);
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_WRITE, 20000, &l), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_go, NULL), 0);
	/* Its own extent is the only one that could be had, and goes only when its next is
	 * there.
	 */
	ck_assert_int_eq(swapper_swap_out(place, l), -ENOSPC);
	swapper_return(place, l);
	pthread_join(thread, NULL);
	ck_assert_int_eq(swapper_clear(place, s), 0);
	swapper_publish(place);
	placed_fill(s, 2);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 2));
	ck_assert_int_eq(placed_answered(&a), 0);
	ck_assert_uint_eq(a.out[63], 1);
	placed_close();
}
END_TEST

START_TEST(a_disk_that_is_asked_again_for_ever_is_eio)
{
	struct swapper_state *s;
	float value;

	if (!placed_open(_i))
		return;
	s = filled(1);
	faulty_begin((struct faulty){ FAULT_ERROR, DISK_READ, -EAGAIN, 1, 3 });
	ck_assert_int_eq(read_now(place, s, NULL, 0, sizeof(value), &value), 0);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 1));
	ck_assert_uint_eq(faulty_end(), 3);
	faulty_begin((struct faulty){ FAULT_ERROR, DISK_READ, -EAGAIN, 1, 100000 });
	ck_assert_int_eq(read_now(place, s, NULL, 0, sizeof(value), &value), -EIO);
	faulty_end();
	placed_close();
}
END_TEST

static void *let_go_when_given_up(void *arg)
{
	uint64_t end = monotonic_ms() + 60000;

	(void)arg;
	while (!placed_figures().evicted && monotonic_ms() < end)
		sched_yield();
	faulty_end();
	return NULL;
}

START_TEST(a_read_of_what_is_given_up_ends_well_and_is_waited_for)
{
	struct placed_answer a;
	struct swapper_state *s;
	struct swapper_pin *h;
	pthread_t thread;

	placed_options.capacity = 2 * PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = placed_add("fp32", SLICE_FLOATS);
	placed_fill(s, 1);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_int_eq(swapper_pin(place, s, 0, PLACED_SLICE, &h), 0);
	placed_fill(s, 2);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_READ, 0, 1, 1 });
	placed_ask(&a, s, h);
	faulty_wait_held(1);
	ck_assert_int_eq(pthread_create(&thread, NULL, let_go_when_given_up, NULL), 0);
	placed_fill(s, 3);
	pthread_join(thread, NULL);
	ck_assert_int_eq(placed_answered(&a), 0);
	ck_assert_uint_eq(a.out[63], 1);
	ck_assert_int_eq(read_some(s, h, 0), -ESTALE);
	ck_assert(placed_is(s, NULL, 0, SLICE_FLOATS, 3));
	swapper_unpin(place, h);
	ck_assert_uint_eq(placed_figures().errors, 0);
	placed_close();
}
END_TEST

START_TEST(an_edit_of_what_a_silent_disk_has_yet_to_bring_is_made_or_refused)
{
	const float value = 5;
	float seen;
	struct swapper_state *s;
	struct swapper_lent *l;
	void *memory;

	placed_options.wait_ms = 100;
	placed_options.spare = PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = placed_add("fp32", SLICE_FLOATS);
	placed_fill(s, 1);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	faulty_begin((struct faulty){ FAULT_HOLD, DISK_READ, 0, 1, 1 });
	ck_assert_int_eq(swapper_swap_in(place, s, 0, SWAPPER_READ | SWAPPER_WRITE, 20000, &l),
			 0);
	ck_assert_int_eq(swapper_write(place, s, 8, &value, sizeof(value)), -ETIMEDOUT);
	ck_assert_uint_eq(placed_figures().edits, 0);
	faulty_end();
	while (swapper_wait(place, l, &memory) == -ETIMEDOUT)
		;
	ck_assert_int_eq(swapper_write(place, s, 8, &value, sizeof(value)), 0);
	ck_assert_int_eq(swapper_swap_out(place, l), 0);
	ck_assert_int_eq(swapper_publish(place), 0);
	ck_assert_int_eq(read_now(place, s, NULL, 8, sizeof(value), &seen), 0);
	ck_assert_mem_eq(&seen, &value, sizeof(value));
	placed_close();
}
END_TEST

/* ---- no room at all ---- */

START_TEST(what_has_no_room_stays_in_memory_and_then_with_the_caller)
{
	struct swapper_state *a, *b;
	struct swapper_lent *l;
	uint32_t *memory;

	placed_options.capacity = FLOATS * 4;
	placed_options.spare = PLACED_SLICE;
	if (!placed_open(_i))
		return;
	a = filled(1);
	b = placed_add("exp_avg", FLOATS);
	ck_assert_int_eq(swapper_swap_in(place, b, 0, SWAPPER_WRITE, 0, &l), 0);
	ck_assert_int_eq(swapper_swap_out(place, l), 0); /* to the spare memory */
	ck_assert_uint_eq(placed_figures().spare, PLACED_SLICE);
	ck_assert_int_eq(swapper_swap_in(place, b, 1, SWAPPER_READ | SWAPPER_WRITE, 0, &l), 0);
	ck_assert_int_eq(swapper_wait(place, l, (void **)&memory), 0);
	memory[5] = 55;
	ck_assert_int_eq(swapper_swap_out(place, l), -ENOSPC);
	ck_assert(placed_was_said("swap: exp_avg, bytes 0 to 16384: not written, kept in "
				  "memory: No space left on device"));
	ck_assert_int_eq(swapper_write(place, b, 2 * PLACED_SLICE, "1234", 4), -ENOSPC);
	ck_assert_uint_eq(memory[5], 55); /* it is lent as before */
	ck_assert_int_eq(swapper_flush(place, 20000), -ENOSPC);
	/* There is room again. */
	ck_assert_int_eq(swapper_clear(place, a), 0);
	swapper_publish(place);
	ck_assert_int_eq(swapper_swap_out(place, l), 0);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	swapper_publish(place);
	ck_assert(placed_is(b, NULL, SLICE_FLOATS + 5, 1, 55));
	ck_assert_uint_eq(placed_figures().spare, 0);
	placed_close();
}
END_TEST

START_TEST(a_walk_goes_on_where_it_had_no_room)
{
	struct swapper_lent *lent[2];
	struct swapper_swept walked[2];
	struct swapper_state *ballast;
	struct swapper_sweep *w;
	uint64_t first, numel;

	placed_options.capacity = 3 * PLACED_SLICE;
	if (!placed_open(_i))
		return;
	for (int i = 0; i < 2; i++)
		walked[i] =
			(struct swapper_swept){ placed_add("x", SLICE_FLOATS), SWAPPER_WRITE };
	ballast = placed_add("ballast", 2 * SLICE_FLOATS);
	placed_fill(ballast, 1);
	ck_assert_int_eq(swapper_sweep_begin(place, walked, 2, &w), 0);
	ck_assert_int_eq(swapper_sweep_next(w, &first, &numel), 1);
	for (unsigned i = 0; i < 2; i++)
		memset(swapper_sweep_memory(w, i), (int)i, PLACED_SLICE);
	ck_assert_int_eq(swapper_sweep_next(w, &first, &numel), -ENOSPC);
	ck_assert_ptr_null(swapper_sweep_memory(w, 0));
	ck_assert_ptr_nonnull(swapper_sweep_memory(w, 1));
	ck_assert_int_eq(swapper_put(place, ballast, 0, (float[]){ 2 }, 1), 0);
	ck_assert_int_eq(swapper_swap_out_puts(place, ballast), -ENOSPC);
	ck_assert_int_eq(swapper_swap_in_all(place, ballast, SWAPPER_READ, 20000, lent),
			 -ENOSPC);
	swapper_drop(place, ballast);
	ck_assert_int_eq(swapper_sweep_next(w, &first, &numel), 0);
	swapper_sweep_end(w);
	swapper_publish(place);
	ck_assert(placed_is(walked[0].state, NULL, 0, SLICE_FLOATS, 0));
	ck_assert(placed_is(walked[1].state, NULL, 0, SLICE_FLOATS, 0x01010101));
	placed_close();
}
END_TEST

/* ---- no buffer ---- */

START_TEST(without_a_buffer_an_edit_takes_spare_memory_or_is_refused)
{
	static uint8_t half[PLACED_SLICE / 2] = { 1, 2, 3 };
	struct swapper_state *s, *other;
	struct swapper_lent *l[8];
	struct swapper_sweep *w;
	uint64_t first, numel;
	uint8_t out[3];

	placed_options.spare = PLACED_SLICE;
	if (!placed_open(_i))
		return;
	s = filled(1);
	other = placed_add("other", 8 * SLICE_FLOATS);
	for (unsigned i = 0; i < 8; i++)
		ck_assert_int_eq(swapper_swap_in(place, other, i, SWAPPER_READ, 0, &l[i]), 0);
	faulty_begin((struct faulty){ FAULT_FLIP, DISK_READ, 0, 1, 1 });
	ck_assert_int_eq(swapper_write(place, s, 0, half, sizeof(half)), -EIO);
	ck_assert_uint_eq(faulty_end(), 1);
	ck_assert_uint_eq(placed_figures().spare, 0);
	ck_assert_int_eq(swapper_write(place, s, 0, half, sizeof(half)), 0);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_eq(placed_figures().spare, 0);
	/* With a patch there is less of it than a slice. */
	ck_assert_int_eq(swapper_write(place, s, PLACED_SLICE, half, 1), 0);
	ck_assert_int_eq(swapper_write(place, s, 0, half, sizeof(half)), -ENOBUFS);
	ck_assert_int_eq(
		swapper_sweep_begin(place, &(struct swapper_swept){ s, SWAPPER_READ }, 1, &w),
		0);
	ck_assert_int_eq(swapper_sweep_next(w, &first, &numel), -ENOBUFS);
	swapper_return(place, l[0]);
	ck_assert_int_eq(swapper_sweep_next(w, &first, &numel), 1);
	swapper_sweep_end(w);
	for (unsigned i = 1; i < 8; i++)
		swapper_return(place, l[i]);
	swapper_publish(place);
	ck_assert_int_eq(read_now(place, s, NULL, 0, 3, out), 0);
	ck_assert_mem_eq(out, half, 3);
	placed_close();
}
END_TEST

START_TEST(values_are_not_put_into_what_is_damaged)
{
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled(0x3f800000);
	faulty_begin((struct faulty){ FAULT_FLIP, DISK_READ, 0, 1, 1 });
	ck_assert_int_eq(swapper_accumulate(place, s, 3, (float[]){ 1 }, 1), -EIO);
	ck_assert_uint_eq(faulty_end(), 1);
	ck_assert_int_eq(swapper_accumulate(place, s, 3, (float[]){ 1 }, 1), 0);
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 3, 1, 0x40000000));
	placed_close();
}
END_TEST

/* ---- the disk fails ---- */

START_TEST(a_disk_that_fails_for_a_while_costs_nothing)
{
	struct swapper_state *s;

	placed_options.spare = FLOATS * 4;
	if (!placed_open(_i))
		return;
	s = filled(1);
	faulty_begin((struct faulty){ FAULT_ERROR, DISK_WRITE, -EIO, 1, 1000 });
	for (uint32_t step = 2; step < 6; step++) {
		placed_fill(s, step);
		ck_assert(placed_is(s, NULL, 0, FLOATS, step));
	}
	ck_assert_int_eq(swapper_flush(place, 20000), -EIO);
	ck_assert_uint_eq(placed_figures().spare, FLOATS * 4);
	ck_assert_uint_eq(placed_figures().pinned.lent, 0);
	ck_assert_uint_gt(faulty_end(), 15);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_eq(placed_figures().spare, 0);
	ck_assert_uint_eq(placed_figures().file.extents, 4);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 5));
	placed_close();
}
END_TEST

/* What cannot go to ordinary memory keeps its buffer, as long as there are any. */
START_TEST(without_spare_memory_buffers_are_kept_and_then_the_errno_is_told)
{
	struct swapper_state *s;
	struct swapper_lent *l;
	int rc = 0;
	unsigned n;

	if (!placed_open(_i))
		return;
	s = placed_add("fp32", 10 * SLICE_FLOATS);
	faulty_begin((struct faulty){ FAULT_ERROR, DISK_WRITE, -EIO, 1, 1000 });
	for (n = 0; n < 9; n++) {
		rc = swapper_swap_in(place, s, n, SWAPPER_WRITE, 20000, &l);
		if (rc)
			break;
		ck_assert_int_eq(swapper_swap_out(place, l), 0);
	}
	ck_assert_uint_eq(n, 8);
	ck_assert_int_eq(rc, -EIO);
	ck_assert_int_eq(read_some(s, NULL, 9), 0);
	faulty_end();
	ck_assert_int_eq(swapper_swap_in(place, s, 9, SWAPPER_WRITE, 20000, &l), 0);
	swapper_return(place, l);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_uint_eq(placed_figures().pinned.lent, 0);
	placed_close();
}
END_TEST

START_TEST(an_edit_of_what_is_damaged_is_eio_and_changes_nothing)
{
	struct swapper_state *s;
	uint8_t big[PLACED_SLICE + 100] = { 1 };

	if (!placed_open(_i))
		return;
	s = filled(1);
	faulty_begin((struct faulty){ FAULT_FLIP, DISK_READ, 0, 1, 1000 });
	/* all of slice 1, a part of slice 2 */
	ck_assert_int_eq(swapper_write(place, s, PLACED_SLICE, big, sizeof(big)), -EIO);
	ck_assert(placed_was_said("swap: fp32, bytes 40960 to 45056: damaged"));
	faulty_end();
	swapper_publish(place);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 1));
	placed_close();
}
END_TEST

/* ---- the container is damaged, or goes ---- */

static void flip_byte(uint64_t at)
{
	char path[PLACED_PATH];
	uint8_t byte;
	int fd;

	placed_container(path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 0x10;
	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

START_TEST(a_flipped_bit_is_eio_there_and_nowhere_else)
{
	struct swapper_sweep *w;
	struct swapper_state *s;
	uint64_t first, numel;
	int rc, n = 0;

	if (!placed_open(_i))
		return;
	s = filled(1);
	flip_byte(2 * PLACED_SLICE + 4096 + 77);
	ck_assert_int_eq(read_some(s, NULL, 2), 0);
	ck_assert_int_eq(
		read_now(place, s, NULL, 2 * PLACED_SLICE + 4000, 200, (char[200]){ 0 }), -EIO);
	ck_assert(placed_was_said("swap: fp32, bytes 36864 to 40960: damaged"));
	ck_assert_int_eq(
		swapper_sweep_begin(place, &(struct swapper_swept){ s, SWAPPER_READ }, 1, &w),
		0);
	while ((rc = swapper_sweep_next(w, &first, &numel)) == 1)
		n++;
	ck_assert_int_eq(rc, -EIO);
	ck_assert_int_eq(n, 2);
	swapper_sweep_end(w);
	ck_assert(placed_is(s, NULL, 3 * SLICE_FLOATS, SLICE_FLOATS, 1));
	placed_fill(s, 2);
	ck_assert(placed_is(s, NULL, 0, FLOATS, 2));
	placed_close();
}
END_TEST

START_TEST(a_directory_that_goes_takes_nothing_with_it)
{
	struct swapper_state *s;

	if (!placed_open(_i))
		return;
	s = filled(1);
	ck_assert_int_eq(rmdir(placed_dir), 0);
	for (uint32_t step = 2; step < 5; step++) {
		placed_fill(s, step);
		ck_assert_int_eq(swapper_flush(place, 20000), 0);
		ck_assert(placed_is(s, NULL, 0, FLOATS, step));
	}
	placed_close();
}
END_TEST

static void train_for_ever(int ready)
{
	struct swapper_state *s = placed_add("fp32", FLOATS);

	for (uint32_t step = 1; step < UINT32_MAX; step++) {
		placed_fill(s, step);
		if (write(ready, "s", 1) != 1)
			_exit(1);
	}
}

START_TEST(killed_while_it_swaps_it_leaves_no_file)
{
	int ready[2];
	pid_t pid;
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		if (!placed_open(_i))
			_exit(77);
		train_for_ever(ready[1]);
	}
	close(ready[1]);
	for (int i = 0; i < 5 && read(ready[0], &byte, 1) == 1; i++)
		;
	close(ready[0]);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(rmdir(placed_dir), 0);
}
END_TEST

/* ---- without memory ---- */

/* Whatever is missing, values are those of before or of after. */
static int use_it(struct swapper_state *s, struct swapper_state *small)
{
	struct swapper_sweep *w;
	struct swapper_pin *h;
	uint64_t first, numel;
	uint8_t bytes[8192] = { 0 };
	int rc = swapper_sweep_begin(
		place, &(struct swapper_swept){ s, SWAPPER_READ | SWAPPER_WRITE }, 1, &w);

	if (rc)
		return rc;
	while ((rc = swapper_sweep_next(w, &first, &numel)) == 1)
		;
	swapper_sweep_end(w);
	rc = rc ? rc : swapper_write(place, s, 100, bytes, 4);
	rc = rc ? rc : swapper_write(place, s, 0, bytes, sizeof(bytes));
	rc = rc ? rc : swapper_write(place, small, 0, bytes, 4);
	rc = rc ? rc : swapper_put(place, small, 0, bytes, 4);
	rc = rc ? rc : swapper_swap_out_puts(place, NULL);
	rc = rc ? rc : swapper_pin(place, s, 0, 100, &h);
	if (rc)
		return rc;
	rc = read_now(place, s, h, 0, 100, bytes);
	rc = rc ? rc : read_now(place, s, NULL, 3, 100, bytes);
	swapper_unpin(place, h);
	return rc ? rc : swapper_read_newest(place, s, 5, 100, bytes);
}

START_TEST(it_is_used_or_enomem)
{
	unsigned n = 0, failed;

	placed_options.spare = 4096;
	placed_options.least = PLACED_SLICE;
	placed_options.disk_ops = NULL;
	if (!placed_open(_i))
		return;
	do {
		struct swapper_state *s = filled(0);
		struct swapper_state *small = placed_add("bias", 100);
		int rc;

		scarce_begin(++n, 1);
		rc = use_it(s, small);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
		swapper_publish(place);
		ck_assert(placed_is(s, NULL, 0, FLOATS, 0));
		ck_assert_uint_eq(placed_figures().pins, 0);
		swapper_drop(place, s);
		swapper_drop(place, small);
		ck_assert_int_eq(swapper_flush(place, 20000), 0);
		ck_assert_uint_eq(placed_figures().pinned.lent, 0);
		ck_assert_uint_eq(placed_figures().spare, 0);
		ck_assert_uint_eq(placed_figures().small, 0);
	} while (failed);
	ck_assert_uint_gt(n, 20);
	placed_close();
}
END_TEST

static int open_and_add(void)
{
	char why[512];
	struct swapper_state *s;
	int rc = swapper_open(&place, &placed_options, why, sizeof(why));

	if (rc)
		return rc;
	rc = swapper_add(place, "fp32", SWAPPER_STATE, 4, FLOATS, &s);
	placed_close();
	return rc;
}

START_TEST(it_is_opened_or_said_why_not)
{
	unsigned n = 0, failed;

	placed_options.disk_ops = _i ? &disk_threads : NULL;
	do {
		int rc;

		scarce_begin(++n, 1);
		rc = open_and_add();
		failed = scarce_end();
		ck_assert_msg(!rc || failed, "%u: %d", n, rc);
	} while (failed);
	ck_assert_uint_gt(n, 10);
}
END_TEST

int main(void)
{
	const void *const tests[] = {
		an_edit_of_what_a_silent_disk_has_yet_to_bring_is_made_or_refused,
		readers_do_not_fill_the_disk,
		without_room_the_oldest_reader_loses_first,
		without_room_for_two_generations_the_trainer_goes_on,
		what_is_being_read_is_not_taken_from_the_reader,
		a_read_of_what_is_given_up_ends_well_and_is_waited_for,
		a_walk_goes_on_where_it_had_no_room,
		without_a_buffer_an_edit_takes_spare_memory_or_is_refused,
		values_are_not_put_into_what_is_damaged,
		what_has_no_room_stays_in_memory_and_then_with_the_caller,
		a_disk_that_fails_for_a_while_costs_nothing,
		without_spare_memory_buffers_are_kept_and_then_the_errno_is_told,
		an_edit_of_what_is_damaged_is_eio_and_changes_nothing,
		a_flipped_bit_is_eio_there_and_nowhere_else,
		a_directory_that_goes_takes_nothing_with_it,
		killed_while_it_swaps_it_leaves_no_file,
		a_disk_that_is_asked_again_for_ever_is_eio,
		it_is_used_or_enomem,
		it_is_opened_or_said_why_not,
	};

	return placed_main("place-faults", tests, ARRAY_SIZE(tests));
}

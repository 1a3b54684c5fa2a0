/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Blocks, parameters, pins, the map; and random use beside a plain model that has the bytes.
 * TEST_SEED, TEST_ROUNDS.  Plans: test-arena-plan; DeepSpeed's own traces, and what is wrong
 * with them: test-arena-deepspeed.
 */

#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"
#include "tests/unit/memory/arena-look.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 100 };

static struct arena arena;

static void setup(void)
{
	ck_assert_int_eq(arena_init(&arena, &(struct arena_options){ SIZE, .align = 1 }), 0);
}

static void teardown(void)
{
	ck_assert(arena_check(&arena));
	arena_fini(&arena);
}

static uint64_t alloc(uint64_t size)
{
	uint64_t block = 0;

	ck_assert_int_eq(arena_alloc(&arena, size, &block), 0);
	ck_assert(block);
	return block;
}

static void release(uint64_t block)
{
	ck_assert_int_eq(arena_release(&arena, block), 0);
	ck_assert(arena_check(&arena));
}

static uint64_t start_of(uint64_t block)
{
	uint64_t at, run, size;

	ck_assert_int_eq(arena_find(&arena, block, 0, &at, &run), 0);
	ck_assert_int_eq(arena_size(&arena, block, &size), 0);
	ck_assert_uint_eq(run, size);
	return at;
}

static void expect_map(unsigned resolution, const char *expected)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	ck_assert_int_eq(arena_print(&arena, resolution, file), 0);
	fclose(file);
	ck_assert_str_eq(text, expected);
	free(text);
}

START_TEST(a_block_takes_the_front_of_the_smallest_hole_that_holds_it)
{
	uint64_t a = alloc(10), b = alloc(5), c = alloc(7), d = alloc(5);

	release(a);
	release(c);
	ck_assert_uint_eq(start_of(alloc(6)), start_of(b) + 5);
	ck_assert_uint_eq(start_of(alloc(1)), 21);
	ck_assert_uint_eq(start_of(alloc(8)), 0);
	ck_assert_uint_eq(start_of(d), 22);
}
END_TEST

START_TEST(of_equal_holes_the_lowest_is_taken)
{
	uint64_t block[6];

	for (int i = 0; i < 6; i++)
		block[i] = alloc(5);
	release(block[5]);
	alloc(75); /* the rest */
	release(block[3]);
	release(block[1]);
	ck_assert_uint_eq(start_of(alloc(5)), 5);
	ck_assert_uint_eq(start_of(alloc(5)), 15);
}
END_TEST

START_TEST(neighbours_become_one_hole)
{
	uint64_t a = alloc(30), b = alloc(30), c = alloc(40);

	release(a);
	release(c);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), 40);
	release(b);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), SIZE);
	ck_assert_uint_eq(arena.nholes, 1);
}
END_TEST

START_TEST(an_old_handle_means_nothing)
{
	uint64_t a = alloc(10), b, at, run, size;

	release(a);
	b = alloc(10);
	ck_assert_uint_eq(start_of(b), 0);
	ck_assert_uint_ne(a, b);
	ck_assert_int_eq(arena_release(&arena, a), -ENOENT);
	ck_assert_int_eq(arena_pin(&arena, a), -ENOENT);
	ck_assert_int_eq(arena_find(&arena, a, 0, &at, &run), -ENOENT);
	ck_assert_int_eq(arena_size(&arena, a, &size), -ENOENT);
	ck_assert_int_eq(arena_assign(&arena, 1, a, 0, 1), -ENOENT);
	ck_assert_int_eq(arena_find(&arena, b, 10, &at, &run), -EINVAL);
	ck_assert_int_eq(arena_release(&arena, 0), -ENOENT);
	ck_assert_int_eq(arena_release(&arena, UINT64_MAX), -ENOENT);
}
END_TEST

START_TEST(figures_are_kept)
{
	uint64_t a = alloc(60), b = alloc(30);

	ck_assert_uint_eq(arena_total_free(&arena), 10);
	release(a);
	ck_assert_uint_eq(arena_total_free(&arena), 70);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), 60);
	ck_assert_uint_eq(arena_attainable(&arena), 70);
	ck_assert_int_eq(arena_pin(&arena, b), 0);
	ck_assert_uint_eq(arena_attainable(&arena), 60);
	arena_unpin(&arena, b);
	ck_assert_uint_eq(arena_max_allocated(&arena), 90);
}
END_TEST

START_TEST(a_pinned_block_does_not_go)
{
	uint64_t a = alloc(60);

	ck_assert_int_eq(arena_pin(&arena, a), 0);
	ck_assert_int_eq(arena_pin(&arena, a), 0);
	arena_unpin(&arena, a);
	ck_assert_int_eq(arena_release(&arena, a), -EBUSY);
	arena_unpin(&arena, a);
	release(a);
}
END_TEST

START_TEST(parameters_have_parts_of_blocks)
{
	uint64_t a = alloc(60), block, offset, size, param, seen = 0;
	uint32_t cursor = 0;

	ck_assert_int_eq(arena_assign(&arena, 7, a, 0, 40), 0);
	ck_assert_int_eq(arena_assign(&arena, 8, a, 30, 30), 0);
	ck_assert_int_eq(arena_assign(&arena, 9, a, 60, 0), 0);
	ck_assert_int_eq(arena_assign(&arena, 7, a, 0, 1), -EEXIST);
	ck_assert_int_eq(arena_assign(&arena, 10, a, 1, 60), -EINVAL);
	ck_assert_int_eq(arena_assign(&arena, 10, a, 61, 0), -EINVAL);
	ck_assert_int_eq(arena_param(&arena, 8, &block, &offset, &size), 0);
	ck_assert(block == a && offset == 30 && size == 30);
	while (arena_param_of(&arena, a, &cursor, &param))
		seen |= (uint64_t)1 << param;
	ck_assert_uint_eq(seen, 1 << 7 | 1 << 8 | 1 << 9);
	ck_assert_int_eq(arena_unassign(&arena, 8), 0);
	ck_assert_int_eq(arena_unassign(&arena, 8), -ENOENT);
	ck_assert(arena_check(&arena));
	ck_assert_int_eq(arena_param(&arena, 7, &block, &offset, &size), 0);
	ck_assert_int_eq(arena_release(&arena, block), 0);
	ck_assert_int_eq(arena_param(&arena, 9, &block, &offset, &size), -ENOENT);
	cursor = 0;
	ck_assert(!arena_param_of(&arena, a, &cursor, &param));
}
END_TEST

START_TEST(many_parameters_come_and_go)
{
	uint64_t a = alloc(60), block, offset, size;

	for (uint64_t i = 0; i < 1000; i++)
		ck_assert_int_eq(arena_assign(&arena, i << 40 | i, a, i % 60, 1), 0);
	for (uint64_t i = 0; i < 1000; i += 2)
		ck_assert_int_eq(arena_unassign(&arena, i << 40 | i), 0);
	for (uint64_t i = 0; i < 1000; i++)
		ck_assert_int_eq(arena_param(&arena, i << 40 | i, &block, &offset, &size),
				 i % 2 ? 0 : -ENOENT);
	ck_assert(arena_check(&arena));
	ck_assert_uint_eq(arena.params.count, 500);
}
END_TEST

START_TEST(the_map_shows_free_used_both_and_pinned)
{
	uint64_t a = alloc(30), b = alloc(25), c = alloc(1);

	ck_assert_int_eq(arena_pin(&arena, c), 0);
	release(a);
	expect_map(10, "...||#....\n");
	expect_map(4, ".:#.\n");
	expect_map(2, ":#\n");
	expect_map(1, "#\n");
	expect_map(0, "\n");
	arena_unpin(&arena, c);
	expect_map(20, "......|||||:........\n");
	release(c);
	release(b);
	expect_map(3, "...\n");
}
END_TEST

START_TEST(wrong_arenas_are_refused)
{
	struct arena a;

	ck_assert_int_eq(arena_init(&a, &(struct arena_options){ 0, .align = 1 }), -EINVAL);
	ck_assert_int_eq(arena_init(&a, &(struct arena_options){ 8, .align = 0 }), -EINVAL);
	ck_assert_int_eq(arena_init(&a, &(struct arena_options){ 9, .align = 4 }), -EINVAL);
}
END_TEST

START_TEST(the_largest_arena_is_one)
{
	struct arena_options options = { UINT64_MAX / 4096 * 4096, .align = 4096 };
	uint64_t a, b;

	arena_fini(&arena);
	ck_assert_int_eq(arena_init(&arena, &options), 0);
	ck_assert_int_eq(arena_alloc(&arena, UINT64_MAX, &a), -ENOSPC);
	ck_assert_int_eq(arena_alloc(&arena, options.size, &a), 0);
	ck_assert_int_eq(arena_alloc(&arena, 1, &b), -ENOSPC);
	ck_assert_uint_eq(arena_total_free(&arena), 0);
	ck_assert_int_eq(arena_plan(&arena, UINT64_MAX), -ENOSPC);
	release(a);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), options.size);
}
END_TEST

START_TEST(records_are_bounded)
{
	struct arena_options options = { SIZE, .align = 1, .blocks_max = 3 };
	uint64_t a, b, c;

	arena_fini(&arena);
	ck_assert_int_eq(arena_init(&arena, &options), 0);
	a = alloc(1);
	b = alloc(1);
	ck_assert_int_eq(arena_alloc(&arena, 1, &c), -ENOMEM);
	ck_assert(arena_check(&arena));
	c = alloc(98); /* the hole's own record */
	release(b);
	release(a);
	release(c);
}
END_TEST

START_TEST(what_cannot_be_printed_is_eio)
{
	FILE *full = fopen("/dev/full", "w");

	ck_assert_ptr_nonnull(full);
	setvbuf(full, NULL, _IONBF, 0);
	ck_assert_int_eq(arena_print(&arena, 10, full), -EIO);
	fclose(full);
}
END_TEST

/* ---- any call may find the machine out of memory ---- */

static int build_and_plan(struct arena *a)
{
	uint64_t block[40], copied = 0;
	struct arena_copy copy;
	int rc = arena_init(a, &(struct arena_options){ 400, .align = 1 });

	for (int i = 0; i < 40 && !rc; i++)
		rc = arena_alloc(a, 10, &block[i]);
	for (uint64_t i = 0; i < 80 && !rc; i++)
		rc = arena_assign(a, i, block[i % 40], 0, 1);
	for (int i = 0; i < 40 && !rc; i += 2)
		rc = arena_release(a, block[i]);
	rc = rc ? rc : arena_plan(a, 25);
	while (!rc && arena_next_copy(a, 3, &copy) == 1) {
		copied += copy.size;
		arena_copied(a);
	}
	return rc ? rc : copied == a->plan.units ? 0 : -EIO;
}

START_TEST(a_call_without_memory_has_changed_nothing)
{
	for (unsigned n = 1;; n++) {
		struct arena a = { .first = ARENA_NONE };
		int rc;

		scarce_begin(n, 1);
		rc = build_and_plan(&a);
		if (!scarce_end()) {
			ck_assert_int_eq(rc, 0);
			ck_assert_uint_gt(n, 5);
			arena_fini(&a);
			return;
		}
		ck_assert_int_eq(rc, -ENOMEM);
		ck_assert(!a.blocks || (arena_check(&a) && !a.plan.active));
		arena_fini(&a);
	}
}
END_TEST

/* ---- random use, beside the bytes ---- */

enum { UNITS = 600, LIVE = 64 };

struct live {
	uint64_t block, size, asked;
	unsigned pins;
	uint16_t value;
};

struct world {
	struct arena a;
	struct live live[LIVE];
	uint64_t used;
	unsigned n;
	uint16_t bytes[UNITS], next_value;
	uint64_t state;
};

static unsigned draw(struct world *w, unsigned below)
{
	w->state = w->state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(w->state >> 33) % below;
}

/* Asserts that every unit of every block is where arena_find says: once for all blocks, since
 * check writes each assertion that holds to a file.
 */
static void see_all(struct world *w)
{
	uint64_t wrong = 0;

	for (unsigned i = 0; i < w->n; i++) {
		uint64_t offset = 0, at, run;

		while (offset < w->live[i].size) {
			if (arena_find(&w->a, w->live[i].block, offset, &at, &run))
				ck_abort_msg("block %u is not found at %" PRIu64, i, offset);
			for (uint64_t k = 0; k < run; k++)
				wrong += w->bytes[at + k] !=
					 (uint16_t)(w->live[i].value + offset + k);
			offset += run;
		}
		wrong += offset != w->live[i].size;
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert(arena_check(&w->a));
	ck_assert_uint_eq(w->used, w->a.used);
}

static bool fits(const struct world *w, uint64_t size)
{
	struct arena_part part;
	uint32_t cursor = 0;

	while (arena_next_part(&w->a, &cursor, &part))
		if (part.kind == ARENA_HOLE && part.size >= size)
			return true;
	return false;
}

static void random_alloc(struct world *w)
{
	uint64_t asked = 1 + draw(w, draw(w, 4) ? 20 : 120), at, run;
	struct live *l = &w->live[w->n];
	int rc;

	if (w->n == LIVE)
		return;
	l->size = u64_div_ceil(asked, w->a.align) * w->a.align;
	rc = arena_alloc(&w->a, asked, &l->block);
	if (rc == -EAGAIN && draw(w, 2) && arena_plan_yield(&w->a, asked)) {
		rc = arena_alloc(&w->a, asked, &l->block);
		ck_assert_int_eq(rc, 0);
	}
	if (rc) {
		ck_assert_int_eq(rc, l->size > UNITS - w->used ? -ENOSPC : -EAGAIN);
		ck_assert(!fits(w, l->size));
		return;
	}
	l->pins = 0;
	l->value = w->next_value += 1000;
	w->used += l->size;
	w->n++;
	ck_assert_int_eq(arena_find(&w->a, l->block, 0, &at, &run), 0);
	ck_assert_uint_eq(run, l->size);
	for (uint64_t k = 0; k < run; k++)
		w->bytes[at + k] = (uint16_t)(l->value + k);
}

static void random_release(struct world *w)
{
	struct live *l = &w->live[draw(w, LIVE)];
	int rc;

	if (l >= w->live + w->n)
		return;
	rc = arena_release(&w->a, l->block);
	ck_assert_int_eq(rc, l->pins ? -EBUSY : 0);
	if (rc)
		return;
	w->used -= l->size;
	*l = w->live[--w->n];
}

static void random_pin(struct world *w)
{
	struct live *l = &w->live[draw(w, LIVE)];

	if (l >= w->live + w->n)
		return;
	if (draw(w, 3)) {
		for (; l->pins; l->pins--)
			arena_unpin(&w->a, l->block);
	} else if (!arena_pin(&w->a, l->block)) {
		l->pins++;
	}
}

static void random_plan(struct world *w)
{
	uint64_t want = 1 + draw(w, 200), attainable = arena_attainable(&w->a);
	int rc;

	if (!draw(w, 8)) {
		rc = arena_plan_pack(&w->a);
		ck_assert(!rc || rc == -EBUSY);
		return;
	}
	rc = arena_plan(&w->a, want);
	want = u64_div_ceil(want, w->a.align) * w->a.align;
	ck_assert(rc || w->a.plan.minimum <= w->a.plan.units);
	if (rc == -ENOSPC)
		ck_assert_uint_gt(want, UNITS - w->used);
	else if (rc)
		ck_assert(rc == -EBUSY && (w->a.plan.active || want > attainable));
}

static void random_step(struct world *w)
{
	struct arena_copy copy;
	int rc;

	if (!draw(w, 50)) {
		rc = arena_plan_drop(&w->a);
		ck_assert_int_eq(rc, w->a.plan.moving ? -EAGAIN : 0);
		return;
	}
	rc = arena_next_copy(&w->a, 1 + draw(w, 30), &copy);
	if (rc != 1) {
		ck_assert(!w->a.plan.active && (!rc || rc == -EBUSY));
		return;
	}
	memmove(w->bytes + copy.to, w->bytes + copy.from, copy.size * sizeof(*w->bytes));
	arena_copied(&w->a);
}

static void random_act(struct world *w)
{
	unsigned what = draw(w, 100);

	if (what < 25)
		random_alloc(w);
	else if (what < 40)
		random_release(w);
	else if (what < 50)
		random_pin(w);
	else if (what < 60)
		random_plan(w);
	else
		random_step(w);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

START_TEST(random_use_keeps_every_unit)
{
	uint64_t rounds = setting("TEST_ROUNDS", 12);
	uint64_t seed = setting("TEST_SEED", monotonic_ns());

	printf("TEST_SEED=%" PRIu64 "\n", seed);
	for (uint64_t round = 0; round < rounds; round++) {
		struct world w = { .state = seed + round };
		struct arena_options options = { UNITS, .align = round % 3 ? 1 : 4,
						 .tie = round % 2 };

		ck_assert_int_eq(arena_init(&w.a, &options), 0);
		for (int i = 0; i < 1500; i++) {
			random_act(&w);
			see_all(&w);
		}
		arena_fini(&w.a);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("arena");
	TCase *t = tcase_create("arena");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, a_block_takes_the_front_of_the_smallest_hole_that_holds_it);
	tcase_add_test(t, of_equal_holes_the_lowest_is_taken);
	tcase_add_test(t, neighbours_become_one_hole);
	tcase_add_test(t, an_old_handle_means_nothing);
	tcase_add_test(t, figures_are_kept);
	tcase_add_test(t, a_pinned_block_does_not_go);
	tcase_add_test(t, parameters_have_parts_of_blocks);
	tcase_add_test(t, many_parameters_come_and_go);
	tcase_add_test(t, the_map_shows_free_used_both_and_pinned);
	tcase_add_test(t, wrong_arenas_are_refused);
	tcase_add_test(t, the_largest_arena_is_one);
	tcase_add_test(t, records_are_bounded);
	tcase_add_test(t, what_cannot_be_printed_is_eio);
	tcase_add_test(t, a_call_without_memory_has_changed_nothing);
	tcase_add_test(t, random_use_keeps_every_unit);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Compaction: every small arena, with every choice of pinned blocks, against a search of all
 * ways to move blocks; and what may happen while a plan runs.  TEST_SIZE: units of the small
 * arenas.
 */

#include "tests/run-suite.h"
#include "tests/unit/memory/arena-look.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 10, STATES = 1 << 16 };

/* ---- every small arena: parts in a row, no two holes together ---- */

struct small {
	unsigned size, nparts;
	struct {
		unsigned start, size;
		bool used, pinned;
	} part[MOST];
};

typedef void small_fn(const struct small *s);

static void every_pinning(struct small *s, unsigned i, small_fn *each)
{
	while (i < s->nparts && !s->part[i].used)
		i++;
	if (i >= s->nparts) {
		each(s);
		return;
	}
	for (unsigned pinned = 0; pinned < 2; pinned++) {
		s->part[i].pinned = pinned;
		every_pinning(s, i + 1, each);
	}
}

static void every_small(struct small *s, unsigned at, small_fn *each)
{
	if (at == s->size) {
		every_pinning(s, 0, each);
		return;
	}
	for (unsigned used = 0; used < 2; used++) {
		if (!used && s->nparts && !s->part[s->nparts - 1].used)
			continue;
		for (unsigned size = 1; size <= s->size - at; size++) {
			s->part[s->nparts].start = at;
			s->part[s->nparts].size = size;
			s->part[s->nparts].used = used;
			s->part[s->nparts].pinned = false;
			s->nparts++;
			every_small(s, at + size, each);
			s->nparts--;
		}
	}
}

/* ---- the search: who has each unit, 4 bits of part + 1, 0: nobody ---- */

struct state {
	uint64_t units;
	unsigned cost;
	uint32_t slot;
};

static struct state states[STATES];
static uint32_t slot[STATES * 2];
static unsigned nstates;

static uint64_t place(uint64_t units, unsigned who, unsigned at, unsigned size)
{
	for (unsigned i = 0; i < size; i++)
		units |= (uint64_t)who << 4 * (at + i);
	return units;
}

static uint64_t lift(uint64_t units, unsigned who)
{
	for (unsigned i = 0; i < MOST; i++)
		if ((units >> 4 * i & 15) == who)
			units &= ~((uint64_t)15 << 4 * i);
	return units;
}

static bool is_free(uint64_t units, unsigned at, unsigned size)
{
	return !(units >> 4 * at & (((uint64_t)1 << 4 * size) - 1));
}

/* True: it is new, or cheaper than it was. */
static bool note(uint64_t units, unsigned cost)
{
	uint32_t i = (uint32_t)(units * 0x9e3779b97f4a7c15u >> 47);

	for (; slot[i]; i = (i + 1) % (STATES * 2)) {
		struct state *s = &states[slot[i] - 1];

		if (s->units != units)
			continue;
		if (s->cost <= cost)
			return false;
		s->cost = cost;
		return true;
	}
	ck_assert_uint_lt(nstates, STATES);
	states[nstates] = (struct state){ units, cost, i };
	slot[i] = ++nstates;
	return true;
}

static bool move_each_block(const struct small *s, struct state from)
{
	bool better = false;

	for (unsigned p = 0; p < s->nparts; p++) {
		uint64_t lifted = lift(from.units, p + 1);

		if (!s->part[p].used || s->part[p].pinned)
			continue;
		for (unsigned at = 0; at + s->part[p].size <= s->size; at++)
			if (is_free(lifted, at, s->part[p].size))
				better |= note(place(lifted, p + 1, at, s->part[p].size),
					       from.cost + s->part[p].size);
	}
	return better;
}

static unsigned widest_hole(const struct small *s, uint64_t units)
{
	unsigned widest = 0, run = 0;

	for (unsigned i = 0; i < s->size; i++) {
		run = units >> 4 * i & 15 ? 0 : run + 1;
		widest = run > widest ? run : widest;
	}
	return widest;
}

/* least[want]: units to move; UINT32_MAX: it cannot be had. */
static void search(const struct small *s, unsigned least[MOST + 1])
{
	uint64_t units = 0;
	bool better = true;

	while (nstates)
		slot[states[--nstates].slot] = 0;
	for (unsigned p = 0; p < s->nparts; p++)
		if (s->part[p].used)
			units = place(units, p + 1, s->part[p].start, s->part[p].size);
	note(units, 0);
	while (better) {
		better = false;
		for (unsigned i = 0; i < nstates; i++)
			better |= move_each_block(s, states[i]);
	}
	for (unsigned want = 0; want <= MOST; want++)
		least[want] = UINT32_MAX;
	for (unsigned i = 0; i < nstates; i++)
		for (unsigned want = 0; want <= widest_hole(s, states[i].units); want++)
			if (states[i].cost < least[want])
				least[want] = states[i].cost;
}

/* ---- the same without changing the order: neighbours slide together ---- */

static unsigned cheapest_run(const struct small *s, unsigned want)
{
	unsigned least = UINT32_MAX;

	for (unsigned i = 0; i < s->nparts; i++) {
		unsigned room = 0, cost = 0;

		for (unsigned j = i; j < s->nparts && !s->part[j].pinned; j++) {
			*(s->part[j].used ? &cost : &room) += s->part[j].size;
			if (room >= want && cost < least)
				least = cost;
		}
	}
	return least;
}

/* ---- the arena beside it ---- */

struct built {
	struct arena a;
	uint64_t block[MOST];
	uint8_t units[MOST];
};

/* records: at most so many; 0: as many as it takes */
static void build_of(struct built *b, const struct small *s, uint32_t records)
{
	struct arena_options options = { s->size, .align = 1, .blocks_max = records };

	ck_assert_int_eq(arena_init(&b->a, &options), 0);
	for (unsigned p = 0; p < s->nparts; p++)
		ck_assert_int_eq(arena_alloc(&b->a, s->part[p].size, &b->block[p]), 0);
	for (unsigned p = 0; p < s->nparts; p++) {
		if (!s->part[p].used)
			ck_assert_int_eq(arena_release(&b->a, b->block[p]), 0);
		if (s->part[p].pinned)
			ck_assert_int_eq(arena_pin(&b->a, b->block[p]), 0);
		memset(b->units + s->part[p].start, s->part[p].used ? (int)p + 1 : 0,
		       s->part[p].size);
	}
}

static void build(struct built *b, const struct small *s)
{
	build_of(b, s, 0);
}

static void see_blocks(const struct built *b, const struct small *s)
{
	for (unsigned p = 0; p < s->nparts; p++) {
		uint64_t at, run;

		for (uint64_t i = 0; s->part[p].used && i < s->part[p].size; i++) {
			ck_assert_int_eq(arena_find(&b->a, b->block[p], i, &at, &run), 0);
			ck_assert_uint_eq(b->units[at], p + 1);
			ck_assert(!s->part[p].pinned || at == s->part[p].start + i);
		}
	}
	ck_assert(arena_check(&b->a));
}

static void step_through(struct built *b, const struct small *s, uint64_t most)
{
	uint64_t copied = 0;
	struct arena_copy copy;

	see_blocks(b, s);
	while (arena_next_copy(&b->a, most, &copy) == 1) {
		ck_assert(copy.size && copy.size <= most);
		memmove(b->units + copy.to, b->units + copy.from, copy.size);
		arena_copied(&b->a);
		copied += copy.size;
		see_blocks(b, s);
	}
	ck_assert_uint_eq(copied, b->a.plan.units);
	ck_assert(!b->a.plan.active && !b->a.reserved);
}

static struct {
	unsigned plans, least, ran, refused;
} count;

static void compare(const struct small *s, unsigned want, unsigned least)
{
	unsigned run = cheapest_run(s, want);
	struct built b;
	int rc;

	build(&b, s);
	rc = arena_plan(&b.a, want);
	if (want > arena_total_free(&b.a)) {
		ck_assert_int_eq(rc, -ENOSPC);
	} else if (rc) {
		ck_assert_int_eq(rc, -EBUSY);
		ck_assert_uint_eq(run, UINT32_MAX);
		ck_assert_uint_gt(want, arena_attainable(&b.a));
		count.refused += least != UINT32_MAX;
	} else {
		ck_assert_uint_le(b.a.plan.minimum, least);
		ck_assert_uint_le(least, b.a.plan.units);
		ck_assert_uint_le(b.a.plan.units, run);
		count.plans++;
		count.least += b.a.plan.units == least;
		count.ran += run == least;
		step_through(&b, s, 1 + want % 3);
		ck_assert_uint_ge(arena_largest_contiguous(&b.a), want);
	}
	arena_fini(&b.a);
}

static void compare_all(const struct small *s)
{
	unsigned least[MOST + 1];

	search(s, least);
	for (unsigned want = 1; want <= s->size; want++)
		compare(s, want, least[want]);
}

START_TEST(every_small_arena_is_compacted_by_moving_little)
{
	const char *size = getenv("TEST_SIZE");
	struct small s = { .size = size ? (unsigned)atoi(size) : 6 };

	every_small(&s, 0, compare_all);
	printf("of %u plans %u move the least possible, sliding alone would %u; %u were "
	       "refused "
	       "where a search finds a way\n",
	       count.plans, count.least, count.ran, count.refused);
	ck_assert_uint_gt(count.plans, 1000);
	ck_assert_uint_gt(count.least, count.ran);
	ck_assert_uint_eq(count.least, count.plans);
	ck_assert_uint_lt(count.refused, count.plans / 100);
}
END_TEST

static void pack(const struct small *s)
{
	unsigned room = 0, cost = 0;
	struct built b;

	build(&b, s);
	for (unsigned p = 0; p < s->nparts; p++) {
		if (!s->part[p].used)
			room = 1;
		else if (s->part[p].pinned)
			room = 0;
		else if (room)
			cost += s->part[p].size;
	}
	ck_assert_int_eq(arena_plan_pack(&b.a), 0);
	ck_assert_uint_eq(b.a.plan.units, cost);
	step_through(&b, s, 2);
	ck_assert_uint_eq(arena_largest_contiguous(&b.a), arena_attainable(&b.a));
	arena_fini(&b.a);
}

START_TEST(every_small_arena_is_packed)
{
	struct small s = { .size = 7 };

	every_small(&s, 0, pack);
}
END_TEST

static unsigned recordless;

static void plan_without_records(const struct small *s)
{
	for (unsigned i = 0; i < 2 * s->size; i++) {
		struct built b;
		int rc;

		build_of(&b, s, s->nparts + i % 2);
		rc = arena_plan(&b.a, 1 + i / 2);
		ck_assert(!rc || rc == -ENOSPC || rc == -EBUSY || rc == -ENOMEM);
		ck_assert(!rc || !b.a.plan.active);
		ck_assert(arena_check(&b.a));
		recordless += rc == -ENOMEM;
		if (!rc)
			step_through(&b, s, 2);
		arena_fini(&b.a);
	}
}

START_TEST(a_plan_for_which_there_is_no_record_has_changed_nothing)
{
	struct small s = { .size = 7 };

	every_small(&s, 0, plan_without_records);
	ck_assert_uint_gt(recordless, 100);
}
END_TEST

/* ---- while a plan runs ---- */

enum { SIZE = 100 };

static struct arena arena;
static uint64_t block[10];

/* Ten blocks of 10; those of an even number are released. */
static void setup(void)
{
	ck_assert_int_eq(arena_init(&arena, &(struct arena_options){ SIZE, .align = 1 }), 0);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(arena_alloc(&arena, 10, &block[i]), 0);
	for (int i = 0; i < 10; i += 2)
		ck_assert_int_eq(arena_release(&arena, block[i]), 0);
}

static void teardown(void)
{
	ck_assert(arena_check(&arena));
	arena_fini(&arena);
}

static unsigned step(unsigned copies, uint64_t most)
{
	struct arena_copy copy;
	unsigned n = 0;

	while (n < copies && arena_next_copy(&arena, most, &copy) == 1) {
		arena_copied(&arena);
		n++;
	}
	return n;
}

static uint64_t start_of(uint64_t of)
{
	uint64_t at, run;

	ck_assert_int_eq(arena_find(&arena, of, 0, &at, &run), 0);
	return at;
}

START_TEST(nothing_moves_where_there_is_room)
{
	ck_assert_int_eq(arena_plan(&arena, 10), 0);
	ck_assert_uint_eq(arena.plan.nmoves, 0);
	ck_assert_uint_eq(step(1, 100), 0);
	ck_assert_int_eq(arena_plan(&arena, 0), -EINVAL);
	ck_assert_int_eq(arena_plan(&arena, 51), -ENOSPC);
}
END_TEST

START_TEST(a_block_jumps_to_a_hole_elsewhere)
{
	ck_assert_int_eq(arena_plan(&arena, 30), 0);
	ck_assert_uint_eq(arena.plan.units, 10);
	ck_assert_uint_eq(arena.plan.minimum, 10);
	ck_assert_uint_eq(step(100, 4), 3);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), 30);
}
END_TEST

START_TEST(a_second_plan_waits_for_the_first)
{
	ck_assert_int_eq(arena_plan(&arena, 30), 0);
	ck_assert_int_eq(arena_plan(&arena, 30), -EBUSY);
	ck_assert_int_eq(arena_plan_pack(&arena), -EBUSY);
	ck_assert_int_eq(arena_plan_drop(&arena), 0);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), 10);
	ck_assert_int_eq(arena_plan(&arena, 30), 0);
}
END_TEST

START_TEST(room_that_is_being_cleared_is_nobody_elses)
{
	uint64_t other;

	ck_assert_int_eq(arena_plan(&arena, 50), 0);
	while (arena_alloc(&arena, 1, &other) == 0)
		ck_assert(arena_check(&arena));
	ck_assert_uint_gt(step(1000, 3), 0);
	ck_assert_uint_ge(arena_largest_contiguous(&arena), 50);
}
END_TEST

START_TEST(a_plan_gives_way_where_that_makes_room)
{
	uint64_t largest = arena_largest_contiguous(&arena), moved;

	ck_assert(!arena_plan_yield(&arena, 1));
	ck_assert_int_eq(arena_plan_pack(&arena), 0);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), 0);
	ck_assert(!arena_plan_yield(&arena, largest + 1));
	ck_assert(arena_plan_yield(&arena, largest));
	ck_assert_uint_eq(arena_largest_contiguous(&arena), largest);
	ck_assert_int_eq(arena_plan_pack(&arena), 0);
	ck_assert_uint_gt(step(1, 4), 0);
	moved = arena.plan.moves[arena.plan.done].block;
	ck_assert(arena_plan_yield(&arena, 1));
	ck_assert(arena_check(&arena));
	ck_assert_int_eq(arena_pin(&arena, moved), -EAGAIN);
	step(1000, 3);
	ck_assert_int_eq(arena_pin(&arena, moved), 0);
	ck_assert(!arena.plan.active);
}
END_TEST

START_TEST(a_planned_block_may_be_released)
{
	ck_assert_int_eq(arena_plan(&arena, 50), 0);
	ck_assert_int_eq(arena_release(&arena, block[3]), 0);
	ck_assert(arena_check(&arena));
	step(1, 4);
	ck_assert_int_eq(arena_release(&arena, block[1]), 0);
	ck_assert(arena_check(&arena));
	step(1000, 4);
	ck_assert_uint_ge(arena_largest_contiguous(&arena), 50);
	ck_assert_uint_eq(arena_total_free(&arena), 70);
}
END_TEST

START_TEST(a_block_that_jumps_may_be_released_half_way)
{
	ck_assert_int_eq(arena_plan(&arena, 30), 0);
	step(1, 4);
	ck_assert_int_eq(arena_release(&arena, (uint64_t)arena.plan.moves[0].block), 0);
	ck_assert(arena_check(&arena));
	ck_assert_uint_eq(step(1, 4), 0);
	ck_assert_uint_eq(arena_largest_contiguous(&arena), 30);
}
END_TEST

START_TEST(half_moved_is_neither_pinned_nor_dropped)
{
	uint64_t moved;

	ck_assert_int_eq(arena_plan(&arena, 50), 0);
	step(1, 4);
	moved = arena.plan.moves[0].block;
	ck_assert_int_eq(arena_pin(&arena, moved), -EAGAIN);
	ck_assert_int_eq(arena_plan_drop(&arena), -EAGAIN);
	step(2, 4);
	ck_assert_int_eq(arena_pin(&arena, moved), 0);
	ck_assert_int_eq(arena_plan_drop(&arena), 0);
	arena_unpin(&arena, moved);
}
END_TEST

START_TEST(a_block_pinned_before_its_turn_ends_the_plan)
{
	struct arena_copy copy;
	uint64_t at;

	ck_assert_int_eq(arena_plan_pack(&arena), 0);
	at = start_of(block[5]);
	ck_assert_int_eq(arena_pin(&arena, block[5]), 0);
	step(2, 10);
	ck_assert_uint_eq(arena.plan.done, 2);
	ck_assert_int_eq(arena_next_copy(&arena, 10, &copy), -EBUSY);
	ck_assert_uint_eq(start_of(block[5]), at);
	ck_assert_uint_eq(start_of(block[3]), 10);
	ck_assert_uint_eq(arena.plan.nmoves, 2);
	ck_assert_int_eq(arena_next_copy(&arena, 10, &copy), 0);
	arena_unpin(&arena, block[5]);
}
END_TEST

START_TEST(what_is_pinned_stays_and_the_rest_goes_around_it)
{
	ck_assert_int_eq(arena_pin(&arena, block[5]), 0);
	ck_assert_uint_eq(arena_attainable(&arena), 30);
	ck_assert_int_eq(arena_plan(&arena, 50), 0); /* as no sliding could */
	step(1000, 7);
	ck_assert_uint_ge(arena_largest_contiguous(&arena), 50);
	ck_assert_uint_eq(start_of(block[5]), 50);
	arena_unpin(&arena, block[5]);
}
END_TEST

START_TEST(parameters_follow_their_blocks)
{
	uint64_t of, offset, size, at, run;

	ck_assert_int_eq(arena_assign(&arena, 77, block[9], 4, 5), 0);
	ck_assert_int_eq(arena_plan_pack(&arena), 0);
	step(1000, 10);
	ck_assert_int_eq(arena_param(&arena, 77, &of, &offset, &size), 0);
	ck_assert_int_eq(arena_find(&arena, of, offset, &at, &run), 0);
	ck_assert_uint_eq(at, 44);
	ck_assert_uint_eq(arena.plan.moves[arena.plan.nmoves - 1].to, 40);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("arena plan");
	TCase *t = tcase_create("small"), *running = tcase_create("running");

	tcase_set_timeout(t, 250);
	tcase_add_test(t, every_small_arena_is_compacted_by_moving_little);
	tcase_add_test(t, every_small_arena_is_packed);
	tcase_add_test(t, a_plan_for_which_there_is_no_record_has_changed_nothing);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(running, setup, teardown);
	tcase_add_test(running, nothing_moves_where_there_is_room);
	tcase_add_test(running, a_block_jumps_to_a_hole_elsewhere);
	tcase_add_test(running, a_second_plan_waits_for_the_first);
	tcase_add_test(running, room_that_is_being_cleared_is_nobody_elses);
	tcase_add_test(running, a_planned_block_may_be_released);
	tcase_add_test(running, a_plan_gives_way_where_that_makes_room);
	tcase_add_test(running, a_block_that_jumps_may_be_released_half_way);
	tcase_add_test(running, half_moved_is_neither_pinned_nor_dropped);
	tcase_add_test(running, a_block_pinned_before_its_turn_ends_the_plan);
	tcase_add_test(running, what_is_pinned_stays_and_the_rest_goes_around_it);
	tcase_add_test(running, parameters_follow_their_blocks);
	return run_suite(s, running);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/memory/view-pool.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { MIB = 1 << 20, MAX = 16 * MIB };

static struct view_pool rooms;
static const uint64_t one[2] = { 1, 1 }, two[2] = { 1, 2 };

static void setup(void)
{
	view_pool_init(&rooms, MAX);
}

static void teardown(void)
{
	view_pool_fini(&rooms);
	ck_assert_uint_eq(rooms.kept, 0);
}

static struct view_buffer *lend(uint64_t size, const uint64_t view[2])
{
	struct view_buffer *room = NULL;

	ck_assert_int_eq(view_pool_get(&rooms, size, view, &room), 0);
	memset(room->bytes, 0x5a, size);
	return room;
}

START_TEST(a_room_is_lent_again_under_another_label)
{
	struct view_buffer *first = lend(3 * MIB, one), *second;

	atomic_store(&view_pool_label(first)->complete, 1);
	view_pool_put(&rooms, first, 1);
	ck_assert(!view_pool_label(first)->view[0] && !view_pool_label(first)->complete);
	second = lend(3 * MIB - 100, two);
	ck_assert_ptr_eq(first, second);
	ck_assert(!memcmp(view_pool_label(second)->view, two, sizeof(two)));
	ck_assert(!view_pool_label(second)->complete);
	view_pool_put(&rooms, second, 2);
}
END_TEST

START_TEST(much_room_is_not_wasted_on_little)
{
	struct view_buffer *large = lend(8 * MIB, one), *small;

	view_pool_put(&rooms, large, 1);
	small = lend(100, two);
	ck_assert_ptr_ne(small, large);
	ck_assert_uint_eq(rooms.lent, 4096);
	view_pool_put(&rooms, small, 1);
}
END_TEST

START_TEST(all_of_it_is_bounded)
{
	struct view_buffer *room = lend(12 * MIB, one), *none;

	ck_assert_int_eq(view_pool_get(&rooms, MAX + 1, two, &none), -ENOMEM);
	ck_assert_int_eq(view_pool_get(&rooms, 5 * MIB, two, &none), -EAGAIN);
	view_pool_put(&rooms, room, 1);
	room = lend(5 * MIB, two); /* the idle one, of twice that, is freed for it */
	ck_assert_uint_le(rooms.lent + rooms.kept, MAX);
	view_pool_put(&rooms, room, 1);
}
END_TEST

START_TEST(one_buffer_rounded_up_past_the_bound_leaves_room_for_no_other)
{
	struct view_buffer *only, *none;

	view_pool_fini(&rooms);
	view_pool_init(&rooms, 3 * MIB);
	only = lend(3 * MIB, one);
	ck_assert_uint_gt(rooms.lent, 3 * MIB);
	ck_assert_int_eq(view_pool_get(&rooms, 3 * MIB, two, &none), -EAGAIN);
	ck_assert_int_eq(view_pool_get(&rooms, 1, two, &none), -EAGAIN);
	view_pool_put(&rooms, only, 1);
}
END_TEST

START_TEST(what_is_idle_goes_back_to_the_machine)
{
	view_pool_put(&rooms, lend(2 * MIB, one), 100);
	view_pool_trim(&rooms, 100);
	ck_assert_uint_eq(rooms.kept, 2 * MIB);
	view_pool_trim(&rooms, 101);
	ck_assert_uint_eq(rooms.kept, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rooms");
	TCase *t = tcase_create("rooms");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_room_is_lent_again_under_another_label);
	tcase_add_test(t, much_room_is_not_wasted_on_little);
	tcase_add_test(t, all_of_it_is_bounded);
	tcase_add_test(t, one_buffer_rounded_up_past_the_bound_leaves_room_for_no_other);
	tcase_add_test(t, what_is_idle_goes_back_to_the_machine);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/found.h"
#include "tests/run-suite.h"

#include <stdio.h>
#include <string.h>

enum { MANY = 1000 };

static struct found found;

static void setup(void)
{
	found_init(&found);
}

static void teardown(void)
{
	found_fini(&found);
}

static uint32_t add(uint64_t dir, const char *text)
{
	uint32_t number;

	ck_assert_int_eq(found_add(&found, dir, text, 7, &number), 0);
	return number;
}

START_TEST(a_name_has_one_number)
{
	uint32_t number = add(1, "a");
	struct found_name name;

	ck_assert_uint_eq(add(1, "a"), number);
	ck_assert_uint_ne(add(2, "a"), number);
	ck_assert_uint_ne(add(1, "b"), number);
	ck_assert(found_get(&found, number, &name));
	ck_assert_str_eq(name.text, "a");
	ck_assert_uint_eq(name.dir, 1);
	ck_assert_uint_eq(name.slot, 7);
	ck_assert(!found_get(&found, 3, &name));
}
END_TEST

START_TEST(a_name_lives_as_long_as_it_is_used)
{
	uint32_t number = add(1, "a");
	struct found_name name;

	add(1, "a");
	found_use(&found, number);
	found_drop(&found, number, 2);
	ck_assert(found_get(&found, number, &name));
	found_drop(&found, number, 1);
	ck_assert(!found_get(&found, number, &name));
	ck_assert_uint_eq(found.used, 0);
	found_drop(&found, number, 1); /* of no name */
	found_drop(&found, 12345, 1);
}
END_TEST

START_TEST(memory_of_forgotten_names_is_used_again)
{
	uint32_t room, numbers[MANY];
	char text[16];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MANY; i++) {
			sprintf(text, "%d.%d", round, i);
			numbers[i] = add((uint64_t)i % 3, text);
		}
		for (int i = 0; i < MANY; i++) {
			struct found_name name;

			sprintf(text, "%d.%d", round, i);
			ck_assert(found_get(&found, numbers[i], &name));
			ck_assert_str_eq(name.text, text);
			ck_assert_uint_eq(name.dir, (uint64_t)i % 3);
		}
		ck_assert_uint_eq(found.used, MANY);
		for (int i = 0; i < MANY; i++)
			found_drop(&found, numbers[i * 7 % MANY], 1);
		ck_assert_uint_eq(found.used, 0);
		room = round ? room : found.room;
		ck_assert_uint_eq(found.room, room);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("found");
	TCase *t = tcase_create("found");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_name_has_one_number);
	tcase_add_test(t, a_name_lives_as_long_as_it_is_used);
	tcase_add_test(t, memory_of_forgotten_names_is_used_again);
	return run_suite(s, t);
}

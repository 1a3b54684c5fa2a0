/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/names.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct pair {
	const char *name, *coordinate;
};

static void from_pairs(void *arg, uint32_t number, const char **name, const char **coordinate)
{
	const struct pair *pairs = arg;

	*name = pairs[number].name;
	*coordinate = pairs[number].coordinate;
}

static void check_all_found(const struct names *n)
{
	for (uint32_t i = 0; i < n->count; i++) {
		const char *file = names_get(n, i);

		ck_assert_uint_le(strlen(file), NAMES_FILE_MAX);
		ck_assert_uint_gt(strlen(file), 0);
		ck_assert_ptr_null(strchr(file, '/'));
		ck_assert_str_ne(file, ".");
		ck_assert_str_ne(file, "..");
		ck_assert_int_eq(names_find(n, file), i);
	}
}

static void check_file(struct pair pair, const char *file)
{
	struct names n;

	ck_assert_int_eq(names_init(&n, 1, from_pairs, &pair), 0);
	ck_assert_str_eq(names_get(&n, 0), file);
	check_all_found(&n);
	names_fini(&n);
}

START_TEST(names_are_kept_where_they_can_be)
{
	check_file((struct pair){ "layers.0.mlp.up.weight", "" }, "layers.0.mlp.up.weight");
	check_file((struct pair){ ".hidden", "" }, ".hidden");
	check_file((struct pair){ "...", "" }, "...");
	check_file((struct pair){ "a b\n~\xc3\xa9", "" }, "a b\n~\xc3\xa9");
	check_file((struct pair){ "w", "tp=1" }, "w@tp=1");
	check_file((struct pair){ ".", "tp=1" }, ".@tp=1");
}
END_TEST

START_TEST(names_that_are_no_file_names_are_escaped)
{
	check_file((struct pair){ "a/b", "" }, "a%2Fb");
	check_file((struct pair){ "a%2Fb", "" }, "a%252Fb");
	check_file((struct pair){ "a@b", "" }, "a%40b");
	check_file((struct pair){ "a@b", "c/d@e" }, "a%40b@c%2Fd%40e");
	check_file((struct pair){ ".", "" }, "%2E");
	check_file((struct pair){ "..", "" }, "%2E%2E");
	check_file((struct pair){ "", "" }, "%");
	check_file((struct pair){ "", "ep=3" }, "@ep=3");
}
END_TEST

/* Of file, which is well formed. */
static void unescape(const char *file, char *out)
{
	if (!strcmp(file, "%"))
		file++;
	for (; *file; file++) {
		unsigned value = (unsigned char)*file;

		if (*file == '%') {
			ck_assert_int_eq(sscanf(file, "%%%2X", &value), 1);
			file += 2;
		}
		*out++ = (char)value;
	}
	*out = '\0';
}

START_TEST(escapes_are_reversible)
{
	char file[64], back[64], name[3] = "";

	for (int a = 0; a < 256; a++) {
		for (int b = a ? 0 : 255; b < 256; b++) {
			name[0] = (char)a;
			name[1] = (char)b;
			ck_assert_uint_eq(names_escape(name, file, sizeof(file)), strlen(file));
			unescape(file, back);
			ck_assert_str_eq(back, name);
			names_escape_first(name, file, sizeof(file));
			unescape(file, back);
			ck_assert_str_eq(back, name);
		}
	}
}
END_TEST

START_TEST(escape_says_what_it_needs_and_writes_what_fits)
{
	char out[4] = "xxx";

	ck_assert_uint_eq(names_escape("a/b", NULL, 0), 5);
	ck_assert_uint_eq(names_escape("abcdef", out, sizeof(out)), 6);
	ck_assert_str_eq(out, "abc");
}
END_TEST

static char *repeat(const char *what, size_t times, const char *end)
{
	char *text = calloc(1, strlen(what) * times + strlen(end) + 1);

	for (size_t i = 0; i < times; i++)
		strcat(text, what);
	return strcat(text, end);
}

START_TEST(long_names_are_cut_and_stay_different)
{
	struct pair pairs[6] = { { repeat("x", 300, "a"), "" },
				 { repeat("x", 300, "b"), "" },
				 { repeat("x", 300, "a"), "tp=1" },
				 { repeat("/", 100, ""), "" },
				 { repeat("\xe2\x82\xac", 100, ""), "" } };
	struct names n;

	/* A name that looks like the first one's file comes last and keeps it. */
	ck_assert_int_eq(names_init(&n, 1, from_pairs, pairs), 0);
	pairs[5] = (struct pair){ strdup(names_get(&n, 0)), "" };
	names_fini(&n);
	ck_assert_uint_eq(strlen(pairs[5].name), NAMES_FILE_MAX);

	ck_assert_int_eq(names_init(&n, 6, from_pairs, pairs), 0);
	check_all_found(&n);
	ck_assert_str_eq(names_get(&n, 5), pairs[5].name);
	ck_assert_str_ne(names_get(&n, 0), names_get(&n, 5));
	/* Cut between escapes and between characters. */
	ck_assert_int_eq(strncmp(strchr(names_get(&n, 3), '~') - 3, "%2F~", 4), 0);
	ck_assert_int_eq(strncmp(strchr(names_get(&n, 4), '~') - 3, "\xe2\x82\xac~", 4), 0);
	names_fini(&n);
	for (int i = 0; i < 6; i++)
		free((char *)pairs[i].name);
}
END_TEST

START_TEST(names_of_255_bytes_are_whole)
{
	struct pair pair = { repeat("y", 255, ""), "" };

	check_file(pair, pair.name);
	free((char *)pair.name);
}
END_TEST

START_TEST(what_is_not_there_is_not_found)
{
	struct pair pairs[] = { { "a", "" }, { "b", "tp=0" } };
	struct names n;

	ck_assert_int_eq(names_init(&n, 2, from_pairs, pairs), 0);
	ck_assert_int_eq(names_find(&n, "b"), -ENOENT);
	ck_assert_int_eq(names_find(&n, "a@"), -ENOENT);
	ck_assert_int_eq(names_find(&n, ""), -ENOENT);
	names_fini(&n);
	ck_assert_int_eq(names_init(&n, 0, from_pairs, pairs), 0);
	ck_assert_int_eq(names_find(&n, "a"), -ENOENT);
	names_fini(&n);
}
END_TEST

enum { MANY = 100000 };

static void from_many(void *arg, uint32_t number, const char **name, const char **coordinate)
{
	char(*many)[40] = arg;

	*name = many[number];
	*coordinate = "";
}

START_TEST(a_hundred_thousand_are_each_found)
{
	char(*many)[40] = calloc(MANY, sizeof(*many));
	struct names n;

	for (int i = 0; i < MANY; i++)
		sprintf(many[i], "layers.%d.experts/%d", i / 64, i % 64);
	ck_assert_int_eq(names_init(&n, MANY, from_many, many), 0);
	check_all_found(&n);
	names_fini(&n);
	free(many);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("names");
	TCase *t = tcase_create("names");

	tcase_add_test(t, names_are_kept_where_they_can_be);
	tcase_add_test(t, names_that_are_no_file_names_are_escaped);
	tcase_add_test(t, escapes_are_reversible);
	tcase_add_test(t, escape_says_what_it_needs_and_writes_what_fits);
	tcase_add_test(t, long_names_are_cut_and_stay_different);
	tcase_add_test(t, names_of_255_bytes_are_whole);
	tcase_add_test(t, what_is_not_there_is_not_found);
	tcase_add_test(t, a_hundred_thousand_are_each_found);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/launch/keyfile.h"
#include "engine/launch/source.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Which key an observer takes. */

static char job_file[PATH_MAX / 2], readers_file[PATH_MAX / 2], why[512];
static uint8_t job_key[KEY_BYTES], readers_key[KEY_BYTES];

static void setup(void)
{
	const char *base = getenv("TMPDIR");
	char used[PATH_MAX];
	FILE *f;

	snprintf(job_file, sizeof(job_file), "%s/test-source.%d.key", base ? base : "/tmp",
		 (int)getpid());
	snprintf(readers_file, sizeof(readers_file), "%.2000s.readers", job_file);
	ck_assert_int_eq(keyfile_create("", job_file, used, sizeof(used), job_key), 0);
	ck_assert_int_eq(key_for_readers(job_key, readers_key), 0);
	f = fopen(readers_file, "we");
	ck_assert_ptr_nonnull(f);
	fputs("readers ", f);
	for (int i = 0; i < KEY_BYTES; i++)
		fprintf(f, "%02x", readers_key[i]);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(chmod(readers_file, 0600), 0);
	unsetenv("FRAG_KEY_FILE");
}

static void teardown(void)
{
	unlink(job_file);
	unlink(readers_file);
}

static int take(const char *file, bool writable, bool plain, struct source_key *key)
{
	struct engine_options o = {
		.source = "127.0.0.1:1", .key_file = file, .writable = writable, .plain = plain
	};

	why[0] = '\0';
	return source_key(&o, key, why, sizeof(why));
}

START_TEST(who_writes_takes_the_jobs_key)
{
	struct source_key key;

	ck_assert_int_eq(take(job_file, true, false, &key), 0);
	ck_assert(key.is_there && !key.reads_only);
	ck_assert_mem_eq(key.bytes, job_key, KEY_BYTES);
}
END_TEST

START_TEST(who_does_not_write_keeps_the_key_for_readers_alone)
{
	const char *const files[] = { job_file, readers_file };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct source_key key;

		ck_assert_int_eq(take(files[i], false, false, &key), 0);
		ck_assert(key.is_there && key.reads_only);
		ck_assert_mem_eq(key.bytes, readers_key, KEY_BYTES);
	}
}
END_TEST

START_TEST(the_environment_names_one_too)
{
	struct source_key key;

	setenv("FRAG_KEY_FILE", readers_file, 1);
	ck_assert_int_eq(take(NULL, false, false, &key), 0);
	ck_assert_mem_eq(key.bytes, readers_key, KEY_BYTES);
	ck_assert_int_eq(take(job_file, true, false, &key), 0); /* the option is stronger */
	ck_assert(!key.reads_only);
}
END_TEST

START_TEST(a_key_for_readers_does_not_write)
{
	struct source_key key;

	ck_assert_int_eq(take(readers_file, true, false, &key), -EACCES);
	ck_assert_ptr_nonnull(strstr(why, "for readers only (-o ro)"));
}
END_TEST

START_TEST(plain_takes_none)
{
	struct source_key key;

	ck_assert_int_eq(take(job_file, true, true, &key), 0);
	ck_assert(!key.is_there && !key.reads_only);
}
END_TEST

START_TEST(a_key_file_that_is_none_is_an_error)
{
	struct source_key key;

	ck_assert_int_eq(take("/nonexistent", false, false, &key), -ENOENT);
	ck_assert(!key.is_there);
	ck_assert_int_eq(chmod(job_file, 0604), 0);
	ck_assert_int_eq(take(job_file, false, false, &key), -EACCES);
	ck_assert(!key.is_there);
}
END_TEST

START_TEST(the_jobs_key_is_not_told_by_the_one_for_readers)
{
	uint8_t further[KEY_BYTES];

	ck_assert_mem_ne(readers_key, job_key, KEY_BYTES);
	ck_assert_int_eq(key_for_readers(readers_key, further), 0);
	ck_assert_mem_ne(further, job_key, KEY_BYTES);
	ck_assert_mem_ne(further, readers_key, KEY_BYTES);
}
END_TEST

static int parse(const char *source, size_t room)
{
	char seeds[256];

	return source_parse(source, seeds, room, why, sizeof(why));
}

START_TEST(what_is_no_place_is_refused)
{
	struct engine_options o = { .source = "127.0.0.1:1" };
	struct source_key key;

	ck_assert_int_eq(parse("127.0.0.1:1,127.0.0.1:65535", 256), 0);
	ck_assert_int_eq(parse("", 256), -EINVAL);
	ck_assert_int_eq(parse("127.0.0.1", 256), -EINVAL);
	ck_assert_int_eq(parse("127.0.0.1:0", 256), -EINVAL);
	ck_assert_int_eq(parse("127.0.0.1:65536", 256), -EINVAL);
	ck_assert_int_eq(parse("127.0.0.1:1x", 256), -EINVAL);
	ck_assert_int_eq(parse(":1", 256), -EINVAL);
	ck_assert_int_eq(parse("no.such.host.invalid:1", 256), -ENOENT);
	ck_assert_int_eq(parse("127.0.0.1:1,127.0.0.1:2", 30), -ENAMETOOLONG);
	ck_assert_int_eq(source_probe("", why, sizeof(why)), -EINVAL);
	ck_assert_int_eq(source_probe("no.such.host.invalid:1", why, sizeof(why)), -ENOENT);
	ck_assert_int_eq(source_probe("127.0.0.1:1", why, sizeof(why)), -ECONNREFUSED);
	ck_assert_int_eq(source_key(&o, &key, why, sizeof(why)), -ENOKEY);
	ck_assert_ptr_nonnull(strstr(why, "-o key=FILE"));
	ck_assert_ptr_nonnull(strstr(why, "FRAG_PLAIN=1"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("source");
	TCase *t = tcase_create("source");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, who_writes_takes_the_jobs_key);
	tcase_add_test(t, who_does_not_write_keeps_the_key_for_readers_alone);
	tcase_add_test(t, the_environment_names_one_too);
	tcase_add_test(t, a_key_for_readers_does_not_write);
	tcase_add_test(t, plain_takes_none);
	tcase_add_test(t, a_key_file_that_is_none_is_an_error);
	tcase_add_test(t, the_jobs_key_is_not_told_by_the_one_for_readers);
	tcase_add_test(t, what_is_no_place_is_refused);
	return run_suite(s, t);
}

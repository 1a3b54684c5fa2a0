/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Checkpoints in folders that may not be listed, and with interrupted edits that are somebody
 * else's to undo.
 */

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/edit/journal.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NOBODY = 65534 };

static char dir[] = "/tmp/test-checkpoint-open-XXXXXX";
static char why[400];

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
	char command[2 * PATH_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	ck_assert_int_eq(system(command), 0);
}

static const char *data(const char *name)
{
	static char path[PATH_MAX];
	const char *top = getenv("top_srcdir");

	snprintf(path, sizeof(path), "%s/tests/data/%s", top ? top : ".", name);
	return path;
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(strcpy(dir, "/tmp/test-checkpoint-open-XXXXXX")));
}

static void teardown(void)
{
	run("rm -r '%s'", dir);
}

static const char *in_dir(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static int open_as(const char *format, const char *path, bool writable)
{
	struct engine_options options = { .source = path,
					  .format = format,
					  .writable = writable };
	struct engine *e;
	int rc = checkpoint_open(&e, &options, why, sizeof(why));

	if (!rc)
		engine_close(e);
	return rc;
}

static int open_at(const char *path, bool writable)
{
	return open_as(NULL, path, writable);
}

/* As somebody who may use what is in the folder, but not list it. */
static int open_unlisted(const char *path, bool writable)
{
	bool root = !geteuid();
	int rc;

	ck_assert_int_eq(chmod(dir, 0311), 0);
	if (root)
		ck_assert_int_eq(seteuid(NOBODY), 0);
	rc = open_at(path, writable);
	if (root)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(chmod(dir, 0700), 0);
	return rc;
}

START_TEST(a_folder_whose_latest_names_nothing_is_refused)
{
	run(": >'%s/latest'", dir);
	ck_assert_int_eq(open_at(dir, false), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, ": latest is empty"));
	ck_assert_int_eq(open_at(in_dir("\303\266\n"), false), -ENOENT);
	ck_assert_msg(strstr(why, "\303\266%0A: ") && !strchr(why, '\n'), "%s", why);
}
END_TEST

START_TEST(a_folder_that_may_not_be_listed_is_read_and_not_edited)
{
	const char *path = in_dir("mixed.pt");

	run("cp '%s' '%s' && chmod 666 '%s'", data("checkpoint/mixed.pt"), path, path);
	ck_assert_msg(!open_unlisted(path, false), "%s", why);
	ck_assert_int_eq(open_unlisted(path, true), -EACCES);
	run("touch '%s/" JOURNAL_NAME "'", dir);
	ck_assert_int_eq(open_unlisted(path, false), -EACCES);
	ck_assert_ptr_nonnull(strstr(why, "its folder cannot be opened to undo it"));
}
END_TEST

START_TEST(an_edit_of_a_file_below_is_undone_there)
{
	run("tar -xzf '%s' -C '%s'", data("checkpoints/ds0.14.5/z2-bf16-w3-universal.tar.gz"),
	    dir);
	run("mv '%s'/*/*_universal/* '%s'", dir, dir);
	ck_assert_msg(!open_at(dir, false), "%s", why);
	run("touch '%s/zero/conv/" JOURNAL_NAME "'", dir);
	ck_assert_int_eq(open_at(dir, false), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, "mount it alone to undo it"));
}
END_TEST

START_TEST(a_universal_one_without_names_is_refused)
{
	run("tar -xzf '%s' -C '%s' --strip-components=1",
	    data("checkpoints/ds0.14.5/z2-bf16-w3-universal.tar.gz"), dir);
	ck_assert_msg(!open_at(dir, false), "%s", why);
	run("rm '%s'/*/mp_rank_00_model_states.pt", dir);
	ck_assert_int_eq(open_as("universal", dir, false), -EINVAL);
	ck_assert_msg(strstr(why, "no model_states.pt, which has the names") != NULL, "%s",
		      why);
}
END_TEST

START_TEST(a_folder_without_its_files_is_told_which)
{
	ck_assert_int_eq(open_as("safetensors", dir, false), -EINVAL);
	ck_assert_msg(strstr(why, "there is no *.safetensors") != NULL, "%s", why);
	ck_assert_int_eq(open_as("zero", dir, false), -EINVAL);
	ck_assert_msg(strstr(why, "there is no *_model_states.pt") != NULL, "%s", why);
}
END_TEST

START_TEST(an_index_names_what_is_there)
{
	static const char header[] =
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
	static const char file[] = "model-00001-of-00001.safetensors";
	uint64_t size = strlen(header);
	FILE *out = fopen(in_dir(file), "w");

	fwrite(&size, sizeof(size), 1, out);
	fprintf(out, "%sx", header);
	fclose(out);
	for (int there = 1; there >= 0; there--) {
		out = fopen(in_dir("model.safetensors.index.json"), "w");
		fprintf(out, "{\"weight_map\":{\"a\":\"%s\"%s%s%s}}", file,
			there ? "" : ",\"b\":\"", there ? "" : file, there ? "" : "\"");
		fclose(out);
		ck_assert_int_eq(open_at(dir, false), there ? 0 : -EINVAL);
	}
	ck_assert_ptr_nonnull(strstr(why, "names 1 tensors that are not in their files"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("checkpoint-open");
	TCase *t = tcase_create("checkpoint-open");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_folder_whose_latest_names_nothing_is_refused);
	tcase_add_test(t, a_folder_that_may_not_be_listed_is_read_and_not_edited);
	tcase_add_test(t, an_edit_of_a_file_below_is_undone_there);
	tcase_add_test(t, a_universal_one_without_names_is_refused);
	tcase_add_test(t, a_folder_without_its_files_is_told_which);
	tcase_add_test(t, an_index_names_what_is_there);
	return run_suite(s, t);
}

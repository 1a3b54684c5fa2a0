/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Files of torch.save as mounts: what tests/oracle/make-torchfiles.py says is in them. */

#include "tests/find-param.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/formats/mounted.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static char path[PATH_MAX], expect[PATH_MAX];
static struct mounted m;

static void set_paths(const char *name)
{
	const char *top = getenv("top_srcdir");

	snprintf(path, sizeof(path), "%s/tests/data/checkpoint/%s.pt", top ? top : ".", name);
	snprintf(expect, sizeof(expect), "%s/tests/data/checkpoint/%s.tree", top ? top : ".",
		 name);
}

static void check(const char *name, int lines)
{
	set_paths(name);
	ck_assert_msg(!mounted_open(&m, path, NULL), "%s", m.why);
	ck_assert_int_eq(mounted_check(&m, expect), lines);
	mounted_close(&m);
}

START_TEST(every_tensor_has_the_name_that_leads_to_it)
{
	check("mixed", 88);
	check("mixed-legacy", 88);
	check("mixed-protocol5", 88);
	check("many", 82);
	check("state-dict", 16);
}
END_TEST

START_TEST(what_is_not_shown_is_said)
{
	check("unshown", 19);
	check("unshown-legacy", 19);
}
END_TEST

START_TEST(every_float8_widens_as_in_torch)
{
	check("float8", 17);
}
END_TEST

START_TEST(a_module_has_the_names_of_its_state_dict)
{
	check("module", 16);
}
END_TEST

START_TEST(a_tensor_alone_is_called_as_its_file)
{
	check("tensor", 4);
}
END_TEST

START_TEST(a_file_without_tensors_is_empty)
{
	struct engine_job job;

	check("nothing", 2);
	set_paths("nothing");
	ck_assert_int_eq(mounted_open(&m, path, "torch"), 0);
	engine_job(m.engine, &job);
	ck_assert(job.has_step && job.step == 3);
	mounted_close(&m);
}
END_TEST

START_TEST(keys_that_are_no_texts_and_ways_that_meet)
{
	char *source;

	check("names", 39);
	ck_assert_int_eq(mounted_open(&m, path, NULL), 0);
	source = engine_text(m.engine, "source");
	ck_assert_ptr_nonnull(strstr(source, "\nskipped ring.1: it is in itself\n"));
	ck_assert_ptr_nonnull(strstr(source, "the name of what is in it is too long\n"));
	free(source);
	mounted_close(&m);
}
END_TEST

START_TEST(a_tied_tensor_is_another_name_of_the_same_bytes)
{
	uint32_t first, second, n = 0;
	struct engine_param a, b;

	set_paths("names");
	ck_assert_int_eq(mounted_open(&m, path, NULL), 0);
	ck_assert_int_eq(find_param(m.engine, "tied", "", &first), 0);
	ck_assert_int_eq(find_param(m.engine, "tied_too", "", &second), 0);
	ck_assert(engine_param(m.engine, first, &a) && engine_param(m.engine, second, &b));
	ck_assert_ptr_eq(a.shape, b.shape); /* table_add_alias */
	for (uint32_t i = 0; engine_param(m.engine, i, &b); i++)
		n += b.shape == a.shape;
	ck_assert_uint_eq(n, 2);
	mounted_close(&m);
}
END_TEST

START_TEST(a_folder_has_one_file_of_torch)
{
	char dir[] = "/tmp/test-format-torch-XXXXXX";

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(mounted_open(&m, dir, "torch"), -EINVAL);
	ck_assert_ptr_nonnull(strstr(m.why, "there is not one file of torch.save"));
	rmdir(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format-torch");
	TCase *t = tcase_create("format-torch");

	tcase_add_test(t, every_tensor_has_the_name_that_leads_to_it);
	tcase_add_test(t, what_is_not_shown_is_said);
	tcase_add_test(t, every_float8_widens_as_in_torch);
	tcase_add_test(t, a_module_has_the_names_of_its_state_dict);
	tcase_add_test(t, a_tensor_alone_is_called_as_its_file);
	tcase_add_test(t, a_file_without_tensors_is_empty);
	tcase_add_test(t, keys_that_are_no_texts_and_ways_that_meet);
	tcase_add_test(t, a_tied_tensor_is_another_name_of_the_same_bytes);
	tcase_add_test(t, a_folder_has_one_file_of_torch);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* DeepSpeed's universal checkpoints as they may come, beside the genuine ones of
 * tests/data/checkpoints.
 */

#include "tests/find-param.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/formats/legacy-writer.h"
#include "tests/unit/checkpoint/formats/mounted.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char dir[] = "/tmp/test-format-universal-XXXXXX";
static struct mounted m;

static void make_folder(const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	ck_assert_int_eq(mkdir(path, 0755), 0);
}

static void write_model(void)
{
	legacy_begin(dir, "mp_rank_00_model_states.pt");
	legacy_dict();
	legacy_key("param_shapes");
	legacy_list();
	legacy_dict();
	legacy_key("w");
	legacy_size(1, (int64_t[]){ 3 });
	legacy_up();
	legacy_up();
	legacy_key("shared_params");
	legacy_dict();
	legacy_key("again");
	legacy_text("w");
	legacy_up();
	legacy_up();
	legacy_end();
}

/* fp32 10 11 12. */
static void write_master(void)
{
	legacy_begin(dir, "zero/w/fp32.pt");
	legacy_vector(FRAG_F32, 3, 10);
	legacy_end();
}

static void write_step(void)
{
	legacy_begin(dir, "zero/w/step.pt");
	legacy_int(17);
	legacy_end();
}

static void write_groups(void)
{
	legacy_begin(dir, "zero/optimizer_state.pt");
	legacy_dict();
	legacy_key("param_groups");
	legacy_list();
	legacy_dict();
	legacy_key("lr");
	legacy_real(0.25);
	legacy_up();
	legacy_up();
	legacy_up();
	legacy_end();
}

static void check_source(const char *line, bool there)
{
	CLEANUP(free) char *text = engine_text(m.engine, "source");

	ck_assert_msg(!strstr(text, line) == !there, "%s in:\n%s", line, text);
}

START_TEST(a_step_that_is_a_plain_number_is_one_of_the_group)
{
	write_step();
	write_groups();
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	ck_assert_double_eq(mounted_hyper(&m, 0, "step"), 17);
	ck_assert_double_eq(mounted_hyper(&m, 0, "lr"), 0.25);
	check_source("skipped", false);
	mounted_close(&m);
}
END_TEST

START_TEST(a_number_of_no_group_is_skipped)
{
	write_step();
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	check_source("skipped zero/w/step.pt: a number of no group that is known\n", true);
	mounted_close(&m);
}
END_TEST

START_TEST(an_alias_is_in_the_group_of_its_parameter)
{
	struct engine_param x;
	struct engine_group g;
	uint32_t number;

	write_groups();
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	ck_assert_int_eq(find_param(m.engine, "again", "", &number), 0);
	ck_assert(engine_param(m.engine, number, &x) && engine_group(m.engine, 0, &g));
	ck_assert_int_eq(x.group, 0);
	ck_assert_uint_eq(g.nparams, 1);
	mounted_close(&m);
}
END_TEST

START_TEST(a_file_that_cannot_be_opened_is_named_with_its_folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/zero/w/exp_avg.pt", dir);
	ck_assert_int_eq(symlink("fp32.pt", path), 0);
	ck_assert_int_eq(mounted_open(&m, dir, NULL), -ELOOP);
	ck_assert_ptr_nonnull(strstr(m.why, ": zero/w/exp_avg.pt is a symbolic link"));
}
END_TEST

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(strcpy(dir, "/tmp/test-format-universal-XXXXXX")));
	make_folder("zero");
	make_folder("zero/w");
	write_model();
	write_master();
}

static void teardown(void)
{
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	Suite *s = suite_create("format-universal");
	TCase *t = tcase_create("format-universal");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_step_that_is_a_plain_number_is_one_of_the_group);
	tcase_add_test(t, a_number_of_no_group_is_skipped);
	tcase_add_test(t, an_alias_is_in_the_group_of_its_parameter);
	tcase_add_test(t, a_file_that_cannot_be_opened_is_named_with_its_folder);
	return run_suite(s, t);
}

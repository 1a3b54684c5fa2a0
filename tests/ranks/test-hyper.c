/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/observed.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <check.h>
#include <errno.h>

/* Hyper-parameters that functions of the trainer get and set. */

static struct option { /* option of one rank's optimizer */
	double lr;     /* the first member: see setup_doubles */
	unsigned gets, sets;
	/* drops its moments: exp_avg when lr is got, exp_avg_sq when it is set */
	struct frag *forgets;
} options[WORLD];

static double get_lr(void *arg)
{
	struct option *o = arg;

	o->gets++;
	if (o->forgets && !o->sets)
		ck_assert_int_eq(frag_state_drop(o->forgets, 0, 0, "exp_avg"),
				 o->gets == 2 ? 0 : -ENOENT);
	return o->lr;
}

static void set_lr(void *arg, double value)
{
	struct option *o = arg;

	o->sets++;
	o->lr = value;
	if (o->forgets)
		ck_assert_int_eq(frag_state_drop(o->forgets, 0, 0, "exp_avg_sq"), 0);
}

static void open_with(frag_hyper_get get)
{
	open_near();
	observer->write.allowed = true;
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		options[rank] = (struct option){ .lr = 0.5 };
		ck_assert_int_eq(frag_hyper_calls(job_frag(&job, rank), 0, "lr", get, set_lr,
						  &options[rank]),
				 0);
		ck_assert_uint_eq(options[rank].gets, get ? 1 : 0);
	}
}

static void setup(void)
{
	open_with(get_lr);
}

/* Makes the double with which a rank's struct option begins the hyper-parameter itself. */
static void setup_doubles(void)
{
	open_with(NULL);
}

static struct engine_file *open_lr(void)
{
	struct engine_address a = { .kind = ENGINE_HYPER, .key = "lr" };
	struct engine_file *file;
	uint64_t bytes;

	ck_assert_int_eq(engine_file_open(observer, &a, &file, &bytes), 0);
	ck_assert_uint_eq(bytes, sizeof(double));
	return file;
}

static double shown(void)
{
	struct engine_file *file = open_lr();
	double value;

	ck_assert_int_eq(read_file(file, 0, sizeof(value), false, false), sizeof(value));
	memcpy(&value, read_bytes, sizeof(value));
	engine_file_close(file);
	return value;
}

static int result;

static void on_done(struct engine_write *write, int status)
{
	result = status;
}

/* Edits the value, and lets the ranks pass boundaries by `pass` until the edit is applied. */
static void edit(double value, void (*pass)(uint32_t rank))
{
	struct engine_extent extent = { 0, sizeof(value), &value };
	struct engine_write write = {
		.file = open_lr(), .extents = &extent, .nextents = 1, .done = on_done
	};

	result = 1;
	engine_write(observer, &write);
	for (int i = 0; i < TURNS && result > 0; i++) {
		for (int k = 0; k < 20; k++)
			turn(NULL);
		for (uint32_t rank = 0; rank < WORLD; rank++)
			pass(rank);
	}
	ck_assert_int_eq(result, 0);
	engine_file_close(write.file);
}

static void pass_safe_point(uint32_t rank)
{
	ck_assert_int_eq(frag_safe_point(job_frag(&job, rank)), 0);
}

START_TEST(what_the_trainer_has_set_is_shown_from_the_next_boundary_on)
{
	ck_assert_double_eq(shown(), 0.5);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		options[rank].lr = 0.25;
	ck_assert_double_eq(shown(), 0.5);
	job_boundary(&job);
	ck_assert_double_eq(shown(), 0.25);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_uint_eq(options[rank].gets, 2);
		ck_assert_uint_eq(options[rank].sets, 0);
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
		ck_assert_uint_eq(options[rank].gets, 3);
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
		ck_assert_uint_eq(options[rank].gets, 4);
	}
}
END_TEST

START_TEST(an_edit_is_set_once_on_each_rank)
{
	edit(0.125, pass_safe_point);
	for (int i = 0; i < 3; i++)
		job_boundary(&job);
	ck_assert_double_eq(shown(), 0.125);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_double_eq(options[rank].lr, 0.125);
		ck_assert_uint_eq(options[rank].sets, 1);
	}
}
END_TEST

/* A scheduler sets its own value before each step; the edit comes after it, at the boundary. */
static void pass_step(uint32_t rank)
{
	if (!options[rank].sets)
		options[rank].lr = 1 + rank;
	ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
	ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
}

START_TEST(an_edit_comes_after_what_the_trainer_has_set)
{
	edit(0.75, pass_step);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_double_eq(options[rank].lr, 0.75);
		ck_assert_uint_eq(options[rank].sets, 1);
	}
}
END_TEST

START_TEST(its_functions_may_forget_states)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		options[rank].forgets = job_frag(&job, rank);
	edit(0.125, pass_safe_point);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_double_eq(options[rank].lr, 0.125);
		ck_assert_int_eq(frag_state_drop(job_frag(&job, rank), 0, 0, "exp_avg_sq"),
				 -ENOENT);
	}
	job_boundary(&job);
	ck_assert_double_eq(shown(), 0.125);
}
END_TEST

START_TEST(what_is_set_within_a_step_is_shown_from_its_end_on)
{
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
		options[rank].lr = 1;
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
	}
	ck_assert_double_eq(shown(), 1);
}
END_TEST

START_TEST(wrong_ones_are_refused)
{
	struct frag *f = job_frag(&job, 0);

	ck_assert_int_eq(frag_hyper_calls(NULL, 0, "eps", get_lr, set_lr, options), -EINVAL);
	ck_assert_int_eq(frag_hyper_calls(f, 0, "eps", NULL, set_lr, NULL), -EINVAL);
	ck_assert_int_eq(frag_hyper_calls(f, 0, "eps", get_lr, NULL, options), -EINVAL);
	ck_assert_int_eq(frag_hyper_calls(f, 9, "eps", get_lr, set_lr, options), -EINVAL);
	ck_assert_int_eq(frag_hyper_calls(f, 0, "lr", get_lr, set_lr, options), -EEXIST);
	scarce_begin(1, 1);
	ck_assert_int_eq(frag_hyper_calls(f, 0, "eps", get_lr, set_lr, options), -ENOMEM);
	ck_assert_uint_eq(scarce_end(), 1);
	ck_assert_int_eq(frag_hyper_calls(f, 0, "eps", get_lr, set_lr, options), 0);
}
END_TEST

START_TEST(a_ready_job_is_not_waited_for)
{
	ck_assert_int_eq(frag_wait_ready(NULL, 1000), -EINVAL);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		ck_assert_int_eq(frag_wait_ready(job_frag(&job, rank), 0), 0);
		ck_assert_ptr_nonnull(frag_address(job_frag(&job, rank)));
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hyper");
	TCase *t = tcase_create("hyper"), *doubles = tcase_create("doubles");

	tcase_set_timeout(doubles, 60);
	tcase_add_checked_fixture(doubles, setup_doubles, close_job);
	tcase_add_test(doubles, an_edit_is_set_once_on_each_rank);
	tcase_add_test(doubles, an_edit_comes_after_what_the_trainer_has_set);
	tcase_add_test(doubles, what_is_set_within_a_step_is_shown_from_its_end_on);
	suite_add_tcase(s, doubles);

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, close_job);
	tcase_add_test(t, what_the_trainer_has_set_is_shown_from_the_next_boundary_on);
	tcase_add_test(t, an_edit_is_set_once_on_each_rank);
	tcase_add_test(t, an_edit_comes_after_what_the_trainer_has_set);
	tcase_add_test(t, its_functions_may_forget_states);
	tcase_add_test(t, what_is_set_within_a_step_is_shown_from_its_end_on);
	tcase_add_test(t, wrong_ones_are_refused);
	tcase_add_test(t, a_ready_job_is_not_waited_for);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/view-owner.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

enum { N = 1024, BYTES = N * 4 };

static struct registry r;
static struct view_owner v;
static uint32_t master[N], grad[N];
static const uint64_t one[2] = { 1, 1 }, two[2] = { 1, 2 };

static void fill(uint32_t *state, uint32_t value)
{
	for (int i = 0; i < N; i++)
		state[i] = value;
}

static void setup(void)
{
	ck_assert_int_eq(registry_init(&r), 0);
	ck_assert_int_eq(registry_keep(&r, STATE_PARTITION, 0, 0, "fp32", FRAG_F32, N, master),
			 0);
	ck_assert_int_eq(registry_keep(&r, STATE_PARTITION, 0, 0, "grad", FRAG_F32, N, grad),
			 0);
	view_owner_init(&v, 2 * BYTES);
	fill(master, 1);
	fill(grad, 1);
}

static void teardown(void)
{
	view_owner_fini(&v);
	registry_fini(&r);
}

/* The trainer's hooks, as engine/api/frag-step.c has them. */
static void step_begin(void)
{
	atomic_fetch_add(&r.control->sequence, 1);
	view_owner_preserve(&v, &r, true);
}

static void step_end(uint32_t value)
{
	fill(master, value);
	atomic_fetch_add(&r.control->generation, 2);
	atomic_fetch_add(&r.control->sequence, 1);
	view_owner_arrive(&v, &r);
}

static void grads_gone(void)
{
	atomic_fetch_add(&r.control->grads, 1);
	view_owner_preserve(&v, &r, false);
}

static void grads_valid(uint32_t value)
{
	fill(grad, value);
	atomic_fetch_add(&r.control->grads, 1);
	view_owner_arrive(&v, &r);
}

static int open_row(const uint64_t id[2], uint32_t row, uint64_t want, struct view *out)
{
	struct view_run run = { .row = row, .size = BYTES };
	struct view_request q = { .id = { id[0], id[1] },
				  .peer = 7,
				  .epoch = r.states.epoch,
				  .is_grad = row == 1,
				  .want = want,
				  .runs = &run,
				  .nruns = 1 };

	return view_owner_open(&v, &r, &q, 1000, out);
}

static int open_view(const uint64_t id[2], uint64_t want, struct view *out)
{
	return open_row(id, 0, want, out);
}

/* The one value all of the view has. */
static uint32_t shows(const uint64_t id[2])
{
	static uint32_t out[N];

	memset(out, 0xff, sizeof(out));
	ck_assert_int_eq(view_owner_read(&v, &r, id, 0, out, BYTES), 0);
	for (int i = 1; i < N; i++)
		ck_assert_uint_eq(out[i], out[0]);
	return out[0];
}

START_TEST(a_view_shows_its_generation_through_any_number_of_steps)
{
	struct view view;

	ck_assert_int_eq(open_view(one, 0, &view), 0);
	ck_assert_int_eq(view.state, VIEW_LIVE);
	ck_assert_uint_eq(shows(one), 1);
	for (uint32_t step = 2; step < 5; step++) {
		step_begin();
		ck_assert_uint_eq(shows(one), 1);
		step_end(step);
		ck_assert_uint_eq(shows(one), 1);
	}
	view_owner_close(&v, one);
	ck_assert_uint_eq(v.pool.lent, 0);
	ck_assert(!view_owner_any(&v));
}
END_TEST

START_TEST(one_opened_inside_a_step_shows_what_it_makes)
{
	struct view view;
	uint8_t byte;

	step_begin();
	ck_assert_int_eq(open_view(one, 0, &view), 0);
	ck_assert_int_eq(view.state, VIEW_NEXT);
	ck_assert_int_eq(view_owner_read(&v, &r, one, 0, &byte, 1), -EAGAIN);
	step_end(2);
	ck_assert_int_eq(open_view(one, 0, &view), 0);
	ck_assert_int_eq(view.state, VIEW_LIVE);
	ck_assert_uint_eq(view.generation, 3);
	step_begin();
	step_end(3);
	ck_assert_uint_eq(shows(one), 2);
}
END_TEST

START_TEST(a_view_moves_to_a_generation_to_come)
{
	struct view view;

	ck_assert_int_eq(open_view(one, 0, &view), 0);
	ck_assert_uint_eq(view.generation, 1);
	ck_assert_int_eq(open_view(one, 3, &view), 0);
	ck_assert_int_eq(view.state, VIEW_FUTURE);
	step_begin();
	step_end(2);
	step_begin();
	step_end(3);
	ck_assert_uint_eq(shows(one), 2);
}
END_TEST

START_TEST(a_generation_that_has_gone_by_or_is_being_changed_is_not_waited_for)
{
	struct view view;

	step_begin();
	step_end(2); /* generation 3 */
	step_begin();
	ck_assert_int_eq(open_view(one, 0, &view), 0);
	ck_assert_int_eq(open_view(one, 3, &view), -EEXIST); /* it is just being overwritten */
	step_end(3);
	ck_assert_int_eq(open_view(two, 3, &view), -EEXIST);
	ck_assert_int_eq(open_view(two, 7, &view), 0);
	ck_assert_int_eq(open_view(two, 5, &view), -EEXIST); /* back: it is at a later one */
	ck_assert_int_eq(open_view(two, 7, &view), 0);
}
END_TEST

START_TEST(one_that_is_opened_anew_for_a_generation_before_is_too_late)
{
	struct view view;

	step_begin();
	step_end(2);
	step_begin();
	step_end(3); /* generation 5 */
	ck_assert_int_eq(open_view(one, 3, &view), -EEXIST);
	ck_assert(!view_owner_any(&v)); /* nothing of it is preserved */
	ck_assert_uint_eq(v.pool.lent, 0);
	ck_assert_int_eq(open_view(two, 5, &view), 0);
	ck_assert_int_eq(view.state, VIEW_LIVE);
	ck_assert_int_eq(open_view(two, 3, &view), -EEXIST);
}
END_TEST

START_TEST(gradients_are_kept_when_they_go)
{
	struct view view;

	ck_assert_int_eq(open_row(one, 1, 0, &view), 0);
	ck_assert_int_eq(view.state, VIEW_NEXT); /* not valid yet */
	grads_valid(5);
	ck_assert_uint_eq(shows(one), 5);
	grads_gone();
	fill(grad, 6);
	ck_assert_uint_eq(shows(one), 5);
	ck_assert_int_eq(open_row(two, 1, 0, &view), 0);
	ck_assert_int_eq(view.state, VIEW_NEXT);
	grads_valid(7);
	ck_assert_uint_eq(shows(two), 7);
}
END_TEST

START_TEST(what_was_copied_ahead_is_right_too)
{
	struct view view;

	open_view(one, 0, &view);
	ck_assert(!view_owner_copy_ahead(&v, &r, 1001)); /* too young */
	ck_assert(view_owner_copy_ahead(&v, &r, 2000));
	ck_assert(!view_owner_copy_ahead(&v, &r, 2000));
	step_begin();
	step_end(2);
	ck_assert_uint_eq(shows(one), 1);
}
END_TEST

/* Steps take an hour; the present content is that many minutes old. */
static void last_step_was(unsigned minutes)
{
	uint64_t minute = 60000000000ull;

	atomic_store(&r.control->interval_ns, 60 * minute);
	atomic_store(&r.control->generation_ns, clock_ns(CLOCK_REALTIME) - minutes * minute);
}

START_TEST(bytes_are_copied_ahead_when_the_next_step_is_near)
{
	struct view view;

	last_step_was(0);
	open_view(one, 0, &view);
	ck_assert(!view_owner_copy_ahead(&v, &r, 2000)); /* less than a byte is due */
	last_step_was(50);
	ck_assert(view_owner_copy_ahead(&v, &r, 2000));
	ck_assert(!view_owner_copy_ahead(&v, &r, 2000));
	step_begin();
	step_end(2);
	ck_assert_uint_eq(shows(one), 1);
}
END_TEST

START_TEST(a_dropped_state_is_kept_and_its_row_used_again_is_not_taken_for_it)
{
	static uint32_t other[N];
	uint8_t byte;
	struct view view;

	open_view(one, 0, &view);
	view_owner_preserve_row(&v, &r, 0);
	open_view(two, 0, &view); /* too late for that */
	registry_drop(&r, STATE_PARTITION, 0, 0, "fp32");
	ck_assert_int_eq(registry_keep(&r, STATE_PARTITION, 0, 0, "other", FRAG_F32, N, other),
			 0);
	ck_assert_uint_eq(shows(one), 1);
	ck_assert_int_eq(view_owner_read(&v, &r, two, 0, &byte, 1), -ESTALE);
	step_begin();
	ck_assert_int_eq(view_owner_read(&v, &r, two, 0, &byte, 1), -ESTALE);
}
END_TEST

START_TEST(room_is_bounded_and_given_back)
{
	static const uint64_t three[2] = { 1, 3 };
	struct view view;

	ck_assert_int_eq(open_view(one, 0, &view), 0);
	ck_assert_int_eq(open_view(two, 0, &view), 0);
	ck_assert_int_eq(open_view(three, 0, &view), -EAGAIN);
	view_owner_close(&v, one);
	ck_assert_int_eq(open_view(three, 0, &view), 0);
	view_owner_fini(&v);
	view_owner_init(&v, BYTES - 1);
	ck_assert_int_eq(open_view(one, 0, &view), -ENOMEM);
}
END_TEST

START_TEST(a_silent_observers_views_are_dropped)
{
	struct view view;
	uint8_t byte;

	open_view(one, 0, &view);
	view_owner_touch(&v, 7, 0, 5000);
	view_owner_touch(&v, 8, 2, 9000);
	ck_assert_uint_eq(view_owner_expire(&v, 5000), 0);
	ck_assert_uint_eq(view_owner_expire(&v, 5001), 1);
	ck_assert_int_eq(view_owner_read(&v, &r, one, 0, &byte, 1), -ESTALE);
}
END_TEST

START_TEST(an_observer_that_comes_again_as_another_peer_keeps_its_views)
{
	struct view view;
	uint8_t byte;

	open_view(one, 0, &view);
	view_owner_touch(&v, 8, (uint32_t)one[0], 9000);
	ck_assert_uint_eq(view_owner_expire(&v, 9000), 0);
	ck_assert_int_eq(view_owner_read(&v, &r, one, 0, &byte, 1), 0);
	view_owner_touch(&v, 8, 0, 9500); /* from now on they are that peer's */
	ck_assert_uint_eq(view_owner_expire(&v, 9500), 0);
}
END_TEST

START_TEST(ranges_outside_are_refused)
{
	struct view_run run = { .offset = 8, .size = BYTES };
	struct view_request q = {
		.id = { 1, 1 }, .peer = 7, .epoch = r.states.epoch, .runs = &run, .nruns = 1
	};
	struct view view;
	uint8_t byte;

	ck_assert_int_eq(view_owner_open(&v, &r, &q, 1000, &view), -EINVAL);
	open_view(one, 0, &view);
	ck_assert_int_eq(view_owner_read(&v, &r, one, BYTES, &byte, 1), -EINVAL);
	ck_assert_int_eq(view_owner_read(&v, &r, one, UINT64_MAX, &byte, 1), -EINVAL);
}
END_TEST

/* Its state may have been elsewhere when it was opened. */
START_TEST(one_in_memory_is_not_looked_for_elsewhere)
{
	struct view_look look;
	struct view view;

	ck_assert_int_eq(open_view(one, 0, &view), 0);
	ck_assert_int_eq(view_owner_look(&v, one, 0, BYTES, &look), -EAGAIN);
	ck_assert_int_eq(view_owner_look(&v, one, 1, BYTES, &look), -EINVAL);
	ck_assert_int_eq(view_owner_look(&v, (uint64_t[2]){ 77, 7 }, 0, BYTES, &look), -ESTALE);
}
END_TEST

START_TEST(many_tiny_ones_are_bounded_for_all_and_for_each_observer)
{
	struct view_run run = { .size = 1 };
	struct view_request q = {
		.id = { 9, 0 }, .peer = 7, .epoch = r.states.epoch, .runs = &run, .nruns = 1
	};
	struct view view;
	uint64_t n = 0;

	ck_assert_int_eq(view_owner_open(&v, &r, &q, 1000, &view), 0);
	q.id[1]++; /* room for two pages */
	ck_assert_int_eq(view_owner_open(&v, &r, &q, 1000, &view), 0);
	q.id[1]++;
	ck_assert_int_eq(view_owner_open(&v, &r, &q, 1000, &view), -EAGAIN);
	v.pool.max = UINT64_MAX / 2;
	for (n = 2; !view_owner_open(&v, &r, &q, 1000, &view); q.id[1]++)
		n++;
	ck_assert_uint_eq(n, VIEW_OWNER_OF_PEER_MAX);
	for (q.peer = 8; !view_owner_open(&v, &r, &q, 1000, &view); q.id[1]++)
		n++;
	ck_assert_uint_eq(n, VIEW_OWNER_MAX);
	view_owner_close(&v, (uint64_t[]){ 9, 0 });
	ck_assert_int_eq(view_owner_open(&v, &r, &q, 1000, &view), 0);
}
END_TEST

static int open_runs(struct view_run *runs, uint32_t n, uint64_t want)
{
	struct view_request q = { .id = { 1, 1 },
				  .peer = 7,
				  .epoch = r.states.epoch,
				  .want = want,
				  .runs = runs,
				  .nruns = n };
	struct view view;

	return view_owner_open(&v, &r, &q, 1000, &view);
}

START_TEST(one_without_bytes_or_of_states_and_gradients_is_refused)
{
	struct view_run runs[] = { { .row = 0, .size = 4 }, { .row = 1, .size = 4 } };

	ck_assert_int_eq(open_runs(runs, 0, 0), -EINVAL);
	ck_assert_int_eq(open_runs(runs, VIEW_OWNER_RUNS_MAX + 1, 0), -EINVAL);
	ck_assert_int_eq(open_runs(runs, 2, 0), -EINVAL);
	runs[0].size = 0;
	ck_assert_int_eq(open_runs(runs, 1, 0), -EINVAL);
	ck_assert(!view_owner_any(&v));
}
END_TEST

START_TEST(its_rows_are_in_one_tier_and_stay_in_it)
{
	static uint32_t other[N];
	struct view_run runs[] = { { .row = 0, .size = 4 }, { .row = 2, .size = 4 } };

	ck_assert_int_eq(registry_keep(&r, STATE_PARTITION, 0, 0, "other", FRAG_F32, N, other),
			 0);
	r.states.rows[2].tier = STATE_SWAP;
	ck_assert_int_eq(open_runs(runs, 2, 0), -ESTALE);
	r.states.rows[2].tier = STATE_HOST;
	ck_assert_int_eq(open_runs(runs, 2, 3), 0);
	r.states.rows[2].tier = STATE_SWAP;
	step_begin();
	step_end(2);
	ck_assert_int_eq(view_owner_read(&v, &r, one, 0, other, 4), -ESTALE);
	r.states.rows[2].tier = STATE_HOST;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("views");
	TCase *t = tcase_create("views");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_view_shows_its_generation_through_any_number_of_steps);
	tcase_add_test(t, one_opened_inside_a_step_shows_what_it_makes);
	tcase_add_test(t, a_view_moves_to_a_generation_to_come);
	tcase_add_test(t, a_generation_that_has_gone_by_or_is_being_changed_is_not_waited_for);
	tcase_add_test(t, one_that_is_opened_anew_for_a_generation_before_is_too_late);
	tcase_add_test(t, gradients_are_kept_when_they_go);
	tcase_add_test(t, what_was_copied_ahead_is_right_too);
	tcase_add_test(t, bytes_are_copied_ahead_when_the_next_step_is_near);
	tcase_add_test(t, a_dropped_state_is_kept_and_its_row_used_again_is_not_taken_for_it);
	tcase_add_test(t, room_is_bounded_and_given_back);
	tcase_add_test(t, a_silent_observers_views_are_dropped);
	tcase_add_test(t, an_observer_that_comes_again_as_another_peer_keeps_its_views);
	tcase_add_test(t, ranges_outside_are_refused);
	tcase_add_test(t, one_in_memory_is_not_looked_for_elsewhere);
	tcase_add_test(t, many_tiny_ones_are_bounded_for_all_and_for_each_observer);
	tcase_add_test(t, one_without_bytes_or_of_states_and_gradients_is_refused);
	tcase_add_test(t, its_rows_are_in_one_tier_and_stay_in_it);
	return run_suite(suite, t);
}

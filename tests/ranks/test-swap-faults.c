/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/job.h"
#include "tests/ranks/scarce.h"
#include "tests/unit/swap/swapped.h"

#include "engine/node/peers.h"
#include "engine/rank/registry-place.h"
#include "engine/rank/registry-version.h"
#include "engine/rank/view-owner.h"
#include "engine/serve/serve-pending.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <time.h>

/* What readers of states on NVMe get from a rank without memory, or whose disk does not answer.
 * Rank 0 has one state, "momentum", in a swap file over a disk that fails by rule; its other
 * states are in a swap file of their own.
 */

enum { WORLD = 2, NUMEL = 5000, BYTES = NUMEL * 4, TURN_MS = 1, READS = 256, MANY = 1000000 };

static const struct job_param params[] = { { "a", .ndim = 1, .shape = { 10000 } } };
static const struct job_group groups[] = { { .stage = 2, .nparams = 1, .params = { 0 } } };
static const struct job_key keys[] = { { "fp32", FRAG_F32, JOB_KEEP },
				       { "exp_avg", FRAG_F32, JOB_SWAP } };

static struct job job;
static struct swapper *own;
static unsigned turns, let_go_at;

static struct engine *rank0(void)
{
	return job_frag(&job, 0)->engine;
}

static void turn_in_real_time(void)
{
	const struct timespec pause = { .tv_nsec = 50000 };

	nanosleep(&pause, NULL);
	if (++turns == let_go_at)
		faulty_end();
	job_turn(&job);
}

/* Puts the clock ahead of the disk's threads, but not far. */
static void turn(void *arg)
{
	(void)arg;
	scarce_skip_ms(TURN_MS);
	turn_in_real_time();
}

static void swap_momentum(void)
{
	float ones[NUMEL] = { [0 ... NUMEL - 1] = 1 };
	struct frag *f = job_frag(&job, 0);

	own = rank0()->registry.swapper;
	rank0()->registry.swapper = place;
	ck_assert_int_eq(frag_state_swap(f, 0, 0, "momentum", FRAG_F32), 0);
	ck_assert_int_eq(frag_state_put(f, 0, 0, "momentum", 0, ones, NUMEL, 0), 0);
	frag_safe_point(f);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
}

/* Opens the job; false: there is no such disk. */
static bool open_job(int disk)
{
	if (!placed_open(disk))
		return false;
	job_open(&job, &(struct job_spec){ .world = WORLD,
					   .hosts = WORLD,
					   JOB_PARAMS(params),
					   JOB_GROUPS(groups),
					   JOB_KEYS(keys) });
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_frag(&job, rank)->engine->thread.yield = turn;
	turns = let_go_at = 0;
	swap_momentum();
	return true;
}

static void close_job(void)
{
	ck_assert_int_eq(frag_state_drop(job_frag(&job, 0), 0, 0, "momentum"), 0);
	rank0()->registry.swapper = own;
	job_close(&job);
	placed_close();
}

static int get(const char *key, float *value)
{
	*value = -1;
	return frag_get_range(job_frag(&job, 1), 0, key, 0, value, sizeof(*value));
}

static bool is_need(int rc)
{
	return rc == -ENOMEM || rc == -EMFILE || rc == -ETIMEDOUT || rc == -EIO;
}

/* Without memory at the n-th call, for each n. */
START_TEST(without_memory_a_reader_gets_an_error_or_the_value)
{
	unsigned n = 0, failed;
	float value;
	int rc;

	if (!open_job(_i))
		return;
	do {
		scarce_begin(++n, 1);
		rc = get("momentum", &value);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && is_need(rc)), "%u: %d", n, rc);
		ck_assert(rc || value == 1);
		ck_assert_int_eq(get("momentum", &value), 0);
		ck_assert_float_eq(value, 1);
	} while (failed);
	ck_assert_uint_gt(n, 2);
	close_job();
}
END_TEST

START_TEST(a_state_in_memory_is_read_where_others_are_on_nvme)
{
	float value;

	if (!open_job(_i))
		return;
	ck_assert_int_eq(get("fp32", &value), 0);
	ck_assert_mem_eq(&value, job_truth(&job, 0, "fp32"), sizeof(value));
	close_job();
}
END_TEST

static void hold_reads(void)
{
	faulty_begin((struct faulty){
		.fault = FAULT_HOLD, .what = DISK_READ, .first = 1, .count = MANY });
}

/* The disk holds reads, and does not let go of canceled ones either. */
static void lose_reads(void)
{
	faulty_begin((struct faulty){
		.fault = FAULT_DEAF, .what = DISK_READ, .first = 1, .count = MANY });
}

/* Waits until no read of the rank is under way. */
static void expect_no_reads(void)
{
	for (unsigned end = turns + 600000; placed_figures().pins && turns < end;)
		turn(NULL);
	ck_assert_uint_eq(placed_figures().pins, 0);
}

START_TEST(a_disk_that_does_not_answer_is_a_timeout)
{
	uint64_t patience;
	float value;

	if (!open_job(_i))
		return;
	ck_assert_int_eq(get("momentum", &value), 0);
	patience = rank0()->timeout_ms;
	rank0()->timeout_ms = 200;
	hold_reads();
	ck_assert_int_eq(get("momentum", &value), -ETIMEDOUT);
	expect_no_reads();
	ck_assert_uint_ge(faulty_end(), 1);
	rank0()->timeout_ms = patience;
	ck_assert_int_eq(get("momentum", &value), 0);
	ck_assert_float_eq(value, 1);
	close_job();
}
END_TEST

static bool is_placed(void *arg, enum state_kind kind, uint32_t group, uint32_t sub,
		      const char *key)
{
	return !strcmp(key, "momentum") || !strcmp(key, "variance");
}

/* The disk is silent for the first of two states, and would read the second one. */
START_TEST(a_trainer_waits_once_for_a_silent_disk_while_states_move)
{
	struct registry *r;
	char why[100];

	placed_options.wait_ms = 100;
	if (!open_job(_i))
		return;
	r = &rank0()->registry;
	ck_assert_int_eq(frag_state_swap(job_frag(&job, 0), 0, 0, "variance", FRAG_F32), 0);
	ck_assert_int_eq(registry_place_want(r, is_placed, NULL, STATE_HOST, why, sizeof(why)),
			 0);
	ck_assert_uint_eq(r->placing.waiting, 2);
	hold_reads();
	ck_assert_int_eq(frag_safe_point(job_frag(&job, 0)), 0);
	faulty_end();
	ck_assert_uint_eq(r->placing.moved, 0);
	ck_assert_uint_eq(r->placing.failed, 2);
	ck_assert_int_eq(r->placing.error, -ETIMEDOUT);
	ck_assert_uint_eq(r->placing.waiting, 0);
	ck_assert_uint_eq(r->placing.waiting_bytes, 0);
	ck_assert_int_eq(frag_state_drop(job_frag(&job, 0), 0, 0, "variance"), 0);
	close_job();
}
END_TEST

static bool is_momentum(void *arg, enum state_kind kind, uint32_t group, uint32_t sub,
			const char *key)
{
	return !strcmp(key, "momentum");
}

static bool pages_say_changing(void)
{
	return atomic_load(&rank0()->registry.control->sequence) & 1;
}

/* Values that the trainer has written cannot be published while a writing sweep is half way,
 * here before the first generation.
 */
START_TEST(no_state_moves_that_is_not_published)
{
	struct swapper_swept swept = { .use = SWAPPER_READ | SWAPPER_WRITE };
	struct swapper_sweep *sweep;
	struct registry *r;
	uint64_t at, first, numel;
	char why[100];
	int row;

	if (!open_job(_i))
		return;
	r = &rank0()->registry;
	ck_assert_uint_eq(atomic_load(&r->control->generation), 0);
	ck_assert_int_eq(frag_state_swap(job_frag(&job, 0), 0, 0, "variance", FRAG_F32), 0);
	swept.state = registry_swap_state(r, STATE_PARTITION, 0, 0, "variance", &at);
	row = states_find(&r->states, STATE_PARTITION, 0, 0, "momentum");
	ck_assert_int_eq(swapper_sweep_begin(place, &swept, 1, &sweep), 0);
	ck_assert_int_eq(swapper_sweep_next(sweep, &first, &numel), 1);
	ck_assert_int_eq(
		registry_place_want(r, is_momentum, NULL, STATE_HOST, why, sizeof(why)), 0);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(frag_safe_point(job_frag(&job, 0)), -EBUSY);
		ck_assert_int_eq(registry_tier(r, (uint32_t)row), STATE_SWAP);
		ck_assert(!pages_say_changing());
	}
	while (swapper_sweep_next(sweep, &first, &numel) == 1)
		;
	swapper_sweep_end(sweep);
	ck_assert_int_eq(frag_safe_point(job_frag(&job, 0)), 0);
	ck_assert_int_eq(registry_tier(r, (uint32_t)row), STATE_HOST);
	ck_assert(!pages_say_changing());
	ck_assert_int_eq(frag_state_drop(job_frag(&job, 0), 0, 0, "variance"), 0);
	close_job();
}
END_TEST

START_TEST(a_rank_ends_while_its_disk_does_not_answer)
{
	float value;

	if (!open_job(_i))
		return;
	rank0()->timeout_ms = 200;
	lose_reads();
	ck_assert_int_eq(get("momentum", &value), -ETIMEDOUT);
	faulty_wait_held(1);
	ck_assert_int_eq(frag_state_drop(job_frag(&job, 0), 0, 0, "momentum"), 0);
	rank0()->registry.swapper = own;
	job_close(&job);
	ck_assert_uint_ge(placed_figures().pins, 1);
	faulty_end();
	placed_close();
}
END_TEST

/* Asks for as many reads as a rank takes at once, each of another range. */
static void ask_much_from(uint32_t from)
{
	int row = states_find(&rank0()->registry.states, STATE_PARTITION, 0, 0, "momentum");

	for (uint64_t i = 0; i < READS; i++) {
		struct wire_read read = { .epoch = rank0()->registry.states.epoch,
					  .state = (uint32_t)row,
					  .offset = 4 + i,
					  .size = 1 };

		ck_assert(serve_pending_start(rank0(), from, MANY + i, &read));
	}
}

static void ask_much(void)
{
	ask_much_from(rank0()->peers[1].link);
}

START_TEST(a_reader_leaves_some_reads_to_others)
{
	float value;

	if (!open_job(_i))
		return;
	ck_assert_int_eq(get("momentum", &value), 0);
	hold_reads();
	ask_much();
	ck_assert_uint_eq(placed_figures().pins, READS / 4 * 3);
	ask_much_from(rank0()->peers[1].link + 1);
	ck_assert_uint_eq(placed_figures().pins, READS);
	faulty_end();
	expect_no_reads();
	close_job();
}
END_TEST

START_TEST(a_reader_waits_while_too_many_others_are_served)
{
	float value;

	if (!open_job(_i))
		return;
	ck_assert_int_eq(get("momentum", &value), 0);
	hold_reads();
	ask_much();
	let_go_at = turns + 20;
	ck_assert_int_eq(get("momentum", &value), 0);
	ck_assert_uint_ge(turns, let_go_at);
	ck_assert_float_eq(value, 1);
	close_job();
}
END_TEST

/* ---- reads of one range ---- */

struct asked {
	bool answered;
	unsigned place; /* place among the answers, from 1 */
	int status;
	float value;
};

static unsigned answers;

static bool on_data(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	struct asked *a = owner;
	struct wire_data data = { .status = answer->status };

	(void)e, (void)tag;
	if (!answer->status)
		memcpy(&data, answer->body, sizeof(data));
	a->answered = true;
	a->place = ++answers;
	a->status = data.status;
	if (!a->status)
		memcpy(&a->value, answer->tail, sizeof(a->value));
	return false;
}

/* Rank 1 asks for one value.  It sends no PING, whose answer would come before that of a slow
 * disk and make rank 1 ask again.
 */
static void ask_at(struct asked *a, uint64_t at)
{
	struct engine *asks = job_frag(&job, 1)->engine;
	struct registry *r = &rank0()->registry;
	struct wire_read read = { .epoch = r->states.epoch,
				  .offset = at * sizeof(float),
				  .size = sizeof(float) };

	*a = (struct asked){ 0 };
	read.state = (uint32_t)states_find(&r->states, STATE_PARTITION, 0, 0, "momentum");
	asks->peers[0].pinged_ms = UINT64_MAX / 2;
	ck_assert_int_eq(peers_call(asks, 0, WIRE_READ, &read, NULL, 0, on_data, a, 0), 0);
}

static void ask(struct asked *a)
{
	ask_at(a, 0);
}

static void expect_answer(const struct asked *a, float value)
{
	for (uint64_t end = monotonic_ms() + JOB_WAIT_MS; !a->answered && monotonic_ms() < end;)
		turn_in_real_time();
	ck_assert(a->answered);
	ck_assert_int_eq(a->status, 0);
	ck_assert_float_eq(a->value, value);
}

static void ask_on_a_silent_disk(struct asked *asked, unsigned n)
{
	float value;

	ck_assert_int_eq(get("momentum", &value), 0);
	turn(NULL);
	hold_reads();
	for (unsigned i = 0; i < n; i++)
		ask(&asked[i]);
	for (unsigned i = 0; i < 20; i++)
		turn(NULL);
}

START_TEST(who_has_waited_longest_is_answered_first)
{
	struct asked asked[6];
	uint64_t patience;
	float value;

	if (!open_job(_i))
		return;
	ck_assert_int_eq(get("momentum", &value), 0);
	turn(NULL);
	patience = rank0()->timeout_ms;
	rank0()->timeout_ms = 100;
	hold_reads();
	answers = 0;
	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++)
		ask_at(&asked[i], i);
	for (unsigned end = turns + 300; answers < ARRAY_SIZE(asked) && turns < end;)
		turn(NULL);
	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++)
		ck_assert_uint_eq(asked[i].place, i + 1);
	expect_no_reads();
	faulty_end();
	rank0()->timeout_ms = patience;
	close_job();
}
END_TEST

START_TEST(nothing_is_read_for_a_reader_that_has_left)
{
	struct asked asked;

	if (!open_job(_i))
		return;
	ask_on_a_silent_disk(&asked, 1);
	faulty_wait_held(1);
	job_close_rank(&job, 1);
	expect_no_reads();
	faulty_end();
	close_job();
}
END_TEST

START_TEST(all_who_read_one_range_are_answered_and_few_reads_do)
{
	struct asked asked[6];
	unsigned reads;

	if (!open_job(_i))
		return;
	ask_on_a_silent_disk(asked, ARRAY_SIZE(asked));
	reads = faulty_end();
	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++)
		expect_answer(&asked[i], 1);
	ck_assert_uint_eq(reads, 2);
	close_job();
}
END_TEST

START_TEST(who_reads_after_a_change_gets_it_whoever_read_before)
{
	struct asked before, after;

	if (!open_job(_i))
		return;
	ask_on_a_silent_disk(&before, 1);
	ck_assert_int_eq(frag_state_clear(job_frag(&job, 0), 0, 0, "momentum"), 0);
	frag_safe_point(job_frag(&job, 0));
	ask(&after);
	for (unsigned i = 0; i < 20; i++)
		turn(NULL);
	faulty_end();
	expect_answer(&after, 0);
	expect_answer(&before, 1);
	close_job();
}
END_TEST

/* ---- rows and views ---- */

static struct swapper_state *momentum(uint32_t *row)
{
	struct registry *r = &rank0()->registry;
	uint64_t at;

	*row = (uint32_t)states_find(&r->states, STATE_PARTITION, 0, 0, "momentum");
	return registry_swap_state(r, STATE_PARTITION, 0, 0, "momentum", &at);
}

START_TEST(a_hold_needs_memory_and_the_row_as_it_was)
{
	struct registry *r;
	struct registry_version *version;
	unsigned n = 0, failed;
	uint32_t row;
	int rc;

	if (!open_job(_i))
		return;
	r = &rank0()->registry;
	momentum(&row);
	do {
		scarce_begin(++n, 1);
		rc = registry_version_newest(r, r->states.epoch, row, 0, BYTES, &version);
		failed = scarce_end();
		ck_assert_int_eq(rc, failed ? -ENOMEM : 0);
		registry_version_put(version);
	} while (failed);
	ck_assert_uint_gt(n, 1);
	ck_assert_int_eq(
		registry_version_newest(r, r->states.epoch + 1, row, 0, BYTES, &version),
		-ESTALE);
	ck_assert_int_eq(registry_version_newest(r, r->states.epoch, row, BYTES, 4, &version),
			 -EINVAL);
	close_job();
}
END_TEST

START_TEST(a_thread_that_may_not_wait_is_told_that_it_is_on_nvme)
{
	struct registry *r;
	uint32_t row;
	float value;

	if (!open_job(_i))
		return;
	r = &rank0()->registry;
	momentum(&row);
	hold_reads();
	ck_assert_int_eq(
		registry_read_memory(r, r->states.epoch, row, 0, &value, sizeof(value)),
		-EREMOTE);
	faulty_end();
	close_job();
}
END_TEST

/* The step had no room on the disk for a second version of the smaller slice. */
START_TEST(what_a_step_had_no_room_to_keep_can_be_held_after_it)
{
	struct registry *r;
	struct registry_version *version;
	struct swapper_state *s;
	struct swapper_lent *l;
	uint32_t row;

	placed_options.capacity = 2 * PLACED_SLICE + 4096;
	if (!open_job(_i))
		return;
	r = &rank0()->registry;
	s = momentum(&row);
	for (uint64_t i = 0; i < 2; i++) {
		ck_assert_int_eq(
			swapper_swap_in(place, s, i, SWAPPER_READ | SWAPPER_WRITE, 20000, &l),
			0);
		ck_assert_int_eq(swapper_swap_out(place, l), 0);
	}
	ck_assert_int_eq(registry_version_newest(r, r->states.epoch, row, 0, BYTES, &version),
			 -EAGAIN);
	swapper_publish(place);
	ck_assert_int_eq(registry_version_newest(r, r->states.epoch, row, 0, BYTES, &version),
			 0);
	registry_version_put(version);
	close_job();
}
END_TEST

START_TEST(a_view_on_nvme_is_held_not_copied_and_needs_memory)
{
	struct view_run run = { .size = BYTES };
	struct view_request q = { { 1, 1 }, .runs = &run, .nruns = 1 };
	unsigned n = 0, failed;
	struct view_owner views;
	struct view_look look;
	struct view view;
	float value;
	int rc;

	if (!open_job(_i))
		return;
	momentum(&run.row);
	q.epoch = rank0()->registry.states.epoch;
	do {
		view_owner_init(&views, 2 * BYTES);
		scarce_begin(++n, 1);
		rc = view_owner_open(&views, &rank0()->registry, &q, 1000, &view);
		failed = scarce_end();
		ck_assert_int_eq(rc, failed ? -ENOMEM : 0);
		if (failed)
			view_owner_fini(&views);
	} while (failed);
	ck_assert_uint_gt(n, 2);
	ck_assert_int_eq(
		view_owner_read(&views, &rank0()->registry, q.id, 0, &value, sizeof(value)),
		-EREMOTE);
	ck_assert_int_eq(view_owner_look(&views, q.id, 8, sizeof(value), &look), 0);
	ck_assert_uint_eq(look.at, 8);
	ck_assert_ptr_nonnull(look.version);
	registry_version_put(look.version);
	view_owner_fini(&views);
	close_job();
}
END_TEST

/* ---- the trainer ---- */

static const struct frag_swept swept[] = { { "momentum", 0 } };

START_TEST(a_sweep_needs_memory)
{
	struct frag_sweep *sweep;
	unsigned n = 0, failed;
	int rc;

	if (!open_job(_i))
		return;
	do {
		scarce_begin(++n, 1);
		rc = frag_sweep_begin(job_frag(&job, 0), 0, 0, swept, 1, &sweep);
		failed = scarce_end();
		ck_assert_msg(rc == -ENOMEM ? failed : !rc && n > 1, "%u: %d", n, rc);
		if (!rc)
			frag_sweep_end(sweep);
	} while (failed);
	ck_assert_uint_gt(n, 1);
	close_job();
}
END_TEST

/* The disk has room for a slice of one of the two states. */
START_TEST(a_sweep_says_which_states_it_could_take_back)
{
	const struct frag_swept both[] = { { "variance", 0 }, { "momentum", 0 } };
	struct frag_sweep *sweep;
	uint64_t first, numel;
	void *memory[2], *kept;
	struct frag *f;

	placed_options.capacity = (uint64_t)5 * 4096 + PLACED_SLICE + 4096;
	if (!open_job(_i))
		return;
	f = job_frag(&job, 0);
	ck_assert_int_eq(frag_state_swap(f, 0, 0, "variance", FRAG_F32), 0);
	ck_assert_int_eq(frag_sweep_begin(f, 0, 0, both, 2, &sweep), 0);
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), 1);
	kept = memory[1];
	ck_assert_int_eq(frag_sweep_next(sweep, &first, &numel, memory), -ENOSPC);
	ck_assert_ptr_null(memory[0]);
	ck_assert_ptr_eq(memory[1], kept);
	frag_sweep_end(sweep);
	ck_assert_int_eq(frag_state_drop(f, 0, 0, "variance"), 0);
	close_job();
}
END_TEST

/* ---- a generation that is not complete ---- */

static uint64_t generation(void)
{
	return rank0()->registry.control->generation;
}

/* The disk has room for one version of momentum and `ballast`; the values that are put have no
 * room.
 */
static struct swapper_state *begin_without_room(void)
{
	float twos[NUMEL] = { [0 ... NUMEL - 1] = 2 };
	struct swapper_state *ballast = placed_add("ballast", NUMEL);

	placed_fill(ballast, 7);
	ck_assert_int_eq(swapper_flush(place, 20000), 0);
	ck_assert_int_eq(frag_state_put(job_frag(&job, 0), 0, 0, "momentum", 0, twos, NUMEL, 0),
			 0);
	return ballast;
}

static bool all_are(float value)
{
	uint32_t row, bits;

	memcpy(&bits, &value, sizeof(bits));
	return placed_is(momentum(&row), NULL, 0, NUMEL, bits);
}

START_TEST(a_step_that_does_not_fit_is_not_announced_until_it_does)
{
	struct swapper_state *ballast;
	struct frag *f;
	uint64_t before, boundary;
	float value;

	placed_options.capacity = (uint64_t)2 * 5 * 4096;
	if (!open_job(_i))
		return;
	f = job_frag(&job, 0);
	before = generation();
	ck_assert_int_eq(frag_step_begin(f), 0);
	ballast = begin_without_room();
	ck_assert_int_eq(frag_step_end(f), -ENOSPC);
	boundary = rank0()->registry.control->boundary;
	ck_assert_uint_eq(generation(), before);
	ck_assert(all_are(1));
	ck_assert_int_eq(frag_safe_point(f), -ENOSPC);
	ck_assert_int_eq(frag_step_begin(f), -ENOSPC);
	ck_assert_int_eq(frag_step_end(f), -ENOSPC);
	ck_assert_uint_eq(rank0()->registry.control->boundary, boundary + 3);
	ck_assert_uint_eq(generation(), before);
	ck_assert(all_are(1));
	swapper_drop(place, ballast);
	ck_assert_int_eq(frag_safe_point(f), 0);
	ck_assert_uint_eq(generation(), control_page_generation(boundary + 3));
	ck_assert(all_are(2));
	ck_assert_int_eq(get("momentum", &value), 0);
	ck_assert_float_eq(value, 2);
	close_job();
}
END_TEST

/* A rank that owes a generation of its own makes the same generations of edits as the others.
 */
START_TEST(an_edit_makes_the_same_generation_where_a_step_did_not_fit)
{
	static const float values[10000];
	struct swapper_state *ballast;
	struct frag *f, *other;

	placed_options.capacity = (uint64_t)2 * 5 * 4096;
	if (!open_job(_i))
		return;
	f = job_frag(&job, 0);
	other = job_frag(&job, 1);
	frag_safe_point(other); /* rank 0 has made one in swap_momentum */
	ck_assert_int_eq(frag_step_begin(f), 0);
	ck_assert_int_eq(frag_step_begin(other), 0);
	ballast = begin_without_room();
	ck_assert_int_eq(frag_step_end(f), -ENOSPC);
	ck_assert_int_eq(frag_step_end(other), 0);
	ck_assert_int_eq(frag_safe_point(f), -ENOSPC);
	ck_assert_int_eq(frag_safe_point(other), 0);
	ck_assert_int_eq(frag_set(other, 0, "fp32", values, sizeof(values)), 0);
	ck_assert_int_eq(frag_safe_point(f), -ENOSPC);
	ck_assert_int_eq(frag_safe_point(other), 0);
	swapper_drop(place, ballast);
	ck_assert_int_eq(frag_safe_point(f), 0);
	ck_assert_int_eq(frag_safe_point(other), 0);
	ck_assert_uint_eq(generation(), other->engine->registry.control->generation);
	ck_assert_uint_eq(generation() % CONTROL_GENERATIONS, 1);
	ck_assert(all_are(2));
	close_job();
}
END_TEST

START_TEST(gradients_that_do_not_fit_are_not_valid_until_they_do)
{
	struct swapper_state *ballast;
	struct frag *f;

	placed_options.capacity = (uint64_t)2 * 5 * 4096;
	if (!open_job(_i))
		return;
	f = job_frag(&job, 0);
	ballast = begin_without_room();
	ck_assert_int_eq(frag_grads_valid(f, 1), -ENOSPC);
	ck_assert_uint_eq(rank0()->registry.control->grads & 1, 0);
	ck_assert(all_are(1));
	swapper_drop(place, ballast);
	ck_assert_int_eq(frag_grads_valid(f, 1), 0);
	ck_assert_uint_eq(rank0()->registry.control->grads & 1, 1);
	ck_assert(all_are(2));
	close_job();
}
END_TEST

/* A rank with such states opens, or reports what is missing. */
START_TEST(a_rank_opens_or_says_what_is_wanting)
{
	struct launch launch = { .world = 1, .job = "scarce", .host = "host", .plain = true };
	unsigned n = 0, failed;
	struct frag *f;
	int rc;

	launch.swap = (struct swap_config){ .pinned = 12 * 4096, .slice = 4096, .least = 1 };
	strcpy(launch.swap.dir, placed_dir);
	do {
		scarce_begin(++n, 1);
		rc = api_open_over(&f, &launch, &transport_loop, &transport_loop, NULL, false);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && (is_need(rc) || rc == -EAGAIN)), "%u: %d", n,
			      rc);
		if (!rc)
			frag_close(f);
	} while (failed);
	ck_assert_uint_gt(n, 5);
}
END_TEST

int main(void)
{
	const void *const tests[] = {
		without_memory_a_reader_gets_an_error_or_the_value,
		a_state_in_memory_is_read_where_others_are_on_nvme,
		a_disk_that_does_not_answer_is_a_timeout,
		a_trainer_waits_once_for_a_silent_disk_while_states_move,
		no_state_moves_that_is_not_published,
		a_rank_ends_while_its_disk_does_not_answer,
		who_has_waited_longest_is_answered_first,
		nothing_is_read_for_a_reader_that_has_left,
		a_reader_leaves_some_reads_to_others,
		a_reader_waits_while_too_many_others_are_served,
		all_who_read_one_range_are_answered_and_few_reads_do,
		who_reads_after_a_change_gets_it_whoever_read_before,
		a_thread_that_may_not_wait_is_told_that_it_is_on_nvme,
		a_hold_needs_memory_and_the_row_as_it_was,
		what_a_step_had_no_room_to_keep_can_be_held_after_it,
		a_view_on_nvme_is_held_not_copied_and_needs_memory,
		a_sweep_needs_memory,
		a_sweep_says_which_states_it_could_take_back,
		a_step_that_does_not_fit_is_not_announced_until_it_does,
		an_edit_makes_the_same_generation_where_a_step_did_not_fit,
		gradients_that_do_not_fit_are_not_valid_until_they_do,
		a_rank_opens_or_says_what_is_wanting,
	};

	return placed_main("swap-faults", tests, ARRAY_SIZE(tests));
}

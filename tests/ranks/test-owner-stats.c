/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/ranks/observed.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include "engine/live/loop.h"
#include "engine/node/file.h"
#include "engine/node/peers.h"
#include "engine/serve/tier-fetch.h"
#include "engine/stats/stats.h"

#include <check.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* Statistics that an observer asks of the owners: of the bytes as they are now, and of a file's
 * view while the job trains on.
 */

enum { STATES = 2, WAIT_TURNS = 60000, MANY_ASKED = 64, LONG_MS = 1 << 30 };

static struct stats values[STATES];
static struct engine_sum states[STATES];
static bool has_ended;

static void on_sums(struct engine_sums *sums)
{
	has_ended = true;
}

static void prepare(unsigned i, const char *key, struct engine_file *file)
{
	stats_init(&values[i], false);
	states[i] = (struct engine_sum){ .address = { ENGINE_PARAM, .param = 0 },
					 .file = file,
					 .values = &values[i] };
	snprintf(states[i].address.key, sizeof(states[i].address.key), "%s", key);
}

/* Asks, and turns until the request is over; worker threads of the ranks go on meanwhile. */
static void ask(unsigned n, bool with_bins, bool cancel)
{
	struct engine_sums sums = {
		.states = states, .n = n, .with_bins = with_bins, .done = on_sums
	};

	has_ended = false;
	stats_init(&values[0], with_bins);
	ck_assert_int_eq(engine_sums(observer, &sums), 0);
	if (cancel)
		engine_sums_cancel(observer, &sums);
	for (int i = 0; i < WAIT_TURNS && !has_ended; i++) {
		turn(NULL);
		usleep(i < 100 ? 0 : 1000);
	}
	ck_assert(has_ended);
}

/* Makes timeouts long, because turns put the clock ahead, and threads that copy and add up may
 * be slow.
 */
static void be_patient(void)
{
	observer->timeout_ms = LONG_MS;
	for (uint32_t rank = 0; rank < WORLD; rank++)
		job_frag(&job, rank)->engine->timeout_ms = LONG_MS;
}

static void on_seen(struct engine_read *read, const void *data, int64_t result)
{
	ck_assert_int_eq(result, read->size);
	has_ended = true;
}

/* Reads the first bytes of a file, which a thread of the device copies. */
static void look_at(struct engine_file *file)
{
	struct engine_read read = { .file = file, .size = 8, .done = on_seen };

	has_ended = false;
	engine_read(observer, &read);
	for (int i = 0; i < WAIT_TURNS && !has_ended; i++) {
		turn(NULL);
		usleep(i < 100 ? 0 : 1000);
	}
	ck_assert(has_ended);
}

static void step(const char *key, uint8_t byte)
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
	for (uint32_t rank = 0; rank < WORLD; rank++) {
		struct job_memory *m = job_memory(&job, rank, 0, 0, key);

		memset(m->bytes_at, byte, m->bytes);
		ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
	}
}

/* Checks that the statistics are those that stats_add makes of all bytes at once. */
static void check_against(const struct stats *s, const void *bytes)
{
	struct stats want;

	stats_init(&want, s->with_bins);
	stats_add(&want, FRAG_F32, bytes, NUMEL, 0);
	ck_assert_uint_eq(s->count, NUMEL);
	ck_assert_uint_eq(s->nan, want.nan);
	ck_assert_uint_eq(s->first_nan, want.first_nan);
	ck_assert_uint_eq(s->inf, want.inf);
	ck_assert_uint_eq(s->first_inf, want.first_inf);
	ck_assert_uint_eq(s->zero, want.zero);
	ck_assert_double_eq(s->min, want.min);
	ck_assert_double_eq(s->max, want.max);
	ck_assert(fabs(s->mean - want.mean) <= 1e-12 * fabs(want.mean));
	ck_assert(fabs(s->squares - want.squares) <= 1e-12 * want.squares);
	if (s->with_bins)
		ck_assert(!memcmp(s->bins, want.bins, sizeof(s->bins)));
}

static void of_present_bytes(void (*open)(void))
{
	open();
	be_patient();
	for (unsigned i = 0; i < STATES; i++) {
		prepare(0, "exp_avg", NULL);
		prepare(1, "fp32", NULL);
		ask(STATES - i, i, false); /* i 1: one state, with bins */
		ck_assert_int_eq(states[0].result, 0);
		check_against(&values[0], job_truth(&job, 0, "exp_avg"));
		if (i)
			continue;
		ck_assert_int_eq(states[1].result, 0);
		check_against(&values[1], job_truth(&job, 0, "fp32"));
		ck_assert_uint_eq(states[0].content, states[1].content);
	}
	close_job();
}

START_TEST(owners_tell_of_the_present_bytes)
{
	of_present_bytes(open_near);
	of_present_bytes(open_far);
}
END_TEST

START_TEST(bytes_that_are_being_changed_are_told_as_such)
{
	open_near();
	ck_assert_int_eq(frag_step_begin(job_frag(&job, 1)), 0);
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, -EAGAIN);
	ck_assert_int_eq(frag_step_end(job_frag(&job, 1)), 0);
	ask(1, false, false); /* the other ranks are a generation behind */
	ck_assert_int_eq(states[0].result, -EAGAIN);
	close_job();
}
END_TEST

START_TEST(owners_tell_of_what_a_view_shows_while_the_job_trains_on)
{
	struct engine_file *file;

	open_near();
	file = open_state(ENGINE_PARAM, "exp_avg");
	ck_assert_int_eq(read_file(file, 0, 8, false, false), 8);
	step("exp_avg", 0x55);
	prepare(0, "exp_avg", file);
	ask(1, true, false);
	ck_assert_int_eq(states[0].result, 0);
	check_against(&values[0], job_truth(&job, 0, "exp_avg"));
	engine_file_close(file);
	close_job();
}
END_TEST

/* ---- states that are not in the host's memory ---- */

static struct device_ops counting;
static _Atomic unsigned summed; /* requests for sums, of all ranks */
static bool has_kernels;

static void submit(struct device *d, struct device_io *io)
{
	if (device_is_sums(io->what) && !has_kernels) {
		io->done(io, -ENOSYS);
		return;
	}
	summed += device_is_sums(io->what);
	device_host.submit(d, io);
}

static void open_device(bool kernels)
{
	counting = device_host;
	counting.submit = submit;
	has_kernels = kernels;
	summed = 0;
	open_tier(JOB_KEEP, &counting);
}

static void open_disk(void)
{
	open_tier(JOB_SWAP, NULL);
}

static void open_device_with_kernels(void)
{
	open_device(true);
}

static void open_device_without_kernels(void)
{
	open_device(false);
}

START_TEST(owners_tell_of_other_tiers)
{
	of_present_bytes(open_device_with_kernels);
	ck_assert_uint_gt(summed, 0);
	of_present_bytes(open_device_without_kernels);
	of_present_bytes(open_disk);
}
END_TEST

START_TEST(owners_tell_of_what_a_device_has_preserved)
{
	for (int kernels = 0; kernels < 2; kernels++) {
		struct engine_file *file;

		open_device(kernels);
		be_patient();
		file = open_state(ENGINE_PARAM, "exp_avg");
		look_at(file);
		for (int steps = 0; steps < 2; steps++) {
			summed = 0;
			prepare(0, "exp_avg", file);
			ask(1, false, false);
			ck_assert_int_eq(states[0].result, 0);
			check_against(&values[0], job_truth(&job, 0, "exp_avg"));
			ck_assert_int_eq(summed > 0, kernels);
			step("exp_avg", 0x55);
		}
		engine_file_close(file);
		close_job();
	}
}
END_TEST

static void streams(void (*do_it)(struct device_host_stream *s))
{
	for (uint32_t rank = 0; rank < WORLD; rank++)
		do_it(job.ranks[rank].stream);
}

START_TEST(a_stream_that_does_not_go_on_ends_a_request)
{
	open_device(true);
	streams(device_host_hold);
	job_boundary(&job);
	prepare(0, "exp_avg", NULL);
	ask(1, false, true);
	ck_assert_int_eq(states[0].result, -ECANCELED);
	prepare(0, "exp_avg", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, -ETIMEDOUT);
	streams(device_host_go);
	be_patient();
	prepare(0, "exp_avg", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, 0);
	check_against(&values[0], job_truth(&job, 0, "exp_avg"));
	close_job();
}
END_TEST

static void make_step(uint32_t rank)
{
	ck_assert_int_eq(frag_step_begin(job_frag(&job, rank)), 0);
	ck_assert_int_eq(frag_step_end(job_frag(&job, rank)), 0);
}

/* When the ranks make a step, the device has the request, and waits for its stream. */
START_TEST(bytes_that_change_while_they_are_summed_are_told_as_such)
{
	struct engine_sums sums = { .states = states, .n = 1, .done = on_sums };

	observed_devices = (struct frag_devices){ .timeout_ms = LONG_MS };
	open_device(true);
	be_patient();
	streams(device_host_hold);
	job_boundary(&job);
	prepare(0, "exp_avg", NULL);
	has_ended = false;
	ck_assert_int_eq(engine_sums(observer, &sums), 0);
	for (int i = 0; i < WAIT_TURNS && summed < WORLD; i++) {
		turn(NULL);
		usleep(1000);
	}
	ck_assert_uint_eq(summed, WORLD);
	for (uint32_t rank = 0; rank < WORLD; rank++)
		make_step(rank);
	streams(device_host_go);
	for (int i = 0; i < WAIT_TURNS && !has_ended; i++) {
		turn(NULL);
		usleep(1000);
	}
	ck_assert(has_ended);
	ck_assert_int_eq(states[0].result, -EAGAIN);
	close_job();
}
END_TEST

/* The device makes no sums of bytes that the host keeps: the rank adds them up. */
START_TEST(owners_tell_of_what_the_host_has_preserved_of_a_device)
{
	struct engine_file *file;

	observed_devices = (struct frag_devices){ .keep = 1, .keep_host = 4 << 20 };
	open_device(true);
	be_patient();
	file = open_state(ENGINE_PARAM, "exp_avg");
	look_at(file);
	step("exp_avg", 0x55);
	prepare(0, "exp_avg", file);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, 0);
	check_against(&values[0], job_truth(&job, 0, "exp_avg"));
	ck_assert_uint_eq(summed, 0);
	engine_file_close(file);
	close_job();
}
END_TEST

/* ---- a rank's fetch of its own bytes ---- */

static struct engine *fetcher;
static struct wire_read own;

/* Opens rank 1's partition of fp32 on its device, for a fetch by rank 1. */
static void open_to_fetch(void)
{
	observed_devices = (struct frag_devices){ .timeout_ms = 1000 };
	open_device(true);
	fetcher = job_frag(&job, 1)->engine;
	own = (struct wire_read){ .epoch = fetcher->registry.states.epoch,
				  .size = (uint32_t)(4 * frag_partition_numel(job_frag(&job, 1),
									      0, 0)) };
	own.state = (uint32_t)registry_find(&fetcher->registry, STATE_PARTITION, 0, 0, "fp32",
					    &(enum frag_dtype){ 0 });
}

START_TEST(a_fetch_is_whole_or_enomem)
{
	struct tier_fetch *fetched;
	unsigned n = 0, failed;
	int rc;

	open_to_fetch();
	do {
		scarce_begin(++n, 1);
		rc = tier_fetch_now(fetcher, &own, DEVICE_COPY, NULL, &fetched);
		failed = scarce_end();
		ck_assert_int_eq(rc, failed ? -ENOMEM : 0);
	} while (failed);
	ck_assert_uint_gt(n, 2);
	ck_assert_mem_eq(tier_fetch_result(fetched),
			 job_memory(&job, 1, 0, 0, "fp32")->bytes_at, own.size);
	tier_fetch_free(fetched);
	close_job();
}
END_TEST

START_TEST(a_fetch_that_is_not_wanted_or_takes_too_long_ends)
{
	const _Atomic bool abandoned = true;
	struct tier_fetch *fetched;

	open_to_fetch();
	streams(device_host_hold);
	job_boundary(&job);
	ck_assert_int_eq(tier_fetch_now(fetcher, &own, DEVICE_COPY, &abandoned, &fetched),
			 -ECANCELED);
	fetcher->timeout_ms = 50;
	ck_assert_int_eq(tier_fetch_now(fetcher, &own, DEVICE_COPY, NULL, &fetched),
			 -ETIMEDOUT);
	fetcher->timeout_ms = LONG_MS;
	streams(device_host_go);
	ck_assert_int_eq(tier_fetch_now(fetcher, &own, DEVICE_COPY, NULL, &fetched), 0);
	tier_fetch_free(fetched);
	close_job();
}
END_TEST

START_TEST(a_nan_is_found_where_it_is)
{
	static const float nan = NAN;
	struct job_memory *m;

	open_near();
	step("fp32", 0);
	m = job_memory(&job, 1, 0, 0, "fp32");
	memcpy(m->bytes_at, &nan, sizeof(nan));
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, 0);
	ck_assert_uint_eq(values[0].nan, 1);
	ck_assert_uint_gt(values[0].first_nan, 0);
	ck_assert_uint_lt(values[0].first_nan, NUMEL);
	close_job();
}
END_TEST

START_TEST(what_owners_cannot_tell_is_said)
{
	open_near();
	prepare(0, "absent", NULL);
	prepare(1, "fp32", NULL);
	states[1].address.now = true;
	ask(2, false, false);
	ck_assert_int_eq(states[0].result, -ENOENT);
	ck_assert_int_eq(states[1].result, -EOPNOTSUPP);
	prepare(0, "grad", NULL); /* the gradients are not valid */
	ask(1, false, false);
	ck_assert_int_lt(states[0].result, 0);
	prepare(0, "fp32", NULL);
	ask(1, false, true);
	ck_assert_int_eq(states[0].result, -ECANCELED);
	close_job();
}
END_TEST

START_TEST(a_request_may_be_cancelled_at_any_time)
{
	struct engine_sums sums = { .states = states, .n = 1, .done = on_sums };

	open_far();
	for (int turns = 0; turns < 20; turns++) {
		prepare(0, "fp32", NULL);
		has_ended = false;
		ck_assert_int_eq(engine_sums(observer, &sums), 0);
		for (int i = 0; i < turns && !has_ended; i++)
			turn(NULL);
		if (has_ended)
			continue;
		engine_sums_cancel(observer, &sums);
		for (int i = 0; i < WAIT_TURNS && !has_ended; i++)
			turn(NULL);
		ck_assert(has_ended);
		ck_assert_int_eq(states[0].result, -ECANCELED);
	}
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, 0);
	check_against(&values[0], job_truth(&job, 0, "fp32"));
	close_job();
}
END_TEST

START_TEST(a_lost_owner_is_an_error_of_a_read)
{
	open_near();
	job_close_rank(&job, 2);
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert(states[0].result == -EIO || states[0].result == -ETIMEDOUT);
	close_job();
}
END_TEST

/* ---- messages ---- */

/* Each fault spoils one message of a request for statistics, which then has the given result.
 */
START_TEST(an_answer_that_is_no_statistics_is_an_error)
{
	static const struct {
		struct fault fault;
		int result;
	} cases[] = {
		{ { FAULT_SEND, .type = WIRE_SUMS, .acked = true, .result = -EREMOTE },
		  -EOPNOTSUPP },
		{ { FAULT_SEND, .type = WIRE_SUMS, .acked = true, .result = -ESTALE },
		  -EAGAIN },
		{ { FAULT_SEND, .type = WIRE_SUMS, .acked = true }, -EIO },
		/* the dtype and the epoch of the first range */
		{ { FAULT_SEND, .type = WIRE_STATS, .poked = true, .poke = 99, .poke_at = 60 },
		  -EINVAL },
		{ { FAULT_SEND, .type = WIRE_STATS, .poked = true, .poke = 0, .poke_at = 16 },
		  -EAGAIN },
		/* how many ranges there are */
		{ { FAULT_SEND, .type = WIRE_STATS, .poked = true, .poke = 2, .poke_at = 8 },
		  -EINVAL },
		/* how many sums there are, and of how many elements the first is */
		{ { FAULT_SEND, .type = WIRE_SUMS, .poked = true, .poke = 2 }, -EIO },
		{ { FAULT_SEND, .type = WIRE_SUMS, .poked = true, .poke = 99, .poke_at = 24 },
		  -EIO },
	};

	open_near();
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	faults_add(&cases[_i].fault);
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, cases[_i].result);
	prepare(0, "fp32", NULL);
	for (states[0].result = -EAGAIN; states[0].result == -EAGAIN;)
		ask(1, false, false); /* -EAGAIN: the table of states is on its way */
	ck_assert_int_eq(states[0].result, 0);
	check_against(&values[0], job_truth(&job, 0, "fp32"));
	close_job();
}
END_TEST

START_TEST(who_is_refused_for_too_long_is_to_read)
{
	open_near();
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_SUMS, .acked = true,
				    .result = -EAGAIN, .count = MANY });
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, -EOPNOTSUPP);
	close_job();
}
END_TEST

START_TEST(a_table_that_does_not_come_ends_the_wait)
{
	open_far();
	faults_add(&(struct fault){ FAULT_SEND, .type = WIRE_STATES_GET, .count = MANY });
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, -ETIMEDOUT);
	close_job();
}
END_TEST

static unsigned answers, refused;

static bool on_answer(struct engine *e, void *owner, uint64_t tag, const struct answer *answer)
{
	answers++;
	refused += answer->type == WIRE_ACK && answer->status == -EAGAIN;
	return false;
}

START_TEST(a_rank_refuses_more_than_its_queue_takes)
{
	struct wire_range range = { .dtype = FRAG_F32, .size = 4 };

	open_near();
	range.epoch = job_frag(&job, 1)->engine->registry.states.epoch;
	pthread_mutex_lock(&observer->lock);
	for (uint64_t id = MANY; id < MANY + MANY_ASKED; id++) { /* no id of the observer's */
		struct wire_stats body = { .id = id, .count = 1 };

		ck_assert_int_eq(peers_call(observer, 1, WIRE_STATS, &body, &range,
					    sizeof(range), on_answer, NULL, id),
				 0);
	}
	pthread_mutex_unlock(&observer->lock);
	for (int i = 0; i < WAIT_TURNS && answers < MANY_ASKED; i++)
		turn(NULL);
	ck_assert_uint_eq(answers, MANY_ASKED);
	ck_assert_uint_gt(refused, 0);
	prepare(0, "fp32", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, 0);
	close_job();
}
END_TEST

START_TEST(a_state_that_does_not_fit_the_file_or_has_no_statistics_is_to_be_read)
{
	static uint8_t memory[WORLD][1024];
	struct engine_file *file;

	open_near();
	for (uint32_t rank = 0; rank < WORLD; rank++)
		ck_assert_int_eq(frag_state_keep(job_frag(&job, rank), 0, 0, "waves", FRAG_C64,
						 memory[rank]),
				 0);
	prepare(0, "waves", NULL);
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, -EOPNOTSUPP);
	file = open_state(ENGINE_PARAM, "fp32");
	ck_assert_int_eq(read_file(file, 0, 8, false, false), 8);
	prepare(0, "fp32", file);
	states[0].at = 4;
	ask(1, false, false);
	ck_assert_int_eq(states[0].result, -EOPNOTSUPP);
	engine_file_close(file);
	close_job();
}
END_TEST

START_TEST(an_observer_that_ends_cancels_them)
{
	struct engine_sums sums = { .states = states, .n = 1, .done = on_sums };

	open_near();
	prepare(0, "fp32", NULL);
	has_ended = false;
	ck_assert_int_eq(engine_sums(observer, &sums), 0);
	loop_free(observer);
	observer = NULL;
	ck_assert(has_ended);
	ck_assert_int_eq(states[0].result, -ECANCELED);
	close_job();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("owner-stats");
	TCase *t = tcase_create("owner-stats");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, owners_tell_of_the_present_bytes);
	tcase_add_test(t, bytes_that_are_being_changed_are_told_as_such);
	tcase_add_test(t, owners_tell_of_what_a_view_shows_while_the_job_trains_on);
	tcase_add_test(t, owners_tell_of_other_tiers);
	tcase_add_test(t, owners_tell_of_what_a_device_has_preserved);
	tcase_add_test(t, a_stream_that_does_not_go_on_ends_a_request);
	tcase_add_test(t, bytes_that_change_while_they_are_summed_are_told_as_such);
	tcase_add_test(t, owners_tell_of_what_the_host_has_preserved_of_a_device);
	tcase_add_test(t, a_fetch_is_whole_or_enomem);
	tcase_add_test(t, a_fetch_that_is_not_wanted_or_takes_too_long_ends);
	tcase_add_test(t, a_nan_is_found_where_it_is);
	tcase_add_test(t, what_owners_cannot_tell_is_said);
	tcase_add_test(t, a_request_may_be_cancelled_at_any_time);
	tcase_add_test(t, a_lost_owner_is_an_error_of_a_read);
	tcase_add_loop_test(t, an_answer_that_is_no_statistics_is_an_error, 0, 8);
	tcase_add_test(t, who_is_refused_for_too_long_is_to_read);
	tcase_add_test(t, a_table_that_does_not_come_ends_the_wait);
	tcase_add_test(t, a_rank_refuses_more_than_its_queue_takes);
	tcase_add_test(t,
		       a_state_that_does_not_fit_the_file_or_has_no_statistics_is_to_be_read);
	tcase_add_test(t, an_observer_that_ends_cancels_them);
	return run_suite(s, t);
}

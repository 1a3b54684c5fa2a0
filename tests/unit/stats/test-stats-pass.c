/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/stats-pass.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/* An engine that has one state, whose bytes are those of `state`. */

enum { NUMEL = 5 << 20 }; /* more chunks than are read at a time */

static float state[NUMEL];
static uint64_t state_bytes;
static uint64_t failing_at; /* the read there fails; UINT64_MAX: none */
static bool only_cancelled; /* reads end when they are cancelled */
static int sums_status;     /* of engine_sums */
static int owners_result;   /* of the state; 1: none before it is cancelled */
static unsigned sums_asked, cancelled;
static struct engine_sums *asked;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool over, waits;
static int result;

/* The thread of the pass waits from now on. */
static void note_wait(void)
{
	pthread_mutex_lock(&lock);
	waits = true;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

bool engine_is_live(struct engine *e)
{
	return true;
}

void engine_read_from(const char *caller, struct engine *e, struct engine_read *read)
{
	uint64_t size = u64_min(read->size, state_bytes - u64_min(read->offset, state_bytes));

	if (only_cancelled)
		note_wait();
	else if (read->offset == failing_at)
		read->done(read, NULL, -EIO);
	else
		read->done(read, (const char *)state + read->offset, (int64_t)size);
}

void engine_read_cancel(struct engine *e, struct engine_read *read)
{
	cancelled++;
	read->done(read, NULL, -ECANCELED);
}

int engine_sums(struct engine *e, struct engine_sums *sums)
{
	sums_asked++;
	if (sums_status)
		return sums_status;
	if (owners_result == 1) {
		asked = sums;
		note_wait();
		return 0;
	}
	sums->states[0].result = owners_result;
	if (!owners_result)
		stats_add(sums->states[0].values, FRAG_F32, state, NUMEL, 0);
	sums->done(sums);
	return 0;
}

static void *end_asked(void *arg)
{
	asked->states[0].result = -ECANCELED;
	asked->done(asked);
	return NULL;
}

void engine_sums_cancel(struct engine *e, struct engine_sums *sums)
{
	pthread_t thread;

	cancelled++;
	ck_assert_int_eq(pthread_create(&thread, NULL, end_asked, NULL), 0);
	pthread_detach(thread);
}

static void done(struct stats_pass *pass, int how)
{
	pthread_mutex_lock(&lock);
	ck_assert(!over);
	over = true;
	result = how;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static struct stats values;
static uint64_t hash;
static struct stats_pass pass;

static int start(bool with_hash)
{
	over = false;
	pass = (struct stats_pass){ .bytes = sizeof(state),
				    .dtype = FRAG_F32,
				    .with_bins = true,
				    .values = &values,
				    .hash = with_hash ? &hash : NULL,
				    .done = done };
	return stats_pass_start(&pass);
}

static void wait_for(const bool *what)
{
	pthread_mutex_lock(&lock);
	while (!*what)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static int run(bool with_hash)
{
	ck_assert_int_eq(start(with_hash), 0);
	wait_for(&over);
	return result;
}

static void setup(void)
{
	for (uint32_t i = 0; i < NUMEL; i++)
		state[i] = (float)(i % 1000);
	state_bytes = sizeof(state);
	failing_at = UINT64_MAX;
	sums_status = -EOPNOTSUPP;
}

static void check_values(void)
{
	static struct stats want;

	stats_init(&want, true);
	stats_add(&want, FRAG_F32, state, NUMEL, 0);
	ck_assert_uint_eq(values.count, NUMEL);
	ck_assert(values.min == want.min && values.max == want.max);
	ck_assert_uint_eq(values.zero, want.zero);
	ck_assert(!memcmp(values.bins, want.bins, sizeof(want.bins)));
}

START_TEST(values_are_those_of_all_bytes)
{
	ck_assert_int_eq(run(false), 0);
	check_values();
	ck_assert_uint_eq(sums_asked, 1);
}
END_TEST

START_TEST(owners_make_them_where_they_can)
{
	sums_status = 0;
	ck_assert_int_eq(run(false), 0);
	check_values();
	owners_result = -EAGAIN; /* they are not at one generation: it is read */
	ck_assert_int_eq(run(false), 0);
	check_values();
	owners_result = -EIO;
	ck_assert_int_eq(run(false), -EIO);
}
END_TEST

START_TEST(a_hash_is_of_the_bytes_in_their_order)
{
	uint64_t before;

	ck_assert_int_eq(run(true), 0);
	ck_assert_uint_eq(sums_asked, 0);
	before = hash;
	state[0] = 1;
	state[1] = 0;
	ck_assert_int_eq(run(true), 0);
	ck_assert_uint_ne(hash, before);
}
END_TEST

START_TEST(an_error_ends_it)
{
	failing_at = 2 * (uint64_t)ENGINE_READ_MAX;
	ck_assert_int_eq(run(false), -EIO);
	failing_at = 0;
	ck_assert_int_eq(run(false), -EIO);
}
END_TEST

START_TEST(a_state_that_is_shorter_is_stale)
{
	state_bytes -= sizeof(state[0]);
	ck_assert_int_eq(run(false), -ESTALE);
}
END_TEST

START_TEST(a_cancelled_one_ends)
{
	only_cancelled = !_i;
	sums_status = 0;
	owners_result = 1;
	waits = false;
	ck_assert_int_eq(start(false), 0);
	wait_for(&waits);
	stats_pass_cancel(&pass);
	wait_for(&over);
	ck_assert_int_eq(result, -ECANCELED);
	ck_assert_uint_ge(cancelled, 1);
}
END_TEST

START_TEST(it_starts_or_says_what_is_wanting)
{
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, 1);
		rc = start(false);
		failed = scarce_end();
		if (!rc)
			wait_for(&over);
		ck_assert_msg(!rc || (failed && (rc == -ENOMEM || rc == -EAGAIN)), "%d", rc);
	} while (failed);
	ck_assert_uint_gt(n, 4);
	check_values();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("stats-pass");
	TCase *t = tcase_create("stats-pass");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, values_are_those_of_all_bytes);
	tcase_add_test(t, owners_make_them_where_they_can);
	tcase_add_test(t, a_hash_is_of_the_bytes_in_their_order);
	tcase_add_test(t, an_error_ends_it);
	tcase_add_test(t, a_state_that_is_shorter_is_stale);
	tcase_add_loop_test(t, a_cancelled_one_ends, 0, 2);
	tcase_add_test(t, it_starts_or_says_what_is_wanting);
	return run_suite(s, t);
}

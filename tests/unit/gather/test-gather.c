/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/thread.h"
#include "engine/gather.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* An engine that has one state, whose bytes are those of `state`. */

enum { ROWS = 3000, COLUMNS = 2000, WAITING_MAX = 64 };

/* COMES_ALL_THE_SAME: it comes when it is cancelled, which is too late */
enum manner { AT_ONCE, IN_THREADS, WHEN_CANCELLED, COMES_ALL_THE_SAME };

static uint32_t state[ROWS * COLUMNS];
static uint64_t state_bytes;
static enum manner manner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t reads, bytes;
static int failing; /* the number of the read that fails; 0: none */
static struct engine_read *waiting[WAITING_MAX];
static unsigned nwaiting;

static void answer(struct engine_read *read)
{
	uint64_t size = u64_min(read->size, state_bytes - u64_min(read->offset, state_bytes));
	const char *data = (const char *)state + read->offset;
	bool fails, copies; /* an engine may use `into`, or not */

	pthread_mutex_lock(&lock);
	bytes += size;
	fails = (int)++reads == failing;
	copies = reads % 2;
	pthread_mutex_unlock(&lock);
	if (!fails && read->into && copies)
		data = memcpy(read->into, data, size);
	read->done(read, fails ? NULL : data, fails ? -EIO : (int64_t)size);
}

static void *answer_later(void *arg)
{
	answer(arg);
	return NULL;
}

void engine_read_from(const char *caller, struct engine *e, struct engine_read *read)
{
	pthread_t thread;

	if (manner == AT_ONCE) {
		answer(read);
	} else if (manner == IN_THREADS) {
		ck_assert_int_eq(thread_start(&thread, answer_later, read), 0);
		pthread_detach(thread);
	} else {
		pthread_mutex_lock(&lock);
		waiting[nwaiting++] = read;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
}

void engine_read_cancel(struct engine *e, struct engine_read *read)
{
	bool is_waiting = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < nwaiting; i++) {
		if (waiting[i] == read) {
			is_waiting = true;
			waiting[i] = waiting[--nwaiting];
		}
	}
	pthread_mutex_unlock(&lock);
	if (is_waiting && manner == COMES_ALL_THE_SAME)
		answer(read);
	else if (is_waiting)
		read->done(read, NULL, -ECANCELED);
}

/* ---- a request ---- */

struct asked {
	struct gather g;
	struct slice slice;
	bool over;
	int result;
};

static void done(struct gather *g, int result)
{
	struct asked *a = g->owner;

	pthread_mutex_lock(&lock);
	ck_assert(!a->over);
	a->over = true;
	a->result = result;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void ask(struct asked *a, const char *text, size_t element, uint64_t first,
		uint64_t count)
{
	const char *end;

	*a = (struct asked){ .over = false };
	ck_assert_int_eq(slice_parse(&a->slice, text, &end,
				     (uint64_t[]){ ROWS, COLUMNS * sizeof(*state) / element },
				     2),
			 0);
	ck_assert_str_eq(end, "");
	count = u64_min(count, a->slice.numel - first);
	reads = bytes = 0;
	a->g = (struct gather){ .slice = &a->slice,
				.element = element,
				.first = first,
				.count = count,
				.out = malloc(count * element + 1),
				.done = done,
				.owner = a };
	ck_assert_int_eq(gather_start(&a->g), 0);
}

static int wait_for(struct asked *a)
{
	pthread_mutex_lock(&lock);
	while (!a->over)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	return a->result;
}

static void setup(void)
{
	for (uint32_t i = 0; i < ARRAY_SIZE(state); i++)
		state[i] = i;
	state_bytes = sizeof(state);
}

static void check(const char *text, uint64_t first, uint64_t count)
{
	struct asked a;
	const uint32_t *out;

	ask(&a, text, sizeof(*state), first, count);
	ck_assert_int_eq(wait_for(&a), 0);
	out = a.g.out;
	/* Check writes each assertion that holds to a file: here there are millions. */
	for (uint64_t k = 0; k < a.g.count; k++)
		if (out[k] != slice_run(&a.slice, first + k).first)
			ck_abort_msg("element %llu: %u", (unsigned long long)k, out[k]);
	free(a.g.out);
}

START_TEST(elements_are_those_of_the_slice)
{
	manner = _i ? IN_THREADS : AT_ONCE;
	check("[...]", 0, 1000000);
	check("[...]", 77777, 3);
	check("[0:0]", 0, 0);
	check("[5,7]", 0, 1);
	check("[:,7]", 0, ROWS);
	check("[:,7]", 1000, 500);
	check("[::-1,7]", 1, 2000);
	check("[::3,1:5]", 3, 900);
	check("[::-1]", 0, 5000);
	check("[::-1,::-1]", 12345, 400000);
	check("[10:20,::-7]", 3, 2000);
	check("[:,:1500]", 17, 500000);
	check("[:,100:1900]", 100000, 400000);
	check("[::500,::499]", 0, 30);
}
END_TEST

START_TEST(elements_of_each_size_are_picked)
{
	manner = AT_ONCE;
	for (size_t size = 1; size <= 16; size *= 2) {
		struct asked a;

		ask(&a, "[2,::-3]", size, 5, 100);
		ck_assert_int_eq(wait_for(&a), 0);
		for (uint64_t k = 0; k < a.g.count; k++)
			ck_assert_mem_eq(
				(char *)a.g.out + k * size,
				(char *)state + size * slice_run(&a.slice, 5 + k).first, size);
		free(a.g.out);
	}
}
END_TEST

START_TEST(only_bytes_that_are_needed_are_read)
{
	manner = AT_ONCE;
	check("[3:6]", 0, UINT32_MAX);
	ck_assert_uint_eq(reads, 1);
	ck_assert_uint_eq(bytes, 3 * COLUMNS * sizeof(*state));
	check("[:,5]", 0, UINT32_MAX);
	ck_assert_uint_eq(reads, ROWS);
	ck_assert_uint_eq(bytes, ROWS * sizeof(*state));
	check("[:,5:800]", 0, UINT32_MAX); /* gaps of 4820 bytes */
	ck_assert_uint_eq(bytes, ROWS * 795 * sizeof(*state));
	check("[:100,1:]", 0, UINT32_MAX); /* gaps of 4 bytes */
	ck_assert_uint_eq(reads, 1);
	ck_assert_uint_eq(bytes, (100 * COLUMNS - 1) * sizeof(*state));
}
END_TEST

START_TEST(an_error_ends_it)
{
	struct asked a;

	manner = _i ? IN_THREADS : AT_ONCE;
	failing = 5;
	ask(&a, "[:,5]", sizeof(*state), 0, UINT32_MAX);
	ck_assert_int_eq(wait_for(&a), -EIO);
	ck_assert_uint_lt(reads, 5 + 2 * GATHER_READS);
	free(a.g.out);
}
END_TEST

START_TEST(a_state_that_is_shorter_is_stale)
{
	struct asked a;

	manner = AT_ONCE;
	state_bytes = 4000;
	ask(&a, "[:2]", sizeof(*state), 0, UINT32_MAX);
	ck_assert_int_eq(wait_for(&a), -ESTALE);
	free(a.g.out);
}
END_TEST

START_TEST(a_cancelled_one_ends)
{
	struct asked a;

	manner = _i ? COMES_ALL_THE_SAME : WHEN_CANCELLED;
	ask(&a, "[:,5]", sizeof(*state), 0, UINT32_MAX);
	ck_assert_uint_eq(nwaiting, GATHER_READS);
	gather_cancel(&a.g);
	ck_assert(a.over);
	ck_assert_int_eq(a.result, -ECANCELED);
	ck_assert_uint_eq(nwaiting, 0);
	free(a.g.out);
}
END_TEST

START_TEST(it_starts_or_is_enomem)
{
	struct asked a;
	int rc;

	manner = AT_ONCE;
	ask(&a, "[:,5]", sizeof(*state), 0, UINT32_MAX);
	ck_assert_int_eq(wait_for(&a), 0);
	scarce_begin(1, 1);
	rc = gather_start(&a.g);
	ck_assert_uint_eq(scarce_end(), 1);
	ck_assert_int_eq(rc, -ENOMEM);
	free(a.g.out);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gather");
	TCase *t = tcase_create("gather");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, elements_are_those_of_the_slice, 0, 2);
	tcase_add_test(t, elements_of_each_size_are_picked);
	tcase_add_test(t, only_bytes_that_are_needed_are_read);
	tcase_add_loop_test(t, an_error_ends_it, 0, 2);
	tcase_add_test(t, a_state_that_is_shorter_is_stale);
	tcase_add_loop_test(t, a_cancelled_one_ends, 0, 2);
	tcase_add_test(t, it_starts_or_is_enomem);
	return run_suite(s, t);
}

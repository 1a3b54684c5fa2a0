/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/memory/pinned.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
#endif

enum { SIZE = 8192, COUNT = 4, WAIT_MS = 60000 };

static struct pinned *pool;

static void setup(void)
{
	setenv("FRAG_LOG", "error", 1);
	ck_assert_int_eq(
		pinned_open(&(struct pinned_options){ .size = SIZE, .count = COUNT }, &pool),
		0);
}

static void teardown(void)
{
	pinned_close(pool);
}

static void *get(void)
{
	void *buffer = NULL;

	ck_assert_int_eq(pinned_get(pool, 0, &buffer), 0);
	memset(buffer, 0x5a, SIZE);
	return buffer;
}

static struct pinned_figures figures(void)
{
	struct pinned_figures f;

	pinned_figures(pool, &f);
	return f;
}

static bool was_said(const char *what)
{
	static char text[65536];

	log_tail(text, sizeof(text));
	return strstr(text, what);
}

static bool is_sanitized(void)
{
	const char *sanitizer = getenv("sanitizer");

	return sanitizer && strcmp(sanitizer, "no") != 0;
}

START_TEST(every_buffer_is_another)
{
	void *buffer[COUNT];

	for (int i = 0; i < COUNT; i++) {
		buffer[i] = get();
		ck_assert_uint_eq((uintptr_t)buffer[i] % 4096, 0);
		for (int k = 0; k < i; k++)
			ck_assert((uint8_t *)buffer[i] + SIZE <= (uint8_t *)buffer[k] ||
				  (uint8_t *)buffer[k] + SIZE <= (uint8_t *)buffer[i]);
	}
	for (int i = 0; i < COUNT; i++)
		pinned_put(pool, buffer[i]);
}
END_TEST

START_TEST(when_all_are_lent_the_caller_decides)
{
	void *buffer[COUNT], *none = NULL;

	for (int i = 0; i < COUNT; i++)
		buffer[i] = get();
	ck_assert_int_eq(pinned_get(pool, 0, &none), -EAGAIN);
	ck_assert_int_eq(pinned_get(pool, 20, &none), -ETIMEDOUT);
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(figures().refusals, 2);
	for (int i = 0; i < COUNT; i++)
		pinned_put(pool, buffer[i]);
	pinned_put(pool, get());
	ck_assert_uint_eq(figures().lent, 0);
	ck_assert_uint_eq(figures().lent_max, COUNT);
	ck_assert_uint_eq(figures().gets, COUNT + 1);
}
END_TEST

static void *wait_for_one(void *result)
{
	void *buffer;

	*(int *)result = pinned_get(pool, WAIT_MS, &buffer);
	if (!*(int *)result)
		pinned_put(pool, buffer);
	return NULL;
}

START_TEST(a_run_lies_one_behind_the_other)
{
	void *one = get(), *run[COUNT], *pair[2];

	ck_assert_int_eq(pinned_get_run(pool, COUNT, run), -EAGAIN);
	ck_assert_int_eq(pinned_get_run(pool, COUNT - 1, run), 0);
	for (int i = 0; i < COUNT - 1; i++)
		ck_assert_ptr_eq(run[i], (uint8_t *)run[0] + i * SIZE);
	memset(run[0], 0x5a, (COUNT - 1) * SIZE);
	ck_assert_int_eq(pinned_get_run(pool, 1, run), -EAGAIN);
	pinned_put(pool, run[1]);
	pinned_put(pool, one);
	ck_assert_uint_eq(figures().lent, COUNT - 2);
	ck_assert_int_eq(pinned_get_run(pool, 2, pair), -EAGAIN); /* not side by side */
	pinned_put(pool, run[0]);
	one = run[2];
	ck_assert_int_eq(pinned_get_run(pool, COUNT - 1, run), 0);
	for (int i = 0; i < COUNT - 1; i++)
		pinned_put(pool, run[i]);
	pinned_put(pool, one);
	ck_assert_uint_eq(figures().lent, 0);
}
END_TEST

START_TEST(single_buffers_leave_runs_whole_in_whatever_order_all_came_back)
{
	void *one[COUNT], *pair[2];

	for (int i = 0; i < COUNT; i++)
		one[i] = get();
	for (int i = 0; i < COUNT; i++)
		pinned_put(pool, one[(i + 1) % COUNT]);
	for (int i = 0; i < COUNT - 2; i++)
		one[i] = get();
	ck_assert_int_eq(pinned_get_run(pool, 2, pair), 0);
	for (int i = 0; i < COUNT - 2; i++)
		pinned_put(pool, one[i]);
	for (int i = 0; i < 2; i++)
		pinned_put(pool, pair[i]);
}
END_TEST

START_TEST(who_waits_gets_what_is_returned)
{
	void *buffer[COUNT];
	pthread_t thread;
	int rc = 1;

	for (int i = 0; i < COUNT; i++)
		buffer[i] = get();
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_one, &rc), 0);
	pinned_put(pool, buffer[2]);
	pthread_join(thread, NULL);
	ck_assert_int_eq(rc, 0);
	for (int i = 0; i < COUNT; i++)
		if (i != 2)
			pinned_put(pool, buffer[i]);
}
END_TEST

/* Whoever has a buffer has it alone. */
static void *use_many(void *number)
{
	uintptr_t wrong = 0;

	for (int i = 0; i < 2000; i++) {
		uint64_t *buffer;

		if (pinned_get(pool, WAIT_MS, (void **)&buffer))
			return (void *)(uintptr_t)-1;
		buffer[0] = buffer[SIZE / 8 - 1] = (uintptr_t)number;
		wrong += buffer[0] != (uintptr_t)number ||
			 buffer[SIZE / 8 - 1] != (uintptr_t)number;
		pinned_put(pool, buffer);
	}
	return (void *)wrong;
}

START_TEST(threads_never_share_a_buffer)
{
	pthread_t thread[COUNT * 2];
	void *wrong;

	for (uintptr_t i = 0; i < ARRAY_SIZE(thread); i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, use_many, (void *)i), 0);
	for (size_t i = 0; i < ARRAY_SIZE(thread); i++) {
		pthread_join(thread[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	ck_assert_uint_eq(figures().lent, 0);
	ck_assert_uint_eq(figures().gets, ARRAY_SIZE(thread) * 2000);
}
END_TEST

START_TEST(a_child_has_none_of_it)
{
	void *buffer = get();
	unsigned char there;
	int status;
	pid_t child = fork();

	if (!child)
		_exit(mincore(buffer, 4096, &there) && errno == ENOMEM ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(mincore(buffer, 4096, &there), 0);
	pinned_put(pool, buffer);
}
END_TEST

START_TEST(what_is_returned_is_poisoned)
{
#ifdef HAVE_ASAN
	void *buffer = get();

	ck_assert_ptr_null(__asan_region_is_poisoned(buffer, SIZE));
	pinned_put(pool, buffer);
	ck_assert_ptr_eq(__asan_region_is_poisoned(buffer, SIZE), buffer);
#endif
}
END_TEST

START_TEST(slabs_hold_whole_buffers)
{
	struct iovec slab[2];
	void *buffer = get();

	ck_assert_uint_eq(pinned_slabs(pool, NULL), 1);
	ck_assert_uint_eq(pinned_slabs(pool, slab), 1);
	ck_assert_uint_eq(slab[0].iov_len, SIZE * COUNT);
	ck_assert((uint8_t *)buffer >= (uint8_t *)slab[0].iov_base &&
		  (uint8_t *)buffer + SIZE <= (uint8_t *)slab[0].iov_base + slab[0].iov_len);
	ck_assert_uint_eq(pinned_slab_of(pool, buffer), 0);
	ck_assert_uint_eq(pinned_slab_of(pool, (uint8_t *)slab[0].iov_base + (1 << 30)), 1);
	pinned_put(pool, buffer);
}
END_TEST

START_TEST(wrong_pools_are_refused)
{
	struct pinned *p;

	ck_assert_int_eq(pinned_open(&(struct pinned_options){ .size = 0, .count = 1 }, &p),
			 -EINVAL);
	ck_assert_int_eq(pinned_open(&(struct pinned_options){ .size = 1, .count = 0 }, &p),
			 -EINVAL);
	ck_assert_int_eq(
		pinned_open(&(struct pinned_options){ .size = (1 << 30) + 1, .count = 1 }, &p),
		-EINVAL);
	ck_assert_int_eq(
		pinned_open(&(struct pinned_options){ .size = 1 << 30, .count = 1 << 20 }, &p),
		-ENOMEM);
}
END_TEST

START_TEST(a_node_that_is_not_there_is_said_and_done_without)
{
	struct pinned_options options = {
		.size = SIZE, .count = 1, .on_node = true, .node = 1000
	};
	struct pinned *p;

	ck_assert_int_eq(pinned_open(&options, &p), 0);
	ck_assert(was_said("pinned buffers are not on NUMA node 1000: Invalid argument"));
	pinned_close(p);
}
END_TEST

/* mmap fails for huge pages, then altogether; mlock fails. */
START_TEST(what_the_machine_refuses_is_said_or_returned)
{
	unsigned opened = 0, failed = 0, unlocked = 0;

	for (unsigned n = 1;; n++) {
		struct pinned *p;
		struct pinned_figures f;
		int rc;

		scarce_begin(n, 2);
		rc = pinned_open(&(struct pinned_options){ .size = SIZE, .count = COUNT }, &p);
		if (!scarce_end()) {
			ck_assert_int_eq(rc, 0);
			pinned_close(p);
			break;
		}
		failed += rc != 0;
		ck_assert(!rc || rc == -ENOMEM);
		if (rc)
			continue;
		pinned_figures(p, &f);
		opened++;
		unlocked += !f.locked;
		pinned_close(p);
	}
	ck_assert_uint_ge(failed, 4); /* three of calloc, and mmap twice */
	ck_assert_uint_ge(unlocked, 1);
	ck_assert_uint_ge(opened, 1);
}
END_TEST

START_TEST(the_limit_is_named_that_keeps_memory_unlocked)
{
	struct rlimit limit = { 4096, 4096 };
	struct pinned *p;
	struct pinned_figures f;

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (!geteuid())
		ck_assert_int_eq(seteuid(65534), 0); /* without CAP_IPC_LOCK */
	ck_assert_int_eq(
		pinned_open(&(struct pinned_options){ .size = SIZE, .count = COUNT }, &p), 0);
	pinned_figures(p, &f);
	ck_assert(!f.locked);
	ck_assert(was_said("2048 KiB are not locked: Cannot allocate memory, RLIMIT_MEMLOCK is "
			   "4 KiB (ulimit -l, LimitMEMLOCK=)"));
	pinned_close(p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pinned");
	TCase *t = tcase_create("pinned");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 100);
	tcase_add_test(t, every_buffer_is_another);
	tcase_add_test(t, when_all_are_lent_the_caller_decides);
	tcase_add_test(t, a_run_lies_one_behind_the_other);
	tcase_add_test(t, single_buffers_leave_runs_whole_in_whatever_order_all_came_back);
	tcase_add_test(t, who_waits_gets_what_is_returned);
	tcase_add_test(t, threads_never_share_a_buffer);
	tcase_add_test(t, a_child_has_none_of_it);
	tcase_add_test(t, what_is_returned_is_poisoned);
	tcase_add_test(t, slabs_hold_whole_buffers);
	tcase_add_test(t, wrong_pools_are_refused);
	tcase_add_test(t, a_node_that_is_not_there_is_said_and_done_without);
	tcase_add_test(t, what_the_machine_refuses_is_said_or_returned);
	if (!is_sanitized()) /* their mlock does nothing */
		tcase_add_test(t, the_limit_is_named_that_keeps_memory_unlocked);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/operation.h"
#include "tests/find-param.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/edit/edited.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* TEST_SEED: of what is written.  TEST_ROUNDS: how many writes. */

static struct edited x;
static struct engine *engine;
static uint64_t seed;
static char why[300];

static uint64_t next_random(void)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return seed >> 33;
}

static void open_to_edit(bool coherent)
{
	ck_assert_msg(!edited_open(&x, &engine, true, coherent, why, sizeof(why)), "%s", why);
}

static void setup(void)
{
	const char *given = getenv("TEST_SEED");

	seed = given ? strtoull(given, NULL, 0) : monotonic_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	edited_make(&x);
	engine = NULL;
}

static void teardown(void)
{
	engine_close(engine);
	edited_remove(&x);
}

/* ---- what is written ---- */

enum { EXTENTS = 3 };

/* Extents of some bytes each, in order. */
static size_t make_extents(struct engine_extent e[EXTENTS], uint8_t *bytes, uint64_t size)
{
	uint64_t at = 0;
	size_t n = 0;

	while (n < EXTENTS && at < size) {
		at += next_random() % u64_min(size - at, 40);
		e[n] = (struct engine_extent){ at, 1 + next_random() % (size - at),
					       bytes + at };
		if (next_random() % 2)
			e[n].size = u64_min(e[n].size, 1 + next_random() % 7);
		at += e[n++].size;
	}
	return n;
}

/* NaNs would not be the same again after a conversion, which is not what is tested here. */
static void make_bytes(uint8_t *bytes, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)next_random();
}

static void write_something(bool coherent)
{
	enum edited_state state = next_random() % EDITED_STATES;
	uint64_t size = edited_truths[state].size;
	struct engine_extent e[EXTENTS];
	uint8_t bytes[512], got[512], value[512];
	struct engine_file *file;
	size_t n;

	ck_assert_uint_le(size, sizeof(bytes));
	make_bytes(bytes, size);
	n = make_extents(e, bytes, size);
	ck_assert_int_eq(edited_write(engine, state, e, n), 0);
	for (size_t i = 0; i < n; i++)
		edited_expect(&x, state, e[i].offset, e[i].data, e[i].size, coherent);
	ck_assert(edited_is_as_expected(&x));
	file = edited_open_state(engine, state);
	ck_assert_int_eq(edited_read(engine, file, 0, size, got), (int64_t)size);
	engine_file_close(file);
	edited_value(&x, state, value);
	ck_assert(!memcmp(got, value, size));
}

START_TEST(all_that_depends_on_it_is_written)
{
	const char *given = getenv("TEST_ROUNDS");
	int rounds = given ? atoi(given) : 80;

	open_to_edit(true);
	for (int i = 0; i < rounds; i++)
		write_something(true);
}
END_TEST

START_TEST(incoherent_edits_leave_copies_alone)
{
	open_to_edit(false);
	for (int i = 0; i < 50; i++)
		write_something(false);
}
END_TEST

static unsigned flags_of(const char *param, const char *key)
{
	struct engine_state states[8];
	uint32_t number;
	int n;

	ck_assert(!find_param(engine, param, "", &number));
	n = engine_states(engine, number, states, 8);
	for (int i = 0; i < n; i++)
		if (!strcmp(states[i].key, key))
			return states[i].flags & ENGINE_STATE_WRITABLE;
	ck_abort_msg("%s has no %s", param, key);
	return 0;
}

START_TEST(values_are_edited_where_they_are_made)
{
	open_to_edit(true);
	ck_assert(flags_of("w", "fp32") && flags_of("w", "exp_avg"));
	ck_assert(!flags_of("w", "bf16"));
	ck_assert(flags_of("frozen", "bf16"));
	ck_assert(!flags_of("frozen", "fp32"));
	engine_close(engine);
	open_to_edit(false);
	ck_assert(flags_of("w", "bf16"));
	engine_close(engine);
	ck_assert(!edited_open(&x, &engine, false, true, why, sizeof(why)));
	ck_assert(!flags_of("w", "fp32"));
}
END_TEST

/* ---- other open files ---- */

static int write_four(enum edited_state state)
{
	struct engine_extent e = { 8, 4, "\1\2\3\4" };
	int rc = edited_write(engine, state, &e, 1);

	if (!rc)
		edited_expect(&x, state, e.offset, e.data, e.size, true);
	return rc;
}

START_TEST(open_files_show_one_moment)
{
	struct engine_file *w, *avg, *b;
	uint8_t got[512];

	open_to_edit(true);
	w = edited_open_state(engine, EDITED_W);
	b = edited_open_state(engine, EDITED_B);
	avg = edited_open_state(engine, EDITED_W_AVG);
	ck_assert_int_eq(edited_read(engine, w, 0, 100, got), 100);
	ck_assert_int_eq(write_four(EDITED_W), 0);
	ck_assert_int_eq(edited_read(engine, w, 0, 100, got), -ESTALE);
	ck_assert_int_eq(edited_read(engine, avg, 0, 50, got), 50);
	ck_assert_int_eq(edited_read(engine, b, 0, 50, got), 50);
	engine_file_close(w);
	engine_file_close(b);
	engine_file_close(avg);
}
END_TEST

/* ---- times ---- */

/* An edit of w's first elements is in rank0.pt and model.pt. */
START_TEST(each_edit_has_a_later_time)
{
	uint64_t grid, w, all;

	edited_make_newer(&x, "rank1.pt");
	open_to_edit(true);
	grid = edited_changed_ns(engine, EDITED_GRID);
	w = edited_changed_ns(engine, EDITED_W);
	all = engine_changed_ns(engine, NULL);
	for (int i = 0; i < 5; i++) {
		uint64_t w_before = w, all_before = all;

		ck_assert_int_eq(write_four(EDITED_W), 0);
		w = edited_changed_ns(engine, EDITED_W);
		all = engine_changed_ns(engine, NULL);
		ck_assert_uint_gt(w, w_before);
		ck_assert_uint_gt(all, all_before);
	}
	ck_assert_uint_eq(edited_changed_ns(engine, EDITED_GRID), grid);
}
END_TEST

/* ---- other mounts ---- */

START_TEST(nobody_else_has_it_mounted)
{
	struct engine *other, *third;

	open_to_edit(true);
	ck_assert_int_eq(edited_open(&x, &other, true, true, why, sizeof(why)), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, "rank0.pt is mounted by process "));
	ck_assert_int_eq(edited_open(&x, &other, false, true, why, sizeof(why)), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, "mounted with -o rw"));
	engine_close(engine);
	ck_assert(!edited_open(&x, &engine, false, true, why, sizeof(why)));
	ck_assert(!edited_open(&x, &other, false, true, why, sizeof(why)));
	ck_assert_int_eq(edited_open(&x, &third, true, true, why, sizeof(why)), -EBUSY);
	engine_close(other);
}
END_TEST

static void path_of(char path[128], const char *name)
{
	snprintf(path, 128, "%s/%s", x.dir, name);
}

START_TEST(hard_links_are_refused)
{
	char from[128], to[128];

	path_of(from, "model.pt");
	path_of(to, "snapshot.pt");
	ck_assert(!link(from, to));
	ck_assert_int_eq(edited_open(&x, &engine, true, true, why, sizeof(why)), -EMLINK);
	ck_assert_ptr_nonnull(strstr(why, "model.pt has hard links"));
	engine = NULL;
	ck_assert(!unlink(to));
	open_to_edit(true);
	ck_assert(!link(from, to));
	ck_assert_int_eq(write_four(EDITED_W), -ESTALE);
	ck_assert_int_eq(write_four(EDITED_GRID), 0); /* in another file */
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(replaced_files_are_refused)
{
	char from[128], to[128];

	open_to_edit(true);
	path_of(from, "model.pt");
	path_of(to, "kept.pt");
	ck_assert(!rename(from, to));
	ck_assert_int_eq(write_four(EDITED_W), -ESTALE);
	ck_assert(!rename(to, from));
	ck_assert_int_eq(write_four(EDITED_W), 0);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(changed_files_are_refused)
{
	char path[128];
	const struct timespec times[2] = { { 1, 0 }, { 1, 0 } };

	open_to_edit(true);
	path_of(path, "rank1.pt");
	ck_assert(!utimensat(AT_FDCWD, path, times, 0));
	ck_assert_int_eq(write_four(EDITED_W), 0); /* its first elements are rank 0's */
	ck_assert_int_eq(write_four(EDITED_B), -ESTALE);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(read_only_files_are_refused)
{
	char path[128];

	path_of(path, "rank1.pt");
	ck_assert(!chmod(path, 0400));
	if (!access(path, W_OK)) { /* root */
		open_to_edit(true);
		return;
	}
	ck_assert_int_eq(edited_open(&x, &engine, true, true, why, sizeof(why)), -EACCES);
	ck_assert_ptr_nonnull(strstr(why, "rank1.pt: Permission denied"));
	engine = NULL;
}
END_TEST

/* ---- edits that were interrupted ---- */

START_TEST(a_folder_that_cannot_have_a_journal_is_not_edited)
{
	char path[128];

	open_to_edit(true);
	path_of(path, ".fragfs-journal.new");
	ck_assert(!mkdir(path, 0700));
	ck_assert_int_ne(write_four(EDITED_W), 0);
	ck_assert(edited_is_as_expected(&x));
	ck_assert(!rmdir(path));
	ck_assert_int_eq(write_four(EDITED_W), 0);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(an_edit_that_can_neither_be_made_nor_undone_ends_all_reading)
{
	struct rlimit limit = { 600,
				RLIM_INFINITY }; /* the journal is less, the files are more */
	struct engine_file *file;
	uint8_t got[8];

	open_to_edit(true);
	file = edited_open_state(engine, EDITED_W);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
	ck_assert_int_eq(write_four(EDITED_W), -EFBIG);
	ck_assert_int_eq(write_four(EDITED_W), -EIO);
	ck_assert_int_eq(edited_read(engine, file, 0, 8, got), -EIO);
	engine_file_close(file);
	limit.rlim_cur = RLIM_INFINITY;
	ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
	engine_close(engine);
	open_to_edit(true); /* which undoes it */
	ck_assert(edited_is_as_expected(&x));
	ck_assert_int_eq(write_four(EDITED_W), 0);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

/* ---- writes that are not made ---- */

static void was_written(struct engine_write *write, int result)
{
	atomic_store((_Atomic int *)write->owner, result);
}

static int until_written(_Atomic int *result)
{
	uint64_t end = monotonic_ms() + 60000;

	while (atomic_load(result) == 1 && monotonic_ms() < end)
		sched_yield();
	return atomic_load(result);
}

START_TEST(one_that_waits_for_another_is_cancelled)
{
	struct engine_extent e = { 8, 4, "\1\2\3\4" };
	_Atomic int results[2] = { 1, 1 };
	struct engine_write writes[2];
	int dir = open(x.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	open_to_edit(true);
	ck_assert(!flock(dir, LOCK_EX)); /* the first waits for us */
	for (int i = 0; i < 2; i++) {
		writes[i] = (struct engine_write){ .file = edited_open_state(engine, EDITED_W),
						   .extents = &e,
						   .nextents = 1,
						   .done = was_written,
						   .owner = &results[i] };
		engine_write(engine, &writes[i]);
	}
	engine_write_cancel(engine, &writes[1]);
	ck_assert_int_eq(until_written(&results[1]), -ECANCELED);
	ck_assert_int_eq(atomic_load(&results[0]), 1);
	ck_assert(!flock(dir, LOCK_UN));
	ck_assert_int_eq(until_written(&results[0]), 0);
	for (int i = 0; i < 2; i++)
		engine_file_close(writes[i].file);
	close(dir);
}
END_TEST

static void was_written_to_be_closed(struct engine_write *write, int result)
{
	engine_file_close(write->file);
	was_written(write, result);
}

START_TEST(one_that_waits_when_all_ends_is_cancelled)
{
	struct engine_extent e = { 8, 4, "\1\2\3\4" };
	_Atomic int results[3] = { 1, 1, 1 };
	struct engine_write writes[3];
	int dir = open(x.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	open_to_edit(true);
	ck_assert(!flock(dir, LOCK_EX)); /* one of them waits for us */
	for (int i = 0; i < 3; i++) {
		writes[i] = (struct engine_write){ .file = edited_open_state(engine, EDITED_W),
						   .extents = &e,
						   .nextents = 1,
						   .done = was_written_to_be_closed,
						   .owner = &results[i] };
		engine_write(engine, &writes[i]);
	}
	engine_write_cancel(engine, &writes[0]);
	engine_close(engine);
	engine = NULL;
	ck_assert_int_eq(results[0], -ECANCELED);
	ck_assert_int_ne(results[1], 0);
	ck_assert_int_eq(results[2], -ECANCELED);
	close(dir);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(what_is_not_written_to_is_refused)
{
	struct engine_extent e = { 0, 4, "\1\2\3\4" };
	struct engine_address a = { .kind = ENGINE_PARAM, .key = "fp32" };
	_Atomic int result = 1;
	struct engine_write write = {
		.extents = &e, .nextents = 1, .done = was_written, .owner = &result
	};
	uint64_t bytes;

	ck_assert(!edited_open(&x, &engine, false, true, why, sizeof(why)));
	ck_assert_int_eq(write_four(EDITED_W), -EROFS);
	engine_close(engine);
	open_to_edit(true);
	ck_assert(!find_param(engine, "frozen", "", &a.param));
	ck_assert(!engine_file_open(engine, &a, &write.file, &bytes));
	engine_write(engine, &write);
	ck_assert_int_eq(until_written(&result), -EACCES);
	engine_file_close(write.file);
	result = 1;
	write.file = edited_open_state(engine, EDITED_W);
	write.operation = &(struct operation){ .sign = '*', .number = 2 };
	engine_write(engine, &write);
	ck_assert_int_eq(until_written(&result), -EOPNOTSUPP);
	engine_file_close(write.file);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("edit");
	TCase *t = tcase_create("edit");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, all_that_depends_on_it_is_written);
	tcase_add_test(t, incoherent_edits_leave_copies_alone);
	tcase_add_test(t, values_are_edited_where_they_are_made);
	tcase_add_test(t, open_files_show_one_moment);
	tcase_add_test(t, each_edit_has_a_later_time);
	tcase_add_test(t, nobody_else_has_it_mounted);
	tcase_add_test(t, hard_links_are_refused);
	tcase_add_test(t, replaced_files_are_refused);
	tcase_add_test(t, changed_files_are_refused);
	tcase_add_test(t, read_only_files_are_refused);
	tcase_add_test(t, a_folder_that_cannot_have_a_journal_is_not_edited);
	tcase_add_test(t, an_edit_that_can_neither_be_made_nor_undone_ends_all_reading);
	tcase_add_test(t, one_that_waits_for_another_is_cancelled);
	tcase_add_test(t, one_that_waits_when_all_ends_is_cancelled);
	tcase_add_test(t, what_is_not_written_to_is_refused);
	return run_suite(s, t);
}

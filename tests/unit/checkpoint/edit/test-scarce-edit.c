/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* The machine has no memory, or its disk fails, at the n-th call, for each n: an edit of a
 * checkpoint is in its files or not at all, one that was interrupted is undone or still there
 * to be undone.
 */

#include "engine/checkpoint/edit/edit.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/edit/journal.h"
#include "engine/checkpoint/overlay/overlay-log.h"
#include "engine/checkpoint/overlay/overlay.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/edit/edited.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

static const unsigned counts[] = { 1, 7 };

static struct edited before, x;
static struct table *table;
static int dir;
static char why[400];
static const _Atomic bool never;

/* Parts of elements, and whole ones. */
static const struct engine_extent extents[] = {
	{ 1, 2, "ab" },
	{ 4, 18, "0123456789abcdefgh" },
};
static const char over[] = "0123456789"; /* a place twice */

static void setup(void)
{
	edited_make(&x);
	before = x;
	table = edited_table(&x);
	dir = open(x.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir, 0);
	ck_assert_msg(!file_lock_to_write(table, dir, why, sizeof(why)), "%s", why);
}

static void drop_table(void)
{
	if (table)
		table_free(table);
	table = NULL;
}

static void teardown(void)
{
	drop_table();
	close(dir);
	edited_remove(&x);
}

static const struct table_state *find(enum edited_state state)
{
	const struct edited_truth *truth = &edited_truths[state];

	return table_find_state(table, edited_find(table, truth->param), truth->key);
}

static int make_patches(struct patches *p)
{
	int rc = 0;

	for (int state = 0; state < EDITED_STATES && !rc; state++)
		rc = edit_translate(p, find(state), extents, ARRAY_SIZE(extents), true);
	for (int i = 0; i < 2 && !rc; i++)
		rc = patches_add(p, EDITED_FILES - 1, (uint64_t)i * 5, sizeof(over), over);
	return rc ? rc : patches_finish(p);
}

static int edit(bool end)
{
	struct patches p;
	int rc;

	patches_init(&p, table, NULL);
	rc = make_patches(&p);
	if (!rc)
		rc = journal_begin(dir, &p, &never);
	if (!rc)
		rc = patches_apply(&p);
	if (!rc && end)
		rc = journal_end(dir);
	patches_fini(&p);
	return rc;
}

static void expect_edit(void)
{
	for (int state = 0; state < EDITED_STATES; state++)
		for (size_t i = 0; i < ARRAY_SIZE(extents); i++)
			edited_expect(&x, state, extents[i].offset, extents[i].data,
				      extents[i].size, true);
	for (int i = 0; i < 2; i++)
		memcpy(x.files[EDITED_FILES - 1] + i * 5, over, sizeof(over));
}

START_TEST(an_edit_is_whole_or_enomem)
{
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, counts[_i]);
		rc = edit(true);
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d", n, rc);
		if (!rc)
			expect_edit();
		ck_assert(edited_is_as_expected(&x));
		ck_assert(!journal_is_there(dir));
		ck_assert(faccessat(dir, JOURNAL_NEW, F_OK, 0));
	} while (failed);
	ck_assert_uint_gt(n, 20);
}
END_TEST

START_TEST(what_was_interrupted_is_undone_or_enomem)
{
	unsigned n = 0, failed;
	int rc;

	ck_assert_int_eq(edit(false), 0);
	expect_edit();
	drop_table();
	do {
		ck_assert(edited_is_as_expected(&x));
		ck_assert(journal_is_there(dir));
		scarce_begin(++n, counts[_i]);
		rc = journal_undo(dir, NULL, why, sizeof(why));
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d %s", n, rc, why);
	} while (rc);
	ck_assert_uint_gt(n, 3);
	ck_assert(edited_is_as_expected(&before));
	ck_assert(!journal_is_there(dir));
}
END_TEST

/* ---- a disk that fails, or on which nothing moves ---- */

static const ssize_t results[] = { -1, 0 };

START_TEST(an_edit_is_whole_or_undone_after_eio)
{
	unsigned n = 0, undone = 0;
	bool came;
	int rc;

	do {
		scarce_io(++n, results[_i], EIO);
		rc = edit(true);
		came = scarce_io_came();
		scarce_io(0, 0, 0);
		ck_assert_msg(rc == (came ? -EIO : 0), "%u: %d", n, rc);
		if (!rc)
			expect_edit();
		if (journal_is_there(dir)) {
			undone++;
			ck_assert_int_eq(journal_undo(dir, table, why, sizeof(why)), 0);
		}
		ck_assert(edited_is_as_expected(&x));
	} while (came);
	ck_assert_uint_gt(undone, 3);
	ck_assert_uint_gt(n, undone + 3);
}
END_TEST

START_TEST(what_was_interrupted_is_undone_or_eio)
{
	unsigned n = 0;
	int rc;

	ck_assert_int_eq(edit(false), 0);
	drop_table();
	do {
		ck_assert(journal_is_there(dir));
		scarce_io(++n, results[_i], EIO);
		rc = journal_undo(dir, NULL, why, sizeof(why));
		ck_assert_int_eq(!rc, !scarce_io_came());
		ck_assert(!rc || rc == -EIO || (!results[_i] && rc == -EBADMSG));
		scarce_io(0, 0, 0);
	} while (rc);
	ck_assert_uint_gt(n, 6);
	ck_assert(edited_is_as_expected(&before));
	ck_assert(!journal_is_there(dir));
}
END_TEST

static _Atomic unsigned failing_sync; /* the n-th from now; 0: none */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	unsigned n = failing_sync;

	if (n)
		failing_sync = n - 1;
	if (n != 1)
		return __real_fsync(fd);
	errno = EIO;
	return -1;
}

START_TEST(an_edit_whose_end_is_not_on_disk_is_rolled_back)
{
	struct engine_extent e = { 8, 4, "abcd" };
	struct engine_file *file;
	struct engine *engine;
	uint8_t got[4];

	drop_table();
	ck_assert(!edited_open(&x, &engine, true, true, why, sizeof(why)));
	failing_sync = 3; /* after the journal's, and its name's */
	ck_assert_int_eq(edited_write(engine, EDITED_W, &e, 1), -EIO);
	ck_assert_uint_eq(failing_sync, 0);
	ck_assert(edited_is_as_expected(&before));
	ck_assert(!journal_is_there(dir));
	ck_assert_int_eq(edited_write(engine, EDITED_W, &e, 1), 0);
	file = edited_open_state(engine, EDITED_W);
	ck_assert_int_eq(edited_read(engine, file, 8, 4, got), 4);
	ck_assert(!memcmp(got, "abcd", 4));
	engine_file_close(file);
	engine_close(engine);
}
END_TEST

static void was_written(struct engine_write *write, int result)
{
	atomic_store((_Atomic int *)write->owner, result);
}

static const struct timespec pause_1ms = { .tv_nsec = 1000000 };

/* The clock outruns who has the folder. */
static int until_over(const _Atomic int *result)
{
	for (int i = 0; i < 20000 && atomic_load(result) == 1; i++) {
		scarce_skip_ms(1000);
		nanosleep(&pause_1ms, NULL);
	}
	return atomic_load(result);
}

/* Who was yet to be begun is cancelled at once. */
static void cancel_when_begun(struct engine *engine, struct engine_write *write,
			      _Atomic int *result)
{
	for (int i = 0; i < 20000 && atomic_load(result) != 1; i++) {
		atomic_store(result, 1);
		engine_write(engine, write);
		nanosleep(&pause_1ms, NULL);
		engine_write_cancel(engine, write);
	}
	ck_assert_int_eq(atomic_load(result), 1);
}

/* By another process, as it seems.  i: 1: it is cancelled meanwhile. */
START_TEST(a_folder_that_another_keeps_locked_is_busy)
{
	struct engine_extent e = { 8, 4, "abcd" };
	_Atomic int result = _i ? -ECANCELED : 1;
	struct engine_write write = {
		.extents = &e, .nextents = 1, .done = was_written, .owner = &result
	};
	struct engine *engine;

	drop_table();
	ck_assert(!edited_open(&x, &engine, true, true, why, sizeof(why)));
	write.file = edited_open_state(engine, EDITED_W);
	ck_assert(!flock(dir, LOCK_EX));
	if (_i)
		cancel_when_begun(engine, &write, &result);
	else
		engine_write(engine, &write);
	ck_assert_int_eq(until_over(&result), _i ? -ECANCELED : -EBUSY);
	ck_assert(!flock(dir, LOCK_UN));
	ck_assert(edited_is_as_expected(&before));
	ck_assert_int_eq(edited_write(engine, EDITED_W, &e, 1), 0);
	engine_file_close(write.file);
	engine_close(engine);
}
END_TEST

START_TEST(a_journal_whose_end_is_not_on_disk_is_still_there)
{
	ck_assert_int_eq(edit(false), 0);
	failing_sync = 1;
	ck_assert_int_eq(journal_end(dir), -EIO);
	ck_assert(journal_is_there(dir));
	drop_table();
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), 0);
	ck_assert(edited_is_as_expected(&before));
}
END_TEST

/* ---- beside the files ---- */

static char overlay[80];

static int edit_beside(void)
{
	struct patches p;
	struct overlay_log *r;
	int rc = overlay_log_open(&r, overlay, OVERLAY_LOG_CHANGE, why, sizeof(why));

	if (rc)
		return rc;
	rc = overlay_log_bind(r, table, x.dir, why, sizeof(why));
	patches_init(&p, table, &r->map);
	if (!rc)
		rc = make_patches(&p);
	if (!rc)
		rc = overlay_log_begin(r, &p, &never);
	if (!rc)
		rc = overlay_log_end(r);
	patches_fini(&p);
	overlay_log_close(r);
	return rc;
}

static int look_or_commit(bool commit)
{
	struct overlay o;
	int rc = commit ? overlay_commit(&o, overlay, NULL, why, sizeof(why))
			: overlay_look(&o, overlay, why, sizeof(why));

	if (!rc)
		overlay_fini(&o);
	return rc;
}

/* Calls it with less and less scarcity until it succeeds; what it does is done once. */
static void until_it_is_done(int (*call)(void), unsigned count, bool edits)
{
	unsigned n = 0, failed;
	int rc;

	do {
		scarce_begin(++n, count);
		rc = call();
		failed = scarce_end();
		ck_assert_msg(!rc || (failed && rc == -ENOMEM), "%u: %d %s", n, rc, why);
		if (!rc && edits)
			expect_edit();
		ck_assert(edited_is_as_expected(&x) || (rc && journal_is_there(dir)));
	} while (rc);
	ck_assert_uint_gt(n, 3);
}

static int look(void)
{
	return look_or_commit(false);
}

static int commit(void)
{
	return look_or_commit(true);
}

START_TEST(an_overlay_does_or_is_enomem)
{
	snprintf(overlay, sizeof(overlay), "%s-overlay", x.dir);
	ck_assert(!mkdir(overlay, 0700));
	until_it_is_done(edit_beside, counts[_i], false);
	until_it_is_done(look, counts[_i], false);
	drop_table();
	until_it_is_done(commit, counts[_i], true);
	ck_assert(!rmdir(overlay));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scarce-edit");
	TCase *t = tcase_create("scarce-edit");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, an_edit_is_whole_or_enomem, 0, ARRAY_SIZE(counts));
	tcase_add_loop_test(t, what_was_interrupted_is_undone_or_enomem, 0, ARRAY_SIZE(counts));
	tcase_add_loop_test(t, an_edit_is_whole_or_undone_after_eio, 0, ARRAY_SIZE(results));
	tcase_add_loop_test(t, what_was_interrupted_is_undone_or_eio, 0, ARRAY_SIZE(results));
	tcase_add_loop_test(t, an_overlay_does_or_is_enomem, 0, ARRAY_SIZE(counts));
	tcase_add_test(t, an_edit_whose_end_is_not_on_disk_is_rolled_back);
	tcase_add_loop_test(t, a_folder_that_another_keeps_locked_is_busy, 0, 2);
	tcase_add_test(t, a_journal_whose_end_is_not_on_disk_is_still_there);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Overlays where the machine has no memory, or its disk fails, at the n-th call, for each n: an
 * edit is in the log or not at all, and a commit writes all of them or none.
 */

#include "engine/checkpoint/edit/edit.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/overlay/overlay-log.h"
#include "engine/checkpoint/overlay/overlay.h"
#include "tests/ranks/scarce.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/edit/edited.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { NOBODY = 65534, MANY = 65 << 20 };

static const struct failing {
	unsigned count; /* of calls for memory; 0: of the disk */
	ssize_t result; /* of the disk */
} failing[] = { { .count = 1 }, { .count = 7 }, { .result = -1 }, { .result = 0 } };

static struct edited before, x; /* the files; what they should be with the overlay */
static char dir[80], log_path[128], why[500];
static const _Atomic bool never;

static void setup(void)
{
	edited_make(&before);
	x = before;
	snprintf(dir, sizeof(dir), "%s-overlay", before.dir);
	snprintf(log_path, sizeof(log_path), "%s/" OVERLAY_LOG_NAME, dir);
	ck_assert(!mkdir(dir, 0700));
}

static void teardown(void)
{
	edited_remove(&before);
	unlink(log_path);
	ck_assert(!rmdir(dir));
}

static void begin(const struct failing *f, unsigned n)
{
	if (f->count)
		scarce_begin(n, f->count);
	else
		scarce_io(n, f->result, EIO);
}

/* Whether any call failed. */
static bool end(const struct failing *f)
{
	bool came = f->count ? scarce_end() : scarce_io_came();

	scarce_io(0, 0, 0);
	return came;
}

static bool is_need(int rc)
{
	return rc == -ENOMEM || rc == -EIO || rc == -EMFILE || rc == -EBADMSG;
}

static void expect(int rc, bool failed, unsigned n)
{
	ck_assert_msg(failed ? !rc || is_need(rc) : !rc, "%u: %d %s", n, rc, why);
}

/* ---- an edit ---- */

static const struct engine_extent extents[] = { { 1, 2, "ab" }, { 8, 4, "cdef" } };

static int patch(struct patches *p)
{
	int rc = 0;

	for (int state = 0; state < EDITED_STATES && !rc; state++) {
		const struct edited_truth *truth = &edited_truths[state];
		const struct table *t = p->table;

		rc = edit_translate(
			p, table_find_state(t, edited_find(t, truth->param), truth->key),
			extents, ARRAY_SIZE(extents), true);
	}
	return rc ? rc : patches_finish(p);
}

static int edit_in(struct overlay_log *r, const struct table *t)
{
	struct patches p;
	int rc;

	patches_init(&p, t, &r->map);
	rc = patch(&p);
	if (!rc)
		rc = overlay_log_begin(r, &p, &never);
	if (!rc)
		rc = overlay_log_end(r);
	patches_fini(&p);
	return rc;
}

static int edit(const struct table *t)
{
	struct overlay_log *r;
	int rc = overlay_log_open(&r, dir, OVERLAY_LOG_CHANGE, why, sizeof(why));

	if (rc)
		return rc;
	rc = overlay_log_bind(r, t, before.dir, why, sizeof(why));
	if (!rc)
		rc = edit_in(r, t);
	overlay_log_close(r);
	return rc;
}

static uint64_t edits(void)
{
	struct overlay o;
	uint64_t n;

	ck_assert_msg(!overlay_look(&o, dir, why, sizeof(why)), "%s", why);
	n = o.edits;
	overlay_fini(&o);
	return n;
}

START_TEST(an_edit_is_in_the_log_or_not_at_all)
{
	const struct failing *f = &failing[_i];
	struct table *t = edited_table(&before);
	unsigned n = 0, made = 0;
	bool failed;
	int rc;

	ck_assert(!file_lock_to_read(t, why, sizeof(why)));
	do {
		begin(f, ++n);
		rc = edit(t);
		failed = end(f);
		expect(rc, failed, n);
		made += !rc;
		ck_assert_uint_eq(edits(), made);
		ck_assert(edited_is_as_expected(&before));
	} while (failed);
	ck_assert_uint_gt(n, 8);
	table_free(t);
}
END_TEST

/* ---- what is made of edits ---- */

static void make_edits(unsigned n)
{
	struct table *t = edited_table(&before);

	ck_assert(!file_lock_to_read(t, why, sizeof(why)));
	while (n--)
		ck_assert_int_eq(edit(t), 0);
	table_free(t);
	for (int state = 0; state < EDITED_STATES; state++)
		for (size_t i = 0; i < ARRAY_SIZE(extents); i++)
			edited_expect(&x, state, extents[i].offset, extents[i].data,
				      extents[i].size, true);
}

START_TEST(it_is_looked_at_or_says_why_not)
{
	const struct failing *f = &failing[_i];
	struct overlay o;
	unsigned n = 0;
	bool failed;
	int rc;

	make_edits(5);
	do {
		begin(f, ++n);
		rc = overlay_look(&o, dir, why, sizeof(why));
		failed = end(f);
		expect(rc, failed, n);
		if (!rc)
			overlay_fini(&o);
	} while (failed);
	ck_assert_uint_gt(n, 5);
}
END_TEST

static int commit(const char *checkpoint)
{
	struct overlay o;
	int rc = overlay_commit(&o, dir, checkpoint, why, sizeof(why));

	if (!rc)
		overlay_fini(&o);
	return rc;
}

START_TEST(a_commit_writes_all_or_nothing)
{
	const struct failing *f = &failing[_i];
	unsigned n = 0;
	bool failed;
	int rc;

	make_edits(2);
	do {
		begin(f, ++n);
		rc = commit(NULL);
		failed = end(f);
		expect(rc, failed, n);
		if (rc)
			ck_assert_msg(edits() == 2, "%u", n);
	} while (rc);
	ck_assert_uint_gt(n, 10);
	ck_assert(edited_is_as_expected(&x));
	before = x;
}
END_TEST

START_TEST(files_in_a_folder_that_may_not_be_listed_are_not_written)
{
	char path[128];
	bool root = !geteuid();

	make_edits(1);
	snprintf(path, sizeof(path), "%s/%s", before.dir, edited_names[0]);
	ck_assert(!chmod(before.dir, 0311) && !chmod(dir, 0755) && !chmod(log_path, 0666) &&
		  !chmod(path, 0666));
	if (root)
		ck_assert_int_eq(seteuid(NOBODY), 0);
	ck_assert_int_eq(commit(path), -EACCES);
	if (root)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert(!chmod(before.dir, 0700));
	ck_assert(edited_is_as_expected(&before));
}
END_TEST

START_TEST(names_are_not_without_end)
{
	struct table_file file = { .name = malloc(MANY), .fd = -1 };
	struct table t = { .files = &file, .nfiles = 1 };
	struct overlay_log *r;

	memset(file.name, 'x', MANY - 1);
	file.name[MANY - 1] = '\0';
	ck_assert(!overlay_log_open(&r, dir, OVERLAY_LOG_CHANGE, why, sizeof(why)));
	ck_assert_int_eq(overlay_log_bind(r, &t, before.dir, why, sizeof(why)), -EFBIG);
	overlay_log_close(r);
	free(file.name);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("overlay-faults");
	TCase *t = tcase_create("overlay-faults");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, an_edit_is_in_the_log_or_not_at_all, 0, ARRAY_SIZE(failing));
	tcase_add_loop_test(t, it_is_looked_at_or_says_why_not, 0, ARRAY_SIZE(failing));
	tcase_add_loop_test(t, a_commit_writes_all_or_nothing, 0, ARRAY_SIZE(failing));
	tcase_add_test(t, files_in_a_folder_that_may_not_be_listed_are_not_written);
	tcase_add_test(t, names_are_not_without_end);
	return run_suite(s, t);
}

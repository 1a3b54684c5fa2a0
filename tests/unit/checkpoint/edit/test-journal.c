/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fd.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/edit/journal.h"
#include "engine/checkpoint/parse/le.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/edit/edited.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

static struct edited x;
static struct table *table;
static struct patches patches;
static int dir;
static char why[400];
static const _Atomic bool never;
static uint8_t new_bytes[1 << 16];

static void setup(void)
{
	edited_make(&x);
	table = edited_table(&x);
	dir = open(x.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir, 0);
	patches_init(&patches, table, NULL);
	for (size_t i = 0; i < sizeof(new_bytes); i++)
		new_bytes[i] = (uint8_t)(i * 7 + 1);
}

static void teardown(void)
{
	patches_fini(&patches);
	table_free(table);
	close(dir);
	edited_remove(&x);
}

static void add(uint32_t file, uint64_t offset, uint64_t size)
{
	ck_assert(!patches_add(&patches, file, offset, size, new_bytes + offset % 1000));
}

/* ---- patches ---- */

START_TEST(later_patches_win)
{
	const struct patch *p;

	ck_assert(!patches_add(&patches, 3, 10, 10, "aaaaaaaaaa"));
	ck_assert(!patches_add(&patches, 3, 30, 4, "dddd"));
	ck_assert(!patches_add(&patches, 3, 15, 3, "bbb"));
	ck_assert(!patches_add(&patches, 3, 5, 6, "cccccc"));
	ck_assert(!patches_add(&patches, 3, 20, 2, "ee"));
	ck_assert(!patches_finish(&patches));
	ck_assert_uint_eq(patches_count(&patches), 3);
	p = patches_get(&patches, 0);
	ck_assert_uint_eq(p->offset, 5);
	ck_assert_uint_eq(p->size, 15);
	ck_assert(!memcmp(p->bytes, "ccccccaaaabbbaa", 15));
	ck_assert_uint_eq(patches_get(&patches, 1)->offset, 20);
	ck_assert_uint_eq(patches.bytes, 21);
	ck_assert(patches_touch(&patches, 3, 0, 6));
	ck_assert(!patches_touch(&patches, 3, 0, 5));
	ck_assert(patches_touch(&patches, 3, 33, 100));
	ck_assert(!patches_touch(&patches, 3, 34, 100));
	ck_assert(!patches_touch(&patches, 2, 0, 1000));
}
END_TEST

START_TEST(bytes_behind_the_end_are_refused)
{
	add(3, x.sizes[3] - 3, 4);
	ck_assert_int_eq(patches_finish(&patches), -EINVAL);
}
END_TEST

START_TEST(bytes_of_a_crc_are_refused)
{
	size_t data = x.archives[0].entries[1].data;

	add(0, data, 4);
	add(0, x.archives[0].entries[1].central + 18, 1);
	ck_assert_int_eq(patches_finish(&patches), -EINVAL);
}
END_TEST

/* ---- a journal ---- */

static void write_at(int file, uint64_t at, size_t size)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", x.dir, edited_names[file]);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, new_bytes, size, (off_t)at), (ssize_t)size);
	close(fd);
}

/* Of an edit of two files, with CRCs; some of what it changes is changed. */
static void begin_and_break(void)
{
	const struct patch *p;

	add(0, x.archives[0].entries[1].data + 3, 50);
	add(2, x.archives[2].entries[1].data + 8, 20);
	add(2, x.archives[2].entries[4].data, 9);
	ck_assert(!patches_finish(&patches));
	ck_assert_uint_eq(patches_count(&patches), 3 + 2 * 3);
	ck_assert(!journal_begin(dir, &patches, &never));
	ck_assert(journal_is_there(dir));
	ck_assert(edited_is_as_expected(&x));
	p = patches_get(&patches, 1);
	write_at((int)patches_get(&patches, 0)->file, patches_get(&patches, 0)->offset, 50);
	write_at((int)p->file, p->offset, 2);
	ck_assert(!edited_is_as_expected(&x));
}

START_TEST(what_was_interrupted_is_undone)
{
	begin_and_break();
	ck_assert(checkpoint_is_unfinished(x.dir, NULL));
	ck_assert_msg(!journal_undo(dir, NULL, why, sizeof(why)), "%s", why);
	ck_assert(edited_is_as_expected(&x));
	ck_assert(!journal_is_there(dir));
	ck_assert(!checkpoint_is_unfinished(x.dir, NULL));
}
END_TEST

START_TEST(opening_undoes)
{
	struct engine *e;

	begin_and_break();
	ck_assert_msg(!edited_open(&x, &e, false, true, why, sizeof(why)), "%s", why);
	ck_assert(edited_is_as_expected(&x));
	engine_close(e);
}
END_TEST

START_TEST(files_that_are_not_open_are_not_undone)
{
	struct table *other = table_new();

	begin_and_break();
	ck_assert_int_eq(journal_undo(dir, other, why, sizeof(why)), -ENOENT);
	ck_assert_ptr_nonnull(strstr(why, "is not open"));
	ck_assert(journal_is_there(dir));
	table_free(other);
}
END_TEST

START_TEST(who_edits_is_left_alone)
{
	struct engine *e;
	char path[128];
	int fd;

	begin_and_break();
	snprintf(path, sizeof(path), "%s/model.pt", x.dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert(!flock(fd, LOCK_EX | LOCK_NB));
	ck_assert_int_eq(edited_open(&x, &e, false, true, why, sizeof(why)), -EBUSY);
	ck_assert_ptr_nonnull(strstr(why, "model.pt is mounted by process "));
	ck_assert(journal_is_there(dir));
	close(fd);
}
END_TEST

START_TEST(an_edit_that_is_whole_stays)
{
	begin_and_break();
	ck_assert(!journal_end(dir));
	ck_assert(!journal_is_there(dir));
	ck_assert(!edited_is_as_expected(&x));
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -ENOENT);
}
END_TEST

START_TEST(one_that_was_never_whole_means_nothing)
{
	struct engine *e;

	begin_and_break();
	ck_assert(!journal_undo(dir, NULL, why, sizeof(why)));
	ck_assert(!renameat(dir, "model.pt", dir, "kept"));
	ck_assert(!renameat(dir, "kept", dir, "model.pt"));
	write_at(3, 0, 5);
	memcpy(x.files[3], new_bytes, 5);
	close(openat(dir, JOURNAL_NEW, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	ck_assert(!edited_open(&x, &e, true, true, why, sizeof(why)));
	ck_assert(edited_is_as_expected(&x));
	engine_close(e);
}
END_TEST

START_TEST(a_cancelled_one_leaves_nothing)
{
	static const _Atomic bool always = true;

	add(0, x.archives[0].entries[1].data + 3, 50);
	ck_assert(!patches_finish(&patches));
	ck_assert_int_eq(journal_begin(dir, &patches, &always), -ECANCELED);
	ck_assert(!journal_is_there(dir));
	ck_assert(faccessat(dir, JOURNAL_NEW, F_OK, 0));
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

/* ---- journals that lie ---- */

static uint8_t journal[1 << 14];
static size_t journal_size;

static void read_into(const char *name, uint8_t *to, size_t room, size_t *size)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, to, room);

	ck_assert_int_gt(n, 0);
	*size = (size_t)n;
	close(fd);
}

/* From now on the files should stay as they are, broken. */
static void take_journal(void)
{
	begin_and_break();
	read_into(JOURNAL_NAME, journal, sizeof(journal), &journal_size);
	for (int i = 0; i < EDITED_FILES; i++)
		read_into(edited_names[i], x.files[i], EDITED_FILE_MAX, &x.sizes[i]);
	ck_assert(edited_is_as_expected(&x));
}

static void put_journal(const uint8_t *bytes, size_t size)
{
	int fd = openat(dir, JOURNAL_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	close(fd);
}

static void check_refused(const uint8_t *bytes, size_t size)
{
	put_journal(bytes, size);
	ck_assert_int_lt(journal_undo(dir, NULL, why, sizeof(why)), 0);
	ck_assert(edited_is_as_expected(&x));
	ck_assert(journal_is_there(dir));
}

START_TEST(damaged_ones_are_refused)
{
	take_journal();
	for (size_t i = 0; i < journal_size; i++) {
		journal[i] ^= 1 << i % 8;
		check_refused(journal, journal_size);
		journal[i] ^= 1 << i % 8;
	}
	for (size_t i = 0; i < journal_size; i++)
		check_refused(journal, i);
	journal[journal_size] = 0;
	check_refused(journal, journal_size + 1);
	ck_assert_ptr_nonnull(strstr(why, "is damaged"));
}
END_TEST

static void check_refused_with_sum(void)
{
	size_t end = journal_size - JOURNAL_CHECKSUM;

	le_put32(journal + end, (uint32_t)crc32_z(0, journal, end));
	check_refused(journal, journal_size);
}

/* Whatever a field says, with a checksum that is right; what is put into each place is no sane
 * value of any.
 */
START_TEST(hostile_ones_are_refused)
{
	const size_t times = JOURNAL_HEADER + 16;
	size_t name, ranges;
	uint8_t kept[80];

	take_journal();
	memcpy(kept, journal, sizeof(kept));
	for (size_t i = 0; i + 8 <= JOURNAL_HEADER + JOURNAL_FILE; i++) {
		static const uint64_t values[] = { 0, UINT64_MAX, INT64_MAX, 1ULL << 40 };

		for (size_t j = 0; j < ARRAY_SIZE(values); j++) {
			le_put64(journal + i, values[j]);
			memcpy(journal + times, kept + times, 12); /* any will do */
			if (memcmp(journal, kept, sizeof(kept)) != 0)
				check_refused_with_sum();
			memcpy(journal, kept, sizeof(kept));
		}
	}
	name = JOURNAL_HEADER + JOURNAL_FILE;
	for (size_t i = 0; i < 4; i++) {
		static const char *const names[] = { "../x.pt.", "/etc/pas", "rank0.p\0",
						     "./ank0.p" };

		memcpy(journal + name, names[i], 8);
		check_refused_with_sum();
		memcpy(journal, kept, sizeof(kept));
	}
	ranges = name + 8 + JOURNAL_FILE + 8;
	memcpy(kept, journal + ranges, 40);
	le_put64(journal + ranges, x.sizes[0]); /* behind the end */
	check_refused_with_sum();
	memcpy(journal + ranges, journal + ranges + 20, 20); /* twice */
	check_refused_with_sum();
	memcpy(journal + ranges, kept, 40);
	le_put32(journal + ranges + 16, 1); /* not in order */
	check_refused_with_sum();
	le_put32(journal + ranges + 16, 2); /* no such file */
	check_refused_with_sum();
}
END_TEST

START_TEST(other_files_than_those_are_not_written_to)
{
	take_journal();
	ck_assert(!renameat(dir, "model.pt", dir, "old"));
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -ENOENT);
	ck_assert(!symlinkat("old", dir, "model.pt"));
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -ELOOP);
	ck_assert(!unlinkat(dir, "model.pt", 0));
	ck_assert(!linkat(dir, "old", dir, "model.pt", 0));
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -EMLINK);
	ck_assert(!unlinkat(dir, "model.pt", 0));
	ck_assert(!mknodat(dir, "model.pt", S_IFREG | 0600, 0));
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -ESTALE);
	ck_assert_ptr_nonnull(strstr(why, "model.pt was replaced"));
	ck_assert(!renameat(dir, "old", dir, "model.pt"));
	ck_assert(edited_is_as_expected(&x));
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), 0);
	ck_assert(!edited_is_as_expected(&x));
}
END_TEST

/* ---- what the machine refuses ---- */

START_TEST(a_lock_that_is_held_is_not_waited_for_for_ever)
{
	int other = open(x.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(fd_lock(other, 0), 0);
	ck_assert_int_eq(fd_lock(dir, 20), -EBUSY);
	fd_unlock(other);
	ck_assert_int_eq(fd_lock(dir, 0), 0);
	close(other);
}
END_TEST

static void limit_files(rlim_t size)
{
	struct rlimit limit = { size, RLIM_INFINITY };

	signal(SIGXFSZ, SIG_IGN);
	ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
}

START_TEST(what_cannot_be_undone_now_is_undone_later)
{
	begin_and_break();
	limit_files(8);
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -EFBIG);
	ck_assert_ptr_nonnull(strstr(why, "cannot be undone"));
	ck_assert(journal_is_there(dir));
	limit_files(RLIM_INFINITY);
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), 0);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(a_file_that_was_cut_is_not_edited)
{
	char path[128];

	add(3, x.sizes[3] - 4, 4);
	ck_assert(!patches_finish(&patches));
	snprintf(path, sizeof(path), "%s/%s", x.dir, edited_names[3]);
	ck_assert(!truncate(path, (off_t)--x.sizes[3]));
	ck_assert_int_eq(journal_begin(dir, &patches, &never), -EIO);
	ck_assert(!journal_is_there(dir));
	ck_assert_int_eq(file_lock_to_read(table, why, sizeof(why)), -ESTALE);
	ck_assert_int_eq(file_lock_to_write(table, dir, why, sizeof(why)), -ESTALE);
	ck_assert_ptr_nonnull(strstr(why, " was replaced meanwhile"));
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(a_journal_of_somebody_else_or_none_is_refused)
{
	take_journal();
	if (!geteuid()) {
		ck_assert(!fchownat(dir, JOURNAL_NAME, 1, 1, 0));
		ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -EPERM);
		ck_assert_ptr_nonnull(strstr(why, "is neither yours nor that of"));
	}
	ck_assert(!unlinkat(dir, JOURNAL_NAME, 0));
	ck_assert(!mkfifoat(dir, JOURNAL_NAME, 0600));
	ck_assert_int_eq(journal_undo(dir, NULL, why, sizeof(why)), -EINVAL);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("journal");
	TCase *t = tcase_create("journal");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, later_patches_win);
	tcase_add_test(t, bytes_behind_the_end_are_refused);
	tcase_add_test(t, bytes_of_a_crc_are_refused);
	tcase_add_test(t, what_was_interrupted_is_undone);
	tcase_add_test(t, opening_undoes);
	tcase_add_test(t, files_that_are_not_open_are_not_undone);
	tcase_add_test(t, who_edits_is_left_alone);
	tcase_add_test(t, an_edit_that_is_whole_stays);
	tcase_add_test(t, one_that_was_never_whole_means_nothing);
	tcase_add_test(t, a_cancelled_one_leaves_nothing);
	tcase_add_test(t, damaged_ones_are_refused);
	tcase_add_test(t, hostile_ones_are_refused);
	tcase_add_test(t, other_files_than_those_are_not_written_to);
	tcase_add_test(t, a_lock_that_is_held_is_not_waited_for_for_ever);
	tcase_add_test(t, what_cannot_be_undone_now_is_undone_later);
	tcase_add_test(t, a_file_that_was_cut_is_not_edited);
	tcase_add_test(t, a_journal_of_somebody_else_or_none_is_refused);
	return run_suite(s, t);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/edit/file-lock.h"
#include "engine/checkpoint/overlay/overlay-log.h"
#include "engine/checkpoint/parse/le.h"
#include "engine/checkpoint/overlay/overlay.h"
#include "tests/run-suite.h"
#include "tests/unit/checkpoint/edit/edited.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* TEST_SEED: of what is written. */

static struct edited before, x; /* the files; what they should be with the overlay */
static struct engine *engine;
static char dir[80], log_path[128];
static char why[500];
static uint64_t seed;

static uint64_t next_random(void)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return seed >> 33;
}

static void setup(void)
{
	const char *given = getenv("TEST_SEED");

	seed = given ? strtoull(given, NULL, 0) : monotonic_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	edited_make(&before);
	x = before;
	snprintf(dir, sizeof(dir), "%s-overlay", before.dir);
	snprintf(log_path, sizeof(log_path), "%s/" OVERLAY_LOG_NAME, dir);
	ck_assert(!mkdir(dir, 0700));
	engine = NULL;
}

static void teardown(void)
{
	engine_close(engine);
	edited_remove(&before);
	unlink(log_path);
	ck_assert(!rmdir(dir));
}

static int try_open(void)
{
	return edited_open_beside(&before, &engine, dir, why, sizeof(why));
}

static void open_it(void)
{
	ck_assert_msg(!try_open(), "%s", why);
}

static void close_it(void)
{
	engine_close(engine);
	engine = NULL;
}

static void check_refused(int rc, const char *text)
{
	ck_assert_msg(try_open() == rc && strstr(why, text), "not %d '%s': %s", rc, text, why);
}

/* ---- layers ---- */

enum { MAP = 300, MAP_FILES = 2, MAP_RANGES = 8 };

static void make_layer(struct vec *l, uint64_t at, uint64_t map[MAP_FILES][MAP])
{
	for (uint32_t file = 0; file < MAP_FILES; file++) {
		uint64_t from = next_random() % 60;

		while (from < MAP && l->count < MAP_RANGES) {
			uint64_t size = 1 + next_random() % u64_min(40, MAP - from);
			struct overlay_map_range *r = vec_add(l, sizeof(*r));

			*r = (struct overlay_map_range){ from, size, at, file };
			for (uint64_t i = 0; i < size; i++)
				map[file][from + i] = at + i;
			at += size;
			from += size + next_random() % 50;
		}
	}
}

static void check_map(const struct overlay_map *l, const struct table *t,
		      uint64_t map[MAP_FILES][MAP])
{
	struct overlay_map_run run;

	for (uint32_t file = 0; file < MAP_FILES; file++) {
		for (uint64_t at = 0; at < MAP; at += run.size) {
			run = overlay_map_find(l, t, file, at, MAP - at);
			ck_assert_uint_ge(run.size, 1);
			ck_assert_uint_le(run.size, MAP - at);
			for (uint64_t i = 0; i < run.size; i++) {
				uint64_t want = map[file][at + i];

				ck_assert_int_eq(run.fd, want ? -2 : t->files[file].fd);
				ck_assert_uint_eq(run.at + i, want ? want : at + i);
			}
		}
	}
}

START_TEST(later_layers_lie_over_earlier_ones)
{
	struct table_file files[MAP_FILES] = { { .fd = 100 }, { .fd = 101 } };
	struct table t = { .files = files, .nfiles = MAP_FILES };
	uint64_t map[MAP_FILES][MAP] = { { 0 } };
	struct overlay_map l = { .fd = -2 };

	for (int i = 0; i < 200; i++) {
		struct vec above = { .items = NULL }, both = { .items = NULL };

		make_layer(&above, 10000 * (uint64_t)(i + 1), map);
		ck_assert(!overlay_map_merge(&both, &l.ranges, &above));
		free(above.items);
		free(l.ranges.items);
		l.ranges = both;
		check_map(&l, &t, map);
	}
	overlay_map_fini(&l);
}
END_TEST

/* ---- edits ---- */

static int write_bytes(enum edited_state state, uint64_t offset, const void *bytes, size_t size)
{
	struct engine_extent e = { offset, size, bytes };
	int rc = edited_write(engine, state, &e, 1);

	if (!rc)
		edited_expect(&x, state, offset, bytes, size, true);
	return rc;
}

static void write_something(void)
{
	enum edited_state state = next_random() % EDITED_STATES;
	uint64_t size = edited_truths[state].size, at = next_random() % size;
	uint8_t bytes[512];

	for (uint64_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)next_random();
	ck_assert_int_eq(write_bytes(state, at, bytes, 1 + next_random() % (size - at)), 0);
}

static void check_values(void)
{
	uint8_t got[512], value[512];

	for (int state = 0; state < EDITED_STATES; state++) {
		struct engine_file *file = edited_open_state(engine, state);
		uint64_t size = edited_truths[state].size, from = next_random() % size;

		ck_assert_int_eq(edited_read(engine, file, from, size - from, got),
				 (int64_t)(size - from));
		engine_file_close(file);
		edited_value(&x, state, value);
		ck_assert(!memcmp(got, value + from, size - from));
	}
	ck_assert(edited_is_as_expected(&before));
}

static int settle(const char *checkpoint)
{
	struct overlay o;
	int rc = overlay_commit(&o, dir, checkpoint, why, sizeof(why));

	if (!rc)
		overlay_fini(&o);
	return rc;
}

START_TEST(edits_are_beside_the_files_until_they_are_committed)
{
	open_it();
	for (int i = 1; i <= 30; i++) {
		write_something();
		check_values();
		if (i % 7)
			continue;
		close_it();
		open_it();
		check_values();
	}
	close_it();
	ck_assert_msg(!settle(NULL), "%s", why);
	ck_assert(edited_is_as_expected(&x));
	ck_assert_int_eq(settle(NULL), -ENODATA);
	before = x;
	open_it();
	write_something();
	check_values();
}
END_TEST

START_TEST(each_edit_has_a_later_time)
{
	uint64_t ns;

	edited_make_newer(&before, "rank1.pt");
	open_it();
	ns = engine_changed_ns(engine, NULL);
	for (int i = 0; i < 5; i++) {
		uint64_t ns_before = ns;

		write_something();
		ns = engine_changed_ns(engine, NULL);
		ck_assert_uint_gt(ns, ns_before);
	}
}
END_TEST

START_TEST(a_new_log_without_edits_goes)
{
	open_it();
	ck_assert(!access(log_path, F_OK));
	close_it();
	ck_assert(access(log_path, F_OK));
	open_it();
	write_something();
	close_it();
	open_it();
	close_it();
	ck_assert(!access(log_path, F_OK));
}
END_TEST

START_TEST(what_it_holds_is_told)
{
	struct overlay o;
	struct stat st;

	ck_assert(!overlay_look(&o, dir, why, sizeof(why)));
	ck_assert(!o.checkpoint && !o.edits && !o.bytes && !o.nfiles && !o.mounted);
	overlay_fini(&o);
	open_it();
	ck_assert_int_eq(write_bytes(EDITED_GRID, 4, "abcdefgh", 8), 0);
	ck_assert_int_eq(write_bytes(EDITED_GRID, 8, "ijklmnop", 8), 0);
	ck_assert(!overlay_look(&o, dir, why, sizeof(why)));
	ck_assert_str_eq(o.checkpoint, before.dir);
	ck_assert(o.mounted);
	ck_assert_uint_eq(o.edits, 2);
	ck_assert_uint_eq(o.bytes, 12);
	ck_assert_uint_eq(o.nfiles, 1);
	ck_assert_str_eq(o.files[0].name, "boxes");
	ck_assert_uint_eq(o.files[0].bytes, 12);
	overlay_fini(&o);
	close_it();
	ck_assert(!overlay_discard(dir, why, sizeof(why)));
	ck_assert(stat(log_path, &st));
	ck_assert_int_eq(overlay_discard(dir, why, sizeof(why)), -ENODATA);
	ck_assert_int_eq(overlay_discard("/nowhere", why, sizeof(why)), -ENOENT);
	ck_assert(edited_is_as_expected(&before));
}
END_TEST

/* ---- who may have it ---- */

START_TEST(one_mount_has_it)
{
	struct engine *other;

	open_it();
	write_something();
	ck_assert_int_eq(edited_open_beside(&before, &other, dir, why, sizeof(why)), -EBUSY);
	ck_assert_ptr_nonnull(
		strstr(why, "is the overlay of a mount, or being committed, by process"));
	ck_assert_int_eq(settle(NULL), -EBUSY);
	ck_assert_int_eq(overlay_discard(dir, why, sizeof(why)), -EBUSY);
	ck_assert_int_eq(edited_open(&before, &other, true, true, why, sizeof(why)), -EBUSY);
	ck_assert(!edited_open(&before, &other, false, true, why, sizeof(why)));
	close_it();
	ck_assert_int_eq(settle(NULL), -EBUSY); /* somebody reads it */
	engine_close(other);
	ck_assert_msg(!settle(NULL), "%s", why);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(it_has_a_folder_of_its_own)
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/other", dir);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	check_refused(-ENOTEMPTY, "there are other things in it");
	unlink(path);
	snprintf(path, sizeof(path), "%s/within", before.dir);
	ck_assert(!mkdir(path, 0700));
	ck_assert_int_eq(edited_open_beside(&before, &engine, path, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "is in the checkpoint's folder"));
	ck_assert_int_eq(edited_open_beside(&before, &engine, before.dir, why, sizeof(why)),
			 -EINVAL);
	rmdir(path);
	ck_assert_int_eq(edited_open_beside(&before, &engine, path, why, sizeof(why)), -ENOENT);
	engine = NULL;
}
END_TEST

START_TEST(a_job_has_no_format)
{
	struct engine_options options = { .source = "127.0.0.1:1", .format = "zero" };

	ck_assert_int_eq(engine_open(&engine, &options, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "127.0.0.1:1 is a job's address, and source=zero is for a "
			      "checkpoint");
}
END_TEST

START_TEST(a_job_has_none)
{
	struct engine_options options = { .source = "127.0.0.1:1", .overlay = dir };

	ck_assert_int_eq(engine_open(&engine, &options, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "only a checkpoint has an overlay"));
}
END_TEST

START_TEST(who_is_not_asked_writes_nothing)
{
	if (geteuid())
		return;
	open_it();
	write_something();
	close_it();
	ck_assert(!chown(log_path, 1, 1));
	ck_assert_int_eq(settle(NULL), -EPERM);
	ck_assert_ptr_nonnull(strstr(why, "is neither yours nor that of"));
	ck_assert(edited_is_as_expected(&before));
}
END_TEST

/* ---- over which checkpoint ---- */

static void path_of(char path[128], int file)
{
	snprintf(path, 128, "%s/%s", before.dir, edited_names[file]);
}

static void set_times(const char *path, const struct stat *st)
{
	const struct timespec times[2] = { st->st_atim, st->st_mtim };

	ck_assert(!utimensat(AT_FDCWD, path, times, 0));
}

static void change(int file, uint64_t at)
{
	uint8_t *byte = &before.files[file][at];
	char path[128];
	int fd;

	*byte ^= 1;
	path_of(path, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, byte, 1, (off_t)at), 1);
	close(fd);
}

START_TEST(another_checkpoint_is_stale)
{
	char path[128];
	struct stat st;

	open_it();
	write_something();
	close_it();
	path_of(path, 3);
	ck_assert(!stat(path, &st));
	change(3, 1000);
	check_refused(-ESTALE, "boxes has changed since the overlay");
	ck_assert_int_eq(settle(NULL), -ESTALE);
	ck_assert_ptr_nonnull(strstr(why, "Stale file handle"));
	set_times(path, &st);
	check_refused(-ESTALE, "boxes has changed since the overlay");
	change(3, 1000);
	check_refused(-ESTALE, "boxes has changed since the overlay");
	set_times(path, &st);
	open_it();
	check_values();
	change(0, 5);
	ck_assert_int_eq(write_bytes(EDITED_W, 0, "abcd", 4), -ESTALE);
}
END_TEST

/* Its files have their times still. */
START_TEST(a_copy_is_the_same_checkpoint)
{
	char command[400];
	struct edited copy = before;

	ck_assert_uint_lt(strlen(copy.dir) + 5, sizeof(copy.dir));
	strcat(copy.dir, "-copy");
	snprintf(command, sizeof(command), "cp -a '%s' '%s'", before.dir, copy.dir);
	ck_assert_int_eq(system(command), 0);
	open_it();
	write_something();
	close_it();
	ck_assert(!edited_open_beside(&copy, &engine, dir, why, sizeof(why)));
	check_values();
	close_it();
	ck_assert_msg(!settle(copy.dir), "%s", why);
	ck_assert(edited_is_as_expected(&before));
	strcpy(x.dir, copy.dir);
	ck_assert(edited_is_as_expected(&x));
	edited_remove(&copy);
}
END_TEST

/* ---- logs that lie ---- */

static uint8_t bytes[1 << 14];
static size_t size, first, second; /* where the commits begin */

static void put_log(size_t n)
{
	int fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
	close(fd);
}

/* Of two edits. */
static void take_log(void)
{
	int fd;

	open_it();
	ck_assert_int_eq(write_bytes(EDITED_W, 2, "0123456789", 10), 0);
	ck_assert_int_eq(write_bytes(EDITED_GRID, 0, "9876543210", 10), 0);
	close_it();
	fd = open(log_path, O_RDONLY | O_CLOEXEC);
	size = (size_t)read(fd, bytes, sizeof(bytes));
	close(fd);
	ck_assert_uint_lt(size, sizeof(bytes));
	first = le_get64(bytes + 16);
	second = overlay_log_align(first + OVERLAY_LOG_COMMIT +
				   OVERLAY_LOG_RANGE * le_get32(bytes + first + 4) +
				   le_get64(bytes + first + 8));
	ck_assert_uint_lt(second, size);
}

/* -1: refused. */
static int count_edits(void)
{
	struct overlay o;
	int rc = overlay_look(&o, dir, why, sizeof(why)), edits;

	if (rc) {
		ck_assert_msg(rc == -EOPNOTSUPP || strstr(why, "is damaged at byte"), "%d: %s",
			      rc, why);
		return -1;
	}
	edits = (int)o.edits;
	overlay_fini(&o);
	return edits;
}

static size_t data_end(size_t commit)
{
	return commit + OVERLAY_LOG_COMMIT + OVERLAY_LOG_RANGE * le_get32(bytes + commit + 4) +
	       le_get64(bytes + commit + 8);
}

START_TEST(damaged_ones_are_refused)
{
	take_log();
	for (size_t i = 0; i < size; i++) {
		bool padding = i >= data_end(first) && i < second;

		bytes[i] ^= 1 << i % 8;
		put_log(size);
		bytes[i] ^= 1 << i % 8;
		ck_assert_msg((count_edits() == -1) == !padding, "%zu", i);
	}
}
END_TEST

START_TEST(one_that_a_mount_is_changing_is_looked_at_again)
{
	struct overlay o;

	take_log();
	open_it();
	bytes[data_end(first) - 1] ^= 1;
	put_log(size);
	bytes[data_end(first) - 1] ^= 1;
	ck_assert_int_eq(overlay_look(&o, dir, why, sizeof(why)), -EBUSY);
	ck_assert_msg(strstr(why, "is being changed by process") != NULL, "%s", why);
	put_log(size);
	ck_assert_int_eq(count_edits(), 2);
}
END_TEST

START_TEST(a_commit_that_was_not_whole_is_left_out)
{
	uint8_t kept[OVERLAY_LOG_COMMIT];

	take_log();
	for (size_t i = 0; i <= size; i++) {
		put_log(i);
		ck_assert_msg(count_edits() == (i < first              ? -1
						: i < data_end(first)  ? 0
						: i < data_end(second) ? 1
								       : 2),
			      "%zu: %s", i, why);
	}
	memcpy(kept, bytes + second, sizeof(kept));
	memset(bytes + second, 0, OVERLAY_LOG_COMMIT);
	put_log(size);
	ck_assert_int_eq(count_edits(), 1);
	/* The next one takes its place. */
	x = before;
	edited_expect(&x, EDITED_W, 2, "0123456789", 10, true);
	open_it();
	check_values();
	write_something();
	close_it();
	open_it();
	check_values();
}
END_TEST

static void sum_commit(size_t at)
{
	size_t end = data_end(at), begin = at + OVERLAY_LOG_COMMIT;
	uint64_t of_log = le_get64(bytes + first - OVERLAY_LOG_SUM);

	if (end <= size)
		le_put64(bytes + at + 24,
			 XXH3_64bits_withSeed(bytes + begin, end - begin, of_log));
	le_put64(bytes + at + OVERLAY_LOG_COMMIT_SUMMED,
		 XXH3_64bits_withSeed(bytes + at, OVERLAY_LOG_COMMIT_SUMMED, of_log));
}

static void check_hostile(uint8_t *at, uint64_t value, int bits)
{
	uint8_t kept[sizeof(bytes)];

	memcpy(kept, bytes, size);
	if (bits == 64)
		le_put64(at, value);
	else
		le_put32(at, (uint32_t)value);
	sum_commit(second);
	put_log(size);
	ck_assert_msg(count_edits() == -1, "%zu: %llx", (size_t)(at - bytes),
		      (unsigned long long)value);
	memcpy(bytes, kept, size);
}

/* With checksums that are right. */
START_TEST(hostile_commits_are_refused)
{
	uint8_t *c, *row;

	take_log();
	c = bytes + second;
	row = c + OVERLAY_LOG_COMMIT;
	ck_assert_uint_ge(le_get32(c + 4), 2);
	check_hostile(c, 0, 32); /* the kind */
	check_hostile(c, 3, 32);
	check_hostile(c, OVERLAY_LOG_WRITTEN, 32);
	check_hostile(c + 4, le_get32(c + 4) - 1, 32);
	check_hostile(c + 8, le_get64(c + 8) - 1, 64);
	check_hostile(c + 8, UINT64_MAX, 64);
	check_hostile(c + 8, INT64_MAX, 64);
	check_hostile(c + 16, 1, 64);
	check_hostile(c + 16, 3, 64);
	check_hostile(row, before.sizes[3] - 3, 64);
	check_hostile(row, UINT64_MAX - 1, 64);
	check_hostile(row, le_get64(row + OVERLAY_LOG_RANGE), 64);
	check_hostile(row + 8, 0, 64);
	check_hostile(row + 8, UINT64_MAX - 10, 64);
	check_hostile(row + 8, le_get64(row + 8) + 1, 64);
	check_hostile(row + 16, EDITED_FILES, 32);
	check_hostile(row + OVERLAY_LOG_RANGE + 16, 0, 32);
	put_log(size);
	ck_assert_int_eq(count_edits(), 2);
}
END_TEST

static void sum_head(void)
{
	le_put64(bytes + first - OVERLAY_LOG_SUM, XXH3_64bits(bytes, first - OVERLAY_LOG_SUM));
}

static void check_hostile_head(size_t at, const void *value, size_t n)
{
	uint8_t kept[sizeof(bytes)];

	memcpy(kept, bytes, size);
	memcpy(bytes + at, value, n);
	sum_head();
	put_log(first);
	ck_assert_msg(count_edits() == -1, "%zu", at);
	memcpy(bytes, kept, size);
}

START_TEST(hostile_heads_are_refused)
{
	size_t path, file;

	take_log();
	path = le_get16(bytes + 24);
	file = OVERLAY_LOG_HEAD + path;
	put_log(first);
	ck_assert_int_eq(count_edits(), 0);
	check_hostile_head(0, "g", 1);
	check_hostile_head(12, "\xff\xff\xff\xff", 4);
	check_hostile_head(12, "\x20\0\0\0", 4);
	check_hostile_head(16, "\0\0\0\0", 4);
	check_hostile_head(16, "\x21", 1);
	check_hostile_head(16, "\0\0\0\0\x01", 5);
	check_hostile_head(24, "\xff\xff", 2);
	check_hostile_head(24, "\0\0", 2);
	check_hostile_head(OVERLAY_LOG_HEAD + 1, "", 1);
	check_hostile_head(file + OVERLAY_LOG_IDENTITY, "\xff\xff", 2);
	check_hostile_head(file + OVERLAY_LOG_IDENTITY, "\0\0", 2);
	check_hostile_head(file + OVERLAY_LOG_FILE, "", 1);
	bytes[8] = 9;
	sum_head();
	put_log(first);
	check_refused(-EOPNOTSUPP, "is another version's");
	ck_assert(!overlay_discard(dir, why, sizeof(why)));
}
END_TEST

START_TEST(a_log_that_is_no_file_is_refused)
{
	ck_assert(!symlink("/etc/passwd", log_path));
	check_refused(-ELOOP, "is a symbolic link");
	unlink(log_path);
	ck_assert(!mkfifo(log_path, 0600));
	check_refused(-EINVAL, "is no name of a regular file");
}
END_TEST

/* The file that it names first is elsewhere. */
START_TEST(a_commit_leaves_other_files_alone)
{
	static const char *const names[] = { "../x.pt.", "/etc/pas", "./ank0.p" };
	size_t file;

	take_log();
	file = OVERLAY_LOG_HEAD + le_get16(bytes + 24) + OVERLAY_LOG_FILE;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		memcpy(bytes + file, names[i], 8);
		sum_head();
		sum_commit(first);
		sum_commit(second);
		put_log(size);
		ck_assert_int_eq(settle(NULL), -EINVAL);
		check_refused(-ESTALE, "has changed since");
	}
	ck_assert(edited_is_as_expected(&before));
}
END_TEST

/* ---- what the machine refuses ---- */

static void limit_files(rlim_t limit)
{
	struct rlimit to = { limit, RLIM_INFINITY };

	signal(SIGXFSZ, SIG_IGN);
	ck_assert(!setrlimit(RLIMIT_FSIZE, &to));
}

START_TEST(an_edit_that_finds_no_room_leaves_nothing)
{
	struct stat st;
	int rc;

	open_it();
	write_something();
	ck_assert(!stat(log_path, &st));
	limit_files((rlim_t)overlay_log_align((uint64_t)st.st_size) + 70);
	rc = write_bytes(EDITED_W, 0, "abcd", 4);
	limit_files(RLIM_INFINITY);
	ck_assert_int_eq(rc, -EFBIG);
	check_values();
	write_something();
	close_it();
	open_it();
	check_values();
	close_it();
	limit_files(64);
	rc = settle(NULL);
	limit_files(RLIM_INFINITY);
	ck_assert_int_eq(rc, -EFBIG);
	ck_assert(edited_is_as_expected(&before));
	ck_assert_msg(!settle(NULL), "%s", why);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(a_cancelled_edit_leaves_nothing)
{
	static const _Atomic bool always = true;
	struct table *t = edited_table(&before);
	struct patches p;
	struct stat st;
	struct overlay_log *r;
	off_t end;

	take_log();
	ck_assert(!overlay_log_open(&r, dir, OVERLAY_LOG_CHANGE, why, sizeof(why)));
	ck_assert(!file_lock_to_read(t, why, sizeof(why)));
	ck_assert_msg(!overlay_log_bind(r, t, before.dir, why, sizeof(why)), "%s", why);
	ck_assert(!fstat(r->fd, &st));
	end = st.st_size;
	patches_init(&p, t, &r->map);
	ck_assert(!patches_add(&p, 3, 1000, 4, "abcd"));
	ck_assert(!patches_finish(&p));
	ck_assert_int_eq(overlay_log_begin(r, &p, &always), -ECANCELED);
	ck_assert(!fstat(r->fd, &st));
	ck_assert_int_eq(st.st_size, end);
	patches_fini(&p);
	overlay_log_close(r);
	table_free(t);
	ck_assert_int_eq(count_edits(), 2);
}
END_TEST

/* ---- a commit that was interrupted; test-commit-killed has every moment ---- */

/* All but the last step of it: the log is there still. */
static void note_written(bool write)
{
	struct table *t = edited_table(&before);
	struct overlay_log *r;

	if (write)
		change(3, 1001);
	ck_assert(!overlay_log_open(&r, dir, OVERLAY_LOG_CHANGE, why, sizeof(why)));
	ck_assert(!file_lock_to_read(t, why, sizeof(why)));
	ck_assert(!overlay_log_note_written(r, t));
	overlay_log_close(r);
	table_free(t);
}

START_TEST(what_was_written_is_not_laid_over_it_again)
{
	open_it();
	write_something();
	close_it();
	note_written(true);
	x = before;
	open_it();
	check_values();
	write_something();
	close_it();
	note_written(true);
	ck_assert_msg(!settle(NULL), "%s", why);
	ck_assert(edited_is_as_expected(&before));
	ck_assert_int_eq(settle(NULL), -ENODATA);
}
END_TEST

/* Of a mount that was killed: the beginning of an edit, which is left out. */
static void leave_something_behind(void)
{
	char junk[3000];
	int fd = open(log_path, O_WRONLY);
	off_t end = (off_t)overlay_log_align((uint64_t)lseek(fd, 0, SEEK_END));

	memset(junk, 'x', sizeof(junk));
	ck_assert_int_eq(pwrite(fd, junk, sizeof(junk), end + OVERLAY_LOG_COMMIT),
			 sizeof(junk));
	close(fd);
}

START_TEST(what_a_killed_mount_left_is_not_taken_for_written)
{
	open_it();
	write_something();
	close_it();
	leave_something_behind();
	note_written(false);
	open_it();
	check_values();
	close_it();
	ck_assert_msg(!settle(NULL), "%s", why);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

START_TEST(what_was_undone_is_still_an_edit)
{
	open_it();
	write_something();
	close_it();
	note_written(false);
	open_it();
	check_values();
	write_something();
	close_it();
	open_it();
	check_values();
	close_it();
	note_written(false);
	ck_assert_msg(!settle(NULL), "%s", why);
	ck_assert(edited_is_as_expected(&x));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("overlay");
	TCase *t = tcase_create("overlay");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, later_layers_lie_over_earlier_ones);
	tcase_add_test(t, edits_are_beside_the_files_until_they_are_committed);
	tcase_add_test(t, each_edit_has_a_later_time);
	tcase_add_test(t, a_new_log_without_edits_goes);
	tcase_add_test(t, what_it_holds_is_told);
	tcase_add_test(t, one_mount_has_it);
	tcase_add_test(t, it_has_a_folder_of_its_own);
	tcase_add_test(t, a_job_has_none);
	tcase_add_test(t, a_job_has_no_format);
	tcase_add_test(t, who_is_not_asked_writes_nothing);
	tcase_add_test(t, another_checkpoint_is_stale);
	tcase_add_test(t, a_copy_is_the_same_checkpoint);
	tcase_add_test(t, damaged_ones_are_refused);
	tcase_add_test(t, one_that_a_mount_is_changing_is_looked_at_again);
	tcase_add_test(t, a_commit_that_was_not_whole_is_left_out);
	tcase_add_test(t, hostile_commits_are_refused);
	tcase_add_test(t, hostile_heads_are_refused);
	tcase_add_test(t, a_log_that_is_no_file_is_refused);
	tcase_add_test(t, a_commit_leaves_other_files_alone);
	tcase_add_test(t, an_edit_that_finds_no_room_leaves_nothing);
	tcase_add_test(t, a_cancelled_edit_leaves_nothing);
	tcase_add_test(t, what_was_written_is_not_laid_over_it_again);
	tcase_add_test(t, what_a_killed_mount_left_is_not_taken_for_written);
	tcase_add_test(t, what_was_undone_is_still_an_edit);
	return run_suite(s, t);
}

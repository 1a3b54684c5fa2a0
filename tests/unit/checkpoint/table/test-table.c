/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/box.h"
#include "engine/checkpoint/table/folder.h"
#include "engine/checkpoint/table/table.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- boxes ---- */

static bool holds(const struct box *b, uint64_t element)
{
	for (uint32_t d = b->ndim; d-- > 0; element /= b->shape[d]) {
		uint64_t at = element % b->shape[d];

		if (at < b->offsets[d] || at >= b->offsets[d] + b->sizes[d])
			return false;
	}
	return true;
}

static void check_box(const struct box *b)
{
	uint64_t numel = 1, below = 0, run, last = UINT64_MAX;
	bool neighbours = true;

	for (uint32_t d = 0; d < b->ndim; d++)
		numel *= b->shape[d];
	for (uint64_t i = 0; i < numel; i++) {
		ck_assert_uint_eq(box_below(b, i), below);
		if (!holds(b, i))
			continue;
		ck_assert_uint_eq(box_element(b, below, &run), i);
		ck_assert_uint_gt(run, 0);
		for (uint64_t j = 1; j < run; j++)
			ck_assert(holds(b, i + j));
		neighbours &= !below || last + 1 == i;
		last = i;
		below++;
	}
	ck_assert_uint_eq(box_below(b, numel), below);
	ck_assert_uint_eq(box_count(b), below);
	ck_assert(box_is_inside(b));
	ck_assert_int_eq(box_is_interval(b), neighbours);
}

START_TEST(boxes_hold_what_they_say)
{
	static const uint64_t shape[3] = { 4, 3, 5 };
	uint64_t o[3], s[3];

	for (o[0] = 0; o[0] < 4; o[0]++)
		for (s[0] = 1; s[0] <= 4 - o[0]; s[0]++)
			for (o[1] = 0; o[1] < 3; o[1]++)
				for (s[1] = 1; s[1] <= 3 - o[1]; s[1]++)
					for (o[2] = 0; o[2] < 5; o[2]++)
						for (s[2] = 1; s[2] <= 5 - o[2]; s[2]++)
							check_box(&(struct box){ 3, shape, o,
										 s });
	check_box(&(struct box){ 0, NULL, NULL, NULL });
}
END_TEST

/* ---- tables ---- */

static struct table *table;

static uint32_t add_file(uint64_t size)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct stat st;

	ck_assert(!fstat(fd, &st));
	st.st_size = (off_t)size;
	return (uint32_t)table_add_file(table, "file", fd, &st);
}

static int add_tensor(const char *name, uint64_t rows, uint64_t columns)
{
	return table_add_tensor(table,
				&(struct table_spec){ .name = name,
						      .dtype = FRAG_BF16,
						      .ndim = 2,
						      .shape = (uint64_t[]){ rows, columns } });
}

static void setup(void)
{
	table = table_new();
	ck_assert_ptr_nonnull(table);
}

static void teardown(void)
{
	table_free(table);
}

static void check_refused(const char *why)
{
	ck_assert_int_eq(table_finish(table), -EINVAL);
	ck_assert_str_eq(table->why, why);
}

static void begin_state(void)
{
	add_file(1000);
	ck_assert_int_eq(add_tensor("w", 4, 6), 0);
	ck_assert_int_eq(table_add_state(table, "fp32", FRAG_F32), 0);
}

START_TEST(a_hole_is_refused)
{
	begin_state();
	ck_assert(!table_add_interval(table, 0, 0, 0, 0, 10));
	ck_assert(!table_add_interval(table, 0, 0, 40, 11, 13));
	check_refused("w: fp32 has a hole");
}
END_TEST

START_TEST(too_few_elements_are_refused)
{
	begin_state();
	ck_assert(!table_add_interval(table, 0, 0, 0, 0, 23));
	check_refused("w: fp32 has fewer elements than its shape");
}
END_TEST

START_TEST(elements_twice_are_refused)
{
	begin_state();
	ck_assert(!table_add_interval(table, 0, 0, 0, 12, 12));
	ck_assert(!table_add_interval(table, 0, 0, 0, 0, 13));
	check_refused("w: fp32 has elements twice");
}
END_TEST

START_TEST(too_many_elements_are_refused)
{
	begin_state();
	ck_assert(!table_add_interval(table, 0, 0, 0, 0, 25));
	check_refused("w: fp32 has more elements than its shape");
}
END_TEST

START_TEST(data_past_the_file_are_refused)
{
	begin_state();
	ck_assert_int_eq(table_add_interval(table, 0, 0, 905, 0, 24), -EINVAL);
	ck_assert_str_eq(table->why, "file ends before its data do");
	ck_assert_int_eq(table_add_interval(table, 0, 0, UINT64_MAX - 8, 0, 24), -EINVAL);
	ck_assert_int_eq(table_add_interval(table, 0, 0, 0, 0, UINT64_MAX / 2), -EINVAL);
}
END_TEST

static int add_box(uint64_t row, uint64_t column, uint64_t rows, uint64_t columns)
{
	return table_add_box(table, 0, 0, 0, (uint64_t[]){ row, column },
			     (uint64_t[]){ rows, columns });
}

START_TEST(boxes_cover_once)
{
	begin_state();
	ck_assert(!add_box(0, 0, 2, 3) && !add_box(0, 3, 4, 3) && !add_box(2, 0, 2, 3));
	ck_assert_int_eq(table_finish(table), 0);
}
END_TEST

START_TEST(boxes_that_overlap_are_refused)
{
	begin_state();
	ck_assert(!add_box(0, 0, 3, 3) && !add_box(0, 3, 4, 3) && !add_box(2, 0, 1, 3));
	check_refused("w: fp32 has elements twice");
}
END_TEST

START_TEST(boxes_with_a_hole_are_refused)
{
	begin_state();
	ck_assert(!add_box(0, 0, 2, 3) && !add_box(0, 3, 4, 3));
	check_refused("w: fp32 has a hole");
}
END_TEST

START_TEST(boxes_outside_are_refused)
{
	begin_state();
	ck_assert_int_eq(add_box(3, 0, 2, 3), -EINVAL);
	ck_assert_int_eq(add_box(UINT64_MAX, 0, 2, 3), -EINVAL);
	ck_assert_str_eq(table->why, "w: a piece is outside of its shape");
}
END_TEST

START_TEST(shapes_that_overflow_are_refused)
{
	ck_assert_int_eq(add_tensor("w", 1ULL << 32, 1ULL << 32), -EINVAL);
	ck_assert_int_eq(add_tensor("w", 1ULL << 60, 1), -EINVAL);
	ck_assert_int_eq(add_tensor("w", UINT64_MAX, 0), 0);
}
END_TEST

START_TEST(names_are_unique)
{
	add_tensor("a", 0, 1);
	add_tensor("b", 0, 1);
	add_tensor("a", 0, 1);
	check_refused("two tensors have the name a");
}
END_TEST

START_TEST(states_are_unique)
{
	add_tensor("a", 0, 1);
	ck_assert_int_ge(table_add_state(table, "fp32", FRAG_F32), 0);
	ck_assert_int_ge(table_add_state(table, "fp32", FRAG_F32), 0);
	check_refused("a: fp32 is there twice");
}
END_TEST

START_TEST(a_vector_that_is_too_short_is_refused)
{
	add_file(1000);
	ck_assert_int_eq(table_add_flat(table, FRAG_F32), 0);
	ck_assert(!table_add_segment(table, 0, 0, 0, 20));
	add_tensor("w", 4, 6);
	ck_assert_int_ge(table_add_flat_state(table, "fp32", 0, 0), 0);
	check_refused("w: fp32 is longer than what the ranks' files hold");
}
END_TEST

START_TEST(a_short_shard_is_refused)
{
	add_file(1000);
	for (uint32_t rank = 0; rank < 2; rank++) {
		ck_assert_int_eq(table_add_flat(table, FRAG_F32), (int)rank);
		ck_assert(!table_add_segment(table, 0, rank, 0, 13 - rank));
	}
	add_tensor("w", 4, 6);
	ck_assert_int_ge(table_add_equal_state(table, "fp32", 0, 2, 1), 0);
	check_refused("w: fp32 is longer than what a rank's file holds");
}
END_TEST

static int add_elements(void *arg, const struct table_run *run)
{
	*(uint64_t *)arg += run->count;
	return 0;
}

/* 100 000 parameters on 1024 ranks: rows per parameter, and quickly. */
START_TEST(equal_shards_are_arithmetic)
{
	enum { PARAMS = 100000, RANKS = 1024 };
	uint64_t begun = monotonic_ms(), sum = 0;
	const struct table_state *s;
	char name[32];

	add_file(1ULL << 50);
	for (uint32_t rank = 0; rank < RANKS; rank++) {
		ck_assert_int_ge(table_add_flat(table, FRAG_F32), 0);
		ck_assert(!table_add_segment(table, 0, rank, (uint64_t)rank << 30, PARAMS));
	}
	for (uint32_t i = 0; i < PARAMS; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		add_tensor(name, 1000, 1);
		ck_assert_int_ge(table_add_equal_state(table, "fp32", 0, RANKS, i), 0);
	}
	ck_assert_int_eq(table_finish(table), 0);
	ck_assert_uint_eq(table->nranks, RANKS);
	s = table_find_state(table, 99999, "fp32");
	ck_assert(!table_walk(table, s, 0, 1000, add_elements, &sum));
	ck_assert_uint_eq(sum, 1000);
	ck_assert_uint_eq(table_rank_count(table, s, 999), 1);
	ck_assert_uint_eq(table_rank_count(table, s, 1000), 0);
	ck_assert_uint_lt(monotonic_ms() - begun, 20000);
	ck_assert_uint_lt(table->nsegments, 2 * RANKS);
	ck_assert_uint_eq(table->npieces, 0);
}
END_TEST

START_TEST(fp32_is_there_for_all_floats)
{
	uint32_t n;
	const struct table_state *s;

	add_file(1000);
	add_tensor("w", 2, 2);
	table_add_state(table, "bf16", FRAG_BF16);
	ck_assert(!table_add_interval(table, 0, 0, 0, 0, 4));
	ck_assert_int_eq(table_add_alias(table, "tied", 0), 1);
	table_skip(table, "x\ny", "why %d", 7);
	ck_assert_int_eq(table_finish(table), 0);
	s = table_states(table, 1, &n);
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(table->keys[s[1].key], "fp32");
	ck_assert_int_eq(s[1].stored, FRAG_BF16);
	ck_assert_int_eq(s[1].shown, FRAG_F32);
	ck_assert_str_eq(table->source, "skipped x%0Ay: why 7\n");
}
END_TEST

/* ---- folders ---- */

START_TEST(names_are_in_numeric_order)
{
	static const char *const names[] = { "a", "a1_b2", "a1_b10", "a2", "a09", "a10", "b" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		for (size_t j = 0; j < ARRAY_SIZE(names); j++) {
			int order = folder_compare(names[i], names[j]);

			ck_assert_int_eq((order > 0) - (order < 0), (i > j) - (i < j));
		}
}
END_TEST

static void make_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

START_TEST(nothing_outside_is_opened)
{
	char dir[] = "/tmp/test-table-XXXXXX", path[128], why[256], text[FOLDER_TEXT_MAX];
	struct folder *f, *below;
	struct stat st;
	int fd;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/latest", dir);
	make_file(path, "tag\n \n");
	snprintf(path, sizeof(path), "%s/link", dir);
	ck_assert(!symlink("/etc/passwd", path));
	snprintf(path, sizeof(path), "%s/tag", dir);
	ck_assert(!mkdir(path, 0700));
	snprintf(path, sizeof(path), "%s/up", dir);
	ck_assert(!symlink("..", path));
	ck_assert(!folder_open(&f, dir, why, sizeof(why)));
	ck_assert_uint_eq(f->count, 4);
	ck_assert(folder_has(f, "latest") && !folder_has(f, "late"));
	ck_assert_int_eq(folder_open_file(f, "link", &st), -ELOOP);
	ck_assert_int_eq(folder_open_file(f, "tag", &st), -EINVAL);
	ck_assert_int_eq(folder_open_file(f, "../tag", &st), -EINVAL);
	ck_assert_int_eq(folder_open_file(f, "..", &st), -EINVAL);
	ck_assert_int_eq(folder_open_file(f, "", &st), -EINVAL);
	ck_assert_int_eq(folder_open_file(f, "gone", &st), -ENOENT);
	fd = folder_open_file(f, "latest", &st);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(folder_read_text(f, "latest", text), 0);
	ck_assert_str_eq(text, "tag");
	ck_assert_int_ne(folder_open_below(&below, f, "up", why, sizeof(why)), 0);
	ck_assert_int_ne(folder_open_below(&below, f, "..", why, sizeof(why)), 0);
	ck_assert_int_eq(folder_open_below(&below, f, "tag", why, sizeof(why)), 0);
	folder_close(below);
	for (size_t i = 0; i < f->count; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, f->names[i]);
		remove(path);
	}
	folder_close(f);
	ck_assert(!rmdir(dir));
}
END_TEST

START_TEST(a_text_is_short_and_has_no_nul)
{
	char dir[] = "/tmp/test-table-XXXXXX", path[128], why[256], text[FOLDER_TEXT_MAX];
	struct folder *f;
	struct stat st;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/latest", dir);
	make_file(path, "tag");
	ck_assert(!folder_open(&f, dir, why, sizeof(why)));
	ck_assert(!truncate(path, 5)); /* tag and two NULs */
	ck_assert_int_eq(folder_read_text(f, "latest", text), -EINVAL);
	ck_assert(!truncate(path, FOLDER_TEXT_MAX));
	ck_assert_int_eq(folder_read_text(f, "latest", text), -EFBIG);
	folder_close(f);
	ck_assert(!folder_open(&f, path, why, sizeof(why)));
	ck_assert_int_eq(folder_open_file(f, "other", &st), -ENOENT);
	folder_close(f);
	ck_assert(!unlink(path));
	ck_assert(!rmdir(dir));
}
END_TEST

/* ---- what an edit also writes ---- */

static int add_entry(uint32_t file, uint64_t at, uint64_t size, uint64_t crc)
{
	return table_add_entry(table, &(struct table_entry){ file, at, size, crc, crc + 8 });
}

START_TEST(entries_are_found_by_place)
{
	const struct table_entry *e;

	add_file(1000);
	add_file(1000);
	ck_assert(!add_entry(1, 0, 10, 900));
	ck_assert(!add_entry(0, 300, 50, 920));
	ck_assert(!add_entry(0, 100, 50, 900));
	ck_assert(!add_entry(0, 300, 50, 920)); /* again */
	ck_assert(!add_entry(0, 200, 0, 960));
	ck_assert_int_eq(table_finish(table), 0);
	ck_assert_uint_eq(table->nentries, 3);
	e = table_find_entry(table, 0, 0);
	ck_assert_ptr_eq(e, table->entries);
	ck_assert_uint_eq(e->at, 100);
	ck_assert_ptr_eq(table_find_entry(table, 0, 149), e);
	ck_assert_ptr_eq(table_find_entry(table, 0, 150), e + 1);
	ck_assert_ptr_eq(table_find_entry(table, 0, 349), e + 1);
	ck_assert_ptr_eq(table_find_entry(table, 0, 350), e + 2);
	ck_assert_uint_eq(table_find_entry(table, 1, 9)->file, 1);
	ck_assert_ptr_null(table_find_entry(table, 1, 10));
}
END_TEST

START_TEST(entries_past_the_file_are_refused)
{
	add_file(1000);
	ck_assert_int_eq(add_entry(0, 990, 11, 0), -EINVAL);
	ck_assert_int_eq(add_entry(0, 100, UINT64_MAX, 0), -EINVAL);
	ck_assert_int_eq(add_entry(0, 100, 10, 989), -EINVAL);
	ck_assert_str_eq(table->why, "file ends before its entries do");
}
END_TEST

START_TEST(entries_that_overlap_are_refused)
{
	add_file(1000);
	ck_assert(!add_entry(0, 100, 50, 900));
	ck_assert(!add_entry(0, 149, 50, 920));
	check_refused("file: two entries overlap");
}
END_TEST

START_TEST(a_crc_among_data_is_refused)
{
	add_file(1000);
	ck_assert(!add_entry(0, 100, 50, 900));
	ck_assert(!add_entry(0, 200, 50, 89));
	check_refused("file: an entry has its CRC among data");
}
END_TEST

START_TEST(copies_are_not_shown)
{
	const struct table_state *s;
	uint32_t n;

	add_file(1000);
	ck_assert_int_eq(add_tensor("w", 4, 6), 0);
	ck_assert_int_ge(table_add_copy(table, FRAG_F16), 0);
	ck_assert(!table_add_interval(table, 0, 0, 100, 0, 24));
	ck_assert_int_ge(table_add_state(table, "bf16", FRAG_BF16), 0);
	ck_assert(!table_add_interval(table, 0, 0, 0, 0, 24));
	ck_assert_int_ge(table_add_copy(table, FRAG_BF16), 0);
	ck_assert(!table_add_interval(table, 0, 0, 200, 0, 24));
	ck_assert_int_eq(table_add_alias(table, "v", 0), 1);
	ck_assert_int_eq(table_finish(table), 0);
	s = table_states(table, 1, &n);
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(table->keys[s[0].key], "bf16");
	ck_assert_str_eq(table->keys[s[1].key], "fp32");
	s = table_copies(table, 1, &n);
	ck_assert_uint_eq(n, 2);
	ck_assert(s[0].copy && s[1].copy);
	ck_assert_uint_eq(s[0].stored + s[1].stored, FRAG_F16 + FRAG_BF16);
}
END_TEST

START_TEST(a_copy_with_a_hole_is_refused)
{
	add_file(1000);
	add_tensor("w", 4, 6);
	ck_assert_int_ge(table_add_copy(table, FRAG_F16), 0);
	ck_assert(!table_add_interval(table, 0, 0, 100, 0, 23));
	check_refused("w: (copy) has fewer elements than its shape");
}
END_TEST

/* ---- what does not fit ---- */

START_TEST(what_is_too_much_for_a_table_is_refused)
{
	char name[FRAG_NAME_MAX + 2], key[FRAG_KEY_MAX + 2], k[16];
	uint64_t shape[FRAG_DIMS_MAX + 1] = { 2, 2 };
	struct table_spec spec = { .name = name, .dtype = FRAG_F32, .ndim = 1, .shape = shape };
	uint32_t ranks[] = { TABLE_RANKS_MAX };
	struct table *t = table_new();
	int rc = 0;

	memset(name, 'n', sizeof(name) - 1);
	memset(key, 'k', sizeof(key) - 1);
	name[sizeof(name) - 1] = key[sizeof(key) - 1] = '\0';
	ck_assert_int_eq(table_add_tensor(t, &spec), -EINVAL);
	ck_assert_ptr_nonnull(strstr(t->why, "too long"));
	spec.name = "w";
	spec.ndim = FRAG_DIMS_MAX + 1;
	ck_assert_int_eq(table_add_tensor(t, &spec), -EINVAL);
	spec.ndim = 1;
	ck_assert_int_eq(table_add_tensor(t, &spec), 0);
	ck_assert_int_eq(table_add_alias(t, name, 0), -EINVAL);
	ck_assert_int_eq(table_add_state(t, key, FRAG_F32), -EINVAL);
	ck_assert_int_eq(table_add_state(t, "raw", 0), -EINVAL);
	ck_assert_int_eq(table_need_ranks(t, TABLE_RANKS_MAX + 1), -EINVAL);
	ck_assert_int_eq(table_add_group(t, "zero1", 1, 1, 1, ranks), -EINVAL);
	ranks[0] = 0;
	ck_assert_int_eq(table_add_group(t, "zero1", 1, 1, 1, ranks), 0);
	ck_assert_int_eq(table_add_hyper(t, 0, key, 1), -EINVAL);
	ck_assert_int_eq(table_add_hyper(t, 0, "lr", 1), 0);
	ck_assert_int_eq(table_add_hyper(t, 0, "lr", 1), -EINVAL);
	ck_assert_int_eq(table_add_member(t, 0, 0), 0);
	ck_assert_int_eq(table_add_member(t, 0, 0), -EINVAL);
	for (int i = 0; i <= TABLE_KEYS_MAX && rc >= 0; i++) {
		snprintf(k, sizeof(k), "k%d", i);
		rc = table_add_state(t, k, FRAG_F32);
	}
	ck_assert_int_eq(rc, -EINVAL);
	ck_assert_ptr_nonnull(strstr(t->why, "kinds of states"));
	table_free(t);
}
END_TEST

START_TEST(vectors_do_not_overflow)
{
	const uint64_t half = 1ULL << 63;
	uint32_t file = add_file(INT64_MAX);

	ck_assert_int_ge(table_add_flat(table, FRAG_U8), 0);
	ck_assert_int_eq(table_add_segment(table, file, 0, 0, half - 1), 0);
	ck_assert_int_eq(table_add_segment(table, file, 0, 0, half - 1), 0);
	ck_assert_int_eq(table_add_segment(table, file, 0, 0, half - 1), -EOVERFLOW);
	ck_assert_int_eq(table_add_segment(table, file, TABLE_RANKS_MAX, 0, 1), -EINVAL);
	ck_assert_str_eq(table->why, "rank 65536 is too high");
}
END_TEST

START_TEST(elements_are_counted_without_overflow)
{
	const uint64_t most = INT64_MAX;
	uint32_t file = add_file(most);

	ck_assert_int_eq(add_tensor("w", 4, 6), 0);
	ck_assert_int_eq(table_add_state(table, "fp32", FRAG_U8), 0);
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(table_add_interval(table, file, 0, 0, i * most, most), 0);
	ck_assert_int_eq(table_finish(table), -EINVAL);
}
END_TEST

START_TEST(what_cannot_be_noted_is_enomem)
{
	table_note(table, "a line");
	fclose(table->notes);
	table->notes = fopen("/dev/full", "w");
	table_note(table, "another");
	ck_assert_int_eq(table_finish(table), -ENOMEM);
}
END_TEST

START_TEST(there_are_not_more_parts_than_may_be)
{
	int rc = 0;

	for (int i = 0; i <= TABLE_PARTS_MAX && !rc; i++)
		rc = table_begin_part(table, "mp");
	ck_assert_int_eq(rc, -EINVAL);
	ck_assert_ptr_nonnull(strstr(table->why, "more than 32768 parts"));
}
END_TEST

START_TEST(a_group_has_no_buffer)
{
	struct table_spec spec = { .name = "b", .dtype = FRAG_F32, .buffer = true };
	uint32_t rank = 0;
	int tensor = table_add_tensor(table, &spec);

	ck_assert_int_ge(tensor, 0);
	ck_assert_int_ge(table_add_state(table, "fp32", FRAG_F32), 0);
	ck_assert_int_eq(table_add_interval(table, add_file(4), 0, 0, 0, 1), 0);
	ck_assert_int_eq(table_add_group(table, "zero1", 1, 1, 1, &rank), 0);
	ck_assert_int_eq(table_add_member(table, 0, (uint32_t)tensor), 0);
	check_refused("group 0 has a buffer in it");
}
END_TEST

START_TEST(a_partition_has_a_state_once)
{
	struct table_partition of = { .rank = 0 };
	uint32_t file = add_file(16), rank = 0;

	ck_assert_int_eq(table_add_group(table, "zero1", 1, 1, 1, &rank), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_ge(table_add_partition(table, "fp32", FRAG_F32, &of, file, 0, 4),
				 0);
	check_refused("a partition of rank 0 has fp32 twice");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("table");
	TCase *boxes = tcase_create("boxes"), *tables = tcase_create("tables");

	tcase_add_test(boxes, boxes_hold_what_they_say);
	tcase_add_test(boxes, names_are_in_numeric_order);
	tcase_add_test(boxes, nothing_outside_is_opened);
	suite_add_tcase(s, boxes);
	tcase_set_timeout(tables, 60);
	tcase_add_checked_fixture(tables, setup, teardown);
	tcase_add_test(tables, a_text_is_short_and_has_no_nul);
	tcase_add_test(tables, a_hole_is_refused);
	tcase_add_test(tables, vectors_do_not_overflow);
	tcase_add_test(tables, elements_are_counted_without_overflow);
	tcase_add_test(tables, what_cannot_be_noted_is_enomem);
	tcase_add_test(tables, there_are_not_more_parts_than_may_be);
	tcase_add_test(tables, a_group_has_no_buffer);
	tcase_add_test(tables, a_partition_has_a_state_once);
	tcase_add_test(tables, too_few_elements_are_refused);
	tcase_add_test(tables, elements_twice_are_refused);
	tcase_add_test(tables, too_many_elements_are_refused);
	tcase_add_test(tables, data_past_the_file_are_refused);
	tcase_add_test(tables, boxes_cover_once);
	tcase_add_test(tables, boxes_that_overlap_are_refused);
	tcase_add_test(tables, boxes_with_a_hole_are_refused);
	tcase_add_test(tables, boxes_outside_are_refused);
	tcase_add_test(tables, shapes_that_overflow_are_refused);
	tcase_add_test(tables, names_are_unique);
	tcase_add_test(tables, states_are_unique);
	tcase_add_test(tables, a_vector_that_is_too_short_is_refused);
	tcase_add_test(tables, a_short_shard_is_refused);
	tcase_add_test(tables, equal_shards_are_arithmetic);
	tcase_add_test(tables, fp32_is_there_for_all_floats);
	tcase_add_test(tables, entries_are_found_by_place);
	tcase_add_test(tables, entries_past_the_file_are_refused);
	tcase_add_test(tables, entries_that_overlap_are_refused);
	tcase_add_test(tables, a_crc_among_data_is_refused);
	tcase_add_test(tables, copies_are_not_shown);
	tcase_add_test(tables, what_is_too_much_for_a_table_is_refused);
	tcase_add_test(tables, a_copy_with_a_hole_is_refused);
	return run_suite(s, tables);
}

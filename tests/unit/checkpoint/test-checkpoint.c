/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/convert.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/find-param.h"
#include "tests/unit/waiter.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>

/* TEST_SEED: of the ranges that are read. */

enum { FILES = 3, FILE_BYTES = 3 << 20, BIG = 1 << 20, RANGES = 300 };

static const struct disk_ops *disk; /* of this round */
static char dir[] = "/tmp/test-checkpoint-XXXXXX";
static uint8_t *bytes[FILES]; /* of the files */
static struct table *table;
static struct engine *engine;
static uint64_t seed;

static uint64_t next_random(void)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return seed >> 33;
}

/* ---- files ---- */

static void path_of(int file, char path[64])
{
	snprintf(path, 64, "%s/%d", dir, file);
}

static void write_file(int file)
{
	char path[64];
	int fd;

	path_of(file, path);
	fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes[file], FILE_BYTES), FILE_BYTES);
	close(fd);
}

static void add_file(int file)
{
	char path[64];
	struct stat st;
	int fd;

	path_of(file, path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert(fd >= 0 && !fstat(fd, &st));
	ck_assert_int_eq(table_add_file(table, path + strlen(dir) + 1, fd, &st), file);
}

/* ---- what the tensors hold ---- */

enum { INTERVALS, BOXES, FLAT_A, FLAT_B, EQUAL, SCALAR, EMPTY, LARGE, ODD, TENSORS };

static struct truth {
	const char *name, *key;
	size_t size; /* of an element */
	uint64_t numel;
	uint8_t *value;
} truths[TENSORS] = {
	[INTERVALS] = { "intervals", "bf16", 2, 700, NULL },
	[BOXES] = { "boxes", "fp32", 4, 6 * 8 * 5, NULL },
	[FLAT_A] = { "flat.a", "fp32", 4, 60, NULL },
	[FLAT_B] = { "flat.b", "fp32", 4, 77, NULL },
	[EQUAL] = { "equal", "fp32", 4, 20, NULL },
	[SCALAR] = { "scalar", "fp32", 4, 1, NULL },
	[EMPTY] = { "empty", "fp32", 4, 0, NULL },
	[LARGE] = { "large", "bf16", 2, BIG, NULL },
	[ODD] = { "odd", "u8", 1, 3, NULL },
};

static void take(int which, uint64_t element, int file, uint64_t at)
{
	struct truth *x = &truths[which];

	memcpy(x->value + element * x->size, bytes[file] + at, x->size);
}

static void take_run(int which, uint64_t element, uint64_t count, int file, uint64_t at)
{
	for (uint64_t i = 0; i < count; i++)
		take(which, element + i, file, at + i * truths[which].size);
}

static void add_tensor(int which, enum frag_dtype dtype, uint32_t ndim, const uint64_t *shape)
{
	struct table_spec spec = {
		.name = truths[which].name, .dtype = dtype, .ndim = ndim, .shape = shape
	};

	ck_assert_int_eq(table_add_tensor(table, &spec), which);
}

static void add_intervals(void)
{
	static const uint64_t cuts[] = { 0, 1, 250, 251, 600, 700 };

	add_tensor(INTERVALS, FRAG_BF16, 2, (uint64_t[]){ 100, 7 });
	ck_assert_int_ge(table_add_state(table, "bf16", FRAG_BF16), 0);
	for (int i = 4; i >= 0; i--) {
		uint64_t base = 1001 + (uint64_t)i * 5000, n = cuts[i + 1] - cuts[i];

		ck_assert(!table_add_interval(table, (uint32_t)i % 2, (uint32_t)i % 2, base,
					      cuts[i], n));
		take_run(INTERVALS, cuts[i], n, i % 2, base);
	}
}

static void add_box(const uint64_t *shape, uint32_t rank, uint64_t base, const uint64_t *o,
		    const uint64_t *s)
{
	ck_assert(!table_add_box(table, rank % 2, rank, base, o, s));
	for (uint64_t i = 0; i < s[0]; i++)
		for (uint64_t j = 0; j < s[1]; j++)
			take_run(BOXES, ((o[0] + i) * shape[1] + o[1] + j) * shape[2] + o[2],
				 s[2], (int)rank % 2, base + (i * s[1] + j) * s[2] * 4);
}

static void add_boxes(void)
{
	static const uint64_t shape[] = { 6, 8, 5 };

	add_tensor(BOXES, FRAG_F32, 3, shape);
	ck_assert_int_ge(table_add_state(table, "fp32", FRAG_F32), 0);
	add_box(shape, 0, 30003, (uint64_t[]){ 0, 0, 0 }, (uint64_t[]){ 2, 3, 5 });
	add_box(shape, 1, 40003, (uint64_t[]){ 0, 3, 0 }, (uint64_t[]){ 2, 5, 5 });
	add_box(shape, 2, 50003, (uint64_t[]){ 2, 0, 0 }, (uint64_t[]){ 4, 8, 2 });
	add_box(shape, 3, 60003, (uint64_t[]){ 2, 0, 2 }, (uint64_t[]){ 4, 8, 3 });
}

static void add_flats(void)
{
	static const uint64_t lengths[] = { 50, 50, 37 }, bases[] = { 70000, 80001, 90002 };
	uint64_t at = 0;

	ck_assert_int_eq(table_add_flat(table, FRAG_F32), 0);
	for (uint32_t rank = 0; rank < 3; rank++) {
		ck_assert(!table_add_segment(table, 1, rank, bases[rank], lengths[rank]));
		for (uint64_t i = 0; i < lengths[rank]; i++, at++)
			take(at < 60 ? FLAT_A : FLAT_B, at < 60 ? at : at - 60, 1,
			     bases[rank] + 4 * i);
	}
	add_tensor(FLAT_A, FRAG_BF16, 1, (uint64_t[]){ 60 });
	ck_assert_int_ge(table_add_flat_state(table, "fp32", 0, 0), 0);
	add_tensor(FLAT_B, FRAG_BF16, 1, (uint64_t[]){ 77 });
	ck_assert_int_ge(table_add_flat_state(table, "fp32", 0, 60), 0);
}

/* Ranks' vectors of 12 elements, each of two segments; the tensor is in the 7 from 3 on. */
static void add_equal(void)
{
	for (uint32_t rank = 0; rank < 3; rank++) {
		uint64_t base = 100000 + rank * 1000;

		ck_assert_int_eq(table_add_flat(table, FRAG_F32), (int)rank + 1);
		ck_assert(!table_add_segment(table, 0, rank, base, 5));
		ck_assert(!table_add_segment(table, 1, rank, base, 7));
		for (uint64_t i = 0; i < 7 && rank * 7 + i < 20; i++) {
			uint64_t at = 3 + i;

			take(EQUAL, rank * 7 + i, at >= 5, base + 4 * (at < 5 ? at : at - 5));
		}
	}
	add_tensor(EQUAL, FRAG_BF16, 2, (uint64_t[]){ 4, 5 });
	ck_assert_int_ge(table_add_equal_state(table, "fp32", 1, 3, 3), 0);
}

static void add_simple(int which, enum frag_dtype dtype, uint32_t ndim, const uint64_t *shape,
		       int file, uint64_t base)
{
	const struct truth *x = &truths[which];

	add_tensor(which, dtype, ndim, shape);
	ck_assert_int_ge(table_add_state(table, x->key, dtype), 0);
	ck_assert(!table_add_interval(table, (uint32_t)file, 0, base, 0, x->numel));
	take_run(which, 0, x->numel, file, base);
}

static void setup(void)
{
	const char *given = getenv("TEST_SEED");

	seed = given ? strtoull(given, NULL, 0) : monotonic_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	ck_assert_ptr_nonnull(mkdtemp(strcpy(dir, "/tmp/test-checkpoint-XXXXXX")));
	table = table_new();
	for (int i = 0; i < FILES; i++) {
		bytes[i] = malloc(FILE_BYTES);
		for (int j = 0; j < FILE_BYTES; j++)
			bytes[i][j] = (uint8_t)next_random();
		write_file(i);
		add_file(i);
	}
	for (int i = 0; i < TENSORS; i++)
		truths[i].value = malloc(truths[i].numel * truths[i].size + 1);
	add_intervals();
	add_boxes();
	add_flats();
	add_equal();
	add_simple(SCALAR, FRAG_F32, 0, NULL, 0, 7);
	add_simple(EMPTY, FRAG_F32, 2, (uint64_t[]){ 0, 4 }, 0, 0);
	add_simple(LARGE, FRAG_BF16, 1, (uint64_t[]){ BIG }, 2, 4099);
	add_simple(ODD, FRAG_U8, 1, (uint64_t[]){ 3 }, 1, 77);
	ck_assert_int_eq(table_finish(table), 0);
	ck_assert_int_eq(checkpoint_new(&engine, dir, "test", table, disk), 0);
	ck_assert_uint_eq(engine_nparams(engine), TENSORS);
	ck_assert(!engine_is_live(engine));
}

static void teardown(void)
{
	char path[64];

	engine_close(engine);
	for (int i = 0; i < FILES; i++) {
		path_of(i, path);
		unlink(path);
		free(bytes[i]);
	}
	for (int i = 0; i < TENSORS; i++)
		free(truths[i].value);
	ck_assert(!rmdir(dir));
}

/* ---- reading ---- */

static struct engine_file *open_state(enum engine_address_kind kind, int which, const char *key,
				      uint32_t rank, uint64_t *size)
{
	struct engine_address a = { .kind = kind, .rank = rank };
	struct engine_file *file;

	strcpy(a.key, key);
	ck_assert_int_eq(find_param(engine, truths[which].name, "", &a.param), 0);
	if (engine_file_open(engine, &a, &file, size))
		return NULL;
	return file;
}

/* Out of the page cache, as far as the file system of /tmp does that. */
static void make_cold(void)
{
	for (int i = 0; i < FILES; i++) {
		fdatasync(table->files[i].fd);
		posix_fadvise(table->files[i].fd, 0, 0, POSIX_FADV_DONTNEED);
	}
}

static void check_ranges(struct engine_file *file, const uint8_t *expected, uint64_t size,
			 int ranges)
{
	uint8_t *got = malloc(ENGINE_READ_MAX);

	for (int i = 0; i < ranges; i++) {
		uint64_t offset = next_random() % (size + 2);
		size_t n = next_random() % u64_min(size + 2, ENGINE_READ_MAX);
		uint64_t there = offset < size ? u64_min(n, size - offset) : 0;

		if (i % 50 == 0)
			make_cold();
		ck_assert_int_eq(waiter_read(engine, file, offset, n, got), (int64_t)there);
		ck_assert_msg(!memcmp(got, expected + offset, there), "%llu at %llu",
			      (unsigned long long)n, (unsigned long long)offset);
	}
	free(got);
}

START_TEST(states_are_what_the_files_hold)
{
	for (int i = 0; i < TENSORS; i++) {
		const struct truth *x = &truths[i];
		uint64_t size;
		struct engine_file *file = open_state(ENGINE_PARAM, i, x->key, 0, &size);

		ck_assert_ptr_nonnull(file);
		ck_assert_uint_eq(size, x->numel * x->size);
		check_ranges(file, x->value, size, i == LARGE ? RANGES / 10 : RANGES);
		engine_file_close(file);
	}
}
END_TEST

enum { MANY = 40 };

/* Appends what a state holds, widened or not, to a list and to what the list holds. */
static void add_to_list(int which, bool wide, struct engine_address *a, uint8_t *all,
			uint64_t *size)
{
	const struct truth *x = &truths[which];

	*a = (struct engine_address){ .kind = ENGINE_PARAM };
	ck_assert_int_eq(find_param(engine, x->name, "", &a->param), 0);
	strcpy(a->key, wide ? "fp32" : x->key);
	if (wide) { /* at an address of any kind */
		uint32_t *values = malloc(x->numel * 4);

		convert_bf16_to_f32(values, (const uint16_t *)(const void *)x->value, x->numel);
		memcpy(all + *size, values, x->numel * 4);
		free(values);
	} else {
		memcpy(all + *size, x->value, x->numel * x->size);
	}
	*size += x->numel * (wide ? 4 : x->size);
}

START_TEST(a_file_of_many_states_has_one_after_the_other)
{
	uint8_t *all = malloc(MANY * 4096 + BIG * 2);
	struct engine_address list[MANY];
	struct engine_file *file;
	uint64_t size = 0, opened;

	for (int i = 0; i < MANY; i++) {
		int which = i == 5 ? LARGE : (int)(next_random() % TENSORS);

		if (i != 5 && which == LARGE)
			which = ODD;
		add_to_list(which, which == INTERVALS && next_random() % 2, &list[i], all,
			    &size);
	}
	ck_assert_int_eq(engine_file_open_many(engine, list, MANY, &file, &opened), 0);
	ck_assert_uint_eq(opened, size);
	check_ranges(file, all, size, RANGES);
	engine_file_close(file);
	free(all);
}
END_TEST

START_TEST(fp32_is_the_exact_widening)
{
	static const int wide[] = { INTERVALS, LARGE };

	for (size_t i = 0; i < ARRAY_SIZE(wide); i++) {
		const struct truth *x = &truths[wide[i]];
		uint32_t *expected = malloc(x->numel * 4);
		uint64_t size;
		struct engine_file *file = open_state(ENGINE_PARAM, wide[i], "fp32", 0, &size);

		ck_assert_ptr_nonnull(file);
		ck_assert_uint_eq(size, x->numel * 4);
		for (uint64_t j = 0; j < x->numel; j++)
			expected[j] = (uint32_t)(x->value[2 * j] | x->value[2 * j + 1] << 8)
				      << 16;
		check_ranges(file, (uint8_t *)expected, size, RANGES / 10);
		engine_file_close(file);
		free(expected);
	}
}
END_TEST

/* What ranks hold, one after the other, is the whole where no box is. */
START_TEST(ranks_hold_their_pieces)
{
	static const int which[] = { FLAT_A, FLAT_B, EQUAL };

	for (size_t i = 0; i < ARRAY_SIZE(which); i++) {
		const struct truth *x = &truths[which[i]];
		uint64_t at = 0;

		for (uint32_t rank = 0; rank < 3; rank++) {
			uint64_t size;
			struct engine_file *file =
				open_state(ENGINE_RANK_PARAM, which[i], x->key, rank, &size);

			if (!file)
				continue;
			check_ranges(file, x->value + at, size, RANGES / 3);
			engine_file_close(file);
			at += size;
		}
		ck_assert_uint_eq(at, x->numel * x->size);
	}
}
END_TEST

START_TEST(a_rank_has_its_box_in_the_boxs_order)
{
	uint64_t size;
	struct engine_file *file = open_state(ENGINE_RANK_PARAM, BOXES, "fp32", 3, &size);

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(size, 4 * 8 * 3 * 4);
	check_ranges(file, bytes[1] + 60003, size, RANGES / 3);
	engine_file_close(file);
}
END_TEST

/* ---- files that change ---- */

static int64_t read_large(void)
{
	uint64_t size;
	struct engine_file *file = open_state(ENGINE_PARAM, LARGE, "bf16", 0, &size);
	uint8_t *got = malloc(ENGINE_READ_MAX);
	int64_t result = waiter_read(engine, file, ENGINE_READ_MAX, ENGINE_READ_MAX, got);

	free(got);
	engine_file_close(file);
	return result;
}

START_TEST(a_truncated_file_is_stale)
{
	char path[64];

	path_of(2, path);
	ck_assert_int_eq(read_large(), ENGINE_READ_MAX);
	ck_assert(!truncate(path, 1 << 20));
	ck_assert_int_eq(read_large(), -ESTALE);
}
END_TEST

START_TEST(a_replaced_file_is_stale)
{
	char path[64], other[64];

	path_of(2, path);
	path_of(1, other);
	ck_assert(!rename(other, path));
	ck_assert_int_eq(read_large(), -ESTALE);
	write_file(1);
}
END_TEST

START_TEST(an_edited_file_is_stale)
{
	struct timespec times[2] = { { 1, 1 }, { 1, 1 } };
	char path[64];

	path_of(2, path);
	ck_assert(!utimensat(AT_FDCWD, path, times, 0));
	ck_assert_int_eq(read_large(), -ESTALE);
}
END_TEST

/* ---- a disk that takes its time ---- */

static TAILQ_HEAD(, disk_io) held = TAILQ_HEAD_INITIALIZER(held);
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static int hold_open(struct disk **d, struct disk_setup *slabs)
{
	*d = NULL;
	return 0;
}

static void hold_close(struct disk *d)
{
}

static void hold_submit(struct disk *d, struct disk_io *read)
{
	pthread_mutex_lock(&held_lock);
	TAILQ_INSERT_HEAD(&held, read, next);
	pthread_mutex_unlock(&held_lock);
}

static const struct disk_ops disk_hold = { "hold", hold_open, hold_close, hold_submit, NULL };

static bool is_cached(int fd, uint64_t offset)
{
	char byte;
	struct iovec to = { &byte, 1 };

	return preadv2(fd, &to, 1, (off_t)offset, RWF_NOWAIT) == 1;
}

static void end_held(int (*how)(struct disk_io *read))
{
	struct disk_io *read;

	while ((read = TAILQ_FIRST(&held))) {
		TAILQ_REMOVE(&held, read, next);
		read->done(read, how(read));
	}
}

static int read_all(struct disk_io *r)
{
	return (int)pread(r->fd, r->memory, r->size, (off_t)r->offset);
}

static int read_some(struct disk_io *r)
{
	return (int)pread(r->fd, r->memory, r->size / 2 + 1, (off_t)r->offset);
}

static int fail_all(struct disk_io *r)
{
	return -EIO;
}

static int end_early(struct disk_io *r)
{
	return 0;
}

static struct waiter slow;
static struct engine_read slow_read;
static struct engine_file *slow_file;

/* False: all of it is cached, so that no disk would be asked. */
static bool start_slow(void)
{
	uint64_t size;

	make_cold();
	slow_file = open_state(ENGINE_PARAM, LARGE, "bf16", 0, &size);
	waiter_init(&slow, malloc(ENGINE_READ_MAX));
	slow_read = (struct engine_read){ .file = slow_file,
					  .size = ENGINE_READ_MAX,
					  .done = waiter_was_read,
					  .owner = &slow };
	if (is_cached(table->files[2].fd, FILE_BYTES / 4))
		return false;
	engine_read(engine, &slow_read);
	return true;
}

static void end_slow(void)
{
	engine_file_close(slow_file);
	free(slow.out);
}

START_TEST(short_reads_go_on)
{
	if (start_slow()) {
		end_held(read_some);
		ck_assert_int_eq(waiter_wait(&slow), ENGINE_READ_MAX);
		ck_assert(!memcmp(slow.out, truths[LARGE].value, ENGINE_READ_MAX));
	}
	end_slow();
}
END_TEST

START_TEST(a_read_can_be_cancelled)
{
	bool started = start_slow();

	if (started) {
		engine_read_cancel(engine, &slow_read);
		ck_assert_int_eq(waiter_wait(&slow), -ECANCELED);
	}
	end_slow();
	end_held(read_all);
}
END_TEST

START_TEST(errors_of_the_disk_are_told)
{
	if (start_slow()) {
		end_held(fail_all);
		ck_assert_int_eq(waiter_wait(&slow), -EIO);
	}
	end_slow();
	if (start_slow()) {
		end_held(end_early);
		ck_assert_int_eq(waiter_wait(&slow), -EIO);
	}
	end_slow();
}
END_TEST

/* ---- what is not there ---- */

static void on_write(struct engine_write *write, int result)
{
	*(int *)write->owner = result;
}

static void see_fragment(void *arg, const struct engine_fragment *f)
{
	const char **expected = arg;
	char line[128];

	snprintf(line, sizeof(line), "%u %s %llu %llu %llu\n", f->rank, f->file,
		 (unsigned long long)f->base, (unsigned long long)f->param_offset,
		 (unsigned long long)f->numel);
	ck_assert_msg(!strncmp(*expected, line, strlen(line)), "%s", line);
	*expected += strlen(line);
}

START_TEST(nothing_else_is_there)
{
	struct engine_state states[8];
	struct engine_address a = { .kind = ENGINE_RANK_PARTITION, .key = "fp32" };
	struct engine_file *file;
	struct engine_job job;
	uint64_t size;
	const char *expected = "0 0 100012 0 2\n0 1 100000 2 5\n1 0 101012 7 2\n"
			       "1 1 101000 9 5\n2 0 102012 14 2\n2 1 102000 16 4\n";
	int written = 1;

	ck_assert_int_eq(engine_file_open(engine, &a, &file, &size), -ENOENT);
	ck_assert_ptr_null(open_state(ENGINE_PARAM, BOXES, "exp_avg", 0, &size));
	ck_assert_ptr_null(open_state(ENGINE_RANK_PARAM, INTERVALS, "fp32", 0, &size));
	ck_assert_int_eq(engine_states(engine, INTERVALS, states, 8), 2);
	ck_assert_int_eq(engine_rank_states(engine, 0, INTERVALS, states, 8), 1);
	ck_assert_int_eq(engine_states(engine, TENSORS, states, 8), -ENOENT);
	engine_job(engine, &job);
	ck_assert(!job.has_step);
	engine_write(engine, &(struct engine_write){ .done = on_write, .owner = &written });
	ck_assert_int_eq(written, -EROFS);
	ck_assert_int_eq(engine_place(engine, "params/w/fp32", "host"), -EOPNOTSUPP);
	engine_fragments(engine, EQUAL, "fp32", see_fragment, &expected);
	ck_assert_str_eq(expected, "");
}
END_TEST

static void run(SRunner **runner, Suite *s)
{
	if (*runner)
		srunner_add_suite(*runner, s);
	else
		*runner = srunner_create(s);
}

static Suite *suite_over(const char *name, void (*choose)(void))
{
	Suite *s = suite_create(name);
	TCase *c = tcase_create(name);

	tcase_set_timeout(c, 60);
	tcase_add_unchecked_fixture(c, choose, NULL);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, states_are_what_the_files_hold);
	tcase_add_loop_test(c, a_file_of_many_states_has_one_after_the_other, 0, 5);
	tcase_add_test(c, fp32_is_the_exact_widening);
	tcase_add_test(c, ranks_hold_their_pieces);
	tcase_add_test(c, a_rank_has_its_box_in_the_boxs_order);
	tcase_add_test(c, a_truncated_file_is_stale);
	tcase_add_test(c, a_replaced_file_is_stale);
	tcase_add_test(c, an_edited_file_is_stale);
	suite_add_tcase(s, c);
	return s;
}

static void choose_best(void)
{
	disk = NULL;
}

static void choose_pread(void)
{
	disk = &disk_threads;
}

static void choose_hold(void)
{
	disk = &disk_hold;
}

static Suite *suite_of_slow_disk(void)
{
	Suite *s = suite_create("a slow disk");
	TCase *c = tcase_create("a slow disk");

	tcase_add_unchecked_fixture(c, choose_hold, NULL);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, short_reads_go_on);
	tcase_add_test(c, a_read_can_be_cancelled);
	tcase_add_test(c, errors_of_the_disk_are_told);
	tcase_add_test(c, nothing_else_is_there);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	SRunner *runner = NULL;
	int failed;

	run(&runner, suite_over("the best disk", choose_best));
	run(&runner, suite_over("pread", choose_pread));
	run(&runner, suite_of_slow_disk());
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}

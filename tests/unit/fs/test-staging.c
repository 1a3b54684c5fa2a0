/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/staging.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <string.h>

enum { MIB = 1 << 20, FILE_BYTES = 5 * STAGING_BLOCK + 123 };

static struct staging_pool pool;
static struct staging staging;

static void begin(uint64_t limit, uint64_t bytes)
{
	staging_pool_init(&pool, limit);
	staging_init(&staging, &pool, bytes);
}

static void end(void)
{
	staging_fini(&staging);
	ck_assert_uint_eq(pool.used, 0);
	staging_pool_fini(&pool);
}

static void write_bytes(uint64_t offset, size_t size, int value)
{
	unsigned char *data = malloc(size + 1);

	memset(data, value, size);
	ck_assert_int_eq(staging_write(&staging, offset, data, size), 0);
	free(data);
}

START_TEST(nothing_written_is_nothing_staged)
{
	struct engine_extent *extents;
	char byte = 'x';

	begin(MIB, 100);
	ck_assert_int_eq(staging_write(&staging, 100, "", 0), 0);
	ck_assert_uint_eq(staging.covered, 0);
	staging_overlay(&staging, 0, &byte, 1);
	ck_assert_int_eq(byte, 'x');
	ck_assert_int_eq(staging_extents(&staging, &extents), 0);
	free(extents);
	end();
}
END_TEST

START_TEST(touching_and_overlapping_writes_are_one_extent)
{
	struct engine_extent *extents;

	begin(MIB, 1000);
	write_bytes(100, 10, 1);
	write_bytes(120, 10, 2);
	write_bytes(110, 10, 3);
	write_bytes(105, 3, 4);
	write_bytes(125, 10, 5);
	ck_assert_uint_eq(staging.covered, 35);
	ck_assert_int_eq(staging_extents(&staging, &extents), 1);
	ck_assert_uint_eq(extents[0].offset, 100);
	ck_assert_uint_eq(extents[0].size, 35);
	ck_assert_mem_eq(
		extents[0].data,
		"\1\1\1\1\1\4\4\4\1\1\3\3\3\3\3\3\3\3\3\3\2\2\2\2\2\5\5\5\5\5\5\5\5\5\5", 35);
	free(extents);
	end();
}
END_TEST

START_TEST(a_whole_file_written_in_order_is_few_extents)
{
	struct engine_extent *extents;
	uint64_t bytes = 3 * STAGING_SLAB + 17, at = 0;
	int64_t n;

	begin(64 * MIB, bytes);
	while (at < bytes) {
		size_t size = u64_min(1048528, bytes - at);

		write_bytes(at, size, (int)(at % 251));
		at += size;
	}
	ck_assert_uint_eq(staging.covered, bytes);
	n = staging_extents(&staging, &extents);
	ck_assert_int_ge(n, 1);
	ck_assert_int_le(n, 4);
	free(extents);
	end();
}
END_TEST

/* Against an array with a mark per byte. */
START_TEST(random_writes_match_a_plain_model)
{
	static unsigned char bytes[FILE_BYTES], marks[FILE_BYTES], got[FILE_BYTES];
	unsigned seed = 0x5eed;

	begin(16 * MIB, FILE_BYTES);
	for (int round = 1; round < 400; round++) {
		uint64_t offset = (uint64_t)rand_r(&seed) % FILE_BYTES, covered = 0, at = 0;
		size_t size = (size_t)rand_r(&seed) % (round % 10 ? 300 : 2 * STAGING_BLOCK);
		struct engine_extent *extents;
		int64_t n;

		size = u64_min(size, FILE_BYTES - offset);
		write_bytes(offset, size, round & 0xff);
		memset(bytes + offset, round & 0xff, size);
		memset(marks + offset, 1, size);
		for (size_t i = 0; i < FILE_BYTES; i++)
			covered += marks[i];
		ck_assert_uint_eq(staging.covered, covered);

		memset(got, 0, sizeof(got));
		staging_overlay(&staging, 0, got, FILE_BYTES);
		ck_assert(!memcmp(got, bytes, FILE_BYTES));
		n = staging_extents(&staging, &extents);
		for (int64_t i = 0; i < n; i++) {
			ck_assert_uint_ge(extents[i].offset, at);
			at = extents[i].offset + extents[i].size;
			covered -= extents[i].size;
			ck_assert(!memcmp(extents[i].data, bytes + extents[i].offset,
					  extents[i].size));
		}
		ck_assert_uint_eq(covered, 0);
		free(extents);
	}
	end();
}
END_TEST

START_TEST(gaps_are_filled_with_zeros)
{
	static unsigned char bytes[FILE_BYTES], got[FILE_BYTES];
	const uint64_t at[] = { 0, 90, 200, STAGING_BLOCK - 5, 3 * STAGING_BLOCK + 7 };

	begin(MIB, FILE_BYTES);
	for (int used = 0; used < 2; used++) { /* memory that other bytes were in, then */
		memset(bytes, 0, sizeof(bytes));
		memset(bytes, '.', 100);
		for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
			write_bytes(at[i], 20, 'w');
			memset(bytes + at[i], 'w', 20);
		}
		ck_assert_int_eq(staging_fill(&staging, 100), 0);
		ck_assert_uint_eq(staging.covered, FILE_BYTES - 70);
		memset(got, '.', sizeof(got));
		staging_overlay(&staging, 0, got, FILE_BYTES);
		ck_assert(!memcmp(got, bytes, FILE_BYTES));
		ck_assert_int_eq(staging_fill(&staging, FILE_BYTES), 0);
		write_bytes(0, FILE_BYTES, 'x');
		staging_fini(&staging);
	}
	end();
	begin(2 * STAGING_BLOCK, FILE_BYTES);
	ck_assert_int_eq(staging_fill(&staging, 0), -ENOSPC);
	end();
}
END_TEST

START_TEST(overlay_writes_only_what_is_staged_and_asked_for)
{
	char out[16];

	begin(MIB, FILE_BYTES);
	write_bytes(STAGING_BLOCK - 4, 8, 'w');
	memset(out, '.', sizeof(out));
	staging_overlay(&staging, STAGING_BLOCK - 8, out, 14);
	ck_assert_mem_eq(out, "....wwwwwwww....", 16);
	memset(out, '.', sizeof(out));
	staging_overlay(&staging, STAGING_BLOCK - 2, out, 4);
	ck_assert_mem_eq(out, "wwww............", 16);
	end();
}
END_TEST

START_TEST(over_the_limit_nothing_is_taken)
{
	static char data[3 * STAGING_BLOCK];
	struct staging other;

	begin(2 * STAGING_BLOCK, FILE_BYTES);
	ck_assert_int_eq(staging_write(&staging, 0, data, 3 * STAGING_BLOCK), -ENOSPC);
	ck_assert_uint_eq(staging.covered, 0);
	ck_assert_uint_eq(pool.used, 0);
	write_bytes(0, STAGING_BLOCK + 1, 1);
	staging_init(&other, &pool, 10);
	ck_assert_int_eq(staging_write(&other, 0, data, 1), -ENOSPC);
	/* What is there already can still be written over. */
	write_bytes(5, 7, 2);
	staging_fini(&staging);
	ck_assert_int_eq(staging_write(&other, 0, data, 1), 0);
	staging_fini(&other);
	end();
}
END_TEST

START_TEST(memory_is_used_again)
{
	begin(4 * STAGING_SLAB, 2 * STAGING_SLAB);
	write_bytes(0, 2 * STAGING_SLAB, 0);
	staging_fini(&staging);
	ck_assert(!SLIST_EMPTY(&pool.slabs));
	for (int i = 1; i < 20; i++) {
		unsigned char out[2] = { 0, 0 };

		write_bytes(0, 2 * STAGING_SLAB, i);
		ck_assert(SLIST_EMPTY(&pool.slabs));
		ck_assert_uint_eq(pool.used, 2 * STAGING_SLAB);
		staging_overlay(&staging, STAGING_SLAB - 1, out, 2);
		ck_assert(out[0] == i && out[1] == i);
		staging_fini(&staging);
		ck_assert_uint_eq(pool.used, 0);
	}
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("staging");
	TCase *t = tcase_create("staging");

	tcase_add_test(t, nothing_written_is_nothing_staged);
	tcase_add_test(t, touching_and_overlapping_writes_are_one_extent);
	tcase_add_test(t, a_whole_file_written_in_order_is_few_extents);
	tcase_add_test(t, random_writes_match_a_plain_model);
	tcase_add_test(t, gaps_are_filled_with_zeros);
	tcase_add_test(t, overlay_writes_only_what_is_staged_and_asked_for);
	tcase_add_test(t, over_the_limit_nothing_is_taken);
	tcase_add_test(t, memory_is_used_again);
	return run_suite(s, t);
}

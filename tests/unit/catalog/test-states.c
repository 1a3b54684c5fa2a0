/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/states.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct state_segment nothing;

static uint64_t bytes_of(const struct states *s)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < s->nrows; i++)
		bytes += states_row_bytes(&s->rows[i]);
	return bytes;
}

static struct state_segment segment(uint64_t start, uint64_t numel, uint64_t address)
{
	return (struct state_segment){ start, numel, address };
}

static int add(struct states *s, enum state_kind kind, uint32_t index, const char *key,
	       uint64_t numel)
{
	return states_add(s, kind, index, 0, key, FRAG_F32, numel, nothing);
}

START_TEST(rows_are_found_by_kind_index_sub_and_key)
{
	struct states s = { .epoch = 1 };

	ck_assert_int_eq(states_find(&s, STATE_PARTITION, 0, 0, "fp32"), -ENOENT);
	ck_assert_int_eq(add(&s, STATE_PARTITION, 0, "fp32", 8), 0);
	ck_assert_int_eq(add(&s, STATE_PARTITION, 1, "fp32", 8), 1);
	ck_assert_int_eq(add(&s, STATE_WHOLE, 0, "fp32", 8), 2);
	ck_assert_int_eq(states_add(&s, STATE_PARTITION, 0, 1, "fp32", FRAG_F32, 8, nothing),
			 3);
	ck_assert_int_eq(add(&s, STATE_PARTITION, 0, "fp32", 8), -EEXIST);
	ck_assert_int_eq(states_find(&s, STATE_PARTITION, 1, 0, "fp32"), 1);
	ck_assert_int_eq(states_find(&s, STATE_WHOLE, 0, 0, "fp32"), 2);
	ck_assert_int_eq(states_find(&s, STATE_PARTITION, 0, 1, "fp32"), 3);
	ck_assert_int_eq(states_find(&s, STATE_PARTITION, 0, 1, "fp3"), -ENOENT);
	states_drop(&s, 1);
	ck_assert_int_eq(states_find(&s, STATE_PARTITION, 1, 0, "fp32"), -ENOENT);
	ck_assert_int_eq(states_find(&s, STATE_PARTITION, 0, 1, "fp32"), 3);
	states_fini(&s);
}
END_TEST

START_TEST(a_state_that_comes_and_goes_needs_no_more_room_each_time)
{
	struct states s = { .epoch = 1 };
	int row;

	add(&s, STATE_PARTITION, 0, "fp32", 8);
	for (int i = 0; i < 1000; i++) {
		row = states_add(&s, STATE_PARTITION, 0, 0, "grad", FRAG_F32, 8,
				 segment(0, 8, 4096));
		ck_assert_int_ge(row, 0);
		ck_assert_int_eq(states_find(&s, STATE_PARTITION, 0, 0, "grad"), row);
		states_drop(&s, (uint32_t)row);
		ck_assert_int_eq(states_find(&s, STATE_PARTITION, 0, 0, "grad"), -ENOENT);
	}
	ck_assert_uint_le(s.nrows, 2);
	ck_assert_uint_le(s.ngroup_rows, 1);
	states_fini(&s);
}
END_TEST

static int find_by_walk(const struct states *s, uint32_t param)
{
	for (uint32_t i = 0; i < s->nrows; i++)
		if (s->rows[i].kind == STATE_LP && s->rows[i].index == param)
			return (int)i;
	return -ENOENT;
}

/* The index is as full as it gets, so that its runs of entries are long. */
START_TEST(rows_are_found_whichever_come_and_go)
{
	enum { PARAMS = 256, LIVE_MAX = 128, CHANGES = 2000 };
	struct states s = { .epoch = 1 };
	unsigned seed = 1;
	int live = 0;

	for (int n = 0; n < CHANGES; n++) {
		uint32_t param = (uint32_t)rand_r(&seed) % PARAMS;
		int row = find_by_walk(&s, param);

		if (row >= 0)
			states_drop(&s, (uint32_t)row);
		else if (live < LIVE_MAX)
			ck_assert_int_ge(add(&s, STATE_LP, param, "", 8), 0);
		else
			continue;
		live += row < 0 ? 1 : -1;
		for (uint32_t i = 0; i < PARAMS; i++)
			ck_assert_int_eq(states_find(&s, STATE_LP, i, 0, ""),
					 find_by_walk(&s, i));
	}
	ck_assert_uint_eq(s.nrows, LIVE_MAX);
	ck_assert_uint_eq(s.index_room, 2 * LIVE_MAX);
	states_fini(&s);
}
END_TEST

START_TEST(segments_are_sorted_and_do_not_overlap)
{
	const struct state_segment all[] = {
		segment(0, 10, 0),       segment(10, 10, 0x1000), segment(20, 30, 0x2000),
		segment(50, 10, 0x5000), segment(60, 40, 0x6000),
	};
	struct states s = { .epoch = 1 };
	const struct state_row *row;

	ck_assert_int_eq(add(&s, STATE_PARTITION, 0, "grad", 100), 0);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(50, 10, 0x5000)), 0);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(10, 10, 0x1000)), 0);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(20, 30, 0x2000)), 0);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(59, 2, 0x9000)), -EEXIST);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(0, 11, 0x9000)), -EEXIST);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(0, 100, 0x9000)), -EEXIST);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(25, 1, 0x9000)), -EEXIST);
	ck_assert_int_eq(states_add_segment(&s, 0, segment(60, 40, 0x6000)), 0);
	row = &s.rows[0];
	ck_assert_uint_eq(row->nextents, ARRAY_SIZE(all));
	for (uint32_t i = 0; i < row->nextents; i++) {
		struct state_segment is = states_segment(row, i);

		ck_assert_mem_eq(&is, &all[i], sizeof(is));
	}
	ck_assert_uint_eq(bytes_of(&s), 90 * 4);
	states_fini(&s);
}
END_TEST

START_TEST(a_gap_is_filled_from_any_side_and_what_is_left_of_it_stays)
{
	static const struct {
		uint64_t start, numel;
		uint32_t nextents;
	} fills[] = { { 20, 40, 3 }, { 20, 10, 4 }, { 50, 10, 4 }, { 30, 10, 5 } };

	for (size_t i = 0; i < ARRAY_SIZE(fills); i++) {
		struct states s = { .epoch = 1 };
		struct iovec parts[4];

		add(&s, STATE_PARTITION, 0, "grad", 100);
		states_add_segment(&s, 0, segment(0, 20, 0x1000));
		states_add_segment(&s, 0, segment(60, 40, 0x6000));
		ck_assert_ptr_null(states_find_extent(&s.rows[0], 30, 10));
		ck_assert_int_eq(
			states_add_segment(&s, 0,
					   segment(fills[i].start, fills[i].numel, 0x2000)),
			0);
		ck_assert_uint_eq(s.rows[0].nextents, fills[i].nextents);
		ck_assert_ptr_nonnull(
			states_find_extent(&s.rows[0], fills[i].start, fills[i].numel));
		ck_assert_uint_eq(bytes_of(&s), (60 + fills[i].numel) * 4);
		ck_assert_int_eq(states_resolve(&s.rows[0], 0, 400, parts, 4),
				 fills[i].numel == 40 ? 3 : -ENODATA);
		ck_assert_int_eq(states_resolve(&s.rows[0], fills[i].start * 4,
						fills[i].numel * 4, parts, 4),
				 1);
		ck_assert_uint_eq((uintptr_t)parts[0].iov_base, 0x2000);
		states_fini(&s);
	}
}
END_TEST

START_TEST(bytes_are_resolved_across_segments_and_gaps_are_said)
{
	struct states s = { .epoch = 1 };
	const struct state_row *row;
	struct iovec parts[4];

	add(&s, STATE_PARTITION, 0, "grad", 100);
	states_add_segment(&s, 0, segment(10, 10, 0x1000));
	states_add_segment(&s, 0, segment(20, 30, 0x2000));
	states_add_segment(&s, 0, segment(60, 40, 0x6000));
	row = &s.rows[0];
	ck_assert_int_eq(states_resolve(row, 41, 40, parts, 4), 2); /* from inside an element */
	ck_assert_uint_eq((uintptr_t)parts[0].iov_base, 0x1001);
	ck_assert_uint_eq(parts[0].iov_len, 39);
	ck_assert_uint_eq((uintptr_t)parts[1].iov_base, 0x2000);
	ck_assert_uint_eq(parts[1].iov_len, 1);
	ck_assert_int_eq(states_resolve(row, 40, 160, parts, 1), -E2BIG);
	ck_assert_int_eq(states_resolve(row, 39, 2, parts, 4), -ENODATA);
	ck_assert_int_eq(states_resolve(row, 199, 2, parts, 4), -ENODATA);
	ck_assert_int_eq(states_resolve(row, 240, 160, parts, 4), 1);
	ck_assert_int_eq(states_resolve(row, 240, 161, parts, 4), -EINVAL);
	ck_assert_int_eq(states_resolve(row, UINT64_MAX, 2, parts, 4), -EINVAL);
	ck_assert_int_eq(states_resolve(row, 400, 0, parts, 4), 0);
	states_fini(&s);
}
END_TEST

/* ---- encoding ---- */

static void fill(struct states *s)
{
	*s = (struct states){ .epoch = 77 };
	states_add(s, STATE_PARTITION, 1, 2, "exp_avg", FRAG_F32, 64, segment(0, 64, 0x10000));
	states_add(s, STATE_LP, 3, 0, "", FRAG_BF16, 64, segment(0, 64, 0x20000));
	states_add(s, STATE_HYPER, 0, 0, "lr", FRAG_F64, 1, segment(0, 1, 0x30000));
	states_add(s, STATE_PARTITION, 0, 0, "grad", FRAG_F32, 64, segment(32, 16, 0x40000));
	states_add_segment(s, 3, segment(0, 16, 0x50000));
	states_add(s, STATE_PUBLISHED, 0, 0, "loss", FRAG_U8, 8, segment(0, 8, 0x60000));
	states_drop(s, 2);
	states_add_share(s, (struct state_share){ 5, 0x10000, 256 });
}

static const uint32_t params[] = { 10, 11, 12, 13 }, groups[] = { 20, 21 };

static struct wire_writer encoded(const struct states *s)
{
	struct wire_writer w = { 0 };

	ck_assert_int_eq(states_encode(s, params, groups, &w), 0);
	return w;
}

START_TEST(an_encoding_decodes_to_the_same_rows_under_the_jobs_numbers)
{
	struct states s, *d;
	struct wire_writer w;

	fill(&s);
	w = encoded(&s);
	ck_assert_int_eq(states_decode(&d, w.data, w.size), 0);
	ck_assert_uint_eq(d->epoch, 77);
	ck_assert_uint_eq(d->nrows, s.nrows);
	ck_assert_int_eq(states_find(d, STATE_PARTITION, 21, 2, "exp_avg"), 0);
	ck_assert_int_eq(states_find(d, STATE_LP, 13, 0, ""), 1);
	ck_assert_int_eq(states_find(d, STATE_HYPER, 20, 0, "lr"), -ENOENT);
	ck_assert_int_eq(states_find(d, STATE_PARTITION, 20, 0, "grad"), 3);
	ck_assert_uint_eq(d->rows[3].nextents, 3);
	ck_assert_uint_eq(d->rows[3].extents[1].address, 0); /* a gap */
	ck_assert_uint_eq(d->rows[3].extents[2].address, 0x40000);
	ck_assert_int_eq(states_find(d, STATE_PUBLISHED, 0, 0, "loss"), 4);
	ck_assert_uint_eq(d->nshares, 1);
	ck_assert_int_eq(d->shares[0].fd, 5);
	ck_assert_uint_eq(bytes_of(d), bytes_of(&s));
	free(w.data);
	states_fini(&s);
	states_free(d);
}
END_TEST

/* Every byte of every row can be asked for without harm. */
static void check_whole(const struct states *d)
{
	struct iovec parts[8];

	for (uint32_t i = 0; i < d->nrows; i++) {
		const struct state_row *row = &d->rows[i];
		uint64_t bytes = row->numel * frag_dtype_size(row->dtype);

		if (row->kind == STATE_NONE) {
			ck_assert_uint_eq(row->nextents, 0);
			continue;
		}
		ck_assert_int_eq(states_find(d, row->kind, row->index, row->sub, row->key),
				 (int)i);
		for (uint64_t at = 0; at < bytes && at < 1024; at += 1 + at / 2) {
			int n = states_resolve(row, at, bytes - at, parts, 8);

			ck_assert(n <= 8);
			for (int k = 0; k < n; k++)
				ck_assert_uint_le(parts[k].iov_len, bytes);
		}
		ck_assert_int_eq(states_resolve(row, bytes, 1, parts, 8), -EINVAL);
	}
	bytes_of(d);
}

static bool decodes(const uint8_t *bytes, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1);
	struct states *d = NULL;
	int rc;

	memcpy(exact, bytes, size);
	rc = states_decode(&d, exact, size);
	free(exact);
	if (!rc) {
		check_whole(d);
		states_free(d);
		return true;
	}
	ck_assert(rc == -EBADMSG || rc == -ENOMEM);
	ck_assert_ptr_null(d);
	return false;
}

START_TEST(every_truncation_is_an_error)
{
	struct states s;
	struct wire_writer w;

	fill(&s);
	w = encoded(&s);
	for (size_t size = 0; size < w.size; size++)
		ck_assert(!decodes(w.data, size));
	ck_assert(decodes(w.data, w.size));
	wire_put_u8(&w, 0);
	ck_assert(!decodes(w.data, w.size));
	free(w.data);
	states_fini(&s);
}
END_TEST

/* Whose row ends in the last word. */
START_TEST(a_table_that_ends_in_a_dropped_row_or_one_on_nvme_is_whole_or_an_error)
{
	struct states s = { .epoch = 1 };
	struct wire_writer w;

	add(&s, STATE_PARTITION, 0, "fp32", 8);
	add(&s, STATE_PARTITION, 0, "grad", 8);
	if (_i)
		states_drop(&s, 1);
	else
		s.rows[1].tier = STATE_SWAP;
	w = encoded(&s);
	ck_assert(decodes(w.data, w.size));
	for (size_t size = 0; size < w.size; size++)
		ck_assert(!decodes(w.data, size));
	wire_put_u8(&w, 0);
	ck_assert(!decodes(w.data, w.size));
	free(w.data);
	states_fini(&s);
}
END_TEST

START_TEST(a_row_that_comes_twice_is_refused)
{
	struct states s = { .epoch = 1 };
	struct wire_writer w;

	add(&s, STATE_PARTITION, 0, "aaaa", 8);
	add(&s, STATE_PARTITION, 0, "bbbb", 8);
	w = encoded(&s);
	ck_assert(decodes(w.data, w.size));
	memcpy(memmem(w.data, w.size, "bbbb", 4), "aaaa", 4);
	ck_assert(!decodes(w.data, w.size));
	free(w.data);
	states_fini(&s);
}
END_TEST

START_TEST(damaged_bytes_give_an_error_or_a_whole_table)
{
	struct states s;
	struct wire_writer w;
	unsigned good = 0;

	fill(&s);
	w = encoded(&s);
	srand(1);
	for (size_t bit = 0; bit < w.size * 8; bit++) {
		w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		good += decodes(w.data, w.size);
		w.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	for (int i = 0; i < 3000; i++) {
		size_t at = (size_t)rand() % w.size;
		uint8_t before = w.data[at];

		w.data[at] = (uint8_t)(rand() % 3 ? rand() : 255);
		good += decodes(w.data, w.size);
		w.data[at] = before;
	}
	ck_assert_uint_gt(good, 0);
	free(w.data);
	states_fini(&s);
}
END_TEST

START_TEST(extents_outside_their_row_are_refused)
{
	static const struct state_extent bad[][2] = {
		{ { 32, 0x1000 }, { 65, 0x2000 } },
		{ { 65, 0x1000 }, { 66, 0x2000 } },
		{ { 32, 0x1000 }, { UINT64_MAX, 0x2000 } },
		{ { 32, 0x1000 }, { 64, UINT64_MAX - 8 } },
		{ { 32, 0x1000 }, { 32, 0x2000 } },
		{ { 32, 0x1000 }, { 16, 0x2000 } },
		{ { 0, 0x1000 }, { 64, 0x2000 } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct states s = { .epoch = 1 };
		struct wire_writer w;

		states_add(&s, STATE_PARTITION, 0, 0, "k", FRAG_F32, 64,
			   segment(0, 32, 0x1000));
		states_add_segment(&s, 0, segment(32, 32, 0x2000));
		w = encoded(&s);
		ck_assert(decodes(w.data, w.size));
		free(w.data);
		memcpy(s.rows[0].extents, bad[i], sizeof(bad[i]));
		w = encoded(&s);
		ck_assert_msg(!decodes(w.data, w.size), "%zu", i);
		free(w.data);
		states_fini(&s);
	}
}
END_TEST

START_TEST(a_hundred_thousand_rows)
{
	struct states s = { .epoch = 1 }, *d;
	static uint32_t same[100000];
	struct wire_writer w = { 0 };

	for (uint32_t i = 0; i < ARRAY_SIZE(same); i++) {
		same[i] = i;
		ck_assert_int_eq(states_add(&s, STATE_LP, i, 0, "", FRAG_BF16, 8,
					    segment(0, 8, 16 * i + 16)),
				 (int)i);
	}
	ck_assert_int_eq(states_encode(&s, same, same, &w), 0);
	ck_assert_int_eq(states_decode(&d, w.data, w.size), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(same); i++)
		ck_assert_int_eq(states_find(d, STATE_LP, i, 0, ""), (int)i);
	ck_assert_uint_eq(d->ngroup_rows, 0);
	free(w.data);
	states_fini(&s);
	states_free(d);
}
END_TEST

static TCase *rows(void)
{
	TCase *t = tcase_create("rows");

	tcase_add_test(t, rows_are_found_by_kind_index_sub_and_key);
	tcase_add_test(t, a_state_that_comes_and_goes_needs_no_more_room_each_time);
	tcase_add_test(t, rows_are_found_whichever_come_and_go);
	tcase_add_test(t, segments_are_sorted_and_do_not_overlap);
	tcase_add_test(t, a_gap_is_filled_from_any_side_and_what_is_left_of_it_stays);
	tcase_add_test(t, bytes_are_resolved_across_segments_and_gaps_are_said);
	return t;
}

static TCase *encoding(void)
{
	TCase *t = tcase_create("encoding");

	tcase_add_test(t, an_encoding_decodes_to_the_same_rows_under_the_jobs_numbers);
	tcase_add_test(t, every_truncation_is_an_error);
	tcase_add_loop_test(
		t, a_table_that_ends_in_a_dropped_row_or_one_on_nvme_is_whole_or_an_error, 0,
		2);
	tcase_add_test(t, a_row_that_comes_twice_is_refused);
	tcase_add_test(t, damaged_bytes_give_an_error_or_a_whole_table);
	tcase_add_test(t, extents_outside_their_row_are_refused);
	tcase_add_test(t, a_hundred_thousand_rows);
	return t;
}

int main(void)
{
	Suite *s = suite_create("states");

	suite_add_tcase(s, rows());
	return run_suite(s, encoding());
}

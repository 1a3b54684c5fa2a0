/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/catalog.h"
#include "tests/run-suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 4096, ROUNDS = 300 };

static uint64_t seed;

static uint64_t chance(uint64_t below)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 33) % below;
}

static struct cuts *make(const struct frag_cut *cut, uint32_t n, uint32_t ndim,
			 const uint64_t *shape)
{
	uint64_t numel = 1;
	struct cuts *c;
	int rc;

	for (uint32_t d = 0; d < ndim; d++)
		numel *= shape[d];
	c = cuts_new(cut, n, ndim, shape, numel, &rc);
	ck_assert_ptr_nonnull(c);
	ck_assert_int_eq(rc, 0);
	return c;
}

/* Stored order, as walking from end to end says. */
struct order {
	const struct cuts *cuts;
	uint64_t n;
	uint16_t at[MOST];
};

static int note(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	struct order *o = arg;
	uint16_t file[MOST];

	for (uint32_t i = 0; i < MOST; i++)
		file[i] = (uint16_t)i;
	ck_assert_uint_eq(from, 0);
	ck_assert_uint_eq(to, box->numel);
	ck_assert_uint_eq(box->start, o->n);
	cuts_from_file(o->cuts, box, from, to, sizeof(*file), o->at + o->n, file, 0);
	o->n += to - from;
	return 0;
}

static void order_of(const struct cuts *c, struct order *o)
{
	o->cuts = c;
	o->n = 0;
	ck_assert_int_eq(cuts_walk(c, 0, c->numel, note, o), 0);
	ck_assert_uint_eq(o->n, c->numel);
}

START_TEST(columns_are_stored_shard_by_shard)
{
	static const uint16_t expected[] = { 0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11 };
	struct cuts *c = make(&(struct frag_cut){ 1, 3 }, 1, 2, (uint64_t[]){ 2, 6 });
	struct cuts_box box;
	struct order o;

	order_of(c, &o);
	ck_assert_mem_eq(o.at, expected, sizeof(expected));
	cuts_box(c, 2, &box);
	ck_assert_uint_eq(box.start, 8);
	ck_assert_uint_eq(box.numel, 4);
	ck_assert_uint_eq(box.from[1], 4);
	ck_assert_uint_eq(box.size[1], 2);
	ck_assert(!cuts_keep_order(c));
	free(c);
}
END_TEST

/* DTensor's _StridedShard and Shard of one dimension: 7 rows are 4 and 3, and these 2, 2, 2, 1.
 */
START_TEST(rows_that_are_cut_twice_keep_their_order)
{
	static const uint64_t rows[] = { 2, 2, 2, 1 };
	const struct frag_cut twice[] = { { 0, 2 }, { 0, 2 } };
	struct cuts *c = make(twice, 2, 2, (uint64_t[]){ 7, 3 });
	struct cuts_box box;

	ck_assert(cuts_keep_order(c));
	ck_assert_uint_eq(cuts_parts(c), 4);
	for (uint32_t shard = 0; shard < 4; shard++) {
		cuts_box(c, shard, &box);
		ck_assert_uint_eq(box.size[0], rows[shard]);
		ck_assert_uint_eq(box.numel, rows[shard] * 3);
	}
	free(c);
}
END_TEST

START_TEST(shards_may_be_empty_in_the_middle)
{
	const struct frag_cut both[] = { { 0, 2 }, { 1, 2 } };
	struct cuts *c = make(both, 2, 2, (uint64_t[]){ 2, 1 });
	static const uint64_t numel[] = { 1, 0, 1, 0 };
	struct cuts_box box;

	for (uint32_t shard = 0; shard < 4; shard++) {
		cuts_box(c, shard, &box);
		ck_assert_uint_eq(box.numel, numel[shard]);
	}
	cuts_find(c, 1, &box);
	ck_assert_uint_eq(box.shard, 2);
	free(c);
}
END_TEST

static struct cuts *draw(void)
{
	uint32_t ndim = 1 + (uint32_t)chance(4), n = 1 + (uint32_t)chance(3);
	uint64_t shape[4];
	struct frag_cut cut[3];

	for (uint32_t d = 0; d < ndim; d++)
		shape[d] = 1 + chance(7);
	for (uint32_t i = 0; i < n; i++)
		cut[i] = (struct frag_cut){ (uint32_t)chance(ndim), 1 + (uint32_t)chance(4) };
	return make(cut, n, ndim, shape);
}

struct range {
	const struct order *all;
	uint64_t first, end, seen;
	uint16_t file[MOST];
};

static int take(void *arg, const struct cuts_box *box, uint64_t from, uint64_t to)
{
	struct range *r = arg;

	ck_assert_uint_lt(from, to);
	ck_assert_uint_le(to, box->numel);
	for (uint64_t i = from; i < to; i++) {
		uint16_t at = r->all->at[box->start + i];

		ck_assert(at >= r->first && at < r->end);
	}
	cuts_to_file(r->all->cuts, box, from, to, sizeof(*r->file),
		     r->all->at + box->start + from, r->file, r->first);
	r->seen += to - from;
	return 0;
}

START_TEST(any_range_is_its_elements_and_no_others)
{
	seed = (uint64_t)_i + 1;
	for (int round = 0; round < ROUNDS; round++) {
		struct cuts *c = draw();
		struct order o;
		struct range r = { .all = &o, .first = chance(c->numel) };

		order_of(c, &o);
		r.end = r.first + 1 + chance(c->numel - r.first);
		ck_assert_int_eq(cuts_walk(c, r.first, r.end, take, &r), 0);
		ck_assert_uint_eq(r.seen, r.end - r.first);
		for (uint64_t i = 0; i < r.seen; i++)
			ck_assert_uint_eq(r.file[i], r.first + i);
		free(c);
	}
}
END_TEST

START_TEST(each_stored_element_is_in_one_box)
{
	seed = (uint64_t)_i + 100;
	for (int round = 0; round < ROUNDS; round++) {
		struct cuts *c = draw();
		uint64_t sum = 0;
		struct cuts_box box, found;

		for (uint32_t shard = 0; shard < cuts_parts(c); shard++) {
			cuts_box(c, shard, &box);
			ck_assert_uint_eq(box.shard, shard);
			if (box.numel)
				ck_assert_uint_eq(box.start, sum);
			for (uint64_t at = sum; at < sum + box.numel; at++) {
				cuts_find(c, at, &found);
				ck_assert_uint_eq(found.shard, shard);
				ck_assert_uint_eq(found.start, sum);
			}
			sum += box.numel;
		}
		ck_assert_uint_eq(sum, c->numel);
		free(c);
	}
}
END_TEST

START_TEST(cuts_that_are_none_are_refused)
{
	static const struct {
		struct frag_cut cut[FRAG_CUTS_MAX + 1];
		uint32_t n;
	} bad[] = {
		{ { { 2, 2 } }, 1 },
		{ { { 0, 0 } }, 1 },
		{ { { 0, 65536 }, { 1, 2 } }, 2 },
		{ { { 0, 65536 }, { 1, 65536 }, { 1, 65536 }, { 0, 65536 } }, 4 },
		{ { { 0, 1 },
		    { 0, 1 },
		    { 0, 1 },
		    { 0, 1 },
		    { 0, 1 },
		    { 0, 1 },
		    { 0, 1 },
		    { 0, 1 },
		    { 0, 1 } },
		  FRAG_CUTS_MAX + 1 },
	};
	int rc;

	ck_assert_ptr_null(cuts_new(bad[_i].cut, bad[_i].n, 2, (uint64_t[]){ 4, 4 }, 16, &rc));
	ck_assert_int_eq(rc, -EINVAL);
}
END_TEST

/* ---- in a catalog ---- */

static struct catalog *with_cuts(const struct frag_cut *cut, uint32_t n, int *group, char *why)
{
	static const uint32_t ranks[] = { 0, 1, 2, 3 }, params[] = { 0, 1 };
	struct catalog *c = catalog_new();

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(catalog_add_param(c, i ? "rows" : "cut", "", FRAG_BF16, 2,
						   (uint64_t[]){ 6, 10 }, 0, 0),
				 i);
	if (n)
		ck_assert_int_eq(catalog_cut_param(c, 0, cut, n), 0);
	*group = catalog_add_group(
		c,
		&(struct catalog_group){ .sharding = FRAG_FSDP2,
					 .replicas = 1,
					 .nranks = 4,
					 .ranks = (uint32_t *)(uintptr_t)ranks,
					 .nparams = 2,
					 .params = (uint32_t *)(uintptr_t)params },
		why, 200);
	if (*group >= 0)
		ck_assert_int_eq(catalog_finish(c), 0);
	return c;
}

static const struct frag_cut grid[] = { { 1, 2 }, { 0, 2 } }, wrong[] = { { 1, 3 } };

START_TEST(a_layout_counts_in_stored_order)
{
	char why[200];
	int group;
	struct catalog *c = with_cuts(grid, 2, &group, why);
	const struct layout *l = &c->groups[0].layout;
	struct layout_fragment f;

	ck_assert_uint_eq(l->partition_numel[0], 15 + 20); /* rows: 2 of 10 */
	for (uint32_t shard = 0; shard < 4; shard++) {
		ck_assert(layout_on_shard(l, 0, shard, &f));
		ck_assert_uint_eq(f.param_offset, 15 * shard);
		ck_assert_uint_eq(f.partition_offset, 0);
		ck_assert_uint_eq(f.numel, 15);
	}
	ck_assert(layout_find(l, 0, 31, &f));
	ck_assert_uint_eq(f.shard, 2);
	ck_assert_uint_eq(f.partition_offset, 1);
	ck_assert_uint_eq(f.numel, 14);
	ck_assert_uint_eq(catalog_lp_held(c, 0, 3), 15);
	catalog_free(c);
}
END_TEST

START_TEST(a_catalog_with_cuts_goes_over_the_wire)
{
	char why[200];
	int group;
	struct catalog *c = with_cuts(grid, 2, &group, why), *d;
	struct wire_writer w = { 0 };

	ck_assert_int_eq(catalog_encode(c, &w), 0);
	ck_assert_int_eq(catalog_decode(&d, w.data, w.size, 4, why, sizeof(why)), 0);
	ck_assert(cuts_are_equal(c->params[0].cuts, d->params[0].cuts));
	ck_assert_ptr_null(d->params[1].cuts);
	ck_assert_uint_eq(c->hash, d->hash);
	free(w.data);
	catalog_free(d);
	catalog_free(c);
}
END_TEST

START_TEST(ranks_that_cut_differently_are_refused)
{
	char why[200];
	int group;
	struct catalog *c = with_cuts(grid, 2, &group, why), *d = catalog_new();
	struct catalog *rows = with_cuts(NULL, 0, &group, why);
	uint32_t params[2], groups[1];

	ck_assert_int_eq(catalog_merge(d, c, 0, params, groups, why, sizeof(why)), 0);
	ck_assert(cuts_are_equal(c->params[0].cuts, d->params[0].cuts));
	ck_assert_int_eq(catalog_merge(d, rows, 1, params, groups, why, sizeof(why)), -EINVAL);
	ck_assert_str_eq(why, "rank 1 has other cuts as rank 0, for parameter cut");
	catalog_free(rows);
	catalog_free(d);
	catalog_free(c);
}
END_TEST

START_TEST(parts_are_as_many_as_shards)
{
	char why[200];
	int group;
	struct catalog *c = with_cuts(wrong, 1, &group, why);

	ck_assert_int_eq(group, -EINVAL);
	ck_assert_str_eq(why, "group 0: parameter cut is cut in 3 parts, for 4 shards");
	catalog_free(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuts");
	TCase *t = tcase_create("all");

	tcase_add_test(t, columns_are_stored_shard_by_shard);
	tcase_add_test(t, rows_that_are_cut_twice_keep_their_order);
	tcase_add_test(t, shards_may_be_empty_in_the_middle);
	tcase_add_loop_test(t, any_range_is_its_elements_and_no_others, 0, 4);
	tcase_add_loop_test(t, each_stored_element_is_in_one_box, 0, 4);
	tcase_add_loop_test(t, cuts_that_are_none_are_refused, 0, 5);
	tcase_add_test(t, a_layout_counts_in_stored_order);
	tcase_add_test(t, a_catalog_with_cuts_goes_over_the_wire);
	tcase_add_test(t, ranks_that_cut_differently_are_refused);
	tcase_add_test(t, parts_are_as_many_as_shards);
	return run_suite(s, t);
}

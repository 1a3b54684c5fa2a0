/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "tests/run-suite.h"
#include "tests/unit/catalog/padding.h"

#include <errno.h>
#include <stdio.h>

enum { MANY = 40, SHARDS_MAX = 17, ROUNDS = 400 };

static void build(struct layout *l, const struct layout_spec *spec,
		  const struct layout_param *params, uint32_t n)
{
	ck_assert_int_eq(layout_init(l, spec, params, n), 0);
}

static void expect(const struct layout *l, uint32_t param, uint32_t shard,
		   uint64_t param_offset, uint64_t partition_offset, uint64_t numel)
{
	struct layout_fragment f;

	ck_assert(layout_on_shard(l, param, shard, &f));
	ck_assert_uint_eq(f.shard, shard);
	ck_assert_uint_eq(f.param_offset, param_offset);
	ck_assert_uint_eq(f.partition_offset, partition_offset);
	ck_assert_uint_eq(f.numel, numel);
}

static void expect_none(const struct layout *l, uint32_t param, uint32_t shard)
{
	struct layout_fragment f;

	ck_assert(!layout_on_shard(l, param, shard, &f));
}

/* ---- worked examples: research/deepspeed.md sections 1.3, 2.1, 2.3 ---- */

static const struct layout_param five[] = {
	{ .numel = 15 }, { .numel = 3 }, { .numel = 21 }, { .numel = 7 }, { .numel = 7 },
};

START_TEST(flat_group_of_five_over_two_shards)
{
	struct layout_spec spec = { .kind = LAYOUT_FLAT, .shards = 2, .alignment = 2 };
	struct layout l;

	build(&l, &spec, five, ARRAY_SIZE(five));
	ck_assert_uint_eq(l.nsubs, 1);
	ck_assert_uint_eq(l.total, 53);
	ck_assert_uint_eq(l.partition_numel[0], 28);
	expect(&l, 0, 0, 0, 0, 15);
	expect(&l, 1, 0, 0, 15, 3);
	expect(&l, 2, 0, 0, 18, 10);
	expect(&l, 2, 1, 10, 0, 11);
	expect(&l, 3, 1, 0, 11, 7);
	expect(&l, 4, 1, 0, 18, 7);
	expect_none(&l, 0, 1);
	expect_none(&l, 4, 0);
	ck_assert_uint_eq(layout_padding(&l, 0, 0), 0);
	ck_assert_uint_eq(layout_padding(&l, 1, 0), 3);
	layout_fini(&l);
}
END_TEST

START_TEST(flat_padding_covers_whole_shards)
{
	struct layout_spec spec = { .kind = LAYOUT_FLAT, .shards = 4, .alignment = 2 };
	struct layout_param p = { .numel = 5 };
	static const uint64_t padding[] = { 0, 0, 1, 2 };
	struct layout l;

	build(&l, &spec, &p, 1);
	ck_assert_uint_eq(l.partition_numel[0], 2);
	for (uint32_t s = 0; s < 4; s++)
		ck_assert_uint_eq(layout_padding(&l, s, 0), padding[s]);
	expect_none(&l, 0, 3);
	layout_fini(&l);
}
END_TEST

/* DeepSpeed 0.19.8, parameter_alignment: round_robin_bit16_padding is [1, 5, 3, 1, 0]. */
START_TEST(flat_parameters_begin_at_a_multiple)
{
	struct layout_spec spec = {
		.kind = LAYOUT_FLAT, .shards = 2, .alignment = 2, .param_alignment = 8
	};
	static const uint64_t offsets[] = { 0, 16, 24, 48, 56 };
	struct layout l;

	build(&l, &spec, five, ARRAY_SIZE(five));
	ck_assert_mem_eq(l.offset, offsets, sizeof(offsets));
	ck_assert_uint_eq(l.partition_numel[0], 32); /* the last ends at 63 */
	expect(&l, 2, 0, 0, 24, 8);
	expect(&l, 2, 1, 8, 0, 13);
	spec.round_robin = true; /* 0 2 4, 1 3 */
	layout_fini(&l);
	build(&l, &spec, five, ARRAY_SIZE(five));
	ck_assert_uint_eq(l.offset[2], 16);
	ck_assert_uint_eq(l.offset[4], 40);
	ck_assert_uint_eq(l.offset[1], 48);
	ck_assert_uint_eq(l.offset[3], 56);
	layout_fini(&l);
}
END_TEST

START_TEST(flat_group_of_stage_0_has_no_padding)
{
	struct layout_spec spec = { .kind = LAYOUT_FLAT, .shards = 1, .alignment = 1 };
	struct layout l;

	build(&l, &spec, five, ARRAY_SIZE(five));
	ck_assert_uint_eq(l.partition_numel[0], 53);
	ck_assert_uint_eq(layout_padding(&l, 0, 0), 0);
	expect(&l, 4, 0, 0, 46, 7);
	layout_fini(&l);
}
END_TEST

START_TEST(find_cuts_the_fragment_at_the_element_asked_for)
{
	struct layout_spec spec = { .kind = LAYOUT_FLAT, .shards = 2, .alignment = 2 };
	struct layout_fragment f;
	struct layout l;

	build(&l, &spec, five, ARRAY_SIZE(five));
	ck_assert(layout_find(&l, 2, 4, &f));
	ck_assert_uint_eq(f.shard, 0);
	ck_assert_uint_eq(f.param_offset, 4);
	ck_assert_uint_eq(f.partition_offset, 22);
	ck_assert_uint_eq(f.numel, 6);
	ck_assert(layout_find(&l, 2, 20, &f));
	ck_assert_uint_eq(f.shard, 1);
	ck_assert_uint_eq(f.partition_offset, 10);
	ck_assert_uint_eq(f.numel, 1);
	ck_assert(!layout_find(&l, 2, 21, &f));
	ck_assert(!layout_find(&l, 2, UINT64_MAX, &f));
	layout_fini(&l);
}
END_TEST

/* B1: DeepSpeed cannot write a stage 3 parameter unless shards divide it. */
START_TEST(b1_stage_3_parameter_that_shards_do_not_divide)
{
	struct layout_spec spec = { .kind = LAYOUT_PER_PARAM, .shards = 2 };
	struct layout_param p[] = { { .numel = 15 }, { .numel = 3 } };
	struct layout l;

	build(&l, &spec, p, 2);
	ck_assert_uint_eq(l.partition_numel[0], 10);
	expect(&l, 0, 0, 0, 0, 8);
	expect(&l, 0, 1, 8, 0, 7);
	expect(&l, 1, 0, 0, 8, 2);
	expect(&l, 1, 1, 2, 8, 1);
	ck_assert_uint_eq(layout_padding(&l, 0, 0), 0);
	ck_assert_uint_eq(layout_padding(&l, 1, 0), 2);
	layout_fini(&l);
}
END_TEST

/* B15: the padding DeepSpeed records is on the last rank only, 3 of a piece of 2. */
START_TEST(b15_stage_3_padding_that_spans_shards)
{
	struct layout_spec spec = { .kind = LAYOUT_PER_PARAM, .shards = 4 };
	struct layout_param p = { .numel = 5 };
	static const uint64_t padding[] = { 0, 0, 1, 2 };
	struct layout l;

	build(&l, &spec, &p, 1);
	ck_assert_uint_eq(l.partition_numel[0], 2);
	for (uint32_t s = 0; s < 4; s++)
		ck_assert_uint_eq(layout_padding(&l, s, 0), padding[s]);
	expect(&l, 0, 2, 4, 0, 1);
	expect_none(&l, 0, 3);
	layout_fini(&l);
}
END_TEST

/* B15: a parameter of no elements where a sub-group ends opens none and moves nothing. */
START_TEST(b15_zero_size_parameter_on_a_sub_group_boundary)
{
	struct layout_spec spec = { .kind = LAYOUT_PER_PARAM,
				    .shards = 2,
				    .sub_group_size = 2 };
	struct layout_param p[] = {
		{ .numel = 4 }, { .numel = 0 }, { .numel = 4 }, { .numel = 0 }
	};
	struct layout_fragment f;
	struct layout l;

	build(&l, &spec, p, ARRAY_SIZE(p));
	ck_assert_uint_eq(l.nsubs, 2);
	ck_assert_uint_eq(l.partition_numel[0], 2);
	ck_assert_uint_eq(l.partition_numel[1], 2);
	ck_assert(layout_on_shard(&l, 2, 1, &f));
	ck_assert_uint_eq(f.sub, 1);
	ck_assert_uint_eq(f.partition_offset, 0);
	expect_none(&l, 1, 0);
	expect_none(&l, 3, 0);
	layout_fini(&l);
}
END_TEST

/* B8: DeepSpeed dies of it inside a partition, and shifts gradients when it is first in one. */
START_TEST(b8_zero_size_parameters_move_nothing)
{
	struct layout_spec spec = { .kind = LAYOUT_FLAT, .shards = 2, .alignment = 2 };
	struct layout_param with[] = {
		{ .numel = 0 }, { .numel = 5 }, { .numel = 0 }, { .numel = 3 }, { .numel = 0 },
	};
	struct layout l;

	for (int round_robin = 0; round_robin < 2; round_robin++) {
		spec.round_robin = round_robin;
		build(&l, &spec, with, ARRAY_SIZE(with));
		ck_assert_uint_eq(l.partition_numel[0], 4);
		for (uint32_t s = 0; s < 2; s++)
			for (uint32_t p = 0; p < ARRAY_SIZE(with); p += 2)
				expect_none(&l, p, s);
		expect(&l, 1, 0, 0, 0, 4);
		expect(&l, 1, 1, 4, 0, 1);
		expect(&l, 3, 1, 0, 1, 3);
		layout_fini(&l);
	}
}
END_TEST

/* B4: DeepSpeed's flat tensor is in this order, its mapping is not. */
START_TEST(b4_round_robin_is_in_the_order_of_the_flat_tensor)
{
	struct layout_spec spec = {
		.kind = LAYOUT_FLAT,
		.shards = 2,
		.alignment = 2,
		.round_robin = true,
	};
	struct layout l;

	build(&l, &spec, five, ARRAY_SIZE(five));
	expect(&l, 0, 0, 0, 0, 15);
	expect(&l, 2, 0, 0, 15, 13);
	expect(&l, 2, 1, 13, 0, 8);
	expect(&l, 4, 1, 0, 8, 7);
	expect(&l, 1, 1, 0, 15, 3);
	expect(&l, 3, 1, 0, 18, 7);
	ck_assert_uint_eq(layout_padding(&l, 1, 0), 3);
	layout_fini(&l);
}
END_TEST

START_TEST(round_robin_does_not_count_frozen_parameters)
{
	struct layout_spec spec = {
		.kind = LAYOUT_FLAT,
		.shards = 2,
		.alignment = 2,
		.round_robin = true,
	};
	struct layout_param p[] = {
		{ .numel = 2 },
		{ .numel = 9, .frozen = true },
		{ .numel = 3 },
		{ .numel = 4 },
	};
	struct layout l;

	build(&l, &spec, p, ARRAY_SIZE(p));
	ck_assert_uint_eq(l.offset[0], 0);
	ck_assert_uint_eq(l.offset[3], 2);
	ck_assert_uint_eq(l.offset[2], 6);
	expect_none(&l, 1, 0);
	layout_fini(&l);
}
END_TEST

START_TEST(round_robin_over_more_shards_than_parameters_keeps_the_order)
{
	struct layout_spec spec = {
		.kind = LAYOUT_FLAT,
		.shards = 9,
		.alignment = 2,
		.round_robin = true,
	};
	struct layout l;

	build(&l, &spec, five, ARRAY_SIZE(five));
	for (uint32_t i = 1; i < ARRAY_SIZE(five); i++)
		ck_assert_uint_eq(l.offset[i], l.offset[i - 1] + five[i - 1].numel);
	layout_fini(&l);
}
END_TEST

START_TEST(sub_group_is_closed_when_its_pieces_reach_the_size)
{
	struct layout_spec spec = { .kind = LAYOUT_PER_PARAM,
				    .shards = 4,
				    .sub_group_size = 8 };
	struct layout_param p[] = {
		{ .numel = 1 },  { .numel = 4 }, { .numel = 25 },
		{ .numel = 17 }, { .numel = 1 },
	};
	static const uint32_t sub[] = { 0, 0, 0, 1, 1 };
	struct layout l;

	build(&l, &spec, p, ARRAY_SIZE(p));
	ck_assert_uint_eq(l.nsubs, 2);
	ck_assert_uint_eq(l.partition_numel[0], 1 + 1 + 7);
	ck_assert_uint_eq(l.partition_numel[1], 5 + 1);
	for (uint32_t i = 0; i < ARRAY_SIZE(p); i++)
		ck_assert_uint_eq(layout_sub(&l, i), sub[i]);
	layout_fini(&l);
}
END_TEST

START_TEST(one_sub_group_when_its_size_is_the_sum_of_all)
{
	struct layout_spec spec = { .kind = LAYOUT_PER_PARAM,
				    .shards = 2,
				    .sub_group_size = 28 };
	struct layout l;

	build(&l, &spec, five, ARRAY_SIZE(five));
	ck_assert_uint_eq(l.partition_numel[0], 8 + 2 + 11 + 4 + 4);
	layout_fini(&l);
	spec.sub_group_size = 29;
	build(&l, &spec, five, ARRAY_SIZE(five));
	ck_assert_uint_eq(l.nsubs, 1);
	layout_fini(&l);
}
END_TEST

START_TEST(rows_are_cut_as_torch_chunk_does)
{
	struct layout_spec spec = { .kind = LAYOUT_ROWS, .shards = 4 };
	struct layout_param p[] = {
		{ .numel = 15, .row = 3 }, /* (5, 3): rows 2, 2, 1, 0 */
		{ .numel = 1, .row = 1 },  /* () */
	};
	struct layout l;

	build(&l, &spec, p, ARRAY_SIZE(p));
	ck_assert_uint_eq(l.partition_numel[0], 7);
	expect(&l, 0, 0, 0, 0, 6);
	expect(&l, 0, 1, 6, 0, 6);
	expect(&l, 0, 2, 12, 0, 3);
	expect_none(&l, 0, 3);
	expect(&l, 1, 0, 0, 6, 1);
	expect_none(&l, 1, 1);
	ck_assert_uint_eq(layout_padding(&l, 3, 0), 7);
	layout_fini(&l);
}
END_TEST

/* ---- nothing, too much, wrong ---- */

START_TEST(group_without_trainable_elements_has_no_partition)
{
	struct layout_param p[] = { { .numel = 9, .row = 3, .frozen = true }, { .numel = 0 } };
	struct layout l;

	for (int kind = LAYOUT_FLAT; kind <= LAYOUT_ROWS; kind++) {
		struct layout_spec spec = { .kind = kind, .shards = 3, .alignment = 2 };

		for (uint32_t n = 0; n <= ARRAY_SIZE(p); n++) {
			build(&l, &spec, p, n);
			ck_assert_uint_eq(l.nsubs, 0);
			ck_assert_uint_eq(l.total, 0);
			ck_assert_uint_eq(layout_padding(&l, 0, 0), 0);
			expect_none(&l, 0, 0);
			layout_fini(&l);
		}
	}
}
END_TEST

START_TEST(questions_out_of_range_are_answered_no)
{
	struct layout_param p = { .numel = 8, .row = 1 };
	struct layout_fragment f;
	struct layout l;

	for (int kind = LAYOUT_FLAT; kind <= LAYOUT_ROWS; kind++) {
		struct layout_spec spec = { .kind = kind, .shards = 2, .alignment = 2 };

		build(&l, &spec, &p, 1);
		ck_assert(!layout_find(&l, 1, 0, &f));
		ck_assert(!layout_find(&l, 0, 8, &f));
		ck_assert(!layout_on_shard(&l, 1, 0, &f));
		ck_assert(!layout_on_shard(&l, 0, 2, &f));
		ck_assert(!layout_on_shard(&l, 0, UINT32_MAX, &f));
		ck_assert_uint_eq(layout_padding(&l, 2, 0), 0);
		ck_assert_uint_eq(layout_padding(&l, 0, 1), 0);
		layout_fini(&l);
	}
}
END_TEST

static void refuse(const struct layout_spec *spec, const struct layout_param *p, uint32_t n,
		   int err)
{
	struct layout l;

	ck_assert_int_eq(layout_init(&l, spec, p, n), err);
}

START_TEST(bad_input_is_refused)
{
	struct layout_param p = { .numel = 8, .row = 3 };

	refuse(&(struct layout_spec){ LAYOUT_FLAT, .shards = 0, .alignment = 2 }, &p, 1,
	       -EINVAL);
	refuse(&(struct layout_spec){ LAYOUT_FLAT, .shards = 2, .alignment = 0 }, &p, 1,
	       -EINVAL);
	refuse(&(struct layout_spec){ LAYOUT_PER_PARAM, .shards = 0 }, &p, 1, -EINVAL);
	refuse(&(struct layout_spec){ LAYOUT_ROWS, .shards = 2 }, &p, 1, -EINVAL);
	refuse(&(struct layout_spec){ LAYOUT_ROWS + 1, .shards = 2 }, &p, 1, -EINVAL);
	p.row = 0;
	refuse(&(struct layout_spec){ LAYOUT_ROWS, .shards = 2 }, &p, 1, -EINVAL);
}
END_TEST

START_TEST(sums_that_do_not_fit_are_refused)
{
	struct layout_param p[] = { { .numel = UINT64_MAX, .row = 1 },
				    { .numel = 1, .row = 1 } };

	for (int kind = LAYOUT_FLAT; kind <= LAYOUT_ROWS; kind++)
		refuse(&(struct layout_spec){ kind, .shards = 1, .alignment = 1 }, p, 2,
		       -EOVERFLOW);
	/* 2^64 - 1 = 3 * 5 * 17 * 257 * 65537 ...: it fits over 3 shards, and not, padded, over
	 * 2.
	 */
	for (int kind = LAYOUT_FLAT; kind <= LAYOUT_ROWS; kind++)
		refuse(&(struct layout_spec){ kind, .shards = 2, .alignment = 1 }, p, 1,
		       -EOVERFLOW);
	p[0].row = UINT64_MAX;
	refuse(&(struct layout_spec){ LAYOUT_ROWS, .shards = 2 }, p, 1, -EOVERFLOW);
}
END_TEST

START_TEST(largest_sizes_are_exact)
{
	struct layout_param p = { .numel = UINT64_MAX, .row = 1 };
	uint64_t third = UINT64_MAX / 3;
	struct layout l;

	for (int kind = LAYOUT_FLAT; kind <= LAYOUT_ROWS; kind++) {
		struct layout_spec spec = { kind, .shards = 3, .alignment = 1 };

		build(&l, &spec, &p, 1);
		ck_assert_uint_eq(l.partition_numel[0], third);
		for (uint32_t s = 0; s < 3; s++)
			expect(&l, 0, s, s * third, 0, third);
		layout_fini(&l);
	}
}
END_TEST

/* ---- properties ---- */

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

/* Printed, and taken from TEST_SEED to run it again. */
static void seed(void)
{
	const char *given = getenv("TEST_SEED");

	state = given ? strtoull(given, NULL, 0) : monotonic_ns() | 1;
	printf("TEST_SEED=%llu\n", (unsigned long long)state);
	fflush(stdout);
}

static struct layout_param draw_param(void)
{
	struct layout_param p = { .numel = 1, .row = 1 };

	for (uint64_t dim = 0, dims = draw(4); dim < dims; dim++) {
		uint64_t d = draw(8) ? 1 + draw(dim ? 5 : 40) : draw(2);

		p.numel *= d;
		p.row *= dim ? d : 1;
	}
	p.frozen = !draw(6);
	return p;
}

static struct layout_spec draw_spec(void)
{
	return (struct layout_spec){
		.kind = (enum layout_kind)draw(3),
		.shards = 1 + (uint32_t)draw(SHARDS_MAX),
		.alignment = 1 + (uint32_t)draw(4),
		.round_robin = draw(2),
		.sub_group_size = draw(3) ? 1 + draw(60) : 0,
	};
}

/* What each element of each partition belongs to: 0, or how often it is covered. */
struct cover {
	unsigned char *of[SHARDS_MAX];
	uint64_t *first; /* [nsubs + 1] where a sub-group begins in of[shard] */
};

static void cover_begin(struct cover *c, const struct layout *l)
{
	c->first = calloc(l->nsubs + 1, sizeof(*c->first));
	ck_assert_ptr_nonnull(c->first);
	for (uint32_t s = 0; s < l->nsubs; s++)
		c->first[s + 1] = c->first[s] + l->partition_numel[s];
	for (uint32_t s = 0; s < l->shards; s++) {
		c->of[s] = calloc(c->first[l->nsubs] + 1, 1);
		ck_assert_ptr_nonnull(c->of[s]);
	}
}

static void cover_end(struct cover *c, const struct layout *l)
{
	for (uint32_t s = 0; s < l->shards; s++)
		free(c->of[s]);
	free(c->first);
}

static void cover_fragment(struct cover *c, const struct layout *l,
			   const struct layout_fragment *f)
{
	ck_assert_uint_lt(f->shard, l->shards);
	ck_assert_uint_lt(f->sub, l->nsubs);
	ck_assert_uint_gt(f->numel, 0);
	ck_assert_uint_le(f->partition_offset + f->numel, l->partition_numel[f->sub]);
	for (uint64_t i = 0; i < f->numel; i++)
		ck_assert_uint_eq(c->of[f->shard][c->first[f->sub] + f->partition_offset + i]++,
				  0);
}

static void same(const struct layout_fragment *a, const struct layout_fragment *b)
{
	ck_assert_uint_eq(a->shard, b->shard);
	ck_assert_uint_eq(a->sub, b->sub);
	ck_assert_uint_eq(a->partition_offset, b->partition_offset);
	ck_assert_uint_eq(a->param_offset, b->param_offset);
	ck_assert_uint_eq(a->numel, b->numel);
}

/* Walks a parameter; every fragment is also what its shard says, and no other shard has one. */
static void check_param(struct cover *c, const struct layout *l, uint32_t param, uint64_t numel)
{
	struct layout_fragment f, whole;
	uint64_t at = 0;
	uint32_t found = 0, on_shards = 0;

	for (; layout_find(l, param, at, &f); at += f.numel, found++) {
		ck_assert_uint_eq(f.param_offset, at);
		ck_assert(layout_on_shard(l, param, f.shard, &whole));
		same(&f, &whole);
		cover_fragment(c, l, &f);
	}
	ck_assert_uint_eq(at, numel);
	for (uint32_t s = 0; s < l->shards; s++)
		on_shards += layout_on_shard(l, param, s, &whole);
	ck_assert_uint_eq(found, on_shards);
}

/* A find in the middle is the rest of the fragment it falls into. */
static void check_middle(const struct layout *l, uint32_t param, uint64_t numel)
{
	struct layout_fragment f, whole;
	uint64_t at;

	if (!numel)
		return;
	at = draw(numel);
	ck_assert(layout_find(l, param, at, &f));
	ck_assert(layout_on_shard(l, param, f.shard, &whole));
	ck_assert_uint_ge(at, whole.param_offset);
	whole.numel -= at - whole.param_offset;
	whole.partition_offset += at - whole.param_offset;
	whole.param_offset = at;
	same(&f, &whole);
}

static void check_padding(const struct cover *c, const struct layout *l)
{
	for (uint32_t shard = 0; shard < l->shards; shard++)
		for (uint32_t sub = 0; sub < l->nsubs; sub++) {
			uint64_t bare = 0;

			for (uint64_t i = c->first[sub]; i < c->first[sub + 1]; i++)
				bare += !c->of[shard][i];
			ck_assert_uint_eq(layout_padding(l, shard, sub), bare);
		}
}

static void check_layout(const struct layout_spec *spec, const struct layout_param *p,
			 uint32_t n)
{
	struct layout l;
	struct cover c;
	uint64_t total = 0;

	build(&l, spec, p, n);
	cover_begin(&c, &l);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t numel = p[i].frozen ? 0 : p[i].numel;

		check_param(&c, &l, i, numel);
		check_middle(&l, i, numel);
		total += numel;
	}
	ck_assert_uint_eq(l.total, total);
	check_padding(&c, &l);
	cover_end(&c, &l);
	layout_fini(&l);
}

START_TEST(every_element_is_in_one_fragment_and_padding_in_none)
{
	struct layout_param p[MANY];

	seed();
	for (int round = 0; round < ROUNDS; round++) {
		struct layout_spec spec = draw_spec();
		uint32_t n = (uint32_t)draw(MANY + 1);

		for (uint32_t i = 0; i < n; i++)
			p[i] = draw_param();
		check_layout(&spec, p, n);
	}
}
END_TEST

/* The sub-groups as DeepSpeed's loop makes them, stage3.py _create_fp16_sub_groups. */
START_TEST(sub_groups_are_those_of_the_reference_loop)
{
	struct layout_param p[MANY];

	seed();
	for (int round = 0; round < ROUNDS; round++) {
		struct layout_spec spec = draw_spec();
		uint32_t sub = 0;
		uint64_t sum = 0;
		struct layout l;

		spec.kind = LAYOUT_PER_PARAM;
		spec.sub_group_size = 1 + draw(60);
		for (int i = 0; i < MANY; i++)
			p[i] = draw_param();
		build(&l, &spec, p, MANY);
		for (int i = 0; i < MANY; i++) {
			if (p[i].frozen || !p[i].numel)
				continue;
			ck_assert_uint_eq(layout_sub(&l, i), sub);
			sum += u64_div_ceil(p[i].numel, spec.shards);
			ck_assert_uint_ge(l.partition_numel[sub], sum);
			if (sum >= spec.sub_group_size) {
				ck_assert_uint_eq(l.partition_numel[sub++], sum);
				sum = 0;
			}
		}
		ck_assert_uint_eq(l.nsubs, sub + (sum != 0));
		layout_fini(&l);
	}
}
END_TEST

static TCase *examples(void)
{
	TCase *t = tcase_create("examples");

	tcase_add_test(t, flat_group_of_five_over_two_shards);
	tcase_add_test(t, flat_padding_covers_whole_shards);
	tcase_add_test(t, flat_parameters_begin_at_a_multiple);
	tcase_add_test(t, flat_group_of_stage_0_has_no_padding);
	tcase_add_test(t, find_cuts_the_fragment_at_the_element_asked_for);
	tcase_add_test(t, b1_stage_3_parameter_that_shards_do_not_divide);
	tcase_add_test(t, b15_stage_3_padding_that_spans_shards);
	tcase_add_test(t, b15_zero_size_parameter_on_a_sub_group_boundary);
	tcase_add_test(t, b8_zero_size_parameters_move_nothing);
	tcase_add_test(t, b4_round_robin_is_in_the_order_of_the_flat_tensor);
	tcase_add_test(t, round_robin_does_not_count_frozen_parameters);
	tcase_add_test(t, round_robin_over_more_shards_than_parameters_keeps_the_order);
	tcase_add_test(t, sub_group_is_closed_when_its_pieces_reach_the_size);
	tcase_add_test(t, one_sub_group_when_its_size_is_the_sum_of_all);
	tcase_add_test(t, rows_are_cut_as_torch_chunk_does);
	return t;
}

static TCase *edges(void)
{
	TCase *t = tcase_create("edges");

	tcase_add_test(t, group_without_trainable_elements_has_no_partition);
	tcase_add_test(t, questions_out_of_range_are_answered_no);
	tcase_add_test(t, bad_input_is_refused);
	tcase_add_test(t, sums_that_do_not_fit_are_refused);
	tcase_add_test(t, largest_sizes_are_exact);
	return t;
}

static TCase *properties(void)
{
	TCase *t = tcase_create("properties");

	tcase_add_test(t, every_element_is_in_one_fragment_and_padding_in_none);
	tcase_add_test(t, sub_groups_are_those_of_the_reference_loop);
	return t;
}

int main(void)
{
	Suite *s = suite_create("layout");

	suite_add_tcase(s, examples());
	suite_add_tcase(s, edges());
	return run_suite(s, properties());
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* DeepSpeed's checkpoints as they may come, beside the genuine ones of tests/data/checkpoints:
 * what does not fit together, and what is left out.
 */

#include "tests/run-suite.h"
#include "tests/unit/checkpoint/formats/legacy-writer.h"
#include "tests/unit/checkpoint/formats/mounted.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static char dir[] = "/tmp/test-format-zero-XXXXXX";
static struct mounted m;

/* A group of w (3, 2) and b (2), over two ranks; fp32 is 100, 101 ... on rank 0 and 200 ... on
 * rank 1, exp_avg the same and 500 more.
 */
struct run {
	int64_t stage;      /* 0: BF16_Optimizer */
	const char *weight; /* the name of w */
	int nranks, partition_count;
	int64_t rows, columns;
	int64_t bias;         /* elements of b; -1: there is none */
	int64_t counts[2];    /* of masters */
	int64_t more;         /* elements of exp_avg */
	int64_t padding;      /* as group_paddings has it, of the last rank */
	int64_t alignment;    /* behind w; -1: the file does not know of it */
	const char *layers;   /* checkpoint_format of AutoEP's */
	void (*model)(void);  /* more keys of model_states */
	void (*states)(void); /* more states of rank 0 */
	bool expert;          /* a second group, on each rank whole */
};

static const struct run plain = { .stage = 2,
				  .weight = "w",
				  .nranks = 2,
				  .partition_count = 2,
				  .rows = 3,
				  .columns = 2,
				  .bias = 2,
				  .counts = { 4, 4 },
				  .alignment = -1 };

static void in_dict(const char *key)
{
	legacy_key(key);
	legacy_dict();
}

static void in_list(const char *key)
{
	legacy_key(key);
	legacy_list();
}

static void list_of(const char *key, int64_t value)
{
	in_list(key);
	legacy_int(value);
	legacy_up();
}

static void write_states(const struct run *r, int rank)
{
	in_dict("base_optimizer_state");
	in_dict("state");
	legacy_key_int(0);
	legacy_dict();
	legacy_key("exp_avg");
	legacy_vector(FRAG_F32, r->counts[rank] + r->more, (float)(600 + 100 * rank));
	if (r->states && !rank)
		r->states();
	legacy_up();
	legacy_up();
	legacy_up();
}

static void write_optim(const struct run *r, int rank)
{
	char name[64];

	snprintf(name, sizeof(name), "zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank);
	legacy_begin(dir, name);
	legacy_dict();
	in_dict("optimizer_state_dict");
	if (r->stage) {
		legacy_key("zero_stage");
		legacy_int(r->stage);
	}
	in_list("partition_count");
	legacy_int(r->partition_count);
	if (r->expert)
		legacy_int(1);
	legacy_up();
	list_of("group_paddings", rank ? r->padding : 0);
	if (r->alignment >= 0) {
		in_list("param_alignment_paddings");
		legacy_list();
		legacy_int(r->alignment);
		legacy_int(0);
		legacy_up();
		legacy_up();
	}
	in_list("single_partition_of_fp32_groups");
	legacy_vector(FRAG_F32, r->counts[rank], (float)(100 + 100 * rank));
	if (r->expert)
		legacy_vector(FRAG_F32, 3, 50);
	legacy_up();
	write_states(r, rank);
	legacy_up();
	legacy_up();
	legacy_end();
}

static void write_model(const struct run *r)
{
	legacy_begin(dir, "mp_rank_00_model_states.pt");
	legacy_dict();
	in_list("param_shapes");
	legacy_dict();
	legacy_key(r->weight);
	legacy_size(2, (int64_t[]){ r->rows, r->columns });
	if (r->bias >= 0) {
		legacy_key("b");
		legacy_size(1, &r->bias);
	}
	legacy_up();
	if (r->expert) {
		legacy_dict();
		legacy_key("expert.w");
		legacy_size(1, (int64_t[]){ 3 });
		legacy_up();
	}
	legacy_up();
	if (r->layers) {
		in_list("ds_autoep_layers");
		legacy_dict();
		legacy_key("checkpoint_format");
		legacy_text(r->layers);
		legacy_up();
		legacy_up();
	}
	if (r->model)
		r->model();
	legacy_key("global_steps");
	legacy_int(7);
	legacy_up();
	legacy_end();
}

static void write_run(const struct run *r)
{
	for (int rank = 0; rank < r->nranks; rank++)
		write_optim(r, rank);
	write_model(r);
}

static void check_values(const char *name, const char *key, int rank, const char *expect)
{
	char got[256] = "", *end = got;
	uint64_t size;
	CLEANUP(free) uint8_t *bytes = mounted_read(&m, name, key, rank, &size);

	ck_assert_msg(bytes != NULL, "no %s/%s", name, key);
	for (uint64_t i = 0; i < size / sizeof(float); i++)
		end += sprintf(end, "%s%g", i ? " " : "", (double)((float *)(void *)bytes)[i]);
	ck_assert_str_eq(got, expect);
}

static void check_partition(uint32_t rank, uint32_t sub, const char *key, const char *expect)
{
	struct engine_address a = { .kind = ENGINE_RANK_PARTITION, .rank = rank, .sub = sub };
	char got[256] = "", *end = got;
	uint64_t size;

	snprintf(a.key, sizeof(a.key), "%s", key);
	CLEANUP(free) float *values = (void *)mounted_read_at(&m, &a, &size);
	ck_assert_ptr_nonnull(values);
	for (uint64_t i = 0; i < size / sizeof(*values); i++)
		end += sprintf(end, "%s%g", i ? " " : "", (double)values[i]);
	ck_assert_str_eq(got, expect);
}

static void check_none(const char *name, const char *key)
{
	uint64_t size;

	ck_assert_ptr_null(mounted_read(&m, name, key, -1, &size));
}

static void mount(const struct run *r)
{
	write_run(r);
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
}

static void check_source(const char *line)
{
	CLEANUP(free) char *text = engine_text(m.engine, "source");

	ck_assert_msg(strstr(text, line) != NULL, "no %s in:\n%s", line, text);
}

static void check_not_in_source(const char *text)
{
	CLEANUP(free) char *source = engine_text(m.engine, "source");

	ck_assert_msg(!strstr(source, text), "%s in:\n%s", text, source);
}

static void check_refused(const char *why)
{
	int rc = mounted_open(&m, dir, NULL);

	ck_assert_msg(rc && strstr(m.why, why), "%d, %s", rc, m.why);
}

/* ---- layouts ---- */

START_TEST(parameters_are_cut_out_of_the_ranks_vectors)
{
	mount(&plain);
	check_values("w", "fp32", -1, "100 101 102 103 200 201");
	check_values("w", "exp_avg", -1, "600 601 602 603 700 701");
	check_values("b", "fp32", -1, "202 203");
	check_values("w", "fp32", 1, "200 201");
	check_partition(0, 0, "fp32", "100 101 102 103");
	check_partition(1, 0, "fp32", "200 201 202 203");
	check_partition(1, 0, "exp_avg", "700 701 702 703");
	mounted_close(&m);
}
END_TEST

START_TEST(padding_between_parameters_is_no_ones)
{
	struct run r = plain;

	r.alignment = 1;
	r.counts[1] = 5;
	mount(&r);
	check_values("w", "fp32", -1, "100 101 102 103 200 201");
	check_values("b", "fp32", -1, "203 204");
	check_partition(1, 0, "fp32", "200 201 202 203 204");
	mounted_close(&m);
}
END_TEST

START_TEST(states_have_the_padding_that_masters_lack)
{
	struct run r = plain;

	r.rows = 2;
	r.counts[1] = 2;
	r.padding = r.more = 2;
	r.counts[0] = 4;
	mount(&r);
	check_values("b", "fp32", -1, "200 201");
	check_none("b", "exp_avg"); /* rank 0 has no padding, and yet two more */
	check_source("skipped exp_avg: ");
	mounted_close(&m);
}
END_TEST

START_TEST(the_bf16_optimizer_keeps_its_padding)
{
	struct run r = plain;

	r.stage = 0;
	r.counts[1] = 5;
	r.counts[0] = 5;
	r.rows = 4;
	mount(&r);
	check_values("w", "fp32", -1, "100 101 102 103 104 200 201 202");
	check_values("b", "fp32", -1, "203 204");
	check_source("optimizer BF16_Optimizer\n");
	mounted_close(&m);
}
END_TEST

static void other_states(void)
{
	legacy_key("of one rank");
	legacy_vector(FRAG_F32, 4, 1);
	legacy_key("rows");
	legacy_vector(FRAG_F32, 3, 1);
	legacy_key("fp32");
	legacy_vector(FRAG_F32, 4, 1);
	legacy_key("step");
	legacy_real(12);
}

START_TEST(a_state_that_not_all_ranks_have_is_none)
{
	struct run r = plain;

	r.states = other_states;
	mount(&r);
	check_none("w", "of one rank");
	check_none("w", "rows");
	check_values("w", "fp32", -1, "100 101 102 103 200 201");
	check_source("skipped of one rank: ");
	check_source("skipped rows: ");
	check_source("skipped fp32: ");
	ck_assert_double_eq(mounted_hyper(&m, 0, "step"), 12);
	mounted_close(&m);
}
END_TEST

static void one_number(void)
{
	legacy_key("step");
	legacy_vector(FRAG_I64, 1, 12);
	legacy_key("scale");
	legacy_vector(FRAG_F32, 1, 3);
}

START_TEST(a_tensor_of_one_element_is_a_number_of_the_group)
{
	struct run r = plain;

	r.states = one_number;
	mount(&r);
	check_none("w", "step");
	ck_assert_double_eq(mounted_hyper(&m, 0, "step"), 12);
	ck_assert_double_eq(mounted_hyper(&m, 0, "scale"), 3);
	ck_assert(isnan(mounted_hyper(&m, 0, "exp_avg")));
	check_not_in_source("skipped");
	mounted_close(&m);
}
END_TEST

/* All of the group is w, of one element, and nothing is on rank 1. */
START_TEST(a_state_of_one_element_is_no_number)
{
	struct run r = plain;

	r.rows = r.columns = 1;
	r.bias = -1;
	r.counts[0] = 1;
	r.counts[1] = 0;
	r.states = one_number;
	mount(&r);
	check_values("w", "exp_avg", -1, "600");
	ck_assert(isnan(mounted_hyper(&m, 0, "exp_avg")));
	ck_assert_double_eq(mounted_hyper(&m, 0, "step"), 12);
	mounted_close(&m);
}
END_TEST

/* ---- the model ---- */

static void odd_model(void)
{
	int64_t none[] = { 0, 3 };

	in_dict("module");
	legacy_key("w");
	legacy_tensor(FRAG_BF16, 2, (int64_t[]){ 3, 2 }, 8);
	legacy_key("again");
	legacy_tensor(FRAG_BF16, 2, (int64_t[]){ 3, 2 }, 8);
	legacy_key("empty");
	legacy_tensor(FRAG_BF16, 2, none, 0);
	legacy_key("other empty");
	legacy_tensor(FRAG_BF16, 1, none, 0);
	legacy_key("alone");
	legacy_vector(FRAG_BF16, 2, 64);
	legacy_key_of("a\0b", 3);
	legacy_vector(FRAG_F32, 1, 9);
	legacy_key("layer._extra_state");
	legacy_vector(FRAG_F32, 1, 9);
	legacy_key("running");
	legacy_vector(FRAG_I64, 1, 9);
	legacy_up();
	in_list("buffer_names");
	legacy_text("running");
	legacy_text("not there");
	legacy_up();
	in_dict("shared_params");
	legacy_key("again");
	legacy_text("w");
	legacy_key("other empty");
	legacy_text("empty");
	legacy_key("lost");
	legacy_text("nowhere");
	legacy_up();
}

START_TEST(module_says_what_else_there_is)
{
	struct run r = plain;

	r.model = odd_model;
	mount(&r);
	check_values("again", "fp32", -1, "100 101 102 103 200 201");
	check_values("alone", "fp32", -1, "64 65");
	check_values("a\xc0\x80"
		     "b",
		     "fp32", -1, "9");
	check_values("layer._extra_state", "fp32", -1, "9");
	check_values("other empty", "fp32", -1, "");
	check_none("running", "fp32");
	check_source("skipped not there: ");
	check_source("skipped lost: ");
	ck_assert_uint_eq(engine_nbuffers(m.engine), 2);
	mounted_close(&m);
}
END_TEST

START_TEST(a_name_that_is_too_long_is_skipped)
{
	char name[FRAG_NAME_MAX + 2] = "";
	struct run r = plain;

	memset(name, 'x', sizeof(name) - 1);
	r.weight = name;
	mount(&r);
	check_values("b", "fp32", -1, "202 203");
	check_source("x...: its name is too long");
	mounted_close(&m);
}
END_TEST

/* ---- without ZeRO ---- */

static void other_copies(void)
{
	in_dict("module");
	legacy_key("w");
	legacy_tensor(FRAG_BF16, 2, (int64_t[]){ 3, 1 }, 8);
	legacy_key("b");
	legacy_vector(FRAG_BF16, 2, 4);
	legacy_key_int(3);
	legacy_vector(FRAG_BF16, 2, 4);
	legacy_up();
}

START_TEST(a_copy_of_another_shape_is_skipped)
{
	struct run r = plain;

	r.model = other_copies;
	mount(&r);
	check_none("w", "bf16");
	check_source("skipped w: module's copy has another shape");
	check_source("skipped a tensor of module: its name is too long, or no text");
	check_values("w", "fp32", -1, "100 101 102 103 200 201");
	mounted_close(&m);
}
END_TEST

static void group_of(int64_t first, int64_t n)
{
	legacy_dict();
	legacy_key("lr");
	legacy_real(0.5);
	in_list("params");
	for (int64_t i = 0; i < n; i++)
		legacy_int(first + i);
	legacy_up();
	legacy_up();
}

static int64_t third = 3; /* elements of c's state */

/* a and b of one shape, c of another; groups of the first `split` and of the others. */
static void write_plain_part(const char *name, int64_t split)
{
	legacy_begin(dir, name);
	legacy_dict();
	in_dict("module");
	legacy_key("a");
	legacy_vector(FRAG_F32, 2, 1);
	legacy_key("b");
	legacy_vector(FRAG_F32, 2, 3);
	legacy_key("c");
	legacy_vector(FRAG_F32, 3, 5);
	legacy_up();
	in_dict("optimizer");
	in_dict("state");
	for (int64_t i = 0; i < 3; i++) {
		legacy_key_int(i);
		legacy_dict();
		legacy_key("momentum_buffer");
		legacy_vector(FRAG_F32, i == 2 ? third : 2, (float)(10 * (i + 1)));
		legacy_key("step");
		legacy_tensor(FRAG_F32, 0, NULL, (float)(i + 3));
		legacy_up();
	}
	legacy_up();
	in_list("param_groups");
	group_of(0, split);
	group_of(split, 3 - split);
	legacy_up();
	legacy_up();
	legacy_up();
	legacy_end();
}

static void write_plain(int64_t split)
{
	write_plain_part("mp_rank_00_model_states.pt", split);
}

START_TEST(a_plain_checkpoint_may_have_several_parts)
{
	write_plain(3);
	write_plain_part("mp_rank_01_model_states.pt", 3);
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	mounted_close(&m);
}
END_TEST

START_TEST(states_are_named_where_one_way_fits)
{
	write_plain(2);
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	check_values("a", "momentum_buffer", -1, "10 11");
	check_values("b", "momentum_buffer", -1, "20 21");
	check_values("c", "momentum_buffer", -1, "30 31 32");
	check_values("c", "step", -1, "5");
	ck_assert_double_eq(mounted_hyper(&m, 0, "step"), 3);
	check_not_in_source("skipped");
	check_values("c", "fp32", -1, "5 6 7");
	mounted_close(&m);
	write_plain(1); /* whose group is whose? */
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	check_none("a", "momentum_buffer");
	check_values("a", "fp32", -1, "1 2");
	check_source(
		"skipped the optimizer's states: which parameter each is of is not certain");
	mounted_close(&m);
}
END_TEST

START_TEST(only_texts_are_names)
{
	legacy_begin(dir, "mp_rank_00_model_states.pt");
	legacy_dict();
	in_dict("module");
	legacy_key_int(7);
	legacy_vector(FRAG_F32, 2, 1);
	legacy_key("a");
	legacy_vector(FRAG_F32, 2, 3);
	legacy_key("running");
	legacy_vector(FRAG_F32, 2, 5);
	legacy_up();
	in_list("buffer_names");
	legacy_text("running");
	legacy_int(7);
	legacy_up();
	legacy_up();
	legacy_end();
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	check_values("a", "fp32", -1, "3 4");
	ck_assert_uint_eq(engine_nparams(m.engine), 1);
	ck_assert_uint_eq(engine_nbuffers(m.engine), 1);
	mounted_close(&m);
}
END_TEST

START_TEST(states_that_fit_nowhere_are_left_out)
{
	third = 4;
	write_plain(2);
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	check_none("a", "momentum_buffer");
	check_source(
		"skipped the optimizer's states: they do not fit the parameters of module");
	mounted_close(&m);
}
END_TEST

/* ---- stage 3 ---- */

static void write_shard_optim(int rank, int64_t count)
{
	char name[64];

	snprintf(name, sizeof(name), "zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank);
	legacy_begin(dir, name);
	legacy_dict();
	in_dict("optimizer_state_dict");
	legacy_key("zero_stage");
	legacy_int(3);
	list_of("partition_count", 2);
	in_list("fp32_flat_groups");
	legacy_vector(FRAG_F32, count, (float)(100 + 100 * rank));
	legacy_up();
	legacy_up();
	legacy_up();
	legacy_end();
}

static void write_shard_model(int rank)
{
	char name[64];

	snprintf(name, sizeof(name), "zero_pp_rank_%d_mp_rank_00_model_states.pt", rank);
	legacy_begin(dir, name);
	legacy_dict();
	in_list("param_shapes");
	legacy_dict();
	legacy_key("w");
	legacy_size(2, (int64_t[]){ 3, 2 });
	legacy_up();
	legacy_up();
	legacy_up();
	legacy_end();
}

START_TEST(shards_of_stage_3_are_equal_and_each_has_its_model)
{
	write_shard_optim(0, 3);
	write_shard_optim(1, 3);
	write_shard_model(0);
	check_refused("there are optim_states of 2 ranks, but model_states of 1");
	write_shard_model(1);
	ck_assert_msg(!mounted_open(&m, dir, NULL), "%s", m.why);
	check_values("w", "fp32", -1, "100 101 102 200 201 202");
	check_partition(1, 0, "fp32", "200 201 202");
	mounted_close(&m);
	write_shard_optim(1, 4);
	check_refused("sub-group 0 has 4 elements, 3 on rank 0");
}
END_TEST

/* ---- what does not fit together ---- */

START_TEST(ranks_must_all_be_there)
{
	struct run r = plain;
	char path[PATH_MAX];

	r.nranks = 1;
	write_run(&r);
	check_refused("zero_pp_rank_1");
	write_run(&plain);
	legacy_begin(dir, "zero_pp_rank_3_mp_rank_00_optim_states.pt");
	legacy_dict();
	legacy_up();
	legacy_end();
	check_refused("no optim_states of zero_pp_rank_2");
	legacy_begin(dir, "zero_pp_rank_2_mp_rank_00_optim_states.pt");
	legacy_dict();
	legacy_up();
	legacy_end();
	check_refused("zero_pp_rank_3: of another run");
	legacy_begin(dir, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
	legacy_dict();
	legacy_up();
	legacy_end();
	check_refused("are of one rank");
	legacy_begin(dir, "mp_rank_02_model_states.pt");
	legacy_dict();
	legacy_up();
	legacy_end();
	snprintf(path, sizeof(path), "%s/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", dir);
	ck_assert_int_eq(unlink(path), 0);
	check_refused("no file of mp_rank_01");
}
END_TEST

START_TEST(names_must_be_there)
{
	char path[PATH_MAX];

	write_run(&plain);
	snprintf(path, sizeof(path), "%s/mp_rank_00_model_states.pt", dir);
	ck_assert_int_eq(unlink(path), 0);
	check_refused("there is no mp_rank_00_model_states.pt");
}
END_TEST

static void refuse(struct run r, const char *why)
{
	write_run(&r);
	check_refused(why);
}

START_TEST(numbers_must_fit_each_other)
{
	struct run r = plain;

	r.partition_count = 3;
	refuse(r, "partition_count is 3");
	r.partition_count = 0;
	refuse(r, "no partition_count");
	r = plain;
	r.stage = 9;
	refuse(r, "zero_stage is 9");
	r = plain;
	r.rows = 100;
	refuse(r, "w: its elements are not all");
	r.rows = 1;
	r.counts[0] = 40;
	refuse(r, "elements of group 0");
	r = plain;
	r.rows = r.columns = (int64_t)1 << 32;
	refuse(r, "no tensor has such a shape");
	r.rows = -1;
	refuse(r, "no tensor has such a shape");
	r = plain;
	r.alignment = INT64_MAX;
	refuse(r, "elements are not all");
	r = plain;
	r.layers = "zero3_partitioned";
	refuse(r, "experts");
}
END_TEST

START_TEST(experts_of_some_ranks_are_skipped)
{
	struct run r = plain;

	r.expert = true;
	r.layers = "replicated";
	mount(&r);
	check_values("b", "fp32", -1, "202 203");
	check_none("expert.w", "fp32");
	check_source("skipped expert.w: ");
	mounted_close(&m);
}
END_TEST

/* ---- */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return ftw->level ? remove(path) : 0;
}

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(strcpy(dir, "/tmp/test-format-zero-XXXXXX")));
}

static void teardown(void)
{
	nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	rmdir(dir);
}

int main(void)
{
	Suite *s = suite_create("format-zero");
	TCase *t = tcase_create("format-zero");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, parameters_are_cut_out_of_the_ranks_vectors);
	tcase_add_test(t, padding_between_parameters_is_no_ones);
	tcase_add_test(t, states_have_the_padding_that_masters_lack);
	tcase_add_test(t, the_bf16_optimizer_keeps_its_padding);
	tcase_add_test(t, a_state_that_not_all_ranks_have_is_none);
	tcase_add_test(t, a_tensor_of_one_element_is_a_number_of_the_group);
	tcase_add_test(t, a_state_of_one_element_is_no_number);
	tcase_add_test(t, module_says_what_else_there_is);
	tcase_add_test(t, a_name_that_is_too_long_is_skipped);
	tcase_add_test(t, a_copy_of_another_shape_is_skipped);
	tcase_add_test(t, a_plain_checkpoint_may_have_several_parts);
	tcase_add_test(t, states_are_named_where_one_way_fits);
	tcase_add_test(t, only_texts_are_names);
	tcase_add_test(t, states_that_fit_nowhere_are_left_out);
	tcase_add_test(t, shards_of_stage_3_are_equal_and_each_has_its_model);
	tcase_add_test(t, ranks_must_all_be_there);
	tcase_add_test(t, names_must_be_there);
	tcase_add_test(t, numbers_must_fit_each_other);
	tcase_add_test(t, experts_of_some_ranks_are_skipped);
	tcase_set_timeout(t, 60);
	return run_suite(s, t);
}

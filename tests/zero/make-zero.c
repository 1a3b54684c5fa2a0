/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Writes a checkpoint as DeepSpeed's ZeRO does with bf16 and Adam.
 *
 *	make-zero [-s] [-g ELEMENTS] [-p FOLDER] FOLDER STAGE RANKS MODEL
 *
 * STAGE 2 or 3; MODEL 70b or the bytes of its fp32.  -s: sparse, but for known values, which
 * are listed: name, state, element, value in hexadecimal.  -g: of a rank's sub-group
 * (1000000000).  -p: the values of fp32 besides, a plain file a parameter.
 */

#include "tests/zero/model.h"
#include "tests/zero/torch-writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { BLOCK = 1 << 18, GROUPS_MAX = 8 };

static struct model model;
static const char *folder;
static unsigned stage, ranks;
static uint64_t sub_group = 1000000000; /* elements of a rank */

/* A group of stage 2, a sub-group of stage 3: of consecutive parameters. */
static struct group {
	unsigned first, end;
	uint64_t partition; /* elements of a rank's */
} groups[GROUPS_MAX];
static unsigned ngroups;

/* Elements of a parameter in each rank's sub-group. */
static uint64_t piece_of(unsigned param)
{
	return u64_div_ceil(model.params[param].numel, ranks);
}

static void divide(void)
{
	uint64_t align = 2ull * ranks;

	groups[ngroups++] = (struct group){ 0, model.n, 0 };
	if (stage == 2)
		groups[0].partition = u64_div_ceil(model.numel, align) * 2;
	for (unsigned p = 0; p < model.n && stage == 3; p++) {
		struct group *g = &groups[ngroups - 1];

		g->partition += piece_of(p);
		if (g->partition < sub_group || p + 1 == model.n)
			continue;
		assert(ngroups < GROUPS_MAX);
		g->end = p + 1;
		groups[ngroups++] = (struct group){ p + 1, model.n, 0 };
	}
}

/* ---- what optim_states and model_states have in common ---- */

static void begin_dict(struct pickle_out *p)
{
	out_op(p, "}(");
}

static void out_key(struct pickle_out *p, const char *key, const char *ops)
{
	out_text(p, key);
	out_op(p, ops);
}

static void out_config(struct pickle_out *p)
{
	out_key(p, "ds_config", "}(");
	out_text_int(p, "train_micro_batch_size_per_gpu", 1);
	out_key(p, "zero_optimization", "}(");
	out_text_int(p, "stage", stage);
	out_op(p, "u");
	out_key(p, "bf16", "}(");
	out_key(p, "enabled", "\x88u");
	out_op(p, "u");
	out_text(p, "ds_version");
	out_text(p, "0.19.6");
}

static void out_stage(struct pickle_out *p)
{
	out_text(p, "zero_stage");
	out_global(p, "deepspeed.runtime.zero.config\nZeroStageEnum\n");
	out_int(p, stage);
	out_op(p, "\x85R");
}

static void out_float_tensor(struct pickle_out *p, unsigned storage, uint64_t numel,
			     unsigned ndim)
{
	out_tensor(p, &(struct tensor_out){ "Float", storage, numel, 0, &numel, ndim });
}

/* ---- optim_states: step, exp_avg, exp_avg_sq of each group, then the masters ---- */

static void out_states(struct pickle_out *p)
{
	out_key(p, "state", "}(");
	for (unsigned g = 0; g < ngroups; g++) {
		out_int(p, g);
		begin_dict(p);
		out_text(p, "step");
		out_float_tensor(p, 3 * g, 1, 0);
		for (unsigned s = 1; s < MODEL_STATES; s++) {
			out_text(p, model_state[s]);
			out_float_tensor(p, 3 * g + s, groups[g].partition, 1);
		}
		out_op(p, "u");
	}
	out_op(p, "u");
}

static void out_param_groups(struct pickle_out *p)
{
	out_key(p, "param_groups", "](}(");
	out_text(p, "lr");
	out_float(p, 0.0003);
	out_text(p, "betas");
	out_float(p, 0.9);
	out_float(p, 0.95);
	out_op(p, "\x86");
	out_text(p, "eps");
	out_float(p, 1e-8);
	out_text(p, "weight_decay");
	out_float(p, 0.1);
	out_key(p, "params", "](");
	for (unsigned g = 0; g < ngroups; g++)
		out_int(p, g);
	out_op(p, "eue");
}

/* Of a rank's partition of the only group, that which is no padding. */
static uint64_t filled(unsigned rank)
{
	uint64_t begin = u64_min(groups[0].partition * rank, model.numel);

	return u64_min(groups[0].partition, model.numel - begin);
}

static uint64_t master_numel(unsigned group, unsigned rank)
{
	return stage == 3 ? groups[group].partition : filled(rank);
}

static void out_masters(struct pickle_out *p, unsigned rank)
{
	out_key(p, stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups", "](");
	for (unsigned g = 0; g < ngroups; g++)
		out_float_tensor(p, 3 * ngroups + g, master_numel(g, rank), 1);
	out_op(p, "e");
}

static void out_slice(struct pickle_out *p, const char *name, uint64_t start, uint64_t numel)
{
	out_text(p, name);
	out_global(p, "deepspeed.utils.tensor_fragment\nfragment_address\n");
	out_op(p, ")\x81}(");
	out_text_int(p, "numel", numel);
	out_text_int(p, "start", start);
	out_op(p, "ub");
}

static void out_slices(struct pickle_out *p, unsigned rank)
{
	uint64_t begin = groups[0].partition * rank, end = begin + groups[0].partition, at = 0;

	out_key(p, "param_slice_mappings", "](");
	out_ordered(p);
	out_op(p, "(");
	for (unsigned i = 0; i < model.n; at += model.params[i++].numel) {
		uint64_t from = u64_max(at, begin);
		uint64_t to = u64_min(at + model.params[i].numel, end);

		if (from < to)
			out_slice(p, model.params[i].name, from - begin, to - from);
	}
	out_op(p, "ue");
}

static void out_optimizer(struct pickle_out *p, unsigned rank)
{
	out_key(p, "optimizer_state_dict", "}(");
	out_stage(p);
	out_key(p, "loss_scaler", "");
	out_global(p, "deepspeed.runtime.fp16.loss_scaler\nLossScaler\n");
	out_op(p, ")\x81}(");
	out_text(p, "cur_scale");
	out_float(p, 1);
	out_op(p, "ub");
	out_key(p, "dynamic_loss_scale", "\x89");
	out_key(p, "overflow", "\x89");
	out_key(p, "partition_count", stage == 3 ? "" : "](");
	out_int(p, ranks);
	out_op(p, stage == 3 ? "" : "e");
	out_key(p, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state", "}(");
	out_states(p);
	out_param_groups(p);
	out_op(p, "u");
	out_masters(p, rank);
	if (stage == 2) {
		out_key(p, "group_paddings", "](");
		out_int(p, groups[0].partition - filled(rank));
		out_op(p, "e");
		out_slices(p, rank);
	}
	out_op(p, "u");
}

/* ---- values ---- */

static void write_values(struct zip_out *z, uint64_t at, unsigned param, unsigned state,
			 uint64_t first, uint64_t n)
{
	static float values[BLOCK];

	for (uint64_t i = 0, some; i < n; i += some) {
		some = u64_min(n - i, BLOCK);
		model_values(&model, param, state, first + i, some, values);
		zip_out_write(z, at + i * sizeof(float), values, some * sizeof(float));
	}
}

/* Elements first .. first + n of a parameter's state stand at `at`. */
static void write_run(struct zip_out *z, uint64_t at, unsigned param, unsigned state,
		      uint64_t first, uint64_t n)
{
	if (!model.sparse) {
		write_values(z, at, param, state, first, n);
		return;
	}
	for (unsigned i = 0; i < MODEL_KNOWN; i++) {
		uint64_t known = model_known(&model, param, i);

		if (known >= first && known - first < n)
			write_values(z, at + (known - first) * sizeof(float), param, state,
				     known, 1);
	}
}

static void fill_sub_group(struct zip_out *z, uint64_t at, const struct group *g, unsigned rank,
			   unsigned state)
{
	for (unsigned p = g->first; p < g->end; p++) {
		uint64_t piece = piece_of(p), numel = model.params[p].numel;
		uint64_t first = u64_min(piece * rank, numel);

		write_run(z, at, p, state, first, u64_min(piece, numel - first));
		at += piece * sizeof(float);
	}
}

static void fill_partition(struct zip_out *z, uint64_t at, unsigned rank, unsigned state)
{
	uint64_t begin = groups[0].partition * rank, end = begin + groups[0].partition;
	uint64_t param = 0;

	for (unsigned p = 0; p < model.n; param += model.params[p++].numel) {
		uint64_t from = u64_max(param, begin);
		uint64_t to = u64_min(param + model.params[p].numel, end);

		if (from < to)
			write_run(z, at + (from - begin) * sizeof(float), p, state,
				  from - param, to - from);
	}
}

static void fill(struct zip_out *z, uint64_t at, unsigned group, unsigned rank, unsigned state)
{
	if (stage == 3)
		fill_sub_group(z, at, &groups[group], rank, state);
	else
		fill_partition(z, at, rank, state);
}

static void write_optim(unsigned rank)
{
	const float step = 1000;
	struct pickle_out p = { 0 };
	struct zip_out *z;
	char name[80];

	out_op(&p, "\x80\x02}(");
	out_optimizer(&p, rank);
	out_config(&p);
	out_op(&p, "u.");
	snprintf(name, sizeof(name), "bf16_zero_pp_rank_%u_mp_rank_00_optim_states", rank);
	z = zip_out_open(folder, name, &p);
	for (unsigned g = 0; g < ngroups; g++) {
		zip_out_write(z, zip_out_storage(z, sizeof(step)), &step, sizeof(step));
		for (unsigned s = 1; s < MODEL_STATES; s++)
			fill(z, zip_out_storage(z, groups[g].partition * sizeof(float)), g,
			     rank, s);
	}
	for (unsigned g = 0; g < ngroups; g++)
		fill(z, zip_out_storage(z, master_numel(g, rank) * sizeof(float)), g, rank, 0);
	zip_out_close(z);
}

/* ---- model_states ---- */

/* Stage 2: views of one storage; stage 3: nothing, in a storage each. */
static void out_module(struct pickle_out *p)
{
	uint64_t none = 0, at = 0;

	out_text(p, "module");
	out_ordered(p);
	out_op(p, "(");
	for (unsigned i = 0; i < model.n; at += model.params[i++].numel) {
		const struct model_param *m = &model.params[i];
		struct tensor_out t = { "BFloat16", i, 0, 0, &none, 1 };

		if (stage == 2)
			t = (struct tensor_out){ "BFloat16", 0,        model.numel,
						 at,         m->shape, m->ndim };
		out_text(p, m->name);
		out_tensor(p, &t);
	}
	out_op(p, "u");
}

static void out_shapes(struct pickle_out *p)
{
	out_key(p, "param_shapes", "](");
	for (unsigned g = 0; g < ngroups; g++) {
		out_ordered(p);
		out_op(p, "(");
		for (unsigned i = groups[g].first; i < groups[g].end; i++) {
			out_text(p, model.params[i].name);
			out_size(p, model.params[i].shape, model.params[i].ndim);
		}
		out_op(p, "u");
	}
	out_op(p, "e");
}

static void out_rest(struct pickle_out *p)
{
	static const char *const nones[] = {
		"optimizer",    "frozen_param_shapes", "frozen_param_fragments",
		"lr_scheduler", "data_sampler",        "random_ltd"
	};

	for (size_t i = 0; i < ARRAY_SIZE(nones); i++)
		out_key(p, nones[i], "N");
	out_key(p, "buffer_names", "]");
	out_key(p, "shared_params", "}");
	out_key(p, "sparse_tensor_module_names", "");
	out_global(p, "__builtin__\nset\n");
	out_op(p, "]\x85R");
	out_text_int(p, "skipped_steps", 0);
	out_text_int(p, "global_steps", 1000);
	out_text_int(p, "global_samples", 1000ull * ranks);
	out_text_int(p, "dp_world_size", ranks);
	out_text_int(p, "mp_world_size", 1);
}

static uint16_t bf16_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void write_copies(struct zip_out *z, uint64_t at, unsigned param, uint64_t first,
			 uint64_t n)
{
	static float values[BLOCK];
	static uint16_t copies[BLOCK];

	model_values(&model, param, 0, first, n, values);
	for (uint64_t i = 0; i < n; i++)
		copies[i] = bf16_of(values[i]);
	zip_out_write(z, at + first * sizeof(*copies), copies, n * sizeof(*copies));
}

static void fill_module(struct zip_out *z)
{
	uint64_t at = zip_out_storage(z, model.numel * sizeof(uint16_t));

	for (unsigned p = 0; p < model.n && !model.sparse; p++) {
		for (uint64_t i = 0; i < model.params[p].numel; i += BLOCK)
			write_copies(z, at, p, i, u64_min(BLOCK, model.params[p].numel - i));
		at += model.params[p].numel * sizeof(uint16_t);
	}
}

static void write_model(const char *name)
{
	struct pickle_out p = { 0 };
	struct zip_out *z;

	out_op(&p, "\x80\x02}(");
	out_module(&p);
	out_shapes(&p);
	out_rest(&p);
	out_config(&p);
	out_op(&p, "u.");
	z = zip_out_open(folder, name, &p);
	if (stage == 2)
		fill_module(z);
	else
		for (unsigned i = 0; i < model.n; i++)
			zip_out_storage(z, 0);
	zip_out_close(z);
}

/* ---- beside it ---- */

static void list_known(void)
{
	float value;
	uint32_t bits;

	for (unsigned p = 0; p < model.n; p++)
		for (unsigned s = 0; s < MODEL_STATES; s++)
			for (unsigned i = 0; i < MODEL_KNOWN; i++) {
				uint64_t element = model_known(&model, p, i);

				model_values(&model, p, s, element, 1, &value);
				memcpy(&bits, &value, sizeof(bits));
				printf("%s %s %llu %08x\n", model.params[p].name,
				       model_state[s], (unsigned long long)element, bits);
			}
}

static void write_plain_file(const char *to, unsigned param)
{
	static float values[BLOCK];
	uint64_t numel = model.params[param].numel;
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", to, model.params[param].name);
	f = fopen(path, "w");
	if (!f)
		writer_fail(path);
	for (uint64_t i = 0; i < numel; i += BLOCK) {
		size_t n = (size_t)u64_min(BLOCK, numel - i);

		model_values(&model, param, 0, i, n, values);
		if (fwrite(values, sizeof(float), n, f) != n)
			writer_fail(path);
	}
	if (fclose(f))
		writer_fail(path);
}

static void write_checkpoint(void)
{
	char name[80];

	divide();
	for (unsigned rank = 0; rank < ranks; rank++) {
		snprintf(name, sizeof(name), "zero_pp_rank_%u_mp_rank_00_model_states", rank);
		if (stage == 3)
			write_model(name);
		write_optim(rank);
	}
	if (stage == 2)
		write_model("mp_rank_00_model_states");
}

int main(int argc, char **argv)
{
	const char *plain = NULL;
	bool sparse = false;
	int c;

	while ((c = getopt(argc, argv, "sg:p:")) != -1) {
		sparse = sparse || c == 's';
		plain = c == 'p' ? optarg : plain;
		sub_group = c == 'g' ? strtoull(optarg, NULL, 10) : sub_group;
	}
	argv += optind;
	if (argc - optind == 4) {
		folder = argv[0];
		stage = (unsigned)atoi(argv[1]);
		ranks = (unsigned)atoi(argv[2]);
	}
	if (stage < 2 || stage > 3 || !ranks) {
		fprintf(stderr, "usage: make-zero [-s] [-g ELEMENTS] [-p FOLDER] FOLDER STAGE "
				"RANKS MODEL\n");
		return 2;
	}
	model_init(&model, argv[3]);
	model.sparse = sparse;
	write_checkpoint();
	if (sparse)
		list_known();
	for (unsigned p = 0; p < model.n && plain; p++)
		write_plain_file(plain, p);
	return 0;
}

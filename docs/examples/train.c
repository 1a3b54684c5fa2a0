/* SPDX-License-Identifier: Apache-2.0 */

/* How a trainer with ZeRO's sharded state attaches to libfrag.
 *
 *	for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 docs/examples/train --stage 2 & done
 *
 * Each rank learns from its own part of the batch, and owns a partition of the fp32 masters, of the
 * gradients and of Adam's moments.  What a larger trainer does by NCCL, this one does by frag_peer_read:
 *
 *	backward           all gradients, of this rank's samples, published
 *	reduce             own partition: the sum over the ranks
 *	adam               own partition: masters and moments, then the bf16 parameters; with --swap slice by
 *	                   slice, of states that live on NVMe; with --device of states in a GPU's memory: this
 *	                   example has no kernels, so that they are fetched, and the new ones enqueued to go there
 *	pull_parameters    stages 1 and 2: the other ranks' bf16 parameters
 *	load_weights       widens them; stage 3, where each rank keeps its shards only, gathers first
 *
 * All sums are in the order of ranks, so that every stage computes the same bits.
 */

#include "device.h"
#include "model.h"
#include "options.h"

#include <frag.h>

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE_MS = 120000, NGROUPS = 2 };
enum { MASTER, GRAD, EXP_AVG, EXP_AVG_SQ, NSTATES };

struct param {
	uint64_t flat;  /* its first element among those of all groups, one after the other */
	uint64_t shard; /* stage 3: of this rank's pieces */
	uint64_t piece; /* stage 3: elements of one rank's */
	int id;         /* frag_param's */
	struct frag_fragment own;
};

/* A param group of the optimizer, and this rank's partition of it. */
struct group {
	int id; /* frag_group's */
	double lr, beta1, beta2, eps, weight_decay;
	uint64_t flat; /* its first element, as above; its number of elements */
	uint64_t total;
	uint64_t numel;                              /* of the partition, padding included */
	float *master, *grad, *exp_avg, *exp_avg_sq; /* NULL: on NVMe */
	float *on_device[NSTATES]; /* then the others are what was fetched from there */
};

/* A run of elements of a partition, in memory. */
struct slice {
	uint64_t first, numel;
	float *master, *grad, *exp_avg, *exp_avg_sq;
};

/* What a rank tells the others after its gradients. */
struct word {
	double loss; /* sum over its samples */
	double stop;
};

struct trainer {
	struct options options;
	struct frag *frag; /* NULL: alone */
	int rank, world;
	struct text text;
	struct model model;
	struct param param[MODEL_NPARAMS];
	struct group group[NGROUPS];
	uint64_t total; /* elements of the model */
	float *weight, *gradient, *scratch, *sum;
	uint16_t *
		lp; /* stages 0 to 2: all bf16 parameters; stage 3: this rank's shards, or some on the way to NVMe */
	uint64_t lp_numel;
	struct word word;
	uint64_t step;   /* steps done */
	uint64_t losses; /* a digest of the bits of all losses */
};

static volatile sig_atomic_t asked_to_stop;

static void on_signal(int number)
{
	asked_to_stop = 1;
}

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "train: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(1);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static void *zeroed(uint64_t n, size_t size)
{
	void *memory = calloc(n ? n : 1, size);

	if (!memory)
		die("out of memory");
	return memory;
}

/* For calls that this rank cannot train without; alone it can. */
static int need(const struct trainer *t, const char *what, int result)
{
	if (result < 0 && t->frag)
		die("rank %d: %s: %s", t->rank, what, strerror(-result));
	return result;
}

/* ---- bf16 ---- */

static uint16_t bf16_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float float_of(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static int group_of(const struct trainer *t, int p)
{
	return t->model.param[p].decay ? 0 : 1;
}

/* Own part of p's bf16, from its element at on, from n masters. */
static void narrow(struct trainer *t, int p, uint64_t at, const float *master, uint64_t n)
{
	const struct param *param = &t->param[p];
	uint16_t *lp = t->options.stage == 3 ? t->lp + param->shard
					     : t->lp + param->flat + param->own.param_offset;

	for (uint64_t i = 0; i < n; i++)
		lp[at + i] = bf16_of(master[i]);
	if (t->options.swap_params)
		need(t, "parameter", frag_param_put(t->frag, param->id, at, lp + at, n));
}

/* ---- attaching ---- */

/* Lays the parameters out: group by group, and (stage 3) shard by shard. */
static void place(struct trainer *t)
{
	uint64_t world = (uint64_t)t->world;

	for (int g = 0; g < NGROUPS; g++) {
		t->group[g].flat = t->total;
		for (int p = 0; p < MODEL_NPARAMS; p++) {
			struct param *param = &t->param[p];

			if (group_of(t, p) != g)
				continue;
			param->flat = t->total;
			param->shard = t->lp_numel;
			param->piece = (t->model.param[p].numel + world - 1) / world;
			t->total += t->model.param[p].numel;
			t->lp_numel += param->piece;
		}
		t->group[g].total = t->total - t->group[g].flat;
	}
	if (t->options.stage < 3)
		t->lp_numel = t->total;
	t->lp = zeroed(t->lp_numel, sizeof(*t->lp));
	t->weight = zeroed(t->total, sizeof(*t->weight));
	t->scratch = zeroed(t->total, sizeof(*t->scratch));
	t->gradient = zeroed(t->total, sizeof(*t->gradient));
	t->sum = zeroed(t->total, sizeof(*t->sum));
}

static void add_param(struct trainer *t, int p)
{
	const struct model_param *m = &t->model.param[p];
	bool sharded = t->options.stage == 3;
	struct frag_tensor tensor = {
		.size = sizeof(tensor),
		.name = m->name,
		.dtype = FRAG_BF16,
		.ndim = m->ndim,
		.shape = m->shape,
		.lp = sharded ? NULL : t->lp + t->param[p].flat,
		.lp_shard =
			sharded && !t->options.swap_params ? t->lp + t->param[p].shard : NULL,
	};

	t->param[p].id = need(t, m->name, frag_param(t->frag, &tensor));
}

static float *add_on_device(struct trainer *t, struct group *g, int state, const char *key)
{
	float *memory = device_alloc(g->numel * sizeof(*memory));

	g->on_device[state] = memory;
	need(t, key, frag_state_keep(t->frag, g->id, 0, key, FRAG_F32, memory));
	return zeroed(g->numel, sizeof(*memory));
}

/* A state of the partition on NVMe, on a device, or in the library's memory; alone, in ours. */
static float *add_state(struct trainer *t, struct group *g, int state, const char *key)
{
	void *memory;

	if (t->options.device)
		return add_on_device(t, g, state, key);
	if (t->options.swap) {
		need(t, key, frag_state_swap(t->frag, g->id, 0, key, FRAG_F32));
		return NULL;
	}
	if (need(t, key, frag_state_alloc(t->frag, g->id, 0, key, FRAG_F32, &memory)) < 0)
		memory = zeroed(g->numel, sizeof(float));
	return memory;
}

/* Where this rank's part of p is; alone, that is all of it. */
static void find_fragment(struct trainer *t, int p)
{
	struct param *param = &t->param[p];
	int rc = frag_fragment(t->frag, param->id, &param->own);

	if (t->frag && rc == -ENOENT)
		param->own = (struct frag_fragment){ .numel = 0 };
	else if (need(t, "fragment", rc) < 0)
		param->own = (struct frag_fragment){
			.partition_offset = param->flat - t->group[group_of(t, p)].flat,
			.numel = t->model.param[p].numel,
		};
}

static void add_group(struct trainer *t, int number)
{
	struct group *g = &t->group[number];
	struct frag_zero zero = { .size = sizeof(zero), .stage = (int)t->options.stage };
	int member[MODEL_NPARAMS];
	size_t n = 0;

	for (int p = 0; p < MODEL_NPARAMS; p++)
		if (group_of(t, p) == number)
			member[n++] = t->param[p].id;
	g->id = need(t, "group", frag_group(t->frag, member, n, &zero));
	g->numel = t->frag ? frag_partition_numel(t->frag, g->id, 0) : g->total;
	g->master = add_state(t, g, MASTER, "fp32");
	g->grad = add_state(t, g, GRAD, "grad");
	g->exp_avg = add_state(t, g, EXP_AVG, "exp_avg");
	g->exp_avg_sq = add_state(t, g, EXP_AVG_SQ, "exp_avg_sq");
}

static void add_hypers(struct trainer *t, struct group *g)
{
	need(t, "lr", frag_hyper(t->frag, g->id, "lr", &g->lr));
	need(t, "beta1", frag_hyper(t->frag, g->id, "beta1", &g->beta1));
	need(t, "beta2", frag_hyper(t->frag, g->id, "beta2", &g->beta2));
	need(t, "eps", frag_hyper(t->frag, g->id, "eps", &g->eps));
	need(t, "weight_decay", frag_hyper(t->frag, g->id, "weight_decay", &g->weight_decay));
}

/* Elements of the partition's state, wherever that is; memory: its own. */
static void put(struct trainer *t, const struct group *g, int state, const char *key,
		float *memory, uint64_t first, const float *values, uint64_t n)
{
	if (memory)
		memcpy(memory + first, values, n * sizeof(*values));
	if (g->on_device[state])
		device_put(g->on_device[state] + first, memory + first, n * sizeof(*values));
	if (!memory)
		need(t, key, frag_state_put(t->frag, g->id, 0, key, first, values, n, 0));
}

static void first_masters(struct trainer *t)
{
	for (int p = 0; p < MODEL_NPARAMS; p++) {
		const struct frag_fragment *own = &t->param[p].own;
		const struct group *g = &t->group[group_of(t, p)];

		for (uint64_t i = 0; i < own->numel; i++)
			t->sum[i] = model_initial(&t->model, p, own->param_offset + i,
						  t->options.seed);
		put(t, g, MASTER, "fp32", g->master, own->partition_offset, t->sum, own->numel);
		if (!t->options.swap_params)
			narrow(t, p, 0, t->sum, own->numel);
	}
}

/* From the masters, in the order in which load_weights takes them in. */
static void swap_params(struct trainer *t)
{
	int all[MODEL_NPARAMS];

	for (int p = 0; p < MODEL_NPARAMS; p++)
		all[p] = t->param[p].id;
	need(t, "parameters", frag_params_swap(t->frag, all, MODEL_NPARAMS, NULL));
}

static void publish(struct trainer *t)
{
	need(t, "publish",
	     frag_publish(t->frag, "gradients", t->gradient, t->total * sizeof(*t->gradient)));
	need(t, "publish", frag_publish(t->frag, "lp", t->lp, t->lp_numel * sizeof(*t->lp)));
	need(t, "publish", frag_publish(t->frag, "word", &t->word, sizeof(t->word)));
}

static void barrier(struct trainer *t)
{
	if (t->world > 1)
		need(t, "barrier", frag_barrier(t->frag, PATIENCE_MS));
}

static bool launched(void)
{
	static const char *const variable[] = { "FRAG_RANK", "RANK",     "OMPI_COMM_WORLD_RANK",
						"PMIX_RANK", "PMI_RANK", "SLURM_PROCID" };

	for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); i++)
		if (getenv(variable[i]))
			return true;
	return false;
}

/* Who we are: as the launcher says, or alone.  One rank trains without the library too. */
static void open_frag(struct trainer *t)
{
	struct frag_config config = { .size = sizeof(config), .swap_dir = t->options.swap };
	const char *world = getenv("WORLD_SIZE");
	int rc;

	if (!launched()) {
		config.rank = "0";
		config.world = 1;
	}
	rc = frag_open(&t->frag, &config);
	if (rc < 0 && launched() && !(world && atoi(world) == 1))
		die("cannot meet the other ranks: %s", strerror(-rc));
	if (rc < 0 && t->options.swap)
		die("cannot swap to %s: %s", t->options.swap, strerror(-rc));
	if (rc < 0 && t->options.device)
		die("cannot show memory of a device: %s", strerror(-rc));
	if (rc < 0)
		fprintf(stderr, "train: nobody will see this training: %s\n", strerror(-rc));
	t->rank = t->frag ? frag_rank(t->frag) : 0;
	t->world = t->frag ? frag_world(t->frag) : 1;
}

static void use_device(struct trainer *t)
{
	struct frag_devices devices = { .size = sizeof(devices),
					.number = atoi(t->options.device),
					.timeout_ms = (unsigned)t->options.device_ms };

	devices.stream = device_open(devices.number);
	need(t, "device", frag_devices(t->frag, &devices));
}

static void attach(struct trainer *t)
{
	open_frag(t);
	if (t->options.device)
		use_device(t);
	place(t);
	for (int p = 0; p < MODEL_NPARAMS; p++)
		add_param(t, p);
	for (int g = 0; g < NGROUPS; g++) {
		add_group(t, g);
		add_hypers(t, &t->group[g]);
	}
	for (int p = 0; p < MODEL_NPARAMS; p++)
		find_fragment(t, p);
	first_masters(t);
	if (t->options.swap_params)
		swap_params(t);
	publish(t);
	need(t, "ready", frag_ready(t->frag));
}

/* ---- one step ---- */

static void pull(struct trainer *t, int rank, const char *name, uint64_t offset, void *out,
		 uint64_t bytes)
{
	if (bytes > 0)
		need(t, name, frag_peer_read(t->frag, rank, name, offset, out, bytes));
}

/* Parts of a parameter from the ranks that have them, wherever they do. */
static void pull_param(struct trainer *t, int p, uint64_t at, uint16_t *to, uint64_t n)
{
	if (n > 0)
		need(t, "parameter",
		     frag_get_range(t->frag, t->param[p].id, "lp", at * sizeof(*to), to,
				    n * sizeof(*to)));
}

/* On NVMe: while this one is in the next are on their way. */
static void gather_swapped(struct trainer *t, int p, uint16_t *to)
{
	uint64_t numel = t->model.param[p].numel, piece = t->param[p].piece;
	uint64_t from = least(numel, (uint64_t)t->rank * piece),
		 end = least(numel, from + piece);
	int id = t->param[p].id, next = t->param[p + 1 < MODEL_NPARAMS ? p + 1 : 0].id;
	void *own;

	need(t, "parameter", frag_params_in(t->frag, &id, 1, &own));
	need(t, "parameter", frag_params_ahead(t->frag, &next, 1));
	memcpy(to + from, own, (end - from) * sizeof(*to));
	need(t, "parameter", frag_params_out(t->frag, &id, 1, 0));
	pull_param(t, p, 0, to, from);
	pull_param(t, p, end, to + end, numel - end);
}

/* Stage 3: the whole of p from its shards, into to. */
static void gather(struct trainer *t, int p, uint16_t *to)
{
	uint64_t numel = t->model.param[p].numel, piece = t->param[p].piece;
	const uint16_t *own = t->lp + t->param[p].shard;

	for (int r = 0; r < t->world; r++) {
		uint64_t at = (uint64_t)r * piece;
		uint64_t n = at >= numel ? 0 : numel - at < piece ? numel - at : piece;

		if (r == t->rank)
			memcpy(to + at, own, n * sizeof(*to));
		else
			pull(t, r, "lp", t->param[p].shard * sizeof(*to), to + at,
			     n * sizeof(*to));
	}
}

/* The weights that this step computes with.  They are read anew each time: an edit through the mount
 * has changed the bf16 parameters in place.
 */
static void load_weights(struct trainer *t)
{
	for (int p = 0; p < MODEL_NPARAMS; p++) {
		const uint16_t *from = t->lp + t->param[p].flat;
		float *to = t->weight + t->param[p].flat;

		if (t->options.stage == 3) {
			(t->options.swap_params ? gather_swapped
						: gather)(t, p, (uint16_t *)t->scratch);
			from = (const uint16_t *)t->scratch;
		}
		for (uint64_t i = 0; i < t->model.param[p].numel; i++)
			to[i] = float_of(from[i]);
	}
}

/* Samples are numbered through all ranks: the same whatever the world and the stage. */
static void backward(struct trainer *t)
{
	float *weight[MODEL_NPARAMS], *gradient[MODEL_NPARAMS];
	uint64_t places = t->text.length - MODEL_CONTEXT;
	uint64_t first = (uint64_t)t->rank * t->options.batch;

	for (int p = 0; p < MODEL_NPARAMS; p++) {
		weight[p] = t->weight + t->param[p].flat;
		gradient[p] = t->gradient + t->param[p].flat;
	}
	memset(t->gradient, 0, t->total * sizeof(*t->gradient));
	t->word = (struct word){ .stop = asked_to_stop };
	for (uint64_t i = first; i < first + t->options.batch; i++) {
		uint64_t at = mix(t->options.seed + 1, t->step, i) % places;

		t->word.loss += model_learn(&t->model, t->text.symbol + at, weight, gradient);
	}
}

/* Own partition of the gradients: the mean over all ranks' samples. */
static void reduce(struct trainer *t)
{
	float share = 1.0f / ((float)t->options.batch * (float)t->world);

	for (int p = 0; p < MODEL_NPARAMS; p++) {
		const struct frag_fragment *own = &t->param[p].own;
		const struct group *g = &t->group[group_of(t, p)];
		uint64_t first = t->param[p].flat + own->param_offset;

		memset(t->sum, 0, own->numel * sizeof(*t->sum));
		for (int r = 0; r < t->world; r++) {
			const float *from = t->gradient + first;

			if (r != t->rank) {
				pull(t, r, "gradients", first * sizeof(*from), t->scratch,
				     own->numel * sizeof(*from));
				from = t->scratch;
			}
			for (uint64_t i = 0; i < own->numel; i++)
				t->sum[i] += from[i];
		}
		for (uint64_t i = 0; i < own->numel; i++)
			t->sum[i] *= share;
		put(t, g, GRAD, "grad", g->grad, own->partition_offset, t->sum, own->numel);
	}
}

/* The mean loss over all ranks; all see the same words, so all stop after the same step. */
static struct word hear(struct trainer *t)
{
	struct word all = { .loss = 0 };

	for (int r = 0; r < t->world; r++) {
		struct word word = t->word;

		if (r != t->rank)
			pull(t, r, "word", 0, &word, sizeof(word));
		all.loss += word.loss / (double)t->options.batch / t->world;
		all.stop += word.stop;
	}
	return all;
}

static void adam_slice(const struct trainer *t, const struct group *g, const struct slice *s)
{
	double steps = (double)(t->step + 1);
	double correct1 = 1 - pow(g->beta1, steps), correct2 = 1 - pow(g->beta2, steps);

	for (uint64_t i = 0; i < s->numel; i++) {
		double grad = s->grad[i], m, v;

		m = g->beta1 * s->exp_avg[i] + (1 - g->beta1) * grad;
		v = g->beta2 * s->exp_avg_sq[i] + (1 - g->beta2) * grad * grad;
		s->exp_avg[i] = (float)m;
		s->exp_avg_sq[i] = (float)v;
		s->master[i] -= (float)(g->lr * (m / correct1 / (sqrt(v / correct2) + g->eps) +
						 g->weight_decay * s->master[i]));
	}
}

/* The parameters that have elements in the slice. */
static void narrow_slice(struct trainer *t, int number, const struct slice *s)
{
	for (int p = 0; p < MODEL_NPARAMS; p++) {
		uint64_t start = t->param[p].own.partition_offset;
		uint64_t end = start + t->param[p].own.numel, from, to;

		from = start > s->first ? start : s->first;
		to = end < s->first + s->numel ? end : s->first + s->numel;
		if (group_of(t, p) == number && from < to)
			narrow(t, p, from - start, s->master + (from - s->first), to - from);
	}
}

/* The next slice of a partition on NVMe, of which the one before goes back; false: there is none. */
static bool next_slice(const struct trainer *t, struct frag_sweep *sweep, struct slice *s)
{
	void *memory[4];

	if (!need(t, "sweep", frag_sweep_next(sweep, &s->first, &s->numel, memory)))
		return false;
	s->master = memory[0];
	s->exp_avg = memory[1];
	s->exp_avg_sq = memory[2];
	s->grad = memory[3];
	return true;
}

static void adam_on_disk(struct trainer *t, int number)
{
	static const struct frag_swept states[] = {
		{ "fp32", 0 }, { "exp_avg", 0 }, { "exp_avg_sq", 0 }, { "grad", FRAG_READ_ONLY }
	};
	const struct group *g = &t->group[number];
	struct frag_sweep *sweep;
	struct slice s;

	need(t, "sweep", frag_sweep_begin(t->frag, g->id, 0, states, 4, &sweep));
	if (number + 1 < NGROUPS)
		need(t, "sweep", frag_sweep_then(sweep, t->group[number + 1].id, 0));
	while (next_slice(t, sweep, &s)) {
		adam_slice(t, g, &s);
		narrow_slice(t, number, &s);
	}
	frag_sweep_end(sweep);
}

/* The states as they are, edits and all; what is computed of them goes there before frag_step_end. */
static void adam_on_device(struct trainer *t, int number, const struct slice *all)
{
	const struct group *g = &t->group[number];
	float *const host[NSTATES] = { g->master, g->grad, g->exp_avg, g->exp_avg_sq };

	for (int i = 0; i < NSTATES; i++)
		device_get(host[i], g->on_device[i], g->numel * sizeof(*host[i]));
	adam_slice(t, g, all);
	narrow_slice(t, number, all);
	for (int i = 0; i < NSTATES; i++)
		if (i != GRAD)
			device_put(g->on_device[i], host[i], g->numel * sizeof(*host[i]));
}

static void adam(struct trainer *t, int number)
{
	const struct group *g = &t->group[number];
	struct slice all = { 0, g->numel, g->master, g->grad, g->exp_avg, g->exp_avg_sq };

	if (t->options.swap) {
		adam_on_disk(t, number);
		return;
	}
	if (t->options.device) {
		adam_on_device(t, number, &all);
		return;
	}
	adam_slice(t, g, &all);
	narrow_slice(t, number, &all);
}

/* Stages 1 and 2: rank r's partition is elements [r * numel, (r + 1) * numel) of the group. */
static void pull_parameters(struct trainer *t)
{
	if (t->options.stage != 1 && t->options.stage != 2)
		return;
	for (int g = 0; g < NGROUPS; g++) {
		const struct group *group = &t->group[g];

		for (int r = 0; r < t->world; r++) {
			uint64_t start = (uint64_t)r * group->numel, end = start + group->numel;
			uint64_t at = group->flat + start;

			end = end < group->total ? end : group->total;
			if (r != t->rank && start < end)
				pull(t, r, "lp", at * sizeof(*t->lp), t->lp + at,
				     (end - start) * sizeof(*t->lp));
		}
	}
}

static struct word train_step(struct trainer *t)
{
	struct word all;

	load_weights(t);
	backward(t);
	barrier(t); /* everyone's gradients are complete */
	frag_grads_gone(t->frag);
	reduce(t);
	frag_grads_valid(t->frag, 1.0);
	all = hear(t);
	frag_step_begin(t->frag);
	for (int g = 0; g < NGROUPS; g++)
		adam(t, g);
	barrier(t); /* everyone has the gradients it needed, and its new parameters */
	pull_parameters(t);
	t->step++;
	frag_step_end(t->frag);
	if (t->options.swap_params)
		barrier(t); /* what readers see of everyone's parameters is this step's */
	return all;
}

/* ---- the run ---- */

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void rest(uint64_t ms)
{
	struct timespec t = { .tv_sec = (time_t)(ms / 1000),
			      .tv_nsec = (long)(ms % 1000) * 1000000 };

	if (ms > 0 && !asked_to_stop)
		nanosleep(&t, NULL);
}

static void report(const struct trainer *t, double loss, double ms)
{
	if (t->rank == 0 && !t->options.quiet)
		printf("step %6llu  loss %.6f  %6.1f ms/step\n", (unsigned long long)t->step,
		       loss, ms);
}

static void digest(struct trainer *t, double loss)
{
	uint64_t bits;

	memcpy(&bits, &loss, sizeof(bits));
	t->losses = (t->losses ^ bits) * 0x100000001b3;
}

static void run(struct trainer *t)
{
	const struct options *o = &t->options;
	double losses = 0, busy_ms = 0;
	bool stop = false;

	while (!stop && (o->forever || t->step < o->steps)) {
		double start_ms = now_ms();
		struct word all = train_step(t);

		busy_ms += now_ms() - start_ms;
		losses += all.loss;
		digest(t, all.loss);
		stop = all.stop > 0;
		if (t->step % o->every == 0) {
			report(t, losses / (double)o->every, busy_ms / (double)o->every);
			losses = busy_ms = 0;
		}
		rest(o->pause_ms);
	}
}

static void greet(const struct trainer *t)
{
	const char *address = frag_address(t->frag);

	if (t->rank != 0)
		return;
	printf("train: ranks %d stage %d parameters %d elements %llu\n", t->world,
	       (int)t->options.stage, MODEL_NPARAMS, (unsigned long long)t->total);
	if (address)
		printf("train: address %s\n", address);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

int main(int argc, char **argv)
{
	static struct trainer t;
	int rc;

	options_read(&t.options, argc, argv);
	rc = text_load(&t.text, t.options.text);
	if (rc < 0)
		die("%s: %s", t.options.text, strerror(-rc));
	setvbuf(stdout, NULL, _IOLBF, 0);
	model_init(&t.model, t.text.vocab, (uint32_t)t.options.hidden);
	for (int g = 0; g < NGROUPS; g++)
		t.group[g] =
			(struct group){ .lr = 0.003, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8 };
	t.group[0].weight_decay = 0.01;
	attach(&t);
	barrier(&t);     /* all are there */
	catch_signals(); /* until here there is nothing to finish */
	pull_parameters(&t);
	greet(&t);
	run(&t);
	if (t.rank == 0)
		printf("train: losses %016llx\n", (unsigned long long)t.losses);
	barrier(&t); /* nobody leaves while another still reads from it */
	frag_close(t.frag);
	return 0;
}

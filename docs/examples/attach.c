/* SPDX-License-Identifier: Apache-2.0 */

/* Describes the parameters, groups and states of this rank to the library, once; after that the
 * job can be mounted.
 */

#include "trainer.h"

#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
		.lp_shard = sharded && !shards_move(t) ? t->lp + t->param[p].shard : NULL,
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

/* Adds a state of the partition: on NVMe, from where a mount may move it to the device; on a
 * device; in the library's memory; or, if the rank trains without the library, in the
 * trainer's.  Returns the state's memory; NULL: the state is on NVMe.
 */
static float *add_state(struct trainer *t, struct group *g, int state, const char *key)
{
	void *memory;

	if (t->options.swap) {
		need(t, key, frag_state_swap(t->frag, g->id, 0, key, FRAG_F32));
		return NULL;
	}
	if (t->options.device)
		return add_on_device(t, g, state, key);
	if (need(t, key, frag_state_alloc(t->frag, g->id, 0, key, FRAG_F32, &memory)) < 0)
		memory = zeroed(g->numel, sizeof(float));
	return memory;
}

/* Finds this rank's part of parameter p: all of it if the rank trains without the library. */
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
}

static void add_states(struct trainer *t, struct group *g)
{
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

/* Puts the bf16 shards on NVMe, made of the masters, in the order in which load_weights() reads
 * them.  Weight and bias of a layer are one leaf: they are brought in and gathered together.
 */
static void swap_params(struct trainer *t)
{
	int all[MODEL_NPARAMS];

	for (int p = 0; p < MODEL_NPARAMS; p++)
		all[p] = t->param[p].id;
	need(t, "parameters", frag_params_swap(t->frag, all, MODEL_NPARAMS, NULL));
	need(t, "leaves", frag_leaf(t->frag, FRAG_LEAF_GLOB, "layers.*", 1));
}

static void publish(struct trainer *t)
{
	need(t, "publish",
	     frag_publish(t->frag, "gradients", t->gradient, t->total * sizeof(*t->gradient)));
	need(t, "publish", frag_publish(t->frag, "lp", t->lp, t->lp_numel * sizeof(*t->lp)));
	need(t, "publish", frag_publish(t->frag, "word", &t->word, sizeof(t->word)));
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

/* Opens the library, which learns rank and world from the launcher's environment.  One rank
 * trains without the library too.
 */
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

void attach(struct trainer *t)
{
	open_frag(t);
	if (t->options.device)
		use_device(t);
	place(t);
	for (int p = 0; p < MODEL_NPARAMS; p++)
		add_param(t, p);
	for (int g = 0; g < NGROUPS; g++)
		add_group(t, g);
	for (int g = 0; g < NGROUPS; g++) {
		add_states(t, &t->group[g]);
		add_hypers(t, &t->group[g]);
	}
	for (int p = 0; p < MODEL_NPARAMS; p++)
		find_fragment(t, p);
	if (t->options.arena)
		arena_open(t);
	first_masters(t);
	if (t->options.swap_params)
		swap_params(t);
	publish(t);
	need(t, "ready", frag_ready(t->frag));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "fs/universal.h"

#include "engine/base/dtype.h"
#include "fs/hypers.h"
#include "fs/torch-file.h"
#include "fs/torch-pickle.h"

#include <errno.h>
#include <string.h>

/* A version of DeepSpeed whose loader reads these files: the loader compares it with older
 * ones.
 */
#define DEEPSPEED "0.19.8"

/* ---- states ---- */

static bool is_own(const char *key)
{
	for (enum frag_dtype dtype = 1; frag_dtype_size(dtype); dtype++)
		if (!strcmp(key, dtype_lp_key(dtype)))
			return true;
	return false;
}

const char *universal_key(const char *key)
{
	return is_own(key) ? "fp32" : key;
}

/* Returns true if the state has a file: it has all elements of the parameter, or is its step.
 */
static bool has_file(const struct engine_state *s, const struct engine_param *p)
{
	size_t element = frag_dtype_size(s->dtype);

	if (!torch_pickle_storage(s->dtype) || !strcmp(s->key, "grad"))
		return false;
	return s->bytes / element == p->numel ||
	       (!strcmp(s->key, "step") && s->bytes == element);
}

int universal_states(struct engine *e, uint32_t param, struct state_list *out)
{
	struct engine_address at = { .kind = ENGINE_PARAM, .param = param };
	struct engine_param p;
	int rc, kept = 0;
	bool has_master;

	out->count = 0;
	if (!engine_param(e, param, &p))
		return -ENOENT;
	rc = state_list_fill(out, e, &at);
	if (rc)
		return rc;
	has_master = state_list_find(out, "fp32");
	for (int i = 0; i < out->count; i++) {
		struct engine_state *s = &out->states[i];

		if (!has_file(s, &p) || (has_master && is_own(s->key)))
			continue;
		out->states[kept] = *s;
		out->states[kept++].flags &= ~(unsigned)ENGINE_STATE_WRITABLE;
	}
	out->count = kept;
	return 0;
}

int universal_has_step(struct engine *e, uint32_t param)
{
	STATE_LIST(list);
	struct engine_param p;
	int rc = universal_states(e, param, &list);

	if (rc)
		return rc;
	return list.count && !state_list_find(&list, "step") && engine_param(e, param, &p) &&
	       p.group >= 0;
}

/* Puts {"param": tensor, "cat_dim": 0}; a step is a tensor without dimensions.  A parameter
 * without dimensions gets one: the loader cuts along cat_dim.
 */
static int put_state(FILE *out, const struct engine_state *s, enum frag_dtype dtype,
		     const struct engine_param *p)
{
	torch_pickle_begin(out);
	if (!strcmp(s->key, "step")) {
		torch_pickle_tensor(out, dtype, NULL, 0);
	} else {
		torch_pickle_dict(out);
		torch_pickle_text(out, "param");
		torch_pickle_tensor(out, dtype, p->ndim ? p->shape : &(uint64_t){ 1 },
				    p->ndim ? p->ndim : 1);
		torch_pickle_text(out, "cat_dim");
		torch_pickle_number(out, 0);
		torch_pickle_dict_end(out);
	}
	torch_pickle_end(out);
	return fclose(out) ? -ENOMEM : 0;
}

int universal_cells(struct cells *c, const struct engine_state *state,
		    const struct engine_param *param, char **text)
{
	bool widened = is_own(state->key) && state->dtype != FRAG_F32;
	CLEANUP(free) char *pickle = NULL, *made = NULL;
	size_t size;
	FILE *out;
	int rc = cells_init(c, widened ? ".f32" : "", state, param);

	if (rc)
		return rc;
	out = open_memstream(&pickle, &size);
	if (!out)
		return -ENOMEM;
	rc = put_state(out, state, widened ? FRAG_F32 : state->dtype, param);
	if (!rc)
		rc = torch_file_make(pickle, size, NULL, c->bytes, &made, &c->head, &c->tail);
	if (rc)
		return rc;
	c->bytes += c->head + c->tail;
	if (text) {
		*text = made;
		made = NULL;
	}
	return 0;
}

/* ---- the other files ---- */

struct building {
	struct engine *engine;
	struct hypers *hypers;
	FILE *out;  /* the pickle */
	int error;  /* -EAGAIN: a value is on its way */
	float step; /* the bytes of the file's tensor */
};

/* Returns the value of a hyper-parameter, or 0 and sets b->error.  The build goes on, so that
 * one try asks for all values.
 */
static double value_of(struct building *b, uint32_t group, const char *key)
{
	struct engine_address address = { .kind = ENGINE_HYPER, .group = group };
	uint64_t changed_ns;
	double value = 0;
	int rc;

	strcpy(address.key, key);
	rc = hypers_get(b->hypers, &address, &value, &changed_ns);
	if (rc && (!b->error || b->error == -EAGAIN))
		b->error = rc;
	return rc ? 0 : value;
}

static uint64_t job_step(struct engine *e)
{
	struct engine_job job;

	engine_job(e, &job);
	return job.has_step ? job.step : 0;
}

/* Lists a group's hyper-parameters; on an error sets b->error and lists none. */
static void list_hypers(struct building *b, uint32_t group, struct state_list *out)
{
	struct engine_address at = { .kind = ENGINE_HYPER, .group = group };
	int rc = state_list_fill(out, b->engine, &at);

	b->error = rc ? rc : b->error;
}

/* Puts how many steps the optimizer has made: the group's hyper-parameter `step`, else the
 * job's step.
 */
static void put_step(struct building *b, uint32_t group)
{
	STATE_LIST(hypers);

	list_hypers(b, group, &hypers);
	b->step = state_list_find(&hypers, "step") ? (float)value_of(b, group, "step")
						   : (float)job_step(b->engine);
	torch_pickle_tensor(b->out, FRAG_F32, NULL, 0);
}

/* Puts a group's dict, as torch.optim has it: there beta1 and beta2 are a tuple. */
static void put_group(struct building *b, uint32_t group)
{
	STATE_LIST(hypers);
	bool betas;

	list_hypers(b, group, &hypers);
	betas = state_list_find(&hypers, "beta1") && state_list_find(&hypers, "beta2");
	torch_pickle_dict(b->out);
	for (int i = 0; i < hypers.count; i++) {
		const char *key = hypers.states[i].key;

		if (betas && (!strcmp(key, "beta1") || !strcmp(key, "beta2")))
			continue;
		torch_pickle_text(b->out, key);
		torch_pickle_number(b->out, value_of(b, group, key));
	}
	if (betas) {
		torch_pickle_text(b->out, "betas");
		torch_pickle_pair(b->out, value_of(b, group, "beta1"),
				  value_of(b, group, "beta2"));
	}
	torch_pickle_text(b->out, "params");
	torch_pickle_list(b->out);
	torch_pickle_number(b->out, group);
	torch_pickle_list_end(b->out);
	torch_pickle_dict_end(b->out);
}

static void put_groups(struct building *b)
{
	torch_pickle_text(b->out, "param_groups");
	torch_pickle_list(b->out);
	for (uint32_t i = 0; i < engine_ngroups(b->engine); i++)
		put_group(b, i);
	torch_pickle_list_end(b->out);
}

/* Puts the keys that the loaders of stages 1 and 2 look for, and, below "optimizer_state_dict",
 * those of stage 3.
 */
static void put_optimizer(struct building *b)
{
	torch_pickle_dict(b->out);
	torch_pickle_text(b->out, "ds_version");
	torch_pickle_text(b->out, DEEPSPEED);
	put_groups(b);
	torch_pickle_text(b->out, "optimizer_state_dict");
	torch_pickle_dict(b->out);
	torch_pickle_text(b->out, "state");
	torch_pickle_dict(b->out);
	torch_pickle_number(b->out, 0);
	torch_pickle_dict(b->out);
	torch_pickle_text(b->out, "step");
	put_step(b, 0);
	torch_pickle_dict_end(b->out);
	torch_pickle_dict_end(b->out);
	put_groups(b);
	torch_pickle_dict_end(b->out);
	torch_pickle_dict_end(b->out);
}

static void put_shape(struct building *b, uint32_t param)
{
	struct engine_param p;

	if (!engine_param(b->engine, param, &p))
		return;
	torch_pickle_text(b->out, p.name);
	torch_pickle_size(b->out, p.shape, p.ndim);
}

/* Puts names and shapes, a dict for each group of the optimizer. */
static void put_shapes(struct building *b)
{
	uint32_t ngroups = engine_ngroups(b->engine);
	struct engine_group g;

	torch_pickle_list(b->out);
	for (uint32_t i = 0; i < ngroups; i++) {
		torch_pickle_dict(b->out);
		if (engine_group(b->engine, i, &g))
			for (uint32_t k = 0; k < g.nparams; k++)
				put_shape(b, g.params[k]);
		torch_pickle_dict_end(b->out);
	}
	if (!ngroups) {
		torch_pickle_dict(b->out);
		for (uint32_t i = 0; i < engine_nparams(b->engine); i++)
			put_shape(b, i);
		torch_pickle_dict_end(b->out);
	}
	torch_pickle_list_end(b->out);
}

static void put_count(struct building *b, const char *key, double value)
{
	torch_pickle_text(b->out, key);
	torch_pickle_number(b->out, value);
}

/* Puts the keys that the loader reads of a model_states.pt.  The loader takes no values from
 * `module`.
 */
static void put_model(struct building *b)
{
	torch_pickle_dict(b->out);
	torch_pickle_text(b->out, "module");
	torch_pickle_dict(b->out);
	torch_pickle_dict_end(b->out);
	torch_pickle_text(b->out, "ds_version");
	torch_pickle_text(b->out, DEEPSPEED);
	put_count(b, "global_steps", (double)job_step(b->engine));
	put_count(b, "skipped_steps", 0);
	put_count(b, "dp_world_size", engine_nranks(b->engine));
	put_count(b, "mp_world_size", 1);
	torch_pickle_text(b->out, "param_shapes");
	put_shapes(b);
	torch_pickle_dict_end(b->out);
}

static void put_parameters_step(struct building *b, uint32_t param)
{
	struct engine_param p;

	if (engine_param(b->engine, param, &p) && p.group >= 0)
		put_step(b, (uint32_t)p.group);
	else
		b->error = -ENOENT;
}

int64_t universal_build(struct engine *e, struct hypers *hypers, enum universal_file file,
			uint32_t param, char **text)
{
	struct building b = { .engine = e, .hypers = hypers };
	CLEANUP(free) char *pickle = NULL;
	uint64_t head, tail;
	size_t size;
	int rc;

	if (file == UNIVERSAL_LATEST) {
		*text = strdup("universal");
		return *text ? (int64_t)strlen(*text) : -ENOMEM;
	}
	b.out = open_memstream(&pickle, &size);
	if (!b.out)
		return -ENOMEM;
	torch_pickle_begin(b.out);
	if (file == UNIVERSAL_MODEL)
		put_model(&b);
	else if (file == UNIVERSAL_OPTIMIZER)
		put_optimizer(&b);
	else
		put_parameters_step(&b, param);
	torch_pickle_end(b.out);
	rc = fclose(b.out) ? -ENOMEM : b.error;
	if (!rc)
		rc = torch_file_make(pickle, size, &b.step, sizeof(b.step), text, &head, &tail);
	return rc ? rc : (int64_t)(head + sizeof(b.step) + tail);
}

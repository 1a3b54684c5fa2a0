/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/formats/model-states.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { NUMEL_MAX_SHIFT = 59 };

static const struct pickle *pickle_of(const struct model_states *m)
{
	return m->source.torch.pickle;
}

int model_states_open(struct model_states *m, struct table *t, const struct folder *f,
		      const char *name, uint32_t rank)
{
	int rc = torch_source_open(&m->source, t, f, name, rank);

	if (rc)
		return rc;
	m->first = t->ntensors;
	m->module = model_states_get(m, "module");
	if (pickle_kind(pickle_of(m), m->source.root) == PICKLE_DICT)
		return 0;
	rc = torch_source_refuse(&m->source, "no model states of DeepSpeed: not a dict");
	model_states_close(m);
	return rc;
}

void model_states_close(struct model_states *m)
{
	torch_source_close(&m->source);
}

uint32_t model_states_get(const struct model_states *m, const char *key)
{
	return pickle_get(pickle_of(m), m->source.root, key);
}

static void note_number(const struct model_states *m, const char *key)
{
	int64_t value;

	if (pickle_int(pickle_of(m), model_states_get(m, key), &value))
		table_note(m->source.table, "%s %" PRId64, key, value);
}

void model_states_note(const struct model_states *m)
{
	char version[64];
	int64_t step;

	if (torch_source_text(pickle_of(m), model_states_get(m, "ds_version"), version,
			      sizeof(version)) &&
	    *version)
		table_note(m->source.table, "deepspeed %s", version);
	if (pickle_int(pickle_of(m), model_states_get(m, "global_steps"), &step) && step >= 0)
		table_set_step(m->source.table, (uint64_t)step);
	note_number(m, "global_steps");
	note_number(m, "global_samples");
	note_number(m, "dp_world_size");
	note_number(m, "mp_world_size");
}

/* ---- names and shapes ---- */

uint32_t model_states_ngroups(const struct model_states *m)
{
	uint32_t shapes = model_states_get(m, "param_shapes");

	if (pickle_kind(pickle_of(m), shapes) == PICKLE_DICT)
		return 1;
	return pickle_count(pickle_of(m), shapes);
}

uint32_t model_states_group(const struct model_states *m, uint32_t group)
{
	uint32_t shapes = model_states_get(m, "param_shapes");

	if (pickle_kind(pickle_of(m), shapes) == PICKLE_DICT)
		return shapes;
	return pickle_item(pickle_of(m), shapes, group);
}

uint32_t model_states_frozen(const struct model_states *m)
{
	return model_states_get(m, "frozen_param_shapes");
}

/* Takes the sizes of a shape.  Where there are too many, only their product is right. */
static bool take_shape(const struct pickle *p, uint32_t node, struct model_shape *out)
{
	uint64_t numel = 1;
	bool empty = false, fits = true;

	if (pickle_kind(p, node) != PICKLE_TUPLE && pickle_kind(p, node) != PICKLE_LIST)
		return false;
	out->ndim = pickle_count(p, node);
	for (uint32_t d = 0; d < out->ndim; d++) {
		int64_t size = -1;

		if (!pickle_int(p, pickle_item(p, node, d), &size) || size < 0)
			return false;
		if (d < FRAG_DIMS_MAX)
			out->shape[d] = (uint64_t)size;
		empty |= !size;
		fits = fits && (!size || u64_mul(numel, (uint64_t)size, &numel));
	}
	out->numel = empty ? 0 : numel;
	return empty || (fits && !(numel >> NUMEL_MAX_SHIFT));
}

int model_states_shape(struct model_states *m, uint32_t dict, uint32_t i,
		       struct model_shape *out)
{
	const struct pickle *p = pickle_of(m);
	size_t size;

	out->key = pickle_key(p, dict, i);
	out->unfit = NULL;
	if (pickle_kind(p, out->key) != PICKLE_TEXT)
		return torch_source_refuse(&m->source, "a parameter whose name is no text");
	if (!torch_source_text(p, out->key, out->name, sizeof(out->name))) {
		snprintf(out->name, sizeof(out->name), "%.60s...",
			 pickle_text(p, out->key, &size));
		out->unfit = "its name is too long";
	}
	if (!take_shape(p, pickle_value(p, dict, i), out))
		return torch_source_refuse(&m->source, "%.150s: no tensor has such a shape",
					   out->name);
	if (out->ndim > FRAG_DIMS_MAX)
		out->unfit = "too many dimensions";
	return 0;
}

/* ---- tensors ---- */

static bool is_enabled(const struct model_states *m, const char *section)
{
	const struct pickle *p = pickle_of(m);
	uint32_t config = pickle_get(p, model_states_get(m, "ds_config"), section);
	bool enabled = false;

	return pickle_bool(p, pickle_get(p, config, "enabled"), &enabled) && enabled;
}

static enum frag_dtype dtype_of(const struct model_states *m, uint32_t key)
{
	const struct pickle *p = pickle_of(m);
	struct pickle_tensor x;

	if (pickle_tensor(p, pickle_get_as(p, m->module, p, key), &x))
		return x.dtype;
	/* Module does not have it: the dtype that the run computed in. */
	if (is_enabled(m, "bf16") || is_enabled(m, "bfloat16"))
		return FRAG_BF16;
	return is_enabled(m, "fp16") ? FRAG_F16 : FRAG_F32;
}

bool model_states_is_placeholder(const struct tensor *x)
{
	return x->ndim == 1 && !x->shape[0];
}

int model_states_add_tensor(struct model_states *m, const struct model_shape *s)
{
	assert(!s->unfit);
	return table_add_tensor(m->source.table,
				&(struct table_spec){ .name = s->name,
						      .dtype = dtype_of(m, s->key),
						      .ndim = s->ndim,
						      .shape = s->shape });
}

bool model_states_has(const struct model_states *m, const struct model_shape *s)
{
	const struct pickle *p = pickle_of(m);

	return pickle_get_as(p, m->module, p, s->key) != PICKLE_NOTHING;
}

bool model_states_find(const struct model_states *m, const struct model_shape *s,
		       struct torchfile_tensor *out)
{
	const struct pickle *p = pickle_of(m);
	uint32_t node = pickle_get_as(p, m->module, p, s->key);

	return torch_source_tensor(&m->source, node, out) && out->tensor.numel == s->numel;
}

int model_states_add_copy(struct model_states *m, const struct model_shape *s)
{
	const struct pickle *p = pickle_of(m);
	uint32_t node = pickle_get_as(p, m->module, p, s->key);
	struct torchfile_tensor x;

	if (model_states_find(m, s, &x) && torch_source_fits(&x))
		return torch_source_add_state(&m->source, dtype_lp_key(x.tensor.dtype), &x);
	if (node && !(torch_source_tensor(&m->source, node, &x) &&
		      model_states_is_placeholder(&x.tensor)))
		torch_source_skip(&m->source, s->name, node,
				  "module's copy has another shape, or is scattered");
	return 0;
}

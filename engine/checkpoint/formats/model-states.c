/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/model-states.h"

#include "engine/base/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUMEL_MAX_SHIFT = 59 }; /* a tensor has less than 2^59 elements */

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

int model_states_note(const struct model_states *m)
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
	return table_add_whole(m->source.table, m->source.file);
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

/* Takes the sizes of a shape.  Of a shape with too many dimensions only numel is right. */
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
	out->unsupported = NULL;
	if (pickle_kind(p, out->key) != PICKLE_TEXT)
		return torch_source_refuse(&m->source, "a parameter whose name is no text");
	if (!torch_source_text(p, out->key, out->name, sizeof(out->name))) {
		snprintf(out->name, sizeof(out->name), "%.60s...",
			 pickle_text(p, out->key, &size));
		out->unsupported = "its name is too long";
	}
	if (!take_shape(p, pickle_value(p, dict, i), out))
		return torch_source_refuse(&m->source, "%.150s: no tensor has such a shape",
					   out->name);
	if (out->ndim > FRAG_DIMS_MAX)
		out->unsupported = "too many dimensions";
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
	/* module has no such tensor: the dtype in which the run computed */
	if (is_enabled(m, "bf16") || is_enabled(m, "bfloat16"))
		return FRAG_BF16;
	return is_enabled(m, "fp16") ? FRAG_F16 : FRAG_F32;
}

/* ZeRO-3 leaves tensors of shape [0] where parameters were. */
static bool is_placeholder(const struct tensor *x)
{
	return x->ndim == 1 && !x->shape[0];
}

int model_states_add_tensor(struct model_states *m, const struct model_shape *s)
{
	assert(!s->unsupported);
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
	if (node && !(torch_source_tensor(&m->source, node, &x) && is_placeholder(&x.tensor)))
		torch_source_skip(&m->source, s->name, node,
				  "module's copy has another shape, or is scattered");
	return 0;
}

/* Adds the tensors that a model_states.pt has beside the parameters of param_shapes. */

struct tensor_place {
	uint64_t at; /* in the file */
	uint32_t tensor;
};

struct rest {
	struct model_states *m;
	const struct pickle *p;
	struct table *t;
	uint32_t shared;   /* the node of shared_params */
	uint32_t *by_name; /* this file's tensors, sorted by name */
	uint32_t nnames;
	/* of tensors whose values are in this file, in one piece; by place */
	struct tensor_place *places;
	uint32_t nplaces;
	int (*see_buffer)(const void *arg, uint32_t i);
	const void *arg;
};

/* ---- tensors that were added already ---- */

static const char *name_of(const struct table *t, uint32_t tensor)
{
	return table_string(t, t->tensors[tensor].name);
}

static int compare_names(const void *a, const void *b, void *arg)
{
	return strcmp(name_of(arg, *(const uint32_t *)a), name_of(arg, *(const uint32_t *)b));
}

static int compare_places(const void *a, const void *b)
{
	const struct tensor_place *p = a, *q = b;

	return (p->at > q->at) - (p->at < q->at);
}

static int index_names(struct rest *r)
{
	uint32_t n = r->t->ntensors - r->m->first;
	uint32_t *bigger = reallocarray(r->by_name, (size_t)n + 1, sizeof(*bigger));

	if (!bigger)
		return -ENOMEM;
	r->by_name = bigger;
	r->nnames = n;
	for (uint32_t i = 0; i < n; i++)
		bigger[i] = r->m->first + i;
	qsort_r(bigger, n, sizeof(*bigger), compare_names, r->t);
	return 0;
}

/* Finds the tensor of that name; TABLE_NONE: none. */
static uint32_t find_name(const struct rest *r, const char *name)
{
	uint64_t at = LOWER_BOUND(r->nnames, i, strcmp(name_of(r->t, r->by_name[i]), name) < 0);
	bool found = at < r->nnames && !strcmp(name_of(r->t, r->by_name[at]), name);

	return found ? r->by_name[at] : TABLE_NONE;
}

static int index_places(struct rest *r)
{
	r->places = calloc((size_t)r->t->nstates + 1, sizeof(*r->places));
	if (!r->places)
		return -ENOMEM;
	for (uint32_t i = 0; i < r->t->nstates; i++) {
		const struct table_state *s = &r->t->states[i];

		if (s->tensor >= r->m->first && s->kind == TABLE_INTERVALS && s->n == 1 &&
		    r->t->pieces[s->first].file == r->m->source.file)
			r->places[r->nplaces++] =
				(struct tensor_place){ r->t->pieces[s->first].base, s->tensor };
	}
	qsort(r->places, r->nplaces, sizeof(*r->places), compare_places);
	return 0;
}

static bool is_like(const struct table *t, uint32_t tensor, const struct tensor *x)
{
	const struct table_tensor *y = &t->tensors[tensor];

	return y->dtype == x->dtype && y->ndim == x->ndim &&
	       !memcmp(table_shape(t, y), x->shape, x->ndim * sizeof(*x->shape));
}

/* Finds the tensor whose values are those of x, at the same place; TABLE_NONE: none. */
static uint32_t find_place(const struct rest *r, const struct torchfile_tensor *x)
{
	struct tensor_place key = { .at = x->at };
	const struct tensor_place *p = NULL;

	if (x->tensor.numel && x->tensor.contiguous)
		p = bsearch(&key, r->places, r->nplaces, sizeof(key), compare_places);
	return p && is_like(r->t, p->tensor, &x->tensor) ? p->tensor : TABLE_NONE;
}

/* ---- adding ---- */

bool model_states_is_extra(const char *name)
{
	static const char suffix[] = "_extra_state";
	size_t length = strlen(name), end = sizeof(suffix) - 1;

	return length >= end && !strcmp(name + length - end, suffix);
}

static int add(struct rest *r, const char *name, const struct torchfile_tensor *x, bool buffer)
{
	struct table_spec spec = { .name = name,
				   .dtype = x->tensor.dtype,
				   .ndim = x->tensor.ndim,
				   .shape = x->tensor.shape,
				   .buffer = buffer,
				   .frozen = !buffer };
	int rc;

	if (!torch_source_fits(x)) {
		table_skip(r->t, name, "its elements are not in order in the file");
		return 0;
	}
	rc = table_add_tensor(r->t, &spec);
	return rc < 0 ? rc : torch_source_add_state(&r->m->source, NULL, x);
}

static int add_buffer(struct rest *r, uint32_t i)
{
	uint32_t node = pickle_item(r->p, model_states_get(r->m, "buffer_names"), i);
	char name[FRAG_NAME_MAX + 1];
	struct torchfile_tensor x;
	uint32_t value = pickle_get_as(r->p, r->m->module, r->p, node);
	uint32_t before = r->t->ntensors;
	int rc;

	if (!torch_source_text(r->p, node, name, sizeof(name))) {
		table_skip(r->t, "a buffer", "its name is too long, or no text");
		return 0;
	}
	if (!torch_source_tensor(&r->m->source, value, &x)) {
		torch_source_skip(&r->m->source, name, value,
				  "a buffer that is no tensor in module");
		return 0;
	}
	rc = add(r, name, &x, true);
	if (rc || !r->see_buffer || r->t->ntensors == before)
		return rc;
	return r->see_buffer(r->arg, i);
}

static int add_alias(struct rest *r, const char *name, uint32_t of)
{
	int rc = table_add_alias(r->t, name, of);

	return rc < 0 ? rc : 0;
}

static int add_leftover(struct rest *r, uint32_t key, uint32_t value)
{
	char name[FRAG_NAME_MAX + 1];
	struct torchfile_tensor x;
	uint32_t of;

	if (!torch_source_text(r->p, key, name, sizeof(name))) {
		table_skip(r->t, "a tensor of module", "its name is too long, or no text");
		return 0;
	}
	if (find_name(r, name) != TABLE_NONE || pickle_get_as(r->p, r->shared, r->p, key))
		return 0;
	if (!torch_source_tensor(&r->m->source, value, &x) || is_placeholder(&x.tensor)) {
		torch_source_skip(&r->m->source, name, value, "module has no values of it");
		return 0;
	}
	of = find_place(r, &x);
	return of != TABLE_NONE ? add_alias(r, name, of)
				: add(r, name, &x, model_states_is_extra(name));
}

/* Returns true if a name that DeepSpeed calls shared is one: DeepSpeed compares addresses, and
 * takes all tensors without elements, which have the same address, for one.
 */
static bool is_true_alias(const struct rest *r, uint32_t of, const struct torchfile_tensor *own)
{
	return of != TABLE_NONE &&
	       (is_placeholder(&own->tensor) || is_like(r->t, of, &own->tensor));
}

static int add_shared(struct rest *r, uint32_t i)
{
	char name[FRAG_NAME_MAX + 1], target[FRAG_NAME_MAX + 1];
	uint32_t key = pickle_key(r->p, r->shared, i), of;
	struct torchfile_tensor own;
	bool has_own;

	if (!torch_source_text(r->p, key, name, sizeof(name)) ||
	    !torch_source_text(r->p, pickle_value(r->p, r->shared, i), target,
			       sizeof(target))) {
		table_skip(r->t, "a shared parameter", "its name is too long, or no text");
		return 0;
	}
	if (find_name(r, name) != TABLE_NONE)
		return 0;
	of = find_name(r, target);
	has_own = torch_source_tensor(&r->m->source,
				      pickle_get_as(r->p, r->m->module, r->p, key), &own);
	if (of != TABLE_NONE && (!has_own || is_true_alias(r, of, &own)))
		return add_alias(r, name, of);
	if (has_own && !is_placeholder(&own.tensor))
		return add(r, name, &own, false);
	table_skip(r->t, name, "it is shared with %.150s, which is not there", target);
	return 0;
}

/* Adds an alias that another model-parallel rank has: the run's first rank alone wrote
 * shared_params, and the other ranks' slices are tied as its own are.
 */
static int add_shared_elsewhere(struct rest *r, uint32_t tensor)
{
	const struct table_tensor *x = &r->t->tensors[tensor];
	char name[FRAG_NAME_MAX + 1];
	struct torchfile_tensor own;
	uint32_t of;

	if (x->alias == TABLE_NONE || find_name(r, name_of(r->t, tensor)) != TABLE_NONE)
		return 0;
	snprintf(name, sizeof(name), "%s", name_of(r->t, tensor));
	of = find_name(r, name_of(r->t, x->alias));
	if (of == TABLE_NONE ||
	    !torch_source_tensor(&r->m->source, pickle_get(r->p, r->m->module, name), &own) ||
	    !is_placeholder(&own.tensor))
		return 0;
	return add_alias(r, name, of);
}

int model_states_add_rest(struct model_states *m,
			  int (*see_buffer)(const void *arg, uint32_t i), const void *arg)
{
	struct rest r = { .m = m,
			  .p = m->source.torch.pickle,
			  .t = m->source.table,
			  .see_buffer = see_buffer,
			  .arg = arg };
	uint32_t buffers = model_states_get(m, "buffer_names");
	int rc = 0;

	r.shared = model_states_get(m, "shared_params");
	for (uint32_t i = 0; i < pickle_count(r.p, buffers) && !rc; i++)
		rc = add_buffer(&r, i);
	if (!rc)
		rc = index_names(&r);
	if (!rc)
		rc = index_places(&r);
	for (uint32_t i = 0; i < m->first && !rc; i++)
		rc = add_shared_elsewhere(&r, i);
	if (!rc)
		rc = index_names(&r);
	for (uint32_t i = 0; i < pickle_count(r.p, m->module) && !rc; i++)
		rc = add_leftover(&r, pickle_key(r.p, m->module, i),
				  pickle_value(r.p, m->module, i));
	if (!rc)
		rc = index_names(&r);
	for (uint32_t i = 0; i < pickle_count(r.p, r.shared) && !rc; i++)
		rc = add_shared(&r, i);
	free(r.by_name);
	free(r.places);
	return rc;
}

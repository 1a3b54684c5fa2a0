/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/dtype.h"
#include "engine/checkpoint/formats/model-states.h"
#include "engine/checkpoint/formats/zero-plain-optim.h"
#include "engine/checkpoint/formats/zero-plain.h"

#include <errno.h>
#include <string.h>

struct filling {
	struct model_states model;
	const struct pickle *p;
	struct table *t;
	struct plain_param *params;
	uint32_t nparams;
};

/* ---- the model's parameters ---- */

struct text {
	const char *at; /* NULL: none */
	size_t size;
};

static struct text text_of(const struct filling *l, uint32_t node)
{
	struct text text = { NULL, 0 };

	if (pickle_kind(l->p, node) == PICKLE_TEXT)
		text.at = pickle_text(l->p, node, &text.size);
	return text;
}

static int compare_texts(const void *a, const void *b)
{
	const struct text *x = a, *y = b;
	size_t size = u64_min(x->size, y->size);
	int order = size ? memcmp(x->at, y->at, size) : 0;

	return order ? order : (x->size > y->size) - (x->size < y->size);
}

/* The names of buffers, in order. */
static struct text *sort_buffers(const struct filling *l, uint32_t *n)
{
	uint32_t list = model_states_get(&l->model, "buffer_names");
	struct text *names;

	*n = pickle_count(l->p, list);
	names = calloc((size_t)*n + 1, sizeof(*names));
	for (uint32_t i = 0; names && i < *n; i++)
		names[i] = text_of(l, pickle_item(l->p, list, i));
	if (names)
		qsort(names, *n, sizeof(*names), compare_texts);
	return names;
}

static bool is_buffer(const struct filling *l, uint32_t key, const struct text *names,
		      uint32_t n)
{
	struct text name = text_of(l, key);

	return bsearch(&name, names, n, sizeof(name), compare_texts);
}

static bool take_param(const struct filling *l, uint32_t i, struct plain_param *out)
{
	uint32_t key = pickle_key(l->p, l->model.module, i);

	return torch_source_text(l->p, key, out->name, sizeof(out->name)) &&
	       torch_source_tensor(&l->model.source, pickle_value(l->p, l->model.module, i),
				   &out->x) &&
	       torch_source_fits(&out->x) && !model_states_is_extra(out->name);
}

static int compare_places(const void *a, const void *b)
{
	const struct plain_param *x = *(struct plain_param *const *)a;
	const struct plain_param *y = *(struct plain_param *const *)b;

	if (x->x.at != y->x.at)
		return x->x.at < y->x.at ? -1 : 1;
	return (x > y) - (x < y);
}

/* Other names of one that is there already come with the rest. */
static int drop_aliases(struct filling *l)
{
	struct plain_param **by = calloc((size_t)l->nparams + 1, sizeof(struct plain_param *));
	uint32_t n = 0;

	if (!by)
		return -ENOMEM;
	for (uint32_t i = 0; i < l->nparams; i++)
		by[i] = &l->params[i];
	qsort(by, l->nparams, sizeof(struct plain_param *), compare_places);
	for (uint32_t i = 1; i < l->nparams; i++)
		by[i]->alias = by[i]->x.tensor.numel && by[i]->x.at == by[i - 1]->x.at &&
			       by[i]->x.tensor.numel == by[i - 1]->x.tensor.numel;
	free(by);
	for (uint32_t i = 0; i < l->nparams; i++)
		if (!l->params[i].alias)
			l->params[n++] = l->params[i];
	l->nparams = n;
	return 0;
}

static int find_params(struct filling *l)
{
	uint32_t count = pickle_count(l->p, l->model.module), nbuffers;
	CLEANUP(free) struct text *buffers = sort_buffers(l, &nbuffers);

	l->params = calloc((size_t)count + 1, sizeof(*l->params));
	if (!l->params || !buffers)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		l->nparams += !is_buffer(l, pickle_key(l->p, l->model.module, i), buffers,
					 nbuffers) &&
			      take_param(l, i, &l->params[l->nparams]);
	return drop_aliases(l);
}

/* ---- in the table ---- */

static int add_values(struct filling *l, const struct plain_optim *o,
		      const struct plain_param *param)
{
	bool has_master = plain_optim_has_master(o, param);

	return torch_source_add_state(&l->model.source,
				      has_master ? dtype_lp_key(param->x.tensor.dtype) : NULL,
				      &param->x);
}

static int add_param(struct filling *l, const struct plain_optim *o,
		     const struct plain_param *param)
{
	int tensor = table_add_tensor(
		l->t, &(struct table_spec){ .name = param->name,
					    .dtype = param->x.tensor.dtype,
					    .ndim = param->x.tensor.ndim,
					    .shape = param->x.tensor.shape,
					    .frozen = plain_optim_is_frozen(o, param) });
	int rc = tensor < 0 ? tensor : add_values(l, o, param);

	return rc ? rc : plain_optim_add_states(o, param, (uint32_t)tensor);
}

static int add_params(struct filling *l)
{
	struct plain_optim o;
	int rc = plain_optim_open(&o, &l->model, l->params, l->nparams);

	for (uint32_t i = 0; i < l->nparams && !rc; i++)
		rc = add_param(l, &o, &l->params[i]);
	plain_optim_close(&o);
	return rc;
}

int zero_plain_fill(struct table *t, const struct folder *f, const char *name, uint32_t rank)
{
	struct filling l = { .t = t };
	int rc = model_states_open(&l.model, t, f, name, rank);

	if (rc)
		return rc;
	l.p = l.model.source.torch.pickle;
	model_states_note(&l.model);
	table_note(t, "stage 0");
	rc = find_params(&l);
	if (!rc)
		rc = add_params(&l);
	if (!rc)
		rc = model_states_add_rest(&l.model, NULL, NULL);
	free(l.params);
	model_states_close(&l.model);
	return rc;
}

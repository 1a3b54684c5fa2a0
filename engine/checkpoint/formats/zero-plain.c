/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/zero-plain.h"

#include "engine/base/base.h"
#include "engine/base/dtype.h"
#include "engine/checkpoint/formats/model-states.h"
#include "engine/checkpoint/formats/torch-hypers.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- matching ----
 *
 * Matches parameters with positions in an optimizer's groups.  torch's optimizers number their
 * parameters, and the file does not have the names.  A group mostly lists its parameters in the
 * model's order, but the group of a parameter, if it has one, follows only from what fits:
 * shapes, and the first values of masters.  A match is accepted if it is the only one, or if
 * all matches are equal at every position that matters.
 */

struct zero_match {
	uint32_t nparams; /* of the model, in its order */
	uint32_t ngroups;
	/* Returns true if the parameter can stand at a position of a group's list, or of its
	 * vector.
	 */
	bool (*fits)(void *arg, uint32_t param, uint32_t group, uint64_t position);
	/* Returns true if matches must agree on the parameter at this position. */
	bool (*matters)(void *arg, uint32_t group, uint64_t position);
	void *arg;
	const uint64_t *lengths; /* [nparams]: positions that each takes */
	const uint64_t *ends;    /* [ngroups], of positions */
	uint32_t *groups;        /* out: [nparams]; ngroups: in none */
	uint64_t *positions;     /* out: [nparams] */
};

enum { STEPS_MAX = 1 << 20 }; /* decisions, after which the search counts as ambiguous */

struct groups_search {
	struct zero_match *m;
	uint64_t *at;     /* [ngroups], positions of each that are filled */
	uint32_t *choice; /* [nparams]; ngroups: in none */
	uint64_t room;    /* positions of all groups that are empty */
	uint64_t rest;    /* lengths of params that are not decided yet */
	uint32_t depth;   /* params that have been decided */
	uint32_t steps;
	uint32_t found;
};

static bool try_group(struct groups_search *s, uint32_t group)
{
	const struct zero_match *m = s->m;
	uint64_t length = m->lengths[s->depth];

	if (group == m->ngroups) {
		/* the params not decided yet could not fill the groups */
		if (s->rest - length < s->room)
			return false;
	} else {
		if (m->ends[group] - s->at[group] < length ||
		    !m->fits(m->arg, s->depth, group, s->at[group]))
			return false;
		s->at[group] += length;
		s->room -= length;
	}
	s->rest -= length;
	s->choice[s->depth++] = group;
	return true;
}

/* Takes back the newest decision; returns the group to try next. */
static uint32_t undo(struct groups_search *s)
{
	uint32_t group = s->choice[--s->depth];
	uint64_t length = s->m->lengths[s->depth];

	if (group < s->m->ngroups) {
		s->at[group] -= length;
		s->room += length;
	}
	s->rest += length;
	return group + 1;
}

static bool position_matters(const struct zero_match *m, uint32_t group, uint64_t position)
{
	return group < m->ngroups && m->matters(m->arg, group, position);
}

/* Keeps the first match, or compares another match with it.  Returns false if they differ at a
 * position that matters.
 */
static bool take_way(struct groups_search *s, bool first)
{
	struct zero_match *m = s->m;
	bool same = true;

	/* all parameters are decided: the loop fills s->at as it was */
	memset(s->at, 0, m->ngroups * sizeof(*s->at));
	for (uint32_t i = 0; i < m->nparams; i++) {
		uint32_t group = s->choice[i];
		uint64_t position = group < m->ngroups ? s->at[group] : 0;

		if (first) {
			m->groups[i] = group;
			m->positions[i] = position;
		} else if (m->groups[i] != group || m->positions[i] != position) {
			same &= !position_matters(m, group, position) &&
				!position_matters(m, m->groups[i], m->positions[i]);
		}
		if (group < m->ngroups)
			s->at[group] += m->lengths[i];
	}
	return same;
}

static void look(struct groups_search *s)
{
	uint32_t group = 0;

	while (s->found < 2 && ++s->steps < STEPS_MAX) {
		if (s->depth < s->m->nparams) {
			while (group <= s->m->ngroups && !try_group(s, group))
				group++;
			if (group <= s->m->ngroups) {
				group = 0;
				continue;
			}
			/* counts the first match, and one that differs from it */
		} else if (!s->room && (!take_way(s, !s->found) || !s->found)) {
			s->found++;
		}
		if (!s->depth)
			return;
		group = undo(s);
	}
	s->found = 2;
}

/* Fills groups and positions.
 * -ENOENT: nothing matches.
 * -EEXIST: several matches differ, or there are too many to try.
 * -ENOMEM.
 */
static int zero_match(struct zero_match *m)
{
	struct groups_search s = { .m = m };

	for (uint32_t g = 0; g < m->ngroups; g++)
		s.room += m->ends[g];
	for (uint32_t i = 0; i < m->nparams; i++)
		s.rest += m->lengths[i];
	s.at = calloc((size_t)m->ngroups + 1, sizeof(*s.at));
	s.choice = calloc((size_t)m->nparams + 1, sizeof(*s.choice));
	if (s.at && s.choice)
		look(&s);
	free(s.at);
	free(s.choice);
	if (!s.at || !s.choice)
		return -ENOMEM;
	return s.found == 1 ? 0 : s.found ? -EEXIST : -ENOENT;
}

/* The optimizer in model_states.pt:
 *
 *	float32	torch's state_dict
 *	lp	optimizer_state_dict, and masters: fp32_groups, a list for each group, or
 *		fp32_groups_flat, one vector for each, whose states are vectors too
 */

enum { SAMPLE = 64 /* values of a master that are compared */, ELEMENT_MAX = 16 /* bytes */ };

struct plain_param {
	char name[FRAG_NAME_MAX + 1];
	struct torchfile_tensor x; /* the model's own values */
	bool alias;                /* an earlier parameter has these values */
};

struct plain_optim {
	struct model_states *model;
	const struct pickle *p;
	const struct plain_param *params;
	uint32_t nparams;
	/* nodes; masters: PICKLE_NOTHING in a float32 run */
	uint32_t states, param_groups, masters;
	bool flat;
	bool known; /* the match was certain */
	uint32_t ngroups;
	uint32_t first_group; /* in the table */
	uint64_t *ends;       /* [ngroups] */
	uint32_t *groups;     /* [nparams]; ngroups: none */
	uint64_t *positions;  /* [nparams] */
};

static uint32_t number_of(const struct plain_optim *o, const struct plain_param *param)
{
	return (uint32_t)(param - o->params);
}

/* ---- nodes of the file ---- */

static void find_parts(struct plain_optim *o)
{
	uint32_t optim = model_states_get(o->model, "optimizer");
	uint32_t inner = pickle_get(o->p, optim, "optimizer_state_dict");
	uint32_t flat = pickle_get(o->p, optim, "fp32_groups_flat");

	o->masters = flat ? flat : pickle_get(o->p, optim, "fp32_groups");
	o->flat = flat != PICKLE_NOTHING;
	optim = inner ? inner : optim;
	o->states = pickle_get(o->p, optim, "state");
	o->param_groups = pickle_get(o->p, optim, "param_groups");
	o->ngroups = pickle_count(o->p, o->param_groups);
}

static uint32_t members_of(const struct plain_optim *o, uint32_t group)
{
	return pickle_get(o->p, pickle_item(o->p, o->param_groups, group), "params");
}

/* Returns the node of the master at a position; PICKLE_NOTHING: none. */
static uint32_t master_at(const struct plain_optim *o, uint32_t group, uint64_t position)
{
	uint32_t masters = pickle_item(o->p, o->masters, group);

	return o->flat ? masters : pickle_item(o->p, masters, (uint32_t)position);
}

/* Returns the dict of the states at a position; PICKLE_NOTHING: none. */
static uint32_t states_at(const struct plain_optim *o, uint32_t group, uint64_t position)
{
	uint32_t item =
		pickle_item(o->p, members_of(o, group), o->flat ? 0 : (uint32_t)position);
	int64_t number;

	return pickle_int(o->p, item, &number) ? pickle_get_int(o->p, o->states, number)
					       : PICKLE_NOTHING;
}

static uint64_t end_of(const struct plain_optim *o, uint32_t group)
{
	struct torchfile_tensor x;

	if (!o->flat)
		return pickle_count(o->p, o->masters ? pickle_item(o->p, o->masters, group)
						     : members_of(o, group));
	return torch_source_tensor(&o->model->source, master_at(o, group, 0), &x)
		       ? x.tensor.numel
		       : 0;
}

/* ---- which position is which parameter's ---- */

static bool read_values(const struct plain_optim *o, const struct torchfile_tensor *x,
			uint64_t first, uint64_t n, float out[SAMPLE])
{
	uint8_t bytes[SAMPLE * ELEMENT_MAX];
	size_t size = frag_dtype_size(x->tensor.dtype);
	const struct torch_source *s = &o->model->source;

	return pread(s->table->files[s->file].fd, bytes, n * size,
		     (off_t)(x->at + first * size)) == (ssize_t)(n * size) &&
	       !dtype_convert(FRAG_F32, out, x->tensor.dtype, bytes, n);
}

/* Returns true if the model's first values are those of the master, rounded. */
static bool same_values(const struct plain_optim *o, const struct plain_param *param,
			const struct torchfile_tensor *master, uint64_t first)
{
	uint64_t n = u64_min(param->x.tensor.numel, SAMPLE);
	float high[SAMPLE], low[SAMPLE];
	uint8_t rounded[SAMPLE * ELEMENT_MAX];
	enum frag_dtype dtype = param->x.tensor.dtype;

	return param->x.tensor.contiguous && master->tensor.contiguous &&
	       read_values(o, master, first, n, high) && read_values(o, &param->x, 0, n, low) &&
	       !dtype_convert(dtype, rounded, FRAG_F32, high, n) &&
	       !dtype_convert(FRAG_F32, high, dtype, rounded, n) &&
	       !memcmp(high, low, n * sizeof(*low));
}

static bool fits_master(const struct plain_optim *o, const struct plain_param *param,
			uint32_t group, uint64_t position)
{
	struct torchfile_tensor master;

	if (!torch_source_tensor(&o->model->source, master_at(o, group, position), &master))
		return false;
	if (!o->flat && !tensor_is_shaped_as(&master.tensor, &param->x.tensor))
		return false;
	return same_values(o, param, &master, o->flat ? position : 0);
}

/* Returns true if the states at a position have the parameter's shape.  A position without
 * states fits any: its parameter is frozen.
 */
static bool fits_states(const struct plain_optim *o, const struct plain_param *param,
			uint32_t group, uint64_t position)
{
	uint32_t states = states_at(o, group, position);
	struct torchfile_tensor x;

	for (uint32_t i = 0; i < pickle_count(o->p, states); i++)
		if (torch_source_tensor(&o->model->source, pickle_value(o->p, states, i), &x) &&
		    x.tensor.ndim && !tensor_is_shaped_as(&x.tensor, &param->x.tensor))
			return false;
	return true;
}

/* Returns true if the name at a position, which torch writes since 2.6, is the parameter's, or
 * if there is none.
 */
static bool fits_name(const struct plain_optim *o, const struct plain_param *param,
		      uint32_t group, uint64_t position)
{
	uint32_t names =
		pickle_get(o->p, pickle_item(o->p, o->param_groups, group), "param_names");
	char name[FRAG_NAME_MAX + 1];

	return !torch_source_text(o->p, pickle_item(o->p, names, (uint32_t)position), name,
				  sizeof(name)) ||
	       !strcmp(name, param->name);
}

static bool fits(void *arg, uint32_t number, uint32_t group, uint64_t position)
{
	const struct plain_optim *o = arg;
	const struct plain_param *param = &o->params[number];

	if (o->flat)
		return fits_master(o, param, group, position);
	return fits_name(o, param, group, position) &&
	       (!o->masters || fits_master(o, param, group, position)) &&
	       fits_states(o, param, group, position);
}

static bool matters(void *arg, uint32_t group, uint64_t position)
{
	const struct plain_optim *o = arg;

	return o->masters || states_at(o, group, position) != PICKLE_NOTHING;
}

static int match(struct plain_optim *o)
{
	uint64_t *lengths = calloc((size_t)o->nparams + 1, sizeof(*lengths));
	struct zero_match m = { .nparams = o->nparams,
				.ngroups = o->ngroups,
				.fits = fits,
				.matters = matters,
				.arg = o,
				.lengths = lengths,
				.ends = o->ends,
				.groups = o->groups,
				.positions = o->positions };
	int rc;

	for (uint32_t i = 0; lengths && i < o->nparams; i++)
		lengths[i] = o->flat ? o->params[i].x.tensor.numel : 1;
	rc = lengths ? zero_match(&m) : -ENOMEM;
	free(lengths);
	if (rc == -ENOMEM)
		return rc;
	o->known = !rc;
	if (rc)
		table_skip(o->model->source.table, "the optimizer's states",
			   rc == -ENOENT ? "they do not fit the parameters of module"
					 : "which parameter each is of is not certain");
	return 0;
}

/* ---- groups and states in the table ---- */

/* Adds a group of one rank: all ranks of the run had the same values, which the file has once.
 */
static int add_group(struct plain_optim *o, uint32_t group)
{
	const struct torch_source *s = &o->model->source;
	int number = table_add_group(s->table, "zero0", 1, 1, 1, &s->rank), rc;

	if (number < 0)
		return number;
	rc = torch_hypers_add(s, (uint32_t)number, pickle_item(o->p, o->param_groups, group));
	return rc ? rc
		  : torch_hypers_add_states(s, (uint32_t)number, states_at(o, group, 0), NULL);
}

static int plain_optim_open(struct plain_optim *o, struct model_states *m,
			    const struct plain_param *params, uint32_t nparams)
{
	int rc = 0;

	*o = (struct plain_optim){
		.model = m, .p = m->source.torch.pickle, .params = params, .nparams = nparams
	};
	find_parts(o);
	o->ends = calloc((size_t)o->ngroups + 1, sizeof(*o->ends));
	o->groups = calloc((size_t)nparams + 1, sizeof(*o->groups));
	o->positions = calloc((size_t)nparams + 1, sizeof(*o->positions));
	if (!o->ends || !o->groups || !o->positions)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->ngroups; i++)
		o->ends[i] = end_of(o, i);
	if (o->ngroups)
		rc = match(o);
	o->first_group = m->source.table->ngroups;
	for (uint32_t i = 0; i < o->ngroups && !rc; i++)
		rc = add_group(o, i);
	return rc;
}

static bool is_in_group(const struct plain_optim *o, const struct plain_param *param)
{
	return o->known && o->groups[number_of(o, param)] < o->ngroups;
}

static uint32_t states_of(const struct plain_optim *o, const struct plain_param *param)
{
	uint32_t i = number_of(o, param);

	return is_in_group(o, param) ? states_at(o, o->groups[i], o->positions[i])
				     : PICKLE_NOTHING;
}

static int skip_state(const struct plain_optim *o, const struct plain_param *param,
		      const char *key, uint32_t node)
{
	char name[FRAG_NAME_MAX + FRAG_KEY_MAX + 2];
	enum pickle_kind kind = pickle_kind(o->p, node);

	snprintf(name, sizeof(name), "%s/%s", param->name, key);
	if (kind == PICKLE_TENSOR || kind == PICKLE_OBJECT)
		torch_source_skip(&o->model->source, name, node, "it has another shape");
	return 0;
}

static int add_whole(const struct plain_optim *o, const struct plain_param *param,
		     const char *key, uint32_t node, const struct torchfile_tensor *x)
{
	struct torch_source *s = &o->model->source;
	int rc;

	if (tensor_is_shaped_as(&x->tensor, &param->x.tensor) && torch_source_fits(x))
		return torch_source_add_state(s, key, x);
	if (x->tensor.numel != 1)
		return skip_state(o, param, key, node);
	rc = table_add_scalar(s->table, key, x->tensor.dtype);
	return rc < 0 ? rc : torch_source_add_pieces(s, x, 0);
}

/* Adds a state: a tensor of the parameter's shape, or the parameter's place in a vector. */
static int add_tensor(const struct plain_optim *o, const struct plain_param *param,
		      const char *key, uint32_t node)
{
	struct torch_source *s = &o->model->source;
	uint64_t first = o->positions[number_of(o, param)], numel = param->x.tensor.numel;
	struct torchfile_tensor x;
	int rc;

	if (!torch_source_tensor(s, node, &x))
		return skip_state(o, param, key, node);
	if (!o->flat)
		return add_whole(o, param, key, node, &x);
	if (x.tensor.numel == 1 && !x.tensor.ndim) /* a number: the group has it */
		return 0;
	if (!x.tensor.contiguous || x.tensor.ndim != 1 ||
	    x.tensor.numel != o->ends[o->groups[number_of(o, param)]])
		return skip_state(o, param, key, node);
	rc = table_add_state(s->table, key, x.tensor.dtype);
	if (rc >= 0)
		rc = table_add_interval(s->table, s->file, s->rank,
					x.at + first * frag_dtype_size(x.tensor.dtype), 0,
					numel);
	return rc < 0 ? rc : torch_source_use(s, &x);
}

static int plain_optim_add_states(const struct plain_optim *o, const struct plain_param *param,
				  uint32_t tensor)
{
	uint32_t i = number_of(o, param), states = states_of(o, param);
	char key[FRAG_KEY_MAX + 1];
	int rc = 0;

	if (!is_in_group(o, param) || !(states || o->masters))
		return 0;
	rc = table_add_member(o->model->source.table, o->first_group + o->groups[i], tensor);
	if (!rc && o->masters)
		rc = add_tensor(o, param, "fp32", master_at(o, o->groups[i], o->positions[i]));
	for (uint32_t k = 0; k < pickle_count(o->p, states) && !rc; k++)
		if (torch_source_text(o->p, pickle_key(o->p, states, k), key, sizeof(key)))
			rc = add_tensor(o, param, key, pickle_value(o->p, states, k));
	return rc;
}

struct plain_loader {
	struct model_states model;
	const struct pickle *p;
	struct table *t;
	struct plain_param *params;
	uint32_t nparams;
};

/* ---- the model's parameters ---- */

struct plain_text {
	const char *at; /* NULL: the node is no text */
	size_t size;
};

static struct plain_text text_of(const struct plain_loader *l, uint32_t node)
{
	struct plain_text text = { NULL, 0 };

	if (pickle_kind(l->p, node) == PICKLE_TEXT)
		text.at = pickle_text(l->p, node, &text.size);
	return text;
}

static int compare_texts(const void *a, const void *b)
{
	const struct plain_text *x = a, *y = b;

	return utf8_compare(x->at, x->size, y->at, y->size);
}

/* Returns the names of buffers, sorted. */
static struct plain_text *sort_buffers(const struct plain_loader *l, uint32_t *n)
{
	uint32_t list = model_states_get(&l->model, "buffer_names");
	struct plain_text *names;

	*n = pickle_count(l->p, list);
	names = calloc((size_t)*n + 1, sizeof(*names));
	for (uint32_t i = 0; names && i < *n; i++)
		names[i] = text_of(l, pickle_item(l->p, list, i));
	if (names)
		qsort(names, *n, sizeof(*names), compare_texts);
	return names;
}

static int compare_places(const void *a, const void *b)
{
	const struct plain_param *x = *(struct plain_param *const *)a;
	const struct plain_param *y = *(struct plain_param *const *)b;

	if (x->x.at != y->x.at)
		return x->x.at < y->x.at ? -1 : 1;
	return (x > y) - (x < y);
}

/* Leaves out other names of a parameter's values: model_states_add_rest adds these. */
static int drop_aliases(struct plain_loader *l)
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

static int find_params(struct plain_loader *l)
{
	uint32_t count = pickle_count(l->p, l->model.module), nbuffers;
	CLEANUP(free) struct plain_text *buffers = sort_buffers(l, &nbuffers);

	l->params = calloc((size_t)count + 1, sizeof(*l->params));
	if (!l->params || !buffers)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t key = pickle_key(l->p, l->model.module, i);
		struct plain_text text = text_of(l, key);
		struct plain_param *out = &l->params[l->nparams];

		l->nparams +=
			!bsearch(&text, buffers, nbuffers, sizeof(text), compare_texts) &&
			torch_source_text(l->p, key, out->name, sizeof(out->name)) &&
			torch_source_tensor(&l->model.source,
					    pickle_value(l->p, l->model.module, i), &out->x) &&
			torch_source_fits(&out->x) && !model_states_is_extra(out->name);
	}
	return drop_aliases(l);
}

/* ---- parameters in the table ---- */

static int add_param(struct plain_loader *l, const struct plain_optim *o,
		     const struct plain_param *param)
{
	int tensor = table_add_tensor(
		l->t, &(struct table_spec){ .name = param->name,
					    .dtype = param->x.tensor.dtype,
					    .ndim = param->x.tensor.ndim,
					    .shape = param->x.tensor.shape,
					    .frozen = o->known && !states_of(o, param) &&
						      pickle_count(o->p, o->states) });
	bool has_master = o->masters && is_in_group(o, param);
	int rc = tensor;

	if (tensor >= 0)
		rc = torch_source_add_state(
			&l->model.source,
			has_master ? dtype_lp_key(param->x.tensor.dtype) : NULL, &param->x);
	return rc ? rc : plain_optim_add_states(o, param, (uint32_t)tensor);
}

static int add_params(struct plain_loader *l)
{
	struct plain_optim o;
	int rc = plain_optim_open(&o, &l->model, l->params, l->nparams);

	for (uint32_t i = 0; i < l->nparams && !rc; i++)
		rc = add_param(l, &o, &l->params[i]);
	free(o.ends);
	free(o.groups);
	free(o.positions);
	return rc;
}

int zero_plain_fill(struct table *t, const struct folder *f, const char *name, uint32_t rank)
{
	struct plain_loader l = { .t = t };
	int rc = model_states_open(&l.model, t, f, name, rank);

	if (rc)
		return rc;
	l.p = l.model.source.torch.pickle;
	rc = model_states_note(&l.model);
	table_note(t, "stage 0");
	if (!rc)
		rc = find_params(&l);
	if (!rc)
		rc = add_params(&l);
	if (!rc)
		rc = model_states_add_rest(&l.model, NULL, NULL);
	free(l.params);
	model_states_close(&l.model);
	return rc;
}

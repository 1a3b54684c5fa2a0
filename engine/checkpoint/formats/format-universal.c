/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-files.h"
#include "engine/checkpoint/formats/format.h"
#include "engine/checkpoint/formats/model-states.h"
#include "engine/checkpoint/formats/torch-hypers.h"
#include "engine/checkpoint/formats/zero-frozen.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* DeepSpeed's universal checkpoints: zero/NAME/STATE.pt, each a tensor of the whole parameter,
 * or a dict with it under `param`, beside the model_states.pt of the checkpoint that it was
 * made of.  From ZeRO-3 the tensors are flat.  A name with a '/' is folders in folders.
 */

#define ZERO "zero"

struct universal_loader {
	const struct folder *folder;
	struct table *table;
	struct folder *zero;
	struct zero_files files;
	struct model_states *models; /* of each model-parallel rank */
	uint32_t nmodels;
	int group; /* the table's number of the optimizer's first group; -1: none */
	uint32_t ngroups;
};

static bool knows(const struct folder *f)
{
	return !f->only && folder_has(f, ZERO) && zero_files_any(f);
}

/* ---- a state ---- */

struct universal_param {
	struct universal_loader *l;
	struct model_states *model;
	struct model_shape *shape;
	const struct folder *folder; /* zero/NAME */
	uint32_t group;
	bool added;
};

static int open_state(const struct universal_param *p, const char *file,
		      struct torch_source *out)
{
	struct table *t = p->l->table;
	CLEANUP(free) char *path = NULL;
	struct blob blob;
	int number;

	if (asprintf(&path, ZERO "/%s%s%s", p->shape->name, *p->shape->name ? "/" : "", file) <
	    0) {
		path = NULL;
		return -ENOMEM;
	}
	number = table_files_open(t, p->folder, file, path, &blob);
	return number < 0 ? number : torch_source_open_part(out, t, (uint32_t)number, &blob, 0);
}

/* Takes the file's tensor.  A tensor in a dict has the shape of the parameter. */
static bool take_tensor(const struct universal_param *p, const struct torch_source *s,
			struct torchfile_tensor *out)
{
	uint32_t of_dict = pickle_get(s->torch.pickle, s->root, "param");
	uint32_t node = of_dict ? of_dict : s->root;

	if (!torch_source_tensor(s, node, out) || !torch_source_fits(out)) {
		torch_source_skip(s, s->name, node, "it is no tensor that can be shown");
		return false;
	}
	if (of_dict && !p->added && out->tensor.numel) {
		p->shape->ndim = out->tensor.ndim;
		p->shape->numel = out->tensor.numel;
		memcpy(p->shape->shape, out->tensor.shape, sizeof(p->shape->shape));
	}
	return true;
}

static int add_tensor(struct universal_param *p)
{
	int tensor = model_states_add_tensor(p->model, p->shape), rc = 0;

	p->added = tensor >= 0;
	if (tensor >= 0 && p->group < p->l->ngroups)
		rc = table_add_member(p->l->table, (uint32_t)p->l->group + p->group,
				      (uint32_t)tensor);
	return tensor < 0 ? tensor : rc;
}

static int add_pieces(struct universal_param *p, struct torch_source *s,
		      const struct torchfile_tensor *x, const char *key)
{
	struct table *t = p->l->table;
	bool scalar = x->tensor.numel == 1 && p->shape->numel != 1;
	int rc = p->added ? 0 : add_tensor(p);

	if (rc)
		return rc;
	if (!scalar && x->tensor.numel != p->shape->numel)
		return torch_source_refuse(s, "it has not as many elements as %.80s",
					   p->shape->name);
	rc = scalar ? table_add_scalar(t, key, x->tensor.dtype)
		    : table_add_state(t, key, x->tensor.dtype);
	return rc < 0 ? rc : torch_source_add_pieces(s, x, 0);
}

/* "exp_avg.pt" -> "exp_avg". */
static bool take_key(const char *file, char key[FRAG_KEY_MAX + 1])
{
	size_t length = strlen(file);

	if (length < 4 || length - 3 > FRAG_KEY_MAX || strcmp(file + length - 3, ".pt") != 0)
		return false;
	*(char *)mempcpy(key, file, length - 3) = '\0';
	return *key != '.';
}

static int add_state(struct universal_param *p, const char *file)
{
	char key[FRAG_KEY_MAX + 1];
	struct torchfile_tensor x;
	struct torch_source s;
	double number;
	int rc;

	if (!take_key(file, key))
		return 0;
	rc = open_state(p, file, &s);
	if (rc)
		return rc;
	/* a plain number, such as the step of some optimizers, is a hyper-parameter of the
	 * group
	 */
	if (pickle_number(s.torch.pickle, s.root, &number) && p->group < p->l->ngroups)
		rc = torch_hypers_add_one(&s, (uint32_t)p->l->group + p->group, key, s.root);
	else if (pickle_number(s.torch.pickle, s.root, &number))
		table_skip(p->l->table, s.name, "a number of no group that is known");
	else if (take_tensor(p, &s, &x))
		rc = add_pieces(p, &s, &x, key);
	torch_source_close(&s);
	return rc;
}

/* ---- a parameter ---- */

/* Opens zero/NAME.  Returns 0 with *out NULL if there is no such folder. */
static int open_folder(struct universal_loader *l, const char *name, struct folder **out)
{
	CLEANUP(free) char *copy = strdup(name);
	char *rest = copy, *part;
	struct folder *at = l->zero, *below;
	int rc = copy ? 0 : -ENOMEM;

	while (!rc && (part = strsep(&rest, "/"))) {
		rc = folder_open_below(&below, at, part, l->table->why, sizeof(l->table->why));
		if (at != l->zero)
			folder_close(at);
		at = rc ? NULL : below;
	}
	*out = rc ? NULL : at;
	return rc == -ENOENT || rc == -EINVAL ? 0 : rc;
}

/* Adds the states of a folder, the master first: its shape is the parameter's. */
static int add_states(struct universal_param *p)
{
	int rc = folder_has(p->folder, "fp32.pt") ? add_state(p, "fp32.pt") : 0;

	for (size_t i = 0; i < p->folder->count && !rc; i++)
		if (strcmp(p->folder->names[i], "fp32.pt") != 0)
			rc = add_state(p, p->folder->names[i]);
	return rc || !p->added ? rc : model_states_add_copy(p->model, p->shape);
}

static int add_param(struct universal_loader *l, struct model_states *m, uint32_t group,
		     struct model_shape *shape)
{
	struct universal_param p = { .l = l, .model = m, .shape = shape, .group = group };
	struct folder *folder;
	int rc;

	if (shape->unsupported) {
		table_skip(l->table, shape->name, "%s", shape->unsupported);
		return 0;
	}
	rc = open_folder(l, shape->name, &folder);
	if (rc)
		return rc;
	if (!folder) {
		l->table->why[0] = '\0';
		table_skip(l->table, shape->name, "there is no folder " ZERO "/ of that name");
		return 0;
	}
	p.folder = folder;
	rc = add_states(&p);
	folder_close(folder);
	return rc;
}

/* Returns true if an earlier model-parallel rank has the parameter: tensor-parallel ranks have
 * the same names.
 */
static bool was_added(const struct universal_loader *l, uint32_t mp,
		      const struct model_states *m, uint32_t key)
{
	for (uint32_t i = 0; i < mp; i++)
		for (uint32_t g = 0; g < model_states_ngroups(&l->models[i]); g++)
			if (pickle_get_as(l->models[i].source.torch.pickle,
					  model_states_group(&l->models[i], g),
					  m->source.torch.pickle, key))
				return true;
	return false;
}

static int add_group(struct universal_loader *l, uint32_t mp, uint32_t group)
{
	struct model_states *m = &l->models[mp];
	uint32_t dict = model_states_group(m, group);
	struct model_shape shape;
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(m->source.torch.pickle, dict) && !rc; i++) {
		rc = model_states_shape(m, dict, i, &shape);
		if (!rc && !was_added(l, mp, m, shape.key))
			rc = add_param(l, m, group, &shape);
	}
	return rc;
}

/* ---- the optimizer's groups ---- */

static int add_hypers(struct universal_loader *l, const struct torch_source *s)
{
	const struct pickle *p = s->torch.pickle;
	uint32_t list = pickle_get(p, s->root, "param_groups"), n = pickle_count(p, list);
	int rc = 0;

	for (uint32_t i = 0; i < n && rc >= 0; i++) {
		int group = table_add_group(l->table, "universal", 1, 1, 1, &(uint32_t){ 0 });

		l->group = i ? l->group : group;
		rc = group < 0 ? group
			       : torch_hypers_add(s, (uint32_t)group, pickle_item(p, list, i));
	}
	/* in stage 3 all parameters are in one dict: their groups are not known */
	l->ngroups = n == model_states_ngroups(&l->models[0]) ? n : 0;
	return rc;
}

static int add_groups(struct universal_loader *l)
{
	struct model_shape none = { .name = "" };
	struct universal_param p = { .l = l, .shape = &none, .folder = l->zero };
	struct torch_source s;
	int rc;

	if (!folder_has(l->zero, "optimizer_state.pt"))
		return 0;
	rc = open_state(&p, "optimizer_state.pt", &s);
	if (rc)
		return rc;
	rc = add_hypers(l, &s);
	torch_source_close(&s);
	return rc;
}

/* ---- the checkpoint ---- */

static int open_model(struct universal_loader *l, uint32_t mp)
{
	uint32_t n;
	const struct zero_file *f = zero_files_of(&l->files, mp, ZERO_MODEL, &n);
	int rc;

	if (!f)
		f = zero_files_of(&l->files, mp, ZERO_MODEL_SHARD, &n);
	if (!f)
		return table_refuse(
			l->table, -EINVAL,
			"there is no model_states.pt of mp_rank_%02u, which has the "
			"names",
			mp);
	rc = model_states_open(&l->models[mp], l->table, l->folder, f->name, 0);
	l->nmodels += !rc;
	return rc;
}

/* Adds the fp32.pt that newer DeepSpeed writes also of frozen parameters, buffers and further
 * names: a widened copy of module's values.
 */
static int add_copy(struct universal_loader *l, const struct folder *folder,
		    struct model_shape *shape, uint32_t of)
{
	struct universal_param p = { .l = l, .shape = shape, .folder = folder, .added = true };
	struct table *t = l->table;
	struct torchfile_tensor x;
	struct torch_source s;
	int rc = open_state(&p, "fp32.pt", &s);

	if (rc)
		return rc;
	if (take_tensor(&p, &s, &x) && x.tensor.dtype == FRAG_F32 &&
	    x.tensor.numel == t->tensors[of].numel) {
		rc = table_add_copy_of(t, of, FRAG_F32);
		if (rc >= 0)
			rc = torch_source_add_pieces(&s, &x, 0);
	}
	torch_source_close(&s);
	return rc;
}

static int add_copies_of(struct universal_loader *l, uint32_t tensor)
{
	const struct table_tensor *x = &l->table->tensors[tensor];
	uint32_t of = x->alias == TABLE_NONE ? tensor : x->alias;
	struct model_shape shape = { .key = 0 };
	struct folder *folder;
	int rc;

	snprintf(shape.name, sizeof(shape.name), "%s", table_string(l->table, x->name));
	rc = open_folder(l, shape.name, &folder);
	if (rc || !folder) {
		l->table->why[0] = '\0';
		return rc;
	}
	if (folder_has(folder, "fp32.pt"))
		rc = add_copy(l, folder, &shape, of);
	folder_close(folder);
	return rc;
}

static int add_rest(struct universal_loader *l)
{
	uint32_t first = l->table->ntensors;
	struct zero_optim o = { .stage = 2, .nranks = 1 };
	int rc;

	if (zero_files_of(&l->files, 0, ZERO_MODEL_SHARD, &o.nranks))
		o.stage = 3;
	rc = zero_frozen_add_rest(&l->models[0], l->folder, &l->files, 0, &o);
	for (uint32_t i = first; i < l->table->ntensors && !rc; i++)
		rc = add_copies_of(l, i);
	return rc;
}

static int fill_all(struct universal_loader *l)
{
	int rc = 0;

	if (!l->files.nmp)
		return table_refuse(l->table, -EINVAL,
				    "there is no model_states.pt, which has the names");
	l->models = calloc(l->files.nmp, sizeof(*l->models));
	if (!l->models)
		return -ENOMEM;
	for (uint32_t mp = 0; mp < l->files.nmp && !rc; mp++)
		rc = open_model(l, mp);
	if (rc)
		return rc;
	rc = model_states_note(&l->models[0]);
	table_note(l->table, "model_parallel %u", l->files.nmp);
	if (!rc)
		rc = add_groups(l);
	for (uint32_t mp = 0; mp < l->nmodels && !rc; mp++)
		for (uint32_t g = 0; g < model_states_ngroups(&l->models[mp]) && !rc; g++)
			rc = add_group(l, mp, g);
	return rc ? rc : add_rest(l);
}

static int fill(const struct folder *f, struct table *t)
{
	struct universal_loader l = { .folder = f, .table = t, .group = -1 };
	int rc = folder_open_below(&l.zero, f, ZERO, t->why, sizeof(t->why));

	if (rc)
		return rc;
	rc = zero_files_list(&l.files, f, t);
	if (!rc) {
		rc = fill_all(&l);
		for (uint32_t i = 0; i < l.nmodels; i++)
			model_states_close(&l.models[i]);
		free(l.models);
		zero_files_free(&l.files);
	}
	folder_close(l.zero);
	return rc;
}

const struct format format_universal = {
	.name = "universal",
	.looks = ZERO "/*/fp32.pt",
	.knows = knows,
	.fill = fill,
};

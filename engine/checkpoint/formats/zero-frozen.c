/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/zero-frozen.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The model's files of all ranks, of which stage 3 has one each: a rank's share of frozen
 * parameters, and its own copy of the buffers.
 */
struct shards {
	struct model_states *model; /* of the first rank */
	uint32_t nranks;            /* ranks with such a file */
	uint32_t nfrozen, nbuffers; /* items of frozen_param_shapes, of buffer_names */
	uint32_t *files;            /* [nranks], in the table */
	/* [nranks][nfrozen + nbuffers]; dtype 0: the tensor is left out */
	struct zero_part *parts;
};

static struct zero_part *frozen_part(const struct shards *s, uint32_t rank, uint32_t i)
{
	return &s->parts[(size_t)rank * (s->nfrozen + s->nbuffers) + i];
}

static struct zero_part *buffer_part(const struct shards *s, uint32_t rank, uint32_t i)
{
	return frozen_part(s, rank, s->nfrozen + i);
}

/* ---- the files of all ranks ---- */

/* Takes a tensor of a dict by a name in the first rank's pickle. */
static int take_one(const struct shards *s, const struct torch_source *from, uint32_t dict,
		    uint32_t name, struct zero_part *out)
{
	uint32_t node =
		pickle_get_as(from->torch.pickle, dict, s->model->source.torch.pickle, name);
	struct torchfile_tensor x;

	if (!torch_source_tensor(from, node, &x) || !x.tensor.contiguous)
		return 0;
	*out = (struct zero_part){ x.at, x.tensor.numel, x.tensor.dtype };
	return torch_source_use(from, &x);
}

/* Takes the tensors that are named by a list's items or a dict's keys. */
static int take_named(const struct shards *s, const struct torch_source *from, const char *dict,
		      uint32_t names, struct zero_part *out)
{
	const struct pickle *p = s->model->source.torch.pickle;
	uint32_t tensors = pickle_get(from->torch.pickle, from->root, dict);
	bool keys = pickle_kind(p, names) == PICKLE_DICT;
	int rc = 0;

	for (uint32_t i = 0; i < pickle_count(p, names) && !rc; i++)
		rc = take_one(s, from, tensors,
			      keys ? pickle_key(p, names, i) : pickle_item(p, names, i),
			      &out[i]);
	return rc;
}

static int take(struct shards *s, const struct torch_source *from, uint32_t rank)
{
	int rc = take_named(s, from, "frozen_param_fragments", model_states_frozen(s->model),
			    frozen_part(s, rank, 0));

	s->files[rank] = from->file;
	return rc ? rc
		  : take_named(s, from, "module", model_states_get(s->model, "buffer_names"),
			       buffer_part(s, rank, 0));
}

static int take_all(struct shards *s, const struct folder *f, const struct zero_file *shards)
{
	struct torch_source *first = &s->model->source;
	int rc = take(s, first, 0);

	for (uint32_t rank = 1; rank < s->nranks && !rc; rank++) {
		struct torch_source other;

		rc = torch_source_open(&other, first->table, f, shards[rank].name,
				       first->rank + rank);
		if (rc)
			return rc;
		rc = take(s, &other, rank);
		torch_source_close(&other);
	}
	return rc;
}

static void close_shards(struct shards *s)
{
	free(s->files);
	free(s->parts);
}

static int open_shards(struct shards *s, struct model_states *m, const struct folder *f,
		       const struct zero_files *files, uint32_t mp, const struct zero_optim *o)
{
	const struct pickle *p = m->source.torch.pickle;
	uint32_t nshards;
	const struct zero_file *shards = zero_files_of(files, mp, ZERO_MODEL_SHARD, &nshards);
	int rc = -ENOMEM;

	*s = (struct shards){ .model = m,
			      .nranks = o->stage == 3 ? o->nranks : 1,
			      .nfrozen = pickle_count(p, model_states_frozen(m)),
			      .nbuffers =
				      pickle_count(p, model_states_get(m, "buffer_names")) };
	assert(s->nranks == 1 || s->nranks == nshards);
	if (!s->nfrozen && !s->nbuffers)
		s->nranks = 1;
	s->files = calloc(s->nranks, sizeof(*s->files));
	s->parts =
		calloc((size_t)s->nranks * (s->nfrozen + s->nbuffers) + 1, sizeof(*s->parts));
	if (s->files && s->parts)
		rc = take_all(s, f, shards);
	if (rc)
		close_shards(s);
	return rc;
}

/* ---- frozen parameters ---- */

/* Returns how many elements a rank has of a frozen parameter, padding included. */
static uint64_t share_of(const struct shards *z, const struct model_shape *shape, uint32_t i)
{
	uint64_t share = u64_div_ceil(shape->numel, z->nranks);

	return frozen_part(z, 0, i)->count == shape->numel ? shape->numel : share;
}

static int check_parts(const struct shards *z, const struct model_shape *shape, uint32_t i)
{
	struct table *t = z->model->source.table;
	uint64_t share = share_of(z, shape, i);

	for (uint32_t rank = 0; rank < z->nranks && rank * share < shape->numel; rank++) {
		const struct zero_part *part = frozen_part(z, rank, i);

		if (part->dtype != frozen_part(z, 0, i)->dtype || part->count != share)
			return table_refuse(
				t, -EINVAL,
				"%.80s: %.80s has %" PRIu64 " elements of it, not %" PRIu64,
				t->files[z->files[rank]].name, shape->name, part->count, share);
	}
	return 0;
}

static int add_pieces(const struct shards *z, const struct model_shape *shape, uint32_t i)
{
	struct table *t = z->model->source.table;
	uint64_t share = share_of(z, shape, i);
	int rc = 0;

	for (uint32_t rank = 0; rank < z->nranks && rank * share < shape->numel && !rc; rank++)
		rc = table_add_interval(t, z->files[rank], z->model->source.rank + rank,
					frozen_part(z, rank, i)->at, rank * share,
					u64_min(share, shape->numel - rank * share));
	return rc;
}

/* Adds the copy of the parameter that module has elsewhere in the file, as files of runs on
 * GPUs do.
 */
static int add_second(const struct shards *z, const struct model_shape *shape,
		      const struct zero_part *first)
{
	struct torchfile_tensor x;
	int rc;

	if (!model_states_find(z->model, shape, &x) || x.at == first->at ||
	    x.tensor.dtype != first->dtype || !x.tensor.contiguous)
		return 0;
	rc = table_add_copy(z->model->source.table, x.tensor.dtype);
	return rc < 0 ? rc : torch_source_add_pieces(&z->model->source, &x, 0);
}

static int add_one(const struct shards *z, uint32_t i)
{
	struct table *t = z->model->source.table;
	const struct zero_part *first = frozen_part(z, 0, i);
	struct model_shape shape;
	struct table_spec spec;
	int rc = model_states_shape(z->model, model_states_frozen(z->model), i, &shape);

	if (rc)
		return rc;
	if (shape.unsupported)
		table_skip(t, shape.name, "%s", shape.unsupported);
	else if (!first->dtype && !model_states_has(z->model, &shape))
		table_skip(t, shape.name, "there are no values of it");
	/* model_states_add_rest takes a parameter without a dtype here from `module` */
	if (shape.unsupported || !first->dtype)
		return 0;
	rc = check_parts(z, &shape, i);
	if (rc)
		return rc;
	spec = (struct table_spec){ .name = shape.name,
				    .dtype = first->dtype,
				    .ndim = shape.ndim,
				    .shape = shape.shape,
				    .frozen = true };
	rc = table_add_tensor(t, &spec);
	if (rc >= 0)
		rc = table_add_state(t, table_own_key(first->dtype), first->dtype);
	if (rc >= 0)
		rc = add_pieces(z, &shape, i);
	return rc ? rc : add_second(z, &shape, first);
}

/* ---- buffers ---- */

/* Adds the other ranks' copies of the newest tensor, the i-th of buffer_names: an edit writes
 * all copies.
 */
static int see_buffer(const void *shards, uint32_t i)
{
	const struct shards *s = shards;
	const struct zero_part *own = buffer_part(s, 0, i);
	struct table *t = s->model->source.table;
	int rc = 0;

	for (uint32_t rank = 1; rank < s->nranks && rc >= 0; rank++) {
		const struct zero_part *x = buffer_part(s, rank, i);

		if (!x->dtype || x->dtype != own->dtype || x->count != own->count)
			continue;
		rc = table_add_copy(t, x->dtype);
		if (rc >= 0)
			rc = table_add_interval(t, s->files[rank], s->model->source.rank + rank,
						x->at, 0, x->count);
	}
	return rc < 0 ? rc : 0;
}

int zero_frozen_add_rest(struct model_states *m, const struct folder *f,
			 const struct zero_files *files, uint32_t mp,
			 const struct zero_optim *o)
{
	struct shards shards;
	int rc = open_shards(&shards, m, f, files, mp, o);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < shards.nfrozen && !rc; i++)
		rc = add_one(&shards, i);
	if (!rc)
		rc = model_states_add_rest(m, see_buffer, &shards);
	close_shards(&shards);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/formats/zero-shards.h"

#include <errno.h>

/* A tensor of a dict, by a name of the first rank's pickle. */
static int take_one(const struct zero_shards *s, const struct torch_source *from, uint32_t dict,
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

/* Those that are named, by a list's items or a dict's keys. */
static int take_named(const struct zero_shards *s, const struct torch_source *from,
		      const char *dict, uint32_t names, struct zero_part *out)
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

static int take(struct zero_shards *s, const struct torch_source *from, uint32_t rank)
{
	int rc = take_named(s, from, "frozen_param_fragments", model_states_frozen(s->model),
			    zero_shards_frozen(s, rank, 0));

	s->files[rank] = from->file;
	return rc ? rc
		  : take_named(s, from, "module", model_states_get(s->model, "buffer_names"),
			       zero_shards_buffer(s, rank, 0));
}

static int take_all(struct zero_shards *s, const struct folder *f,
		    const struct zero_file *shards)
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

int zero_shards_open(struct zero_shards *s, struct model_states *m, const struct folder *f,
		     const struct zero_files *files, uint32_t mp, const struct zero_optim *o)
{
	const struct pickle *p = m->source.torch.pickle;
	uint32_t nshards;
	const struct zero_file *shards = zero_files_of(files, mp, ZERO_MODEL_SHARD, &nshards);
	int rc = -ENOMEM;

	*s = (struct zero_shards){ .model = m,
				   .nranks = o->stage == 3 ? o->nranks : 1,
				   .nfrozen = pickle_count(p, model_states_frozen(m)),
				   .nbuffers = pickle_count(
					   p, model_states_get(m, "buffer_names")) };
	assert(s->nranks == 1 || s->nranks == nshards);
	if (!s->nfrozen && !s->nbuffers)
		s->nranks = 1;
	s->files = calloc(s->nranks, sizeof(*s->files));
	s->parts =
		calloc((size_t)s->nranks * (s->nfrozen + s->nbuffers) + 1, sizeof(*s->parts));
	if (s->files && s->parts)
		rc = take_all(s, f, shards);
	if (rc)
		zero_shards_close(s);
	return rc;
}

void zero_shards_close(struct zero_shards *s)
{
	free(s->files);
	free(s->parts);
}

int zero_shards_add_copies(const struct zero_shards *s, uint32_t i)
{
	const struct zero_part *own = zero_shards_buffer(s, 0, i);
	struct table *t = s->model->source.table;
	int rc = 0;

	for (uint32_t rank = 1; rank < s->nranks && rc >= 0; rank++) {
		const struct zero_part *x = zero_shards_buffer(s, rank, i);

		if (!x->dtype || x->dtype != own->dtype || x->count != own->count)
			continue;
		rc = table_add_copy(t, x->dtype);
		if (rc >= 0)
			rc = table_add_interval(t, s->files[rank], s->model->source.rank + rank,
						x->at, 0, x->count);
	}
	return rc < 0 ? rc : 0;
}

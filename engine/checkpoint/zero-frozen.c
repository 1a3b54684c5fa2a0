/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/zero-frozen.h"
#include "engine/checkpoint/format-files.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct frozen {
	struct model_states *m;
	const struct pickle *p;
	uint32_t shapes;         /* node of frozen_param_shapes */
	uint32_t n;              /* of them */
	uint32_t nranks;         /* over which they are cut */
	uint32_t *files;         /* [nranks], in the table */
	struct zero_part *parts; /* [nranks][n]; dtype 0: not taken */
};

static struct zero_part *part_of(const struct frozen *z, uint32_t rank, uint32_t i)
{
	return &z->parts[(size_t)rank * z->n + i];
}

/* What a rank has of the i-th. */
static int take_one(struct frozen *z, const struct torch_source *s, uint32_t fragments,
		    uint32_t rank, uint32_t i)
{
	size_t size;
	const char *name = pickle_text(z->p, pickle_key(z->p, z->shapes, i), &size);
	uint32_t node = name ? pickle_get_text(s->torch.pickle, fragments, name, size) : 0;
	struct torchfile_tensor x;

	if (!torch_source_tensor(s, node, &x) || !x.tensor.contiguous)
		return 0;
	*part_of(z, rank, i) = (struct zero_part){ x.at, x.tensor.numel, x.tensor.dtype };
	return torch_source_use(s, &x);
}

static int take(struct frozen *z, const struct torch_source *s, uint32_t rank)
{
	uint32_t fragments = pickle_get(s->torch.pickle, s->root, "frozen_param_fragments");
	int rc = 0;

	z->files[rank] = s->file;
	for (uint32_t i = 0; i < z->n && !rc; i++)
		rc = take_one(z, s, fragments, rank, i);
	return rc;
}

static int take_all(struct frozen *z, const struct folder *f, const struct zero_file *shards)
{
	int rc = take(z, &z->m->source, 0);

	for (uint32_t rank = 1; rank < z->nranks && !rc; rank++) {
		struct torch_source s;

		rc = torch_source_open(&s, z->m->source.table, f, shards[rank].name,
				       z->m->source.rank + rank);
		if (rc)
			return rc;
		rc = take(z, &s, rank);
		torch_source_close(&s);
	}
	return rc;
}

/* ---- in the table ---- */

/* Elements that a rank has, padding included. */
static uint64_t share_of(const struct frozen *z, const struct model_shape *shape, uint32_t i)
{
	uint64_t share = u64_div_ceil(shape->numel, z->nranks);

	return part_of(z, 0, i)->count == shape->numel ? shape->numel : share;
}

static int check_parts(struct frozen *z, const struct model_shape *shape, uint32_t i)
{
	struct table *t = z->m->source.table;
	uint64_t share = share_of(z, shape, i);

	for (uint32_t rank = 0; rank < z->nranks && rank * share < shape->numel; rank++) {
		const struct zero_part *part = part_of(z, rank, i);

		if (part->dtype != part_of(z, 0, i)->dtype || part->count != share)
			return table_refuse(
				t, -EINVAL,
				"%.80s: %.80s has %" PRIu64 " elements of it, not %" PRIu64,
				t->files[z->files[rank]].name, shape->name, part->count, share);
	}
	return 0;
}

static int add_pieces(struct frozen *z, const struct model_shape *shape, uint32_t i)
{
	struct table *t = z->m->source.table;
	uint64_t share = share_of(z, shape, i);
	int rc = 0;

	for (uint32_t rank = 0; rank < z->nranks && rank * share < shape->numel && !rc; rank++)
		rc = table_add_interval(t, z->files[rank], z->m->source.rank + rank,
					part_of(z, rank, i)->at, rank * share,
					u64_min(share, shape->numel - rank * share));
	return rc;
}

/* On files of a run on GPUs module has it too: elsewhere in the file. */
static int add_second(struct frozen *z, const struct model_shape *shape,
		      const struct zero_part *first)
{
	struct torchfile_tensor x;
	int rc;

	if (!model_states_find(z->m, shape, &x) || x.at == first->at ||
	    x.tensor.dtype != first->dtype || !x.tensor.contiguous)
		return 0;
	rc = table_add_copy(z->m->source.table, x.tensor.dtype);
	if (rc >= 0)
		rc = table_add_interval(z->m->source.table, z->m->source.file,
					z->m->source.rank, x.at, 0, x.tensor.numel);
	return rc < 0 ? rc : torch_source_use(&z->m->source, &x);
}

static int add_one(struct frozen *z, uint32_t i)
{
	struct table *t = z->m->source.table;
	const struct zero_part *first = part_of(z, 0, i);
	struct model_shape shape;
	struct table_spec spec;
	int rc = model_states_shape(z->m, z->shapes, i, &shape);

	if (rc)
		return rc;
	if (shape.unfit)
		table_skip(t, shape.name, "%s", shape.unfit);
	if (shape.unfit || !first->dtype) /* what module has of it is taken with the rest */
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
		rc = table_add_state(t, format_own_key(first->dtype), first->dtype);
	if (rc >= 0)
		rc = add_pieces(z, &shape, i);
	return rc ? rc : add_second(z, &shape, first);
}

int zero_frozen_add(struct model_states *m, const struct folder *f,
		    const struct zero_files *files, uint32_t mp, const struct zero_optim *o)
{
	struct frozen z = { .m = m,
			    .p = m->source.torch.pickle,
			    .shapes = model_states_frozen(m),
			    .nranks = o->stage == 3 ? o->nranks : 1 };
	uint32_t nshards;
	const struct zero_file *shards = zero_files_of(files, mp, ZERO_MODEL_SHARD, &nshards);
	int rc;

	z.n = pickle_count(z.p, z.shapes);
	if (!z.n)
		return 0;
	assert(z.nranks == 1 || z.nranks == nshards);
	z.files = calloc(z.nranks, sizeof(*z.files));
	z.parts = calloc((size_t)z.n * z.nranks, sizeof(*z.parts));
	rc = z.files && z.parts ? take_all(&z, f, shards) : -ENOMEM;
	for (uint32_t i = 0; i < z.n && !rc; i++)
		rc = add_one(&z, i);
	free(z.files);
	free(z.parts);
	return rc;
}

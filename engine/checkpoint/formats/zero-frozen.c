/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/table/table-files.h"
#include "engine/checkpoint/formats/zero-frozen.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Elements that a rank has, padding included. */
static uint64_t share_of(const struct zero_shards *z, const struct model_shape *shape,
			 uint32_t i)
{
	uint64_t share = u64_div_ceil(shape->numel, z->nranks);

	return zero_shards_frozen(z, 0, i)->count == shape->numel ? shape->numel : share;
}

static int check_parts(const struct zero_shards *z, const struct model_shape *shape, uint32_t i)
{
	struct table *t = z->model->source.table;
	uint64_t share = share_of(z, shape, i);

	for (uint32_t rank = 0; rank < z->nranks && rank * share < shape->numel; rank++) {
		const struct zero_part *part = zero_shards_frozen(z, rank, i);

		if (part->dtype != zero_shards_frozen(z, 0, i)->dtype || part->count != share)
			return table_refuse(
				t, -EINVAL,
				"%.80s: %.80s has %" PRIu64 " elements of it, not %" PRIu64,
				t->files[z->files[rank]].name, shape->name, part->count, share);
	}
	return 0;
}

static int add_pieces(const struct zero_shards *z, const struct model_shape *shape, uint32_t i)
{
	struct table *t = z->model->source.table;
	uint64_t share = share_of(z, shape, i);
	int rc = 0;

	for (uint32_t rank = 0; rank < z->nranks && rank * share < shape->numel && !rc; rank++)
		rc = table_add_interval(t, z->files[rank], z->model->source.rank + rank,
					zero_shards_frozen(z, rank, i)->at, rank * share,
					u64_min(share, shape->numel - rank * share));
	return rc;
}

/* On files of a run on GPUs module has it too: elsewhere in the file. */
static int add_second(const struct zero_shards *z, const struct model_shape *shape,
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

static int add_one(const struct zero_shards *z, uint32_t i)
{
	struct table *t = z->model->source.table;
	const struct zero_part *first = zero_shards_frozen(z, 0, i);
	struct model_shape shape;
	struct table_spec spec;
	int rc = model_states_shape(z->model, model_states_frozen(z->model), i, &shape);

	if (rc)
		return rc;
	if (shape.unfit)
		table_skip(t, shape.name, "%s", shape.unfit);
	else if (!first->dtype && !model_states_has(z->model, &shape))
		table_skip(t, shape.name, "there are no values of it");
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
		rc = table_add_state(t, table_own_key(first->dtype), first->dtype);
	if (rc >= 0)
		rc = add_pieces(z, &shape, i);
	return rc ? rc : add_second(z, &shape, first);
}

static int add_frozen(const struct zero_shards *z)
{
	int rc = 0;

	for (uint32_t i = 0; i < z->nfrozen && !rc; i++)
		rc = add_one(z, i);
	return rc;
}

static int see_buffer(const void *shards, uint32_t i)
{
	return zero_shards_add_copies(shards, i);
}

int zero_frozen_add_rest(struct model_states *m, const struct folder *f,
			 const struct zero_files *files, uint32_t mp,
			 const struct zero_optim *o)
{
	struct zero_shards shards;
	int rc = zero_shards_open(&shards, m, f, files, mp, o);

	if (rc)
		return rc;
	rc = add_frozen(&shards);
	if (!rc)
		rc = model_states_add_rest(m, see_buffer, &shards);
	zero_shards_close(&shards);
	return rc;
}

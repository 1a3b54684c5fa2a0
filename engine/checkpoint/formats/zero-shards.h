/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_SHARDS_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_SHARDS_H

/* The model's files of all ranks, of which stage 3 has one each: a rank's share of frozen
 * parameters, and its own copy of the buffers.
 */

#include "engine/checkpoint/formats/model-states.h"
#include "engine/checkpoint/formats/zero-optim.h"

struct zero_shards {
	struct model_states *model; /* of the first rank */
	uint32_t nranks;            /* ranks with such a file */
	uint32_t nfrozen, nbuffers; /* of frozen_param_shapes, buffer_names */
	uint32_t *files;            /* [nranks], in the table */
	struct zero_part *parts;    /* [nranks][nfrozen + nbuffers]; dtype 0: left out */
};

/* Reads the files of all ranks, one after the other. */
int zero_shards_open(struct zero_shards *s, struct model_states *m, const struct folder *f,
		     const struct zero_files *files, uint32_t mp, const struct zero_optim *o);
void zero_shards_close(struct zero_shards *s);

static inline struct zero_part *zero_shards_frozen(const struct zero_shards *s, uint32_t rank,
						   uint32_t i)
{
	return &s->parts[(size_t)rank * (s->nfrozen + s->nbuffers) + i];
}

static inline struct zero_part *zero_shards_buffer(const struct zero_shards *s, uint32_t rank,
						   uint32_t i)
{
	return zero_shards_frozen(s, rank, s->nfrozen + i);
}

/* Adds the other ranks' copies of the newest tensor, the i-th of buffer_names: an edit writes
 * all.
 */
int zero_shards_add_copies(const struct zero_shards *s, uint32_t i);

#endif

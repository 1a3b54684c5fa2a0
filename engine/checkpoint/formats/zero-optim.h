/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_OPTIM_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_OPTIM_H

/* What the ranks' *optim_states.pt hold: of each unit, which is a group of parameters (stages
 * 1, 2) or a sub-group (3), the master and the optimizer's states of that rank's partition.  A
 * rank's pickle is gone once it has been read, but that of rank 0.
 */

#include "engine/checkpoint/formats/torch-source.h"
#include "engine/checkpoint/formats/zero-files.h"

enum { ZERO_KEYS_MAX = 64, ZERO_MASTER = 0 /* the key of the master */ };

struct zero_part {
	uint64_t at; /* in the file */
	uint64_t count;
	uint32_t dtype; /* 0: the rank has none */
};

struct zero_optim {
	struct table *table;
	struct torch_source source; /* of rank 0 */
	int stage;                  /* 1 to 3 */
	bool bf16_optimizer;        /* whose masters have their padding still */
	uint32_t first_rank;        /* data-parallel rank 0 as the table counts */
	uint32_t nranks, nunits, nkeys;
	char keys[ZERO_KEYS_MAX][FRAG_KEY_MAX + 1];
	uint32_t *files;         /* [nranks], in the table */
	struct zero_part *parts; /* [nranks][nunits][nkeys] */
};

int zero_optim_open(struct zero_optim *o, struct table *t, const struct folder *f,
		    const struct zero_file *files, uint32_t nranks, uint32_t first_rank);
void zero_optim_close(struct zero_optim *o);

static inline struct zero_part *zero_optim_part(const struct zero_optim *o, uint32_t rank,
						uint32_t unit, uint32_t key)
{
	return &o->parts[((size_t)rank * o->nunits + unit) * o->nkeys + key];
}

/* The state of torch's own optimizer, in a rank's file. */
uint32_t zero_optim_base(const struct zero_optim *o, const struct torch_source *s);
/* The dict of a unit's states. */
uint32_t zero_optim_states(const struct zero_optim *o, const struct torch_source *s,
			   uint32_t unit);

/* How many ranks a unit is cut over. */
uint32_t zero_optim_partitions(const struct zero_optim *o, uint32_t unit);
/* Elements behind each parameter of a group that are no one's: the list's node, or nothing. */
uint32_t zero_optim_alignment(const struct zero_optim *o, uint32_t unit);

uint32_t zero_optim_ngroups(const struct zero_optim *o);
/* Which of the optimizer's groups each unit is of: [nunits], the caller's; NULL: no memory. */
uint32_t *zero_optim_groups(const struct zero_optim *o);
/* lr, betas, step ... of it, for the table's group. */
int zero_optim_add_hypers(const struct zero_optim *o, uint32_t group, uint32_t table_group);

#endif

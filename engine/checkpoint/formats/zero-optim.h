/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_OPTIM_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_OPTIM_H

/* The ranks' *optim_states.pt.  Each has, for each unit, the rank's partition of the master and
 * of the optimizer's states.  A unit is a group of parameters (stages 1, 2) or a sub-group
 * (3).  Only rank 0's pickle is kept; the others are freed once read.
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
	bool bf16_optimizer;        /* BF16_Optimizer, whose masters still have their padding */
	uint32_t first_rank;        /* the table's rank of data-parallel rank 0 */
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

/* Returns the number of ranks that a unit is partitioned over. */
uint32_t zero_optim_partitions(const struct zero_optim *o, uint32_t unit);
/* Returns the node of the list of padding elements behind each parameter of a group;
 * PICKLE_NOTHING: none.
 */
uint32_t zero_optim_alignment(const struct zero_optim *o, uint32_t unit);

uint32_t zero_optim_ngroups(const struct zero_optim *o);
/* Returns the optimizer's group of each unit, [nunits], the caller's to free; NULL: no memory.
 */
uint32_t *zero_optim_groups(const struct zero_optim *o);
/* Adds lr, betas, step ... of a group of the optimizer to the table's group. */
int zero_optim_add_hypers(const struct zero_optim *o, uint32_t group, uint32_t table_group);

#endif

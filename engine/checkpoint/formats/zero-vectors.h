/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_VECTORS_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_VECTORS_H

/* The table's vectors that ZeRO's parameters are cut out of.  Stages 1 and 2 have a vector for
 * each key and group; stage 3 has one for each key, rank and run of neighbouring sub-groups
 * that have the key.  Also adds the ranks' partitions as they are.
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/formats/zero-optim.h"

struct zero_run {
	uint32_t key;
	uint32_t flat;       /* the table's vector; 3: the first of one for each rank */
	uint64_t begin, end; /* elements of the group's vector; 3: of a rank's, all units */
};

struct zero_vectors {
	const struct zero_optim *optim;
	struct vec runs; /* struct zero_run, by key, then begin; 1, 2: those of `unit` */
	uint32_t unit;
	uint64_t *ends; /* [nunits], 3: where each unit ends in a rank's vector */
};

/* Adds vectors and partitions to the table.  groups: the optimizer's group of each unit;
 * first_group: the table's number of the first of these groups.
 */
int zero_vectors_open(struct zero_vectors *v, const struct zero_optim *o,
		      const uint32_t *groups, uint32_t first_group);
void zero_vectors_close(struct zero_vectors *v);

/* Stage 3: the unit that has an element of a rank's vector; nunits: behind the last. */
uint32_t zero_vectors_unit(const struct zero_vectors *v, uint64_t start);

/* Adds the states of the newest tensor, which begins at `start` of the unit's vector, in stage
 * 3 of a rank's.
 */
int zero_vectors_add_states(struct zero_vectors *v, uint32_t unit, uint64_t start,
			    uint64_t numel);

/* Checks that param_shapes, whose parameters end at `end`, are as long as these files' vectors,
 * but for padding.
 * -EINVAL.
 */
int zero_vectors_check_end(struct zero_vectors *v, uint32_t unit, uint64_t end);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FORMATS_ZERO_VECTORS_H
#define ENGINE_CHECKPOINT_FORMATS_ZERO_VECTORS_H

/* The table's vectors that ZeRO's parameters are cut out of: of each key and group (stages 1,
 * 2), or of each key and neighbouring sub-groups that have it (3); and the ranks' partitions,
 * as they are.
 */

#include "engine/base/vec.h"
#include "engine/checkpoint/formats/zero-optim.h"

struct zero_run {
	uint32_t key;
	uint32_t flat; /* 3: the first of as many as ranks */
	uint64_t begin,
		end; /* elements of a rank's vector of all units; 1, 2: of the group's */
};

struct zero_vectors {
	const struct zero_optim *optim;
	struct vec runs; /* struct zero_run, by key, then begin; 1, 2: of the unit `unit` */
	uint32_t unit;
	uint64_t *ends; /* [nunits], 3: of a rank's vector of all */
};

/* groups: of each unit, the optimizer's; first_group: the table's number of the first of these.
 */
int zero_vectors_open(struct zero_vectors *v, const struct zero_optim *o,
		      const uint32_t *groups, uint32_t first_group);
void zero_vectors_close(struct zero_vectors *v);

/* 3: the unit at an element of a rank's vector; nunits: behind the last. */
uint32_t zero_vectors_unit(const struct zero_vectors *v, uint64_t start);

/* The states of the newest tensor, which begins at start: of the unit's vector, or of a rank's.
 */
int zero_vectors_add_states(struct zero_vectors *v, uint32_t unit, uint64_t start,
			    uint64_t numel);

/* Whether param_shapes, which end at `end`, are of these files. */
int zero_vectors_check_end(struct zero_vectors *v, uint32_t unit, uint64_t end);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_MESH_H
#define ENGINE_CATALOG_MESH_H

/* Which ranks of a job work together, from the sizes of its device mesh.  Arithmetic only: no
 * memory, no I/O.
 *
 * A rank has a coordinate in the mesh, of pipeline stage p, data d, sequence s and tensor t:
 * rank = ((p * data + d) * sp + s) * tp + t, with data = world / (pp * sp * tp).
 *
 *   world 8, tp 2, ep 2:  tensor       0,1  2,3  4,5  6,7
 *                         data         0,2,4,6       1,3,5,7
 *                         expert       0,2  4,6      1,3  5,7
 *                         expert-data  0,4  2,6      1,5  3,7
 *
 * The groups and their order are those of DeepSpeed (utils/groups.py, parallel_state_sp.py).
 * The expert, expert-data and hpZ groups lie within one sequence-data group.
 */

#include "engine/base/base.h"

/* Kinds of groups.  The ranks of one group ... */
enum mesh_kind {
	MESH_DATA,          /* have the same shard of the model, and other samples */
	MESH_TENSOR,        /* have the parts of each tensor */
	MESH_SEQUENCE,      /* have the parts of each sample (Ulysses) */
	MESH_SEQUENCE_DATA, /* share ZeRO's partitions */
	MESH_PIPELINE,      /* have the stages */
	MESH_EXPERT,        /* have the experts of a layer, each rank others */
	MESH_EXPERT_DATA,   /* have the same experts, and share their partitions */
	MESH_HPZ,           /* share the second copy of stage 3's parameters (ZeRO++) */
	MESH_KINDS
};

struct mesh {
	uint32_t world;
	uint32_t pp, sp, tp; /* pipeline stages, and ranks of a sequence and a tensor group */
	uint32_t ep;         /* ranks of an expert group */
	uint32_t hpz;        /* ranks of an hpZ group */
	bool data_first;     /* use_data_before_expert_parallelism: an expert-data group has
			  * consecutive ranks */
};

/* Replaces sizes that are 0 by 1, and checks them.
 * -EINVAL: a size is above FRAG_WORLD_MAX, or does not divide the ranks; why has one line.
 */
int mesh_init(struct mesh *m, char *why, size_t whysize);

/* Makes the sizes at least as large as a parameter's coordinate, such as "ep=3,tp=0", says. */
void mesh_see(struct mesh *m, const char *coordinate);

/* Returns true if the ranks, in their order, are a group of the kind. */
bool mesh_has(const struct mesh *m, enum mesh_kind kind, const uint32_t *ranks, uint32_t n);

const char *mesh_kind_name(enum mesh_kind kind);
/* The ranks of one group of the kind. */
uint32_t mesh_size(const struct mesh *m, enum mesh_kind kind);
/* The number of groups of the kind, which together have each rank once. */
uint32_t mesh_count(const struct mesh *m, enum mesh_kind kind);
/* The rank at `index`, below mesh_size, of a group below mesh_count. */
uint32_t mesh_rank(const struct mesh *m, enum mesh_kind kind, uint32_t group, uint32_t index);

#endif

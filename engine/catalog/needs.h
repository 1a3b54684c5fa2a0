/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_NEEDS_H
#define ENGINE_CATALOG_NEEDS_H

/* The memory that the states of a model need on each rank of a job that has not begun, from the
 * shapes of its parameters alone: a catalog is made as the ranks would describe it, and its
 * layouts are added up.  No I/O, no threads; no memory for the states.
 *
 * Tensor parallelism cuts a parameter of two dimensions or more along its largest, the first of
 * equal ones, as torch.chunk does; a rank has parameters of fewer dimensions whole.  Expert
 * parallelism divides parameters whose name has a component "experts" or "deepspeed_experts":
 * where a number follows, expert N is on rank N / (experts / ep) of each expert group; else, of
 * three dimensions or more, dimension 0 counts the experts.
 */

#include "engine/catalog/mesh.h"
#include "engine/frag.h"

enum needs_tier { NEEDS_DEVICE, NEEDS_HOST, NEEDS_NVME, NEEDS_TIERS };

struct needs_spec {
	int stage;        /* of ZeRO, 0 to 3 */
	struct mesh mesh; /* after mesh_init; pp is 1 */
	uint64_t sub_group_size;
	uint32_t nstates;     /* of the optimizer, beside the master: 2 for Adam */
	enum needs_tier tier; /* of the master, the gradients and the optimizer's states */
	uint64_t least;       /* NVMe: partitions of fewer bytes are in the host's memory */
	uint64_t pinned;      /* NVMe: bytes of the host's buffers */
	/* NVMe: share of the sub-groups, the first ones, that stays in memory */
	double in_memory;
};

struct needs_param {
	const char *name;
	enum frag_dtype dtype; /* of the low-precision parameter */
	uint32_t ndim;
	const uint64_t *shape; /* of the whole parameter */
	uint32_t group;        /* of the optimizer: any number below the number of parameters */
	bool frozen;
};

/* Bytes of one rank, padding included. */
struct needs {
	uint64_t lp;        /* low-precision parameters; stage 3: pieces */
	uint64_t secondary; /* hpZ's second copy of the low-precision parameters */
	uint64_t
		lp_grad; /* stages 0 and 1: gradients of backward, of all parameters, like lp */
	uint64_t grad;   /* float32, as the other states: of the partition */
	uint64_t fp32;   /* masters */
	uint64_t optimizer;
	uint64_t pinned;
	uint64_t tier[NEEDS_TIERS]; /* the sum of these bytes, by the tier that has them */
};

/* Fills ranks[mesh.world].
 * -EINVAL: the spec asks for what the parameters do not have; why has one line, as with
 * -EEXIST: a name is given twice.
 * -EOVERFLOW: bytes do not fit 63 bits.
 * -ENOSPC: too many parameters or groups.
 * -ENOMEM
 */
int needs_compute(struct needs *ranks, const struct needs_spec *spec,
		  const struct needs_param *params, uint32_t nparams, char *why,
		  size_t whysize);

#endif

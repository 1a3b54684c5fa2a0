/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_LAYOUT_H
#define ENGINE_CATALOG_LAYOUT_H

/* A layout says where the elements of a param group's parameters lie in the partitions of its
 * shards, from shapes alone, for all shards at once.  Arithmetic only: no I/O, no threads, no
 * clock; memory is O(parameters), never O(parameters x shards).
 *
 * LAYOUT_FLAT: ZeRO stages 0, 1, 2 and BF16_Optimizer.  The trainable parameters, in order, are
 * one flat tensor, padded at its end and cut into equal partitions:
 *
 *   | p0 | p1     | p2        | p3 |pad|       aligned = ceil(total / A) * A
 *   |-- shard 0 --|-- shard 1 --|-- 2 --|       partition = aligned / shards, with
 *                                             A = alignment * shards
 *
 *   (DeepSpeed stage_1_and_2.py: alignment 2 elements.  Stage 0 is one shard, alignment 1;
 *   FSDP1 has alignment 1, too.)
 *   Padding may cover the end of one shard and whole further shards.
 *   round_robin: the flat order is positions 0, W, 2W ..., then 1, W+1 ... (W = shards),
 *   counted over the parameters that are left.
 *   param_alignment: each parameter begins at a multiple of so many elements.
 *
 * LAYOUT_PER_PARAM: ZeRO stage 3.  Every parameter is cut by itself: piece = ceil(numel /
 * shards); shard s has [s * piece, min((s + 1) * piece, numel)).  Pieces, padding included, are
 * laid end to end in the partition of a sub-group.  A sub-group is closed when its sum of
 * pieces >= sub_group_size, or at the last parameter; one sub-group when sub_group_size >= the
 * sum of all.
 *
 * LAYOUT_ROWS: FSDP2.  Like PER_PARAM, but cut along dimension 0 as torch.chunk does:
 * rows = ceil(dim0 / shards) per shard, piece = rows * row elements; the last shards may have
 * fewer rows or none.  A 0-dim parameter is one row of one element.  A parameter with cuts is
 * cut into boxes instead; piece is then the largest box, and the parameter's elements are
 * counted in stored order (engine/catalog/cuts.h).
 *
 * All numbers are elements.  Frozen and zero-size parameters have no fragments and are left out
 * before anything is counted, as DeepSpeed 0.19.8 does (is_optimized_parameter).
 */

#include "engine/base/base.h"
#include "engine/catalog/cuts.h"

enum layout_kind { LAYOUT_FLAT, LAYOUT_PER_PARAM, LAYOUT_ROWS };

struct layout_spec {
	enum layout_kind kind;
	uint32_t shards;    /* > 0: processes that share the group (W) */
	uint32_t alignment; /* FLAT: elements per shard the flat tensor is rounded to, > 0 */
	bool round_robin;   /* FLAT only */
	uint32_t param_alignment; /* FLAT: elements; 0 and 1: no gaps between parameters */
	uint64_t sub_group_size;  /* PER_PARAM, ROWS: elements of a shard; 0: no limit */
};

struct layout_param {
	uint64_t numel;
	uint64_t row;            /* ROWS: elements of one index of dimension 0; 0-dim: 1 */
	const struct cuts *cuts; /* ROWS, borrowed by the layout; NULL: none */
	bool frozen;
};

struct layout {
	enum layout_kind kind;
	uint32_t shards;
	uint32_t nparams;
	uint32_t nsubs;           /* sub-groups; FLAT: 1, or 0 when nothing is trainable */
	uint64_t total;           /* elements of all trainable parameters, without padding */
	uint64_t *offset;         /* [nparams] in the flat tensor; not FLAT: in the partition */
	uint64_t *numel;          /* [nparams] 0 for frozen ones */
	uint64_t *row;            /* [nparams] ROWS, else NULL */
	const struct cuts **cuts; /* [nparams] ROWS, else NULL */
	uint32_t *sub;            /* [nparams] sub-group; never falls; FLAT: NULL, all in 0 */
	uint64_t *partition_numel; /* [nsubs] elements of one shard, with padding */
};

/* One run of one parameter in one shard's partition. */
struct layout_fragment {
	uint32_t shard;
	uint32_t sub;
	uint64_t partition_offset;
	uint64_t param_offset;
	uint64_t numel; /* > 0 */
};

/* Fills *l; on error *l needs no layout_fini.
 * -EINVAL: shards or alignment is 0, or, with ROWS, a row does not divide numel.
 * -EOVERFLOW: a sum, padding included, does not fit 64 bits.
 * -ENOMEM.
 */
int layout_init(struct layout *l, const struct layout_spec *spec,
		const struct layout_param *params, uint32_t nparams);
void layout_fini(struct layout *l);

static inline uint32_t layout_sub(const struct layout *l, uint32_t param)
{
	return l->sub ? l->sub[param] : 0;
}

/* Finds the fragment that holds element `at` of the parameter, cut to begin there: param_offset
 * is `at`.  To walk a range [a, b):
 * for (at = a; at < b && layout_find(l, p, at, &f); at += f.numel).
 * false: at is past the end, or the parameter has no fragments.
 */
bool layout_find(const struct layout *l, uint32_t param, uint64_t at,
		 struct layout_fragment *f);

/* Finds the whole fragment of the parameter on one shard.  false: the shard has none. */
bool layout_on_shard(const struct layout *l, uint32_t param, uint32_t shard,
		     struct layout_fragment *f);

#endif

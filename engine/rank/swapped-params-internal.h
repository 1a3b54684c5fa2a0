/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_SWAPPED_PARAMS_INTERNAL_H
#define ENGINE_RANK_SWAPPED_PARAMS_INTERNAL_H

/* The structs of swapped low-precision parameters, which swapped-params*.c share. */

#include "engine/base/queue.h"
#include "engine/rank/swapped-params.h"
#include "engine/swap/swapper.h"

enum pack_where { PACK_OUT, PACK_IN, PACK_UNSENT };

struct pack {
	TAILQ_ENTRY(pack) link;
	struct swapper_state *state;
	enum pack_where where;
	unsigned users; /* pieces that are in, each counted as often as it is in */
	bool changed;
	bool forgets;    /* a piece was let out as unchanged: its memory may not be its value */
	bool unshown;    /* a changed piece could not be written by itself */
	uint8_t *memory; /* PACK_IN, once it is there */
	unsigned n;
	struct swapper_lent *lent[]; /* [n] slices */
};

struct swapped_param {
	bool known;
	unsigned in;
	struct pack *pack; /* NULL: it stays in memory */
	uint64_t at, bytes, numel;
	void *owned; /* the memory where it stays, if it was allocated here */
};

struct swapped_params {
	struct registry *registry;
	struct swapper *swapper;
	uint64_t least, stay, stayed, buffer;
	TAILQ_HEAD(, pack) packs;     /* in the order in which they were added */
	struct pack *looked_at;       /* by swapped_params_look, the last time; NULL: none */
	unsigned idle;                /* packs that are in, without users */
	unsigned unsent;              /* packs */
	unsigned said;                /* the most missing buffers that the log has named */
	struct swapped_param *shards; /* [n], by parameter */
	uint32_t n;
};

#endif

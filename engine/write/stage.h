/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WRITE_STAGE_H
#define ENGINE_WRITE_STAGE_H

/* One transaction of writes (transaction.h), and which bytes of it go where: extents ->
 * sources, whole elements of what the user writes and of its low-precision copy -> items, one
 * STAGE message each.  What an extent's edges lack is read, here or, when it is not in reach of
 * memory, as an edge.
 */

#include "engine/commit/proposal.h"
#include "engine/commit/termination.h"
#include "engine/node/file.h"

struct stage_source { /* bytes for one range of a parameter, or of its low-precision copy */
	const struct engine_file *file;
	bool lp;
	uint64_t offset;
	uint64_t size;
	const uint8_t *data;
	uint8_t *owned; /* to be freed, or NULL */
};

struct stage_item { /* one STAGE message */
	uint32_t rank, row;
	uint32_t size;
	uint32_t turn; /* among its rank's */
	uint64_t offset;
	const uint8_t *data;
};

/* An element of fp32 that an extent cuts, out of this thread's reach: the copy of low precision
 * is of the whole.
 */
struct stage_edge {
	struct stage_edge *next;
	struct transaction *commit;
	struct engine_file file;
	struct engine_read read;
	bool over;
	uint32_t from, to;  /* what the user has written of it */
	uint8_t bytes[8];   /* that, and then the rest */
	uint8_t *converted; /* to lp, from hp */
	enum frag_dtype hp, lp;
};

enum transaction_phase {
	TRANSACTION_EDGES,
	TRANSACTION_PLAN,
	TRANSACTION_STAGE,
	TRANSACTION_ASKED, /* the coordinator: proposal */
	TRANSACTION_LOST,  /* the coordinator: termination */
	TRANSACTION_OVER
};

struct transaction {
	struct transaction *next;
	struct engine_write *write; /* the first of them: its file names the commit */
	bool wait_applied;
	bool cancelled;
	bool stale; /* a holder's memory was registered anew: plan again */
	enum transaction_phase phase;
	int result;
	unsigned restarts;
	struct proposal proposal; /* commit.count: so many holders */
	uint64_t progress_ms;
	uint64_t start_ns;
	uint64_t bytes;
	struct stage_source *sources;
	size_t nsources;
	struct stage_edge *edges;
	unsigned edges_waiting; /* under the lock */
	struct stage_item *items;
	size_t nitems, items_room, sent;
	struct termination termination;
	unsigned outstanding;
};

/* Whether, and in what dtype, the low-precision copies of the file's parameter follow. */
bool stage_lp_follows(struct engine *e, const struct engine_file *f, enum frag_dtype *lp);
/* Takes in what the writes say: in the caller's thread, without the lock. */
int stage_add_writes(struct engine *e, struct transaction *c, const struct engine_write *writes,
		     size_t n);
/* Without the lock: the edges are asked for, and the commit ends when all have come; with it:
 * they need not come any more.
 */
void stage_read_edges(struct engine *e, struct stage_edge *edges);
void stage_cancel_edges(struct transaction *c);
/* With the lock: items for every holder, under a new transaction.  -EAGAIN: a rank's table of
 * states is awaited.
 */
int stage_plan(struct engine *e, struct transaction *c);
void stage_free(struct transaction *c);

#endif

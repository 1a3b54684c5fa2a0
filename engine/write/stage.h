/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WRITE_STAGE_H
#define ENGINE_WRITE_STAGE_H

/* The struct of a transaction of writes (transaction.h), and the way of its bytes to the
 * holders: extents, which the user writes -> sources, whole elements of the parameter and of
 * its low-precision copy -> items, one STAGE message each.  The rest of an element that an
 * extent cuts is read one-sided where that is possible, or else by message: an edge.
 */

#include "engine/base/phase.h"
#include "engine/base/vec.h"
#include "engine/commit/proposal.h"
#include "engine/commit/termination.h"
#include "engine/node/file.h"
#include "engine/node/plan.h"

struct stage_source { /* bytes for one range of the file, or of its low-precision copy */
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
	uint32_t turn; /* number among this rank's items: ranks get their items in turns */
	uint64_t offset;
	const uint8_t *data;
	bool copied;    /* by the rank, out of this process: engine/node/writer-memory.h */
	size_t compute; /* 0: a STAGE; else a COMPUTE: computes[compute - 1] */
};

/* An element that an extent cuts, and of which the owner has to be asked: the low-precision
 * copy is converted from the whole element.
 */
struct stage_edge {
	struct stage_edge *next;
	struct transaction *commit;
	struct engine_file file;
	struct engine_read read;
	bool over;
	bool written[8];              /* which of its bytes the user writes, by any extent */
	_Alignas(8) uint8_t bytes[8]; /* the user's bytes; once read, the owner's others, too */
	uint8_t *converted;           /* where the element goes in low precision */
	enum frag_dtype hp, lp;
};

enum transaction_state {
	TRANSACTION_EDGES,
	TRANSACTION_PLAN,
	TRANSACTION_STAGE,
	TRANSACTION_ASKED, /* the coordinator: proposal */
	TRANSACTION_LOST,  /* the coordinator: termination */
	TRANSACTION_OVER
};

struct transaction {
	LIST_ENTRY(transaction) link;
	struct engine_write *write; /* the first of its writes, whose file events name */
	bool wait_applied;
	bool cancelled;
	bool deadlocked; /* cancelled because its writer is a training thread */
	bool stale; /* a holder has registered memory anew, or STAGE got lost: planned anew */
	enum transaction_state state;
	int result;
	unsigned restarts;
	struct proposal proposal; /* its commit.transaction names the transaction */
	uint64_t progress_ms;
	uint64_t start_ns;
	struct phase_span span;
	uint64_t bytes;
	struct stage_source *sources;
	size_t nsources;
	struct stage_edge *edges;
	unsigned edges_waiting; /* under the lock */
	struct vec items;       /* of struct stage_item */
	bool lp_follows;        /* of an operation: stage_lp_follows, which sets lp */
	enum frag_dtype lp;
	struct vec computes; /* of struct wire_compute; send_item sets transaction and epoch */
	uint32_t sent;
	struct termination termination;
	unsigned outstanding;
};

/* Returns true if edits of the file are copied to its low-precision parameter, of dtype *lp. */
bool stage_lp_follows(struct engine *e, const struct engine_file *f, enum frag_dtype *lp);
/* Adds the sources and edges of the writes.  Caller's thread, without the lock. */
int stage_add_writes(struct engine *e, struct transaction *c, const struct engine_write *writes,
		     size_t n);
/* Starts to read the edges; the transaction goes on when edges_waiting is 0.  Without the lock.
 */
void stage_read_edges(struct engine *e, struct stage_edge *edges);
/* Cancels the reads of edges.  With the lock. */
void stage_cancel_edges(struct transaction *c);
/* Plans the items for every holder, under a new number of the transaction.  With the lock.
 * -EAGAIN: a rank's table of states is awaited.
 */
int stage_plan(struct engine *e, struct transaction *c);
void stage_free(struct transaction *c);

/* stage-compute.c: edits by an operation. */

/* Checks the operation of c->write.
 * -EOPNOTSUPP: the file is no parameter's state, or its dtype has no such operation.
 * -EINVAL: the slice is not of the file's shape.
 */
int stage_add_operation(struct engine *e, struct transaction *c);
/* Adds the items of the operation.  Errors of plan_write.
 * -EOPNOTSUPP: a low-precision copy cannot follow.
 */
int stage_plan_operation(struct engine *e, struct transaction *c);
/* Adds an item, and counts its rank among the holders.  NULL: no memory. */
struct stage_item *stage_add_item(struct transaction *c, const struct plan_piece *piece);

#endif

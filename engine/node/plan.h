/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PLAN_H
#define ENGINE_NODE_PLAN_H

/* From names to places: which bytes of which rows on which ranks.  Any thread, with the lock.
 */

#include "engine/node/node.h"

/* One run of bytes on one rank. */
struct piece {
	uint32_t rank;
	uint32_t row;
	uint64_t offset; /* bytes in the row */
	uint64_t at;     /* bytes in what was asked */
	uint64_t size;
	int lost;        /* 0; keep_lost: -EIO, -ETIMEDOUT if the holder is lost */
	bool coming;     /* the view's generation was still to come there when it was opened */
	uint32_t view;   /* number in the file's view + 1; 0: none */
	uint64_t inside; /* bytes in the view's piece */
	uint64_t room;   /* address in the rank of the view's piece once it is kept; 0: none */
	bool kept;       /* it is */
	bool awaited;    /* its rank must come to it first: it is to be asked again */
};

struct plan {
	struct piece pieces[NODE_PIECES_MAX];
	unsigned n;
	uint64_t covered; /* bytes from the start that the pieces give */
	bool keep_lost;   /* set by the caller: a lost rank's runs are pieces too */
};

/* since_ns: when the request began, monotonic_ns: a table of states that was asked for earlier
 * cannot say that something is not there, and is fetched anew (-EAGAIN); 0: what is here will
 * do.
 */

/* Pieces of [offset, offset + size) of what address names, from one live holder each.
 * -EAGAIN: a table of states is being fetched; -EIO: lost; -ENOENT; -EINVAL: past the end.
 */
int plan_read(struct engine *e, const struct engine_address *address, uint64_t since_ns,
	      uint64_t offset, uint64_t size, struct plan *plan);
/* The same, from every holder: replicas too.  Calls see for each piece. */
typedef int (*plan_see)(void *arg, const struct piece *piece);
int plan_write(struct engine *e, const struct engine_address *address, uint64_t since_ns,
	       uint64_t offset, uint64_t size, plan_see see, void *arg);
/* What the bytes of a piece whose holder is, or was, lost are: -EIO, -ETIMEDOUT. */
int plan_lost_status(const struct engine *e, const struct piece *piece);
/* dtype, bytes of the whole; -ENOENT, -EAGAIN. */
int plan_describe(struct engine *e, const struct engine_address *address, uint64_t since_ns,
		  struct engine_state *out);

#endif

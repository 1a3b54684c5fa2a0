/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PLAN_H
#define ENGINE_NODE_PLAN_H

/* Translates a range of a named state to pieces: bytes of rows (of tables of states) on ranks.
 * Any thread, with the lock.
 */

#include "engine/node/file.h"

/* One run of bytes on one rank. */
struct plan_piece {
	uint32_t rank;
	uint32_t row;
	uint64_t offset; /* bytes in the row */
	uint64_t at;     /* bytes in what was asked */
	uint64_t size;
	int lost;        /* keep_lost: plan_lost_status, if the holder is lost; else 0 */
	bool coming;     /* the rank had not come to the generation when the view was opened */
	uint32_t view;   /* number in the file's view + 1; 0: none */
	uint64_t inside; /* bytes in the view's piece */
	uint64_t buffer; /* address of the view's preserved piece in the rank; 0: none */
	bool preserved;  /* the rank has preserved the view's piece, in buffer */
	bool awaited;    /* the rank has not come to the generation, and is asked again */
};

struct plan {
	struct plan_piece pieces[NODE_PIECES_MAX];
	unsigned n;
	uint64_t covered;            /* bytes from the start that the pieces give */
	const struct peer *table_of; /* the rank whose table of states plan_read lacked last */
	bool keep_lost;              /* set by the caller: a lost rank's runs are pieces too */
};

/* since_ns, of the functions below: when the request began, monotonic_ns.  A table of states
 * that was asked for earlier cannot say that a state is not there: it is fetched anew
 * (-EAGAIN).  0: tables of any age can.
 */

/* Fills plan with the pieces of [offset, offset + size) of the state at address, each from one
 * live holder.
 * -EAGAIN: a table of states is being fetched.
 * -EIO: the holders of a piece are lost.
 * -ETIMEDOUT: they are only silent (peers_lost_status).
 * -ENOENT: there is no such state.
 * -EINVAL: the range goes past the end.
 */
int plan_read(struct engine *e, const struct engine_address *address, uint64_t since_ns,
	      uint64_t offset, uint64_t size, struct plan *plan);
/* Does the same for a range of an open file's states. */
int plan_file(struct engine *e, const struct engine_file *f, uint64_t since_ns, uint64_t offset,
	      uint64_t size, struct plan *plan);
/* Calls see for each piece on every holder, replicas too.  Errors of plan_read and of see. */
typedef int (*plan_see)(void *arg, const struct plan_piece *piece);
int plan_write(struct engine *e, const struct engine_address *address, uint64_t since_ns,
	       uint64_t offset, uint64_t size, plan_see see, void *arg);
/* Returns how a read of a piece ends whose holder is, or was, lost.
 * -ETIMEDOUT: it is silent.
 * -EIO: it is gone.
 */
int plan_lost_status(const struct engine *e, const struct plan_piece *piece);
/* Fills *out with dtype and bytes of the whole state.
 * -ENOENT: there is no such state.
 * -EAGAIN: a table of states is being fetched.
 */
int plan_describe(struct engine *e, const struct engine_address *address, uint64_t since_ns,
		  struct engine_state *out);

#endif

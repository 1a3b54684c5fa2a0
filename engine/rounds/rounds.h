/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_ROUNDS_H
#define ENGINE_ROUNDS_ROUNDS_H

/* A round: ranks send bytes of their states, as they are at one boundary, to one of them, by
 * the communicator.
 *
 *   reader         ROUND to each owner and to itself, ACK, COMMIT, ACCEPTED, APPLIED
 *   trainer, at N  each rank preserves the bytes that it sends, and launches its part, a send
 *                  or a receive, in the coordinator's order
 *   engine thread  ends parts that are over; APPLIED says whether all could preserve their
 *                  bytes
 *
 * A round is agreed on as an edit is (coordinator.h), so nothing is launched for a rank that
 * has not promised to come.  A round that fails makes the communicator fail; its reader asks
 * the owners by message instead.
 */

#include "engine/node/node.h"

#include <stdio.h>

enum { ROUNDS_BYTES_MAX = 64 << 20, ROUNDS_UNDER_WAY_MAX = 16 };

/* Bytes as an observer's view shows them. */
struct rounds_view {
	uint64_t id[2];
	uint32_t n;                      /* at most NODE_PIECES_MAX */
	const struct wire_piece *pieces; /* in the order of `out`, which they fill */
};

/* A request, with its `out`, is the rounds' until done is called. */
struct rounds_get {
	struct engine_address address;
	uint64_t offset, size;          /* at most ROUNDS_BYTES_MAX */
	const struct rounds_view *view; /* instead of address and offset; NULL: these */
	void *out;                      /* memory that the communicator reaches */
	unsigned wait_ms;               /* for the boundary; 0: without a bound */
	/* Called without the lock.
	 * 0: `out` has the bytes as they were at one boundary.
	 * -ETIMEDOUT: a rank's table of states did not come in time.
	 * -ECANCELED: rounds_end, or the boundary did not come within wait_ms.
	 * -EREMOTE: a round cannot bring these bytes.
	 * -ESTALE: the view is gone.
	 * -EIO: a rank was lost, or could not send.
	 * Errors of plan_read.
	 */
	void (*done)(struct rounds_get *get, int result);
	void *owner;
};

struct rounds_figures {
	uint64_t rounds, bytes, failed; /* that this rank asked for */
	uint64_t launched;              /* parts of this rank in any round */
};

struct round;

/* Called before the first round.  -ENOMEM. */
int rounds_init(struct engine *e);
/* The engine thread and the communicator have ended. */
void rounds_free(struct engine *e);

/* Starts a round.  Any thread, without the lock.
 * 0: done will be called.
 * -EREMOTE: there is no communicator now.
 * -E2BIG: size is more than ROUNDS_BYTES_MAX.
 * -EAGAIN: ROUNDS_UNDER_WAY_MAX are under way.
 * -ENOMEM.
 */
int rounds_start(struct engine *e, struct rounds_get *get);
/* As rounds_start, with the lock; the caller wakes the engine thread. */
int rounds_begin(struct engine *e, struct rounds_get *get);
/* Cancels a round: done is called, with -ECANCELED if that comes in time.  With the lock; the
 * caller wakes the engine thread.
 */
void rounds_end(struct engine *e, struct rounds_get *get);

/* Answers ROUND.  Engine thread, with the lock. */
void rounds_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		  const void *body, const void *tail, size_t tail_size);
/* Engine thread, with the lock.  Rounds that are over are moved to *finished, for
 * rounds_finish, which is called without the lock.
 */
void rounds_turn(struct engine *e, uint64_t now, struct round_list *finished);
void rounds_finish(struct round_list *finished);
/* Ends all rounds with -ECANCELED.  The engine thread has ended, and nothing is under way. */
void rounds_abandon(struct engine *e);

/* Launches this rank's part at the boundary: a participant_launch, arg is the struct engine.
 * Trainer's thread.
 */
int rounds_launch(void *arg, const struct edit *edit);

/* Returns true if the engine thread is to look again soon: a round, or a part in one, is under
 * way.
 */
bool rounds_tick(const struct engine *e);
void rounds_figures(const struct engine *e, struct rounds_figures *f);
/* Writes how this rank's devices are connected, its figures, and a line for each round that
 * waits.  With the lock.
 */
void rounds_report(struct engine *e, FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_ROUNDS_H
#define ENGINE_ROUNDS_ROUNDS_H

/* A round: ranks send one of them bytes of their states as they are at one boundary, by the
 * communicator.
 *
 *   reader         ROUND to each owner and to itself, ACK, COMMIT, ACCEPTED, APPLIED
 *   trainer, at N  each rank preserves what it is to send, and launches its part in the
 *                  coordinator's order: it sends, or receives
 *   engine thread  looks at what has ended; APPLIED says whether all senders did
 *
 * It is agreed on as an edit is (coordinator.h), so nothing is launched for a rank that has not
 * promised to come.  What fails, fails the communicator; the reader goes the host's way.
 */

#include "engine/node/node.h"

#include <stdio.h>

enum { ROUNDS_BYTES_MAX = 64 << 20, ROUNDS_UNDER_WAY_MAX = 16 };

/* Bytes as an observer's view shows them. */
struct rounds_view {
	uint64_t id[2];
	uint32_t n; /* at most NODE_PIECES_MAX */
	const struct wire_piece
		*pieces; /* one behind the other, the size of all asked for together */
};

/* The caller's until done is called, and so is out. */
struct rounds_get {
	struct engine_address address;
	uint64_t offset, size;          /* at most ROUNDS_BYTES_MAX */
	const struct rounds_view *view; /* in place of address and offset; NULL: those */
	void *out;                      /* memory that the communicator reaches */
	unsigned wait_ms;               /* for its boundary; 0: however long that takes */
	/* 0: they are as they were at one boundary.  -ETIMEDOUT, -ECANCELED: it did not come,
	 * or was not waited for; -EREMOTE: a round cannot give them; -ESTALE: a view is gone;
	 * -EIO: a rank was lost, or could not send; others as of a read. Without the lock.
	 */
	void (*done)(struct rounds_get *get, int result);
	void *owner;
};

struct rounds_figures {
	uint64_t rounds, bytes, failed; /* that this rank asked for */
	uint64_t launched;              /* all that it had a part in */
};

struct round;

/* Before the first round.  -ENOMEM. */
int rounds_init(struct engine *e);
/* The engine thread and the communicator are gone. */
void rounds_free(struct engine *e);

/* Any thread, without the lock: 0: done will be called.  -EREMOTE: there is no communicator
 * now; -E2BIG; -EAGAIN: too many are under way; -ENOMEM.
 */
int rounds_start(struct engine *e, struct rounds_get *get);
/* The same with the lock; the engine thread is to be woken. */
int rounds_begin(struct engine *e, struct rounds_get *get);
/* Cancels: done is called with -ECANCELED.  With the lock; the engine thread is to be woken. */
void rounds_end(struct engine *e, struct rounds_get *get);

/* ROUND.  Engine thread, with the lock. */
void rounds_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		  const void *body, const void *tail, size_t tail_size);
/* Engine thread, with the lock; what is over goes to *finished, to be told without it. */
void rounds_turn(struct engine *e, uint64_t now, struct round **finished);
void rounds_finish(struct round *finished);
/* Ends all with -ECANCELED; the engine thread is gone, and nothing is under way. */
void rounds_abandon(struct engine *e);

/* Trainer's thread at the boundary, arg: struct engine: this rank's part.  With what it ended:
 * participant_launch.
 */
int rounds_launch(void *arg, const struct edit *edit);

bool rounds_tick(const struct engine *e);
void rounds_figures(const struct engine *e, struct rounds_figures *f);
/* How this rank's devices are connected, and what rounds it had.  With the lock. */
void rounds_report(struct engine *e, FILE *out);
/* A line for each that waits.  With the lock. */
void rounds_describe(struct engine *e, FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_ROUNDS_INTERNAL_H
#define ENGINE_ROUNDS_ROUNDS_INTERNAL_H

/* What the files of engine/rounds share. */

#include "engine/commit/proposal.h"
#include "engine/node/plan.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/rounds.h"
#include "engine/rounds/send-source.h"

enum round_phase { ROUND_PLAN, ROUND_STAGE, ROUND_ASKED, ROUND_OVER };

/* One that this rank asked for.  Engine thread, with the engine's lock, unless said. */
struct round {
	struct round *next;
	struct rounds_get *get;
	enum round_phase phase;
	struct proposal proposal; /* commit.transaction: changed with both locks */
	uint64_t communicator;    /* its number */
	struct plan plan;
	uint32_t members[NODE_PIECES_MAX]; /* of the pieces' ranks in the communicator */
	uint64_t epochs[NODE_PIECES_MAX];  /* of the tables that the pieces' rows are of */
	uint64_t start_ns, start_ms;
	unsigned restarts, outstanding;
	bool stale; /* memory was registered anew, or ROUND got lost: plan again */
	bool cancelled;
	int result;
	/* under the lock of rounds */
	struct launched *launched; /* its part here; NULL: none, or over */
	bool was_launched;
};

/* This rank's part in one, under way.  From on_launched on the engine thread's. */
struct launched {
	struct communicator_io io;
	struct launched *next;
	struct round *of; /* this rank's own */
	uint64_t communicator;
	struct send *send;
	struct collective_move moves[];
};

struct rounds {
	pthread_mutex_t lock; /* of what the trainer's thread looks at */
	struct round *list;   /* changed with both locks */
	unsigned n;
	struct launched *launched; /* under the lock */
	_Atomic unsigned under_way;
	struct rounds_figures figures; /* engine thread; launched: under the lock */
};

/* Takes what has ended out; it is the engine thread's.  With the engine's lock. */
void rounds_turn_launched(struct engine *e);
void rounds_free_launched(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_ROUNDS_INTERNAL_H
#define ENGINE_ROUNDS_ROUNDS_INTERNAL_H

/* The structs of rounds, which rounds.c and rounds-launch.c share. */

#include "engine/base/phase.h"
#include "engine/base/queue.h"
#include "engine/commit/proposal.h"
#include "engine/node/plan.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/rounds.h"
#include "engine/rounds/send-source.h"

enum round_state { ROUND_PLAN, ROUND_STAGE, ROUND_ASKED, ROUND_OVER };

/* A round that this rank asked for.  Engine thread, with the engine's lock, unless said. */
struct round {
	LIST_ENTRY(round) link;
	struct rounds_get *get;
	enum round_state state;
	struct proposal proposal; /* commit.transaction: changed with both locks */
	uint64_t communicator;    /* its number */
	struct plan plan;
	uint32_t members[NODE_PIECES_MAX]; /* of the pieces' ranks in the communicator */
	uint64_t epochs[NODE_PIECES_MAX];  /* of the tables that the pieces' rows are of */
	uint64_t start_ns, start_ms;
	struct phase_span span;
	unsigned restarts, outstanding;
	bool stale; /* memory was registered anew, or ROUND got lost: it is planned again */
	bool cancelled;
	int result;
	/* under the lock of rounds */
	struct launched *launched; /* this rank's part in it; NULL: none, or over */
	bool was_launched;
};

/* This rank's part in a round, under way. */
struct launched {
	struct communicator_io io;
	LIST_ENTRY(launched) link;
	struct round *own; /* NULL: another rank asked for the round */
	uint64_t communicator;
	struct send_source *send;
	uint64_t began_ns; /* 0: not counted */
	struct collective_move moves[];
};

struct rounds {
	pthread_mutex_t lock;   /* of the members that the trainer's thread uses */
	struct round_list list; /* changed with both locks */
	unsigned n;
	LIST_HEAD(, launched) launched; /* under the lock */
	_Atomic unsigned under_way;
	struct rounds_figures figures; /* engine thread; launched: under the lock */
};

/* Ends the parts that are over.  Engine thread, with the engine's lock. */
void rounds_turn_launched(struct engine *e);
void rounds_free_launched(struct engine *e);

#endif

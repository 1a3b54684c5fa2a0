/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_COMMUNICATOR_INTERNAL_H
#define ENGINE_ROUNDS_COMMUNICATOR_INTERNAL_H

/* The struct of a rank's communicator, which communicator*.c share. */

#include "engine/rounds/communicator.h"

struct communicator {
	const struct collective_ops *ops;
	struct collective_options options;
	enum communicator_state state;
	/* c and number, between launch and the engine thread; order: engine/node/node.h */
	pthread_mutex_t lock;
	struct collective *c;
	uint64_t number;            /* 0: none */
	_Atomic unsigned under_way; /* launched and not over */
	_Atomic bool news;          /* something launched is over */
	_Atomic uint64_t broken;    /* number of one that is to fail; 0: none */

	/* engine thread */
	uint64_t newest; /* of those made here */
	uint64_t left;   /* the number of the one that it had last */
	uint32_t *ranks; /* [nranks] its members in their places; ASKING: who was asked */
	uint32_t nranks;
	uint8_t *answers; /* [world] who made it: HAS_DECLINED ... */
	unsigned outstanding;
	uint64_t membership; /* of the table of ranks it was made from */
	uint64_t since_ms, retry_ms, again_ms;
	unsigned failures; /* one after the other */
	uint64_t made, failed;
	char why[160];    /* the newest failure; empty: none */
	char without[64]; /* " 2 3": who was asked last and takes no part */
};

#endif

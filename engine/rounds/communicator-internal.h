/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_ROUNDS_COMMUNICATOR_INTERNAL_H
#define ENGINE_ROUNDS_COMMUNICATOR_INTERNAL_H

/* The struct of a rank's communicator, which communicator*.c share. */

#include "engine/rounds/communicator.h"

struct communicator {
	const struct collective_ops *ops;
	struct collective_options options;
	enum communicator_state state;
	/* guards c and number between communicator_launch and the engine thread; its order is
	 * in engine/node/node.h
	 */
	pthread_mutex_t lock;
	struct collective *c;
	uint64_t number;            /* 0: none */
	_Atomic unsigned under_way; /* launched collectives that are not over */
	_Atomic bool news;          /* a launched collective is over */
	_Atomic uint64_t broken;    /* number of the communicator that is to fail; 0: none */

	/* engine thread */
	uint64_t newest; /* the count of communicators made here */
	uint64_t left;   /* number of the communicator that was closed here last */
	uint32_t *ranks; /* [nranks] the rank of each member */
	uint32_t nranks;
	uint8_t *answers; /* [world] HAS_DECLINED ...; NULL: another rank asks the members */
	unsigned outstanding;
	uint64_t membership; /* epoch of the table of ranks when the members were asked */
	uint64_t since_ms, retry_ms, again_ms;
	unsigned failures; /* since the last success */
	uint64_t made, failed;
	char why[160];    /* the newest failure; empty: none */
	char without[64]; /* " 2 3": the ranks that take no part */
};

#endif

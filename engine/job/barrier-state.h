/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_BARRIER_STATE_H
#define ENGINE_JOB_BARRIER_STATE_H

/* An engine's count of barriers; a rank that joins, or comes back, counts on from there. */

#include "engine/catalog/wire.h"

struct barrier {
	/* barriers of this process, by number: the one that its trainer is in, the last that
	 * rank 0 was asked for, the last that was passed
	 */
	uint64_t wanted, asked, passed;
	uint64_t returned; /* the last from which the trainer's call returned */
	uint64_t until_ms; /* when the trainer's call ends; 0: no call waits */
	bool failed;       /* rank 0 could not be asked for the barrier that is wanted */
	bool late;         /* rank 0 has said in why which ranks have not come */
	char why[sizeof(((struct wire_refuse *)0)->why)];
	int status;             /* 0, or -errno: how the last barrier ended */
	uint64_t count;         /* rank 0: barriers released */
	int released;           /* rank 0: status of the last of them */
	struct wire_barrier at; /* the highest counts of the ranks at the last barrier */
	uint64_t before;  /* barriers that the job had passed when this process came back */
	uint32_t arrived; /* rank 0: the ranks that have come */
	uint64_t tell_ms; /* rank 0: when a rank that waits is told who is late; 0: none is */
	struct barrier_arrival *arrivals; /* rank 0: [world]; NULL: no rank has come yet */
};

#endif

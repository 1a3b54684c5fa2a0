/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_BARRIER_STATE_H
#define ENGINE_JOB_BARRIER_STATE_H

/* An engine's count of barriers; a rank that joins, or comes back, counts on from there. */

#include "engine/catalog/wire.h"

struct barrier {
	uint64_t wanted, asked, passed; /* this rank's: numbers of barriers */
	uint64_t returned;              /* to its trainer */
	uint64_t until_ms;              /* when the trainer's call ends; 0: no call waits */
	bool failed; /* rank 0 could not be asked for the barrier that is wanted */
	bool late;   /* rank 0 has said in why which ranks have not come */
	char why[sizeof(((struct wire_refuse *)0)->why)];
	int status;             /* of the barrier that was passed last */
	uint64_t count;         /* rank 0: barriers released */
	int released;           /* rank 0: status of the last of them */
	struct wire_barrier at; /* what the ranks that passed the last one have counted */
	uint64_t before; /* barriers that the job had passed when this process came back */
	uint32_t arrived;
	uint64_t tell_ms; /* when the next rank that waits is told; 0: none is */
	struct barrier_arrival *arrivals; /* rank 0: [world]; NULL: no rank has come yet */
};

#endif

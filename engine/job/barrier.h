/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_BARRIER_H
#define ENGINE_JOB_BARRIER_H

/* frag_barrier: rank 0 counts who has come, and when all have, tells them what all have
 * counted; or, in time, who has not. Engine thread, with the lock.
 */

#include "engine/node/node.h"

struct barrier {
	uint64_t wanted, asked, passed; /* this rank's: numbers of barriers */
	uint64_t returned;              /* to its trainer */
	uint64_t
		until_ms; /* when rank 0 is to say who has not come; 0: the trainer is not here */
	bool failed;      /* rank 0 could not be asked for the barrier that is wanted */
	bool late;        /* rank 0 has said in why which ranks have not come */
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

int barrier_new(struct engine *e);
void barrier_free(struct engine *e);

void barrier_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body);
/* Asks for the one that the trainer waits for; on rank 0 ends one that a lost rank will not
 * come to.
 */
void barrier_turn(struct engine *e);
/* Whether rank 0 is to tell someone who has not come in time. */
bool barrier_tick(const struct engine *e);

/* Trainer's thread, with the lock, which is let go meanwhile: frag_barrier.  *at, with 0: what
 * all have counted.
 */
int barrier_pass(struct engine *e, unsigned timeout_ms, struct wire_barrier *at);

#endif

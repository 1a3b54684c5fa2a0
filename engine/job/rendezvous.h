/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_RENDEZVOUS_H
#define ENGINE_JOB_RENDEZVOUS_H

/* All ranks of a group meet: before each takes all of a state, or what it holds of one, and
 * after (frag_gather, frag_scatter).  The lowest live rank of the group counts them, as rank 0
 * does for a barrier, and says by which way all go.
 */

#include "engine/node/node.h"

struct meeting;

struct rendezvous {
	struct meeting *meetings; /* of groups whose lowest live rank this is */
	/* of the trainer's call */
	struct wire_rendezvous said;
	bool wanted, asked, answered;
	uint32_t counter;                /* the rank that is asked */
	struct wire_rendezvous_over met; /* what it answered */
	bool leaves;                     /* left is to be sent to left_at */
	struct wire_rendezvous left;
	uint32_t left_at;
};

int rendezvous_new(struct engine *e);
void rendezvous_free(struct engine *e);

/* Trainer's thread, with the lock, which is let go meanwhile: until all ranks of the group have
 * come to that stage.  0: at stage 0: all can take the communicator that was said; later: it
 * was 0 for all.  -EREMOTE: at stage 0: not all can.  -ETIMEDOUT: one has not come in time;
 * -EIO: one is lost; -EINVAL: they said different things; the status of one that said one.  The
 * root's transaction is with all that end with 0 or -EREMOTE; NULL: nobody asks.
 */
int rendezvous_wait(struct engine *e, const struct wire_rendezvous *said,
		    uint64_t transaction[2]);

/* RENDEZVOUS.  Engine thread, with the lock. */
void rendezvous_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		      const void *body);
void rendezvous_turn(struct engine *e, uint64_t now);
bool rendezvous_tick(const struct engine *e);

#endif

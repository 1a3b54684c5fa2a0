/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_BARRIER_H
#define ENGINE_JOB_BARRIER_H

/* frag_barrier: rank 0 counts the ranks that come, and when all have come, tells them what they
 * have counted; or, in time, which ranks have not come.  Engine thread, with the lock.
 */

#include "engine/job/barrier-state.h"
#include "engine/node/node.h"

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

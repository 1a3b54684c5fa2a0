/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_BARRIER_H
#define ENGINE_JOB_BARRIER_H

/* frag_barrier: rank 0 counts the ranks that come.  When all have come, it tells them the
 * highest counts among them; a rank whose time is over before that is told the numbers of the
 * absent ones.  Engine thread, with the lock.
 */

#include "engine/job/barrier-state.h"
#include "engine/node/node.h"

/* -ENOMEM. */
int barrier_new(struct engine *e);
void barrier_free(struct engine *e);

/* Takes BARRIER: the rank in header has come. */
void barrier_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body);
/* Sends BARRIER for the trainer's call.  Rank 0 ends a barrier with -EIO once a rank is lost.
 */
void barrier_turn(struct engine *e);
/* Returns true if rank 0 must turn every few ms, to answer ranks whose time is over. */
bool barrier_tick(const struct engine *e);

/* Trainer's thread, with the lock, which is let go meanwhile: waits until all ranks have called
 * it.  Fills *at with the highest counts among them.
 * -EIO: a rank is lost.
 * -ETIMEDOUT: a rank has not come in time, or not joined yet; the next call waits for the same
 * barrier.
 */
int barrier_pass(struct engine *e, unsigned timeout_ms, struct wire_barrier *at);

#endif

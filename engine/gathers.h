/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_GATHERS_H
#define ENGINE_GATHERS_H

/* All ranks of a group meet, before and after each takes all of a state: frag_gather.  The lowest live rank of the group counts
 * them, as rank 0 does for a barrier, and says by which way all go.
 */

#include "engine/node.h"

/* Trainer's thread, with the lock, which is let go meanwhile: until all ranks of the group have said so.  0: all can take the
 * communicator that was said; -EREMOTE: not all can.  -ETIMEDOUT: one has not come in time; -EIO: one is lost; -EINVAL: they
 * said different things.
 */
int gathers_meet(struct engine *e, const struct wire_gather *said);

/* GATHER.  Engine thread, with the lock. */
void gathers_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body);
void gathers_turn(struct engine *e, uint64_t now);
void gathers_free(struct engine *e);
bool gathers_tick(const struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BARRIER_H
#define ENGINE_BARRIER_H

/* frag_barrier: rank 0 counts who has come, and when all have, tells them what all have counted.
 * Engine thread, with the lock.
 */

#include "engine/node.h"

void barrier_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body);
/* Asks for the one that the trainer waits for; on rank 0 ends one that a lost rank will not come to. */
void barrier_turn(struct engine *e);

#endif

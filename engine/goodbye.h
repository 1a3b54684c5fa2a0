/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_GOODBYE_H
#define ENGINE_GOODBYE_H

/* A rank that ends says so to those that are linked with it, so that nobody takes it for lost; rank 0 takes it out
 * of its table, so that no mount waits for its silence.
 */

#include "engine/node.h"

/* Before the engine thread ends: waits until all have heard it, a moment at most.  Trainer's thread. */
void goodbye_say(struct engine *e);
/* Engine thread, with the lock. */
void goodbye_turn(struct engine *e);
/* LEAVE.  Engine thread, with the lock. */
void goodbye_serve(struct engine *e, uint32_t peer, const struct wire_header *header);

#endif

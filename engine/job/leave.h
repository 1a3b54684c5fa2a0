/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_LEAVE_H
#define ENGINE_JOB_LEAVE_H

/* A rank that ends says so to those that are linked with it (LEAVE, LEFT), so that nobody takes
 * it for lost; rank 0 takes it out of its table, so that no mount waits for its silence, and
 * tells those that are linked with rank 0.  Rank 0 ends last, when all end at about the same
 * time.
 */

#include "engine/node/node.h"

int leave_new(struct engine *e);
void leave_free(struct engine *e);

/* Before the engine thread ends: waits until all have heard it, a moment at most.  Trainer's
 * thread.
 */
void leave_say(struct engine *e);
/* Engine thread, with the lock. */
void leave_turn(struct engine *e);
/* LEAVE.  Engine thread, with the lock. */
void leave_serve(struct engine *e, uint32_t peer, const struct wire_header *header);
/* LEFT; to an observer, too.  Engine thread, with the lock. */
void leave_serve_left(struct engine *e, uint32_t peer, const struct wire_header *header,
		      const struct wire_left *left);
/* A rank has a request of that peer, which may want to be told of its end.  Engine thread, with
 * the lock.
 */
void leave_note(struct engine *e, uint32_t peer, const struct wire_header *header);
/* That peer has gone.  Engine thread, with the lock. */
void leave_gone(struct engine *e, uint32_t peer);

#endif

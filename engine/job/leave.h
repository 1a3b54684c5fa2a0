/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_LEAVE_H
#define ENGINE_JOB_LEAVE_H

/* A rank that ends in order sends LEAVE to the ranks it is linked with and LEFT to its
 * observers, which then do not report it as lost.  Rank 0 removes it from the table of ranks,
 * and sends LEFT to its own observers.  Rank 0 waits a moment for the others to end first.
 * Engine thread, with the lock, unless said.
 */

#include "engine/node/node.h"

/* -ENOMEM. */
int leave_new(struct engine *e);
void leave_free(struct engine *e);

/* Trainer's thread, without the lock, before the engine thread ends: has LEAVE and LEFT sent,
 * and waits a moment at most until all have acknowledged them.
 */
void leave_say(struct engine *e);
void leave_turn(struct engine *e);
/* Answers LEAVE, at a rank. */
void leave_serve(struct engine *e, uint32_t peer, const struct wire_header *header);
/* Answers LEFT, at an observer or a rank. */
void leave_serve_left(struct engine *e, uint32_t peer, const struct wire_header *header,
		      const struct wire_left *left);
/* Notes that a request of message peer `peer` has come: if it is HELLO or PING, the peer is to
 * get LEFT.
 */
void leave_note(struct engine *e, uint32_t peer, const struct wire_header *header);
/* Forgets message peer `peer`, which is gone. */
void leave_gone(struct engine *e, uint32_t peer);

#endif

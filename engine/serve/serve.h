/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_H
#define ENGINE_SERVE_SERVE_H

/* The server of a rank: answers requests of peers.  A message is never believed: each number in
 * it is checked before use.  Engine thread, with the lock.
 */

#include "engine/node/node.h"

struct serve {
	void *chunk;            /* WIRE_CHUNK bytes of an answer; NULL: none was needed yet */
	uint64_t figures_ms;    /* when the control page last got figures of NVMe */
	uint64_t step, step_ms; /* this rank's step, and when the engine thread first saw it */
	bool copies_ahead;      /* the next turn goes on to copy bytes for views */
};

void serve_request(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body, const void *tail, size_t tail_size);
/* Writes 8 bytes to e->serve.asked_fd (frag_asked), and closes it; without one, nothing. */
void serve_tell_asked(struct engine *e);
/* A turn of the loop: tells writers that their edits were applied, answers pending reads, drops
 * views of silent observers, loses silent ranks, and carries barriers on.
 */
void serve_turn(struct engine *e, uint64_t now);

#endif

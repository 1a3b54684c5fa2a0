/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_H
#define ENGINE_SERVE_SERVE_H

/* What a rank answers.  Everything in a message is somebody's word: each number is checked
 * before use. Engine thread, with the lock.
 */

#include "engine/node/node.h"

void serve_request(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body, const void *tail, size_t tail_size);
/* DATA, with the control page as it is after the bytes were read. */
void serve_data(struct engine *e, uint32_t peer, uint64_t request, int status,
		const void *bytes, uint32_t size);
/* Tells writers that their edits were applied; drops what silent ones left; asks for and ends
 * barriers.
 */
void serve_turn(struct engine *e, uint64_t now);

#endif

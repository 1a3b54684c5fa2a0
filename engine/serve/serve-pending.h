/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_PENDING_H
#define ENGINE_SERVE_SERVE_PENDING_H

/* READs of rows that are not in the host's memory.  The engine thread starts a fetch from the
 * disk or the device and does not wait for it; the thread that ends the fetch wakes it to
 * answer.  Engine thread, with the lock, but where said.
 */

#include "engine/node/node.h"

/* Called before the first row is registered that is not in the host's memory; a second call
 * does nothing.  Trainer's thread, with the lock.
 * -ENOMEM.
 */
int serve_pending_init(struct engine *e);
/* Cancels all fetches, and waits for them; one that a disk does not end within SWAPPER_END_MS
 * ends later, by itself.
 */
void serve_pending_free(struct engine *e);

/* Serves a READ.  Returns false, having done nothing, if the row is in the host's memory. */
bool serve_pending_start(struct engine *e, uint32_t peer, uint64_t request,
			 const struct wire_read *read);
/* Answers a READ of any row by DATA, with the control page as it is now, after the bytes were
 * read.
 */
void serve_pending_data(struct engine *e, uint32_t peer, uint64_t request, int status,
			const void *bytes, uint32_t size);
/* Cancels the reads of a peer that has left. */
void serve_pending_gone(struct engine *e, uint32_t peer);
/* Answers the READs whose fetches have ended. */
void serve_pending_turn(struct engine *e, uint64_t now);

#endif

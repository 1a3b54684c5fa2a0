/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SWAP_H
#define ENGINE_SERVE_SWAP_H

/* What a rank answers about its states on NVMe: reads of them, for which the engine thread does not wait, and words about
 * them.  Engine thread, with the lock.
 */

#include "engine/node.h"

/* Before the first read.  -ENOMEM. */
int serve_swap_init(struct engine *e);
/* Waits for the disk's part of what is under way. */
void serve_swap_free(struct engine *e);

/* READ.  False: the row is in memory. */
bool serve_swap_read(struct engine *e, uint32_t peer, uint64_t request,
		     const struct wire_read *read);
/* Answers what has come from the disk. */
void serve_swap_turn(struct engine *e, uint64_t now);

/* ABOUT. */
void serve_about(struct engine *e, uint32_t peer, uint64_t request, const void *body);

#endif

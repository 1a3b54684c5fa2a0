/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_SWAP_H
#define ENGINE_SERVE_SERVE_SWAP_H

/* What a rank tells of its states on NVMe, and words about them and more.  Engine thread, with
 * the lock.
 */

#include "engine/node/node.h"

/* Puts figures into the control page, now and then. */
void serve_swap_turn(struct engine *e, uint64_t now);

/* RANK_QUERY. */
void serve_about(struct engine *e, uint32_t peer, uint64_t request, const void *body);

#endif

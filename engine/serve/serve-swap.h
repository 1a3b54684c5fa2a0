/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_SWAP_H
#define ENGINE_SERVE_SERVE_SWAP_H

/* Figures of a rank's states on NVMe, and the texts that RANK_QUERY asks for: swap, pinned,
 * arena, nccl, log, comms, timers, phases, place.  Engine thread, with the lock.
 */

#include "engine/node/node.h"

/* Puts figures of the swapper into the control page, every 100 ms. */
void serve_swap_turn(struct engine *e, uint64_t now);

/* Answers a RANK_QUERY by RANK_TEXT.  Acknowledged by -EINVAL: no such text; -ENOMEM. */
void serve_about(struct engine *e, uint32_t peer, uint64_t request, const void *body);

#endif

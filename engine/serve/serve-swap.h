/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_SWAP_H
#define ENGINE_SERVE_SERVE_SWAP_H

/* Figures of a rank's states on NVMe.  Engine thread, with the lock. */

#include "engine/node/node.h"

/* Puts figures of the swapper into the control page, every 100 ms. */
void serve_swap_turn(struct engine *e, uint64_t now);

#endif

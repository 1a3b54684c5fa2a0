/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_FIGURES_H
#define ENGINE_SERVE_SERVE_FIGURES_H

/* Figures of a rank's swapper and devices in its control page.  Engine thread, with the lock.
 */

#include "engine/node/node.h"

/* A turn of the loop: puts the figures into the control page, the swapper's every 100 ms. */
void serve_figures_turn(struct engine *e, uint64_t now);

#endif

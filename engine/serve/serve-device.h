/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_DEVICE_H
#define ENGINE_SERVE_SERVE_DEVICE_H

/* Figures of a rank's devices. */

#include "engine/node/node.h"

/* Puts figures of copies from and to devices into the control page.  Engine thread, with the
 * lock.
 */
void serve_device_turn(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_PLACE_H
#define ENGINE_SERVE_SERVE_PLACE_H

/* Orders of mounts to move states to another tier.  Engine thread, with the lock. */

#include "engine/node/node.h"

/* Answers a PLACE: by ACK once the states are to move, which the trainer's thread does at its
 * boundaries (engine/rank/registry-place.h).  -EINVAL; -ENOENT: this rank has none of them;
 * -EOPNOTSUPP, with the reason by REFUSE.
 */
void serve_place(struct engine *e, uint32_t peer, uint64_t request, const void *body);

#endif

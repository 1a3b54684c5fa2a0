/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_PLACE_H
#define ENGINE_SERVE_SERVE_PLACE_H

/* Orders of mounts to move states to another tier.  Engine thread, with the lock. */

#include "engine/node/node.h"

/* Answers a PLACE by ACK, once the states are marked; the trainer's thread moves them at its
 * boundaries (engine/rank/registry-place.h).  Status of the ACK:
 * -EINVAL: the order is wrong, or the rank is not ready.
 * -ENOENT: this rank has none of the states.
 * -EOPNOTSUPP: one of them cannot move; REFUSE has the reason.
 */
void serve_place(struct engine *e, uint32_t peer, uint64_t request, const void *body);

#endif

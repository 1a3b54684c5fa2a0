/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_SERVE_TEXTS_H
#define ENGINE_SERVE_SERVE_TEXTS_H

/* Texts of a rank about itself, one for each word that RANK_QUERY may ask for: swap, pinned,
 * arena, nccl, log, comms, timers, phases, place, leaves.  Engine thread, with the lock.
 */

#include "engine/node/node.h"

/* Answers a RANK_QUERY by RANK_TEXT, or by an ACK:
 * -EINVAL: there is no such text.
 * -ENOMEM.
 */
void serve_texts_answer(struct engine *e, uint32_t peer, uint64_t request, const void *body);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PERMISSIONS_H
#define ENGINE_NODE_PERMISSIONS_H

/* Who may send what.  A peer with the key for readers looks, and is no rank, whatever it says;
 * one with the job's key writes; what ranks agree on among each other comes from ranks.
 */

#include "engine/node/node.h"

/* Whether it answers what was asked. */
bool permissions_is_answer(enum wire_type type);

/* 0; -EACCES: it may not send that.  Corrects the header's rank.  Engine thread, with the lock.
 */
int permissions_check(struct engine *e, uint32_t peer, struct wire_header *header);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_PERMISSIONS_H
#define ENGINE_NODE_PERMISSIONS_H

/* Which messages a peer may send.  A peer with the key for readers may read and acknowledge
 * LEFT, and counts as an observer, whatever its header says; a peer with the job's key may
 * write, too; messages of the ranks' own protocols are taken from ranks alone.
 */

#include "engine/node/node.h"

/* Returns true if messages of this type are answers. */
bool permissions_is_answer(enum wire_type type);

/* Returns true if peer has the key for readers.  Engine thread, with the lock. */
bool permissions_reads_only(const struct engine *e, uint32_t peer);

/* Checks a message of peer and corrects rank and membership in its header.  Engine thread, with
 * the lock.
 * -EACCES: peer may not send such a message.
 */
int permissions_check(struct engine *e, uint32_t peer, struct wire_header *header);

#endif

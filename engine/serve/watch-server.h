/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_WATCH_SERVER_H
#define ENGINE_SERVE_WATCH_SERVER_H

/* WAITs of observers that cannot read this rank's memory.  A WAIT is answered when the control
 * page has other numbers than the observer has seen, or when there is a new event, and after
 * WIRE_WAIT_MS in any case.  The trainer wakes nobody for it: the engine thread polls the
 * control page while there are WAITs.  Engine thread, with the lock.
 */

#include "engine/node/node.h"

/* Keeps a WAIT, until watch_server_turn answers it; a newer one replaces an older one of the
 * same peer.  A WAIT for the events that are kept (WIRE_WAIT_KEPT) is answered at once.  Beyond
 * WIRE_WAITS_MAX the answer is an ACK with -ENOSPC.
 */
void watch_server_add(struct engine *e, uint32_t peer, uint64_t request,
		      const struct wire_wait *wait);
void watch_server_turn(struct engine *e, uint64_t now);
void watch_server_free(struct engine *e);

#endif

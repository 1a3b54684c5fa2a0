/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_WATCH_SERVER_H
#define ENGINE_SERVE_WATCH_SERVER_H

/* WAITs of observers that cannot read this rank's memory: each is answered when the control
 * page has other numbers or something was told, and after WIRE_WAIT_MS in any case.  The
 * trainer does nothing for it: the engine thread looks, while there are any.  Engine thread,
 * with the lock.
 */

#include "engine/node/node.h"

/* One for what is kept is answered at once.  A newer one of the same peer takes the place of
 * its older one.  Too many: answered by -ENOSPC.
 */
void watch_server_add(struct engine *e, uint32_t peer, uint64_t request,
		      const struct wire_wait *wait);
void watch_server_turn(struct engine *e, uint64_t now);
void watch_server_free(struct engine *e);

#endif

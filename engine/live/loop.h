/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LIVE_LOOP_H
#define ENGINE_LIVE_LOOP_H

/* The event loop of one engine: it opens the engine, starts its thread, gives each module its
 * turn, and frees the modules.
 */

#include "engine/node/node.h"

/* Makes an engine behind ops, over these transports; memory NULL: no memory of other processes
 * is read.  The engine has no thread yet.
 * -ENOMEM.
 * Errors of eventfd(2), getrandom(2), and of memory's open.
 */
int loop_new(struct engine **e, const struct engine_ops *ops,
	     const struct transport_ops *messages, const struct transport_ops *memory);
int loop_start_thread(struct engine *e);
void loop_free(struct engine *e);

/* One turn: messages, timers, one step of each module, then callbacks of users without the
 * lock.  Waits at most wait_ms for something to do.  Engine thread, or a test's.
 */
void loop_turn(struct engine *e, int wait_ms);

#endif

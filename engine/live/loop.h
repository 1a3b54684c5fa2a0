/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LIVE_LOOP_H
#define ENGINE_LIVE_LOOP_H

/* An engine's life, and its rounds. */

#include "engine/node/node.h"

/* An engine behind ops, over these ports; memory NULL: none.  No thread yet.  -errno. */
int loop_new(struct engine **e, const struct engine_ops *ops,
	     const struct transport_ops *messages, const struct transport_ops *memory);
int loop_start_thread(struct engine *e);
void loop_free(struct engine *e);

/* One round: messages, timers, waiting requests.  wait_ms: how long to wait for something to
 * do. Engine thread, or the test's.
 */
void loop_turn(struct engine *e, int wait_ms);

#endif

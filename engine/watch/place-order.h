/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_PLACE_ORDER_H
#define ENGINE_WATCH_PLACE_ORDER_H

/* Orders to all ranks to move states to another tier.  A rank takes an order at once, and moves
 * the states at boundaries to come.
 */

#include "engine/node/node.h"

#include <stdio.h>

/* Any thread, without the lock: as engine_place or, with only_ask, engine_place_check. */
int place_order_give(struct engine *e, const char *states, const char *tier, bool only_ask);
/* Any thread, without the lock.  Writes the table .frag/place.  Where no state of a rank waits
 * for its move, this engine's table of the rank's states is then up to date.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 * -ENOMEM.
 */
int place_order_put(struct engine *e, FILE *out);

/* Engine thread, with the lock. */
void place_order_turn(struct engine *e, uint64_t now);
void place_order_free(struct engine *e);

#endif

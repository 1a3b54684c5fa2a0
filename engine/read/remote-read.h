/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_REMOTE_READ_H
#define ENGINE_READ_REMOTE_READ_H

/* Reads that the engine thread carries on: by messages, waiting for tables and for gradients. */

#include "engine/node/file.h"

#include <stdio.h>

/* Any thread, without the lock; read->done will be called. */
void transfers_start(struct engine *e, struct engine_read *read);
void transfers_cancel(struct engine *e, struct engine_read *read);
/* With the lock: the same, in the engine thread. */
void transfers_end(struct engine_read *read);

/* Engine thread, with the lock; what is over goes to *finished. */
void transfers_turn(struct engine *e, uint64_t now, struct transfer **finished);
/* Without the lock. */
void transfers_finish(struct transfer *finished);
/* Ends all with -ECANCELED; the engine thread is gone. */
void transfers_abandon(struct engine *e);
/* How often those that there are must be looked after. */
unsigned transfers_tick_ms(const struct engine *e);
/* A line for each that waits.  With the lock. */
void transfers_describe(struct engine *e, FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_REMOTE_READ_H
#define ENGINE_READ_REMOTE_READ_H

/* Reads that the engine thread carries on: by messages, waiting for tables and for gradients.
 */

#include "engine/node/file.h"

#include <stdio.h>

/* Any thread, without the lock; read->done will be called. */
void remote_read_start(struct engine *e, struct engine_read *read);
void remote_read_cancel(struct engine *e, struct engine_read *read);
/* With the lock: the same, in the engine thread. */
void remote_read_end(struct engine_read *read);

/* Engine thread, with the lock; what is over goes to *finished. */
void remote_read_turn(struct engine *e, uint64_t now, struct remote_read **finished);
/* Without the lock. */
void remote_read_finish(struct remote_read *finished);
/* Ends all with -ECANCELED; the engine thread is gone. */
void remote_read_abandon(struct engine *e);
/* How often those that there are must be looked after. */
unsigned remote_read_tick_ms(const struct engine *e);
/* A line for each that waits.  With the lock. */
void remote_read_describe(struct engine *e, FILE *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_FREEZES_H
#define ENGINE_COMMIT_FREEZES_H

#include "engine/node/node.h"

#include <stdio.h>

/* As engine_freeze, engine_freeze_cancel. */
void freezes_start(struct engine *e, struct engine_freeze *freeze);
void freezes_cancel(struct engine *e, struct engine_freeze *freeze);

/* A freeze of an observer: asks the coordinator for a boundary, and says every second to all
 * ranks that the freeze is wanted.  Engine thread, with the lock; what is done goes to
 * *finished, to be told without it.
 */
void freezes_turn(struct engine *e, uint64_t now, struct engine_freeze **finished);
void freezes_finish(struct engine_freeze *finished);

/* A line for each that waits; a line that says whether, and for how long yet.  With the lock.
 */
void freezes_describe(struct engine *e, FILE *out);
void freezes_tell(struct engine *e, FILE *out);

/* Thaws what we froze, ends every wait with -ECANCELED; the engine thread is gone. */
void freezes_abandon(struct engine *e);

#endif

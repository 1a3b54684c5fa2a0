/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_COMMIT_FREEZES_H
#define ENGINE_COMMIT_FREEZES_H

/* Freezes, watches and thaws that this engine, an observer, asks for.  A freeze asks the
 * coordinator for a boundary, as an edit does (proposal.h), and renews its lease
 * (engine/catalog/lease.h) with all ranks every second.
 */

#include "engine/node/node.h"

#include <stdio.h>

/* As engine_freeze, engine_freeze_cancel. */
void freezes_start(struct engine *e, struct engine_freeze *freeze);
void freezes_cancel(struct engine *e, struct engine_freeze *freeze);

/* Engine thread, with the lock.  Freezes whose result is known are put in *finished, for
 * freezes_finish, which is called without the lock.
 */
void freezes_turn(struct engine *e, uint64_t now, struct engine_freeze **finished);
void freezes_finish(struct engine_freeze *finished);

/* With the lock.  freezes_describe writes a line for each freeze that waits for its boundary;
 * freezes_tell, for each that lasts, with the time that is left.
 */
void freezes_describe(struct engine *e, FILE *out);
void freezes_tell(struct engine *e, FILE *out);
/* Writes the line of .frag/control that would begin this engine's watch anew, if it watches. */
void freezes_tell_watch(struct engine *e, FILE *out);

/* Thaws what this engine froze, and ends every wait with -ECANCELED.  The engine thread has
 * ended.
 */
void freezes_abandon(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SERVE_CHECKS_H
#define ENGINE_SERVE_CHECKS_H

/* A rank's part in a watch: at a boundary the trainer's thread, which waits for the coordinator
 * anyway, looks at the rank's own fragments of the parameters that the condition names, and the
 * engine thread tells the coordinator what was found.  Where several ranks have replicas of a
 * fragment only the first live one looks at it.  A fragment that has not changed since the last
 * look, or is being changed, is passed over: gradients count once in each of their windows,
 * other states once a generation.
 */

#include "engine/node/node.h"

/* Checks the watches at whose boundary the trainer has arrived.  whole: no state is being
 * changed.  Trainer's thread.
 */
void checks_make(struct engine *e, bool whole);
/* Tells the coordinator what was found.  Engine thread, with the lock. */
void checks_turn(struct engine *e, uint64_t now);
/* No thread of the rank is in the functions above. */
void checks_free(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_EDIT_HISTORY_H
#define ENGINE_WATCH_EDIT_HISTORY_H

/* What became of the job's edits, also of those of mounts and ranks that are gone: the lines
 * that the lowest live ranks have kept, each edit's of the lowest that knows it.  Fetched when
 * somebody asks; an observer's.
 */

#include "engine/node/node.h"

#include <stdio.h>

/* Puts it, as it was when this was called or later, or a line that it is not known.  -EAGAIN:
 * this thread is in a hurry.
 */
int edit_history_tell(struct engine *e, FILE *out);

/* Engine thread, with the lock. */
void edit_history_turn(struct engine *e, uint64_t now);
void edit_history_free(struct engine *e);

#endif

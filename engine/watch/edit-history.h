/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_EDIT_HISTORY_H
#define ENGINE_WATCH_EDIT_HISTORY_H

/* The history of the job's edits, for an observer: the lines of event that ranks keep about
 * edits, also about edits of mounts and ranks that have ended.  A call of edit_history_tell
 * makes the engine thread ask the lowest eight live ranks; an edit that several of them know
 * is told once.
 */

#include "engine/node/node.h"

#include <stdio.h>

/* Writes the history to out, no older than this call, or a line that says why it is not known.
 * Waits for the ranks' answers, without the lock.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 * -ENOMEM
 */
int edit_history_tell(struct engine *e, FILE *out);

/* Engine thread, with the lock. */
void edit_history_turn(struct engine *e, uint64_t now);
/* Returns true if a fetch is under way, for which the engine thread must turn every few ms. */
bool edit_history_ticks(const struct engine *e);
/* With the lock, or when the engine thread has ended. */
void edit_history_free(struct engine *e);

#endif

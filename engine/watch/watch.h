/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_WATCH_H
#define ENGINE_WATCH_WATCH_H

/* What an observer's engine_wait waits for.  The lowest live rank speaks for the job: while
 * somebody waits its control page is looked at every few ms where its memory can be read; else
 * it has a WAIT, and answers when its numbers are others.  However many wait, it is looked at
 * once.  With the lock, but watch_finish.
 */

#include "engine/node/node.h"

/* Any thread: e->watch is the job as it is now, and its changes are counted. */
void watch_look(struct engine *e);

/* A stream of events is opened: those from now on are fetched.  While it is beginning the
 * number of the newest is asked for by message; e->changed, e->epoch.  One that is closed while
 * it is beginning may be opened again: events go on to be fetched for some time.
 */
void watch_begin_events(struct engine *e);
bool watch_is_beginning(const struct engine *e);
void watch_end_events(struct engine *e);

/* Whether the engine thread must go round every few ms. */
bool watch_ticks(const struct engine *e);

/* Engine thread.  Those that are over go to the list finished, and their done is called by
 * watch_finish.
 */
void watch_turn(struct engine *e, uint64_t now, struct engine_wait **finished);
void watch_finish(struct engine_wait *finished);
void watch_abandon(struct engine *e);

/* As engine_changes, engine_wait, engine_wait_epoch, engine_wait_cancel. */
uint64_t watch_changes(struct engine *e);
void watch_wait(struct engine *e, struct engine_wait *wait);
void watch_wait_epoch(struct engine *e, struct engine_wait *wait);
void watch_cancel(struct engine *e, struct engine_wait *wait);

#endif

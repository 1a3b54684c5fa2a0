/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_REMOTE_READ_H
#define ENGINE_READ_REMOTE_READ_H

/* Reads that could not end in the thread that asked: the engine thread carries them on.
 *
 *   PLANS --READ to each owner of a piece--> ASKED --bytes came--> PLANS the rest, or ends
 *     |  ^                                     |  |
 *     |  '--a turn later-- IS_STALE <----------'  '--> AWAITS trainers, then ASKED again
 *     '--> MAY_COPY: onesided_read, outside the lock; ends, or PLANS
 *
 * A read plans (engine/node/plan.h) the bytes that it lacks.  It stays in PLANS, without
 * pieces, while its file's view opens, a round brings its bytes, or tables of states are
 * fetched.  It ends with its bytes; with the first error; by cancellation; or with -ETIMEDOUT
 * after timeout_ms of silence.  done is called exactly once.
 *
 * For a sequential reader of a view the next requests are asked for ahead.  A read ahead has no
 * asker until the reader comes to its bytes: it then goes on as the reader's own; or it is in
 * IS_THERE, with all its bytes, and ends at once.  A read ahead that fails before that is
 * forgotten.
 */

#include "engine/node/file.h"

#include <stdio.h>

/* Any thread, without the lock.  read->done is called later; or at once, with -ENOMEM, or with
 * bytes that were asked for ahead.
 */
void remote_read_start(struct engine *e, struct engine_read *read);
/* Any thread, without the lock: the read ends soon, with -ECANCELED if not otherwise. */
void remote_read_cancel(struct engine *e, struct engine_read *read);
/* remote_read_cancel with the lock held, which wakes nobody. */
void remote_read_end(struct engine_read *read);

/* Drops the reads ahead of a file that is closed.  Any thread, with the lock. */
void remote_read_drop_ahead(struct engine *e, struct engine_file *f);

/* Engine thread, with the lock: one step of each read.  Moves reads that have ended, and those
 * whose bytes memory may have, to finished.
 */
void remote_read_turn(struct engine *e, uint64_t now, struct remote_read_list *finished);
/* Engine thread, without the lock: tries memory, then calls done or lists the read again. */
void remote_read_finish(struct engine *e, struct remote_read_list *finished);
/* Ends all reads with -ECANCELED, when the engine thread has ended. */
void remote_read_abandon(struct engine *e);
/* Returns the interval in ms at which the reads that are listed need remote_read_turn. */
unsigned remote_read_tick_ms(const struct engine *e);
/* Writes a line about each read that is not over.  With the lock. */
void remote_read_describe(struct engine *e, FILE *out);

#endif

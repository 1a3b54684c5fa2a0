/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_WAITING_H
#define ENGINE_READ_WAITING_H

/* Reads that wait for trainers: for ranks that have not come to the generation of a view yet,
 * or that are changing their state.  The control page of such a rank is followed, by memory or
 * by PING, ever more rarely and once for all readers; a request to the rank is repeated when
 * the page has changed, else ever more rarely too.  A wait ends when none of its ranks has
 * passed a boundary, or begun or ended a window of gradients, for the greater of timeout_ms and
 * twice the time that their last change took; where an owner is lost, for a second instead of
 * timeout_ms.  The time that the ranks have stood before the wait counts, too: such a wait ends
 * after a second, or at once if another wait for the same rank has ended and the rank has not
 * moved since.  Engine thread, with the lock.
 */

#include "engine/node/file.h"

#include <stdio.h>

/* Begins a wait, or goes on with one, for ranks that waiting_add then adds.  content: struct
 * waiting.content.
 */
void waiting_begin(struct waiting *w, bool is_grad, uint64_t content, uint64_t now);
/* Waits for this rank, too, and follows its control page. */
void waiting_add(struct engine *e, struct waiting *w, uint32_t rank, uint64_t now);
/* 0: the wait goes on.
 * -ETIME: its ranks have stood still for too long, and no owner is lost.
 * waiting.lost: its ranks have stood still for too long, and an owner is lost.
 * Each error is logged once for a rank that has not moved since.
 */
int waiting_check(struct engine *e, struct waiting *w, const struct engine_file *f,
		  uint64_t now);
/* Returns true if the content that a read awaits of `rank` cannot come while the trainer of
 * rank `trainer` stands still: the ranks are the same, and the trainer is changing its state or
 * has no valid gradients; or the read awaits gradients and no window of them has begun at
 * `trainer` that `rank` is still to come to.
 */
bool waiting_needs(const struct engine *e, uint32_t rank, uint32_t trainer, bool is_grad);
/* Logs that the thread which trains that rank waits for itself, once for a rank that has not
 * moved since.
 */
void waiting_tell_deadlock(struct engine *e, const struct engine_file *f, uint32_t trainer);
/* Ends the wait. */
void waiting_end(struct waiting *w);

/* Returns true if the ranks are to be asked again.  moves: the sum of peer.moves of these
 * ranks.
 */
bool waiting_is_due(const struct pace *pace, uint64_t moves, uint64_t now);
/* Notes that the ranks are asked now. */
void waiting_asks(struct pace *pace, uint64_t moves, uint64_t now);

/* "waits for rank 1, at boundary 40 ...", without a newline. */
void waiting_describe(struct engine *e, const struct waiting *w, FILE *out);

#endif

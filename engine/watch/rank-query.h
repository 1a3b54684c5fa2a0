/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_RANK_QUERY_H
#define ENGINE_WATCH_RANK_QUERY_H

/* Questions that an observer asks a rank, answered by a text: "swap" about its states on NVMe,
 * "pinned" about the buffers that they pass through.  Each pair of rank and question keeps its
 * last answer; a caller is given an answer that was asked for no earlier than its call.
 */

#include "engine/node/node.h"

/* Any thread, without the lock; waits for the rank's answer.  Returns the text, which the
 * caller frees; where the rank has not answered, the text says why.
 * NULL: no such rank.
 * NULL, errno EAGAIN: the calling thread may not wait (engine_hurry).
 * NULL, errno ENOMEM.
 */
char *rank_query_text(struct engine *e, uint32_t rank, const char *what);

/* Engine thread, with the lock. */
void rank_query_turn(struct engine *e, uint64_t now);
void rank_query_free(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_RANK_QUERY_H
#define ENGINE_WATCH_RANK_QUERY_H

/* What a rank says about itself in words, asked for by observers: of its states on NVMe
 * ("swap") and of the memory that they visit ("pinned").
 */

#include "engine/node/node.h"

/* Any thread; waits for the rank's answer, as node_wait_answer does.  The caller's to free;
 * NULL: no such rank; with errno EAGAIN: this thread is in a hurry.
 */
char *rank_query_text(struct engine *e, uint32_t rank, const char *what);

/* Engine thread, with the lock. */
void rank_query_turn(struct engine *e, uint64_t now);
void rank_query_free(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_RANK_QUERY_H
#define ENGINE_WATCH_RANK_QUERY_H

/* Questions that an observer asks a rank, each a word, answered by a text: "swap" about its
 * states on NVMe, "log" for its kept lines; the table in engine/serve/serve-texts.c has all
 * words.  Each pair of rank and question keeps its last answer; a caller is given one that was
 * asked for no earlier than its call, or, of a lost rank's log, the last there was.
 */

#include "engine/node/node.h"

/* Any thread, without the lock; waits for the rank's answer.  Returns the text, which the
 * caller frees.
 * NULL: no such rank.
 * NULL, errno EAGAIN: the calling thread may not wait (engine_hurry).
 * NULL, errno EIO: the rank is lost, and had not been asked for its log.
 * NULL, errno ETIMEDOUT: the rank does not answer.
 * NULL, errno EINVAL: the rank knows no such text.
 * NULL, errno EPROTO: the answer is not a text.
 * NULL, errno ENOMEM.
 */
char *rank_query_text(struct engine *e, uint32_t rank, const char *what);
/* Asks at once all ranks whose last answer is older than this call, or than its first try where
 * the calling thread is in a hurry (engine_hurry).  Returns that time for
 * rank_query_text_since, so that a caller waits for the slowest rank, and not for one after the
 * other.
 */
uint64_t rank_query_ask_all(struct engine *e, const char *what);
/* Does rank_query_text for an answer that was asked for no earlier than since (ns). */
char *rank_query_text_since(struct engine *e, uint32_t rank, const char *what, uint64_t since);

/* Engine thread, with the lock. */
void rank_query_turn(struct engine *e, uint64_t now);
void rank_query_free(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WRITE_TRANSACTION_H
#define ENGINE_WRITE_TRANSACTION_H

#include "engine/node/node.h"

#include <stdio.h>

/* Writes of one or more files, n > 0, in one transaction: all or none.  Only the first's done
 * is called; all of them are the engine's until then.  wait_applied: done comes when every
 * holder has applied it, at its next boundary; else when every holder is bound to.  Without the
 * lock, any thread.
 */
void transaction_start(struct engine *e, struct engine_write *writes, size_t n,
		       bool wait_applied);
/* The same of one file's bytes that holders[world] have aside under that transaction, from
 * malloc, taken over; done comes when all are bound to apply them.
 */
void transaction_start_staged(struct engine *e, struct engine_write *write,
			      const uint64_t transaction[2], uint32_t *holders);

/* Whose an edit of n files, this one the first, and so many bytes is. */
void transaction_origin(struct engine *e, const struct engine_file *file, size_t n,
			uint64_t bytes, struct wire_origin *origin);

/* As engine_write, engine_write_cancel. */
void transaction_ask(struct engine *e, struct engine_write *write);
void transaction_cancel(struct engine *e, struct engine_write *write);

/* Engine thread, with the lock; what is over goes to *finished, to be ended without it. */
void transaction_turn(struct engine *e, uint64_t now, struct transaction **finished);
void transaction_finish(struct transaction *finished);

/* A line for each waiting commit.  With the lock. */
void transaction_describe(struct engine *e, FILE *out);

/* Ends every commit with -ECANCELED; the engine thread is gone. */
void transaction_abandon(struct engine *e);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WRITE_TRANSACTION_H
#define ENGINE_WRITE_TRANSACTION_H

/* The writer of the two-phase commit: stages bytes with their holders, proposes the transaction
 * to the coordinator, and waits for the outcome.  stage.h has the struct.
 */

#include "engine/node/node.h"

#include <stdio.h>

/* Writes n > 0 files in one transaction: all or none.  Only writes[0].done is called; until
 * then the writes are the engine's.  wait_applied: done comes when every holder has applied the
 * transaction, at its next boundary; else when every rank has promised.  Any thread, without
 * the lock.
 */
void transaction_start(struct engine *e, struct engine_write *writes, size_t n,
		       bool wait_applied);
/* Proposes a transaction whose bytes, of write's file, are staged already.  Takes holders,
 * [world] from malloc: not 0: that rank has bytes.  done comes when every rank has promised.
 */
void transaction_start_staged(struct engine *e, struct engine_write *write,
			      const uint64_t transaction[2], uint32_t *holders);

/* Fills the origin of an edit of n files, the first being `file`, and of so many bytes. */
void transaction_origin(struct engine *e, const struct engine_file *file, size_t n,
			uint64_t bytes, struct wire_origin *origin);

/* engine_write and engine_write_cancel of a job. */
void transaction_ask(struct engine *e, struct engine_write *write);
void transaction_cancel(struct engine *e, struct engine_write *write);

/* Engine thread, with the lock.  Transactions that are over are moved to *finished, for
 * transaction_finish, which is called without the lock.
 */
void transaction_turn(struct engine *e, uint64_t now, struct transaction_list *finished);
void transaction_finish(struct transaction_list *finished);

/* Writes a line for each transaction.  With the lock. */
void transaction_describe(struct engine *e, FILE *out);

/* Ends every transaction with -ECANCELED.  The engine thread has ended. */
void transaction_abandon(struct engine *e);

#endif

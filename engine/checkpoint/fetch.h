/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FETCH_H
#define ENGINE_CHECKPOINT_FETCH_H

/* Reads of a checkpoint.  A fetch plans the ranges of files that a request needs, reads them,
 * and puts the bytes in the order of the request.  Ranges in the page cache are copied in the
 * caller's thread; else the disk (engine/swap/disk.h) reads them and answers in its own.
 */

#include "engine/checkpoint/opened.h"

/* Do engine_read() and engine_read_cancel().  Any thread. */
void fetch_start(struct engine *e, struct engine_read *read);
void fetch_cancel(struct engine *e, struct engine_read *read);

/* Prints a line for each read under way. */
void fetch_describe(struct checkpoint *c, FILE *out);
/* Waits until no read is under way; nobody starts one.
 * -ETIMEDOUT: some still are.
 */
int fetch_drain(struct checkpoint *c, unsigned seconds);
/* Frees the spare fetches; no read is under way. */
void fetch_free_all(struct checkpoint *c);

#endif

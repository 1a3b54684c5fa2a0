/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_FETCH_H
#define ENGINE_CHECKPOINT_FETCH_H

/* Reads of a checkpoint: a request to ranges of files, to bytes in their place.  What the
 * machine has in its page cache is copied in the caller's thread, the rest comes by the disk's.
 */

#include "engine/checkpoint/opened.h"

/* As engine_read, engine_read_cancel. */
void fetch_start(struct engine *e, struct engine_read *read);
void fetch_cancel(struct engine *e, struct engine_read *read);

/* Lines of what is under way. */
void fetch_describe(struct checkpoint *c, FILE *out);
/* Cancelled reads end by themselves.  -ETIMEDOUT: some have not yet. */
int fetch_drain(struct checkpoint *c, unsigned seconds);
void fetch_free_all(struct checkpoint *c);

#endif

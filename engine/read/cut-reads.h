/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_CUT_READS_H
#define ENGINE_READ_CUT_READS_H

/* Reads of files whose stored order is not file order (engine/catalog/cuts.h).  A request is
 * divided into reads of stored order, one for each shard's run of bytes, and what these bring
 * is put in its place.  No other bytes are moved.  Other files are read as they are.
 */

#include "engine/node/file.h"

/* As engine_read, engine_read_cancel. */
void cut_reads_start(struct engine *e, struct engine_read *read);
void cut_reads_cancel(struct engine *e, struct engine_read *read);

/* As reads_get. */
int cut_reads_get(struct engine *e, const struct engine_address *address, uint64_t offset,
		  void *out, uint64_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READAHEAD_H
#define ENGINE_READAHEAD_H

/* A sequential reader's next requests are copied by a second core while it takes the last one.  Only
 * for memory of this host, where that copy is the cost; and only briefly good, since the job trains on.
 * One worker thread for all files of an engine.
 */

#include "engine/file.h"

int readahead_new(struct engine *e);
void readahead_free(struct engine *e);
/* A request with exactly these bytes, fresh: lent until readahead_served; NULL: none. */
struct ahead *readahead_take(struct engine_file *f, uint64_t offset, size_t size);
void readahead_served(struct ahead *s);
/* Notes a request, and queues the next ones of a sequential reader. */
void readahead_note(struct engine_file *f, uint64_t offset, size_t size);
void readahead_drop(struct engine_file *f);

#endif

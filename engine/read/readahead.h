/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_READAHEAD_H
#define ENGINE_READ_READAHEAD_H

/* Read-ahead: one worker thread of an engine copies a sequential reader's next requests while
 * the reader takes the last one.  It does so for memory of this host alone, where the copy is
 * the cost.  Its copies are good for a short time only, since the job trains on.
 */

#include "engine/node/file.h"

int readahead_new(struct engine *e);
void readahead_free(struct engine *e);
/* Notes a request of a file, and queues the next ones for the worker if its reader is
 * sequential, with requests of one size: a copy serves only a request for the same bytes.
 * True: the bytes had been copied; *buffer is replaced by the buffer that holds them, and the
 * worker takes the old one.  Both are from readahead_buffer.
 */
bool readahead_take(struct engine_file *f, uint64_t offset, size_t size, void **buffer);
enum { READAHEAD_BUFFER = 4 << 20 };

/* Returns READAHEAD_BUFFER bytes, in huge pages where the machine gives one; the caller
 * calls free() or readahead_give.  NULL: no memory.
 */
void *readahead_buffer(struct engine *e);
/* Gives a buffer to the pool, for the next readahead_buffer.  Any thread. */
void readahead_give(struct engine *e, void *buffer);
/* Drops the copies of a file that is closed, and waits while the worker makes one. */
void readahead_drop(struct engine_file *f);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_READAHEAD_H
#define ENGINE_READ_READAHEAD_H

/* A sequential reader's next requests are copied by a second core while it takes the last one.
 * Only for memory of this host, where that copy is the cost; and only briefly good, since the
 * job trains on. One worker thread for all files of an engine.
 */

#include "engine/node/file.h"

int readahead_new(struct engine *e);
void readahead_free(struct engine *e);
/* A request of a file: what a sequential reader will ask next is queued.  True: its bytes were
 * there, in the buffer that *buffer then is; the one it was before is the worker's.  Both are
 * readahead_buffer's.
 */
bool readahead_take(struct engine_file *f, uint64_t offset, size_t size, void **buffer);
/* ENGINE_READ_MAX bytes in one huge page, where the machine gives it; to free().  NULL: no
 * memory.
 */
void *readahead_buffer(void);
void readahead_drop(struct engine_file *f);

#endif

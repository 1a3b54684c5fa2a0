/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_READS_H
#define ENGINE_READ_READS_H

/* The start of each read of a job's file: the calling thread first tries to copy the bytes
 * itself (readahead, onesided-read); where it cannot, the engine thread carries the read on
 * (remote-read).
 */

#include "engine/node/file.h"

/* As engine_read, engine_read_cancel. */
void reads_start(struct engine *e, struct engine_read *read);
void reads_cancel(struct engine *e, struct engine_read *read);

/* Copies the bytes to out and returns when they are there.  Any thread but the engine's,
 * without the lock.  caller: as of struct engine_read.  Errors of engine_read with nowait.
 */
int reads_get(struct engine *e, const struct engine_address *address, uint64_t offset,
	      void *out, uint64_t size, const char *caller);
/* Does the same with bytes of n parts of an open file, in which offset is.  The parts' stored
 * order is file order.
 */
int reads_get_parts(struct engine *e, struct file_part *parts, uint32_t n, uint64_t offset,
		    void *out, uint64_t size, const char *caller);

#endif

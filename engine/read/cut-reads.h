/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_READ_CUT_READS_H
#define ENGINE_READ_CUT_READS_H

/* Reads of files whose stored order is not file order (engine/catalog/cuts.h).  A request is
 * divided into reads of stored order, one for each run of elements that follow each other there
 * and are all asked for, at most ENGINE_READ_MAX bytes long: what the request has of a shard is
 * one run, and runs of neighbouring shards that meet are one.  The bytes that the reads bring
 * are put where the request has them.  Elements of which some bytes are asked for are read as a
 * whole; no other bytes are moved.  All other files are read as they are.
 */

#include "engine/base/log.h"
#include "engine/node/file.h"

/* As engine_read, engine_read_cancel. */
void cut_reads_start(struct engine *e, struct engine_read *read);
void cut_reads_cancel(struct engine *e, struct engine_read *read);

/* reads_get in file order; `comms` shows the caller's line. */
#define cut_reads_get(...) cut_reads_get_from(LOG_PLACE, __VA_ARGS__)
int cut_reads_get_from(const char *caller, struct engine *e,
		       const struct engine_address *address, uint64_t offset, void *out,
		       uint64_t size);
/* Copies all bytes of an open file, as they are now, whatever its view shows.  States whose
 * stored order is file order are asked for together.  Errors of reads_get.
 */
#define cut_reads_get_file(...) cut_reads_get_file_from(LOG_PLACE, __VA_ARGS__)
int cut_reads_get_file_from(const char *caller, const struct engine_file *file, void *out);

#endif

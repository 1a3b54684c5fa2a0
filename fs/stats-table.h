/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STATS_TABLE_H
#define FS_STATS_TABLE_H

/* .frag/stats: a line of statistics for each parameter and state.  The first read of an open
 * file starts a thread that makes the lines, batch after batch; a read gives the lines from its
 * offset on, and waits while there are none.  Ranks sum their states of a batch (engine_sums):
 * first as the bytes are now, then, through one view of them all, the states that changed
 * meanwhile.  States whose owners cannot sum them, and those of a checkpoint, are read, in as
 * many passes at a time as there are cores.
 */

#include "fs/handle.h"

struct stats_tables; /* of a mount */

/* NULL: no memory. */
struct stats_tables *stats_tables_new(void);
/* Waits for the threads of tables that are closed. */
void stats_tables_free(struct stats_tables *all);

/* -ENOMEM */
int stats_table_open(struct handle *h);
void stats_table_close(struct stats_table *t);

/* Replies, now or when the lines are there; or returns -errno, for the caller to reply. */
int stats_table_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags);

#endif

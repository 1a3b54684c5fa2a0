/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STATE_INTERNAL_H
#define FS_STATE_INTERNAL_H

/* fs/state-stats.c: reads of the files in params/<name>/stats/<state>/.  The first read of an
 * open file makes one pass over the state; its other reads have the same text.  Results of one
 * generation are kept, so that the files of a folder cost one pass.
 */

#include "fs/handle.h"

/* Notes the dtype of the state, whose engine file h has.
 * -EOPNOTSUPP: the elements are complex numbers.
 * Errors of tree_state.
 */
int state_stats_open(struct handle *h);

/* Replies, now or when the pass is over; or returns -errno, for the caller to reply. */
int state_stats_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags);

#endif

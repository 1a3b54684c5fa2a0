/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STATE_INTERNAL_H
#define FS_STATE_INTERNAL_H

/* fs/state-stats.c: reads of the files in params/<name>/stats/<state>/.  The first read of an
 * open file makes one pass over the state; its other reads have the same text.  Results of one
 * generation are kept, so that the files of a folder cost one pass.
 */

#include "fs/handle.h"

/* Makes a request that reads from h or, after a commit through h, from a handle of a later
 * generation: (*out)->through.
 * -ENOMEM.
 * Errors of opening that handle.
 */
int state_request(struct handle *h, fuse_req_t req, struct request **out);

/* fs/state-cells.c: replies, now or when the engine has the bytes, to a read of a file that is
 * not a range of states' bytes: size > 0 bytes of h->cells from offset on, of which `tail` <
 * size are the trailer's.  Or returns -errno, for the caller to reply.
 */
int state_cells_read(struct handle *h, fuse_req_t req, size_t size, size_t tail,
		     uint64_t offset, int flags);

/* fs/state-export.c: the files in export/, whose header is the text of their handle.  Files of
 * states as they are, are read as a .npy file is.
 */

/* Opens the states, which all show one generation.
 * -ESTALE: a state was replaced meanwhile.
 * Errors of tree_export and engine_file_open_many.
 */
int state_export_open(struct handle *h);
/* Returns true if elements are converted, so that state_cells_read reads them. */
bool state_export_converts(const struct handle *h);
/* Gives the range of the states' bytes of which size > 0 bytes of the data, from offset on, are
 * made.
 */
void state_export_source(const struct handle *h, size_t size, uint64_t offset, uint64_t *first,
			 uint64_t *count);
/* Converts the bytes that state_export_source gave, and returns elements, which the caller
 * frees: the byte at `offset` of the data is at *before in them.  NULL: no memory.
 */
char *state_export_convert(const struct handle *h, size_t size, uint64_t offset,
			   const char *source, uint64_t *before);

/* Notes the dtype of the state, whose engine file h has.
 * -EOPNOTSUPP: the elements are complex numbers.
 * Errors of tree_state.
 */
int state_stats_open(struct handle *h);

/* Replies, now or when the pass is over; or returns -errno, for the caller to reply. */
int state_stats_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags);

#endif

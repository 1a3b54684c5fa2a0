/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STATE_H
#define FS_STATE_H

/* Opening, reading and closing files of any kind. */

#include "fs/handle.h"

/* flags are open(2)'s, opener the thread that calls it.  -ENOENT, -EACCES, -EROFS, -ENOMEM,
 * -EIO.
 */
int state_open(struct fs *fs, struct node n, int flags, pid_t opener, struct handle **handle);
void state_close(struct handle *h);
/* For requests_init. */
void state_release(struct request *r);
/* At the end of a mount: what the kernel has not released.  No request may be under way. */
void state_close_all(struct fs *fs);

/* The state of a file that may be written to.  -EROFS, -EACCES; as tree_state. */
int state_writable(struct fs *fs, struct node n, struct engine_state *state);
/* The same of any file that takes a write; *state of a state's alone. */
int state_may_write(struct fs *fs, struct node n, struct engine_state *state);

/* The open(2) of that thread, which has not returned yet, has O_TRUNC; or the thread calls
 * truncate(2), which is then taken for the same if it has just opened the file and written
 * nothing.
 */
void state_truncated(struct fs *fs, struct node n, pid_t opener);

/* Replies, now or when the engine has it; or -errno. */
int state_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags);

/* Length of what a text or hyper holds now; -errno. */
int64_t state_text_size(struct fs *fs, struct node n);

#endif

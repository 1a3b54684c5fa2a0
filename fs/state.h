/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_STATE_H
#define FS_STATE_H

/* Opening, reading and closing files of any kind. */

#include "fs/handle.h"

/* Opens a file.  flags are open(2)'s, opener is the thread that calls it.
 * -ENOMEM
 * Errors of state_may_write, if the file is opened for writing, of pages_admit, and of the
 * calls of engine.h that open or read the content.
 */
int state_open(struct fs *fs, struct node n, int flags, pid_t opener, struct handle **handle);
/* Gives back one reference to h, and closes the file with the last one. */
void state_close(struct handle *h);
/* Gives back the references that a request has: the callback of requests_init. */
void state_release(struct request *r);
/* Closes, at the end of a mount, the files that the kernel has not released.  No request may be
 * under way.
 */
void state_close_all(struct fs *fs);

/* Returns 0 if node n is a file that may be written, and sets *bytes to its size; 0: a text.
 * -EROFS: the mount is read-only.
 * -EACCES: the file is read-only.
 * Errors of tree_state and tree_cells.
 */
int state_may_write(struct fs *fs, struct node n, uint64_t *bytes);

/* Notes that the file which thread `opener` is opening was truncated: the kernel sends O_TRUNC
 * as a SETATTR without a file handle, before open(2) returns.  A truncate(2) of a path sends
 * the same SETATTR, and is taken for O_TRUNC if the thread has just opened the file and written
 * nothing.
 */
void state_truncated(struct fs *fs, struct node n, pid_t opener);

/* Replies to a read, now or when the engine has the bytes; or returns -errno, for the caller to
 * reply.
 */
int state_read(struct handle *h, fuse_req_t req, size_t size, uint64_t offset, int flags);

/* Sets the size of a text or hyper-parameter as it is now, and a hyper-parameter's mtime. */
int state_text_attr(struct fs *fs, struct node n, struct stat *st);

#endif

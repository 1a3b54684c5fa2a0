/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_WRITE_BUFFER_H
#define FS_WRITE_BUFFER_H

/* What is written through one open file: staged, and committed once, when the file is flushed.
 *
 *	at FLUSH and FSYNC			result
 *	nothing written				0, no change (also after O_TRUNC: `: > f`)
 *	a write was refused			its errno, staging kept
 *	FLUSH, a commit was interrupted		EINTR, staging kept: a program that dies of a
 *	and nothing written since		signal must not commit after all
 *	O_TRUNC and not all bytes written	EINVAL, staging kept
 *	else					the engine's; staging kept unless it is 0
 *
 * Sizes never change.  What is left at RELEASE is dropped, and a line says so.
 */

#include "fs/handle.h"

/* For a state of h->bytes, or a hyper (h->text).  -ENOMEM. */
int write_buffer_new(struct handle *h);
void write_buffer_free(struct handle *h);

/* Takes size bytes at offset, or as many as lie before the end.  Returns how many; -EFBIG: none
 * do; -ENOSPC: over stage_mem; -EBUSY: being committed.
 */
int64_t write_buffer_write(struct handle *h, const void *data, size_t size, uint64_t offset);

/* As O_TRUNC when size is 0; nothing when it is the file's; else -EINVAL. */
int write_buffer_truncate(struct handle *h, uint64_t size);

/* Replies to a FLUSH or FSYNC, now or when the engine has applied it. */
void write_buffer_flush(struct handle *h, fuse_req_t req, bool fsync);

/* Any bytes staged?  Then reads go through write_buffer_overlay, of states alone. */
bool write_buffer_is_dirty(struct handle *h);
void write_buffer_overlay(struct handle *h, uint64_t offset, void *out, size_t size);

/* The hyper's text as written so far, at most size of it.  Returns its length. */
size_t write_buffer_text(struct handle *h, char *out, size_t size);

#endif

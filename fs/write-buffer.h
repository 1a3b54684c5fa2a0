/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FS_WRITE_BUFFER_H
#define FS_WRITE_BUFFER_H

/* The bytes written through one open file: staged, and committed as one transaction when the
 * file is flushed.
 *
 *	at FLUSH and FSYNC			result
 *	nothing written, or what a header has	0, no change (also after O_TRUNC: `: > f`)
 *	a write was refused			its errno, staging kept
 *	FLUSH, a commit was interrupted		EINTR, staging kept: a program that dies of
 *	  and nothing written since		a signal must not commit after all
 *	O_TRUNC and not all bytes written,	EINVAL, staging kept
 *	  nor left out as cp(1) does holes
 *	else					the engine's; staging kept unless it is 0
 *
 * A file's size never changes.  Bytes that are staged at RELEASE are dropped, with a line in
 * the log.  FLUSH is each close(2) of a descriptor, by the process that wrote last, and
 * RELEASE the last one of all.
 */

#include "fs/handle.h"

/* Makes h->write_buffer, for a state (h->cells) or a hyper-parameter (h->text).  -ENOMEM. */
int write_buffer_new(struct handle *h);
void write_buffer_free(struct handle *h);

/* Stages size bytes at offset, or as many as lie before the file's end, and replies to the
 * WRITE with their count.  A hyper-parameter's or element's whole line, with its newline, is
 * committed before the reply, because shells report the errno of write(2), and not that of
 * close(2).  If that commit fails, nothing stays staged, and a FLUSH fails alike.
 * -EFBIG: no byte lies before the end.
 * -ENOSPC: stage_mem is used up.
 * -EBUSY: a commit is under way.
 * -EINVAL: a hyper-parameter's line is no finite number, or too long, or overwrites a part of
 * its text; an element's line is no number of its dtype; a .npy's header would change.
 */
void write_buffer_write(struct handle *h, fuse_req_t req, const void *data, size_t size,
			uint64_t offset);

/* size 0 forgets the staged bytes, as O_TRUNC does; the file's size changes nothing.
 * -EINVAL: any other size.
 * -EBUSY: a commit is under way.
 */
int write_buffer_truncate(struct handle *h, uint64_t size);

/* Commits, and replies to a FLUSH or FSYNC: now, or when all ranks have applied the commit. */
void write_buffer_flush(struct handle *h, fuse_req_t req, bool fsync);

/* Returns true if bytes are staged. */
bool write_buffer_is_dirty(struct handle *h);
/* Copies the staged bytes of [offset, offset + size) of a state over out, which has the bytes
 * that were read.
 */
void write_buffer_overlay(struct handle *h, uint64_t offset, void *out, size_t size);

/* Copies the text written to a hyper-parameter so far, at most size bytes.  Returns its length.
 */
size_t write_buffer_text(struct handle *h, char *out, size_t size);

#endif

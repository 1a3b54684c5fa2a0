/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_BLOB_H
#define ENGINE_CHECKPOINT_PARSE_BLOB_H

/* A run of bytes of an open file: a whole file, or an archive inside one.  Borrows the
 * descriptor, holds nothing itself.  Any thread.
 */

#include "engine/checkpoint/parse/parse-error.h"

struct blob {
	int fd;
	uint64_t start; /* in the file */
	uint64_t size;
};

/* The whole of a regular file, as large as it is now. */
int blob_of_file(int fd, struct blob *out, struct parse_error *error);

/* The size bytes at `at` of b.  -EBADMSG: they are not all in it. */
int blob_part(const struct blob *b, uint64_t at, uint64_t size, struct blob *out,
	      struct parse_error *error);

/* Fills out with the size bytes at `at`.  -EBADMSG: not all in the blob; -EIO: the file has
 * become shorter.
 */
int blob_read(const struct blob *b, uint64_t at, void *out, size_t size,
	      struct parse_error *error);

#endif

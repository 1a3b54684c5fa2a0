/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_BLOB_H
#define ENGINE_CHECKPOINT_PARSE_BLOB_H

/* A blob: a run of bytes of an open file, which is a whole file or an archive inside one.  A
 * blob borrows the descriptor and owns nothing.  Any thread.
 */

#include "engine/checkpoint/parse/parse-error.h"

struct blob {
	int fd;
	uint64_t start; /* in the file */
	uint64_t size;
};

/* Makes a blob of a whole regular file, with its present size. */
int blob_of_file(int fd, struct blob *out, struct parse_error *error);

/* Makes a blob of `size` bytes of b from `at` on.
 * -EBADMSG: b has not so many.
 */
int blob_part(const struct blob *b, uint64_t at, uint64_t size, struct blob *out,
	      struct parse_error *error);

/* Reads `size` bytes from `at` on.
 * -EBADMSG: the blob has not so many.
 * -EIO: the file has become shorter.
 */
int blob_read(const struct blob *b, uint64_t at, void *out, size_t size,
	      struct parse_error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_PARSE_ERROR_H
#define ENGINE_CHECKPOINT_PARSE_PARSE_ERROR_H

/* The reason why a parser refused a file.  Parsers return
 *   -EBADMSG     the file is damaged, or of another format
 *   -EOPNOTSUPP  the format, or a part of it, is known but not supported
 *   -EFBIG       a number in the file exceeds a limit
 *   -ENOMEM
 *   errors of pread(2), as -EIO
 * and set one line for people, with what was wrong and at which byte of the file.
 */

#include "engine/base/base.h"

struct parse_error {
	char why[200]; /* no newline; "" until there is one */
};

/* Sets the line, as one_line writes it, and returns rc. */
int parse_error_set(struct parse_error *error, int rc, const char *fmt, ...) PRINTF(3, 4);

#endif

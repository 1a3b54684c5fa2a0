/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_PARSE_ERROR_H
#define ENGINE_CHECKPOINT_PARSE_PARSE_ERROR_H

/* Why a file was refused: a result, one of
 *   -EBADMSG     it is not what it says it is
 *   -EOPNOTSUPP  a format, or a part of one, that is known and not taken
 *   -EFBIG       beyond a limit
 *   -EIO, -ENOMEM, and what reading gave
 * and one line for people, which says what was wrong and at which byte of the file.
 */

#include "engine/base/base.h"

struct parse_error {
	char why[200]; /* no newline; "" until there is one */
};

/* Sets the line and returns rc.  Bytes that are not printable ASCII come out as '?'. */
int parse_fail(struct parse_error *error, int rc, const char *fmt, ...) PRINTF(3, 4);

#endif

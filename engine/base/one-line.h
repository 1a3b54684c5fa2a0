/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_ONE_LINE_H
#define ENGINE_BASE_ONE_LINE_H

/* Names in lines for people: a parameter's may have any bytes, and a newline in it would make a
 * line of its own. Control characters are written as %0A is.
 */

#include "engine/base/base.h"

#include <stdio.h>

/* As much as fits, NUL-terminated.  Returns the length of that. */
size_t one_line(const char *text, char *out, size_t size);

void one_line_put(FILE *out, const char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_ONE_LINE_H
#define ENGINE_BASE_ONE_LINE_H

/* Names in lines for people: a parameter's name may have any bytes, also a newline.  Control
 * characters are written as "%0A".
 */

#include "engine/base/base.h"

#include <stdio.h>

/* Writes as much of text as fits, NUL-terminated.  Returns the length written. */
size_t one_line(const char *text, char *out, size_t size);

void one_line_put(FILE *out, const char *text);

#endif

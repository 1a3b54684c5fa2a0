/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_ONE_LINE_H
#define ENGINE_BASE_ONE_LINE_H

/* Names in lines for people, and in JSON: a parameter's name may have any bytes, also a
 * newline.  Control characters, which a terminal would obey, are written as "%0A".
 */

#include "engine/base/base.h"

#include <jansson.h>
#include <stdio.h>

/* Writes as much of text as fits, NUL-terminated.  Returns the length written. */
size_t one_line(const char *text, char *out, size_t size);

void one_line_put(FILE *out, const char *text);

/* Returns text as a JSON string: as it is where it is UTF-8, else, since JSON has no other
 * bytes, with each that is not ASCII as "%C3".  NULL: no memory.
 */
json_t *one_line_json(const char *text);

#endif

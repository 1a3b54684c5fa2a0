/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/parse-error.h"

#include "engine/base/one-line.h"

#include <stdarg.h>
#include <stdio.h>

int parse_error_set(struct parse_error *error, int rc, const char *fmt, ...)
{
	char text[sizeof(error->why)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	one_line(text, error->why, sizeof(error->why));
	return rc;
}

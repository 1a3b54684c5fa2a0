/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/parse-error.h"

#include <stdarg.h>
#include <stdio.h>

int parse_fail(struct parse_error *error, int rc, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(error->why, sizeof(error->why), fmt, args);
	va_end(args);
	for (char *c = error->why; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return rc;
}

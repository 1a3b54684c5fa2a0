/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/one-line.h"

#include <ctype.h>

enum { ESCAPE = 3 };

/* Writes c, or its escape; returns the length. */
static size_t put(char c, char out[ESCAPE + 1])
{
	if (iscntrl((unsigned char)c))
		return (size_t)sprintf(out, "%%%02X", (unsigned char)c);
	*out = c;
	return 1;
}

size_t one_line(const char *text, char *out, size_t size)
{
	size_t used = 0;

	for (; *text && used + ESCAPE < size; text++)
		used += put(*text, out + used);
	if (size)
		out[used] = '\0';
	return used;
}

void one_line_put(FILE *out, const char *text)
{
	char c[ESCAPE + 1];

	for (; *text; text++)
		fwrite(c, 1, put(*text, c), out);
}

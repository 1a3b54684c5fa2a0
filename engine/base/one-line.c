/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/one-line.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { ESCAPE = 3 };

static size_t put_escape(char c, char out[ESCAPE + 1])
{
	return (size_t)sprintf(out, "%%%02X", (unsigned char)c);
}

/* Writes c, or its escape; returns the length. */
static size_t put(char c, char out[ESCAPE + 1])
{
	if (iscntrl((unsigned char)c))
		return put_escape(c, out);
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

json_t *one_line_json(const char *text)
{
	json_t *as_it_is = json_string(text);
	CLEANUP(free) char *ascii = NULL;
	size_t used = 0;

	if (as_it_is)
		return as_it_is;
	ascii = malloc(ESCAPE * strlen(text) + ESCAPE + 1);
	for (; ascii && *text; text++)
		if (isascii((unsigned char)*text))
			ascii[used++] = *text;
		else
			used += put_escape(*text, ascii + used);
	if (!ascii)
		return NULL;
	ascii[used] = '\0';
	return json_string(ascii);
}

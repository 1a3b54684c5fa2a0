/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/text.h"
#include "engine/rank/arena-memory.h"
#include "engine/serve/serve-arena.h"

#include <stdio.h>

/* Escapes bytes that would end a field or a line, and @ and /, which begin what follows a name.
 */
static void put_escaped(FILE *out, const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c <= ' ' || *c == '%' || *c == '@' || *c == '/' ||
		    *c == 127)
			fprintf(out, "%%%02X", (unsigned char)*c);
		else
			putc(*c, out);
}

static void put_name(void *arg, FILE *out, uint32_t param)
{
	const struct catalog *own = arg;
	const char *coordinate = catalog_coordinate(own, param);

	put_escaped(out, catalog_name(own, param));
	if (!*coordinate)
		return;
	putc('@', out);
	put_escaped(out, coordinate);
}

char *serve_arena_text(struct engine *e)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	if (e->arena)
		arena_memory_tell(e->arena, put_name, e->own, out);
	else
		fputs("none\n", out);
	return text_end(out, &text);
}

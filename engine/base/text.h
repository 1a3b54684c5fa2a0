/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_TEXT_H
#define ENGINE_BASE_TEXT_H

/* Texts that are written as files, by open_memstream(3). */

#include <stdio.h>
#include <stdlib.h>

/* Closes a stream of open_memstream(text, ...) and returns its text, which the caller frees.
 * NULL: memory ran out while the text was written, and what there was of it is freed.
 */
static inline char *text_end(FILE *out, char **text)
{
	if (!fclose(out))
		return *text;
	free(*text);
	*text = NULL;
	return NULL;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_JSON_H
#define ENGINE_CHECKPOINT_PARSE_JSON_H

/* A strict reader of JSON that builds no tree.  The header of a safetensors file may have 100
 * MB and come from anybody: jansson's tree needs 9 bytes of memory for each byte of a usual
 * header, and 45 for each byte of one made of empty arrays (4.5 GB).  This reader needs no
 * memory but the caller's.  It decodes strings in place: it changes the buffer, and the texts
 * that it returns point into it.
 *
 *   json_enter(&j, '{');
 *   while (json_next(&j)) {
 *           json_key(&j, &key);
 *           ... exactly one value: json_take_string, json_take_integer, json_skip, or
 *           ... json_enter with a loop of its own
 *   }
 *   if (json_end(&j)) ... j.rc is the first error
 *
 * After an error all calls do nothing, and json_next returns false.
 */

#include "engine/checkpoint/parse/parse-error.h"

#include <string.h>

enum { JSON_DEPTH_MAX = 32 };

struct json_text {
	const char *bytes; /* UTF-8 without surrogates; may have NUL bytes; not terminated */
	size_t size;
};

static inline bool json_is(const struct json_text *t, const char *word)
{
	return t->size == strlen(word) && !memcmp(t->bytes, word, t->size);
}

struct json {
	uint8_t *data;
	size_t size, at;
	uint64_t origin; /* byte of the file where data begins, for messages */
	struct parse_error *error;
	int rc;
	uint32_t depth, depth_max;
	bool first; /* the innermost container has had no member or item yet */
	char close[JSON_DEPTH_MAX];
};

/* Containers nested deeper than depth_max (<= JSON_DEPTH_MAX) are an error. */
void json_init(struct json *j, void *data, size_t size, uint32_t depth_max, uint64_t origin,
	       struct parse_error *error);

/* Enters an object (open: '{') or an array ('['). */
void json_enter(struct json *j, char open);
/* Returns true if a member or an item follows.  Returns false if the container has ended; it is
 * left then.
 */
bool json_next(struct json *j);
void json_key(struct json *j, struct json_text *key);
void json_take_string(struct json *j, struct json_text *text);
/* Takes an integer of digits alone, below 2^64. */
void json_take_integer(struct json *j, uint64_t *out);
/* Skips a value of any kind. */
void json_skip(struct json *j);
/* Checks that only white space is left.  Returns j->rc. */
int json_end(struct json *j);

/* Sets j->rc and the error's line, unless an earlier error has set them. */
void json_fail(struct json *j, int rc, const char *why);

#endif

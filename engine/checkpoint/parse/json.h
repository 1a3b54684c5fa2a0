/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_JSON_H
#define ENGINE_CHECKPOINT_PARSE_JSON_H

/* A strict reader of JSON that builds no tree.  The header of a safetensors file may have 100
 * MB and come from anybody: jansson's tree needs 9 bytes of memory for each byte of a usual
 * header, and 45 for each byte of one made of empty arrays (4.5 GB).  This reader needs what
 * the caller keeps.  Strings are decoded in place: the buffer is the reader's to change, and
 * what it hands out points into it.
 *
 *   json_enter(&j, '{');
 *   while (json_next(&j)) {
 *           json_key(&j, &key);
 *           ... exactly one value: json_text, json_integer, json_skip, or json_enter and its loop
 *   }
 *   if (json_end(&j)) ... j.rc says what went wrong anywhere before
 *
 * After a fault every call does nothing and json_next is false.
 */

#include "engine/checkpoint/parse/parse-error.h"

enum { JSON_DEPTH_MAX = 32 };

struct json_text {
	const char *bytes; /* UTF-8 without surrogates; may have NUL bytes; not terminated */
	size_t size;
};

struct json {
	uint8_t *data;
	size_t size, at;
	uint64_t origin; /* of data in the file, for messages */
	struct parse_error *error;
	int rc;
	uint32_t depth, depth_max;
	bool first; /* in the innermost container nothing has been read yet */
	char close[JSON_DEPTH_MAX];
};

/* Containers deeper than depth_max, at most JSON_DEPTH_MAX, are faults. */
void json_init(struct json *j, void *data, size_t size, uint32_t depth_max, uint64_t origin,
	       struct parse_error *error);

/* open: '{' or '['. */
void json_enter(struct json *j, char open);
/* Whether a member or an item follows; false at the end of the container, which is then left.
 */
bool json_next(struct json *j);
void json_key(struct json *j, struct json_text *key);
void json_take_string(struct json *j, struct json_text *text);
/* Digits alone, below 2^64. */
void json_take_integer(struct json *j, uint64_t *out);
/* Any value. */
void json_skip(struct json *j);
/* Nothing but white space may be left.  Returns rc. */
int json_end(struct json *j);

/* Sets rc, unless there has been a fault. */
void json_fail(struct json *j, int rc, const char *why);

#endif

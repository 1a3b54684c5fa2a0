/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/json.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void json_init(struct json *j, void *data, size_t size, uint32_t depth_max, uint64_t origin,
	       struct parse_error *error)
{
	assert(depth_max <= JSON_DEPTH_MAX);
	*j = (struct json){ .data = data,
			    .size = size,
			    .origin = origin,
			    .depth_max = depth_max,
			    .error = error };
}

void json_fail(struct json *j, int rc, const char *why)
{
	if (!j->rc)
		j->rc = parse_error_set(j->error, rc, "JSON at byte %" PRIu64 ": %s",
					j->origin + j->at, why);
}

/* ---- characters ---- */

/* Returns the next byte; 0 at the end, or after an error. */
static uint8_t peek(const struct json *j)
{
	return j->at < j->size && !j->rc ? j->data[j->at] : 0;
}

static uint8_t peek_token(struct json *j)
{
	while (peek(j) == ' ' || peek(j) == '\n' || peek(j) == '\t' || peek(j) == '\r')
		j->at++;
	return peek(j);
}

static void expect(struct json *j, char c, const char *why)
{
	if (peek_token(j) == (uint8_t)c)
		j->at++;
	else
		json_fail(j, -EBADMSG, why);
}

/* ---- containers ---- */

void json_enter(struct json *j, char open)
{
	expect(j, open, open == '{' ? "no object" : "no array");
	if (j->depth == j->depth_max)
		json_fail(j, -EBADMSG, "nested too deep");
	if (j->rc)
		return;
	j->close[j->depth++] = open == '{' ? '}' : ']';
	j->first = true;
}

bool json_next(struct json *j)
{
	assert(j->depth || j->rc);
	if (j->rc)
		return false;
	if (peek_token(j) == (uint8_t)j->close[j->depth - 1]) {
		j->at++;
		j->depth--;
		j->first = false;
		return false;
	}
	if (!j->first)
		expect(j, ',', "neither a comma nor an end");
	j->first = false;
	return !j->rc;
}

void json_key(struct json *j, struct json_text *key)
{
	json_take_string(j, key);
	expect(j, ':', "a key without a value");
}

/* ---- texts ---- */

static uint32_t take_hex(struct json *j)
{
	uint32_t code = 0;

	for (int i = 0; i < 4; i++) {
		int digit = hex_digit((char)peek(j));

		if (digit >= 0)
			code = code << 4 | (uint32_t)digit;
		else
			json_fail(j, -EBADMSG, "not four hexadecimal digits");
		j->at += !j->rc;
	}
	return code;
}

/* Takes the low half of a surrogate pair, which follows as an escape too. */
static uint32_t take_low_surrogate(struct json *j, uint32_t high)
{
	uint32_t low = 0;

	if (high < 0xdc00 && j->size - j->at >= 6 && !memcmp(j->data + j->at, "\\u", 2)) {
		j->at += 2;
		low = take_hex(j);
	}
	if (low < 0xdc00 || low >= 0xe000) {
		json_fail(j, -EBADMSG, "half a surrogate pair");
		return 0;
	}
	return 0x10000 + ((high & 0x3ff) << 10 | (low & 0x3ff));
}

static uint32_t take_escape(struct json *j)
{
	static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	uint8_t c = peek(j);
	const char *letter = c ? strchr(letters, c) : NULL;
	uint32_t code;

	j->at += !!c;
	if (letter)
		return (uint8_t)values[letter - letters];
	if (c != 'u') {
		json_fail(j, -EBADMSG, "no such escape");
		return 0;
	}
	code = take_hex(j);
	return code >= 0xd800 && code < 0xe000 ? take_low_surrogate(j, code) : code;
}

/* Decodes a text in place: no escape is shorter than its character. */
static size_t decode(struct json *j, uint8_t *out)
{
	uint8_t *end = out, c;

	while ((c = peek(j)) != '"') {
		if (c < ' ')
			json_fail(j, -EBADMSG, "a control character, or no end, in a text");
		if (j->rc)
			return 0;
		j->at++;
		if (c == '\\')
			end += utf8_put(take_escape(j), end);
		else
			*end++ = c;
	}
	j->at++;
	return (size_t)(end - out);
}

void json_take_string(struct json *j, struct json_text *text)
{
	uint8_t *start;

	*text = (struct json_text){ "", 0 };
	expect(j, '"', "no text");
	if (j->rc)
		return;
	start = j->data + j->at;
	*text = (struct json_text){ (char *)start, decode(j, start) };
	if (!j->rc && !utf8_is_valid(start, text->size, false))
		json_fail(j, -EBADMSG, "a text that is not UTF-8");
}

/* ---- numbers ---- */

void json_take_integer(struct json *j, uint64_t *out)
{
	uint64_t value = 0;
	uint8_t c = peek_token(j);
	size_t from = j->at;

	for (; c >= '0' && c <= '9' && !j->rc; c = peek(j)) {
		if (j->at > from && !value)
			json_fail(j, -EBADMSG, "a number that begins with 0");
		if (!u64_mul(value, 10, &value) || !u64_add(value, c & 15u, &value))
			json_fail(j, -EBADMSG, "an integer of 2^64 or more");
		j->at += !j->rc;
	}
	if (j->at == from || c == '.' || c == 'e' || c == 'E')
		json_fail(j, -EBADMSG, "no whole number");
	if (!j->rc)
		*out = value;
}

static size_t skip_digits(struct json *j)
{
	size_t from = j->at;

	while (peek(j) >= '0' && peek(j) <= '9')
		j->at++;
	return j->at - from;
}

static void skip_number(struct json *j)
{
	bool zero, good;
	size_t digits;

	j->at += peek(j) == '-';
	zero = peek(j) == '0';
	digits = skip_digits(j);
	good = zero ? digits == 1 : digits > 0;
	if (peek(j) == '.') {
		j->at++;
		good &= skip_digits(j) > 0;
	}
	if ((peek(j) | 0x20) == 'e') {
		j->at++;
		j->at += peek(j) == '-' || peek(j) == '+';
		good &= skip_digits(j) > 0;
	}
	if (!good)
		json_fail(j, -EBADMSG, "no value");
}

/* ---- values that are skipped ---- */

static bool skip_word(struct json *j, const char *word)
{
	size_t n = strlen(word);

	if (j->size - j->at < n || memcmp(j->data + j->at, word, n))
		return false;
	j->at += n;
	return true;
}

/* Skips a value without recursion: j->close has the containers that are left to skip. */
void json_skip(struct json *j)
{
	uint32_t outside = j->depth;
	struct json_text text;

	do {
		uint8_t c = peek_token(j);

		if (j->depth > outside && j->close[j->depth - 1] == '}') {
			json_key(j, &text);
			c = peek_token(j);
		}
		if (c == '{' || c == '[')
			json_enter(j, (char)c);
		else if (c == '"')
			json_take_string(j, &text);
		else if (!j->rc && !skip_word(j, "true") && !skip_word(j, "false") &&
			 !skip_word(j, "null"))
			skip_number(j);
		while (!j->rc && j->depth > outside && !json_next(j))
			;
	} while (!j->rc && j->depth > outside);
}

int json_end(struct json *j)
{
	assert(!j->depth || j->rc);
	peek_token(j);
	if (j->at < j->size)
		json_fail(j, -EBADMSG, "something after the end");
	return j->rc;
}

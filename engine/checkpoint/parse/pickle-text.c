/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

/* Numbers and texts, above all those of protocol 0. */

#include "engine/checkpoint/parse/pickle-machine.h"
#include "engine/checkpoint/parse/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 63 };

bool machine_line(struct machine *m, size_t *from, size_t *size)
{
	struct pickle *p = m->p;
	const uint8_t *end = NULL;
	size_t seen = 0;

	while (machine_need(m, seen + 1)) {
		end = memchr(p->data + m->at + seen, '\n', p->loaded - m->at - seen);
		if (end)
			break;
		seen = p->loaded - m->at;
	}
	if (!end)
		return false;
	*from = m->at;
	*size = (size_t)(end - p->data) - m->at;
	m->at += *size + 1;
	return true;
}

/* Bytes at the end that only repeat the sign are not needed. */
static size_t without_sign(const uint8_t *bytes, size_t n)
{
	while (n > 1 && bytes[n - 1] == (bytes[n - 2] & 0x80 ? 0xff : 0))
		n--;
	return n;
}

/* An integer as pickles have them, in two's complement. */
uint32_t machine_little_endian(struct machine *m, size_t from, size_t n)
{
	const uint8_t *bytes = m->p->data + from;
	uint64_t value = 0;

	n = without_sign(bytes, n);
	if (n > 8)
		return machine_bytes(m, PICKLE_BIG, from, n);
	if (n && bytes[n - 1] & 0x80)
		value = UINT64_MAX;
	for (size_t i = n; i--;)
		value = value << 8 | bytes[i];
	return machine_int(m, (int64_t)value);
}

static uint32_t decimal(struct machine *m, size_t from, size_t size)
{
	char text[NUMBER_MAX + 1], *end;
	int64_t value;

	for (size_t i = 0; i < size; i++) {
		uint8_t c = m->p->data[from + i];

		if (!(c >= '0' && c <= '9') && (i || c != '-' || size == 1))
			size = 0;
	}
	if (!size) {
		machine_fail(m, -EBADMSG, "not an integer");
		return PICKLE_NOTHING;
	}
	if (size > NUMBER_MAX)
		return machine_bytes(m, PICKLE_BIG, from, size);
	memcpy(text, m->p->data + from, size);
	text[size] = '\0';
	errno = 0;
	value = strtoll(text, &end, 10);
	return errno ? machine_bytes(m, PICKLE_BIG, from, size) : machine_int(m, value);
}

/* "00" and "01" are False and True. */
uint32_t machine_read_integer(struct machine *m)
{
	size_t from, size;

	if (!machine_line(m, &from, &size))
		return PICKLE_NOTHING;
	if (size == 2 && m->p->data[from] == '0' && (m->p->data[from + 1] & 0xfe) == '0')
		return m->p->data[from + 1] == '1' ? NODE_TRUE : NODE_FALSE;
	return decimal(m, from, size);
}

uint32_t machine_read_long(struct machine *m)
{
	size_t from, size;

	if (!machine_line(m, &from, &size))
		return PICKLE_NOTHING;
	return decimal(m, from, size - (size && m->p->data[from + size - 1] == 'L'));
}

uint32_t machine_read_float(struct machine *m)
{
	char text[NUMBER_MAX + 1], *end = text;
	size_t from, size;
	double value = 0;
	uint32_t node;

	if (!machine_line(m, &from, &size))
		return PICKLE_NOTHING;
	if (size && size <= NUMBER_MAX && !memchr(m->p->data + from, '\0', size)) {
		memcpy(text, m->p->data + from, size);
		text[size] = '\0';
		value = strtod(text, &end);
	}
	if (end == text || *end)
		machine_fail(m, -EBADMSG, "not a number");
	node = machine_node(m, PICKLE_REAL);
	if (node)
		machine_at(m, node)->real = value;
	return node;
}

/* ---- texts with escapes ---- */

static int hex(uint8_t c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

static bool take_hex(const uint8_t *in, size_t left, size_t digits, uint32_t *out)
{
	*out = 0;
	if (left < digits)
		return false;
	for (size_t i = 0; i < digits; i++) {
		if (hex(in[i]) < 0)
			return false;
		*out = *out << 4 | (uint32_t)hex(in[i]);
	}
	return true;
}

/* What follows a backslash in a Python 2 string.  Returns how many bytes it took, 0: bad. */
static size_t take_escape(const uint8_t *in, size_t left, uint8_t **out)
{
	static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
	const char *letter = left && *in ? strchr(letters, *in) : NULL;
	uint32_t code = 0;
	size_t n = 0;

	if (letter) {
		*(*out)++ = (uint8_t)values[letter - letters];
		return 1;
	}
	if (left && *in == 'x') {
		n = take_hex(in + 1, left - 1, 2, &code) ? 3 : 0;
	} else {
		while (n < 3 && n < left && in[n] >= '0' && in[n] <= '7')
			code = code << 3 | (in[n++] & 7u);
	}
	if (n)
		*(*out)++ = (uint8_t)code;
	return n;
}

static bool unescape(const uint8_t *in, size_t size, uint8_t **out)
{
	for (size_t n; size; in += n, size -= n) {
		if (*in != '\\') {
			*(*out)++ = *in;
			n = 1;
			continue;
		}
		n = take_escape(in + 1, size - 1, out);
		if (!n++)
			return false;
	}
	return true;
}

static uint32_t text_or_bytes(struct machine *m, const uint8_t *start, size_t n)
{
	return machine_decoded(m, utf8_is_valid(start, n, true) ? PICKLE_TEXT : PICKLE_BYTES,
			       n);
}

/* A quoted string as Python 2 prints it. */
uint32_t machine_read_string(struct machine *m)
{
	size_t from, size;
	uint8_t *start, *end, quote;
	const uint8_t *in;

	if (!machine_line(m, &from, &size) || !(start = machine_decode(m, size)))
		return PICKLE_NOTHING;
	in = m->p->data + from;
	quote = size >= 2 ? in[0] : 0;
	end = start;
	if ((quote != '\'' && quote != '"') || in[size - 1] != quote ||
	    !unescape(in + 1, size - 2, &end)) {
		machine_fail(m, -EBADMSG, "not a string");
		return PICKLE_NOTHING;
	}
	return text_or_bytes(m, start, (size_t)(end - start));
}

/* Python's raw-unicode-escape: Latin-1, and \u with 4 digits, \U with 8. */
uint32_t machine_read_unicode(struct machine *m)
{
	size_t from, size;
	uint8_t *start, *end;
	uint32_t code;

	if (!machine_line(m, &from, &size) || !(start = machine_decode(m, 2 * size)))
		return PICKLE_NOTHING;
	end = start;
	for (size_t i = 0, n; i < size; i += n) {
		const uint8_t *in = m->p->data + from + i;
		bool escape = in[0] == '\\' && i + 1 < size && (in[1] | 0x20) == 'u';

		n = !escape ? 1 : in[1] == 'u' ? 6 : 10;
		code = *in;
		if (escape &&
		    (!take_hex(in + 2, size - i - 2, n - 2, &code) || code > 0x10ffff))
			machine_fail(m, -EBADMSG, "not a text");
		if (m->rc)
			return PICKLE_NOTHING;
		end += utf8_put(code, end);
	}
	return text_or_bytes(m, start, (size_t)(end - start));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/checkpoint/parse/utf8.h"

#include <string.h>

/* C0 and C1 would begin forms that are too long, F5 and above characters beyond U+10FFFF. */
static size_t length_by_first(uint8_t first)
{
	return first < 0x80   ? 1
	       : first < 0xc2 ? 0
	       : first < 0xe0 ? 2
	       : first < 0xf0 ? 3
	       : first < 0xf5 ? 4
			      : 0;
}

size_t utf8_get(const uint8_t *bytes, uint32_t *code)
{
	static const uint8_t mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	size_t n = length_by_first(bytes[0]);

	*code = bytes[0] & mask[n];
	for (size_t i = 1; i < n; i++)
		*code = *code << 6 | (bytes[i] & 0x3f);
	return n;
}

bool utf8_is_valid(const void *bytes, size_t size, bool surrogates)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const uint8_t *at = bytes;
	uint32_t code;

	for (size_t n; size; at += n, size -= n) {
		n = length_by_first(*at);
		if (!n || n > size)
			return false;
		for (size_t i = 1; i < n; i++)
			if ((at[i] & 0xc0) != 0x80)
				return false;
		utf8_get(at, &code);
		if (code < least[n] || code > 0x10ffff ||
		    (!surrogates && code >= 0xd800 && code < 0xe000))
			return false;
	}
	return true;
}

int utf8_compare(const void *a, size_t a_size, const void *b, size_t b_size)
{
	size_t n = a_size < b_size ? a_size : b_size;
	int order = n && a != b ? memcmp(a, b, n) : 0;

	return order ? order : (a_size > b_size) - (a_size < b_size);
}

size_t utf8_put(uint32_t code, uint8_t out[4])
{
	if (code < 0x80) {
		out[0] = (uint8_t)code;
		return 1;
	}
	size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

	for (size_t i = n - 1; i; i--, code >>= 6)
		out[i] = (uint8_t)(0x80 | (code & 0x3f));
	/* the low byte of 0xf00 >> n has n leading ones, then zeros */
	out[0] = (uint8_t)((0xf00 >> n) | code);
	return n;
}

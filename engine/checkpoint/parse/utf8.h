/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_UTF8_H
#define ENGINE_CHECKPOINT_PARSE_UTF8_H

/* UTF-8: checking, comparing, encoding, decoding. */

#include "engine/base/base.h"

/* Returns true if the bytes are UTF-8: shortest forms, up to U+10FFFF.  Lone surrogates, which
 * Python writes, are accepted only if `surrogates`.
 */
bool utf8_is_valid(const void *bytes, size_t size, bool surrogates);

/* Compares two texts, which need not be terminated, by the numbers of their characters. */
int utf8_compare(const void *a, size_t a_size, const void *b, size_t b_size);

/* Writes 1 to 4 bytes and returns how many; code <= 0x10ffff. */
size_t utf8_put(uint32_t code, uint8_t out[4]);

/* Decodes the first character of valid UTF-8; returns its number of bytes. */
size_t utf8_get(const uint8_t *bytes, uint32_t *code);

#endif

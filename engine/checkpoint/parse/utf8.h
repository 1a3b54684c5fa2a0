/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CHECKPOINT_PARSE_UTF8_H
#define ENGINE_CHECKPOINT_PARSE_UTF8_H

#include "engine/base/base.h"

/* Shortest forms up to U+10FFFF.  Lone surrogates, which Python writes, only where asked for.
 */
bool utf8_is_valid(const void *bytes, size_t size, bool surrogates);

/* Writes 1 to 4 bytes and returns how many; code <= 0x10ffff. */
size_t utf8_put(uint32_t code, uint8_t out[4]);

/* Takes a character off bytes that are valid; size > 0.  Returns how many bytes it has. */
size_t utf8_get(const uint8_t *bytes, uint32_t *code);

#endif

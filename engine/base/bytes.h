/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_BASE_BYTES_H
#define ENGINE_BASE_BYTES_H

/* Numbers of bytes as people write them. */

#include "engine/base/base.h"

#include <errno.h>

/* Parses digits, then K, M, G or nothing.  False: text is something else. */
static inline bool bytes_parse(const char *text, uint64_t *bytes)
{
	unsigned long long number;
	uint64_t unit;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1;
	end += unit > 1;
	return *text >= '0' && *text <= '9' && !*end && !errno && u64_mul(number, unit, bytes);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RANKS_VALUE_READING_H
#define RANKS_VALUE_READING_H

/* A read of one float of an open file, and its result. */

#include "engine/engine.h"

#include <string.h>

struct value_reading {
	struct engine_read read;
	float value;
	int64_t result;
	bool ended;
};

/* engine_read's done; its owner is the struct value_reading. */
static inline void value_read(struct engine_read *read, const void *data, int64_t result)
{
	struct value_reading *r = read->owner;

	r->result = result;
	r->ended = true;
	if (result == sizeof(r->value))
		memcpy(&r->value, data, sizeof(r->value));
}

#endif

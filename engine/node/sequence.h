/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_SEQUENCE_H
#define ENGINE_NODE_SEQUENCE_H

/* Finds out whether a file's reader is sequential. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Requests of a reader that follow each other and are of one size. */
struct sequence {
	uint64_t next; /* where the reader goes on */
	size_t size;   /* of its last request */
	int streak;    /* how many; below 0: the next -streak are not read ahead for */
};

enum { SEQUENCE_MIN = 2 };

/* Counts a request.  Returns true if its reader is sequential, and may be read ahead for. */
static inline bool sequence_goes_on(struct sequence *s, uint64_t offset, size_t size)
{
	bool goes_on = offset == s->next && size == s->size;

	s->next = offset + size;
	s->size = size;
	if (s->streak < 0 || goes_on)
		s->streak += s->streak < SEQUENCE_MIN;
	else
		s->streak = 0;
	return s->streak >= SEQUENCE_MIN;
}

#endif

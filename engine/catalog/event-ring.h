/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_EVENT_RING_H
#define ENGINE_CATALOG_EVENT_RING_H

/* The newest events, a line of JSON each, numbered from 1 on.  A reader keeps the number of the
 * last line it has read; where lines after it have been dropped, it reads
 * {"event":"lost","count":N}.
 */

#include "engine/base/base.h"

#include <jansson.h>

#define EVENT_RING_JSON (JSON_COMPACT | JSON_REAL_PRECISION(13))

enum { EVENT_RING_KEPT = 1024, EVENT_RING_LINE_MAX = 8192 };

struct event_ring {
	uint64_t count;               /* of lines, ever: the number of the newest */
	char *lines[EVENT_RING_KEPT]; /* of number n: [n % EVENT_RING_KEPT] */
};

/* Takes event; drops it when its line is longer than EVENT_RING_LINE_MAX. */
void event_ring_add(struct event_ring *s, json_t *event);

/* Copies whole lines after number *after; returns their bytes, moves *after.  size: at least
 * EVENT_RING_LINE_MAX.
 */
size_t event_ring_read(const struct event_ring *s, uint64_t *after, char *out, size_t size);

/* Parses lines that event_ring_read made in another process; skips what is no JSON object. */
typedef void (*event_ring_see)(void *arg, json_t *event);
void event_ring_parse(const char *text, size_t size, event_ring_see see, void *arg);

void event_ring_fini(struct event_ring *s);

#endif

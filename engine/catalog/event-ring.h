/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_EVENT_RING_H
#define ENGINE_CATALOG_EVENT_RING_H

/* The newest lines of JSON, numbered from 1 on.  Who reads keeps the number of the last line he
 * had; when lines after it have been dropped, he gets {"event":"lost","count":N} in their
 * place.
 */

#include "engine/base/base.h"

#include <jansson.h>

#define EVENT_RING_JSON (JSON_COMPACT | JSON_REAL_PRECISION(13))

enum { EVENT_RING_KEPT = 1024, EVENT_RING_LINE_MAX = 8192 };

struct event_ring {
	uint64_t count;               /* ever: the newest's number */
	char *lines[EVENT_RING_KEPT]; /* of number n: [n % EVENT_RING_KEPT] */
};

/* Takes event; one that has no line of EVENT_RING_LINE_MAX bytes is dropped. */
void event_ring_add(struct event_ring *s, json_t *event);

/* Copies whole lines after number *after; returns their bytes, moves *after.  size: at least
 * EVENT_RING_LINE_MAX.
 */
size_t event_ring_read(const struct event_ring *s, uint64_t *after, char *out, size_t size);

/* Lines that event_ring_read made, of another process: what is no JSON object is left out. */
typedef void (*event_ring_see)(void *arg, json_t *event);
void event_ring_parse(const char *text, size_t size, event_ring_see see, void *arg);

void event_ring_fini(struct event_ring *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_EVENT_RING_H
#define ENGINE_CATALOG_EVENT_RING_H

/* The newest lines of JSON, numbered from 1 on.  Who reads keeps the number of the last line he had; when
 * lines after it have been dropped, he gets {"event":"lost","count":N} in their place.
 */

#include "engine/base/base.h"

#include <jansson.h>

#define EVENTS_JSON (JSON_COMPACT | JSON_REAL_PRECISION(13))

enum { EVENTS_KEPT = 1024, EVENTS_LINE_MAX = 8192 };

struct events {
	uint64_t count;           /* ever: the newest's number */
	char *lines[EVENTS_KEPT]; /* of number n: [n % EVENTS_KEPT] */
};

/* Takes event; one that has no line of EVENTS_LINE_MAX bytes is dropped. */
void events_add(struct events *s, json_t *event);

/* Copies whole lines after number *after; returns their bytes, moves *after.  size: at least
 * EVENTS_LINE_MAX.
 */
size_t events_read(const struct events *s, uint64_t *after, char *out, size_t size);

/* Lines that events_read made, of another process: what is no JSON object is left out. */
typedef void (*events_see)(void *arg, json_t *event);
void events_parse(const char *text, size_t size, events_see see, void *arg);

void events_fini(struct events *s);

#endif

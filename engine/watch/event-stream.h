/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_EVENT_STREAM_H
#define ENGINE_WATCH_EVENT_STREAM_H

/* The door's streams of events: each is a place in the engine's events, and the rest of what
 * was taken from there and not read yet.  As engine_events_...
 */

#include "engine/node/node.h"

int event_stream_open(struct engine *e, struct engine_events **events);
void event_stream_close(struct engine_events *events);
size_t event_stream_read(struct engine_events *events, char *out, size_t size);
bool event_stream_ready(struct engine_events *events);

#endif

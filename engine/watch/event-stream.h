/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_WATCH_EVENT_STREAM_H
#define ENGINE_WATCH_EVENT_STREAM_H

/* Streams of the job's events, as engine_events_open and its sisters in engine/engine.h.  A
 * stream is a position in the engine's ring of events, and the rest of the text that it has
 * taken from the ring and its reader has not read yet.
 */

#include "engine/node/node.h"

int event_stream_open(struct engine *e, struct engine_events **events);
void event_stream_close(struct engine_events *events);
size_t event_stream_read(struct engine_events *events, char *out, size_t size);
bool event_stream_ready(struct engine_events *events);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/node/event-log.h"
#include "engine/watch/event-stream.h"
#include "engine/watch/watch.h"

#include <errno.h>
#include <string.h>

enum { ROOM = 2 * EVENT_RING_LINE_MAX };

struct engine_events {
	struct engine *engine; /* first, as engine-ops.h wants it */
	uint64_t after;        /* number of the last line taken */
	size_t at, length;     /* text from at to length is not read yet */
	char text[ROOM];
};

/* With the lock.  Waits until the number is known from which the stream begins, for the timeout
 * at most.
 * -EAGAIN: the calling thread may not wait (engine_hurry).
 */
static int begin(struct engine *e)
{
	uint64_t deadline = engine_asked_since() / 1000000 + e->timeout_ms;
	int rc = 0;

	watch_begin_events(e);
	while (watch_is_beginning(e) && !rc && monotonic_ms() < deadline)
		rc = node_wait_answer(e, deadline);
	if (rc == -EAGAIN)
		watch_end_events(e);
	return rc == -EAGAIN ? rc : 0;
}

int event_stream_open(struct engine *e, struct engine_events **out)
{
	struct engine_events *s = malloc(sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	pthread_mutex_lock(&e->lock);
	rc = begin(e);
	s->engine = e;
	s->after = e->event_log->ring.count;
	s->at = s->length = 0;
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
	if (rc)
		free(s);
	else
		*out = s;
	return rc;
}

void event_stream_close(struct engine_events *s)
{
	pthread_mutex_lock(&s->engine->lock);
	watch_end_events(s->engine);
	pthread_mutex_unlock(&s->engine->lock);
	free(s);
}

static size_t take_text(struct engine_events *s, char *out, size_t size)
{
	size_t n;

	if (s->at == s->length) {
		s->length =
			event_ring_read(&s->engine->event_log->ring, &s->after, s->text, ROOM);
		s->at = 0;
	}
	n = u64_min(size, s->length - s->at);
	memcpy(out, s->text + s->at, n);
	s->at += n;
	return n;
}

size_t event_stream_read(struct engine_events *s, char *out, size_t size)
{
	size_t n, used = 0;

	pthread_mutex_lock(&s->engine->lock);
	while (used < size && (n = take_text(s, out + used, size - used)))
		used += n;
	pthread_mutex_unlock(&s->engine->lock);
	return used;
}

bool event_stream_ready(struct engine_events *s)
{
	bool ready;

	pthread_mutex_lock(&s->engine->lock);
	ready = s->at < s->length || s->after != s->engine->event_log->ring.count;
	pthread_mutex_unlock(&s->engine->lock);
	return ready;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/event-ring.h"

#include <stdio.h>
#include <string.h>

void event_ring_add(struct event_ring *s, json_t *event)
{
	char *line = event ? json_dumps(event, EVENT_RING_JSON) : NULL;
	char **at = &s->lines[(s->count + 1) % EVENT_RING_KEPT];

	json_decref(event);
	if (!line || strlen(line) + 1 > EVENT_RING_LINE_MAX) {
		free(line);
		return;
	}
	free(*at);
	*at = line;
	s->count++;
}

static size_t put_lost(const struct event_ring *s, uint64_t *after, char *out, size_t size)
{
	uint64_t oldest = s->count > EVENT_RING_KEPT ? s->count - EVENT_RING_KEPT : 0;
	uint64_t lost = oldest - *after;

	*after = oldest;
	return (size_t)snprintf(out, size, "{\"event\":\"lost\",\"count\":%llu}\n",
				(unsigned long long)lost);
}

size_t event_ring_read(const struct event_ring *s, uint64_t *after, char *out, size_t size)
{
	size_t used = 0;

	if (s->count > *after + EVENT_RING_KEPT)
		used = put_lost(s, after, out, size);
	while (*after < s->count) {
		const char *line = s->lines[(*after + 1) % EVENT_RING_KEPT];
		size_t length = strlen(line);

		if (length + 1 > size - used)
			break;
		memcpy(out + used, line, length);
		out[used + length] = '\n';
		used += length + 1;
		++*after;
	}
	return used;
}

void event_ring_parse(const char *text, size_t size, event_ring_see see, void *arg)
{
	const char *end = text + size, *line, *behind;

	for (line = text; line < end && (behind = memchr(line, '\n', (size_t)(end - line)));
	     line = behind + 1) {
		json_t *event = json_loadb(line, (size_t)(behind - line), 0, NULL);

		if (json_is_object(event))
			see(arg, event);
		json_decref(event);
	}
}

void event_ring_fini(struct event_ring *s)
{
	for (unsigned i = 0; i < EVENT_RING_KEPT; i++)
		free(s->lines[i]);
}

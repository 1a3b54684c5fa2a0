/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/readers.h"

#include "engine/base/one-line.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum {
	/* an observer that is silent for so long, and has no views, is gone */
	SILENT_MS = 5 * NODE_PING_MS,
	READERS_MAX = 4096, /* further observers are not listed */
};

struct reader {
	uint32_t life; /* of its messages' headers; its views' ids begin with it */
	uint64_t since_ms, heard_ms;
	struct wire_observer is;
};

static void forget_silent(struct engine *e, uint64_t now)
{
	struct readers *r = e->serve.readers;
	struct reader *list = r->list.items;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->list.count; i++) {
		struct view_owner_use use = { 0 };

		if (now > list[i].heard_ms + SILENT_MS)
			view_owner_use(&e->view_owner, list[i].life, now, &use);
		if (now <= list[i].heard_ms + SILENT_MS || use.views)
			list[kept++] = list[i];
	}
	r->list.count = kept;
}

/* Returns the observer of these messages, a new one if it has not been heard; NULL: no room. */
static struct reader *find(struct readers *r, uint32_t life, uint64_t now)
{
	struct reader *list = r->list.items, *added;

	for (uint32_t i = 0; i < r->list.count; i++)
		if (list[i].life == life)
			return &list[i];
	added = r->list.count < READERS_MAX ? vec_add(&r->list, sizeof(*added)) : NULL;
	if (added)
		*added = (struct reader){ .life = life, .since_ms = now };
	return added;
}

void readers_heard(struct engine *e, const struct wire_header *header, const void *tail,
		   size_t tail_size, uint64_t now_ms)
{
	struct readers *r = e->serve.readers;
	struct wire_observer is;
	struct reader *reader;

	assert(node_is_engine_thread(e));
	if (header->rank != WIRE_OBSERVER || tail_size != sizeof(is))
		return;
	memcpy(&is, tail, sizeof(is));
	if (!wire_text_ok(is.host, sizeof(is.host)) ||
	    !wire_text_ok(is.program, sizeof(is.program)))
		return;
	forget_silent(e, now_ms);
	reader = find(r, header->life, now_ms);
	if (!reader)
		return;
	reader->heard_ms = now_ms;
	reader->is = is;
}

void readers_print(struct engine *e, FILE *out)
{
	struct readers *r = e->serve.readers;
	uint64_t now = monotonic_ms();

	assert(node_is_engine_thread(e));
	forget_silent(e, now);
	for (uint32_t i = 0; i < r->list.count; i++) {
		const struct reader *reader = &((const struct reader *)r->list.items)[i];
		struct view_owner_use use;

		view_owner_use(&e->view_owner, reader->life, now, &use);
		fprintf(out, "%u\t", e->rank);
		one_line_put(out, reader->is.host);
		fprintf(out, "\t%" PRId64 "\t%" PRIu32 "\t", reader->is.pid, reader->is.uid);
		one_line_put(out, reader->is.program);
		fprintf(out, "\t%s\t%.1f\t%u\t%" PRIu64 "\t%" PRIu64 "\t%.1f\t%.1f\n",
			reader->is.writes ? "rw" : "ro", (double)(now - reader->since_ms) / 1e3,
			use.views, use.bytes, use.preserved, (double)use.oldest_ms / 1e3,
			(double)(now - reader->heard_ms) / 1e3);
	}
}

void readers_free(struct readers *r)
{
	if (r)
		free(r->list.items);
	free(r);
}

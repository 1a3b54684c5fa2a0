/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/readers.h"

#include "engine/base/one-line.h"
#include "engine/node/permissions.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
	SILENT_MS = 5 * NODE_PING_MS, /* an observer that has no views is listed for so long */
	READERS_MAX = 4096,           /* further observers are not listed */
	OF_PEER_MAX = 16,             /* nor are those that one connection claims to be */
};

struct reader {
	uint32_t life; /* of its messages' headers; its views' ids begin with it */
	uint32_t peer;
	uint64_t since_ms, heard_ms;
	struct wire_observer is;
	/* its views, as readers_print counts them */
	unsigned views;
	uint64_t bytes, preserved; /* of all views; of those that are PRESERVED */
	uint64_t opened_ms;        /* the oldest view */
};

static void forget_silent(struct readers *r, uint64_t now)
{
	struct reader *list = r->list.items;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < r->list.count; i++)
		if (now <= list[i].heard_ms + VIEW_SILENT_MS)
			list[kept++] = list[i];
	r->list.count = kept;
}

/* Returns the observer of these messages, a new one if it has not been heard; NULL: no room. */
static struct reader *get_reader(struct readers *r, uint32_t peer, uint32_t life, uint64_t now)
{
	struct reader *list = r->list.items, *added = NULL;
	unsigned of_peer = 0;

	for (uint32_t i = 0; i < r->list.count; i++) {
		if (list[i].life == life)
			return &list[i];
		of_peer += list[i].peer == peer;
	}
	if (r->list.count < READERS_MAX && of_peer < OF_PEER_MAX)
		added = vec_add(&r->list, sizeof(*added));
	if (added)
		*added = (struct reader){ .life = life, .since_ms = now };
	return added;
}

void readers_heard(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *tail, size_t tail_size, uint64_t now_ms)
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
	is.writes = is.writes && !permissions_reads_only(e, peer);
	forget_silent(r, now_ms);
	reader = get_reader(r, peer, header->life, now_ms);
	if (!reader)
		return;
	reader->peer = peer;
	reader->heard_ms = now_ms;
	reader->is = is;
}

/* Adds a view to its reader, if it has one in the list, which is sorted by life. */
static void add_view(void *arg, const struct view *view)
{
	const struct vec *list = arg;
	uint32_t life = (uint32_t)view->id[0];
	struct reader *r = bsearch(&life, list->items, list->count, sizeof(*r), u32_compare);

	if (!r)
		return;
	r->opened_ms = r->views ? u64_min(r->opened_ms, view->opened_ms) : view->opened_ms;
	r->views++;
	r->bytes += view->size;
	r->preserved += view->state == VIEW_PRESERVED ? view->size : 0;
}

/* Counts the views of all readers in one walk: there may be thousands of both. */
static void count_views(struct engine *e, struct vec *list)
{
	struct reader *readers = list->items;

	static_assert(offsetof(struct reader, life) == 0, "u32_compare");
	for (uint32_t i = 0; i < list->count; i++)
		readers[i].views = readers[i].bytes = readers[i].preserved = 0;
	qsort(readers, list->count, sizeof(*readers), u32_compare);
	view_owner_each(&e->view_owner, add_view, list);
}

static void print(struct engine *e, FILE *out, const struct reader *r, uint64_t now)
{
	uint64_t open_ms = r->views ? now - r->opened_ms : 0;

	fprintf(out, "%u\t", e->rank);
	one_line_put(out, r->is.host);
	fprintf(out, "\t%" PRId64 "\t%" PRIu32 "\t", r->is.pid, r->is.uid);
	one_line_put(out, r->is.program);
	fprintf(out, "\t%s\t%.1f\t%u\t%" PRIu64 "\t%" PRIu64 "\t%.1f\t%.1f\n",
		r->is.writes ? "rw" : "ro", (double)(now - r->since_ms) / 1e3, r->views,
		r->bytes, r->preserved, (double)open_ms / 1e3,
		(double)(now - r->heard_ms) / 1e3);
}

void readers_print(struct engine *e, FILE *out)
{
	struct vec *list = &e->serve.readers->list;
	const struct reader *readers;
	uint64_t now = monotonic_ms();

	assert(node_is_engine_thread(e));
	forget_silent(e->serve.readers, now);
	if (!list->count)
		return;
	count_views(e, list);
	readers = list->items;
	for (uint32_t i = 0; i < list->count; i++)
		if (readers[i].views || now <= readers[i].heard_ms + SILENT_MS)
			print(e, out, &readers[i], now);
}

void readers_free(struct readers *r)
{
	if (r)
		free(r->list.items);
	free(r);
}

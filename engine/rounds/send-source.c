/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/registry-version.h"
#include "engine/rounds/send-source.h"

#include <errno.h>
#include <string.h>

struct piece_source { /* what a piece is sent from: a version, a copy, or the live memory */
	struct registry_version *version;
	void *copy;
};

struct send_source {
	struct devices_mark *mark; /* for pieces that are sent from live memory */
	struct device_event *after;
	bool preserve;
	unsigned n;
	struct piece_source held[];
};

struct send_source *send_source_new(unsigned n, bool preserve)
{
	struct send_source *s = calloc(1, sizeof(*s) + n * sizeof(s->held[0]));

	if (s)
		s->preserve = preserve;
	return s;
}

void send_source_free(struct engine *e, struct send_source *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n; i++) {
		registry_version_put(s->held[i].version);
		free(s->held[i].copy);
	}
	if (s->mark)
		devices_mark_put(e->registry.devices, s->mark);
	free(s);
}

static void *copy_new(struct send_source *s, uint64_t size)
{
	void *copy = malloc(size + 1);

	if (copy)
		s->held[s->n++].copy = copy;
	return copy;
}

/* Zeroes a copy that failed: what the memory held before is not to be sent. */
static int copied(void *copy, uint64_t size, int rc)
{
	if (rc)
		memset(copy, 0, size);
	return rc;
}

static int from_copy(struct engine *e, struct send_source *s, uint64_t epoch, uint32_t row,
		     uint64_t offset, uint64_t size, void **from)
{
	*from = copy_new(s, size);
	return *from ? copied(*from, size,
			      registry_copy(&e->registry, epoch, row, offset, *from, size))
		     : -ENOMEM;
}

/* Marks the stream: live memory is sent when the stream has come to where the trainer is now.
 */
static int from_there(struct devices *d, struct send_source *s, int number)
{
	int rc;

	if (s->mark)
		return 0;
	devices_mark(d);
	rc = devices_newest(d, number, &s->mark);
	if (s->mark)
		s->after = devices_mark_event(s->mark);
	return rc;
}

/* Takes v, which is put when the bytes have been sent. */
static int from_preserved(struct send_source *s, struct registry_version *v, uint64_t offset,
			  void **from)
{
	void *memory = registry_version_on_device(v, offset, &s->after);

	if (!memory) {
		registry_version_put(v);
		return -ENOSPC;
	}
	s->held[s->n++].version = v;
	*from = memory;
	return 0;
}

static int preserve(struct engine *e, struct send_source *s, uint64_t epoch, uint32_t row,
		    uint64_t offset, uint64_t size, void **from)
{
	struct registry_version *v;
	int rc = registry_version_preserve(&e->registry, epoch, row, offset, size, &v);

	return rc ? rc : from_preserved(s, v, offset, from);
}

int send_source_from(struct engine *e, struct send_source *s, uint64_t epoch, uint32_t row,
		     uint64_t offset, uint64_t size, void **from)
{
	int number, rc;

	*from = NULL;
	if (registry_tier(&e->registry, row) != STATE_DEVICE)
		return from_copy(e, s, epoch, row, offset, size, from);
	rc = registry_device_memory(&e->registry, epoch, row, offset, size, &number, from);
	if (rc)
		return rc;
	return s->preserve ? preserve(e, s, epoch, row, offset, size, from)
			   : from_there(e->registry.devices, s, number);
}

/* ---- of a view ---- */

static int from_room(struct engine *e, struct send_source *s, const uint64_t view[2],
		     uint64_t inside, const struct wire_piece *piece, void **from)
{
	*from = copy_new(s, piece->size);
	return *from ? copied(*from, piece->size,
			      view_owner_read(&e->view_owner, &e->registry, view, inside, *from,
					      piece->size))
		     : -ENOMEM;
}

int send_source_from_view(struct engine *e, struct send_source *s, const uint64_t view[2],
			  const struct wire_piece *piece, void **from)
{
	uint64_t inside = 0;
	struct view_look look;
	enum state_tier tier;
	int number, rc = view_owner_covers(&e->view_owner, view, piece->state, piece->offset,
					   piece->size, &inside);

	*from = NULL;
	/* without the view undefined bytes are sent, from where the row has its own */
	tier = rc ? registry_tier(&e->registry, piece->state)
		  : view_owner_tier(&e->view_owner, view);
	if (tier != STATE_DEVICE) {
		int read = from_room(e, s, view, inside, piece, from);

		return rc ? rc : read;
	}
	registry_device_memory(&e->registry, piece->epoch, piece->state, piece->offset,
			       piece->size, &number, from);
	if (!rc)
		rc = view_owner_look(&e->view_owner, view, inside, piece->size, &look);
	if (rc)
		return rc;
	if (look.version)
		return from_preserved(s, look.version, look.at, from);
	return preserve(e, s, look.epoch, look.row, look.at, piece->size, from);
}

struct device_event *send_source_after(const struct send_source *s)
{
	return s->after;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/text.h"
#include "engine/base/thread.h"
#include "engine/memory/pinned.h"
#include "engine/memory/view-pool.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/fallback.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SLOT_MAP_MAX = 32, PAGE = 4096 };
enum {
	FETCH_MS = 10000,  /* the mount copies the bytes within this time, or loses the slot */
	PACE_MS = 100,     /* boundaries are counted over this time */
	SOON_MS = 50,      /* boundaries are frequent: at most this time lies between two */
	SHARED_MS = 40000, /* a mount that was refused asks again before this time is over */
};

struct landing_slot {
	uint8_t *memory; /* a page, at whose end the label is, then the bytes */
	bool used;
};

struct landing_request { /* a PREFETCH of a mount */
	LIST_ENTRY(landing_request) link;
	struct engine *engine;
	uint64_t id[2];
	uint32_t peer; /* the mount's */
	uint64_t request;
	bool asked;    /* the mount waits for the answer to request */
	bool unwanted; /* the mount has closed it */
	bool over;     /* the round has ended, with result */
	int result;
	uint64_t over_ms;
	struct landing_slot *slot;
	struct rounds_get get;
	struct rounds_view view;
	struct wire_piece pieces[];
};

struct landing {
	struct pinned *memory;
	bool reached; /* memory is pinned by the devices */
	struct landing_slot slots[SLOT_MAP_MAX];
	unsigned nslots;
	LIST_HEAD(, landing_request) list;
	uint32_t last_peer;              /* the last that asked; WIRE_OBSERVER: none has */
	uint64_t shared_until_ms;        /* several mounts ask */
	uint64_t pace_ms, pace_boundary; /* the last count of boundaries: when, and which */
	uint64_t period_ms;              /* between two boundaries; UINT64_MAX: none came */
	uint64_t brought, refused[WIRE_FALLBACKS];
};

/* ---- memory ---- */

static int reach(struct engine *e, struct landing *c)
{
	struct iovec slab;
	unsigned n;
	int rc;

	if (!e->registry.devices)
		return 0;
	n = pinned_slabs(c->memory, &slab);
	assert(n == 1);
	rc = devices_pin(e->registry.devices, slab.iov_base, slab.iov_len);
	c->reached = !rc;
	return rc;
}

/* Takes all buffers for good: a mount may still copy from a slot that it has lost, and sees so
 * by the label.
 */
static void take_slots(struct landing *c)
{
	void *memory;

	while (c->nslots < SLOT_MAP_MAX && !pinned_get(c->memory, 0, &memory))
		c->slots[c->nslots++].memory = memory;
}

static int make_slots(struct engine *e, struct landing *c, uint64_t bytes)
{
	const struct pinned_options options = { .size = LANDING_SLOT + PAGE,
						.count = (unsigned)u64_min(bytes / LANDING_SLOT,
									   SLOT_MAP_MAX),
						.locked_by_user = e->registry.devices != NULL,
						.unlocked = !e->registry.devices };
	int rc;

	rc = options.count ? pinned_open(&options, &c->memory) : 0;
	if (rc || !c->memory)
		return rc;
	rc = reach(e, c);
	if (!rc)
		take_slots(c);
	else
		pinned_close(c->memory);
	return rc;
}

int landing_init(struct engine *e, uint64_t bytes)
{
	struct landing *c;
	int rc;

	assert(thread_may_be_trainer());
	if (e->rounds.landing)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->period_ms = UINT64_MAX;
	c->last_peer = WIRE_OBSERVER;
	rc = make_slots(e, c, bytes);
	if (rc)
		free(c);
	else
		e->rounds.landing = c;
	return rc;
}

static void free_memory(struct engine *e, struct landing *c)
{
	struct iovec slab;

	if (!c->memory)
		return;
	if (c->reached && pinned_slabs(c->memory, &slab))
		devices_unpin(e->registry.devices, slab.iov_base);
	for (unsigned i = 0; i < c->nslots; i++)
		pinned_put(c->memory, c->slots[i].memory);
	pinned_close(c->memory);
}

void landing_free(struct engine *e)
{
	struct landing *c = e->rounds.landing;
	struct landing_request *one;

	if (!c)
		return;
	while ((one = LIST_FIRST(&c->list))) {
		LIST_REMOVE(one, link);
		free(one);
	}
	free_memory(e, c);
	free(c);
	e->rounds.landing = NULL;
}

static struct view_label *label_of(const struct landing_slot *slot)
{
	return (struct view_label *)(void *)(slot->memory + PAGE) - 1;
}

static unsigned count_free(const struct landing *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->nslots; i++)
		n += !c->slots[i].used;
	return n;
}

static bool has_slot(const struct landing *c, uint32_t peer)
{
	const struct landing_request *one;

	LIST_FOREACH (one, &c->list, link)
		if (one->peer == peer)
			return true;
	return false;
}

/* A mount that is alone may have all slots.  Where several ask, the last free slot is for a
 * mount that has none, and each slot comes back after FETCH_MS at most: every mount gets one.
 */
static bool may_have_slot(struct landing *c, uint32_t peer, uint64_t now)
{
	if (peer != c->last_peer && c->last_peer != WIRE_OBSERVER)
		c->shared_until_ms = now + SHARED_MS;
	c->last_peer = peer;
	return now >= c->shared_until_ms || count_free(c) > 1 || !has_slot(c, peer);
}

static struct landing_slot *take_slot(struct landing *c, const uint64_t id[2])
{
	for (unsigned i = 0; i < c->nslots; i++) {
		struct landing_slot *slot = &c->slots[i];

		if (slot->used)
			continue;
		slot->used = true;
		*label_of(slot) = (struct view_label){ { id[0], id[1] }, 0 };
		return slot;
	}
	return NULL;
}

static void put_slot(struct landing_slot *slot)
{
	atomic_store(&label_of(slot)->complete, 0);
	memset(label_of(slot)->view, 0, sizeof(label_of(slot)->view));
	slot->used = false;
}

void *landing_slot_get(struct engine *e)
{
	const uint64_t no_view[2] = { 0, 0 };
	struct landing_slot *slot =
		e->rounds.landing ? take_slot(e->rounds.landing, no_view) : NULL;

	assert(thread_may_be_trainer());
	return slot ? slot->memory + PAGE : NULL;
}

void landing_slot_put(struct engine *e, const void *memory)
{
	struct landing *c = e->rounds.landing;

	for (unsigned i = 0; c && i < c->nslots; i++)
		if (c->slots[i].memory + PAGE == memory)
			put_slot(&c->slots[i]);
}

/* ---- how often the trainer comes to a boundary ---- */

static void count_boundaries(struct engine *e, struct landing *c, uint64_t now)
{
	uint64_t boundary =
		atomic_load_explicit(&e->registry.control->boundary, memory_order_relaxed);
	uint64_t passed = boundary - c->pace_boundary;

	if (now < c->pace_ms + PACE_MS)
		return;
	c->period_ms = passed ? (now - c->pace_ms) / passed : UINT64_MAX;
	c->pace_ms = now;
	c->pace_boundary = boundary;
}

/* Returns true if a round gets a boundary soon: frozen ranks stand at one. */
static bool come_soon(const struct engine *e)
{
	return e->rounds.landing->period_ms <= SOON_MS ||
	       atomic_load_explicit(&e->registry.control->phase, memory_order_relaxed) ==
		       CONTROL_FROZEN;
}

/* ---- the end of a request ---- */

static enum wire_fallback why(const struct landing_request *one)
{
	switch (one->result) {
	case 0:
		return WIRE_FALLBACK_NONE;
	case -ECANCELED:
		return WIRE_FALLBACK_BOUNDARY;
	case -EREMOTE:
		return WIRE_FALLBACK_COMMUNICATOR;
	case -ESTALE:
		return WIRE_FALLBACK_VIEW;
	case -ENOSPC:
	case -ENOMEM:
	case -E2BIG:
		return WIRE_FALLBACK_ROOM;
	}
	return WIRE_FALLBACK_BROKEN;
}

static void answer(struct engine *e, uint32_t peer, uint64_t request, int status,
		   enum wire_fallback fallback, const struct landing_slot *slot)
{
	struct wire_landed said = { .status = status,
				    .fallback = fallback,
				    .address = slot ? (uintptr_t)slot->memory + PAGE : 0 };

	node_send(e, peer, WIRE_LANDED, request, &said, NULL, 0);
}

static void refuse(struct engine *e, uint32_t peer, uint64_t request, int status,
		   enum wire_fallback fallback)
{
	if (e->rounds.landing)
		e->rounds.landing->refused[fallback]++;
	answer(e, peer, request, status, fallback, NULL);
}

/* Called without the lock, by the engine thread or after its end. */
static void on_brought(struct rounds_get *get, int result)
{
	struct landing_request *one = get->owner;
	struct engine *e = one->engine;

	pthread_mutex_lock(&e->lock);
	one->over = true;
	one->over_ms = monotonic_ms();
	one->result = result;
	if (result)
		e->rounds.landing->refused[why(one)]++;
	else
		e->rounds.landing->brought += get->size;
	atomic_store(&label_of(one->slot)->complete, !result);
	pthread_mutex_unlock(&e->lock);
	node_wake(e);
}

void landing_turn(struct engine *e, uint64_t now)
{
	struct landing *c = e->rounds.landing;
	struct landing_request *one, *next;

	assert(node_is_engine_thread(e));
	if (!c)
		return;
	count_boundaries(e, c, now);
	LIST_FOREACH_SAFE (one, &c->list, link, next) {
		if (one->over && !one->unwanted && one->asked) {
			answer(e, one->peer, one->request, one->result, why(one),
			       one->result ? NULL : one->slot);
			one->asked = false;
		}
		if (!one->over || (!one->unwanted && now < one->over_ms + FETCH_MS))
			continue;
		LIST_REMOVE(one, link);
		put_slot(one->slot);
		free(one);
	}
}

/* ---- PREFETCH and VIEW_CLOSE ---- */

static struct landing_request *find_request(const struct landing *c, const uint64_t id[2])
{
	struct landing_request *one;

	if (!c)
		return NULL;
	LIST_FOREACH (one, &c->list, link)
		if (!memcmp(one->id, id, sizeof(one->id)))
			return one;
	return NULL;
}

void landing_close(struct engine *e, const uint64_t id[2])
{
	struct landing_request *one = find_request(e->rounds.landing, id);

	if (!one)
		return;
	one->unwanted = true;
	rounds_end(e, &one->get);
}

static int sum(const struct wire_piece *pieces, uint32_t n, uint64_t *bytes)
{
	*bytes = 0;
	for (uint32_t i = 0; i < n; i++)
		if (!pieces[i].size)
			return -EINVAL;
		else if (!u64_add(*bytes, pieces[i].size, bytes) || *bytes > LANDING_SLOT)
			return -E2BIG;
	return 0;
}

static int check(const struct wire_prefetch *asked, size_t tail_size)
{
	return asked->count && asked->count <= NODE_PIECES_MAX && asked->id[0] &&
			       asked->view[0] &&
			       tail_size == asked->count * sizeof(struct wire_piece)
		       ? 0
		       : -EINVAL;
}

static enum wire_fallback fits(struct engine *e, const struct wire_prefetch *asked)
{
	if (!e->rounds.landing || !e->rounds.table || !communicator_number(e))
		return WIRE_FALLBACK_COMMUNICATOR;
	if (asked->tier >= STATE_TIERS ||
	    !communicator_reaches(e, (enum state_tier)asked->tier))
		return WIRE_FALLBACK_TIER;
	return asked->soon && !come_soon(e) ? WIRE_FALLBACK_BOUNDARY : WIRE_FALLBACK_NONE;
}

/* Returns how long the round may wait for a boundary: the job's own timeout at most, as any
 * process that may read can ask, and occupies a slot.
 */
static unsigned wait_of(const struct engine *e, const struct wire_prefetch *asked)
{
	return asked->wait_ms ? (unsigned)u64_min(asked->wait_ms, e->timeout_ms) : 1;
}

static struct landing_request *prefetch_new(struct engine *e, uint32_t peer,
					    const struct wire_prefetch *asked, const void *tail)
{
	size_t size = asked->count * sizeof(struct wire_piece);
	struct landing_request *one = calloc(1, sizeof(*one) + size);

	if (!one)
		return NULL;
	memcpy(one->pieces, tail, size);
	memcpy(one->id, asked->id, sizeof(one->id));
	memcpy(one->view.id, asked->view, sizeof(one->view.id));
	one->engine = e;
	one->peer = peer;
	one->view.n = asked->count;
	one->view.pieces = one->pieces;
	one->get = (struct rounds_get){ .view = &one->view,
					.wait_ms = wait_of(e, asked),
					.done = on_brought,
					.owner = one };
	return one;
}

/* Starts a round that brings the bytes into a slot. */
static int bring(struct engine *e, struct landing_request *one)
{
	int rc = sum(one->pieces, one->view.n, &one->get.size);

	if (rc)
		return rc;
	if (may_have_slot(e->rounds.landing, one->peer, monotonic_ms()))
		one->slot = take_slot(e->rounds.landing, one->id);
	if (!one->slot)
		return -ENOSPC;
	one->get.out = one->slot->memory + PAGE;
	rc = rounds_begin(e, &one->get);
	if (rc)
		put_slot(one->slot);
	return rc;
}

static int begin(struct engine *e, uint32_t peer, uint64_t request,
		 const struct wire_prefetch *asked, const void *tail)
{
	struct landing_request *one = prefetch_new(e, peer, asked, tail);
	int rc = one ? bring(e, one) : -ENOMEM;

	if (rc) {
		free(one);
		return rc;
	}
	one->request = request;
	one->asked = true;
	LIST_INSERT_HEAD(&e->rounds.landing->list, one, link);
	return 0;
}

void landing_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		   const void *body, const void *tail, size_t tail_size)
{
	struct wire_prefetch asked;
	struct landing_request *one;
	enum wire_fallback fallback;
	int rc;

	memcpy(&asked, body, sizeof(asked));
	one = find_request(e->rounds.landing, asked.id);
	if (one) { /* the mount asks again */
		one->peer = peer;
		one->request = header->request;
		one->asked = true;
		return;
	}
	rc = check(&asked, tail_size);
	fallback = fits(e, &asked);
	if (!rc && fallback)
		rc = -EREMOTE;
	if (!rc && (rc = begin(e, peer, header->request, &asked, tail)))
		fallback = rc == -EINVAL ? WIRE_FALLBACK_BROKEN : WIRE_FALLBACK_ROOM;
	if (rc)
		refuse(e, peer, header->request, rc,
		       fallback ? fallback : WIRE_FALLBACK_BROKEN);
}

/* ---- words ---- */

static void describe(const struct landing *c, FILE *out)
{
	fprintf(out, "for mounts: brought %llu bytes, %u of %u slots in use, boundaries ",
		(unsigned long long)c->brought, c->nslots - count_free(c), c->nslots);
	if (c->period_ms == UINT64_MAX)
		fputs("are not coming", out);
	else
		fprintf(out, "every %llu ms", (unsigned long long)c->period_ms);
	fallback_describe(c->refused, out);
}

char *landing_text(struct engine *e)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	rounds_report(e, out);
	if (e->rounds.landing)
		describe(e->rounds.landing, out);
	return text_end(out, &text);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/place.h"
#include "engine/serve-arena.h"
#include "engine/serve-swap.h"
#include "engine/serve.h"
#include "engine/swap-text.h"

#include <errno.h>
#include <string.h>

enum { READS_MAX = 256, ASKED_MAX = 4, FIGURES_MS = 100 };

/* One READ: from the disk's thread come `ended` and the bytes, all else is the engine thread's. */
struct swap_read {
	struct swap_read *next;
	struct swapped *of;
	uint32_t peer;
	struct wire_read asked;
	uint64_t requests[ASKED_MAX]; /* that are to have the answer */
	unsigned nrequests;
	uint64_t began_ms;
	bool answered; /* it took too long */
	bool ended;    /* under the lock of swapped */
	int status;
	struct registry_hold *hold;
	struct place_read io;
	uint8_t bytes[];
};

struct swapped {
	struct engine *engine;
	pthread_mutex_t lock; /* of ended and status; the innermost */
	pthread_cond_t came;
	struct swap_read *reads;
	unsigned count;
	uint64_t told_ms; /* when figures were put into the control page */
};

int serve_swap_init(struct engine *e)
{
	e->swapped = calloc(1, sizeof(*e->swapped));
	if (!e->swapped)
		return -ENOMEM;
	e->swapped->engine = e;
	pthread_mutex_init(&e->swapped->lock, NULL);
	pthread_cond_init(&e->swapped->came, NULL);
	return 0;
}

/* ---- reads ---- */

static void on_read(struct place_read *io, int rc)
{
	struct swap_read *r = io->owner;
	struct swapped *s = r->of;

	pthread_mutex_lock(&s->lock);
	r->status = rc;
	r->ended = true;
	pthread_cond_broadcast(&s->came);
	node_wake(s->engine); /* inside: from here on r and s may go */
	pthread_mutex_unlock(&s->lock);
}

static bool has_ended(struct swapped *s, const struct swap_read *r)
{
	bool ended;

	pthread_mutex_lock(&s->lock);
	ended = r->ended;
	pthread_mutex_unlock(&s->lock);
	return ended;
}

static void answer(struct engine *e, struct swap_read *r, int status)
{
	for (unsigned i = 0; i < r->nrequests && !r->answered; i++)
		serve_data(e, r->peer, r->requests[i], status, r->bytes, r->asked.size);
	r->answered = true;
}

static void drop(struct swapped *s, struct swap_read **at)
{
	struct swap_read *r = *at;

	*at = r->next;
	s->count--;
	registry_hold_put(r->hold);
	free(r);
}

void serve_swap_free(struct engine *e)
{
	struct swapped *s = e->swapped;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	for (const struct swap_read *r = s->reads; r; r = r->next)
		while (!r->ended)
			pthread_cond_wait(&s->came, &s->lock);
	pthread_mutex_unlock(&s->lock);
	while (s->reads)
		drop(s, &s->reads);
	pthread_cond_destroy(&s->came);
	pthread_mutex_destroy(&s->lock);
	free(s);
	e->swapped = NULL;
}

/* What the reader sees: a hold, and where in the row.  -EREMOTE: it is in memory. */
static int find_hold(struct engine *e, const struct wire_read *read,
		     struct registry_hold **hold, uint64_t *at)
{
	int rc;

	if (read->view[0]) {
		rc = views_hold(&e->views, read->view, read->offset, read->size, hold, at);
	} else {
		*at = read->offset;
		rc = registry_hold(&e->registry, read->epoch, read->state, read->offset,
				   read->size, hold);
	}
	return rc || *hold ? rc : -EREMOTE;
}

/* Asked again by the same reader, or by another of its threads, and there is nothing newer since. */
static bool join(struct swapped *s, uint32_t peer, uint64_t request,
		 const struct wire_read *read, const struct registry_hold *hold)
{
	for (struct swap_read *r = s->reads; r; r = r->next) {
		if (r->answered || r->peer != peer || r->nrequests == ASKED_MAX ||
		    memcmp(&r->asked, read, sizeof(*read)) != 0 ||
		    !place_holds_same(r->hold->hold, hold->hold))
			continue;
		r->requests[r->nrequests++] = request;
		return true;
	}
	return false;
}

static int begin(struct swapped *s, uint32_t peer, uint64_t request,
		 const struct wire_read *read, struct registry_hold *hold, uint64_t at)
{
	struct swap_read *r = s->count < READS_MAX ? malloc(sizeof(*r) + read->size + 1) : NULL;

	if (!r)
		return s->count < READS_MAX ? -ENOMEM : -EAGAIN;
	*r = (struct swap_read){ .next = s->reads,
				 .of = s,
				 .peer = peer,
				 .asked = *read,
				 .requests = { request },
				 .nrequests = 1,
				 .began_ms = monotonic_ms(),
				 .hold = hold,
				 .io = { .state = hold->state,
					 .hold = hold->hold,
					 .offset = at,
					 .size = read->size,
					 .memory = r->bytes,
					 .done = on_read,
					 .owner = r } };
	s->reads = r;
	s->count++;
	place_read(hold->place, &r->io);
	return 0;
}

/* Takes the hold. */
static int join_or_begin(struct swapped *s, uint32_t peer, uint64_t request,
			 const struct wire_read *read, struct registry_hold *hold, uint64_t at)
{
	bool joined = join(s, peer, request, read, hold);
	int rc = joined ? 0 : begin(s, peer, request, read, hold, at);

	if (joined || rc)
		registry_hold_put(hold);
	return rc;
}

bool serve_swap_read(struct engine *e, uint32_t peer, uint64_t request,
		     const struct wire_read *read)
{
	struct registry_hold *hold = NULL;
	uint64_t at = 0;
	int rc;

	if (!e->swapped || read->size > WIRE_CHUNK)
		return false;
	rc = find_hold(e, read, &hold, &at);
	if (rc == -EREMOTE)
		return false;
	if (!rc)
		rc = join_or_begin(e->swapped, peer, request, read, hold, at);
	if (rc)
		serve_data(e, peer, request, rc, NULL, 0);
	else
		serve_swap_turn(e, monotonic_ms());
	return true;
}

/* ---- figures ---- */

static void put(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_relaxed);
}

static void show_figures(struct engine *e)
{
	struct control_page *c = e->registry.control;
	struct place_figures f;
	uint64_t in = 0, out = 0;

	place_figures(e->registry.place, &f);
	for (int kind = 0; kind < PLACE_KINDS; kind++) {
		in += f.timers[kind][PLACE_IN].bytes;
		out += f.timers[kind][PLACE_OUT].bytes;
	}
	put(&c->swap_in_bytes, in);
	put(&c->swap_out_bytes, out);
	put(&c->swap_errors, f.errors);
	put(&c->pinned_bytes, f.pinned.size * f.pinned.count);
	put(&c->pinned_lent, f.pinned.size * f.pinned.lent);
}

void serve_swap_turn(struct engine *e, uint64_t now)
{
	struct swapped *s = e->swapped;

	if (!s)
		return;
	for (struct swap_read **at = &s->reads; *at;) {
		struct swap_read *r = *at;

		if (has_ended(s, r)) {
			answer(e, r, r->status);
			drop(s, at);
			continue;
		}
		if (now >= r->began_ms + e->timeout_ms)
			answer(e, r, -ETIMEDOUT);
		at = &r->next;
	}
	if (now >= s->told_ms + FIGURES_MS) {
		s->told_ms = now;
		show_figures(e);
	}
}

/* ---- words ---- */

static char *text_about(struct engine *e, const char *what)
{
	if (!strcmp(what, "arena"))
		return serve_arena_text(e);
	if (!e->registry.place)
		return strdup("none\n");
	return strcmp(what, "swap") ? swap_text_pinned(&e->registry)
				    : swap_text_states(&e->registry);
}

void serve_about(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	struct wire_about about;
	struct wire_told told = { 0 };
	CLEANUP(free) char *text = NULL;

	memcpy(&about, body, sizeof(about));
	if (!wire_text_ok(about.what, sizeof(about.what)) ||
	    (strcmp(about.what, "swap") && strcmp(about.what, "pinned") &&
	     strcmp(about.what, "arena"))) {
		node_ack(e, peer, request, -EINVAL);
		return;
	}
	text = text_about(e, about.what);
	if (!text) {
		node_ack(e, peer, request, -ENOMEM);
		return;
	}
	told.size = (uint32_t)u64_min(strlen(text), WIRE_CHUNK);
	node_send(e, peer, WIRE_TOLD, request, &told, text, told.size);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/swap-text.h"
#include "engine/rounds/landing.h"
#include "engine/serve/serve-arena.h"
#include "engine/serve/serve-pending.h"
#include "engine/serve/serve-swap.h"
#include "engine/serve/serve.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <string.h>

enum { FIGURES_MS = 100 };

/* ---- reads ---- */

static void on_read(struct swapper_read *io, int rc)
{
	pending_reads_came(io->owner, rc);
}

static int find(struct engine *e, const struct wire_read *read, struct pending_found *f)
{
	int rc;

	if (read->view[0]) {
		rc = view_owner_hold(&e->views, read->view, read->offset, read->size, &f->hold,
				     &f->at);
	} else {
		f->at = read->offset;
		rc = registry_hold(&e->registry, read->epoch, read->state, read->offset,
				   read->size, &f->hold);
	}
	return rc || f->hold ? rc : -ESTALE;
}

static void put_found(struct engine *e, struct pending_found *f)
{
	registry_hold_put(f->hold);
}

static bool same(const struct pending_found *a, const struct pending_found *b)
{
	return swapper_pins_same(a->hold->hold, b->hold->hold);
}

static int begin(struct engine *e, struct pending_read *r)
{
	struct registry_hold *hold = r->found.hold;

	r->io = (struct swapper_read){ .state = hold->state,
				       .pin = hold->hold,
				       .offset = hold->at + r->found.at,
				       .size = r->asked.size,
				       .memory = r->bytes,
				       .done = on_read,
				       .owner = r };
	swapper_read(hold->place, &r->io);
	return 0;
}

static void cancel(struct pending_read *r)
{
	swapper_read_cancel(&r->io);
}

/* What is held does not change. */
static int check(struct engine *e, struct pending_read *r)
{
	swapper_log_failure(r->found.hold->place, &r->io.failure);
	return r->status;
}

const struct pending_source serve_swap_source = {
	.find = find,
	.put = put_found,
	.same = same,
	.begin = begin,
	.cancel = cancel,
	.check = check,
};

/* ---- figures ---- */

static void show_figures(struct engine *e)
{
	struct control_page *c = e->registry.control;
	struct swapper_figures f;
	uint64_t in = 0, out = 0;

	swapper_figures(e->registry.place, &f);
	for (int kind = 0; kind < SWAPPER_KINDS; kind++) {
		in += f.timers[kind][SWAPPER_IN].bytes;
		out += f.timers[kind][SWAPPER_OUT].bytes;
	}
	control_put(&c->swap_in_bytes, in);
	control_put(&c->swap_out_bytes, out);
	control_put(&c->swap_errors, f.errors);
	control_put(&c->swap_damaged, f.file.damaged_blocks);
	control_put(&c->pinned_bytes, f.pinned.size * f.pinned.count);
	control_put(&c->pinned_lent, f.pinned.size * f.pinned.lent);
}

void serve_swap_turn(struct engine *e, uint64_t now)
{
	if (!e->registry.place || now < e->swap_told_ms + FIGURES_MS)
		return;
	e->swap_told_ms = now;
	show_figures(e);
}

/* ---- words ---- */

static char *text_about(struct engine *e, const char *what)
{
	if (!strcmp(what, "nccl"))
		return landing_text(e);
	if (!strcmp(what, "arena"))
		return serve_arena_text(e);
	if (!e->registry.place)
		return strdup("none\n");
	return strcmp(what, "swap") ? swap_text_pinned(&e->registry)
				    : swap_text_states(&e->registry, e->own);
}

void serve_about(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	struct wire_rank_query about;
	struct wire_rank_text told = { 0 };
	CLEANUP(free) char *text = NULL;

	memcpy(&about, body, sizeof(about));
	if (!wire_text_ok(about.what, sizeof(about.what)) ||
	    (strcmp(about.what, "swap") && strcmp(about.what, "pinned") &&
	     strcmp(about.what, "arena") && strcmp(about.what, "nccl"))) {
		node_ack(e, peer, request, -EINVAL);
		return;
	}
	text = text_about(e, about.what);
	if (!text) {
		node_ack(e, peer, request, -ENOMEM);
		return;
	}
	told.size = (uint32_t)swap_text_lines(text, WIRE_CHUNK);
	node_send(e, peer, WIRE_RANK_TEXT, request, &told, text, told.size);
}

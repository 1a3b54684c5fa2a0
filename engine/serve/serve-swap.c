/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/swap-text.h"
#include "engine/rounds/landing.h"
#include "engine/serve/serve-arena.h"
#include "engine/serve/serve-swap.h"
#include "engine/serve/serve.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <string.h>

enum { FIGURES_MS = 100 };

/* ---- figures ---- */

static void show_figures(struct engine *e)
{
	struct control_page *c = e->registry.control;
	struct swapper_figures f;
	uint64_t in = 0, out = 0;

	swapper_figures(e->registry.swapper, &f);
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
	if (!e->registry.swapper || now < e->serve.state->figures_ms + FIGURES_MS)
		return;
	e->serve.state->figures_ms = now;
	show_figures(e);
}

/* ---- words ---- */

static char *text_about(struct engine *e, const char *what)
{
	if (!strcmp(what, "nccl"))
		return landing_text(e);
	if (!strcmp(what, "arena"))
		return serve_arena_text(e);
	if (!e->registry.swapper)
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

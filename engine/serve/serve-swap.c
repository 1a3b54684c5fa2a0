/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/catalog/leaves.h"
#include "engine/node/comms.h"
#include "engine/base/phase.h"
#include "engine/rank/registry-place.h"
#include "engine/rank/swap-text.h"
#include "engine/rounds/landing.h"
#include "engine/serve/serve-arena.h"
#include "engine/serve/serve-swap.h"
#include "engine/serve/serve.h"
#include "engine/swap/swapper.h"

#include <errno.h>
#include <stdio.h>
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

static char *kept_log(struct engine *e)
{
	return log_text();
}

static char *own_comms(struct engine *e)
{
	return comms_text(e->comms);
}

static char *swap(struct engine *e)
{
	return e->registry.swapper ? swap_text_states(&e->registry, e->own) : strdup("none\n");
}

static char *pinned(struct engine *e)
{
	return e->registry.swapper ? swap_text_pinned(&e->registry) : strdup("none\n");
}

static void put_timers(struct engine *e, FILE *out)
{
	phase_put_table(out);
}

/* For a mount's .frag/metrics. */
static void put_phases(struct engine *e, FILE *out)
{
	char labels[32];

	snprintf(labels, sizeof(labels), "rank=\"%u\",", e->rank);
	phase_put_histograms(out, "fragfs_rank_phase", labels);
	phase_put_last_step(out, "fragfs_rank_phase", labels);
}

static void put_leaves(struct engine *e, FILE *out)
{
	if (e->leaves)
		leaves_print(e->leaves, out);
}

static void put_place(struct engine *e, FILE *out)
{
	registry_place_print(&e->registry, out);
}

static const struct {
	const char *what;
	char *(*tell)(struct engine *e);
	void (*put)(struct engine *e, FILE *out); /* where tell is NULL */
} texts[] = {
	{ .what = "swap", .tell = swap },
	{ .what = "pinned", .tell = pinned },
	{ .what = "arena", .tell = serve_arena_text },
	{ .what = "nccl", .tell = landing_text },
	{ .what = "log", .tell = kept_log },
	{ .what = "comms", .tell = own_comms },
	{ .what = "timers", .put = put_timers },
	{ .what = "phases", .put = put_phases },
	{ .what = "place", .put = put_place },
	{ .what = "leaves", .put = put_leaves },
};

/* NULL with errno ENOMEM or EINVAL: there is no such text. */
static char *text_about(struct engine *e, const char *what)
{
	char *text = NULL;
	size_t size;
	unsigned i = 0;
	FILE *out;

	while (i < ARRAY_SIZE(texts) && strcmp(what, texts[i].what) != 0)
		i++;
	errno = i < ARRAY_SIZE(texts) ? ENOMEM : EINVAL;
	if (i == ARRAY_SIZE(texts))
		return NULL;
	if (texts[i].tell)
		return texts[i].tell(e);
	out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	texts[i].put(e, out);
	fclose(out);
	return text;
}

void serve_about(struct engine *e, uint32_t peer, uint64_t request, const void *body)
{
	struct wire_rank_query about;
	struct wire_rank_text told = { 0 };
	CLEANUP(free) char *text = NULL;

	memcpy(&about, body, sizeof(about));
	if (!wire_text_ok(about.what, sizeof(about.what))) {
		node_ack(e, peer, request, -EINVAL);
		return;
	}
	text = text_about(e, about.what);
	if (!text) {
		node_ack(e, peer, request, -errno);
		return;
	}
	told.size = (uint32_t)swap_text_lines(text, WIRE_CHUNK);
	node_send(e, peer, WIRE_RANK_TEXT, request, &told, text, told.size);
}

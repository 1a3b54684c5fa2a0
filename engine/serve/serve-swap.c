/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/serve-swap.h"

#include "engine/serve/serve.h"
#include "engine/swap/swapper.h"

enum { FIGURES_MS = 100 };

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

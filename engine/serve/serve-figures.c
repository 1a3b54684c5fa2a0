/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/serve/serve-figures.h"

#include "engine/rank/devices.h"
#include "engine/serve/serve.h"
#include "engine/swap/swapper.h"

enum { FIGURES_MS = 100 };

static void put_swapper(struct engine *e)
{
	struct control_page *c = e->registry.control;
	struct swapper_figures f;
	uint64_t in = 0, out = 0;

	swapper_figures(e->registry.swapper, &f);
	for (int kind = 0; kind < SWAPPER_KINDS; kind++) {
		in += f.timers[kind][SWAPPER_IN].bytes;
		out += f.timers[kind][SWAPPER_OUT].bytes;
	}
	control_page_put(&c->swap_in_bytes, in);
	control_page_put(&c->swap_out_bytes, out);
	control_page_put(&c->swap_errors, f.errors);
	control_page_put(&c->swap_damaged, f.file.damaged_blocks);
	control_page_put(&c->pinned_bytes, f.pinned.size * f.pinned.count);
	control_page_put(&c->pinned_lent, f.pinned.size * f.pinned.lent);
}

static void put_devices(struct engine *e)
{
	struct control_page *c = e->registry.control;
	struct devices_figures f;

	devices_figures(e->registry.devices, &f);
	control_page_put(&c->device_from_bytes, f.from_bytes);
	control_page_put(&c->device_to_bytes, f.to_bytes);
	control_page_put(&c->device_errors, f.errors);
	control_page_put(&c->device_kept, f.kept);
}

void serve_figures_turn(struct engine *e, uint64_t now)
{
	assert(node_is_engine_thread(e));
	if (e->registry.swapper && now >= e->serve.state->figures_ms + FIGURES_MS) {
		e->serve.state->figures_ms = now;
		put_swapper(e);
	}
	if (e->registry.devices)
		put_devices(e);
}

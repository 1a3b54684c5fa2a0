/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/devices.h"
#include "engine/serve/serve-device.h"

void serve_device_turn(struct engine *e)
{
	struct control_page *c = e->registry.control;
	struct devices_figures f;

	if (!e->registry.devices)
		return;
	devices_figures(e->registry.devices, &f);
	control_put(&c->device_from_bytes, f.from_bytes);
	control_put(&c->device_to_bytes, f.to_bytes);
	control_put(&c->device_errors, f.errors);
	control_put(&c->device_kept, f.kept);
}

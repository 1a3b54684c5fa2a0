/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/rank/registry-internal.h"

int registry_fetch_begin(struct registry *r, struct registry_fetch *f)
{
	return f->version->tier->begin(r, f);
}

bool registry_fetch_cancel(struct registry_fetch *f)
{
	if (!f->version->tier->cancel)
		return false;
	f->version->tier->cancel(f);
	return true;
}

void registry_fetch_log(struct registry_fetch *f)
{
	if (f->version->tier->log)
		f->version->tier->log(f);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/devices.h"
#include "engine/frag-internal.h"
#include "engine/serve-later.h"

#include <errno.h>

enum { KEEP = 256 << 20 };

/* With the lock. */
static int open_devices(struct engine *e, const struct frag_devices *c,
			const struct device_ops *ops)
{
	const struct device_options options = { .stuck_ms = c->timeout_ms,
						.wait_ms = c->timeout_ms,
						.keep = c->keep ? c->keep : KEEP };
	struct devices *d;
	int rc = later_init(e);

	if (!rc)
		rc = devices_open(&d, ops, &options);
	if (rc)
		return rc;
	if (c->keep_host)
		rc = devices_keep_on_host(d, c->keep_host);
	if (rc)
		devices_close(d);
	else
		e->registry.devices = d;
	return rc;
}

int frag_devices_over(struct frag *f, const struct frag_devices *devices,
		      const struct device_ops *ops)
{
	struct engine *e = frag_engine(f);
	struct frag_devices c;
	int rc = 0;

	if (!e || frag_copy_versioned(&c, devices, sizeof(c)))
		return -EINVAL;
	pthread_mutex_lock(&e->lock);
	if (!e->registry.devices)
		rc = open_devices(e, &c, ops);
	pthread_mutex_unlock(&e->lock);
	return rc ? rc : devices_use(e->registry.devices, c.number, c.stream);
}

int frag_devices(struct frag *f, const struct frag_devices *devices)
{
	return frag_devices_over(f, devices, &device_cuda);
}

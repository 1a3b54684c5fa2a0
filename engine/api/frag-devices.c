/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/api/api.h"
#include "engine/base/log.h"
#include "engine/rank/devices.h"
#include "engine/rounds/communicator.h"
#include "engine/rounds/landing.h"
#include "engine/rounds/rounds.h"
#include "engine/serve/serve-pending.h"

#include <errno.h>
#include <string.h>

/* bytes of a device for preserved content, where frag_devices has 0 */
enum { KEEP = 256 << 20 };

/* With the lock. */
static int open_devices(struct engine *e, const struct frag_devices *c,
			const struct device_ops *ops)
{
	const struct device_options options = { .stuck_ms = c->timeout_ms,
						.wait_ms = c->timeout_ms,
						.keep = c->keep ? c->keep : KEEP };
	struct devices *d;
	int rc = serve_pending_init(e);

	if (!rc)
		rc = devices_open(&d, ops, &options);
	if (rc)
		return rc;
	if (c->keep_host)
		rc = devices_preserve_on_host(d, c->keep_host);
	if (rc)
		devices_close(d);
	else
		e->registry.devices = d;
	return rc;
}

/* Returns false if this rank is to have no communicator.  With one hardware queue, ranks'
 * kernels and the communicator's can wait for each other in two orders.
 */
static bool may_connect(struct engine *e)
{
	const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

	if (e->launch.gather_by_host)
		return false;
	if (!queues || strcmp(queues, "1"))
		return true;
	atomic_store(&e->rounds.one_queue, true);
	log_warn("CUDA_DEVICE_MAX_CONNECTIONS=1: what devices have goes by the host");
	return false;
}

/* Makes room for what rounds bring to mounts; without it mounts read by message. */
static void collect_for_mounts(struct engine *e)
{
	int rc = landing_init(e, e->trainer->gather_mem);

	if (rc)
		log_warn("no memory for what rounds bring to mounts: %s", strerror(-rc));
}

/* Connects by the device that was named first. */
static int connect(struct engine *e, const struct frag_devices *c)
{
	const struct collective_options options = { .device = devices_port(e->registry.devices),
						    .number = c->number,
						    .wait_ms = c->timeout_ms,
						    .stuck_ms = c->timeout_ms };
	int rc;

	if (e->rounds.communicator || !may_connect(e))
		return 0;
	pthread_mutex_lock(&e->lock);
	rc = rounds_init(e);
	if (!rc)
		collect_for_mounts(e);
	if (!rc)
		rc = communicator_use(e, &collective_nccl, &options);
	pthread_mutex_unlock(&e->lock);
	return rc;
}

int api_devices_over(struct frag *f, const struct frag_devices *devices,
		     const struct device_ops *ops)
{
	struct engine *e = api_engine(f);
	struct frag_devices c;
	int rc = 0;

	if (!e || api_copy_versioned(&c, devices, sizeof(c)))
		return -EINVAL;
	pthread_mutex_lock(&e->lock);
	if (!e->registry.devices)
		rc = open_devices(e, &c, ops);
	pthread_mutex_unlock(&e->lock);
	if (!rc)
		rc = devices_use(e->registry.devices, c.number, c.stream);
	if (!rc)
		registry_pin_buffers(&e->registry);
	return rc;
}

int frag_devices(struct frag *f, const struct frag_devices *devices)
{
	int rc = api_devices_over(f, devices, &device_cuda);
	struct frag_devices c;

	if (!rc)
		rc = api_copy_versioned(&c, devices, sizeof(c));
	return rc ? rc : connect(f->engine, &c);
}

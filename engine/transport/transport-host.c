/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-memory.h"
#include "engine/transport/transport.h"

#include <errno.h>

struct transport {
	struct transport_memory memory;
};

static int host_open(struct transport **out, const struct transport_config *config)
{
	struct transport *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	transport_memory_init(&t->memory, &transport_host);
	*out = t;
	return 0;
}

static void host_close(struct transport *t)
{
	if (!t)
		return;
	transport_memory_fini(&t->memory);
	free(t);
}

const struct transport_ops transport_host = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.attach = transport_memory_attach,
	.detach = transport_memory_detach,
	.get = transport_memory_get,
	.share = transport_memory_share,
};

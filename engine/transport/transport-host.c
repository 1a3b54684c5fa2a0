/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-memory.h"
#include "engine/transport/transport.h"

#include <errno.h>

struct transport {
	const struct transport_ops *ops;
	struct transport_memory memory;
};

static int host_open(struct transport **out, const struct transport_config *config)
{
	struct transport *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->ops = &transport_host;
	transport_memory_init(&t->memory);
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

static int host_attach(struct transport *t, const struct transport_target *target,
		       uint32_t *peer)
{
	return transport_memory_attach(&t->memory, target, peer);
}

static void host_detach(struct transport *t, uint32_t peer)
{
	transport_memory_detach(&t->memory, peer);
}

static int host_get(struct transport *t, uint32_t peer, const struct iovec *local,
		    unsigned nlocal, const struct iovec *remote, unsigned nremote,
		    void *control, size_t control_size)
{
	return transport_memory_get(&t->memory, peer, local, nlocal, remote, nremote, control,
				    control_size);
}

static int host_share(struct transport *t, uint32_t peer, int fd, uint64_t address,
		      uint64_t size)
{
	return transport_memory_share(&t->memory, peer, fd, address, size);
}

const struct transport_ops transport_host = {
	.name = "host",
	.open = host_open,
	.close = host_close,
	.attach = host_attach,
	.detach = host_detach,
	.get = host_get,
	.share = host_share,
};

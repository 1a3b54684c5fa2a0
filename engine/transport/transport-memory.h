/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_MEMORY_H
#define ENGINE_TRANSPORT_TRANSPORT_MEMORY_H

/* The functions of transport.h for memory, for transports host and loop: they read processes of
 * this machine.  Any thread.
 */

#include "engine/base/slot-map.h"
#include "engine/transport/transport.h"

#include <pthread.h>

struct transport_memory { /* the first member of the transport's struct */
	const struct transport_ops *ops;
	pthread_mutex_t lock;
	struct slot_map processes; /* under lock */
};

void transport_memory_init(struct transport_memory *m, const struct transport_ops *ops);
/* No get may be under way. */
void transport_memory_fini(struct transport_memory *m);

int transport_memory_attach(struct transport *t, const struct transport_target *target,
			    uint32_t *peer);
void transport_memory_detach(struct transport *t, uint32_t peer);
int transport_memory_get(struct transport *t, uint32_t peer, const struct iovec *local,
			 unsigned nlocal, const struct iovec *remote, unsigned nremote,
			 void *control, size_t control_size);
int transport_memory_share(struct transport *t, uint32_t peer, int fd, uint64_t address,
			   uint64_t size);

#endif

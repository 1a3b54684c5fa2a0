/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_LISTEN_H
#define ENGINE_JOB_LISTEN_H

/* The address at which a rank listens: this host's, on the way to the master, and a port. */

#include "engine/node/node.h"

enum { LISTEN_PORT_FIRST = 21017, LISTEN_PORT_LAST = 21117 };

/* Opens a rank's message transport.  Rank 0 listens at FRAG_PORT; without that, at the port of
 * `before` ("HOST:PORT", where its last process listened, or "") if it is free, else at the
 * first free port of the range.  Other ranks listen at any port.
 * -EINVAL: master_ip is no IPv4 address.
 * -EADDRNOTAVAIL: this host has no route to the master.
 * -EADDRINUSE: no such port is free.
 * -errno of the transport.
 */
int listen_open(struct engine *e, const char *master_ip, const char *before);

/* Returns the master's name, as it was given. */
static inline const char *listen_master(const struct engine *e)
{
	return e->launch.master_addr[0] ? e->launch.master_addr : "127.0.0.1";
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_JOB_LISTEN_H
#define ENGINE_JOB_LISTEN_H

/* Where a rank listens: the host's address towards the master, and a port. */

#include "engine/node/node.h"

enum { LISTEN_PORT_FIRST = 21017, LISTEN_PORT_LAST = 21117 };

/* Opens a rank's message transport, at this host's address towards the master, whose address is
 * given: rank 0 at FRAG_PORT or the first free port of that range (before, "HOST:PORT", if that
 * is free: where this job's was), the others anywhere.  -EADDRNOTAVAIL: there is no way to the
 * master; -errno.
 */
int listen_open(struct engine *e, const char *master_ip, const char *before);

/* By name. */
static inline const char *listen_master(const struct engine *e)
{
	return e->launch.master_addr[0] ? e->launch.master_addr : "127.0.0.1";
}

#endif

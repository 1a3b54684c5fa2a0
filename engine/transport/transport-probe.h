/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_PROBE_H
#define ENGINE_TRANSPORT_TRANSPORT_PROBE_H

/* Probes: after a connection to a peer broke, a probe connects to its address to learn whether
 * anybody listens there, which libzmq, trying again by itself, does not tell.  At most
 * TRANSPORT_PROBES_MAX run at a time; another peer is probed when libzmq fails the next time.
 */

#include "engine/transport/transport-bell.h"

enum { TRANSPORT_PROBES_MAX = 64 };

struct transport_probes {
	struct {
		uint32_t peer;
		int fd; /* -1: the connection was refused */
		uint64_t until_ms;
	} probes[TRANSPORT_PROBES_MAX];
	unsigned n;
	struct transport_bell *bell; /* the owner's: rings when turn has something to do */
};

/* Starts a probe.
 * -EALREADY: one for that peer is under way.
 * -EAGAIN: TRANSPORT_PROBES_MAX are under way.
 * -EINVAL: not an IPv4 address.
 * Errors of socket and connect.
 */
int transport_probe_start(struct transport_probes *p, uint32_t peer, const char *address);
void transport_probe_turn(struct transport_probes *p);
/* Ends a probe whose connection was refused, and gives its peer; false: none. */
bool transport_probe_refused(struct transport_probes *p, uint32_t *peer);
void transport_probe_close(struct transport_probes *p);

#endif

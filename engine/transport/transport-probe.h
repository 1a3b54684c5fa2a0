/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_PROBE_H
#define ENGINE_TRANSPORT_TRANSPORT_PROBE_H

/* Whether anybody listens at an address to which a connection broke: one is begun and given up.
 * libzmq tries again by itself, but does not say what it was told.  At most so many at a time:
 * whom there is no room for is looked at when libzmq has failed the next time.
 */

#include "engine/base/base.h"

enum { TRANSPORT_PROBES_MAX = 64 };

struct transport_probes {
	struct {
		uint32_t peer;
		int fd; /* -1: it was refused */
		uint64_t until_ms;
	} probes[TRANSPORT_PROBES_MAX];
	unsigned n;
};

/* The descriptor to wait for (POLLOUT), until a turn; -errno. */
int transport_probe_start(struct transport_probes *p, uint32_t peer, const char *address);
void transport_probe_turn(struct transport_probes *p);
/* Takes one at whose address nobody listens. */
bool transport_probe_refused(struct transport_probes *p, uint32_t *peer);
void transport_probe_close(struct transport_probes *p);

#endif

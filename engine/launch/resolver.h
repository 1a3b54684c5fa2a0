/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_RESOLVER_H
#define ENGINE_LAUNCH_RESOLVER_H

/* Resolves a host's name to its IPv4 address.  A name server may take half a minute to answer:
 * each name is resolved in a detached thread, which frees the resolver if the caller has
 * forgotten it.
 */

#include "engine/base/base.h"

enum { RESOLVER_IP = 16 };

struct resolver; /* one name that is being resolved */

/* Asks for a host's address, and never waits: *r is NULL at first, and the caller calls again
 * after -EAGAIN.  An address as host resolves to itself.
 * -EAGAIN: not resolved yet.
 * -ENOENT: no such host.
 * -ENOMEM
 */
int resolver_ask(struct resolver **r, const char *host, char ip[RESOLVER_IP]);
void resolver_forget(struct resolver *r);

/* Resolves a host's name, and waits for the name server.
 * -ENOENT: no such host.
 */
int resolver_wait(const char *host, char ip[RESOLVER_IP]);

#endif

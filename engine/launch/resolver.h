/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_LAUNCH_RESOLVER_H
#define ENGINE_LAUNCH_RESOLVER_H

/* The IPv4 address of a host by its name.  A name server may take half a minute to answer: it
 * is asked in a thread of its own, which outlives whoever has asked if it must.
 */

#include "engine/base/base.h"

enum { RESOLVER_IP = 16 };

struct resolver; /* a question that is under way */

/* Call again until there is an answer, with *r NULL at first: 0 and ip, or -ENOENT: no such
 * host.  -EAGAIN: not yet. -ENOMEM.  An address is its own answer.  Never waits.
 */
int resolver_ask(struct resolver **r, const char *host, char ip[RESOLVER_IP]);
void resolver_forget(struct resolver *r);

/* The same, but waits.  -ENOENT. */
int resolver_wait(const char *host, char ip[RESOLVER_IP]);

#endif

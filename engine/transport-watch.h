/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_WATCH_H
#define ENGINE_TRANSPORT_WATCH_H

/* Follows what libzmq does with one of its sockets: the descriptors it listens and speaks on are
 * closed in forked children (fork.h), and who is refused is logged once.
 */

#include "engine/base.h"

struct transport_watch {
	void *events;   /* the socket on which libzmq tells */
	bool listening; /* else connecting */
	bool logged;
};

/* name: unique in the context.  -errno. */
int transport_watch_open(struct transport_watch *w, void *context, void *socket,
			 const char *name, bool listening);
void transport_watch_close(struct transport_watch *w);

/* Takes in all that has happened. */
void transport_watch_turn(struct transport_watch *w);

#endif

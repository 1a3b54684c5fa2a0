/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_WATCH_H
#define ENGINE_TRANSPORT_TRANSPORT_WATCH_H

/* Follows the events of one of libzmq's sockets.  The socket's descriptors are closed in forked
 * children (fork.h); a refused peer is logged once; a peer that refuses us is reported to the
 * owner; connections beyond accepted_max are closed, so that strangers leave descriptors to the
 * trainer.
 */

#include "engine/base/fork.h"

struct transport_watch {
	void *events;   /* the socket on which libzmq tells */
	bool listening; /* else connecting */
	bool logged, logged_full;
	unsigned accepted, accepted_max;      /* connections that are open; listening */
	uint8_t is_accepted[FORK_FD_MAX / 8]; /* by descriptor */
};

/* name: unique in the context.  accepted_max 0: connecting.  -errno. */
int transport_watch_open(struct transport_watch *w, void *context, void *socket,
			 const char *name, unsigned accepted_max);
void transport_watch_close(struct transport_watch *w);

enum transport_watch_news {
	TRANSPORT_BROKEN,         /* the connection, or the attempt to make one, failed */
	TRANSPORT_HUNG_UP,        /* the peer hung up in the handshake */
	TRANSPORT_REFUSED,        /* the peer refused us; libzmq does not try again */
	TRANSPORT_LEFT,           /* the peer that had connected to us on fd is gone */
	TRANSPORT_LEFT_OR_REUSED, /* as LEFT, but fd is another connection's already */
};

/* Tells the owner what happened to the connection to address (our own when listening). */
typedef void (*transport_watch_tell)(void *owner, const char *address, int fd,
				     enum transport_watch_news news);

/* Handles all events that have come. */
void transport_watch_turn(struct transport_watch *w, transport_watch_tell tell, void *owner);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_WATCH_H
#define ENGINE_TRANSPORT_TRANSPORT_WATCH_H

/* Follows what libzmq does with one of its sockets: the descriptors it listens and speaks on
 * are closed in forked children (fork.h), who is refused is logged once, who refuses us is
 * said, and connections beyond accepted_max are closed: strangers are to leave descriptors to
 * the trainer.
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
	TRANSPORT_BROKEN,         /* the connection, or the try to make one */
	TRANSPORT_HUNG_UP,        /* on us in the handshake */
	TRANSPORT_REFUSED,        /* libzmq does not try again */
	TRANSPORT_LEFT,           /* who had connected to us, on descriptor fd */
	TRANSPORT_LEFT_OR_REUSED, /* the same, but fd is of another of our connections already */
};

/* What happened to the connection to address, our own when listening. */
typedef void (*transport_watch_tell)(void *owner, const char *address, int fd,
				     enum transport_watch_news news);

/* Takes in all that has happened. */
void transport_watch_turn(struct transport_watch *w, transport_watch_tell tell, void *owner);

#endif

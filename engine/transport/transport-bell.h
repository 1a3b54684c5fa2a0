/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_BELL_H
#define ENGINE_TRANSPORT_TRANSPORT_BELL_H

/* The descriptor on which a transport's owner sleeps.  Owner's thread. */

#include "engine/transport/transport.h"

/* A descriptor that wakes the owner: an epoll of other descriptors and of an eventfd. */
struct transport_bell {
	int epoll; /* readable when the bell has rung or a descriptor is ready */
	int event;
	bool rung;
};

/* A bell without descriptors, which may be closed. */
#define TRANSPORT_BELL_NONE ((struct transport_bell){ .epoll = -1, .event = -1 })

/* Opens a bell that has rung. */
int transport_bell_open(struct transport_bell *b);
void transport_bell_close(struct transport_bell *b);
/* Lets fd ring the bell, on EPOLLIN or EPOLLOUT, until transport_bell_unwatch, which comes
 * before close(2): where a forked child has fd's file open, the kernel goes on to watch it.
 */
int transport_bell_watch(struct transport_bell *b, int fd, uint32_t events);
void transport_bell_unwatch(struct transport_bell *b, int fd);
void transport_bell_ring(struct transport_bell *b);
void transport_bell_hush(struct transport_bell *b);

#endif

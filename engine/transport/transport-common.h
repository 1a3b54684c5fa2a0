/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_COMMON_H
#define ENGINE_TRANSPORT_TRANSPORT_COMMON_H

/* What the transports over networks have in common.  Owner's thread. */

#include "engine/transport/transport.h"

/* What wakes the owner: descriptors, and an event of our own. */
struct transport_bell {
	int epoll; /* readable when there is something */
	int event;
	bool rung;
};

/* No descriptor is open: can be closed. */
#define TRANSPORT_BELL_NONE ((struct transport_bell){ .epoll = -1, .event = -1 })

/* It has been rung. */
int transport_bell_open(struct transport_bell *b);
void transport_bell_close(struct transport_bell *b);
/* Until it is closed, fd rings it too: EPOLLIN or EPOLLOUT. */
int transport_bell_watch(struct transport_bell *b, int fd, uint32_t events);
void transport_bell_ring(struct transport_bell *b);
void transport_bell_hush(struct transport_bell *b);

/* A descriptor that a forked child does not keep, and its end; -1: none.  -errno of whoever
 * opened it.
 */
int transport_keep_fd(int *to, int fd);
void transport_close_fd(int fd);

/* Of a message; -EMSGSIZE. */
int transport_message_size(const struct iovec *parts, unsigned nparts, uint64_t *size);

/* All of its bytes, to `to`. */
void transport_message_fill(void *to, const struct iovec *parts, unsigned nparts);

/* Asks until one is free: `bind` returns -EADDRINUSE where it is not.  In host byte order. */
int transport_bind_anywhere(int (*bind)(void *arg, uint16_t port), void *arg);

#endif

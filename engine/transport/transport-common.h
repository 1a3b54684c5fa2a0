/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_COMMON_H
#define ENGINE_TRANSPORT_TRANSPORT_COMMON_H

/* Code shared by the transports over networks.  Owner's thread. */

#include "engine/transport/transport.h"

#include <netinet/in.h>

/* Bounds on the bytes of messages that wait to be sent, to one peer and to all.  Messages below
 * TRANSPORT_QUEUE_SMALL are bounded by their number alone.
 */
enum {
	TRANSPORT_QUEUE_SMALL = 16 << 10,
	TRANSPORT_QUEUE_PEER = 64 << 20,
	TRANSPORT_QUEUE_ALL = 512 << 20,
};

/* How often in a row a peer hangs up on us before it counts as one that refuses us: once may be
 * the end of a process that would have taken us.
 */
enum { TRANSPORT_HANGUPS = 2 };

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

/* Stores a descriptor that was just opened in *to, and has it closed in forked children; fd <
 * 0: returns -errno.  transport_close_fd closes it, and does nothing with -1.
 */
int transport_keep_fd(int *to, int fd);
void transport_close_fd(int fd);

/* Sums up the parts.  -EMSGSIZE: more than a message may have. */
int transport_message_size(const struct iovec *parts, unsigned nparts, uint64_t *size);

/* Copies all parts, one behind the other. */
void transport_message_fill(void *to, const struct iovec *parts, unsigned nparts);

/* Bytes of an address, "tcp://10.0.0.1:21017" or "ucx://10.0.0.1:20001", with its NUL. */
enum { TRANSPORT_ADDRESS = 256 };

/* Cuts an address whose scheme is "tcp://" or "ucx://" into "SCHEME://HOST" and the port, 0
 * where there is none.
 * -EINVAL: it has another scheme, no host, or no port behind its colon.
 */
int transport_address_cut(const char *address, const char *scheme, char host[TRANSPORT_ADDRESS],
			  unsigned *port);
/* Parses such an address.  -EINVAL: the host is not an IPv4 address, either. */
int transport_address_parse(const char *address, const char *scheme, struct sockaddr_in *at);
/* Returns the address without "tcp://", as people and job files have it. */
const char *transport_address_shown(const char *address);

/* Calls `bind` with random ports, in host byte order, as long as it returns -EADDRINUSE. */
int transport_bind_anywhere(int (*bind)(void *arg, uint16_t port), void *arg);

/* Returns how many connections are accepted: the expected ones, and for strangers a quarter of
 * the descriptors that the process may open.
 */
unsigned transport_accepted_max(const struct transport_config *config);

#endif

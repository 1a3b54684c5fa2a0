/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_ADDRESS_H
#define ENGINE_TRANSPORT_TRANSPORT_ADDRESS_H

/* Addresses of transports over networks. */

#include "engine/base/base.h"

#include <netinet/in.h>

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
int transport_address_bind_anywhere(int (*bind)(void *arg, uint16_t port), void *arg);

#endif

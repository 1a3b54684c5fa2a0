/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_SOCKET_H
#define ENGINE_TRANSPORT_TRANSPORT_SOCKET_H

/* libzmq's sockets as transport zmq wants them, and its addresses. */

#include "engine/transport/transport.h"

enum { TRANSPORT_ADDRESS = 256 };

/* -errno of what libzmq said last. */
int transport_socket_error(void);

/* -EMFILE: libzmq would get too few to start, and abort. */
int transport_socket_check_descriptors(void);

/* A ROUTER with all its options but those of CURVE. */
int transport_socket_open(void *context, const struct transport_config *config, void **socket);

/* "tcp://HOST[:PORT]", and what it was bound to. */
int transport_socket_bind(void *socket, const char *address, char bound[TRANSPORT_ADDRESS]);

/* -> "tcp://HOST" and the port, 0 where it is absent.  -EINVAL. */
int transport_socket_parse(const char *address, char host[TRANSPORT_ADDRESS], unsigned *port);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_SOCKET_H
#define ENGINE_TRANSPORT_TRANSPORT_SOCKET_H

/* Sockets of libzmq with the options that transport zmq needs. */

#include "engine/transport/transport-address.h"
#include "engine/transport/transport.h"

/* The -errno of the last error of libzmq. */
int transport_socket_error(void);

/* -EMFILE: too few descriptors are left for a context of libzmq, which then would abort. */
int transport_socket_check_descriptors(void);

/* Opens a ROUTER and sets its options, but for those of CURVE. */
int transport_socket_open(void *context, const struct transport_config *config, void **socket);

/* Binds to "tcp://HOST[:PORT]"; bound: the address with its port. */
int transport_socket_bind(void *socket, const char *address, char bound[TRANSPORT_ADDRESS]);

#endif

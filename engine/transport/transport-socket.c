/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <zmq.h>

enum {
	DESCRIPTORS = 32, /* what libzmq needs to start; it aborts where it gets none */
	LINGER_MS = 100,  /* on close, for what was sent just before */
	HANDSHAKE_MS = 10000,
	CONNECT_MS = 3000,
	RECONNECT_MS = 50, /* at first, doubled up to */
	RECONNECT_MAX_MS = 1000,
	/* finds cut connections; the engine's own heartbeats find dead peers */
	HEARTBEAT_MS = 5000,
	HEARTBEAT_TIMEOUT_MS = 20000,
	BACKLOG = 4096,
	RECEIVED_MAX = 64,   /* messages of a peer that we have not taken */
	CURVE_OVERHEAD = 64, /* bytes by which CURVE lengthens a message, at most */
};

int transport_socket_error(void)
{
	switch (errno) {
	case ENODEV:
		return -EADDRNOTAVAIL;
	case EPROTONOSUPPORT:
	case ENOCOMPATPROTO:
		return -EINVAL;
	case EHOSTUNREACH:
		return -ENOTCONN;
	default:
		return errno < ZMQ_HAUSNUMERO ? -errno : -EIO;
	}
}

static int set_int(void *socket, int option, int value)
{
	return zmq_setsockopt(socket, option, &value, sizeof(value)) ? transport_socket_error()
								     : 0;
}

static int set_options(void *socket, const struct transport_config *config)
{
	int queue = config->queue_max ? (int)u64_min(config->queue_max, INT32_MAX) : 1000;
	const struct {
		int option, value;
	} options[] = {
		{ ZMQ_LINGER, LINGER_MS },
		{ ZMQ_SNDHWM, queue },
		{ ZMQ_RCVHWM, queue < RECEIVED_MAX ? queue : RECEIVED_MAX },
		{ ZMQ_IPV6, 0 },
		{ ZMQ_ROUTER_MANDATORY, 1 },
		{ ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS },
		{ ZMQ_CONNECT_TIMEOUT, CONNECT_MS },
		{ ZMQ_RECONNECT_IVL, RECONNECT_MS },
		{ ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS },
		{ ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS },
		{ ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS },
		{ ZMQ_HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS },
		{ ZMQ_BACKLOG, BACKLOG },
	};
	int64_t size = TRANSPORT_MESSAGE_MAX + CURVE_OVERHEAD;
	int rc = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &size, sizeof(size))
			 ? transport_socket_error()
			 : 0;

	for (size_t i = 0; i < ARRAY_SIZE(options) && !rc; i++)
		rc = set_int(socket, options[i].option, options[i].value);
	return rc;
}

int transport_socket_check_descriptors(void)
{
	int fds[DESCRIPTORS], n = 0, rc = 0;

	while (n < DESCRIPTORS && !rc) {
		fds[n] = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
		if (fds[n] < 0)
			fds[n] = eventfd(0, EFD_CLOEXEC); /* stdin is closed */
		if (fds[n] < 0)
			rc = -errno;
		else
			n++;
	}
	while (n)
		close(fds[--n]);
	return rc;
}

struct binding {
	void *socket;
	char host[TRANSPORT_ADDRESS];
};

static int bind_at(void *arg, uint16_t port)
{
	const struct binding *b = arg;
	char endpoint[TRANSPORT_ADDRESS + 16];

	snprintf(endpoint, sizeof(endpoint), "%s:%u", b->host, port);
	return zmq_bind(b->socket, endpoint) ? transport_socket_error() : 0;
}

int transport_socket_bind(void *socket, const char *address, char bound[TRANSPORT_ADDRESS])
{
	struct binding b = { .socket = socket };
	size_t size = TRANSPORT_ADDRESS;
	unsigned port;
	int rc = transport_address_cut(address, "tcp://", b.host, &port);

	if (!rc)
		rc = port ? bind_at(&b, (uint16_t)port)
			  : transport_address_bind_anywhere(bind_at, &b);
	if (rc)
		return rc;
	return zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, bound, &size)
		       ? transport_socket_error()
		       : 0;
}

int transport_socket_open(void *context, const struct transport_config *config, void **socket)
{
	int rc;

	*socket = zmq_socket(context, ZMQ_ROUTER);
	if (!*socket)
		return transport_socket_error();
	rc = set_options(*socket, config);
	if (rc) {
		zmq_close(*socket);
		*socket = NULL;
	}
	return rc;
}

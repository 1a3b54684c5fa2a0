/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/listen.h"
#include "engine/log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* The address of this host by which the master is reached. */
static int local_ip(const char *master, char *ip, size_t size)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_DGRAM }, *found;
	struct sockaddr_in own;
	socklen_t length = sizeof(own);
	CLEANUP(close) int fd = -1;
	int rc = getaddrinfo(master, "21017", &hints, &found);

	if (rc) {
		log_warn("%s: %s", master, gai_strerror(rc));
		return -EADDRNOTAVAIL;
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	rc = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) ||
			     getsockname(fd, (struct sockaddr *)&own, &length)
		     ? -EADDRNOTAVAIL
		     : 0;
	freeaddrinfo(found);
	if (!rc)
		inet_ntop(AF_INET, &own.sin_addr, ip, (socklen_t)size);
	return rc;
}

static int bind_port(struct engine *e, const char *ip, unsigned port)
{
	char address[96];

	snprintf(address, sizeof(address), "tcp://%s:%u", ip, port);
	return node_open_messages(e, address);
}

static int bind_zero(struct engine *e, const char *ip, const char *before)
{
	unsigned port = e->launch.port ? e->launch.port : LISTEN_PORT_FIRST;
	unsigned last = e->launch.port ? e->launch.port : LISTEN_PORT_LAST;
	const char *colon = strrchr(before, ':');
	int rc = -EADDRINUSE;

	if (!e->launch.port && colon)
		rc = bind_port(e, ip, (unsigned)atoi(colon + 1));
	for (; port <= last && rc == -EADDRINUSE; port++)
		rc = bind_port(e, ip, port);
	return rc;
}

int listen_open(struct engine *e, const char *before)
{
	const char *master = e->launch.master_addr[0] ? e->launch.master_addr : "127.0.0.1";
	char ip[INET_ADDRSTRLEN];
	int rc;

	if (e->message_ops != &transport_zmq)
		return node_open_messages(e, NULL);
	rc = local_ip(master, ip, sizeof(ip));
	if (!rc)
		rc = e->rank ? bind_port(e, ip, 0) : bind_zero(e, ip, before);
	if (rc)
		log_warn("cannot listen on this host's address towards %s: %s", master,
			 strerror(-rc));
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/job/listen.h"
#include "engine/node/bulk.h"
#include "engine/node/writer-memory.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* Finds the address of this host on the way to the master: connect(2) of a datagram socket
 * chooses it, and sends nothing.
 */
static int local_ip(const char *master_ip, char *ip, size_t size)
{
	struct sockaddr_in master = { .sin_family = AF_INET,
				      .sin_port = htons(LISTEN_PORT_FIRST) },
			   own;
	socklen_t length = sizeof(own);
	CLEANUP(close) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (inet_pton(AF_INET, master_ip, &master.sin_addr) != 1)
		return -EINVAL;
	if (fd < 0 || connect(fd, (struct sockaddr *)&master, sizeof(master)) ||
	    getsockname(fd, (struct sockaddr *)&own, &length))
		return -EADDRNOTAVAIL;
	inet_ntop(AF_INET, &own.sin_addr, ip, (socklen_t)size);
	return 0;
}

static int bind_port(struct engine *e, const char *ip, unsigned port)
{
	char address[96];

	int rc;

	snprintf(address, sizeof(address), "tcp://%s:%u", ip, port);
	rc = node_open_messages(e, address);
	if (!rc && e->launch.bulk)
		bulk_open(e, address);
	return rc;
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

int listen_open(struct engine *e, const char *master_ip, const char *before)
{
	char ip[INET_ADDRSTRLEN];
	int rc;

	writer_memory_init(e);
	if (e->messages.ops != &transport_zmq)
		return node_open_messages(e, NULL);
	rc = local_ip(master_ip, ip, sizeof(ip));
	if (rc)
		return rc;
	return e->rank ? bind_port(e, ip, 0) : bind_zero(e, ip, before);
}

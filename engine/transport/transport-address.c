/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
	PORT_FIRST = 20000, /* below the kernel's ephemeral ports */
	PORT_LAST = 32767,
	PORT_TRIES = 256,
};

int transport_address_cut(const char *address, const char *scheme, char host[TRANSPORT_ADDRESS],
			  unsigned *port)
{
	const char *name = address + strlen(scheme), *colon = strrchr(address, ':');
	char *end;

	if (strncmp(address, scheme, strlen(scheme)) || strlen(address) >= TRANSPORT_ADDRESS)
		return -EINVAL;
	if (colon < name)
		colon = address + strlen(address);
	if (colon == name)
		return -EINVAL;
	snprintf(host, TRANSPORT_ADDRESS, "%.*s", (int)(colon - address), address);
	*port = 0;
	if (!*colon)
		return 0;
	if (colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	*port = (unsigned)strtoul(colon + 1, &end, 10);
	return *end || *port > 65535 ? -EINVAL : 0;
}

int transport_address_parse(const char *address, const char *scheme, struct sockaddr_in *at)
{
	char host[TRANSPORT_ADDRESS];
	struct in_addr ip;
	unsigned port;
	int rc = transport_address_cut(address, scheme, host, &port);

	if (rc || inet_pton(AF_INET, host + strlen(scheme), &ip) != 1)
		return -EINVAL;
	*at = (struct sockaddr_in){ .sin_family = AF_INET,
				    .sin_port = htons((uint16_t)port),
				    .sin_addr = ip };
	return 0;
}

const char *transport_address_shown(const char *address)
{
	return strncmp(address, "tcp://", strlen("tcp://")) ? address
							    : address + strlen("tcp://");
}

int transport_address_bind_anywhere(int (*bind)(void *arg, uint16_t port), void *arg)
{
	int rc = -EADDRINUSE;

	for (int i = 0; i < PORT_TRIES && rc == -EADDRINUSE; i++) {
		uint16_t random;

		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return -errno;
		rc = bind(arg, (uint16_t)(PORT_FIRST + random % (PORT_LAST + 1 - PORT_FIRST)));
	}
	return rc;
}

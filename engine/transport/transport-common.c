/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-common.h"

#include "engine/base/fork.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	PORT_FIRST = 20000, /* below the kernel's ephemeral ports */
	PORT_LAST = 32767,
	PORT_TRIES = 256,
	STRANGERS_MAX = 4096,
};

int transport_keep_fd(int *to, int fd)
{
	if (fd < 0)
		return -errno;
	fork_close(fd);
	*to = fd;
	return 0;
}

void transport_close_fd(int fd)
{
	if (fd < 0)
		return;
	fork_forget(fd);
	close(fd);
}

int transport_bell_open(struct transport_bell *b)
{
	int rc = transport_keep_fd(&b->epoll, epoll_create1(EPOLL_CLOEXEC));

	if (!rc)
		rc = transport_keep_fd(&b->event, eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
	b->rung = true;
	return rc ? rc : transport_bell_watch(b, b->event, EPOLLIN);
}

void transport_bell_close(struct transport_bell *b)
{
	transport_close_fd(b->event);
	transport_close_fd(b->epoll);
}

int transport_bell_watch(struct transport_bell *b, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events };

	return epoll_ctl(b->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void transport_bell_unwatch(struct transport_bell *b, int fd)
{
	epoll_ctl(b->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void transport_bell_ring(struct transport_bell *b)
{
	ssize_t n = b->rung ? 0 : write(b->event, &(uint64_t){ 1 }, sizeof(uint64_t));

	(void)n; /* a full counter has rung enough */
	b->rung = true;
}

void transport_bell_hush(struct transport_bell *b)
{
	uint64_t count;
	ssize_t n = b->rung ? read(b->event, &count, sizeof(count)) : 0;

	(void)n; /* empty already */
	b->rung = false;
}

int transport_message_size(const struct iovec *parts, unsigned nparts, uint64_t *size)
{
	*size = 0;
	for (unsigned i = 0; i < nparts; i++)
		if (!u64_add(*size, parts[i].iov_len, size))
			return -EMSGSIZE;
	return *size > TRANSPORT_MESSAGE_MAX ? -EMSGSIZE : 0;
}

void transport_message_fill(void *to, const struct iovec *parts, unsigned nparts)
{
	char *at = to;

	for (unsigned i = 0; i < nparts; i++) {
		if (parts[i].iov_len)
			memcpy(at, parts[i].iov_base, parts[i].iov_len);
		at += parts[i].iov_len;
	}
}

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

int transport_bind_anywhere(int (*bind)(void *arg, uint16_t port), void *arg)
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

unsigned transport_accepted_max(const struct transport_config *config)
{
	struct rlimit limit = { .rlim_cur = 0 };

	getrlimit(RLIMIT_NOFILE, &limit);
	return config->expected + (unsigned)u64_min(limit.rlim_cur / 4, STRANGERS_MAX);
}

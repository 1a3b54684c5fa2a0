/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-bell.h"

#include "engine/transport/transport-common.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

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

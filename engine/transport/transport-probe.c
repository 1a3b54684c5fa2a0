/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-probe.h"

#include "engine/transport/transport-address.h"
#include "engine/transport/transport-common.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { PROBE_MS = 3000 };

static int begin_probe(const char *address)
{
	struct sockaddr_in to;
	int fd, rc = transport_address_parse(address, "tcp://", &to);

	if (rc)
		return rc;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS &&
	    errno != ECONNREFUSED) {
		rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}

static void end_probe(struct transport_probes *p, int fd)
{
	transport_bell_unwatch(p->bell, fd);
	transport_close_fd(fd);
}

int transport_probe_start(struct transport_probes *p, uint32_t peer, const char *address)
{
	int fd = -EAGAIN;

	for (unsigned i = 0; i < p->n; i++)
		if (p->probes[i].peer == peer)
			return -EALREADY;
	if (p->n < TRANSPORT_PROBES_MAX)
		fd = begin_probe(address);
	if (fd < 0)
		return fd;
	transport_keep_fd(&p->probes[p->n].fd, fd);
	p->probes[p->n].peer = peer;
	p->probes[p->n++].until_ms = monotonic_ms() + PROBE_MS;
	if (transport_bell_watch(p->bell, fd, EPOLLOUT))
		transport_bell_ring(p->bell);
	return 0;
}

/* Returns 0 while the probe goes on; 1: somebody listens; -errno. */
static int outcome(int fd, uint64_t until_ms)
{
	struct pollfd poller = { .fd = fd, .events = POLLOUT };
	socklen_t size = sizeof(int);
	int error = 0;

	if (poll(&poller, 1, 0) < 1)
		return monotonic_ms() < until_ms ? 0 : -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
		return -errno;
	if (!error && getpeername(fd, &(struct sockaddr){ 0 }, &(socklen_t){ 0 }))
		return -ECONNREFUSED; /* connect(2) has taken the error */
	return error ? -error : 1;
}

static void remove_at(struct transport_probes *p, unsigned i)
{
	if (p->probes[i].fd >= 0)
		end_probe(p, p->probes[i].fd);
	p->probes[i] = p->probes[--p->n];
}

void transport_probe_turn(struct transport_probes *p)
{
	for (unsigned i = p->n; i--;) {
		int rc = p->probes[i].fd < 0 ? 0
					     : outcome(p->probes[i].fd, p->probes[i].until_ms);

		if (rc == -ECONNREFUSED) {
			end_probe(p, p->probes[i].fd);
			p->probes[i].fd = -1;
		} else if (rc) {
			remove_at(p, i);
		}
	}
}

bool transport_probe_refused(struct transport_probes *p, uint32_t *peer)
{
	for (unsigned i = 0; i < p->n; i++) {
		if (p->probes[i].fd >= 0)
			continue;
		*peer = p->probes[i].peer;
		remove_at(p, i);
		return true;
	}
	return false;
}

void transport_probe_close(struct transport_probes *p)
{
	while (p->n)
		remove_at(p, 0);
}

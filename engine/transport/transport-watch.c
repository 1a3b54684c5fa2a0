/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-watch.h"

#include "engine/base/log.h"
#include "engine/transport/transport-socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

enum {
	OPENED = ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED,
	REFUSED = ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH,
	HUNG_UP = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL,
	BROKEN = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED,
	FOLLOWED = OPENED | REFUSED | HUNG_UP | BROKEN,
};

struct event {
	uint16_t what;
	uint32_t value;    /* OPENED, DISCONNECTED: the descriptor; HUNG_UP: errno */
	char address[256]; /* of the listening side */
};

int transport_watch_open(struct transport_watch *w, void *context, void *socket,
			 const char *name, unsigned accepted_max)
{
	char endpoint[64];
	int rc = 0;

	snprintf(endpoint, sizeof(endpoint), "inproc://watch-%s", name);
	memset(w, 0, sizeof(*w));
	w->listening = accepted_max != 0;
	w->accepted_max = accepted_max;
	if (zmq_socket_monitor(socket, endpoint, FOLLOWED))
		return transport_socket_error();
	w->events = zmq_socket(context, ZMQ_PAIR);
	if (!w->events || zmq_connect(w->events, endpoint)) {
		rc = transport_socket_error();
		transport_watch_close(w);
	}
	return rc;
}

void transport_watch_close(struct transport_watch *w)
{
	if (w->events)
		zmq_close(w->events);
	w->events = NULL;
}

static bool take_event(struct transport_watch *w, struct event *event)
{
	uint8_t head[6];
	int n = zmq_recv(w->events, head, sizeof(head), ZMQ_DONTWAIT);

	if (n < 0)
		return false;
	n = zmq_recv(w->events, event->address, sizeof(event->address) - 1, ZMQ_DONTWAIT);
	if (n < 0)
		return false;
	event->address[u64_min((uint64_t)n, sizeof(event->address) - 1)] = '\0';
	memcpy(&event->what, head, sizeof(event->what));
	memcpy(&event->value, head + sizeof(event->what), sizeof(event->value));
	return true;
}

static int port_of(const char *address)
{
	const char *colon = strrchr(address, ':');

	return colon ? atoi(colon + 1) : -1;
}

/* The descriptor may long be another file's: events come late. */
static bool is_still_ours(const struct transport_watch *w, int fd, const char *address)
{
	struct sockaddr_in name = { .sin_family = AF_UNSPEC };
	socklen_t size = sizeof(name);
	struct sockaddr *generic = (struct sockaddr *)&name;

	if (w->listening ? getsockname(fd, generic, &size) : getpeername(fd, generic, &size))
		return false;
	return name.sin_family == AF_INET && ntohs(name.sin_port) == port_of(address);
}

/* libzmq tells before it closes: a descriptor that is still open may be the one that has ended.
 */
static bool is_reused(const struct transport_watch *w, int fd, const char *address)
{
	struct tcp_info info;
	socklen_t size = sizeof(info);

	return is_still_ours(w, fd, address) &&
	       !getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) &&
	       info.tcpi_state == TCP_ESTABLISHED;
}

static void opened(const struct transport_watch *w, int fd, const char *address)
{
	CLEANUP(close) int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy >= 0 && is_still_ours(w, copy, address) && fork_close_as(fd, copy) == -ENFILE)
		log_debug("descriptor %d is too high to be closed in forked children", fd);
}

/* ---- a bound on accepted connections ---- */

/* Marks fd as accepted or not, and returns whether it was.  A descriptor beyond the table is
 * not counted.
 */
static bool mark(struct transport_watch *w, int fd, bool is)
{
	uint8_t *byte, bit;
	bool was;

	if (fd < 0 || fd >= FORK_FD_MAX)
		return is;
	byte = &w->is_accepted[fd / 8];
	bit = (uint8_t)(1u << fd % 8);
	was = *byte & bit;
	*byte = is ? *byte | bit : *byte & (uint8_t)~bit;
	return was;
}

/* The descriptor is libzmq's, which may have closed it: a duplicate is examined and shut down.
 */
static void hang_up(const struct transport_watch *w, int fd, const char *address)
{
	CLEANUP(close) int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (copy >= 0 && is_still_ours(w, copy, address))
		shutdown(copy, SHUT_RDWR);
}

static void accepted(struct transport_watch *w, int fd, const char *address)
{
	if (!mark(w, fd, true))
		w->accepted++;
	if (w->accepted <= w->accepted_max)
		return;
	hang_up(w, fd, address);
	if (!w->logged_full)
		log_warn("more than %u connections at %s: the newest are closed",
			 w->accepted_max, address);
	w->logged_full = true;
}

static void disconnected(struct transport_watch *w, int fd)
{
	if (mark(w, fd, false))
		w->accepted--;
}

static void log_refused(struct transport_watch *w, const char *address)
{
	if (!w->logged)
		log_info("someone without the job's key was refused at %s", address);
	w->logged = true;
}

/* A handshake that took too long, or that libzmq ended, has another errno. */
static bool is_hang_up(const struct event *event)
{
	return event->what & HUNG_UP && (event->value == EPIPE || event->value == ECONNRESET);
}

static void of_listening(struct transport_watch *w, const struct event *event,
			 transport_watch_tell tell, void *owner)
{
	int fd = (int)event->value;

	if (event->what & ZMQ_EVENT_DISCONNECTED)
		tell(owner, event->address, fd,
		     is_reused(w, fd, event->address) ? TRANSPORT_LEFT_OR_REUSED
						      : TRANSPORT_LEFT);
	if (event->what & ZMQ_EVENT_ACCEPTED)
		accepted(w, fd, event->address);
	else if (event->what & ZMQ_EVENT_DISCONNECTED)
		disconnected(w, fd);
	else if (event->what & REFUSED)
		log_refused(w, event->address);
}

static void of_connecting(const struct event *event, transport_watch_tell tell, void *owner)
{
	if (event->what & REFUSED)
		tell(owner, event->address, -1, TRANSPORT_REFUSED);
	else if (is_hang_up(event))
		tell(owner, event->address, -1, TRANSPORT_HUNG_UP);
	else if (event->what & BROKEN)
		tell(owner, event->address, -1, TRANSPORT_BROKEN);
}

void transport_watch_turn(struct transport_watch *w, transport_watch_tell tell, void *owner)
{
	struct event event;

	while (take_event(w, &event)) {
		if (event.what & OPENED)
			opened(w, (int)event.value, event.address);
		if (w->listening)
			of_listening(w, &event, tell, owner);
		else
			of_connecting(&event, tell, owner);
	}
}

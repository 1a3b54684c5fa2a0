/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/transport/tls/tls-peers.h"
#include "engine/transport/transport-address.h"
#include "engine/transport/transport-bell.h"
#include "engine/transport/transport-common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

/* One socket for each peer, and no thread: all is done in the owner's calls.  A message is its
 * size, 4 bytes, and its bytes.  It is encrypted out of the sender's memory when the peer's
 * socket has room, else kept; one that is sent in part is lost with its connection.
 */
enum {
	HEAD = 4,
	CONNECT_MS = 3000,
	HANDSHAKE_MS = 10000,
	RECONNECT_MS = 50, /* at first, doubled up to */
	RECONNECT_MAX_MS = 1000,
	ACCEPT_AGAIN_MS = 100, /* when no descriptor was left */
	LINGER_MS = 100,       /* on close, for what was sent just before */
	SILENT_MS = 20000,     /* a machine that acknowledges nothing for so long is gone */
	KEEPALIVE_S = 5,
	KEEPALIVES = 3,
	BACKLOG = 4096,
	QUEUE_MAX = 1000,
	SENDING_MAX = 64 << 10, /* bytes kept for the socket beyond which messages are kept */
	RECORD = 16 << 10,      /* bytes of a record of TLS */
	TURN_EVENTS = 64,
	TURN_MESSAGES = 8, /* of a peer, before the others have their turn */
	DRAINED_MAX = 1 << 20,
	LARGE = 256 << 10, /* such a message ends the turn: the owner has others to serve */
	SPARES = 4,
	HUGE_PAGE = 2 << 20,
};

#define NEVER UINT64_MAX

struct transport {
	const struct transport_ops *ops;
	pid_t pid;                   /* of the process that opened the transport */
	struct tls_context *context; /* NULL: plain */
	struct transport_bell bell;
	int timer;
	uint64_t timer_ms; /* when the timer wakes the owner; NEVER */
	int listener;
	uint64_t accept_again_ms; /* NEVER: the listener accepts now */
	unsigned accepted_max;
	uint32_t queue_max;
	bool told_refused, told_full;
	bool any_broken; /* a send has found that a connection is broken */
	unsigned ngone;  /* peers that transport_tls_gone is to tell of */
	struct tls_peers peers;
	struct tls_peer *delivering; /* whose message the owner looks at; NULL: none */
	/* the room of that message; NULL: the message is not large */
	void *delivered;
	void *spare[SPARES]; /* rooms for large messages */
	unsigned nspare;
	char address[TRANSPORT_ADDRESS];
};

/* ---- descriptors ---- */

static void set_timer(struct transport *t, uint64_t until_ms)
{
	struct itimerspec at = { .it_value = { (time_t)(until_ms / 1000),
					       (long)(until_ms % 1000) * 1000000 } };

	if (until_ms >= t->timer_ms)
		return;
	t->timer_ms = until_ms;
	timerfd_settime(t->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void set_deadline(struct transport *t, struct tls_peer *peer, uint64_t ms)
{
	peer->until_ms = monotonic_ms() + ms;
	set_timer(t, peer->until_ms);
}

static int poll_for(struct transport *t, int fd, uint32_t before, uint32_t events, void *who)
{
	struct epoll_event event = { .events = events, .data.ptr = who };
	int how = before ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	return epoll_ctl(t->bell.epoll, how, fd, &event) ? -errno : 0;
}

/* Returns true if the peer has asked, and does not take the answers as fast as they come.  None
 * of its messages are taken until it does: more answers would have to be kept for it.  That
 * holds for peers that have connected to us.  Those that we have connected to send answers: if
 * these were not taken either, two that ask each other could wait for each other for ever.
 */
static bool is_behind(const struct tls_peer *peer)
{
	return !peer->outbound && !peer->is_broken &&
	       (peer->nqueued || tls_stream_waits(&peer->stream) >= SENDING_MAX);
}

static int poll_peer(struct transport *t, struct tls_peer *peer)
{
	uint32_t events = peer->state == TLS_PEER_CONNECTS ? EPOLLOUT : EPOLLIN;
	int rc;

	if (is_behind(peer))
		events = EPOLLOUT;
	else if (tls_stream_waits(&peer->stream))
		events |= EPOLLOUT;
	if (events == peer->events)
		return 0;
	rc = poll_for(t, peer->stream.fd, peer->events, events, peer);
	if (!rc)
		peer->events = events;
	return rc;
}

static void set_options(int fd)
{
	const struct {
		int level, option, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, SILENT_MS },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVES },
	};

	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		setsockopt(fd, options[i].level, options[i].option, &options[i].value,
			   sizeof(options[i].value));
}

/* ---- the end of a connection ---- */

/* Unread bytes would make the kernel reset the connection, and drop what is under way. */
static void drain(int fd)
{
	char bytes[4096];

	for (int n = 0; n < DRAINED_MAX; n += (int)sizeof(bytes))
		if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
			return;
}

static void hang_up(struct transport *t, struct tls_peer *peer)
{
	int fd = peer->stream.fd;

	if (fd < 0)
		return;
	tls_stream_close(&peer->stream, true);
	if (peer->events)
		transport_bell_unwatch(&t->bell, fd);
	peer->events = 0;
	shutdown(fd, SHUT_WR);
	drain(fd);
	transport_close_fd(fd);
	tls_peers_drop_incoming(peer);
	peer->is_broken = false;
}

static void forget(struct transport *t, struct tls_peer *peer)
{
	hang_up(t, peer);
	t->ngone -= peer->is_gone;
	if (peer == t->delivering) { /* deliver frees the peer */
		peer->left = true;
		peer->is_gone = false;
		tls_peers_unnumber(&t->peers, peer);
	} else {
		tls_peers_remove(&t->peers, peer);
	}
}

static void tell_refused(struct transport *t)
{
	if (!t->told_refused)
		log_info("someone without the job's key was refused at %s", t->address);
	t->told_refused = true;
}

static void tell_gone(struct transport *t, struct tls_peer *peer)
{
	t->ngone += !peer->is_gone;
	peer->is_gone = true;
	transport_bell_ring(&t->bell);
}

static void retry(struct transport *t, struct tls_peer *peer)
{
	peer->state = TLS_PEER_WAITS;
	peer->pause_ms = u64_min(u64_max(2 * peer->pause_ms, RECONNECT_MS), RECONNECT_MAX_MS);
	set_deadline(t, peer, peer->pause_ms);
}

/* why: -EACCES: the peer has another key or protocol.  -ECONNREFUSED: nobody listens. */
static void lose_outbound(struct transport *t, struct tls_peer *peer, int why)
{
	bool in_handshake = peer->state == TLS_PEER_HANDSHAKES;

	if (why == -ECONNREFUSED)
		tell_gone(t, peer);
	if (why == -EACCES)
		peer->hangups = TRANSPORT_HANGUPS;
	else if (in_handshake && why == -ECONNRESET)
		peer->hangups++;
	if (why == -EACCES)
		peer->state = TLS_PEER_REFUSED;
	else
		retry(t, peer);
}

static void lose(struct transport *t, struct tls_peer *peer, int why)
{
	hang_up(t, peer);
	if (peer->outbound) {
		lose_outbound(t, peer, why);
		return;
	}
	if (peer->state == TLS_PEER_HANDSHAKES && why != -ETIMEDOUT)
		tell_refused(t);
	peer->state = TLS_PEER_OVER;
	if (peer->number == TLS_PEERS_NO_NUMBER)
		forget(t, peer);
	else
		tell_gone(t, peer);
}

/* The next turn closes the connection: this call may come from the owner's receive. */
static void mark_broken(struct transport *t, struct tls_peer *peer)
{
	peer->is_broken = t->any_broken = true;
	transport_bell_ring(&t->bell);
}

/* ---- send ---- */

struct record { /* puts small parts into one record */
	struct tls_stream *stream;
	size_t n;
	int rc;
	uint8_t bytes[RECORD];
};

static void record_flush(struct record *r)
{
	if (r->n && !r->rc)
		r->rc = tls_stream_write(r->stream, r->bytes, r->n);
	r->n = 0;
}

static void record_add(struct record *r, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	while (size && !r->rc) {
		size_t part = u64_min(size, sizeof(r->bytes) - r->n);

		/* straight out of the sender's memory */
		if (!r->n && size >= sizeof(r->bytes)) {
			part = size - size % sizeof(r->bytes);
			r->rc = tls_stream_write(r->stream, at, part);
		} else {
			memcpy(r->bytes + r->n, at, part);
			r->n += part;
			if (r->n == sizeof(r->bytes))
				record_flush(r);
		}
		at += part;
		size -= part;
	}
}

static int write_message(struct tls_peer *peer, const struct iovec *parts, unsigned nparts,
			 uint64_t size)
{
	const uint8_t head[HEAD] = { (uint8_t)size, (uint8_t)(size >> 8), (uint8_t)(size >> 16),
				     (uint8_t)(size >> 24) };
	struct record r;

	r.stream = &peer->stream;
	r.n = 0;
	r.rc = 0;
	record_add(&r, head, sizeof(head));
	for (unsigned i = 0; i < nparts; i++)
		record_add(&r, parts[i].iov_base, parts[i].iov_len);
	record_flush(&r);
	return r.rc;
}

/* Sends the messages that are kept, as far as the socket takes them.  -errno: the connection is
 * broken.
 */
static int pump(struct transport *t, struct tls_peer *peer)
{
	struct tls_message *m;
	int rc = tls_stream_flush(&peer->stream);

	while (!rc && (m = tls_peers_unqueue(&t->peers, peer))) {
		struct iovec part = { m->bytes, m->size };

		rc = write_message(peer, &part, 1, m->size);
		free(m);
		if (!rc)
			rc = tls_stream_flush(&peer->stream);
	}
	if (rc == -EAGAIN)
		rc = 0;
	if (!rc && !is_behind(peer))
		/* the peer may have sent questions meanwhile */
		tls_peers_set_ready(&t->peers, peer);
	return rc ? rc : poll_peer(t, peer);
}

static int keep_message(struct transport *t, struct tls_peer *peer, const struct iovec *parts,
			unsigned nparts, uint64_t size)
{
	struct tls_message *m;

	if (peer->nqueued >= t->queue_max)
		return -EAGAIN;
	if (size >= TRANSPORT_QUEUE_SMALL &&
	    (peer->queued_bytes + size > TRANSPORT_QUEUE_PEER ||
	     t->peers.queued_bytes + size > TRANSPORT_QUEUE_ALL))
		return -EAGAIN;
	m = tls_peers_queue(&t->peers, peer, size);
	if (!m)
		return -ENOMEM;
	transport_message_fill(m->bytes, parts, nparts);
	return 0;
}

static int send_now(struct transport *t, struct tls_peer *peer, const struct iovec *parts,
		    unsigned nparts, uint64_t size)
{
	int rc = write_message(peer, parts, nparts, size);

	if (!rc)
		rc = tls_stream_flush(&peer->stream);
	if (!rc || rc == -EAGAIN)
		rc = poll_peer(t, peer);
	if (rc)
		mark_broken(t, peer);
	return 0; /* lost, as a message that was under way when the connection broke */
}

static int send_or_keep(struct transport *t, struct tls_peer *peer, const struct iovec *parts,
			unsigned nparts, uint64_t size)
{
	if (peer->state == TLS_PEER_OVER || (peer->is_broken && !peer->outbound))
		return -ENOTCONN;
	if (peer->state == TLS_PEER_REFUSED) {
		forget(t, peer);
		return -ENOTCONN;
	}
	if (peer->state == TLS_PEER_OPEN && !peer->is_broken && !peer->nqueued &&
	    tls_stream_waits(&peer->stream) < SENDING_MAX)
		return send_now(t, peer, parts, nparts, size);
	return keep_message(t, peer, parts, nparts, size);
}

static int transport_tls_send(struct transport *t, uint32_t number, const struct iovec *parts,
			      unsigned nparts)
{
	struct tls_peer *peer = tls_peers_get(&t->peers, number);
	uint64_t size;
	int rc = transport_message_size(parts, nparts, &size);

	if (rc)
		return rc;
	if (!peer || !tls_context_enter())
		return -ENOTCONN;
	rc = send_or_keep(t, peer, parts, nparts, size);
	tls_context_leave();
	return rc;
}

/* ---- connect ---- */

static void go_on(struct transport *t, struct tls_peer *peer)
{
	int rc = tls_stream_handshake(&peer->stream);

	if (!rc) {
		peer->state = TLS_PEER_OPEN;
		peer->hangups = 0;
		peer->pause_ms = 0;
		rc = pump(t, peer);
		/* bytes may have come with the end of the handshake */
		tls_peers_set_ready(&t->peers, peer);
	} else if (rc == -EAGAIN) {
		rc = poll_peer(t, peer);
	}
	if (rc)
		lose(t, peer, rc);
}

static int begin_stream(struct transport *t, struct tls_peer *peer)
{
	int fd = peer->stream.fd;
	int rc = tls_stream_open(&peer->stream, t->context, fd, peer->outbound);

	peer->state = TLS_PEER_HANDSHAKES;
	set_deadline(t, peer, HANDSHAKE_MS);
	return rc;
}

static void on_connected(struct transport *t, struct tls_peer *peer)
{
	socklen_t size = sizeof(int);
	int error = 0;

	if (getsockopt(peer->stream.fd, SOL_SOCKET, SO_ERROR, &error, &size))
		error = errno;
	if (!error)
		error = -begin_stream(t, peer);
	if (error)
		lose(t, peer, -error);
	else
		go_on(t, peer);
}

static int open_socket(int *fd)
{
	int rc = transport_keep_fd(
		fd, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	if (!rc)
		set_options(*fd);
	return rc;
}

static void connect_out(struct transport *t, struct tls_peer *peer)
{
	struct sockaddr_in to;
	int rc = transport_address_parse(peer->address, "tcp://", &to);

	peer->state = TLS_PEER_CONNECTS;
	if (!rc)
		rc = open_socket(&peer->stream.fd);
	if (!rc && connect(peer->stream.fd, (const struct sockaddr *)&to, sizeof(to)) &&
	    errno != EINPROGRESS)
		rc = -errno;
	set_deadline(t, peer, CONNECT_MS);
	if (!rc)
		rc = poll_peer(t, peer);
	if (rc)
		lose(t, peer, rc);
}

static int transport_tls_connect(struct transport *t, const char *address, uint32_t *number)
{
	struct tls_peer *peer;
	struct sockaddr_in to;
	bool fresh;
	int rc = transport_address_parse(address, "tcp://", &to);

	if (rc || !to.sin_port)
		return -EINVAL;
	rc = tls_peers_connect(&t->peers, address, &peer, &fresh);
	if (rc)
		return rc;
	if (fresh)
		connect_out(t, peer);
	*number = peer->number;
	return 0;
}

static void transport_tls_disconnect(struct transport *t, uint32_t number)
{
	struct tls_peer *peer = tls_peers_get(&t->peers, number);

	if (!peer || (peer->outbound && --peer->refs) || !tls_context_enter())
		return;
	forget(t, peer);
	tls_context_leave();
}

static bool transport_tls_reads_only(struct transport *t, uint32_t number)
{
	const struct tls_peer *peer = tls_peers_get(&t->peers, number);

	return peer && !peer->outbound && (t->context ? peer->stream.reads_only : false);
}

static bool transport_tls_refused(struct transport *t, uint32_t number)
{
	const struct tls_peer *peer = tls_peers_get(&t->peers, number);

	return peer && peer->hangups >= TRANSPORT_HANGUPS;
}

static struct tls_peer *next_gone(struct tls_peer_list *list)
{
	struct tls_peer *peer;

	TAILQ_FOREACH (peer, list, all)
		if (peer->is_gone)
			break;
	return peer;
}

static bool transport_tls_gone(struct transport *t, uint32_t *number)
{
	struct tls_peer *peer;

	*number = TLS_PEERS_NO_NUMBER;
	/* a peer may have lost its number since */
	while (t->ngone && *number == TLS_PEERS_NO_NUMBER) {
		peer = next_gone(&t->peers.inbound);
		if (!peer)
			peer = next_gone(&t->peers.outbound);
		*number = peer->number;
		t->ngone--;
		peer->is_gone = false;
		if (!peer->outbound)
			tls_peers_remove(&t->peers, peer);
	}
	return *number != TLS_PEERS_NO_NUMBER;
}

/* ---- accept ---- */

static void add_accepted(struct transport *t, int fd)
{
	struct tls_peer *peer = tls_peers_accept(&t->peers);
	int rc;

	if (!peer) {
		transport_close_fd(fd);
		return;
	}
	set_options(fd);
	peer->stream.fd = fd;
	rc = begin_stream(t, peer);
	if (rc)
		lose(t, peer, -ETIMEDOUT);
	else
		go_on(t, peer);
}

static void refuse_one_more(struct transport *t, int fd)
{
	if (!t->told_full)
		log_warn("more than %u connections at %s: the newest are closed",
			 t->accepted_max, t->address);
	t->told_full = true;
	transport_close_fd(fd);
}

/* Stops accepting for a while: where no descriptor or memory is left, the listener stays
 * readable and would wake us for ever.
 */
static void pause_accepting(struct transport *t)
{
	transport_bell_unwatch(&t->bell, t->listener);
	t->accept_again_ms = monotonic_ms() + ACCEPT_AGAIN_MS;
	set_timer(t, t->accept_again_ms);
}

static void on_incoming(struct transport *t)
{
	for (int i = 0; i < TURN_EVENTS; i++) {
		int fd = -1, rc;

		rc = transport_keep_fd(
			&fd, accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
		if (!rc && t->peers.ninbound >= t->accepted_max)
			refuse_one_more(t, fd);
		else if (!rc)
			add_accepted(t, fd);
		else if (rc == -EAGAIN)
			return;
		else if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -ENOBUFS) {
			pause_accepting(t);
			return;
		}
	}
}

/* ---- receive ---- */

struct tls_delivery {
	transport_receive receive;
	void *owner;
	int left;  /* messages that may still be delivered */
	int count; /* delivered */
};

static int read_up_to(struct tls_peer *peer, uint8_t *to, uint64_t have, uint64_t end)
{
	while (have < end) {
		ssize_t n = tls_stream_read(&peer->stream, to + have, end - have);

		if (n < 0)
			return (int)n;
		have += (uint64_t)n;
		peer->have += (uint64_t)n;
	}
	return 0;
}

/* To touch a page for the first time costs more than to copy it: rooms are used again. */
static uint8_t *get_room(struct transport *t, uint64_t size)
{
	void *room;

	if (size < LARGE)
		return malloc(size + 1); /* NULL is not a message of 0 bytes */
	if (t->nspare)
		return t->spare[--t->nspare];
	room = aligned_alloc(HUGE_PAGE, TRANSPORT_ROOM);
	if (room)
		madvise(room, TRANSPORT_ROOM, MADV_HUGEPAGE);
	return room;
}

static void put_room(struct transport *t, void *room, uint64_t size)
{
	if (size >= LARGE && t->nspare < SPARES)
		t->spare[t->nspare++] = room;
	else
		free(room);
}

/* Reads the rest of a message's head, and makes room for its bytes. */
static int read_head(struct transport *t, struct tls_peer *peer)
{
	const uint8_t *h = peer->head;
	int rc = peer->message ? 0 : read_up_to(peer, peer->head, peer->have, HEAD);

	if (rc || peer->message)
		return rc;
	peer->size = h[0] | (uint64_t)h[1] << 8 | (uint64_t)h[2] << 16 | (uint64_t)h[3] << 24;
	if (peer->size > TRANSPORT_MESSAGE_MAX)
		return -EMSGSIZE;
	peer->message = get_room(t, peer->size);
	return peer->message ? 0 : -ENOMEM;
}

/* -EAGAIN: no whole message has come. */
static int read_message(struct transport *t, struct tls_peer *peer)
{
	int rc = read_head(t, peer);

	if (rc)
		return rc;
	return read_up_to(peer, peer->message, peer->have - HEAD, peer->size);
}

/* Returns false if the peer is freed. */
static bool deliver(struct transport *t, struct tls_peer *peer, struct tls_delivery *d)
{
	uint8_t *message = peer->message;
	void *room = message;
	uint64_t size = peer->size;

	peer->message = NULL;
	tls_peers_drop_incoming(peer);
	d->left = size < LARGE ? d->left - 1 : 0;
	if (peer->outbound || !tls_peers_heard(&t->peers, peer)) {
		t->delivering = peer;
		t->delivered = size < LARGE ? NULL : message;
		d->receive(d->owner, peer->number, message, size);
		t->delivering = NULL;
		room = t->delivered ? t->delivered : message;
		d->count++;
	}
	put_room(t, room, size);
	if (peer->left)
		tls_peers_remove(&t->peers, peer);
	else
		return true;
	return false;
}

static void take_from(struct transport *t, struct tls_peer *peer, struct tls_delivery *d)
{
	int rc = 0;

	for (int i = 0; i < TURN_MESSAGES && d->left > 0; i++) {
		if (peer->state != TLS_PEER_OPEN || is_behind(peer))
			return;
		rc = read_message(t, peer);
		if (rc == -EAGAIN)
			return;
		if (rc) {
			lose(t, peer, rc);
			return;
		}
		if (!deliver(t, peer, d))
			return;
	}
	tls_peers_set_ready(&t->peers, peer);
}

/* ---- turn ---- */

static void on_event(struct transport *t, struct tls_peer *peer, uint32_t events)
{
	int rc = 0;

	switch (peer->state) {
	case TLS_PEER_CONNECTS:
		on_connected(t, peer);
		return;
	case TLS_PEER_HANDSHAKES:
		go_on(t, peer);
		return;
	case TLS_PEER_OPEN:
		if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			tls_peers_set_ready(&t->peers, peer);
		if (events & EPOLLOUT)
			rc = pump(t, peer);
		if (rc)
			/* closed by the next turn, after what the peer has sent is delivered */
			mark_broken(t, peer);
		return;
	default:
		return;
	}
}

static void on_deadline(struct transport *t, struct tls_peer *peer)
{
	if (peer->state == TLS_PEER_WAITS)
		connect_out(t, peer);
	else
		lose(t, peer, -ETIMEDOUT);
}

static bool has_deadline(const struct tls_peer *peer)
{
	return peer->state == TLS_PEER_WAITS || peer->state == TLS_PEER_CONNECTS ||
	       peer->state == TLS_PEER_HANDSHAKES;
}

static void check_deadlines(struct transport *t, struct tls_peer_list *list, uint64_t now)
{
	struct tls_peer *peer, *next;

	TAILQ_FOREACH_SAFE (peer, list, all, next) {
		if (!has_deadline(peer))
			continue;
		if (now >= peer->until_ms)
			on_deadline(t, peer); /* sets the next deadline, or frees peer */
		else
			set_timer(t, peer->until_ms);
	}
}

static void on_timer(struct transport *t)
{
	uint64_t now = monotonic_ms(), count;
	ssize_t n = read(t->timer, &count, sizeof(count));

	(void)n; /* -EAGAIN where the timer was set anew since it expired */
	t->timer_ms = NEVER;
	if (now >= t->accept_again_ms) {
		t->accept_again_ms = NEVER;
		poll_for(t, t->listener, 0, EPOLLIN, &t->listener);
	} else {
		set_timer(t, t->accept_again_ms);
	}
	check_deadlines(t, &t->peers.outbound, now);
	check_deadlines(t, &t->peers.inbound, now);
}

/* Handles what the kernel has to tell, but for messages. */
static void handle_events(struct transport *t)
{
	struct epoll_event events[TURN_EVENTS];
	int n = epoll_wait(t->bell.epoll, events, TURN_EVENTS, 0);
	bool timer = false;

	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr == &t->listener)
			on_incoming(t);
		else if (events[i].data.ptr == &t->timer)
			timer = true;
		else if (events[i].data.ptr)
			on_event(t, events[i].data.ptr, events[i].events);
	}
	if (timer) /* last: on_timer may free a peer that has an event */
		on_timer(t);
}

static void lose_broken(struct transport *t, struct tls_peer_list *list)
{
	struct tls_peer *peer, *next;

	TAILQ_FOREACH_SAFE (peer, list, all, next)
		if (peer->is_broken && !peer->is_ready)
			lose(t, peer, -ECONNRESET);
		else
			t->any_broken |= peer->is_broken;
}

static int turn(struct transport *t, struct tls_delivery *d)
{
	struct tls_peer *peer;

	transport_bell_hush(&t->bell);
	handle_events(t);
	while (d->left > 0 && (peer = tls_peers_take_ready(&t->peers)))
		take_from(t, peer, d);
	if (t->any_broken) {
		t->any_broken = false;
		lose_broken(t, &t->peers.inbound);
		lose_broken(t, &t->peers.outbound);
	}
	if (!TAILQ_EMPTY(&t->peers.ready))
		transport_bell_ring(&t->bell);
	return d->count;
}

static int transport_tls_turn(struct transport *t, transport_receive receive, void *owner,
			      int max)
{
	struct tls_delivery d = { .receive = receive, .owner = owner, .left = max };

	if (!tls_context_enter())
		return 0;
	turn(t, &d);
	tls_context_leave();
	return d.count;
}

static void *transport_tls_exchange(struct transport *t, void *other)
{
	void *room = t->delivering ? t->delivered : NULL;

	if (room)
		t->delivered = other;
	return room;
}

static int transport_tls_fd(struct transport *t)
{
	return t->bell.epoll;
}

static const char *transport_tls_address(struct transport *t)
{
	return t->address;
}

/* ---- open ---- */

struct tls_binding {
	int fd;
	struct sockaddr_in at;
};

static int bind_at(void *arg, uint16_t port)
{
	struct tls_binding *b = arg;

	b->at.sin_port = htons(port);
	if (bind(b->fd, (const struct sockaddr *)&b->at, sizeof(b->at)) ||
	    listen(b->fd, BACKLOG))
		return -errno;
	return 0;
}

static int bind_listener(struct transport *t, const char *address)
{
	struct tls_binding b = { .fd = t->listener };
	char host[INET_ADDRSTRLEN];
	unsigned port;
	int rc = transport_address_parse(address, "tcp://", &b.at);

	if (rc)
		return rc;
	port = ntohs(b.at.sin_port);
	rc = port ? bind_at(&b, (uint16_t)port) : transport_address_bind_anywhere(bind_at, &b);
	if (rc)
		return rc;
	snprintf(t->address, sizeof(t->address), "tcp://%s:%u",
		 inet_ntop(AF_INET, &b.at.sin_addr, host, sizeof(host)), ntohs(b.at.sin_port));
	return 0;
}

static int open_listener(struct transport *t, const struct transport_config *config)
{
	const int on = 1;
	int rc = config->reads_only ? -EACCES : open_socket(&t->listener);

	if (rc)
		return rc;
	setsockopt(t->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	t->accepted_max = transport_accepted_max(config);
	rc = bind_listener(t, config->bind);
	return rc ? rc : poll_for(t, t->listener, 0, EPOLLIN, &t->listener);
}

static int open_all(struct transport *t, const struct transport_config *config)
{
	int rc = transport_bell_open(&t->bell);

	if (!rc)
		rc = transport_keep_fd(
			&t->timer, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (!rc)
		rc = poll_for(t, t->timer, 0, EPOLLIN, &t->timer);
	if (!rc && config->key)
		rc = tls_context_new(&t->context, config->key, config->reads_only);
	if (!rc && config->bind)
		rc = open_listener(t, config);
	return rc;
}

/* ---- close ---- */

static bool has_to_send(const struct tls_peer *peer)
{
	bool may = peer->state == TLS_PEER_CONNECTS || peer->state == TLS_PEER_HANDSHAKES ||
		   peer->state == TLS_PEER_OPEN;

	return may && (peer->nqueued || tls_stream_waits(&peer->stream)) && !peer->is_broken;
}

static bool any_has_to_send(struct transport *t)
{
	const struct tls_peer *peer;

	TAILQ_FOREACH (peer, &t->peers.outbound, all)
		if (has_to_send(peer))
			return true;
	TAILQ_FOREACH (peer, &t->peers.inbound, all)
		if (has_to_send(peer))
			return true;
	return false;
}

static void linger(struct transport *t)
{
	uint64_t until = monotonic_ms() + LINGER_MS;

	transport_bell_hush(&t->bell);
	for (uint64_t now = monotonic_ms(); any_has_to_send(t) && now < until;
	     now = monotonic_ms()) {
		struct pollfd poller = { .fd = t->bell.epoll, .events = POLLIN };

		poll(&poller, 1, (int)(until - now));
		handle_events(t);
	}
}

static void hang_up_all(struct transport *t)
{
	struct tls_peer *peer;

	TAILQ_FOREACH (peer, &t->peers.outbound, all)
		hang_up(t, peer);
	TAILQ_FOREACH (peer, &t->peers.inbound, all)
		hang_up(t, peer);
}

static void transport_tls_close(struct transport *t)
{
	if (!t)
		return;
	if (t->pid == getpid()) { /* a forked child frees its copy without a word to peers */
		if (tls_context_enter()) {
			linger(t);
			hang_up_all(t);
			tls_context_leave();
		}
		transport_close_fd(t->listener);
		transport_close_fd(t->timer);
		transport_bell_close(&t->bell);
	}
	tls_peers_fini(&t->peers);
	while (t->nspare)
		free(t->spare[--t->nspare]);
	tls_context_free(t->context);
	free(t);
}

static int transport_tls_open(struct transport **out, const struct transport_config *config)
{
	struct transport *t = calloc(1, sizeof(*t));
	uint32_t max = config->peers_max ? config->peers_max : TRANSPORT_PEERS_MAX;
	int rc;

	if (!t)
		return -ENOMEM;
	t->ops = &transport_tls;
	t->pid = getpid();
	t->bell = TRANSPORT_BELL_NONE;
	t->timer = t->listener = -1;
	t->timer_ms = t->accept_again_ms = NEVER;
	t->queue_max = config->queue_max ? config->queue_max : QUEUE_MAX;
	tls_peers_init(&t->peers, (uint32_t)u64_min(max, TRANSPORT_PEERS_MAX));
	if (config->second)
		slot_map_set_second(&t->peers.slots);
	rc = open_all(t, config);
	if (rc)
		transport_tls_close(t);
	else
		*out = t;
	return rc;
}

const struct transport_ops transport_tls = {
	.name = "tls",
	.open = transport_tls_open,
	.close = transport_tls_close,
	.fd = transport_tls_fd,
	.address = transport_tls_address,
	.connect = transport_tls_connect,
	.disconnect = transport_tls_disconnect,
	.send = transport_tls_send,
	.reads_only = transport_tls_reads_only,
	.refused = transport_tls_refused,
	.gone = transport_tls_gone,
	.turn = transport_tls_turn,
	.exchange = transport_tls_exchange,
};

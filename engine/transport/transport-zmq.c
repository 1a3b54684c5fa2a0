/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport.h"

#include "engine/base/fork.h"
#include "engine/base/log.h"
#include "engine/base/thread.h"
#include "engine/transport/transport-address.h"
#include "engine/transport/transport-bell.h"
#include "engine/transport/transport-common.h"
#include "engine/transport/transport-curve.h"
#include "engine/transport/transport-peers.h"
#include "engine/transport/transport-probe.h"
#include "engine/transport/transport-socket.h"
#include "engine/transport/transport-watch.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <zmq.h>

/* Two ROUTER sockets: `in` is bound, and libzmq numbers who connects to it; `out` connects, and
 * we name its connections: one socket for all, because each costs a descriptor and more.
 *
 * libzmq's descriptors tell of news, not of a state: they fall silent as soon as any call has
 * looked at their socket.  For what may have been looked at and not been taken, the bell is
 * rung.
 */
enum { ROUTER_ID = 5 }; /* bytes: 0 and libzmq's number */

/* Our name for a connection of `out`. */
struct out_id {
	uint8_t mark; /* 1: libzmq's own names begin with 0 */
	uint8_t number[4];
	uint8_t serial[8];
};
static_assert(sizeof(struct out_id) == 13, "out_id");

struct transport {
	const struct transport_ops *ops;
	/* of the process that opened the transport: a forked child must not touch libzmq */
	pid_t pid;
	void *context;
	void *in; /* NULL: only connects out */
	void *out;
	struct transport_curve curve;
	struct transport_watch watch_in, watch_out;
	struct transport_peers peers;
	struct transport_probes probes;
	struct transport_bell bell;
	bool drained;             /* the last turn took all messages that there were */
	_Atomic uint64_t waiting; /* bytes to be sent */
	char address[TRANSPORT_ADDRESS];
};

/* ---- open ---- */

static int watch_socket(struct transport *t, void *socket)
{
	size_t size = sizeof(int);
	int fd;

	if (zmq_getsockopt(socket, ZMQ_FD, &fd, &size))
		return transport_socket_error();
	return transport_bell_watch(&t->bell, fd, EPOLLIN);
}

static int open_context(struct transport *t, const struct transport_config *config)
{
	const struct cpus *bound = thread_bound();

	t->context = zmq_ctx_new();
	if (!t->context)
		return transport_socket_error();
	if (zmq_ctx_set(t->context, ZMQ_IO_THREADS, 1) ||
	    zmq_ctx_set(t->context, ZMQ_MAX_SOCKETS, 16) ||
	    zmq_ctx_set(t->context, ZMQ_IPV6, 0))
		return transport_socket_error();
	for (unsigned cpu = bound ? cpus_next(bound, 0) : CPUS_MAX; cpu < CPUS_MAX;
	     cpu = cpus_next(bound, cpu + 1))
		if (zmq_ctx_set(t->context, ZMQ_THREAD_AFFINITY_CPU_ADD, (int)cpu))
			return transport_socket_error();
	return transport_curve_open(&t->curve, t->context, config->key, config->reads_only);
}

static int open_socket(struct transport *t, const struct transport_config *config,
		       void **socket, struct transport_watch *watch)
{
	bool listening = watch == &t->watch_in;
	int rc;

	rc = transport_socket_open(t->context, config, socket);
	if (!rc)
		rc = listening ? transport_curve_serve(&t->curve, *socket)
			       : transport_curve_join(&t->curve, *socket);
	if (!rc)
		rc = transport_watch_open(watch, t->context, *socket, listening ? "in" : "out",
					  listening ? transport_accepted_max(config) : 0);
	if (!rc)
		rc = watch_socket(t, *socket);
	return rc ? rc : watch_socket(t, watch->events);
}

static void on_news(void *owner, const char *address, int fd, enum transport_watch_news news);

static int open_all(struct transport *t, const struct transport_config *config)
{
	int rc = transport_socket_check_descriptors();

	if (!rc)
		rc = transport_bell_open(&t->bell);
	if (!rc)
		rc = open_context(t, config);
	if (!rc)
		rc = watch_socket(t, t->curve.questions);
	if (!rc)
		rc = open_socket(t, config, &t->out, &t->watch_out);
	if (!rc && config->bind)
		rc = open_socket(t, config, &t->in, &t->watch_in);
	if (!rc && config->bind)
		rc = transport_socket_bind(t->in, config->bind, t->address);
	if (!rc && config->bind && fork_close_at(t->address))
		log_debug("forked children keep what has just connected to %s", t->address);
	if (!rc && config->bind)
		/* learns which descriptor listens, before a fork: the child closes it */
		transport_watch_turn(&t->watch_in, on_news, t);
	return rc;
}

static void transport_zmq_close(struct transport *t);

static int transport_zmq_open(struct transport **out, const struct transport_config *config)
{
	struct transport *t = calloc(1, sizeof(*t));
	uint32_t max = config->peers_max ? config->peers_max : TRANSPORT_PEERS_MAX;
	sigset_t all, before;
	int rc;

	if (!t)
		return -ENOMEM;
	t->ops = &transport_zmq;
	t->pid = getpid();
	t->bell = TRANSPORT_BELL_NONE;
	t->probes.bell = &t->bell;
	transport_peers_init(&t->peers, (uint32_t)u64_min(max, TRANSPORT_PEERS_MAX));
	sigfillset(&all); /* libzmq's threads inherit the mask */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = open_all(t, config);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		transport_zmq_close(t);
	else
		*out = t;
	return rc;
}

/* ---- close ---- */

static void close_socket(void *socket, struct transport_watch *watch)
{
	transport_watch_close(watch);
	if (socket)
		zmq_close(socket);
}

static void close_context(struct transport *t)
{
	transport_probe_close(&t->probes);
	close_socket(t->in, &t->watch_in);
	close_socket(t->out, &t->watch_out);
	transport_curve_close(&t->curve);
	if (!t->context)
		return;
	while (zmq_ctx_term(t->context) && errno == EINTR)
		;
}

static void transport_zmq_close(struct transport *t)
{
	if (!t)
		return;
	if (t->pid == getpid()) {
		fork_forget_at(t->address);
		close_context(t);
		transport_bell_close(&t->bell);
	}
	transport_peers_fini(&t->peers);
	free(t);
}

/* ---- what wakes the owner ---- */

static int transport_zmq_fd(struct transport *t)
{
	return t->bell.epoll;
}

/* Called after any call on a socket, which may have taken the news that the socket's descriptor
 * told of.
 */
static void wake_if_readable(struct transport *t, void *socket)
{
	size_t size = sizeof(int);
	int events = 0;

	if (socket && !t->bell.rung && !zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) &&
	    events & ZMQ_POLLIN)
		transport_bell_ring(&t->bell);
}

/* ---- connect ---- */

static const char *transport_zmq_address(struct transport *t)
{
	return t->address;
}

static struct out_id out_id_of(const struct transport_peer *peer)
{
	struct out_id id = { .mark = 1 };

	memcpy(id.number, &peer->number, sizeof(id.number));
	memcpy(id.serial, &peer->serial, sizeof(id.serial));
	return id;
}

static int connect_out(struct transport *t, const struct transport_peer *peer)
{
	struct out_id id = out_id_of(peer);

	if (zmq_setsockopt(t->out, ZMQ_CONNECT_ROUTING_ID, &id, sizeof(id)) ||
	    zmq_connect(t->out, peer->address))
		return transport_socket_error();
	wake_if_readable(t, t->out);
	return 0;
}

static int transport_zmq_connect(struct transport *t, const char *address, uint32_t *number)
{
	char host[TRANSPORT_ADDRESS];
	struct transport_peer *peer;
	unsigned port;
	bool fresh;
	int rc = transport_address_cut(address, "tcp://", host, &port);

	if (rc || !port)
		return -EINVAL;
	rc = transport_peers_connect(&t->peers, address, &peer, &fresh);
	if (rc)
		return rc;
	if (fresh)
		rc = connect_out(t, peer);
	if (rc)
		transport_peers_remove(&t->peers, peer);
	else
		*number = peer->number;
	return rc;
}

/* Forgets a peer, also one that refused the key or spoke another protocol: libzmq does not
 * connect to such a peer again.
 */
static void forget(struct transport *t, struct transport_peer *peer)
{
	if (peer->outbound) {
		zmq_disconnect(t->out, peer->address);
		wake_if_readable(t, t->out);
	}
	transport_peers_remove(&t->peers, peer);
}

static void transport_zmq_disconnect(struct transport *t, uint32_t number)
{
	struct transport_peer *peer = transport_peers_get(&t->peers, number);

	if (!peer || (peer->outbound && --peer->refs))
		return;
	forget(t, peer);
}

/* Returns the address and port of the other end of a connection; 0: there is none. */
static uint64_t remote_of(int fd)
{
	struct sockaddr_in name = { .sin_family = AF_UNSPEC };
	socklen_t size = sizeof(name);

	if (getpeername(fd, (struct sockaddr *)&name, &size) || name.sin_family != AF_INET)
		return 0;
	return (uint64_t)name.sin_addr.s_addr << 16 | name.sin_port;
}

static void on_news(void *owner, const char *address, int fd, enum transport_watch_news news)
{
	struct transport *t = owner;
	struct transport_peer *peer = transport_peers_find(&t->peers, address);

	if (news >= TRANSPORT_LEFT)
		transport_peers_left(&t->peers, fd,
				     news == TRANSPORT_LEFT_OR_REUSED ? remote_of(fd) : 0);
	else if (peer && news == TRANSPORT_BROKEN)
		transport_probe_start(&t->probes, peer->number, peer->address);
	else if (peer)
		peer->hangups += news == TRANSPORT_REFUSED ? TRANSPORT_HANGUPS : 1;
}

static bool transport_zmq_gone(struct transport *t, uint32_t *number)
{
	struct transport_peer *peer;

	if (!t->drained)
		return false;
	if (transport_probe_refused(&t->probes, number))
		return true;
	peer = transport_peers_next_left(&t->peers);
	if (!peer)
		return false;
	*number = peer->number;
	transport_peers_remove(&t->peers, peer);
	return true;
}

static bool transport_zmq_refused(struct transport *t, uint32_t number)
{
	struct transport_peer *peer = transport_peers_get(&t->peers, number);

	return peer && peer->hangups >= TRANSPORT_HANGUPS;
}

/* ---- send ---- */

static int send_id(struct transport *t, const struct transport_peer *peer)
{
	struct out_id out = out_id_of(peer);
	uint8_t in[ROUTER_ID] = { 0 };
	int rc;

	memcpy(in + 1, &peer->router, sizeof(peer->router));
	do {
		if (peer->outbound)
			rc = zmq_send(t->out, &out, sizeof(out), ZMQ_SNDMORE | ZMQ_DONTWAIT);
		else
			rc = zmq_send(t->in, in, sizeof(in), ZMQ_SNDMORE | ZMQ_DONTWAIT);
	} while (rc < 0 && errno == EINTR);
	return rc < 0 ? transport_socket_error() : 0;
}

static int send_message(struct transport *t, struct transport_peer *peer,
			const struct iovec *parts, unsigned nparts, uint64_t size)
{
	void *socket = peer->outbound ? t->out : t->in;
	zmq_msg_t message;
	int rc;

	if (!peer->queue && !(peer->queue = transport_queue_new(&t->waiting)))
		return -ENOMEM;
	rc = transport_queue_message(peer->queue, &message, size);
	if (rc)
		return rc;
	rc = send_id(t, peer);
	if (!rc) {
		transport_message_fill(zmq_msg_data(&message), parts, nparts);
		do {
			rc = zmq_msg_send(&message, socket, ZMQ_DONTWAIT) < 0
				     ? transport_socket_error()
				     : 0;
		} while (rc == -EINTR);
	}
	zmq_msg_close(&message);
	wake_if_readable(t, socket);
	return rc;
}

static int transport_zmq_send(struct transport *t, uint32_t number, const struct iovec *parts,
			      unsigned nparts)
{
	struct transport_peer *peer;
	uint64_t size;
	int rc = transport_message_size(parts, nparts, &size);

	if (rc)
		return rc;
	peer = transport_peers_get(&t->peers, number);
	if (!peer)
		return -ENOTCONN;
	rc = send_message(t, peer, parts, nparts, size);
	if (rc == -ENOTCONN)
		forget(t, peer);
	return rc;
}

static bool transport_zmq_reads_only(struct transport *t, uint32_t number)
{
	const struct transport_peer *peer = transport_peers_get(&t->peers, number);

	return peer && peer->reads_only;
}

/* ---- receive ---- */

struct received {
	size_t id_size;
	uint8_t id[255];
	zmq_msg_t body;
	bool whole; /* one part, not too large */
};

static int receive_part(void *socket, zmq_msg_t *part)
{
	int rc;

	do {
		rc = zmq_msg_recv(part, socket, ZMQ_DONTWAIT);
	} while (rc < 0 && errno == EINTR);
	return rc;
}

static bool skip_parts(void *socket, zmq_msg_t *part)
{
	int more = zmq_msg_more(part), n = 0;

	for (; more; n++) {
		zmq_msg_t rest;

		zmq_msg_init(&rest);
		more = receive_part(socket, &rest) >= 0 && zmq_msg_more(&rest);
		zmq_msg_close(&rest);
	}
	return n > 0;
}

/* Takes the next message, whose body the caller closes.  false: there is none. */
static bool take_message(void *socket, struct received *r)
{
	int n;

	do {
		n = zmq_recv(socket, r->id, sizeof(r->id), ZMQ_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return false;
	r->id_size = (size_t)n;
	zmq_msg_init(&r->body);
	r->whole = receive_part(socket, &r->body) >= 0 && !skip_parts(socket, &r->body) &&
		   zmq_msg_size(&r->body) <= TRANSPORT_MESSAGE_MAX;
	return true;
}

static struct transport_peer *sender_out(struct transport *t, const struct received *r)
{
	struct transport_peer *peer;
	struct out_id id;
	uint32_t number;
	uint64_t serial;

	if (r->id_size != sizeof(id))
		return NULL;
	memcpy(&id, r->id, sizeof(id));
	memcpy(&number, id.number, sizeof(number));
	memcpy(&serial, id.serial, sizeof(serial));
	peer = transport_peers_get(&t->peers, number);
	if (!peer || !peer->outbound || peer->serial != serial)
		return NULL;
	peer->hangups = 0;
	return peer;
}

/* Returns the sender; NULL: it chose a name of its own, as no engine does, or no number is
 * left.
 */
static struct transport_peer *sender_in(struct transport *t, struct received *r)
{
	struct transport_peer *peer;
	uint32_t router;

	if (r->id_size != ROUTER_ID || r->id[0])
		return NULL;
	memcpy(&router, r->id + 1, sizeof(router));
	if (transport_peers_heard(&t->peers, router, &peer))
		return NULL;
	peer->reads_only = transport_curve_reads_only(&t->curve, &r->body);
	if (peer->fd < 0) {
		peer->fd = zmq_msg_get(&r->body, ZMQ_SRCFD);
		peer->remote = remote_of(peer->fd);
	}
	return peer;
}

struct delivery {
	transport_receive receive;
	void *owner;
	int left;  /* messages that may still be looked at */
	int count; /* delivered */
};

static bool deliver_one(struct transport *t, void *socket, struct delivery *d)
{
	struct transport_peer *peer = NULL;
	struct received r;

	if (!socket || d->left <= 0 || !take_message(socket, &r))
		return false;
	d->left--;
	if (r.whole)
		peer = socket == t->in ? sender_in(t, &r) : sender_out(t, &r);
	if (peer) {
		d->receive(d->owner, peer->number, zmq_msg_data(&r.body),
			   zmq_msg_size(&r.body));
		d->count++;
	}
	zmq_msg_close(&r.body);
	return true;
}

static int transport_zmq_turn(struct transport *t, transport_receive receive, void *owner,
			      int max)
{
	struct delivery d = { .receive = receive, .owner = owner, .left = max };
	bool some;

	transport_bell_hush(&t->bell);
	transport_curve_turn(&t->curve);
	transport_watch_turn(&t->watch_out, on_news, t);
	transport_probe_turn(&t->probes);
	if (t->in)
		transport_watch_turn(&t->watch_in, on_news, t);
	do {
		some = deliver_one(t, t->in, &d);
		some |= deliver_one(t, t->out, &d);
	} while (some);
	t->drained = d.left > 0;
	if (!t->drained)
		transport_bell_ring(&t->bell);
	wake_if_readable(t, t->in);
	wake_if_readable(t, t->out);
	return d.count;
}

const struct transport_ops transport_zmq = {
	.name = "zmq",
	.open = transport_zmq_open,
	.close = transport_zmq_close,
	.fd = transport_zmq_fd,
	.address = transport_zmq_address,
	.connect = transport_zmq_connect,
	.disconnect = transport_zmq_disconnect,
	.send = transport_zmq_send,
	.reads_only = transport_zmq_reads_only,
	.refused = transport_zmq_refused,
	.gone = transport_zmq_gone,
	.turn = transport_zmq_turn,
};

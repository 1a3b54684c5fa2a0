/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fork.h"
#include "engine/base/log.h"
#include "engine/transport/ucx/transport-ucx-internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

/* Active Messages between endpoints that a listener and a client made: only of these does UCX
 * see on all its transports that the other side has died.  Driven by the owner's thread: turn
 * goes round in UCX, and arms its descriptor for the next time.
 */
enum {
	PROGRESSES = 256,       /* of a turn */
	INBOX_BYTES = 64 << 20, /* above that no more is taken */
	TICK_MS = 20,           /* while something is to be sent, or made */
	LINGER_MS = 100,
};

int ucx_address_parse(const char *address, struct sockaddr_in *name)
{
	static const char scheme[] = "ucx://";
	char host[INET_ADDRSTRLEN];
	const char *colon = strrchr(address, ':');
	unsigned long port = 0;
	char *end;

	if (strncmp(address, scheme, strlen(scheme)))
		return -EINVAL;
	address += strlen(scheme);
	if (colon < address) {
		colon = address + strlen(address);
	} else {
		port = strtoul(colon + 1, &end, 10);
		if (colon[1] < '0' || colon[1] > '9' || *end || port > 65535)
			return -EINVAL;
	}
	if ((size_t)(colon - address) >= sizeof(host))
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	*name = (struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_port = htons((uint16_t)port) };
	return inet_pton(AF_INET, host, &name->sin_addr) == 1 ? 0 : -EINVAL;
}

/* ---- open ---- */

static int open_events(struct transport *t)
{
	int fd, rc = transport_bell_open(&t->bell);

	if (!rc)
		rc = transport_keep_fd(
			&t->timer, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (!rc && t->ucx->ucp_worker_get_efd(t->worker, &fd) != UCS_OK)
		rc = -EIO;
	if (!rc)
		rc = transport_bell_watch(&t->bell, fd, EPOLLIN);
	return rc ? rc : transport_bell_watch(&t->bell, t->timer, EPOLLIN);
}

static ucs_status_t configure(const struct ucx *ucx, ucp_config_t *settings,
			      const struct transport_config *config)
{
	ucs_status_t status = ucx->ucp_config_modify(settings, "NET_DEVICES", config->devices);

	if (status == UCS_OK && !getenv("UCX_TLS"))
		status = ucx->ucp_config_modify(settings, "TLS",
						config->rdma ? "rc,ud,self" : "tcp,self");
	if (status == UCS_OK && !getenv("UCX_SOCKADDR_TLS_PRIORITY"))
		status = ucx->ucp_config_modify(settings, "SOCKADDR_TLS_PRIORITY",
						config->rdma ? "rdmacm" : "tcp");
	if (status == UCS_OK && !getenv("UCX_KEEPALIVE_INTERVAL"))
		status = ucx->ucp_config_modify(settings, "KEEPALIVE_INTERVAL", "1s");
	return status;
}

static ucs_status_t open_context(struct transport *t, const struct transport_config *config)
{
	const ucp_params_t params = { .field_mask =
					      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
				      .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
				      .name = "fragfs" };
	ucp_config_t *settings;
	ucs_status_t status = t->ucx->ucp_config_read(NULL, NULL, &settings);

	if (status != UCS_OK)
		return status;
	status = configure(t->ucx, settings, config);
	if (status == UCS_OK)
		status = t->ucx->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params,
						  settings, &t->context);
	t->ucx->ucp_config_release(settings);
	return status;
}

static ucs_status_t open_worker(struct transport *t)
{
	const ucp_worker_params_t params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
							   UCP_WORKER_PARAM_FIELD_FLAGS,
					     .thread_mode = UCS_THREAD_MODE_MULTI,
					     .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK };
	ucs_status_t status = t->ucx->ucp_worker_create(t->context, &params, &t->worker);

	if (status == UCS_OK)
		status = ucx_links_open(t);
	return status == UCS_OK ? ucx_messages_open(t) : status;
}

struct listening {
	struct transport *t;
	struct sockaddr_in name;
};

static int listen_at(void *arg, uint16_t port)
{
	struct listening *l = arg;
	struct transport *t = l->t;
	const ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { .addr = (const struct sockaddr *)&l->name,
			      .addrlen = sizeof(l->name) },
		.conn_handler = { .cb = ucx_link_accept, .arg = t },
	};

	l->name.sin_port = htons(port);
	return ucx_errno(t->ucx->ucp_listener_create(t->worker, &params, &t->listener));
}

/* UCX does not say why it cannot. */
static int check_address(const struct sockaddr_in *name)
{
	CLEANUP(close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(fd, (const struct sockaddr *)name, sizeof(*name)))
		return -errno;
	return 0;
}

static int open_listener(struct transport *t, const char *address)
{
	struct listening l = { .t = t };
	char host[INET_ADDRSTRLEN];
	int rc = ucx_address_parse(address, &l.name);

	if (!rc)
		rc = check_address(&l.name);
	if (!rc)
		rc = l.name.sin_port ? listen_at(&l, ntohs(l.name.sin_port))
				     : transport_bind_anywhere(listen_at, &l);
	if (rc)
		return rc;
	inet_ntop(AF_INET, &l.name.sin_addr, host, sizeof(host));
	snprintf(t->address, sizeof(t->address), "ucx://%s:%u", host, ntohs(l.name.sin_port));
	fork_close_at(t->address);
	return 0;
}

static int open_all(struct transport *t, const struct transport_config *config)
{
	ucs_status_t status = open_context(t, config);
	int rc;

	if (status == UCS_OK)
		status = open_worker(t);
	if (status != UCS_OK) {
		log_warn("UCX on %s: %s", config->devices, t->ucx->ucs_status_string(status));
		return ucx_errno(status);
	}
	rc = open_events(t);
	return !rc && config->bind ? open_listener(t, config->bind) : rc;
}

static void transport_ucx_close(struct transport *t);

static int transport_ucx_open(struct transport **out, const struct transport_config *config)
{
	const struct ucx *ucx = config->devices ? ucx_load() : NULL;
	uint32_t max = config->peers_max ? config->peers_max : TRANSPORT_PEERS_MAX;
	struct transport *t = ucx ? calloc(1, sizeof(*t)) : NULL;
	sigset_t all, before;
	int rc;

	if (!t)
		return !config->devices ? -EINVAL : ucx ? -ENOMEM : -ENOTSUP;
	*t = (struct transport){ .ops = &transport_ucx,
				 .ucx = ucx,
				 .pid = getpid(),
				 .inbox = TAILQ_HEAD_INITIALIZER(t->inbox),
				 .queue_max = config->queue_max ? config->queue_max : 1000,
				 .bell = TRANSPORT_BELL_NONE,
				 .timer = -1 };
	transport_peers_init(&t->peers, (uint32_t)u64_min(max, TRANSPORT_PEERS_MAX));
	slot_map_init(&t->links, SLOT_MAP_MAX);
	sigfillset(&all); /* UCX's thread inherits it */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = open_all(t, config);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		transport_ucx_close(t);
	else
		*out = t;
	return rc;
}

/* ---- close ---- */

static void close_ucx(struct transport *t)
{
	fork_forget_at(t->address);
	if (t->worker)
		ucx_links_finish(t, LINGER_MS);
	if (t->listener)
		t->ucx->ucp_listener_destroy(t->listener);
	transport_bell_close(&t->bell);
	transport_close_fd(t->timer);
	if (t->worker)
		t->ucx->ucp_worker_destroy(t->worker);
	if (t->context)
		t->ucx->ucp_cleanup(t->context);
}

static void transport_ucx_close(struct transport *t)
{
	if (!t)
		return;
	if (t->pid == getpid())
		close_ucx(t);
	ucx_links_free(t);
	transport_peers_fini(&t->peers);
	free(t);
}

/* ---- what wakes the owner ---- */

static int transport_ucx_fd(struct transport *t)
{
	return t->bell.epoll;
}

static void set_timer(struct transport *t)
{
	bool ticks = t->unsettled || t->bytes;
	struct itimerspec time = { .it_value.tv_nsec = ticks ? TICK_MS * 1000000 : 0 };

	timerfd_settime(t->timer, 0, &time, NULL); /* and what it had to tell is told */
}

/* Until UCX, a call of ours or the timer has something. */
static void rest(struct transport *t)
{
	set_timer(t);
	if (!TAILQ_EMPTY(&t->inbox) || t->news || t->ucx->ucp_worker_arm(t->worker) != UCS_OK)
		transport_bell_ring(&t->bell);
}

/* ---- peers ---- */

static const char *transport_ucx_address(struct transport *t)
{
	return t->address;
}

static int transport_ucx_connect(struct transport *t, const char *address, uint32_t *number)
{
	struct transport_peer *peer;
	struct sockaddr_in name;
	struct ucx_link *link;
	bool fresh;
	int rc;

	if (ucx_address_parse(address, &name) || !name.sin_port)
		return -EINVAL;
	rc = transport_peers_connect(&t->peers, address, &peer, &fresh);
	if (rc)
		return rc;
	rc = fresh ? ucx_link_new(t, peer, &link) : 0;
	if (rc) {
		transport_peers_remove(&t->peers, peer);
		return rc;
	}
	if (fresh)
		peer->router = link->number;
	*number = peer->number;
	transport_bell_ring(&t->bell);
	return 0;
}

static void transport_ucx_disconnect(struct transport *t, uint32_t number)
{
	struct transport_peer *peer = transport_peers_get(&t->peers, number);
	struct ucx_link *link;

	if (!peer || (peer->outbound && --peer->refs))
		return;
	link = ucx_link_get(t, peer->router);
	transport_peers_remove(&t->peers, peer);
	if (link)
		ucx_link_close(link);
	transport_bell_ring(&t->bell);
}

static bool take_gone_outbound(struct transport *t, uint32_t *number)
{
	struct ucx_link *link;
	uint32_t slot = 0;

	while (t->unsettled && (link = slot_map_next(&t->links, &slot))) {
		if (!link->gone || !ucx_link_get(t, link->number))
			continue;
		link->gone = false;
		*number = link->peer;
		return true;
	}
	return false;
}

static bool transport_ucx_gone(struct transport *t, uint32_t *number)
{
	struct transport_peer *peer;

	if (!TAILQ_EMPTY(&t->inbox)) /* what came is delivered first */
		return false;
	if (take_gone_outbound(t, number))
		return true;
	peer = transport_peers_next_left(&t->peers);
	if (!peer)
		return false;
	*number = peer->number;
	transport_peers_remove(&t->peers, peer);
	return true;
}

/* ---- messages ---- */

static int transport_ucx_send(struct transport *t, uint32_t number, const struct iovec *parts,
			      unsigned nparts)
{
	struct transport_peer *peer;
	struct ucx_link *link;
	uint64_t size;
	int rc = transport_message_size(parts, nparts, &size);

	if (rc)
		return rc;
	peer = transport_peers_get(&t->peers, number);
	link = peer ? ucx_link_get(t, peer->router) : NULL;
	if (!link || (!peer->outbound && link->state != UCX_READY))
		return -ENOTCONN;
	rc = ucx_message_send(link, parts, nparts, size);
	transport_bell_ring(&t->bell);
	return rc;
}

static void progress(struct transport *t)
{
	unsigned some = 1;

	ucx_links_turn(t);
	for (int i = 0; some && i < PROGRESSES && t->inbox_bytes < INBOX_BYTES; i++) {
		some = t->ucx->ucp_worker_progress(t->worker);
		ucx_links_turn(t);
	}
}

/* NULL: it was disconnected meanwhile. */
static struct transport_peer *sender(struct transport *t, struct ucx_link *link)
{
	struct transport_peer *peer;

	if (link->outbound)
		return transport_peers_get(&t->peers, link->peer);
	if (transport_peers_heard(&t->peers, link->number, &peer))
		return NULL;
	peer->fd = (int)link->number;
	return peer;
}

static bool deliver(struct transport *t, transport_receive receive, void *owner)
{
	struct ucx_arrival *a = ucx_messages_next(t);
	struct transport_peer *peer = a ? sender(t, a->link) : NULL;

	if (peer)
		receive(owner, peer->number, a->data, a->size);
	if (a && a->link->state >= UCX_BROKEN && !a->link->outbound)
		transport_peers_left(&t->peers, (int)a->link->number, false);
	if (a)
		ucx_arrival_done(a);
	return peer;
}

static int transport_ucx_turn(struct transport *t, transport_receive receive, void *owner,
			      int max)
{
	int count = 0;

	transport_bell_hush(&t->bell);
	progress(t);
	for (int i = 0; i < max && !TAILQ_EMPTY(&t->inbox); i++)
		count += deliver(t, receive, owner);
	rest(t);
	return count;
}

const struct transport_ops transport_ucx = {
	.name = "ucx",
	.open = transport_ucx_open,
	.close = transport_ucx_close,
	.fd = transport_ucx_fd,
	.address = transport_ucx_address,
	.connect = transport_ucx_connect,
	.disconnect = transport_ucx_disconnect,
	.send = transport_ucx_send,
	.gone = transport_ucx_gone,
	.turn = transport_ucx_turn,
};

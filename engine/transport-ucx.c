/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/fork.h"
#include "engine/log.h"
#include "engine/transport-ucx-internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/timerfd.h>

/* Active Messages between endpoints that a listener and a client made: only of these does UCX see on all
 * its transports that the other side has died.  Driven by the owner's thread: turn goes round in UCX, and arms its
 * descriptor for the next time.
 */
enum {
	PORT_FIRST = 20000, /* below the kernel's ephemeral ports */
	PORT_LAST = 32767,
	PORT_TRIES = 64,
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

static int watch_fd(struct transport *t, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(t->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int keep_fd(int *to, int fd)
{
	if (fd < 0)
		return -errno;
	fork_close(fd);
	*to = fd;
	return 0;
}

static int open_events(struct transport *t)
{
	int fd, rc = keep_fd(&t->epoll, epoll_create1(EPOLL_CLOEXEC));

	if (!rc)
		rc = keep_fd(&t->event, eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!rc)
		rc = keep_fd(&t->timer,
			     timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (!rc && t->ucx->ucp_worker_get_efd(t->worker, &fd) != UCS_OK)
		rc = -EIO;
	t->awake = true;
	if (!rc)
		rc = watch_fd(t, fd);
	if (!rc)
		rc = watch_fd(t, t->event);
	return rc ? rc : watch_fd(t, t->timer);
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

static ucs_status_t listen_at(struct transport *t, const struct sockaddr_in *name)
{
	const ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = { .addr = (const struct sockaddr *)name, .addrlen = sizeof(*name) },
		.conn_handler = { .cb = ucx_link_accept, .arg = t },
	};

	return t->ucx->ucp_listener_create(t->worker, &params, &t->listener);
}

static ucs_status_t listen_anywhere(struct transport *t, struct sockaddr_in *name)
{
	ucs_status_t status = UCS_ERR_BUSY;

	for (int i = 0; i < PORT_TRIES && status == UCS_ERR_BUSY; i++) {
		uint16_t random;

		if (getrandom(&random, sizeof(random), 0) != sizeof(random))
			return UCS_ERR_IO_ERROR;
		name->sin_port =
			htons((uint16_t)(PORT_FIRST + random % (PORT_LAST + 1 - PORT_FIRST)));
		status = listen_at(t, name);
	}
	return status;
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
	struct sockaddr_in name;
	char host[INET_ADDRSTRLEN];
	ucs_status_t status;
	int rc = ucx_address_parse(address, &name);

	if (!rc)
		rc = check_address(&name);
	if (rc)
		return rc;
	status = name.sin_port ? listen_at(t, &name) : listen_anywhere(t, &name);
	if (status != UCS_OK)
		return ucx_errno(status);
	inet_ntop(AF_INET, &name.sin_addr, host, sizeof(host));
	snprintf(t->address, sizeof(t->address), "ucx://%s:%u", host, ntohs(name.sin_port));
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
				 .inbox_last = &t->inbox,
				 .queue_max = config->queue_max ? config->queue_max : 1000,
				 .epoll = -1,
				 .event = -1,
				 .timer = -1 };
	transport_peers_init(&t->peers, (uint32_t)u64_min(max, TRANSPORT_PEERS_MAX));
	slots_init(&t->links, SLOTS_MAX);
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

static void close_fd(int fd)
{
	if (fd < 0)
		return;
	fork_forget(fd);
	close(fd);
}

static void close_ucx(struct transport *t)
{
	fork_forget_at(t->address);
	if (t->worker)
		ucx_links_finish(t, LINGER_MS);
	if (t->listener)
		t->ucx->ucp_listener_destroy(t->listener);
	close_fd(t->epoll);
	close_fd(t->event);
	close_fd(t->timer);
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
	return t->epoll;
}

static void wake(struct transport *t)
{
	ssize_t n = t->awake ? 0 : write(t->event, &(uint64_t){ 1 }, sizeof(uint64_t));

	(void)n; /* full is awake enough */
	t->awake = true;
}

static void sleep_again(struct transport *t)
{
	uint64_t count;
	ssize_t n = t->awake ? read(t->event, &count, sizeof(count)) : 0;

	(void)n; /* empty already */
	t->awake = false;
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
	if (t->inbox || t->news || t->ucx->ucp_worker_arm(t->worker) != UCS_OK)
		wake(t);
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
	wake(t);
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
	wake(t);
}

static bool take_gone_outbound(struct transport *t, uint32_t *number)
{
	struct ucx_link *link;
	uint32_t slot = 0;

	while (t->unsettled && (link = slots_next(&t->links, &slot))) {
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

	if (t->inbox) /* what came is delivered first */
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

static int message_size(const struct iovec *parts, unsigned nparts, uint64_t *size)
{
	*size = 0;
	for (unsigned i = 0; i < nparts; i++)
		if (!u64_add(*size, parts[i].iov_len, size))
			return -EMSGSIZE;
	return *size > TRANSPORT_MESSAGE_MAX ? -EMSGSIZE : 0;
}

static int transport_ucx_send(struct transport *t, uint32_t number, const struct iovec *parts,
			      unsigned nparts)
{
	struct transport_peer *peer;
	struct ucx_link *link;
	uint64_t size;
	int rc = message_size(parts, nparts, &size);

	if (rc)
		return rc;
	peer = transport_peers_get(&t->peers, number);
	link = peer ? ucx_link_get(t, peer->router) : NULL;
	if (!link || (!peer->outbound && link->state != UCX_READY))
		return -ENOTCONN;
	rc = ucx_message_send(link, parts, nparts, size);
	wake(t);
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

	sleep_again(t);
	progress(t);
	for (int i = 0; i < max && t->inbox; i++)
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

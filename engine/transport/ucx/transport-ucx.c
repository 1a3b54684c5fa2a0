/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/fork.h"
#include "engine/base/log.h"
#include "engine/base/slot-map.h"
#include "engine/transport/transport-address.h"
#include "engine/transport/transport-bell.h"
#include "engine/transport/transport-common.h"
#include "engine/transport/transport-peers.h"
#include "engine/transport/ucx/ucx.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>

/* Transport ucx.  A *link* is one endpoint of UCX: *outbound* where we
 * made it, else accepted.  A peer that we connected to has one link after the other.  Callbacks
 * of UCX only set flags and counts; ucx_links_turn acts on them when ucp_worker_progress has
 * returned.
 */

/* The pause before a link is tried again: doubled each time, up to UCX_LINK_MAX_MS. */
enum { UCX_LINK_MS = 50, UCX_LINK_MAX_MS = 1000 };

/* The header of every message.  UCX does not keep large and small messages in order: the
 * receiver does, by the sequence.
 */
struct ucx_stamp {
	uint64_t nonce; /* the receiving link's */
	uint64_t sequence;
	uint32_t link; /* the link's number at the receiver */
	uint32_t reserved;
};

TAILQ_HEAD(ucx_blocks, ucx_block);
TAILQ_HEAD(ucx_arrivals, ucx_arrival);

struct ucx_block { /* a message to be sent */
	TAILQ_ENTRY(ucx_block) next;
	struct ucx_link *link;
	struct ucx_stamp stamp;
	uint64_t size;
	_Alignas(16) uint8_t data[];
};

struct ucx_arrival {                   /* a message that is received */
	TAILQ_ENTRY(ucx_arrival) next; /* of the link's arrivals, then of the inbox */
	struct ucx_link *link;
	uint64_t sequence;
	size_t size;
	bool whole;
	_Alignas(16) uint8_t data[];
};

struct ucx_hello { /* the first message each way */
	uint64_t magic;
	uint64_t nonce, to_nonce; /* the sender's, and, in the answer, the receiver's */
	uint32_t link, to;
};

enum ucx_link_state {
	UCX_WAITING,
	UCX_OPENING,
	UCX_READY,
	UCX_BROKEN,
	UCX_CLOSING,
	UCX_CLOSED
};

struct ucx_link {
	struct transport *t;
	uint32_t number;
	bool outbound;
	uint32_t peer; /* outbound */
	enum ucx_link_state state;
	ucp_ep_h ep;
	uint64_t nonce;
	struct ucx_hello hello;      /* being sent */
	struct ucx_stamp stamp;      /* of the next message to the peer */
	uint64_t expected;           /* sequence of the next message from the peer */
	struct ucx_blocks waiting;   /* not given to UCX yet */
	struct ucx_blocks under_way; /* given to UCX */
	uint32_t blocks;             /* in both lists */
	uint64_t bytes;              /* in both lists */
	unsigned nunder_way;
	struct ucx_arrivals arrivals; /* by sequence; not whole, or not the next */
	unsigned narrivals;
	unsigned uses;     /* references by UCX and the inbox */
	uint64_t until_ms; /* waiting: when it is tried; opening: when it is given up */
	unsigned pause_ms;
	bool was_ready; /* outbound: a link of this peer was ready */
	bool gone;      /* outbound: transport_ucx_gone is to tell of the peer */
};

struct transport {
	const struct transport_ops *ops;
	const struct ucx *ucx;
	/* of the process that opened the transport: a forked child must not touch UCX */
	pid_t pid;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_listener_h listener;
	struct transport_peers peers;
	struct slot_map links;
	uint32_t queue_max;
	uint64_t bytes;                 /* of all blocks */
	struct ucx_arrivals inbox;      /* to be delivered */
	uint64_t inbox_bytes;           /* in the inbox and being received */
	SLIST_HEAD(, ucx_spare) spares; /* memory of large messages that are over */
	unsigned nspares;
	bool news;          /* a link broke, was made, or has room */
	unsigned unsettled; /* links that are waiting or opening */
	unsigned flushing;
	struct transport_bell bell;
	int timer;
	char address[64];
};

static_assert(sizeof(struct ucx_stamp) == 24, "stamp");
static_assert(sizeof(struct ucx_hello) == 32, "hello");

static void ucx_messages_pump(struct ucx_link *link);
static void ucx_messages_give_up(struct ucx_link *link);
static void ucx_messages_move(struct ucx_link *from, struct ucx_link *to);
static void ucx_messages_free(struct ucx_link *link);
static void ucx_messages_close(struct transport *t);
static struct ucx_arrival *ucx_messages_next(struct transport *t);
static void ucx_arrival_done(struct ucx_arrival *a);

enum { AM_HELLO = 1, AM_WELCOME = 2, OPENING_MS = 3000, ACCEPTING_MS = 10000 };

static const uint64_t MAGIC = 0x3178756367617266; /* "fragucx1" */

/* ---- links: their life ---- */

static bool is_unsettled(enum ucx_link_state state)
{
	return state == UCX_WAITING || state == UCX_OPENING;
}

static void set_state(struct ucx_link *link, enum ucx_link_state state)
{
	link->t->unsettled -= is_unsettled(link->state);
	link->state = state;
	link->t->unsettled += is_unsettled(state);
}

/* Returns the link of that number; NULL: there is none, or it is about to end. */
static struct ucx_link *ucx_link_get(struct transport *t, uint32_t number)
{
	struct ucx_link *link = slot_map_get(&t->links, number);

	return link && link->state <= UCX_BROKEN ? link : NULL;
}

static void link_free(struct ucx_link *link)
{
	ucx_messages_free(link);
	slot_map_remove(&link->t->links, link->number);
	free(link);
}

/* Drops a reference; frees the link with the last one. */
static void ucx_link_unuse(struct ucx_link *link)
{
	if (!--link->uses)
		link_free(link);
}

static void ucx_link_break(struct ucx_link *link)
{
	if (link->state >= UCX_BROKEN)
		return;
	set_state(link, UCX_BROKEN);
	link->t->news = true;
}

/* Adds a link to that peer, to be opened.
 * -ENOMEM.
 * -ENFILE.
 */
static int ucx_link_new(struct transport *t, const struct transport_peer *peer,
			struct ucx_link **out)
{
	struct ucx_link *link = calloc(1, sizeof(*link));
	int rc = -ENOMEM;

	if (!link)
		return rc;
	link->t = t;
	link->outbound = peer != NULL;
	link->peer = peer ? peer->number : 0;
	TAILQ_INIT(&link->waiting);
	TAILQ_INIT(&link->under_way);
	TAILQ_INIT(&link->arrivals);
	link->pause_ms = UCX_LINK_MS;
	link->uses = 1; /* one reference until the link is closed */
	if (getrandom(&link->nonce, sizeof(link->nonce), 0) == sizeof(link->nonce))
		rc = slot_map_add(&t->links, link, &link->number);
	if (rc) {
		free(link);
		return rc;
	}
	t->unsettled++;
	*out = link;
	return 0;
}

static void closed(struct ucx_link *link)
{
	set_state(link, UCX_CLOSED);
	ucx_link_unuse(link);
}

static void on_closed(void *request, ucs_status_t status, void *link)
{
	const struct ucx *ucx = ((struct ucx_link *)link)->t->ucx;

	closed(link);
	ucx->ucp_request_free(request);
}

/* Starts to close the link.  Not inside a callback of UCX. */
static void ucx_link_close(struct ucx_link *link)
{
	const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
							    UCP_OP_ATTR_FIELD_CALLBACK |
							    UCP_OP_ATTR_FIELD_USER_DATA,
					    .flags = UCP_EP_CLOSE_FLAG_FORCE,
					    .cb.send = on_closed,
					    .user_data = link };
	ucs_status_ptr_t request = NULL;

	if (link->state >= UCX_CLOSING)
		return;
	set_state(link, UCX_CLOSING);
	ucx_messages_give_up(link);
	if (link->ep)
		request = link->t->ucx->ucp_ep_close_nbx(link->ep, &param);
	if (!UCS_PTR_IS_PTR(request))
		closed(link);
}

/* ---- links: how they are made ---- */

static void on_error(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	struct ucx_link *link = arg;

	if (link->state == UCX_READY)
		log_debug("UCX: a connection broke: %s",
			  link->t->ucx->ucs_status_string(status));
	ucx_link_break(link);
}

static void said(struct ucx_link *link, ucs_status_t status)
{
	if (status != UCS_OK)
		ucx_link_break(link);
	ucx_link_unuse(link);
}

static void on_said(void *request, ucs_status_t status, void *link)
{
	const struct ucx *ucx = ((struct ucx_link *)link)->t->ucx;

	said(link, status);
	ucx->ucp_request_free(request);
}

static void say(struct ucx_link *link, unsigned what)
{
	const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
							    UCP_OP_ATTR_FIELD_CALLBACK |
							    UCP_OP_ATTR_FIELD_USER_DATA,
					    /* REPLY: the receiver finds its link by the
					     * endpoint that comes with the message
					     */
					    .flags = UCP_AM_SEND_FLAG_REPLY |
						     UCP_AM_SEND_FLAG_EAGER,
					    .cb.send = on_said,
					    .user_data = link };
	ucs_status_ptr_t request;

	link->hello.magic = MAGIC;
	link->hello.nonce = link->nonce;
	link->hello.link = link->number;
	link->uses++;
	request = link->t->ucx->ucp_am_send_nbx(link->ep, what, &link->hello,
						sizeof(link->hello), NULL, 0, &param);
	if (!UCS_PTR_IS_PTR(request))
		said(link, UCS_PTR_STATUS(request));
}

static ucs_status_t make(struct ucx_link *link, ucp_ep_params_t *param)
{
	param->field_mask |=
		UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
	param->err_mode = UCP_ERR_HANDLING_MODE_PEER;
	param->err_handler.cb = on_error;
	param->err_handler.arg = link;
	return link->t->ucx->ucp_ep_create(link->t->worker, param, &link->ep);
}

static void connect_link(struct ucx_link *link, const char *address)
{
	struct sockaddr_in name;
	ucp_ep_params_t param = {
		.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.sockaddr = { .addr = (struct sockaddr *)&name, .addrlen = sizeof(name) }
	};

	set_state(link, UCX_OPENING);
	link->until_ms = monotonic_ms() + OPENING_MS;
	if (transport_address_parse(address, "ucx://", &name) || make(link, &param) != UCS_OK)
		ucx_link_break(link);
	else
		say(link, AM_HELLO);
}

/* ucp_listener's callback: accepts a link. */
static void ucx_link_accept(ucp_conn_request_h request, void *transport)
{
	struct transport *t = transport;
	ucp_ep_params_t param = { .field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
				  .conn_request = request };
	struct ucx_link *link;

	if (ucx_link_new(t, NULL, &link)) {
		t->ucx->ucp_listener_reject(t->listener, request);
		return;
	}
	set_state(link, UCX_OPENING);
	link->until_ms = monotonic_ms() + ACCEPTING_MS;
	if (make(link, &param) != UCS_OK)
		ucx_link_break(link);
}

static void meet(struct ucx_link *link, const struct ucx_hello *hello)
{
	link->stamp = (struct ucx_stamp){ .nonce = hello->nonce, .link = hello->link };
	link->was_ready = true;
	link->pause_ms = UCX_LINK_MS;
	link->t->news = true;
	set_state(link, UCX_READY);
}

static bool take_hello(const void *header, size_t size, struct ucx_hello *hello)
{
	if (size != sizeof(*hello))
		return false;
	memcpy(hello, header, sizeof(*hello));
	return hello->magic == MAGIC;
}

static struct ucx_link *find_accepted(struct transport *t, ucp_ep_h ep)
{
	struct ucx_link *link;
	uint32_t slot = 0;

	while ((link = slot_map_next(&t->links, &slot)))
		if (!link->outbound && link->state == UCX_OPENING && link->ep == ep)
			return link;
	return NULL;
}

static ucs_status_t on_hello(void *transport, const void *header, size_t header_size,
			     void *data, size_t size, const ucp_am_recv_param_t *param)
{
	struct ucx_hello hello;
	struct ucx_link *link;

	if (!take_hello(header, header_size, &hello) ||
	    !(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
		return UCS_OK;
	link = find_accepted(transport, param->reply_ep);
	if (link) {
		meet(link, &hello);
		link->hello.to_nonce = hello.nonce;
		link->hello.to = hello.link;
		say(link, AM_WELCOME);
	}
	return UCS_OK;
}

static ucs_status_t on_welcome(void *transport, const void *header, size_t header_size,
			       void *data, size_t size, const ucp_am_recv_param_t *param)
{
	struct ucx_hello hello;
	struct ucx_link *link;

	if (!take_hello(header, header_size, &hello))
		return UCS_OK;
	link = ucx_link_get(transport, hello.to);
	if (link && link->outbound && link->state == UCX_OPENING &&
	    link->nonce == hello.to_nonce)
		meet(link, &hello);
	return UCS_OK;
}

/* Sets the handlers of UCX for the messages of links. */
static ucs_status_t ucx_links_open(struct transport *t)
{
	ucp_am_handler_param_t param = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
						       UCP_AM_HANDLER_PARAM_FIELD_CB |
						       UCP_AM_HANDLER_PARAM_FIELD_ARG |
						       UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
					 .id = AM_HELLO,
					 .flags = UCP_AM_FLAG_WHOLE_MSG,
					 .cb = on_hello,
					 .arg = t };
	ucs_status_t status = t->ucx->ucp_worker_set_am_recv_handler(t->worker, &param);

	if (status != UCS_OK)
		return status;
	param.id = AM_WELCOME;
	param.cb = on_welcome;
	return t->ucx->ucp_worker_set_am_recv_handler(t->worker, &param);
}

/* ---- links: how they end ---- */

/* Makes another link to the peer, which is tried at once if this link had been ready, else
 * after a pause.
 */
static void replace(struct ucx_link *link, struct transport_peer *peer)
{
	struct ucx_link *next;

	if (ucx_link_new(link->t, peer, &next)) {
		transport_peers_remove(&link->t->peers, peer);
		return;
	}
	peer->router = next->number;
	ucx_messages_move(link, next);
	if (link->stamp.nonce) { /* the link had been ready */
		next->was_ready = true;
		next->until_ms = monotonic_ms();
		return;
	}
	next->gone = link->was_ready || link->gone;
	next->until_ms = monotonic_ms() + link->pause_ms;
	next->pause_ms = (unsigned)u64_min(link->pause_ms * 2, UCX_LINK_MAX_MS);
}

static void reap(struct ucx_link *link)
{
	struct transport *t = link->t;
	struct transport_peer *peer;

	if (link->outbound) {
		peer = transport_peers_get(&t->peers, link->peer);
		if (peer && peer->router == link->number)
			replace(link, peer);
	} else {
		transport_peers_left(&t->peers, (int)link->number, 0);
	}
	ucx_link_close(link);
}

static void look_at_time(struct transport *t)
{
	uint64_t now = monotonic_ms();
	struct ucx_link *link;
	uint32_t slot = 0;

	while (t->unsettled && (link = slot_map_next(&t->links, &slot))) {
		if (!is_unsettled(link->state) || now < link->until_ms)
			continue;
		if (link->state == UCX_OPENING)
			ucx_link_break(link);
		else
			connect_link(link, transport_peers_get(&t->peers, link->peer)->address);
	}
}

/* Acts on what callbacks set, and on the clock. */
static void ucx_links_turn(struct transport *t)
{
	struct ucx_link *link;
	uint32_t slot = 0;

	if (t->unsettled)
		look_at_time(t);
	if (!t->news)
		return;
	t->news = false;
	while ((link = slot_map_next(&t->links, &slot))) {
		if (link->state == UCX_READY)
			ucx_messages_pump(link);
		else if (link->state == UCX_BROKEN)
			reap(link);
	}
}

/* ---- all end ---- */

static void on_flushed(void *request, ucs_status_t status, void *transport)
{
	struct transport *t = transport;

	t->flushing--;
	t->ucx->ucp_request_free(request);
}

static void flush(struct ucx_link *link)
{
	const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							    UCP_OP_ATTR_FIELD_USER_DATA,
					    .cb.send = on_flushed,
					    .user_data = link->t };

	if (link->state == UCX_READY &&
	    UCS_PTR_IS_PTR(link->t->ucx->ucp_ep_flush_nbx(link->ep, &param)))
		link->t->flushing++;
}

static void for_all(struct transport *t, void (*act)(struct ucx_link *link))
{
	struct ucx_link *link;
	uint32_t slot = 0;

	while ((link = slot_map_next(&t->links, &slot)))
		act(link);
}

static bool any_to_send(const struct transport *t)
{
	const struct ucx_link *link;
	uint32_t slot = 0;

	while ((link = slot_map_next(&t->links, &slot)))
		if (link->state == UCX_READY && link->blocks)
			return true;
	return false;
}

static bool any_left(const struct transport *t)
{
	return t->links.count != 0;
}

static bool any_flushing(const struct transport *t)
{
	return t->flushing != 0;
}

static void progress_while(struct transport *t, bool (*any)(const struct transport *t),
			   uint64_t end_ms)
{
	struct ucx_arrival *a;

	while (any(t) && monotonic_ms() < end_ms) {
		while (t->ucx->ucp_worker_progress(t->worker))
			;
		ucx_links_turn(t);
		while ((a = ucx_messages_next(t)))
			ucx_arrival_done(a);
		if (any(t))
			usleep(100); /* UCX does not say what it waits for */
	}
}

/* Closes all links, within ms. */
static void ucx_links_finish(struct transport *t, unsigned ms)
{
	uint64_t end = monotonic_ms() + ms;

	progress_while(t, any_to_send, end);
	for_all(t, flush);
	progress_while(t, any_flushing, end);
	for_all(t, ucx_link_close);
	progress_while(t, any_left, end);
}

/* Frees all links, without a call of UCX. */
static void ucx_links_free(struct transport *t)
{
	struct ucx_arrival *a;
	struct ucx_link *link;
	uint32_t slot = 0;

	while ((a = ucx_messages_next(t)))
		free(a);
	while ((link = slot_map_next(&t->links, &slot)))
		link_free(link);
	slot_map_fini(&t->links);
	ucx_messages_close(t);
}

enum {
	AM_MESSAGE = 3,
	UNDER_WAY = 16,   /* blocks of a link that UCX has */
	EARLY_MAX = 1024, /* arrivals of a link that wait for one before them */
	SPARE_LEAST = 64 << 10,
	SPARE_BYTES = (1 << 20) + 4096, /* bulk comes in messages of 1 MiB */
	SPARES = 8,
};

/* ---- memory of messages, kept: the first touch of a page costs more than a copy of it ---- */

struct ucx_spare {
	SLIST_ENTRY(ucx_spare) next;
};

static bool is_spare(size_t size)
{
	return size >= SPARE_LEAST && size <= SPARE_BYTES;
}

static void *memory_new(struct transport *t, size_t size)
{
	struct ucx_spare *spare = is_spare(size) ? SLIST_FIRST(&t->spares) : NULL;

	if (!spare)
		return malloc(is_spare(size) ? SPARE_BYTES : size);
	SLIST_REMOVE_HEAD(&t->spares, next);
	t->nspares--;
	return spare;
}

static void memory_free(struct transport *t, void *memory, size_t size)
{
	struct ucx_spare *spare = memory;

	if (!is_spare(size) || t->nspares == SPARES) {
		free(memory);
		return;
	}
	SLIST_INSERT_HEAD(&t->spares, spare, next);
	t->nspares++;
}

static void ucx_messages_close(struct transport *t)
{
	struct ucx_spare *spare;

	while ((spare = SLIST_FIRST(&t->spares))) {
		SLIST_REMOVE_HEAD(&t->spares, next);
		free(spare);
	}
}

/* ---- messages: sending ---- */

static void block_free(struct ucx_block *block)
{
	struct ucx_link *link = block->link;

	link->t->bytes -= block->size;
	link->bytes -= block->size;
	link->blocks--;
	memory_free(link->t, block, sizeof(*block) + block->size);
}

static void sent(struct ucx_block *block, ucs_status_t status)
{
	struct ucx_link *link = block->link;

	TAILQ_REMOVE(&link->under_way, block, next);
	link->nunder_way--;
	link->t->news = true;
	if (status != UCS_OK)
		ucx_link_break(link);
	block_free(block);
	ucx_link_unuse(link);
}

static void on_sent(void *request, ucs_status_t status, void *block)
{
	struct ucx_link *link = ((struct ucx_block *)block)->link;
	const struct ucx *ucx = link->t->ucx;

	sent(block, status);
	ucx->ucp_request_free(request);
}

static void post(struct ucx_link *link, struct ucx_block *block)
{
	const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							    UCP_OP_ATTR_FIELD_USER_DATA,
					    .cb.send = on_sent,
					    .user_data = block };
	ucs_status_ptr_t request;

	TAILQ_INSERT_HEAD(&link->under_way, block, next);
	link->nunder_way++;
	link->uses++;
	block->stamp = link->stamp;
	link->stamp.sequence++;
	request = link->t->ucx->ucp_am_send_nbx(link->ep, AM_MESSAGE, &block->stamp,
						sizeof(block->stamp), block->data, block->size,
						&param);
	if (!UCS_PTR_IS_PTR(request))
		sent(block, UCS_PTR_STATUS(request));
}

/* Gives UCX the blocks that wait, as far as it may have them. */
static void ucx_messages_pump(struct ucx_link *link)
{
	struct ucx_block *block;

	while ((block = TAILQ_FIRST(&link->waiting)) && link->state == UCX_READY &&
	       link->nunder_way < UNDER_WAY) {
		TAILQ_REMOVE(&link->waiting, block, next);
		post(link, block);
	}
}

/* Moves blocks that UCX does not have to another link of the same peer. */
static void ucx_messages_move(struct ucx_link *from, struct ucx_link *to)
{
	struct ucx_block *block;

	TAILQ_FOREACH (block, &from->waiting, next) {
		block->link = to;
		from->blocks--;
		from->bytes -= block->size;
		to->blocks++;
		to->bytes += block->size;
	}
	TAILQ_CONCAT(&to->waiting, &from->waiting, next);
}

static struct ucx_block *block_new(struct ucx_link *link, const struct iovec *parts,
				   unsigned nparts, uint64_t size)
{
	struct ucx_block *block = memory_new(link->t, sizeof(*block) + size);

	if (!block)
		return NULL;
	*block = (struct ucx_block){ .link = link, .size = size };
	transport_message_fill(block->data, parts, nparts);
	return block;
}

static int ucx_message_send(struct ucx_link *link, const struct iovec *parts, unsigned nparts,
			    uint64_t size)
{
	struct transport *t = link->t;
	struct ucx_block *block;

	if (link->blocks >= t->queue_max || link->bytes + size > TRANSPORT_QUEUE_PEER ||
	    t->bytes + size > TRANSPORT_QUEUE_ALL)
		return -EAGAIN;
	block = block_new(link, parts, nparts, size);
	if (!block)
		return -ENOMEM;
	TAILQ_INSERT_TAIL(&link->waiting, block, next);
	link->blocks++;
	link->bytes += size;
	t->bytes += size;
	ucx_messages_pump(link);
	return 0;
}

/* ---- messages: receiving ---- */

static void arrival_free(struct ucx_arrival *a)
{
	memory_free(a->link->t, a, sizeof(*a) + a->size);
}

static void ucx_arrival_done(struct ucx_arrival *a)
{
	struct ucx_link *link = a->link;

	link->t->inbox_bytes -= a->size;
	arrival_free(a);
	ucx_link_unuse(link);
}

/* Removes the next message from the inbox, which ucx_arrival_done frees; NULL: none. */
static struct ucx_arrival *ucx_messages_next(struct transport *t)
{
	struct ucx_arrival *a = TAILQ_FIRST(&t->inbox);

	if (a)
		TAILQ_REMOVE(&t->inbox, a, next);
	return a;
}

/* Moves arrivals that are whole, and the next by their sequence, to the inbox. */
static void to_inbox(struct ucx_link *link)
{
	struct transport *t = link->t;
	struct ucx_arrival *a;

	while ((a = TAILQ_FIRST(&link->arrivals)) && a->whole &&
	       a->sequence == link->expected) {
		TAILQ_REMOVE(&link->arrivals, a, next);
		link->narrivals--;
		link->expected++;
		TAILQ_INSERT_TAIL(&t->inbox, a, next);
	}
}

/* Inserts the arrival by its sequence.  false: that sequence has come before, or too many
 * arrivals wait.
 */
static bool insert(struct ucx_link *link, struct ucx_arrival *a)
{
	struct ucx_arrival *at;

	TAILQ_FOREACH (at, &link->arrivals, next)
		if (at->sequence >= a->sequence)
			break;
	if (a->sequence < link->expected || (at && at->sequence == a->sequence) ||
	    link->narrivals >= EARLY_MAX)
		return false;
	if (at)
		TAILQ_INSERT_BEFORE(at, a, next);
	else
		TAILQ_INSERT_TAIL(&link->arrivals, a, next);
	link->narrivals++;
	link->uses++;
	link->t->inbox_bytes += a->size;
	return true;
}

static struct ucx_arrival *arrival_new(struct ucx_link *link, const struct ucx_stamp *stamp,
				       size_t size)
{
	struct ucx_arrival *a;

	if (size > TRANSPORT_MESSAGE_MAX || !(a = memory_new(link->t, sizeof(*a) + size)))
		return NULL;
	*a = (struct ucx_arrival){ .link = link, .sequence = stamp->sequence, .size = size };
	if (insert(link, a))
		return a;
	arrival_free(a);
	return NULL;
}

static void drop(struct ucx_arrival *a)
{
	TAILQ_REMOVE(&a->link->arrivals, a, next);
	a->link->narrivals--;
	ucx_arrival_done(a);
}

static void came(struct ucx_arrival *a, ucs_status_t status)
{
	struct ucx_link *link = a->link;

	a->whole = status == UCS_OK;
	if (!a->whole)
		ucx_link_break(link);
	if (!a->whole || link->state >= UCX_CLOSING)
		drop(a);
	else
		to_inbox(link);
}

/* Drops whole arrivals: the one that they wait for will not come. */
static void ucx_messages_give_up(struct ucx_link *link)
{
	struct ucx_arrival *a, *next;

	TAILQ_FOREACH_SAFE (a, &link->arrivals, next, next)
		if (a->whole)
			drop(a);
}

static void on_received(void *request, ucs_status_t status, size_t size, void *arrival)
{
	struct ucx_arrival *a = arrival;
	struct ucx_link *link = a->link;

	link->uses++; /* held until ucx_link_unuse below */
	came(a, size == a->size ? status : UCS_ERR_MESSAGE_TRUNCATED);
	link->t->ucx->ucp_request_free(request);
	ucx_link_unuse(link);
}

/* Receives a large message, whose sender waits until UCX tells it where to write. */
static void fetch(struct ucx_arrival *a, void *descriptor)
{
	struct transport *t = a->link->t;
	const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							    UCP_OP_ATTR_FIELD_USER_DATA |
							    UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
					    .cb.recv_am = on_received,
					    .user_data = a };
	ucs_status_ptr_t request =
		t->ucx->ucp_am_recv_data_nbx(t->worker, descriptor, a->data, a->size, &param);

	if (!UCS_PTR_IS_PTR(request))
		came(a, UCS_PTR_STATUS(request));
}

static ucs_status_t on_message(void *transport, const void *header, size_t header_size,
			       void *data, size_t size, const ucp_am_recv_param_t *param)
{
	struct ucx_stamp stamp;
	struct ucx_link *link;
	struct ucx_arrival *a;

	if (header_size != sizeof(stamp))
		return UCS_OK;
	memcpy(&stamp, header, sizeof(stamp));
	link = ucx_link_get(transport, stamp.link);
	if (!link || link->nonce != stamp.nonce || link->state != UCX_READY)
		return UCS_OK;
	a = arrival_new(link, &stamp, size);
	if (!a) {
		ucx_link_break(link);
	} else if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
		fetch(a, data);
	} else {
		if (size)
			memcpy(a->data, data, size);
		came(a, UCS_OK);
	}
	return UCS_OK;
}

static ucs_status_t ucx_messages_open(struct transport *t)
{
	const ucp_am_handler_param_t param = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
							     UCP_AM_HANDLER_PARAM_FIELD_CB |
							     UCP_AM_HANDLER_PARAM_FIELD_ARG |
							     UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
					       .id = AM_MESSAGE,
					       .flags = UCP_AM_FLAG_WHOLE_MSG,
					       .cb = on_message,
					       .arg = t };

	return t->ucx->ucp_worker_set_am_recv_handler(t->worker, &param);
}

/* ---- the end ---- */

static void free_blocks(struct ucx_blocks *blocks)
{
	struct ucx_block *block;

	while ((block = TAILQ_FIRST(blocks))) {
		TAILQ_REMOVE(blocks, block, next);
		block_free(block);
	}
}

static void ucx_messages_free(struct ucx_link *link)
{
	struct ucx_arrival *a;

	free_blocks(&link->waiting);
	free_blocks(&link->under_way);
	while ((a = TAILQ_FIRST(&link->arrivals))) {
		TAILQ_REMOVE(&link->arrivals, a, next);
		link->t->inbox_bytes -= a->size;
		arrival_free(a);
	}
}

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

/* Binds to the address once, for the errno: UCX does not say why it cannot listen there. */
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
	int rc = transport_address_parse(address, "ucx://", &l.name);

	if (!rc)
		rc = check_address(&l.name);
	if (!rc)
		rc = l.name.sin_port ? listen_at(&l, ntohs(l.name.sin_port))
				     : transport_address_bind_anywhere(listen_at, &l);
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
	sigfillset(&all); /* UCX's thread inherits the mask */
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

	timerfd_settime(t->timer, 0, &time, NULL); /* also clears what the timer had to tell */
}

/* Arms all that wakes the owner: UCX's descriptor, the timer, the bell. */
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

	if (transport_address_parse(address, "ucx://", &name) || !name.sin_port)
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

	if (!TAILQ_EMPTY(&t->inbox)) /* messages that came before are delivered first */
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

/* Returns false while the inbox has enough.  With an empty one all bytes are of messages that
 * are being received, which only progress ends.
 */
static bool may_progress(const struct transport *t)
{
	return TAILQ_EMPTY(&t->inbox) || t->inbox_bytes < INBOX_BYTES;
}

static void progress(struct transport *t)
{
	unsigned some = 1;

	ucx_links_turn(t);
	for (int i = 0; some && i < PROGRESSES && may_progress(t); i++) {
		some = t->ucx->ucp_worker_progress(t->worker);
		ucx_links_turn(t);
	}
}

/* Returns the peer that a message came from; NULL: it was disconnected meanwhile. */
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
		transport_peers_left(&t->peers, (int)a->link->number, 0);
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

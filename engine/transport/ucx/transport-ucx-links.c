/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/transport/ucx/transport-ucx-internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/random.h>

enum { AM_HELLO = 1, AM_WELCOME = 2, OPENING_MS = 3000, ACCEPTING_MS = 10000 };

static const uint64_t MAGIC = 0x3178756367617266; /* "fragucx1" */

/* ---- their life ---- */

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

struct ucx_link *ucx_link_get(struct transport *t, uint32_t number)
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

void ucx_link_unuse(struct ucx_link *link)
{
	if (!--link->uses)
		link_free(link);
}

void ucx_link_break(struct ucx_link *link)
{
	if (link->state >= UCX_BROKEN)
		return;
	set_state(link, UCX_BROKEN);
	link->t->news = true;
}

int ucx_link_new(struct transport *t, const struct transport_peer *peer, struct ucx_link **out)
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
	link->uses = 1; /* until it is closed */
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

void ucx_link_close(struct ucx_link *link)
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

/* ---- they are made ---- */

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
	if (ucx_address_parse(address, &name) || make(link, &param) != UCS_OK)
		ucx_link_break(link);
	else
		say(link, AM_HELLO);
}

void ucx_link_accept(ucp_conn_request_h request, void *transport)
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

ucs_status_t ucx_links_open(struct transport *t)
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

/* ---- they end ---- */

/* Another link to the same peer, to be tried at once when there was one, and after a pause when
 * it could not be made.
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
	if (link->stamp.nonce) { /* it had been ready */
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
		transport_peers_left(&t->peers, (int)link->number, false);
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

void ucx_links_turn(struct transport *t)
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

void ucx_links_finish(struct transport *t, unsigned ms)
{
	uint64_t end = monotonic_ms() + ms;

	progress_while(t, any_to_send, end);
	for_all(t, flush);
	progress_while(t, any_flushing, end);
	for_all(t, ucx_link_close);
	progress_while(t, any_left, end);
}

void ucx_links_free(struct transport *t)
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

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/node/fabric.h"
#include "engine/node/peers.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

enum { MESSAGES_PER_TURN = 64 };

/* How far the rank's answers to this engine have come. */
enum calling {
	IDLE,
	NEVER,   /* the rank has no fabric */
	CALLED,  /* it was told where to connect */
	HEARD,   /* something of it has come by the fabric */
	USED,    /* it was told to answer by the fabric */
	STOPPING /* it was told, or is to be told, to stop */
};

/* How far this engine's answers to the rank have come. */
enum serving {
	NOT_CONNECTED,
	CONNECTED, /* for a PONG; the rank has not said USE */
	ANSWERS
};

struct reach { /* the fabric between this engine and one rank */
	/* the rank's answers to this engine */
	enum calling state;
	bool asking;     /* a FABRIC is under way, in any state but NEVER */
	uint64_t cookie; /* of the rank's process */
	uint64_t token;
	uint64_t until_ms; /* CALLED: the call fails then; IDLE: no call before */
	uint64_t pause_ms; /* after the last failure */
	uint64_t quiet_ms; /* since when PONGs have come as messages alone; 0: they have not */
	uint64_t pong;     /* peer.pong when is_silent last looked */
	uint32_t from;     /* the rank's number in the fabric, as a sender */
	/* this engine's answers to the rank */
	enum serving serving;
	uint32_t to;   /* the rank's number in the fabric, as a receiver */
	uint32_t peer; /* the message peer from which its FABRICs come */
	uint64_t their_token;
};

struct fabric {
	const struct transport_ops *ops;
	struct transport *t;
	fabric_receive receive;
	unsigned nuses;
	uint64_t sent, came; /* answers */
	struct reach ranks[];
};

/* ---- open ---- */

int fabric_open_over(struct engine *e, const struct transport_ops *ops,
		     const struct transport_config *config)
{
	struct fabric *f = calloc(1, sizeof(*f) + e->world * sizeof(f->ranks[0]));
	int rc = f ? ops->open(&f->t, config) : -ENOMEM;

	if (rc) {
		free(f);
		return rc;
	}
	f->ops = ops;
	e->fabric = f;
	return 0;
}

void fabric_open(struct engine *e)
{
	const struct fabric_config *c = &e->launch.fabric;
	struct fabric_devices devices;
	struct transport_config config = { .bind = devices.address, .devices = c->devices };
	char why[300];
	int rc;

	if (!c->wanted)
		return;
	rc = fabric_config_devices(c, "/sys", &devices, why, sizeof(why));
	if (rc) {
		log_warn("no FRAG_FABRIC, ZeroMQ does it all: %s", why);
		return;
	}
	config.rdma = devices.rdma;
	rc = fabric_open_over(e, &transport_ucx, &config);
	if (rc)
		log_warn("no FRAG_FABRIC on %s, ZeroMQ does it all: %s", c->devices,
			 strerror(-rc));
	else
		log_info("bulk data between ranks goes by UCX, here at %s", fabric_address(e));
}

const char *fabric_address(const struct engine *e)
{
	return e->fabric ? e->fabric->ops->address(e->fabric->t) : NULL;
}

int fabric_fd(const struct engine *e)
{
	return e->fabric ? e->fabric->ops->fd(e->fabric->t) : -1;
}

void fabric_free(struct engine *e)
{
	if (!e->fabric)
		return;
	log_info("by UCX %llu answers were sent and %llu came",
		 (unsigned long long)e->fabric->sent, (unsigned long long)e->fabric->came);
	e->fabric->ops->close(e->fabric->t);
	free(e->fabric);
	e->fabric = NULL;
}

/* ---- this engine's answers ---- */

static void set_serving(struct fabric *f, struct reach *r, enum serving serving)
{
	f->nuses += serving == ANSWERS;
	f->nuses -= r->serving == ANSWERS;
	r->serving = serving;
}

static void disconnect(struct fabric *f, struct reach *r)
{
	if (r->serving >= CONNECTED)
		f->ops->disconnect(f->t, r->to);
	set_serving(f, r, NOT_CONNECTED);
}

static int send_by(struct engine *e, struct reach *r, enum wire_type type, uint64_t request,
		   const void *body, const void *tail, size_t size)
{
	struct wire_header header;
	struct iovec parts[4] = {
		{ &header, sizeof(header) },
		{ (void *)(uintptr_t)body, wire_body_size(type) },
		{ (void *)(uintptr_t)tail, size },
		{ &r->their_token, sizeof(r->their_token) },
	};
	int rc;

	log_trace("message by the fabric to peer %u: %s %llu, %zu bytes", r->to,
		  wire_type_name(type), (unsigned long long)request,
		  wire_body_size(type) + size);
	node_header(e, &header, type, request);
	rc = e->fabric->ops->send(e->fabric->t, r->to, parts, 4);
	e->fabric->sent += !rc && type != WIRE_PONG;
	if (rc == -ENOTCONN)
		disconnect(e->fabric, r);
	return rc;
}

/* Returns the rank that takes answers to this message peer by the fabric; NULL: none does. */
static struct reach *who_uses(struct engine *e, uint32_t peer)
{
	struct fabric *f = e->fabric;

	for (uint32_t rank = 0; f && f->nuses && rank < e->world; rank++)
		if (f->ranks[rank].serving == ANSWERS && f->ranks[rank].peer == peer)
			return &f->ranks[rank];
	return NULL;
}

bool fabric_answer(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
		   const void *body, const void *tail, size_t size)
{
	struct reach *r = NULL;

	assert(node_is_engine_thread(e));
	if (type == WIRE_DATA || type == WIRE_STATES || type == WIRE_PONG)
		r = who_uses(e, peer);
	return r && !send_by(e, r, type, request, body, tail, size);
}

void fabric_reply(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
		  const void *body, const void *tail, size_t size)
{
	if (fabric_answer(e, peer, type, request, body, tail, size))
		return;
	if (node_send(e, peer, type, request, body, tail, size) == -EAGAIN)
		node_ack(e, peer, request, -EAGAIN);
}

static int begin(struct engine *e, struct reach *r, uint32_t peer,
		 const struct wire_fabric *asked)
{
	struct fabric *f = e->fabric;
	struct wire_control control;
	int rc;

	disconnect(f, r);
	if (!wire_text_ok(asked->address, sizeof(asked->address)))
		return -EINVAL;
	rc = f->ops->connect(f->t, asked->address, &r->to);
	if (rc)
		return rc;
	set_serving(f, r, CONNECTED);
	r->peer = peer;
	r->their_token = asked->token;
	wire_control_from_page(&control, e->registry.control);
	return send_by(e, r, WIRE_PONG, 0, &control, NULL, 0);
}

static int serve(struct engine *e, uint32_t peer, struct reach *r,
		 const struct wire_fabric *asked)
{
	if (asked->what == WIRE_FABRIC_CALL)
		return begin(e, r, peer, asked);
	if (r->serving == NOT_CONNECTED || r->peer != peer || r->their_token != asked->token)
		return -ESTALE;
	if (asked->what == WIRE_FABRIC_USE)
		set_serving(e->fabric, r, ANSWERS);
	else
		disconnect(e->fabric, r);
	return 0;
}

void fabric_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		  const void *body)
{
	struct wire_fabric asked;
	int rc = -EOPNOTSUPP;

	memcpy(&asked, body, sizeof(asked));
	if (e->fabric)
		rc = serve(e, peer, &e->fabric->ranks[header->rank], &asked);
	node_ack(e, peer, header->request, rc);
}

void fabric_peer_gone(struct engine *e, uint32_t peer)
{
	struct fabric *f = e->fabric;

	for (uint32_t rank = 0; f && rank < e->world; rank++)
		if (f->ranks[rank].serving >= CONNECTED && f->ranks[rank].peer == peer)
			disconnect(f, &f->ranks[rank]);
}

/* ---- the ranks' answers ---- */

static bool on_ack(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct reach *r = &e->fabric->ranks[rank];

	r->asking = false;
	if (answer->status == -EOPNOTSUPP) {
		log_info("rank %u has no UCX", (uint32_t)rank);
		r->state = NEVER;
	}
	if (r->state == STOPPING && answer->status != -EAGAIN)
		r->state = IDLE;
	return false;
}

static void ask(struct engine *e, uint32_t rank, enum wire_fabric_what what)
{
	struct reach *r = &e->fabric->ranks[rank];
	struct wire_fabric call = { .token = r->token, .what = what };

	snprintf(call.address, sizeof(call.address), "%s", fabric_address(e));
	r->asking = !peers_call(e, rank, WIRE_FABRIC, &call, NULL, 0, on_ack, r, rank);
}

static void give_up(struct engine *e, uint32_t rank, const char *why)
{
	struct reach *r = &e->fabric->ranks[rank];

	log_warn("rank %u %s by UCX: ZeroMQ goes on", rank, why);
	r->state = STOPPING;
	r->pause_ms = peer_pause_ms(r->pause_ms);
	r->until_ms = monotonic_ms() + r->pause_ms;
	e->peers[rank].fabric = false;
	if (!r->asking)
		ask(e, rank, WIRE_FABRIC_STOP);
	rpc_ask_again(e, rank);
}

/* Forgets a rank that is lost, or has another process now. */
static void forget(struct engine *e, uint32_t rank)
{
	struct reach *r = &e->fabric->ranks[rank];

	disconnect(e->fabric, r);
	rpc_forget(e, r);
	*r = (struct reach){ .cookie = e->peers[rank].entry.cookie[0] };
	e->peers[rank].fabric = false;
}

static void call(struct engine *e, uint32_t rank, uint64_t now)
{
	struct reach *r = &e->fabric->ranks[rank];

	if (getrandom(&r->token, sizeof(r->token), 0) != sizeof(r->token))
		return;
	ask(e, rank, WIRE_FABRIC_CALL);
	r->state = r->asking ? CALLED : IDLE;
	r->until_ms = now + PEER_CALLING_MS;
}

static void use(struct engine *e, uint32_t rank)
{
	struct reach *r = &e->fabric->ranks[rank];
	struct peer *p = &e->peers[rank];

	ask(e, rank, WIRE_FABRIC_USE);
	if (!r->asking)
		return;
	log_info("rank %u answers by UCX", rank);
	r->state = USED;
	r->quiet_ms = 0;
	p->fabric_pong = 0;
	p->fabric = true;
}

/* Returns true if PONGs have come by message alone for PEER_SILENT_MS. */
static bool is_silent(struct reach *r, const struct peer *p, uint64_t now)
{
	if (p->pong == r->pong)
		return false;
	r->pong = p->pong;
	if (!r->quiet_ms)
		r->quiet_ms = now;
	return now >= r->quiet_ms + PEER_SILENT_MS;
}

static void turn_rank(struct engine *e, uint32_t rank, uint64_t now)
{
	struct reach *r = &e->fabric->ranks[rank];
	struct peer *p = &e->peers[rank];

	if (!peer_is_live(p) || p->entry.cookie[0] != r->cookie) {
		if (r->cookie != p->entry.cookie[0] || r->state >= CALLED ||
		    r->serving >= CONNECTED)
			forget(e, rank);
		return;
	}
	if (r->state == USED && is_silent(r, p, now))
		give_up(e, rank, "is silent");
	else if (r->state == CALLED && now >= r->until_ms)
		give_up(e, rank, "does not come");
	else if (r->asking)
		return;
	else if (r->state == STOPPING)
		ask(e, rank, WIRE_FABRIC_STOP);
	else if (r->state == HEARD)
		use(e, rank);
	else if (r->state == IDLE && p->wants_bulk && now >= r->until_ms)
		call(e, rank, now);
}

static void hear(struct reach *r, uint32_t from)
{
	r->from = from;
	r->quiet_ms = 0;
	if (r->state == CALLED)
		r->state = HEARD;
}

/* Returns the rank that sent a message of the fabric; NULL: this engine has not called it, or
 * token or process are others.
 */
static struct reach *sender(struct engine *e, const struct wire_header *header, uint64_t token)
{
	struct fabric *f = e->fabric;
	struct reach *r = header->rank < e->world ? &f->ranks[header->rank] : NULL;
	bool open = r && (r->state == CALLED || r->state == HEARD || r->state == USED);

	return open && r->token == token &&
			       header->life == node_life(e->peers[header->rank].entry.cookie)
		       ? r
		       : NULL;
}

static void take_message(struct engine *e, const struct wire_header *header, const void *body,
			 const void *tail, size_t tail_size)
{
	struct peer *p = &e->peers[header->rank];

	if (header->type == WIRE_PONG) {
		p->fabric_pong = header->request;
		rpc_ask_again(e, header->rank);
	} else if (p->linked && (header->type == WIRE_DATA || header->type == WIRE_STATES)) {
		e->fabric->came++;
		e->fabric->receive(e, p->link, header, body, tail, tail_size);
	}
}

static void receive(void *owner, uint32_t from, const void *data, size_t size)
{
	struct engine *e = owner;
	struct wire_header header;
	const void *body, *tail;
	size_t tail_size;
	struct reach *r;
	uint64_t token;
	int status;

	if (size < sizeof(token))
		return;
	size -= sizeof(token);
	memcpy(&token, (const uint8_t *)data + size, sizeof(token));
	body = wire_open(data, size, &header, &tail, &tail_size, &status);
	r = body ? sender(e, &header, token) : NULL;
	if (!r)
		return;
	hear(r, from);
	take_message(e, &header, body, tail, tail_size);
}

static void take_gone(struct engine *e, uint32_t peer)
{
	struct fabric *f = e->fabric;

	for (uint32_t rank = 0; rank < e->world; rank++) {
		struct reach *r = &f->ranks[rank];

		if (r->serving >= CONNECTED && r->to == peer)
			disconnect(f, r);
		if ((r->state == HEARD || r->state == USED) && r->from == peer)
			give_up(e, rank, "breaks off");
	}
}

void fabric_turn(struct engine *e, uint64_t now, fabric_receive deliver)
{
	struct fabric *f = e->fabric;
	uint32_t peer;

	assert(node_is_engine_thread(e));
	if (!f)
		return;
	f->receive = deliver;
	f->ops->turn(f->t, receive, e, MESSAGES_PER_TURN);
	while (f->ops->gone && f->ops->gone(f->t, &peer))
		take_gone(e, peer);
	for (uint32_t rank = 0; e->job.ready && rank < e->world; rank++)
		if (rank != e->rank)
			turn_rank(e, rank, now);
}

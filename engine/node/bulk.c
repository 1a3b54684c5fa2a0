/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/base/log.h"
#include "engine/node/bulk.h"
#include "engine/node/rpc.h"
#include "engine/transport/transport-address.h"

#include <errno.h>
#include <stdio.h>

/* ---- the port ---- */

void bulk_open(struct engine *e, const char *address)
{
	struct transport_config config = { .key = e->job.key.is_there ? e->job.key.bytes : NULL,
					   .reads_only = e->job.key.reads_only,
					   .expected = e->world,
					   .second = true };
	char host[TRANSPORT_ADDRESS];
	unsigned port;
	int rc;

	if (address && !transport_address_cut(address, "tcp://", host, &port))
		config.bind = host;
	e->bulk.ops = &transport_tls;
	rc = e->bulk.ops->open(&e->bulk.transport, &config);
	if (rc)
		log_once(LOG_WARN, "no TLS, ZeroMQ does it all: %s", strerror(-rc));
	else if (address)
		log_info("bulk data goes by %s, here at %s", config.key ? "TLS" : "plain TCP",
			 e->bulk.ops->address(e->bulk.transport));
}

void bulk_close(struct engine *e)
{
	for (uint32_t rank = 0; rank < e->world && e->peers; rank++)
		bulk_unlink(e, &e->peers[rank]);
	if (e->bulk.transport)
		e->bulk.ops->close(e->bulk.transport);
	e->bulk.transport = NULL;
}

uint16_t bulk_listens_at(const struct engine *e)
{
	const char *address = e->bulk.transport ? e->bulk.ops->address(e->bulk.transport) : "";
	char host[TRANSPORT_ADDRESS];
	unsigned port;

	return transport_address_cut(address, "tcp://", host, &port) ? 0 : (uint16_t)port;
}

/* ---- a rank ---- */

void bulk_unlink(struct engine *e, struct peer *p)
{
	if (p->bulk >= PEER_BULK_CALLED)
		e->bulk.ops->disconnect(e->bulk.transport, p->bulk_link);
	p->bulk = PEER_BULK_NONE;
	p->bulk_quiet_ms = 0;
	p->bulk_pong = 0;
}

/* Requests that are open on the link end with -EAGAIN, and are asked again by message. */
static void drop_link(struct engine *e, uint32_t rank, uint64_t again_ms)
{
	struct peer *p = &e->peers[rank];
	uint32_t link = p->bulk_link;

	bulk_unlink(e, p);
	p->bulk_again_ms = again_ms;
	rpc_fail_peer(e, link, -EAGAIN);
}

/* Warns once of each rank; of ranks that have never answered there, as behind a firewall, once
 * of all.
 */
static void give_up(struct engine *e, uint32_t rank, uint64_t now, const char *why)
{
	struct peer *p = &e->peers[rank];
	bool answered = p->bulk == PEER_BULK_ANSWERS;
	bool told = p->bulk_pause_ms || (!answered && e->bulk_told);

	log_line(told ? LOG_INFO : LOG_WARN, "rank %u %s by TLS at port %u: ZeroMQ goes on",
		 rank, why, p->entry.bulk);
	e->bulk_told |= !answered;
	p->bulk_pause_ms = peer_pause_ms(p->bulk_pause_ms);
	drop_link(e, rank, now + p->bulk_pause_ms);
}

/* Logs no warning: most often the rank ends, of which another line tells. */
static void break_off(struct engine *e, uint32_t rank, uint64_t now)
{
	log_info("rank %u breaks off by TLS", rank);
	drop_link(e, rank, now + PEER_AGAIN_MS);
}

static bool on_pong(struct engine *e, void *owner, uint64_t rank, const struct answer *answer)
{
	struct peer *p = &e->peers[rank];

	if (answer->status || answer->type != WIRE_PONG || p->bulk != PEER_BULK_CALLED)
		return false;
	log_info("rank %u answers by TLS", (uint32_t)rank);
	p->bulk = PEER_BULK_ANSWERS;
	return false;
}

static void ping(struct engine *e, uint32_t rank, uint64_t now)
{
	struct peer *p = &e->peers[rank];

	p->bulk_pinged_ms = now;
	rpc_call(e, rank, p->bulk_link, WIRE_PING, NULL, NULL, 0, on_pong, NULL, rank);
}

static void connect_to(struct engine *e, uint32_t rank, uint64_t now)
{
	struct peer *p = &e->peers[rank];
	char host[TRANSPORT_ADDRESS], address[TRANSPORT_ADDRESS + 16];
	unsigned port;

	if (!e->bulk.transport)
		bulk_open(e, NULL);
	p->bulk_again_ms = now + PEER_AGAIN_MS;
	if (!e->bulk.transport)
		return;
	if (transport_address_cut(p->entry.address, "tcp://", host, &port))
		return;
	snprintf(address, sizeof(address), "%s:%u", host, p->entry.bulk);
	if (e->bulk.ops->connect(e->bulk.transport, address, &p->bulk_link))
		return;
	p->bulk = PEER_BULK_CALLED;
	p->bulk_heard_ms = now;
	ping(e, rank, now);
}

/* Returns true if nothing has come by the bulk port for PEER_SILENT_MS, although PINGs go
 * there, and a message has come in the second half of that time: the rank itself is not silent.
 */
static bool is_silent(struct peer *p, uint64_t now)
{
	if (!p->bulk_quiet_ms && p->heard_ms > p->bulk_heard_ms + NODE_PING_MS)
		p->bulk_quiet_ms = now;
	return p->bulk_quiet_ms && now >= p->bulk_quiet_ms + PEER_SILENT_MS &&
	       p->heard_ms >= p->bulk_quiet_ms + PEER_SILENT_MS / 2;
}

static void turn_rank(struct engine *e, uint32_t rank, uint64_t now)
{
	struct peer *p = &e->peers[rank];

	if (p->bulk == PEER_BULK_NONE) {
		if (p->wants_bulk && p->entry.bulk && p->linked && !p->fabric &&
		    peer_is_live(p) && now >= p->bulk_again_ms)
			connect_to(e, rank, now);
	} else if (e->bulk.ops->refused(e->bulk.transport, p->bulk_link)) {
		give_up(e, rank, now, "refuses this engine");
	} else if (p->bulk != PEER_BULK_ANSWERS && now >= p->bulk_heard_ms + PEER_CALLING_MS) {
		give_up(e, rank, now, "does not answer");
	} else if (p->bulk == PEER_BULK_BROKEN) {
		break_off(e, rank, now);
	} else if (p->bulk == PEER_BULK_ANSWERS && is_silent(p, now)) {
		give_up(e, rank, now, "is silent");
	} else if (now >= p->bulk_pinged_ms + NODE_PING_MS) {
		ping(e, rank, now);
	}
}

void bulk_turn(struct engine *e, uint64_t now)
{
	assert(node_is_engine_thread(e));
	if (e->messages.ops != &transport_zmq || !e->job.ready)
		return;
	for (uint32_t rank = 0; rank < e->world; rank++)
		if (!e->is_rank || rank != e->rank)
			turn_rank(e, rank, now);
}

uint32_t bulk_choose(struct engine *e, uint32_t rank, enum wire_type type)
{
	const struct peer *p = &e->peers[rank];
	bool by_bulk = p->bulk == PEER_BULK_ANSWERS && !p->fabric &&
		       (type == WIRE_READ || type == WIRE_STATES_GET);

	return by_bulk ? p->bulk_link : p->link;
}

void bulk_heard(struct engine *e, uint32_t rank, uint32_t peer)
{
	struct peer *p = &e->peers[rank];

	if (p->bulk >= PEER_BULK_CALLED && p->bulk_link == peer) {
		p->bulk_heard_ms = monotonic_ms();
		p->bulk_quiet_ms = p->bulk_pause_ms = 0;
	}
}

void bulk_gone(struct engine *e, uint32_t peer)
{
	for (uint32_t rank = 0; rank < e->world && e->peers; rank++)
		if (e->peers[rank].bulk >= PEER_BULK_CALLED && e->peers[rank].bulk_link == peer)
			break_off(e, rank, monotonic_ms());
}

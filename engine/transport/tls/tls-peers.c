/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/tls/tls-peers.h"

#include <errno.h>

void tls_peers_init(struct tls_peers *p, uint32_t max)
{
	slot_map_init(&p->slots, max);
	TAILQ_INIT(&p->outbound);
	TAILQ_INIT(&p->inbound);
	TAILQ_INIT(&p->ready);
	TAILQ_INIT(&p->heard);
}

void tls_peers_fini(struct tls_peers *p)
{
	struct tls_peer *peer, *next;

	TAILQ_FOREACH_SAFE (peer, &p->outbound, all, next)
		tls_peers_remove(p, peer);
	TAILQ_FOREACH_SAFE (peer, &p->inbound, all, next)
		tls_peers_remove(p, peer);
	slot_map_fini(&p->slots);
}

struct tls_peer *tls_peers_get(struct tls_peers *p, uint32_t number)
{
	return slot_map_get(&p->slots, number);
}

/* ---- add and remove ---- */

static struct tls_peer *new_peer(void)
{
	struct tls_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->number = TLS_PEERS_NO_NUMBER;
	peer->stream = TLS_STREAM_NONE;
	STAILQ_INIT(&peer->queue);
	return peer;
}

static int give_number(struct tls_peers *p, struct tls_peer *peer)
{
	int rc = slot_map_add(&p->slots, peer, &peer->number);

	if (rc == -ENFILE && !TAILQ_EMPTY(&p->heard)) {
		tls_peers_unnumber(p, TAILQ_FIRST(&p->heard));
		rc = slot_map_add(&p->slots, peer, &peer->number);
	}
	if (rc)
		peer->number = TLS_PEERS_NO_NUMBER;
	return rc;
}

void tls_peers_unnumber(struct tls_peers *p, struct tls_peer *peer)
{
	if (peer->number == TLS_PEERS_NO_NUMBER)
		return;
	if (!peer->outbound)
		TAILQ_REMOVE(&p->heard, peer, heard);
	slot_map_remove(&p->slots, peer->number);
	peer->number = TLS_PEERS_NO_NUMBER;
}

static int add_outbound(struct tls_peers *p, const char *address, struct tls_peer **out)
{
	struct tls_peer *peer = new_peer();
	int rc = -ENOMEM;

	if (!peer)
		return rc;
	peer->outbound = true;
	peer->address = strdup(address);
	if (peer->address)
		rc = give_number(p, peer);
	if (rc) {
		free(peer->address);
		free(peer);
		return rc;
	}
	TAILQ_INSERT_TAIL(&p->outbound, peer, all);
	*out = peer;
	return 0;
}

int tls_peers_connect(struct tls_peers *p, const char *address, struct tls_peer **out,
		      bool *fresh)
{
	struct tls_peer *peer;
	int rc = 0;

	TAILQ_FOREACH (peer, &p->outbound, all)
		if (!peer->left && !strcmp(peer->address, address))
			break;
	*fresh = !peer;
	if (!peer)
		rc = add_outbound(p, address, &peer);
	if (rc)
		return rc;
	peer->refs++;
	*out = peer;
	return 0;
}

struct tls_peer *tls_peers_accept(struct tls_peers *p)
{
	struct tls_peer *peer = new_peer();

	if (!peer)
		return NULL;
	TAILQ_INSERT_TAIL(&p->inbound, peer, all);
	p->ninbound++;
	return peer;
}

int tls_peers_heard(struct tls_peers *p, struct tls_peer *peer)
{
	int rc = 0;

	if (peer->number == TLS_PEERS_NO_NUMBER)
		rc = give_number(p, peer);
	else
		TAILQ_REMOVE(&p->heard, peer, heard);
	if (!rc)
		TAILQ_INSERT_TAIL(&p->heard, peer, heard);
	return rc;
}

void tls_peers_remove(struct tls_peers *p, struct tls_peer *peer)
{
	struct tls_message *m;

	tls_peers_unnumber(p, peer);
	if (peer->is_ready)
		TAILQ_REMOVE(&p->ready, peer, ready);
	TAILQ_REMOVE(peer->outbound ? &p->outbound : &p->inbound, peer, all);
	p->ninbound -= !peer->outbound;
	while ((m = tls_peers_unqueue(p, peer)))
		free(m);
	tls_peers_drop_incoming(peer);
	free(peer->address);
	free(peer);
}

/* ---- lists ---- */

void tls_peers_set_ready(struct tls_peers *p, struct tls_peer *peer)
{
	if (!peer->is_ready)
		TAILQ_INSERT_TAIL(&p->ready, peer, ready);
	peer->is_ready = true;
}

struct tls_peer *tls_peers_take_ready(struct tls_peers *p)
{
	struct tls_peer *peer = TAILQ_FIRST(&p->ready);

	if (!peer)
		return NULL;
	TAILQ_REMOVE(&p->ready, peer, ready);
	peer->is_ready = false;
	return peer;
}

struct tls_message *tls_peers_queue(struct tls_peers *p, struct tls_peer *peer, uint64_t size)
{
	struct tls_message *m = malloc(sizeof(*m) + size);

	if (!m)
		return NULL;
	m->size = size;
	STAILQ_INSERT_TAIL(&peer->queue, m, entry);
	peer->nqueued++;
	peer->queued_bytes += size;
	p->queued_bytes += size;
	return m;
}

struct tls_message *tls_peers_unqueue(struct tls_peers *p, struct tls_peer *peer)
{
	struct tls_message *m = STAILQ_TAKE(&peer->queue, entry);

	if (!m)
		return NULL;
	peer->nqueued--;
	peer->queued_bytes -= m->size;
	p->queued_bytes -= m->size;
	return m;
}

void tls_peers_drop_incoming(struct tls_peer *peer)
{
	free(peer->message);
	peer->message = NULL;
	peer->have = peer->size = 0;
}

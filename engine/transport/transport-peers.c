/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-peers.h"

#include <errno.h>
#include <string.h>

static uint64_t hash_address(const char *address)
{
	uint64_t hash = 14695981039346656037u;

	while (*address)
		hash = (hash ^ (uint8_t)*address++) * 1099511628211u;
	return hash;
}

static struct transport_peer_bucket *bucket(struct transport_peers *p, uint64_t hash)
{
	return &p->buckets[hash % TRANSPORT_PEERS_BUCKETS];
}

static void peer_free(struct transport_peer *peer)
{
	transport_queue_free(peer->queue);
	free(peer->address);
	free(peer);
}

void transport_peers_init(struct transport_peers *p, uint32_t max)
{
	memset(p, 0, sizeof(*p));
	TAILQ_INIT(&p->heard);
	slot_map_init(&p->slots, max);
}

void transport_peers_fini(struct transport_peers *p)
{
	struct transport_peer *peer;
	uint32_t slot = 0;

	while ((peer = slot_map_next(&p->slots, &slot)))
		peer_free(peer);
	slot_map_fini(&p->slots);
}

struct transport_peer *transport_peers_get(struct transport_peers *p, uint32_t number)
{
	return slot_map_get(&p->slots, number);
}

/* ---- add and remove ---- */

static int give_number(struct transport_peers *p, struct transport_peer *peer)
{
	int rc = slot_map_add(&p->slots, peer, &peer->number);

	if (rc != -ENFILE || TAILQ_EMPTY(&p->heard))
		return rc;
	transport_peers_remove(p, TAILQ_FIRST(&p->heard));
	return slot_map_add(&p->slots, peer, &peer->number);
}

static int add_peer(struct transport_peers *p, struct transport_peer *peer)
{
	uint64_t hash = peer->outbound ? hash_address(peer->address) : peer->router;
	int rc = give_number(p, peer);

	if (rc)
		return rc;
	LIST_INSERT_HEAD(bucket(p, hash), peer, next);
	if (!peer->outbound)
		TAILQ_INSERT_TAIL(&p->heard, peer, heard);
	return 0;
}

void transport_peers_remove(struct transport_peers *p, struct transport_peer *peer)
{
	LIST_REMOVE(peer, next);
	if (!peer->outbound)
		TAILQ_REMOVE(&p->heard, peer, heard);
	p->nleft -= peer->left;
	slot_map_remove(&p->slots, peer->number);
	peer_free(peer);
}

struct transport_peer *transport_peers_find(struct transport_peers *p, const char *address)
{
	struct transport_peer *peer;

	LIST_FOREACH (peer, bucket(p, hash_address(address)), next)
		if (peer->outbound && !strcmp(peer->address, address))
			break;
	return peer;
}

static struct transport_peer *find_router(struct transport_peers *p, uint32_t router)
{
	struct transport_peer *peer;

	LIST_FOREACH (peer, bucket(p, router), next)
		if (!peer->outbound && peer->router == router)
			break;
	return peer;
}

static int add_outbound(struct transport_peers *p, const char *address,
			struct transport_peer **out)
{
	struct transport_peer *peer = calloc(1, sizeof(*peer));
	int rc = -ENOMEM;

	if (!peer)
		return rc;
	peer->outbound = true;
	peer->serial = ++p->serials;
	peer->address = strdup(address);
	if (peer->address)
		rc = add_peer(p, peer);
	if (rc)
		peer_free(peer);
	else
		*out = peer;
	return rc;
}

int transport_peers_connect(struct transport_peers *p, const char *address,
			    struct transport_peer **out, bool *fresh)
{
	struct transport_peer *peer = transport_peers_find(p, address);
	int rc = 0;

	*fresh = !peer;
	if (!peer)
		rc = add_outbound(p, address, &peer);
	if (rc)
		return rc;
	peer->refs++;
	*out = peer;
	return 0;
}

static int add_inbound(struct transport_peers *p, uint32_t router, struct transport_peer **out)
{
	struct transport_peer *peer = calloc(1, sizeof(*peer));
	int rc;

	if (!peer)
		return -ENOMEM;
	peer->router = router;
	peer->fd = -1;
	rc = add_peer(p, peer);
	if (rc)
		peer_free(peer);
	else
		*out = peer;
	return rc;
}

int transport_peers_heard(struct transport_peers *p, uint32_t router,
			  struct transport_peer **out)
{
	struct transport_peer *peer = find_router(p, router);

	if (!peer)
		return add_inbound(p, router, out);
	TAILQ_REMOVE(&p->heard, peer, heard);
	TAILQ_INSERT_TAIL(&p->heard, peer, heard);
	*out = peer;
	return 0;
}

void transport_peers_left(struct transport_peers *p, int fd, uint64_t but_remote)
{
	struct transport_peer *peer;

	TAILQ_FOREACH (peer, &p->heard, heard) {
		if (peer->fd != fd || peer->left || (but_remote && peer->remote == but_remote))
			continue;
		peer->left = true;
		p->nleft++;
	}
}

struct transport_peer *transport_peers_next_left(struct transport_peers *p)
{
	struct transport_peer *peer = NULL;

	if (p->nleft)
		TAILQ_FOREACH (peer, &p->heard, heard)
			if (peer->left)
				break;
	return peer;
}

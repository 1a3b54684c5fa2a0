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

static struct transport_peer **bucket(struct transport_peers *p, uint64_t hash)
{
	return &p->buckets[hash % TRANSPORT_PEERS_BUCKETS];
}

static struct transport_peer **bucket_of(struct transport_peers *p,
					 const struct transport_peer *peer)
{
	return bucket(p, peer->outbound ? hash_address(peer->address) : peer->router);
}

static void peer_free(struct transport_peer *peer)
{
	transport_queue_free(peer->queue);
	free(peer->address);
	free(peer);
}

void transport_peers_init(struct transport_peers *p, uint32_t max)
{
	*p = (struct transport_peers){ .serials = 0 };
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

/* ---- in the order in which they were heard ---- */

static void unlink_heard(struct transport_peers *p, struct transport_peer *peer)
{
	if (peer->older)
		peer->older->younger = peer->younger;
	else
		p->oldest = peer->younger;
	if (peer->younger)
		peer->younger->older = peer->older;
	else
		p->youngest = peer->older;
	peer->older = peer->younger = NULL;
}

static void link_heard(struct transport_peers *p, struct transport_peer *peer)
{
	peer->older = p->youngest;
	if (p->youngest)
		p->youngest->younger = peer;
	else
		p->oldest = peer;
	p->youngest = peer;
}

/* ---- add and remove ---- */

static int give_number(struct transport_peers *p, struct transport_peer *peer)
{
	int rc = slot_map_add(&p->slots, peer, &peer->number);

	if (rc != -ENFILE || !p->oldest)
		return rc;
	transport_peers_remove(p, p->oldest);
	return slot_map_add(&p->slots, peer, &peer->number);
}

static int add(struct transport_peers *p, struct transport_peer *peer)
{
	struct transport_peer **head;
	int rc = give_number(p, peer);

	if (rc)
		return rc;
	head = bucket_of(p, peer);
	peer->next = *head;
	*head = peer;
	if (!peer->outbound)
		link_heard(p, peer);
	return 0;
}

void transport_peers_remove(struct transport_peers *p, struct transport_peer *peer)
{
	struct transport_peer **link = bucket_of(p, peer);

	while (*link != peer)
		link = &(*link)->next;
	*link = peer->next;
	if (!peer->outbound)
		unlink_heard(p, peer);
	p->nleft -= peer->left;
	slot_map_remove(&p->slots, peer->number);
	peer_free(peer);
}

struct transport_peer *transport_peers_find(struct transport_peers *p, const char *address)
{
	struct transport_peer *peer = *bucket(p, hash_address(address));

	while (peer && !(peer->outbound && !strcmp(peer->address, address)))
		peer = peer->next;
	return peer;
}

static struct transport_peer *find_router(struct transport_peers *p, uint32_t router)
{
	struct transport_peer *peer = *bucket(p, router);

	while (peer && (peer->outbound || peer->router != router))
		peer = peer->next;
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
		rc = add(p, peer);
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
	rc = add(p, peer);
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
	unlink_heard(p, peer);
	link_heard(p, peer);
	*out = peer;
	return 0;
}

void transport_peers_left(struct transport_peers *p, int fd, bool but_last)
{
	for (struct transport_peer *peer = p->youngest; peer; peer = peer->older) {
		if (peer->fd != fd || peer->left)
			continue;
		peer->left = !but_last;
		p->nleft += peer->left;
		but_last = false;
	}
}

struct transport_peer *transport_peers_next_left(struct transport_peers *p)
{
	struct transport_peer *peer = p->nleft ? p->oldest : NULL;

	while (peer && !peer->left)
		peer = peer->younger;
	return peer;
}

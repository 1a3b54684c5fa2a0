/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_PEERS_H
#define ENGINE_TRANSPORT_TRANSPORT_PEERS_H

/* The peers of transport zmq.  We connected to *outbound* peers, by their address; *inbound*
 * peers connected to us, and are known by the number that libzmq gave their connection.  Where
 * a number is needed and none is left, the inbound peer heard least recently loses its own.
 */

#include "engine/base/queue.h"
#include "engine/base/slot-map.h"
#include "engine/transport/transport-queue.h"

enum { TRANSPORT_PEERS_BUCKETS = 4096 };

struct transport_peer {
	uint32_t number;
	bool outbound;
	uint32_t refs;                     /* outbound: connects of this address */
	char *address;                     /* outbound */
	unsigned hangups;                  /* outbound: times in a row that it hung up on us */
	uint64_t serial;                   /* outbound: never used twice */
	struct transport_queue *queue;     /* NULL: nothing was sent to it */
	uint32_t router;                   /* inbound: libzmq's number */
	bool reads_only;                   /* inbound: it came with the key for readers */
	int fd;                            /* inbound: of its connection; -1: not known */
	uint64_t remote;                   /* inbound: its end of it; 0: not known */
	bool left;                         /* inbound: its connection is over */
	LIST_ENTRY(transport_peer) next;   /* in its bucket */
	TAILQ_ENTRY(transport_peer) heard; /* inbound */
};

struct transport_peers {
	struct slot_map slots;
	uint64_t serials;
	/* Outbound peers by their address, inbound ones by router. */
	LIST_HEAD(transport_peer_bucket, transport_peer) buckets[TRANSPORT_PEERS_BUCKETS];
	/* Inbound peers; the one heard least recently is the first. */
	TAILQ_HEAD(transport_peers_heard_list, transport_peer) heard;
	unsigned nleft;
};

void transport_peers_init(struct transport_peers *p, uint32_t max);
void transport_peers_fini(struct transport_peers *p);

/* Finds a peer by its number; NULL: none. */
struct transport_peer *transport_peers_get(struct transport_peers *p, uint32_t number);

/* Finds the outbound peer of that address or adds it (*fresh), and counts one more connect.
 * -ENFILE: no number is left.
 * -ENOMEM.
 */
int transport_peers_connect(struct transport_peers *p, const char *address,
			    struct transport_peer **peer, bool *fresh);
/* Finds the outbound peer of that address; NULL: none. */
struct transport_peer *transport_peers_find(struct transport_peers *p, const char *address);
/* Finds or adds the inbound peer of that connection, which was heard now.
 * -ENFILE: all numbers are outbound peers'.
 * -ENOMEM.
 */
int transport_peers_heard(struct transport_peers *p, uint32_t router,
			  struct transport_peer **peer);
/* Marks inbound peers on that descriptor as left, but those at but_remote, whose new connection
 * has the descriptor again; 0: all.
 */
void transport_peers_left(struct transport_peers *p, int fd, uint64_t but_remote);
/* Returns an inbound peer that left, which the caller removes; NULL: none. */
struct transport_peer *transport_peers_next_left(struct transport_peers *p);
void transport_peers_remove(struct transport_peers *p, struct transport_peer *peer);

#endif

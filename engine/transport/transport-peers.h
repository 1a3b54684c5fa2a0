/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_PEERS_H
#define ENGINE_TRANSPORT_TRANSPORT_PEERS_H

/* Whom transport zmq knows: those it connected to, and those that connected to it, by the
 * number libzmq gave their connection.  At most so many; who connected to us and was heard
 * least recently makes room.
 */

#include "engine/base/slot-map.h"
#include "engine/transport/transport-queue.h"

enum { TRANSPORT_PEERS_BUCKETS = 4096 };

struct transport_peer {
	uint32_t number;
	bool outbound;
	uint32_t refs;                 /* outbound: connects of this address */
	char *address;                 /* outbound */
	unsigned hangups;              /* outbound: before a message came, in a row */
	uint64_t serial;               /* outbound: never used twice */
	struct transport_queue *queue; /* NULL: nothing was sent to it */
	uint32_t router;               /* inbound: libzmq's number */
	bool reads_only;               /* inbound: it came with the key for readers */
	int fd;                        /* inbound: of its connection; -1: not known */
	bool left;                     /* inbound: that is over */
	struct transport_peer *next; /* of the bucket; inbound by router, outbound by address */
	struct transport_peer *older, *younger; /* inbound, by when they were heard */
};

struct transport_peers {
	struct slot_map slots;
	uint64_t serials;
	struct transport_peer *buckets[TRANSPORT_PEERS_BUCKETS];
	struct transport_peer *oldest, *youngest;
	unsigned nleft;
};

void transport_peers_init(struct transport_peers *p, uint32_t max);
void transport_peers_fini(struct transport_peers *p);

/* Any of them by its number; NULL: none. */
struct transport_peer *transport_peers_get(struct transport_peers *p, uint32_t number);

/* The one to that address, one more time connected; *fresh: it is new.  -ENFILE, -ENOMEM. */
int transport_peers_connect(struct transport_peers *p, const char *address,
			    struct transport_peer **peer, bool *fresh);
/* The outbound one of that address; NULL: none. */
struct transport_peer *transport_peers_find(struct transport_peers *p, const char *address);
/* The one of that connection, heard now.  -ENFILE: all numbers are of outbound ones; -ENOMEM.
 */
int transport_peers_heard(struct transport_peers *p, uint32_t router,
			  struct transport_peer **peer);
/* The connection on that descriptor is over; but_last: of several the one heard last is a new
 * one.
 */
void transport_peers_left(struct transport_peers *p, int fd, bool but_last);
/* One that has left, or NULL. */
struct transport_peer *transport_peers_next_left(struct transport_peers *p);
void transport_peers_remove(struct transport_peers *p, struct transport_peer *peer);

#endif

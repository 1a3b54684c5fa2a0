/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TLS_TLS_PEERS_H
#define ENGINE_TRANSPORT_TLS_TLS_PEERS_H

/* The peers of transport tls: the state of each one's connection, and the messages that wait
 * for it.  We connected to *outbound* peers, by their address; *inbound* ones connected to us,
 * and get a number with their first message.  Where a number is needed and none is left, the
 * inbound peer heard least recently loses its own, and gets another with its next message.
 */

#include "engine/base/queue.h"
#include "engine/base/slot-map.h"
#include "engine/transport/tls/tls-stream.h"

enum { TLS_PEERS_NO_NUMBER = UINT32_MAX };

enum tls_peer_state {
	TLS_PEER_WAITS,      /* outbound: connects again at until_ms */
	TLS_PEER_CONNECTS,   /* outbound: until until_ms at the latest */
	TLS_PEER_HANDSHAKES, /* until until_ms at the latest */
	TLS_PEER_OPEN,
	TLS_PEER_REFUSED, /* outbound: not connected again */
	/* inbound: transport_tls_gone tells of the peer, if it has a number, and frees it */
	TLS_PEER_OVER,
};

struct tls_message {
	STAILQ_ENTRY(tls_message) entry;
	uint64_t size;
	uint8_t bytes[];
};

struct tls_peer {
	uint32_t number; /* TLS_PEERS_NO_NUMBER: none */
	enum tls_peer_state state;
	struct tls_stream stream; /* but for WAITS, REFUSED and OVER */
	uint32_t events;          /* events that its socket is polled for */
	uint64_t until_ms;
	bool is_broken; /* a send found the connection broken; the next turn closes it */

	bool outbound;
	char *address;     /* outbound */
	uint32_t refs;     /* outbound: connects of this address */
	unsigned hangups;  /* outbound: times in a row that it hung up on us */
	bool is_gone;      /* outbound: nobody listens there, and the owner is to be told */
	uint64_t pause_ms; /* outbound: between two attempts */
	/* disconnected while its own message was delivered; freed after that */
	bool left;

	/* messages that wait for the peer */
	STAILQ_HEAD(, tls_message) queue;
	uint32_t nqueued;
	uint64_t queued_bytes;

	/* the message that comes */
	uint8_t head[4]; /* the message's size */
	uint64_t have;   /* bytes of head and of message that have come */
	uint64_t size;
	uint8_t *message;

	bool is_ready; /* the peer is in the list of peers that may have messages */
	TAILQ_ENTRY(tls_peer) ready;
	TAILQ_ENTRY(tls_peer) all;   /* outbound, or inbound */
	TAILQ_ENTRY(tls_peer) heard; /* inbound with a number */
};

TAILQ_HEAD(tls_peer_list, tls_peer);

struct tls_peers {
	struct slot_map slots;
	struct tls_peer_list outbound, inbound;
	struct tls_peer_list ready;
	struct tls_peer_list heard; /* the one heard least recently is the first */
	unsigned ninbound;
	uint64_t queued_bytes; /* of all */
};

void tls_peers_init(struct tls_peers *p, uint32_t max);
void tls_peers_fini(struct tls_peers *p);

/* NULL: no peer has that number. */
struct tls_peer *tls_peers_get(struct tls_peers *p, uint32_t number);

/* Finds the outbound peer of that address or adds it (*fresh), and counts one more connect.
 * -ENFILE: no number is left.
 * -ENOMEM.
 */
int tls_peers_connect(struct tls_peers *p, const char *address, struct tls_peer **peer,
		      bool *fresh);
/* Adds an inbound peer, without a number.  NULL: no memory. */
struct tls_peer *tls_peers_accept(struct tls_peers *p);
/* Gives an inbound peer, which was heard now, a number if it has none.
 * -ENFILE: all numbers are outbound peers'.
 * -ENOMEM.
 */
int tls_peers_heard(struct tls_peers *p, struct tls_peer *peer);
/* Takes the peer's number. */
void tls_peers_unnumber(struct tls_peers *p, struct tls_peer *peer);
/* Frees a peer, whose stream is closed. */
void tls_peers_remove(struct tls_peers *p, struct tls_peer *peer);

/* Puts a peer behind the others that may have messages. */
void tls_peers_set_ready(struct tls_peers *p, struct tls_peer *peer);
/* Removes and returns the first of these peers; NULL: none. */
struct tls_peer *tls_peers_take_ready(struct tls_peers *p);

/* Keeps a message for the peer, to be filled by the caller.  NULL: no memory. */
struct tls_message *tls_peers_queue(struct tls_peers *p, struct tls_peer *peer, uint64_t size);
/* Removes and returns the first message kept for the peer; NULL: none.  The caller frees it. */
struct tls_message *tls_peers_unqueue(struct tls_peers *p, struct tls_peer *peer);
/* Forgets what has come of a message. */
void tls_peers_drop_incoming(struct tls_peer *peer);

#endif

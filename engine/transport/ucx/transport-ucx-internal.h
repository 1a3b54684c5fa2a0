/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_UCX_TRANSPORT_UCX_INTERNAL_H
#define ENGINE_TRANSPORT_UCX_TRANSPORT_UCX_INTERNAL_H

/* Internals of transport ucx.  A *link* is one endpoint of UCX: *outbound* where we
 * made it, else accepted.  A peer that we connected to has one link after the other.  Callbacks
 * of UCX only set flags and counts; ucx_links_turn acts on them when ucp_worker_progress has
 * returned.
 */

#ifdef HAVE_UCX
#include "engine/base/slot-map.h"
#include "engine/transport/transport-common.h"
#include "engine/transport/transport-peers.h"
#include "engine/transport/ucx/transport-ucx-load.h"

#include <netinet/in.h>

/* The pause before a link is tried again: doubled each time, up to the second. */
enum { UCX_LINK_MS = 50, UCX_LINK_MAX_MS = 1000 };

/* The header of every message.  UCX does not keep large and small messages in order: the
 * receiver does, by the sequence.
 */
struct ucx_stamp {
	uint64_t nonce; /* the receiving link's */
	uint64_t sequence;
	uint32_t link; /* its number there */
	uint32_t reserved;
};
static_assert(sizeof(struct ucx_stamp) == 24, "stamp");

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
static_assert(sizeof(struct ucx_hello) == 32, "hello");

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
	struct ucx_stamp stamp;      /* of the next message to it */
	uint64_t expected;           /* sequence of the next one from it */
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
	bool gone;      /* outbound: for transport's gone */
};

struct transport {
	const struct transport_ops *ops;
	const struct ucx *ucx;
	pid_t pid; /* that opened it: a forked child must not touch UCX */
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

/* Parses "ucx://10.0.0.1:20001", or without a port, which then is 0.  -EINVAL. */
int ucx_address_parse(const char *address, struct sockaddr_in *name);

/* ---- links ---- */

/* Sets the handlers of UCX for the messages of links. */
ucs_status_t ucx_links_open(struct transport *t);
/* Adds a link to that peer, to be opened.
 * -ENOMEM.
 * -ENFILE.
 */
int ucx_link_new(struct transport *t, const struct transport_peer *peer,
		 struct ucx_link **link);
/* NULL: there is none of that number, or it is about to end. */
struct ucx_link *ucx_link_get(struct transport *t, uint32_t number);
/* Starts to close the link.  Not inside a callback of UCX. */
void ucx_link_close(struct ucx_link *link);
/* Drops a reference; frees the link with the last one. */
void ucx_link_unuse(struct ucx_link *link);
void ucx_link_break(struct ucx_link *link);
/* ucp_listener's callback: accepts a link. */
void ucx_link_accept(ucp_conn_request_h request, void *transport);
/* Acts on what callbacks set, and on the clock. */
void ucx_links_turn(struct transport *t);
/* Closes all links, within ms. */
void ucx_links_finish(struct transport *t, unsigned ms);
/* Frees all links, without a call of UCX. */
void ucx_links_free(struct transport *t);

/* ---- messages ---- */

ucs_status_t ucx_messages_open(struct transport *t);
int ucx_message_send(struct ucx_link *link, const struct iovec *parts, unsigned nparts,
		     uint64_t size);
/* Gives UCX the blocks that wait, as far as it may have them. */
void ucx_messages_pump(struct ucx_link *link);
/* Drops whole arrivals: the one that they wait for will not come. */
void ucx_messages_give_up(struct ucx_link *link);
/* Moves blocks that UCX does not have to another link of the same peer. */
void ucx_messages_move(struct ucx_link *from, struct ucx_link *to);
void ucx_messages_free(struct ucx_link *link);
void ucx_messages_close(struct transport *t);
/* Removes the next message from the inbox, which ucx_arrival_done frees; NULL: none. */
struct ucx_arrival *ucx_messages_next(struct transport *t);
void ucx_arrival_done(struct ucx_arrival *a);

#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_UCX_TRANSPORT_UCX_INTERNAL_H
#define ENGINE_TRANSPORT_UCX_TRANSPORT_UCX_INTERNAL_H

/* Inside transport ucx.  A link is one endpoint of UCX, ours or one that was accepted; a peer
 * that we connected to has one link after the other.  UCX's callbacks set flags and count; what
 * follows from them is done when ucp_worker_progress has returned.
 */

#ifdef HAVE_UCX
#include "engine/base/slot-map.h"
#include "engine/transport/transport-common.h"
#include "engine/transport/transport-peers.h"
#include "engine/transport/ucx/transport-ucx-load.h"

#include <netinet/in.h>

enum { UCX_LINK_MS = 50, UCX_LINK_MAX_MS = 1000 }; /* before it is tried again: doubled up to */

/* Before every message: it is for that link, the so-many-th on it.  UCX does not keep large
 * ones and small ones in order.
 */
struct ucx_stamp {
	uint64_t nonce; /* the receiving link's */
	uint64_t sequence;
	uint32_t link; /* its number there */
	uint32_t reserved;
};
static_assert(sizeof(struct ucx_stamp) == 24, "stamp");

struct ucx_block { /* a message of ours */
	struct ucx_block *next;
	struct ucx_link *link;
	struct ucx_stamp stamp;
	uint64_t size;
	_Alignas(16) uint8_t data[];
};

struct ucx_arrival { /* a message of a peer */
	struct ucx_arrival *next;
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
	struct ucx_hello hello; /* being sent */
	struct ucx_stamp stamp; /* of the next message to it */
	uint64_t expected;      /* sequence of the next one from it */
	struct ucx_block *
		first; /* not given to UCX yet; of count bytes and blocks with those that are */
	struct ucx_block **last;
	struct ucx_block *under_way;
	uint32_t blocks;
	uint64_t bytes;
	unsigned nunder_way;
	struct ucx_arrival *arrivals; /* rising; not whole, or not the next */
	unsigned narrivals;
	unsigned uses;     /* what UCX, or the inbox, will give back */
	uint64_t until_ms; /* waiting: then it is tried; opening: then it is given up */
	unsigned pause_ms;
	bool was_ready; /* outbound: it, or one before it */
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
	uint64_t bytes;                          /* of blocks */
	struct ucx_arrival *inbox, **inbox_last; /* to be delivered */
	uint64_t inbox_bytes;                    /* and of what is being received */
	struct ucx_spare *spares;                /* memory of large messages that are over */
	unsigned nspares;
	bool news;          /* a link broke, was made, or has room */
	unsigned unsettled; /* links that are waiting or opening */
	unsigned flushing;
	struct transport_bell bell;
	int timer;
	char address[64];
};

/* "ucx://10.0.0.1:20001"; port 0 where it has none.  -EINVAL. */
int ucx_address_parse(const char *address, struct sockaddr_in *name);

/* ---- links ---- */

/* The handlers of UCX's messages. */
ucs_status_t ucx_links_open(struct transport *t);
/* One to be made, of that peer.  -ENOMEM, -ENFILE. */
int ucx_link_new(struct transport *t, const struct transport_peer *peer,
		 struct ucx_link **link);
/* NULL: it is not, or is about to end. */
struct ucx_link *ucx_link_get(struct transport *t, uint32_t number);
/* Its end begins.  Not inside UCX. */
void ucx_link_close(struct ucx_link *link);
/* What it had is given back; frees it when that was the last. */
void ucx_link_unuse(struct ucx_link *link);
void ucx_link_break(struct ucx_link *link);
/* Who asks to be connected: ucp_listener's. */
void ucx_link_accept(ucp_conn_request_h request, void *transport);
/* What became of links, and what time it is. */
void ucx_links_turn(struct transport *t);
/* Ends all, within ms. */
void ucx_links_finish(struct transport *t, unsigned ms);
/* Without UCX. */
void ucx_links_free(struct transport *t);

/* ---- messages ---- */

ucs_status_t ucx_messages_open(struct transport *t);
int ucx_message_send(struct ucx_link *link, const struct iovec *parts, unsigned nparts,
		     uint64_t size);
/* What waits to be sent and may be now. */
void ucx_messages_pump(struct ucx_link *link);
/* Arrivals that wait for one which will not come. */
void ucx_messages_give_up(struct ucx_link *link);
/* Gives what was not begun to be sent to another link of the same peer. */
void ucx_messages_move(struct ucx_link *from, struct ucx_link *to);
void ucx_messages_free(struct ucx_link *link);
void ucx_messages_close(struct transport *t);
/* The next to be delivered, the caller's to free with ucx_arrival_done; NULL: none. */
struct ucx_arrival *ucx_messages_next(struct transport *t);
void ucx_arrival_done(struct ucx_arrival *a);

#endif
#endif

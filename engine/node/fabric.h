/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_FABRIC_H
#define ENGINE_NODE_FABRIC_H

/* A second way for answers in bulk between ranks, DATA and STATES: UCX on a closed network.
 * Everything is asked for by messages as ever, and what does not come this way is asked for
 * again that way.
 *
 *   r -> o  FABRIC{CALL, address, token}    -> ACK       o connects, and sends PONG by it
 *   r -> o  FABRIC{USE}                     -> ACK       answers come by the fabric from now on
 *   r -> o  FABRIC{STOP}                    -> ACK       broken, or silent for 3 s
 *
 * Nobody on the fabric is authenticated: what comes by it is taken only as the answer to a
 * question that is open, and only with the token that r gave to o by messages.  o answers each
 * PING on both ways, so that r knows what was answered before it: rpc.h.
 */

#include "engine/node/node.h"

/* Opens it where the environment says so.  What forbids that is a line, and the job goes on.
 * Before the engine thread starts.
 */
void fabric_open(struct engine *e);
/* The same over any transport. */
int fabric_open_over(struct engine *e, const struct transport_ops *ops,
		     const struct transport_config *config);
/* Where others are told to connect; NULL: there is none. */
const char *fabric_address(const struct engine *e);
/* -1: there is none. */
int fabric_fd(const struct engine *e);
void fabric_free(struct engine *e);

/* Engine thread, with the lock. */

typedef void (*fabric_receive)(struct engine *e, uint32_t link,
			       const struct wire_header *header, const void *body,
			       const void *tail, size_t tail_size);

/* What came and is an answer is handed to receive, as from that rank's message peer. */
void fabric_turn(struct engine *e, uint64_t now, fabric_receive receive);
/* Sends it by the fabric, where whoever asked from that message peer wants it so.  False: send
 * it as a message.
 */
bool fabric_answer(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
		   const void *body, const void *tail, size_t size);
void fabric_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		  const void *body);
/* A message peer is gone. */
void fabric_peer_gone(struct engine *e, uint32_t peer);

#endif

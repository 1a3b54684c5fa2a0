/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_FABRIC_H
#define ENGINE_NODE_FABRIC_H

/* The fabric: UCX on a closed network, a second transport between ranks, for the answers in
 * bulk, DATA and STATES.  Questions go by the message transport; a question whose answer does
 * not come by the fabric is asked again, and answered by message.
 *
 *   r -> o  FABRIC{CALL, address, token}    -> ACK  o connects, and sends PONG by the fabric
 *   r -> o  FABRIC{USE}                     -> ACK  o sends answers by the fabric from now on
 *   r -> o  FABRIC{STOP}                    -> ACK  the fabric broke, or was silent for 3 s
 *
 * The fabric authenticates nobody: r takes from it only answers to its open questions, and only
 * with the token that it gave to o by message.  o sends each PONG by both transports, so that r
 * knows of each which answers came before (rpc.h).
 */

#include "engine/node/node.h"

/* Opens the fabric if the environment asks for it.  A failure is logged, and the job goes on
 * without.  Before the engine thread starts.
 */
void fabric_open(struct engine *e);
/* Opens the fabric over the given transport.  -ENOMEM.  Errors of the transport's open. */
int fabric_open_over(struct engine *e, const struct transport_ops *ops,
		     const struct transport_config *config);
/* Returns the address that other ranks connect to; NULL: there is no fabric. */
const char *fabric_address(const struct engine *e);
/* Returns the descriptor to poll; -1: there is no fabric. */
int fabric_fd(const struct engine *e);
void fabric_free(struct engine *e);

/* Engine thread, with the lock. */

typedef void (*fabric_receive)(struct engine *e, uint32_t link,
			       const struct wire_header *header, const void *body,
			       const void *tail, size_t tail_size);

/* Calls receive for each answer that has come, with the message peer of its rank. */
void fabric_turn(struct engine *e, uint64_t now, fabric_receive receive);
/* Sends an answer by the fabric, if the rank of that message peer uses it.  False: the caller
 * sends it by message.
 */
bool fabric_answer(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
		   const void *body, const void *tail, size_t size);
/* Sends an answer by the fabric, or by message if the rank does not use the fabric.  A peer
 * that does not take the messages that wait for it is told to ask again, by an ACK of -EAGAIN.
 */
void fabric_reply(struct engine *e, uint32_t peer, enum wire_type type, uint64_t request,
		  const void *body, const void *tail, size_t size);
/* Answers FABRIC. */
void fabric_serve(struct engine *e, uint32_t peer, const struct wire_header *header,
		  const void *body);
/* Disconnects the fabric from the rank of a message peer that is gone. */
void fabric_peer_gone(struct engine *e, uint32_t peer);

#endif

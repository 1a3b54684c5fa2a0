/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_NODE_BULK_H
#define ENGINE_NODE_BULK_H

/* The bulk port: a second message transport, TLS, beside ZeroMQ.  A rank listens there too,
 * unless FRAG_BULK=zmq, and its entry in the table of ranks has the port.  An engine that asks
 * such a rank for bytes by message connects to it, and sends a PING; once that is answered, its
 * READ and STATES_GET go by the bulk port, and so do their answers.  Everything else goes by
 * the message transport; so do these, asked again, when the bulk port does not answer, breaks
 * off, refuses, or is silent while messages come.
 */

#include "engine/node/node.h"

/* Opens the bulk port; address: where this rank listens for messages; NULL: it only connects.
 * A failure is logged, and the engine goes on without.
 */
void bulk_open(struct engine *e, const char *address);
void bulk_close(struct engine *e);
/* Returns the port that others connect to; 0: none. */
uint16_t bulk_listens_at(const struct engine *e);

/* Engine thread, with the lock. */

/* Connects to ranks, and disconnects from those that are silent there. */
void bulk_turn(struct engine *e, uint64_t now);
/* Chooses the message peer for a question to a rank that is linked. */
uint32_t bulk_choose(struct engine *e, uint32_t rank, enum wire_type type);
/* Notes that a message has come from that message peer. */
void bulk_heard(struct engine *e, uint32_t rank, uint32_t peer);
/* Notes that a message peer of the bulk port is gone. */
void bulk_gone(struct engine *e, uint32_t peer);
/* Disconnects from a rank that is not linked any more. */
void bulk_unlink(struct engine *e, struct peer *p);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_QUEUE_H
#define ENGINE_TRANSPORT_TRANSPORT_QUEUE_H

/* A bound on the bytes that wait in libzmq to be sent, to one peer and to all.  libzmq counts
 * only messages: for a peer that asks and does not read it would keep a thousand of 1 MiB.
 * Messages below TRANSPORT_QUEUE_SMALL are bounded by libzmq's count alone.
 */

#include "engine/transport/transport-common.h"

#include <stdatomic.h>
#include <zmq.h>

struct transport_queue; /* one peer's; lives until its last message is sent or dropped */

/* `all` counts the bytes to all peers, and must outlive libzmq's context.  NULL: no memory. */
struct transport_queue *transport_queue_new(_Atomic uint64_t *all);
void transport_queue_free(struct transport_queue *q);

/* Makes a message of that size, which the caller fills.
 * -EAGAIN: too many bytes wait.
 * -ENOMEM.
 */
int transport_queue_message(struct transport_queue *q, zmq_msg_t *message, uint64_t size);

#endif

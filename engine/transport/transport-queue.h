/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_TRANSPORT_TRANSPORT_QUEUE_H
#define ENGINE_TRANSPORT_TRANSPORT_QUEUE_H

/* Bytes that wait in libzmq to be sent: to one peer, and to all.  libzmq counts messages only,
 * and a peer that asks and does not take would have a thousand of a mebibyte kept for it.
 * Messages below TRANSPORT_QUEUE_SMALL are left to its count.
 */

#include "engine/base/base.h"

#include <stdatomic.h>
#include <zmq.h>

enum {
	TRANSPORT_QUEUE_SMALL = 16 << 10,
	TRANSPORT_QUEUE_PEER = 64 << 20,
	TRANSPORT_QUEUE_ALL = 512 << 20,
};

struct transport_queue; /* of one peer; lives until the last of its messages is gone */

/* all outlives libzmq's context.  NULL: no memory. */
struct transport_queue *transport_queue_new(_Atomic uint64_t *all);
void transport_queue_free(struct transport_queue *q);

/* A message of that size, to be filled.  -EAGAIN: too much waits; -ENOMEM. */
int transport_queue_message(struct transport_queue *q, zmq_msg_t *message, uint64_t size);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/transport-queue.h"

#include <errno.h>

struct transport_queue {
	_Atomic unsigned refs; /* one of the owner, and one of each message */
	_Atomic uint64_t bytes;
	_Atomic uint64_t *all;
};

struct queue_block {
	struct transport_queue *queue;
	uint64_t size;
	_Alignas(16) uint8_t data[];
};

struct transport_queue *transport_queue_new(_Atomic uint64_t *all)
{
	struct transport_queue *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->all = all;
	atomic_store(&q->refs, 1);
	return q;
}

void transport_queue_free(struct transport_queue *q)
{
	if (q && atomic_fetch_sub(&q->refs, 1) == 1)
		free(q);
}

/* Called in libzmq's threads when the message was sent or dropped. */
static void block_done(void *data, void *hint)
{
	struct queue_block *block = hint;

	atomic_fetch_sub(&block->queue->bytes, block->size);
	atomic_fetch_sub(block->queue->all, block->size);
	transport_queue_free(block->queue);
	free(block);
}

int transport_queue_message(struct transport_queue *q, zmq_msg_t *message, uint64_t size)
{
	struct queue_block *block;

	if (size < TRANSPORT_QUEUE_SMALL)
		return zmq_msg_init_size(message, size) ? -ENOMEM : 0;
	if (atomic_load(&q->bytes) + size > TRANSPORT_QUEUE_PEER ||
	    atomic_load(q->all) + size > TRANSPORT_QUEUE_ALL)
		return -EAGAIN;
	block = malloc(sizeof(*block) + size);
	if (!block)
		return -ENOMEM;
	*block = (struct queue_block){ .queue = q, .size = size };
	if (zmq_msg_init_data(message, block->data, size, block_done, block)) {
		free(block);
		return -ENOMEM;
	}
	atomic_fetch_add(&q->refs, 1);
	atomic_fetch_add(&q->bytes, size);
	atomic_fetch_add(q->all, size);
	return 0;
}

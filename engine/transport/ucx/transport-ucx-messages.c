/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/transport/ucx/transport-ucx-internal.h"

#include <errno.h>

enum {
	AM_MESSAGE = 3,
	UNDER_WAY = 16,   /* blocks of a link that UCX has */
	EARLY_MAX = 1024, /* arrivals of a link that wait for one before them */
	SPARE_LEAST = 64 << 10,
	SPARE_BYTES = (1 << 20) + 4096, /* bulk comes in messages of 1 MiB */
	SPARES = 8,
};

/* ---- memory of messages, kept: the first touch of a page costs more than a copy of it ---- */

struct ucx_spare {
	SLIST_ENTRY(ucx_spare) next;
};

static bool is_spare(size_t size)
{
	return size >= SPARE_LEAST && size <= SPARE_BYTES;
}

static void *memory_new(struct transport *t, size_t size)
{
	struct ucx_spare *spare = is_spare(size) ? SLIST_FIRST(&t->spares) : NULL;

	if (!spare)
		return malloc(is_spare(size) ? SPARE_BYTES : size);
	SLIST_REMOVE_HEAD(&t->spares, next);
	t->nspares--;
	return spare;
}

static void memory_free(struct transport *t, void *memory, size_t size)
{
	struct ucx_spare *spare = memory;

	if (!is_spare(size) || t->nspares == SPARES) {
		free(memory);
		return;
	}
	SLIST_INSERT_HEAD(&t->spares, spare, next);
	t->nspares++;
}

void ucx_messages_close(struct transport *t)
{
	struct ucx_spare *spare;

	while ((spare = SLIST_FIRST(&t->spares))) {
		SLIST_REMOVE_HEAD(&t->spares, next);
		free(spare);
	}
}

/* ---- sending ---- */

static void block_free(struct ucx_block *block)
{
	struct ucx_link *link = block->link;

	link->t->bytes -= block->size;
	link->bytes -= block->size;
	link->blocks--;
	memory_free(link->t, block, sizeof(*block) + block->size);
}

static void sent(struct ucx_block *block, ucs_status_t status)
{
	struct ucx_link *link = block->link;

	TAILQ_REMOVE(&link->under_way, block, next);
	link->nunder_way--;
	link->t->news = true;
	if (status != UCS_OK)
		ucx_link_break(link);
	block_free(block);
	ucx_link_unuse(link);
}

static void on_sent(void *request, ucs_status_t status, void *block)
{
	struct ucx_link *link = ((struct ucx_block *)block)->link;
	const struct ucx *ucx = link->t->ucx;

	sent(block, status);
	ucx->ucp_request_free(request);
}

static void post(struct ucx_link *link, struct ucx_block *block)
{
	const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							    UCP_OP_ATTR_FIELD_USER_DATA,
					    .cb.send = on_sent,
					    .user_data = block };
	ucs_status_ptr_t request;

	TAILQ_INSERT_HEAD(&link->under_way, block, next);
	link->nunder_way++;
	link->uses++;
	block->stamp = link->stamp;
	link->stamp.sequence++;
	request = link->t->ucx->ucp_am_send_nbx(link->ep, AM_MESSAGE, &block->stamp,
						sizeof(block->stamp), block->data, block->size,
						&param);
	if (!UCS_PTR_IS_PTR(request))
		sent(block, UCS_PTR_STATUS(request));
}

void ucx_messages_pump(struct ucx_link *link)
{
	struct ucx_block *block;

	while ((block = TAILQ_FIRST(&link->waiting)) && link->state == UCX_READY &&
	       link->nunder_way < UNDER_WAY) {
		TAILQ_REMOVE(&link->waiting, block, next);
		post(link, block);
	}
}

void ucx_messages_move(struct ucx_link *from, struct ucx_link *to)
{
	struct ucx_block *block;

	TAILQ_FOREACH (block, &from->waiting, next) {
		block->link = to;
		from->blocks--;
		from->bytes -= block->size;
		to->blocks++;
		to->bytes += block->size;
	}
	TAILQ_CONCAT(&to->waiting, &from->waiting, next);
}

static struct ucx_block *block_new(struct ucx_link *link, const struct iovec *parts,
				   unsigned nparts, uint64_t size)
{
	struct ucx_block *block = memory_new(link->t, sizeof(*block) + size);

	if (!block)
		return NULL;
	*block = (struct ucx_block){ .link = link, .size = size };
	transport_message_fill(block->data, parts, nparts);
	return block;
}

int ucx_message_send(struct ucx_link *link, const struct iovec *parts, unsigned nparts,
		     uint64_t size)
{
	struct transport *t = link->t;
	struct ucx_block *block;

	if (link->blocks >= t->queue_max || link->bytes + size > TRANSPORT_QUEUE_PEER ||
	    t->bytes + size > TRANSPORT_QUEUE_ALL)
		return -EAGAIN;
	block = block_new(link, parts, nparts, size);
	if (!block)
		return -ENOMEM;
	TAILQ_INSERT_TAIL(&link->waiting, block, next);
	link->blocks++;
	link->bytes += size;
	t->bytes += size;
	ucx_messages_pump(link);
	return 0;
}

/* ---- receiving ---- */

static void arrival_free(struct ucx_arrival *a)
{
	memory_free(a->link->t, a, sizeof(*a) + a->size);
}

void ucx_arrival_done(struct ucx_arrival *a)
{
	struct ucx_link *link = a->link;

	link->t->inbox_bytes -= a->size;
	arrival_free(a);
	ucx_link_unuse(link);
}

struct ucx_arrival *ucx_messages_next(struct transport *t)
{
	struct ucx_arrival *a = TAILQ_FIRST(&t->inbox);

	if (a)
		TAILQ_REMOVE(&t->inbox, a, next);
	return a;
}

/* Moves arrivals that are whole, and the next by their sequence, to the inbox. */
static void to_inbox(struct ucx_link *link)
{
	struct transport *t = link->t;
	struct ucx_arrival *a;

	while ((a = TAILQ_FIRST(&link->arrivals)) && a->whole &&
	       a->sequence == link->expected) {
		TAILQ_REMOVE(&link->arrivals, a, next);
		link->narrivals--;
		link->expected++;
		TAILQ_INSERT_TAIL(&t->inbox, a, next);
	}
}

/* Inserts the arrival by its sequence.  False: it came before, or too many wait. */
static bool insert(struct ucx_link *link, struct ucx_arrival *a)
{
	struct ucx_arrival *at;

	TAILQ_FOREACH (at, &link->arrivals, next)
		if (at->sequence >= a->sequence)
			break;
	if (a->sequence < link->expected || (at && at->sequence == a->sequence) ||
	    link->narrivals >= EARLY_MAX)
		return false;
	if (at)
		TAILQ_INSERT_BEFORE(at, a, next);
	else
		TAILQ_INSERT_TAIL(&link->arrivals, a, next);
	link->narrivals++;
	link->uses++;
	link->t->inbox_bytes += a->size;
	return true;
}

static struct ucx_arrival *arrival_new(struct ucx_link *link, const struct ucx_stamp *stamp,
				       size_t size)
{
	struct ucx_arrival *a;

	if (size > TRANSPORT_MESSAGE_MAX || !(a = memory_new(link->t, sizeof(*a) + size)))
		return NULL;
	*a = (struct ucx_arrival){ .link = link, .sequence = stamp->sequence, .size = size };
	if (insert(link, a))
		return a;
	arrival_free(a);
	return NULL;
}

static void drop(struct ucx_arrival *a)
{
	TAILQ_REMOVE(&a->link->arrivals, a, next);
	a->link->narrivals--;
	ucx_arrival_done(a);
}

static void came(struct ucx_arrival *a, ucs_status_t status)
{
	struct ucx_link *link = a->link;

	a->whole = status == UCS_OK;
	if (!a->whole)
		ucx_link_break(link);
	if (!a->whole || link->state >= UCX_CLOSING)
		drop(a);
	else
		to_inbox(link);
}

void ucx_messages_give_up(struct ucx_link *link)
{
	struct ucx_arrival *a, *next;

	TAILQ_FOREACH_SAFE (a, &link->arrivals, next, next)
		if (a->whole)
			drop(a);
}

static void on_received(void *request, ucs_status_t status, size_t size, void *arrival)
{
	struct ucx_arrival *a = arrival;
	struct ucx_link *link = a->link;

	link->uses++; /* until here */
	came(a, size == a->size ? status : UCS_ERR_MESSAGE_TRUNCATED);
	link->t->ucx->ucp_request_free(request);
	ucx_link_unuse(link);
}

/* A large one: its sender waits until we say where to. */
static void fetch(struct ucx_arrival *a, void *descriptor)
{
	struct transport *t = a->link->t;
	const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
							    UCP_OP_ATTR_FIELD_USER_DATA |
							    UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
					    .cb.recv_am = on_received,
					    .user_data = a };
	ucs_status_ptr_t request =
		t->ucx->ucp_am_recv_data_nbx(t->worker, descriptor, a->data, a->size, &param);

	if (!UCS_PTR_IS_PTR(request))
		came(a, UCS_PTR_STATUS(request));
}

static ucs_status_t on_message(void *transport, const void *header, size_t header_size,
			       void *data, size_t size, const ucp_am_recv_param_t *param)
{
	struct ucx_stamp stamp;
	struct ucx_link *link;
	struct ucx_arrival *a;

	if (header_size != sizeof(stamp))
		return UCS_OK;
	memcpy(&stamp, header, sizeof(stamp));
	link = ucx_link_get(transport, stamp.link);
	if (!link || link->nonce != stamp.nonce || link->state != UCX_READY)
		return UCS_OK;
	a = arrival_new(link, &stamp, size);
	if (!a) {
		ucx_link_break(link);
	} else if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
		fetch(a, data);
	} else {
		if (size)
			memcpy(a->data, data, size);
		came(a, UCS_OK);
	}
	return UCS_OK;
}

ucs_status_t ucx_messages_open(struct transport *t)
{
	const ucp_am_handler_param_t param = { .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
							     UCP_AM_HANDLER_PARAM_FIELD_CB |
							     UCP_AM_HANDLER_PARAM_FIELD_ARG |
							     UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
					       .id = AM_MESSAGE,
					       .flags = UCP_AM_FLAG_WHOLE_MSG,
					       .cb = on_message,
					       .arg = t };

	return t->ucx->ucp_worker_set_am_recv_handler(t->worker, &param);
}

/* ---- the end ---- */

static void free_blocks(struct ucx_blocks *blocks)
{
	struct ucx_block *block;

	while ((block = TAILQ_FIRST(blocks))) {
		TAILQ_REMOVE(blocks, block, next);
		block_free(block);
	}
}

void ucx_messages_free(struct ucx_link *link)
{
	struct ucx_arrival *a;

	free_blocks(&link->waiting);
	free_blocks(&link->under_way);
	while ((a = TAILQ_FIRST(&link->arrivals))) {
		TAILQ_REMOVE(&link->arrivals, a, next);
		link->t->inbox_bytes -= a->size;
		arrival_free(a);
	}
}

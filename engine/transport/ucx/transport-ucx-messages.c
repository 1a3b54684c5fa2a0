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

/* ---- their memory: to touch its pages for the first time costs more than to copy them ---- */

struct ucx_spare {
	struct ucx_spare *next;
};

static bool is_spare(size_t size)
{
	return size >= SPARE_LEAST && size <= SPARE_BYTES;
}

static void *memory_new(struct transport *t, size_t size)
{
	struct ucx_spare *spare = is_spare(size) ? t->spares : NULL;

	if (!spare)
		return malloc(is_spare(size) ? SPARE_BYTES : size);
	t->spares = spare->next;
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
	spare->next = t->spares;
	t->spares = spare;
	t->nspares++;
}

void ucx_messages_close(struct transport *t)
{
	struct ucx_spare *next;

	for (struct ucx_spare *spare = t->spares; spare; spare = next) {
		next = spare->next;
		free(spare);
	}
	t->spares = NULL;
}

/* ---- ours ---- */

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
	struct ucx_block **at = &link->under_way;

	while (*at != block)
		at = &(*at)->next;
	*at = block->next;
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

	block->next = link->under_way;
	link->under_way = block;
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

	while ((block = link->first) && link->state == UCX_READY &&
	       link->nunder_way < UNDER_WAY) {
		link->first = block->next;
		if (!link->first)
			link->last = &link->first;
		post(link, block);
	}
}

void ucx_messages_move(struct ucx_link *from, struct ucx_link *to)
{
	for (struct ucx_block *block = from->first; block; block = block->next) {
		block->link = to;
		from->blocks--;
		from->bytes -= block->size;
		to->blocks++;
		to->bytes += block->size;
	}
	if (from->first) {
		to->first = from->first;
		to->last = from->last;
	}
	from->first = NULL;
	from->last = &from->first;
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
	*link->last = block;
	link->last = &block->next;
	link->blocks++;
	link->bytes += size;
	t->bytes += size;
	ucx_messages_pump(link);
	return 0;
}

/* ---- theirs ---- */

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
	struct ucx_arrival *a = t->inbox;

	if (!a)
		return NULL;
	t->inbox = a->next;
	if (!t->inbox)
		t->inbox_last = &t->inbox;
	return a;
}

/* Those that are whole and whose turn it is. */
static void to_inbox(struct ucx_link *link)
{
	struct transport *t = link->t;
	struct ucx_arrival *a;

	while ((a = link->arrivals) && a->whole && a->sequence == link->expected) {
		link->arrivals = a->next;
		link->narrivals--;
		link->expected++;
		a->next = NULL;
		*t->inbox_last = a;
		t->inbox_last = &a->next;
	}
}

/* By its sequence.  False: it was there before. */
static bool insert(struct ucx_link *link, struct ucx_arrival *a)
{
	struct ucx_arrival **at = &link->arrivals;

	while (*at && (*at)->sequence < a->sequence)
		at = &(*at)->next;
	if (a->sequence < link->expected || (*at && (*at)->sequence == a->sequence) ||
	    link->narrivals >= EARLY_MAX)
		return false;
	a->next = *at;
	*at = a;
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
	struct ucx_arrival **at = &a->link->arrivals;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
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
	struct ucx_arrival *next;

	for (struct ucx_arrival *a = link->arrivals; a; a = next) {
		next = a->next;
		if (a->whole)
			drop(a);
	}
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

static void free_blocks(struct ucx_block *block)
{
	struct ucx_block *next;

	for (; block; block = next) {
		next = block->next;
		block_free(block);
	}
}

void ucx_messages_free(struct ucx_link *link)
{
	struct ucx_arrival *next;

	free_blocks(link->first);
	free_blocks(link->under_way);
	link->first = link->under_way = NULL;
	link->last = &link->first;
	for (struct ucx_arrival *a = link->arrivals; a; a = next) {
		next = a->next;
		link->t->inbox_bytes -= a->size;
		arrival_free(a);
	}
	link->arrivals = NULL;
}

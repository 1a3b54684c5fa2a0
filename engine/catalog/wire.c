/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/wire.h"

#include <errno.h>
#include <string.h>

static const uint16_t body_sizes[WIRE_TYPES] = {
	[WIRE_REFUSE] = sizeof(struct wire_refuse),
	[WIRE_ACK] = sizeof(struct wire_ack),
	[WIRE_WELCOME] = sizeof(struct wire_welcome),
	[WIRE_JOIN] = sizeof(struct wire_join),
	[WIRE_JOINED] = sizeof(struct wire_joined),
	[WIRE_TABLE_GET] = sizeof(struct wire_page),
	[WIRE_TABLE] = sizeof(struct wire_table),
	[WIRE_CATALOG_PUT] = sizeof(struct wire_catalog),
	[WIRE_CATALOG_GET] = sizeof(struct wire_page),
	[WIRE_CATALOG] = sizeof(struct wire_catalog),
	[WIRE_STATES_GET] = sizeof(struct wire_page),
	[WIRE_STATES] = sizeof(struct wire_states),
	[WIRE_READ] = sizeof(struct wire_read),
	[WIRE_DATA] = sizeof(struct wire_data),
	[WIRE_STAGE] = sizeof(struct wire_stage),
	[WIRE_COMPUTE] = sizeof(struct wire_compute),
	[WIRE_PLACE] = sizeof(struct wire_place),
	[WIRE_DECIDE] = sizeof(struct wire_decide),
	[WIRE_APPLIED] = sizeof(struct wire_applied),
	[WIRE_PONG] = sizeof(struct wire_control),
	[WIRE_BARRIER] = sizeof(struct wire_barrier),
	[WIRE_PASSED] = sizeof(struct wire_barrier),
	[WIRE_COMMIT] = sizeof(struct wire_commit),
	[WIRE_ACCEPTED] = sizeof(struct wire_accepted),
	[WIRE_CANCEL] = sizeof(struct wire_transaction),
	[WIRE_PREPARE] = sizeof(struct wire_prepare),
	[WIRE_VOTE] = sizeof(struct wire_vote),
	[WIRE_ARRIVED] = sizeof(struct wire_transaction),
	[WIRE_OUTCOME] = sizeof(struct wire_transaction),
	[WIRE_KNOWN] = sizeof(struct wire_known),
	[WIRE_VIEW_OPEN] = sizeof(struct wire_view_open),
	[WIRE_VIEW] = sizeof(struct wire_view),
	[WIRE_VIEW_CLOSE] = sizeof(struct wire_transaction),
	[WIRE_WAIT] = sizeof(struct wire_wait),
	[WIRE_CHANGED] = sizeof(struct wire_changed),
	[WIRE_RENEW] = sizeof(struct wire_transaction),
	[WIRE_THAW] = sizeof(struct wire_thaw),
	[WIRE_DROPPED] = sizeof(struct wire_dropped),
	[WIRE_RANK_QUERY] = sizeof(struct wire_rank_query),
	[WIRE_RANK_TEXT] = sizeof(struct wire_rank_text),
	[WIRE_FABRIC] = sizeof(struct wire_fabric),
	[WIRE_LEFT] = sizeof(struct wire_left),
	[WIRE_STATS] = sizeof(struct wire_stats),
	[WIRE_SUMS] = sizeof(struct wire_summed),
	[WIRE_CHECKED] = sizeof(struct wire_checked),
	[WIRE_ROUND] = sizeof(struct wire_round),
	[WIRE_FORM] = sizeof(struct wire_form),
	[WIRE_DISBAND] = sizeof(struct wire_disband),
	[WIRE_RENDEZVOUS] = sizeof(struct wire_rendezvous),
	[WIRE_RENDEZVOUS_OVER] = sizeof(struct wire_rendezvous_over),
	[WIRE_PREFETCH] = sizeof(struct wire_prefetch),
	[WIRE_LANDED] = sizeof(struct wire_landed),
};

/* clang-format off */
static const char *const type_names[WIRE_TYPES] = {
#define NAME(type) [WIRE_##type] = #type
	NAME(REFUSE), NAME(ACK), NAME(HELLO), NAME(WELCOME), NAME(JOIN), NAME(JOINED),
	NAME(LEAVE), NAME(TABLE_GET), NAME(TABLE), NAME(CATALOG_PUT), NAME(CATALOG_GET),
	NAME(CATALOG), NAME(STATES_GET), NAME(STATES), NAME(READ), NAME(DATA), NAME(STAGE),
	NAME(DECIDE), NAME(APPLIED), NAME(PING), NAME(PONG), NAME(BARRIER), NAME(COMMIT),
	NAME(ACCEPTED), NAME(CANCEL), NAME(PREPARE), NAME(VOTE), NAME(ARRIVED),
	NAME(OUTCOME), NAME(KNOWN), NAME(VIEW_OPEN), NAME(VIEW), NAME(VIEW_CLOSE),
	NAME(WAIT), NAME(CHANGED), NAME(RENEW), NAME(THAW), NAME(PASSED), NAME(DROPPED),
	NAME(RANK_QUERY), NAME(RANK_TEXT), NAME(ROUND), NAME(INVITE), NAME(FORM),
	NAME(DISBAND), NAME(RENDEZVOUS), NAME(RENDEZVOUS_OVER), NAME(FABRIC), NAME(PREFETCH),
	NAME(LANDED), NAME(LEFT), NAME(STATS), NAME(SUMS), NAME(CHECKED), NAME(COMPUTE),
	NAME(PLACE),
#undef NAME
};
/* clang-format on */

const char *wire_type_name(enum wire_type type)
{
	return type < WIRE_TYPES && type_names[type] ? type_names[type] : "?";
}

size_t wire_body_size(enum wire_type type)
{
	return type < WIRE_TYPES ? body_sizes[type] : 0;
}

const void *wire_open(const void *message, size_t size, struct wire_header *header,
		      const void **tail, size_t *tail_size, int *status)
{
	size_t body;

	*status = -EBADMSG;
	memset(header, 0, sizeof(*header));
	if (size < sizeof(*header))
		return NULL;
	memcpy(header, message, sizeof(*header));
	if (header->magic != WIRE_MAGIC)
		return NULL;
	if (header->version != WIRE_VERSION) {
		*status = -EPROTO;
		return NULL;
	}
	body = wire_body_size(header->type);
	if (!header->type || header->type >= WIRE_TYPES || size - sizeof(*header) < body)
		return NULL;
	*status = 0;
	*tail = (const uint8_t *)message + sizeof(*header) + body;
	*tail_size = size - sizeof(*header) - body;
	return (const uint8_t *)message + sizeof(*header);
}

int wire_status(int32_t sent)
{
	/* 4095: the kernel's greatest errno */
	return sent > 0 || sent < -4095 ? -EIO : sent;
}

bool wire_text_ok(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

void wire_control_from_page(struct wire_control *to, const struct control_page *page)
{
	double scale = atomic_load_explicit(&page->loss_scale, memory_order_relaxed);

	*to = (struct wire_control){
		.cookie = { page->cookie[0], page->cookie[1] },
		.sequence = atomic_load_explicit(&page->sequence, memory_order_acquire),
		.registry_epoch =
			atomic_load_explicit(&page->registry_epoch, memory_order_acquire),
		.step = atomic_load_explicit(&page->step, memory_order_relaxed),
		.boundary = atomic_load_explicit(&page->boundary, memory_order_relaxed),
		.generation = atomic_load_explicit(&page->generation, memory_order_relaxed),
		.grads = atomic_load_explicit(&page->grads, memory_order_acquire),
		.phase = atomic_load_explicit(&page->phase, memory_order_relaxed),
		.trainer = atomic_load_explicit(&page->trainer, memory_order_relaxed),
		.bytes_host = atomic_load_explicit(&page->bytes_host, memory_order_relaxed),
		.events = atomic_load_explicit(&page->events, memory_order_acquire),
		.kept_bytes = atomic_load_explicit(&page->kept_bytes, memory_order_relaxed),
		.held_ns = atomic_load_explicit(&page->held_ns, memory_order_relaxed),
		.swap_bytes = atomic_load_explicit(&page->swap_bytes, memory_order_relaxed),
		.swap_in_bytes =
			atomic_load_explicit(&page->swap_in_bytes, memory_order_relaxed),
		.swap_out_bytes =
			atomic_load_explicit(&page->swap_out_bytes, memory_order_relaxed),
		.swap_errors = atomic_load_explicit(&page->swap_errors, memory_order_relaxed),
		.swap_damaged = atomic_load_explicit(&page->swap_damaged, memory_order_relaxed),
		.pinned_bytes = atomic_load_explicit(&page->pinned_bytes, memory_order_relaxed),
		.pinned_lent = atomic_load_explicit(&page->pinned_lent, memory_order_relaxed),
		.arena_bytes = atomic_load_explicit(&page->arena_bytes, memory_order_relaxed),
		.arena_used = atomic_load_explicit(&page->arena_used, memory_order_relaxed),
		.arena_used_max =
			atomic_load_explicit(&page->arena_used_max, memory_order_relaxed),
		.arena_largest =
			atomic_load_explicit(&page->arena_largest, memory_order_relaxed),
		.arena_moved = atomic_load_explicit(&page->arena_moved, memory_order_relaxed),
		.bytes_device = atomic_load_explicit(&page->bytes_device, memory_order_relaxed),
		.device_from_bytes =
			atomic_load_explicit(&page->device_from_bytes, memory_order_relaxed),
		.device_to_bytes =
			atomic_load_explicit(&page->device_to_bytes, memory_order_relaxed),
		.device_errors =
			atomic_load_explicit(&page->device_errors, memory_order_relaxed),
		.device_kept = atomic_load_explicit(&page->device_kept, memory_order_relaxed),
		.generation_ns =
			atomic_load_explicit(&page->generation_ns, memory_order_relaxed),
		.boundary_ns = atomic_load_explicit(&page->boundary_ns, memory_order_relaxed),
		.interval_ns = atomic_load_explicit(&page->interval_ns, memory_order_relaxed),
	};
	memcpy(&to->loss_scale, &scale, sizeof(scale));
}

const void *wire_get_bytes(struct wire_reader *r, uint64_t size)
{
	const void *bytes = r->at;

	if (r->bad || size > (uint64_t)(r->end - r->at)) {
		r->bad = true;
		return NULL;
	}
	r->at += size;
	return bytes;
}

uint8_t wire_get_u8(struct wire_reader *r)
{
	const uint8_t *v = wire_get_bytes(r, 1);

	return v ? *v : 0;
}

uint32_t wire_get_u32(struct wire_reader *r)
{
	const void *bytes = wire_get_bytes(r, 4);
	uint32_t v = 0;

	if (bytes)
		memcpy(&v, bytes, sizeof(v));
	return v;
}

uint64_t wire_get_u64(struct wire_reader *r)
{
	const void *bytes = wire_get_bytes(r, 8);
	uint64_t v = 0;

	if (bytes)
		memcpy(&v, bytes, sizeof(v));
	return v;
}

void wire_put_bytes(struct wire_writer *w, const void *bytes, size_t size)
{
	if (w->bad || !size)
		return;
	if (w->room - w->size < size) {
		size_t room = (w->size + size) * 2;
		uint8_t *data = realloc(w->data, room);

		if (!data) {
			w->bad = true;
			return;
		}
		w->data = data;
		w->room = room;
	}
	memcpy(w->data + w->size, bytes, size);
	w->size += size;
}

void wire_put_u8(struct wire_writer *w, uint8_t v)
{
	wire_put_bytes(w, &v, sizeof(v));
}

void wire_put_u32(struct wire_writer *w, uint32_t v)
{
	wire_put_bytes(w, &v, sizeof(v));
}

void wire_put_u64(struct wire_writer *w, uint64_t v)
{
	wire_put_bytes(w, &v, sizeof(v));
}

uint64_t wire_hash_more(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *p = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ p[i]) * 0x100000001b3u;
	return hash;
}

uint64_t wire_hash_end(uint64_t hash)
{
	return hash ? hash : 1;
}

uint64_t wire_hash(const void *bytes, size_t size)
{
	return wire_hash_end(wire_hash_more(WIRE_HASH_BEGIN, bytes, size));
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/states.h"

#include <errno.h>
#include <string.h>

/* u64 epoch, u32 nshares, u32 nrows,
 * shares: u32 fd, u64 address, u64 size
 * rows:   u8 kind, u8 dtype, u8 tier, u32 index, u32 sub, u64 numel, u8 length, key,
 *         u32 nsegments,
 *         segments: u64 start, u64 numel, u64 address
 */

static uint32_t mapped_index(const struct state_row *row, const uint32_t *params,
			     const uint32_t *groups)
{
	switch (row->kind) {
	case STATE_PARTITION:
	case STATE_WHOLE:
	case STATE_HYPER:
		return groups[row->index];
	case STATE_LP:
	case STATE_LP_SHARD:
		return params[row->index];
	default:
		return row->index;
	}
}

static void put_row(struct wire_writer *w, const struct state_row *row, uint32_t index)
{
	uint32_t nsegments = row->numel && !row->moves ? row->nsegments : 0;

	wire_put_u8(w, row->kind);
	wire_put_u8(w, row->dtype);
	wire_put_u8(w, row->tier);
	wire_put_u32(w, index);
	wire_put_u32(w, row->sub);
	wire_put_u64(w, row->numel);
	wire_put_u8(w, (uint8_t)strlen(row->key));
	wire_put_bytes(w, row->key, strlen(row->key));
	wire_put_u32(w, nsegments);
	wire_put_bytes(w, row->segments, nsegments * sizeof(*row->segments));
}
static_assert(sizeof(struct state_segment) == 24, "wire");

int states_encode(const struct states *s, const uint32_t *map_params,
		  const uint32_t *map_groups, struct wire_writer *w)
{
	wire_put_u64(w, s->epoch);
	wire_put_u32(w, s->nshares);
	wire_put_u32(w, s->nrows);
	for (uint32_t i = 0; i < s->nshares; i++) {
		wire_put_u32(w, (uint32_t)s->shares[i].fd);
		wire_put_u64(w, s->shares[i].address);
		wire_put_u64(w, s->shares[i].size);
	}
	for (uint32_t i = 0; i < s->nrows; i++)
		put_row(w, &s->rows[i], mapped_index(&s->rows[i], map_params, map_groups));
	return w->bad ? -ENOMEM : 0;
}

static bool segments_ok(const struct state_row *row, uint32_t n)
{
	uint64_t at = 0, element = frag_dtype_size(row->dtype), end, bytes;

	for (uint32_t i = 0; i < n; i++) {
		const struct state_segment *segment = &row->segments[i];

		if (segment->start < at || !segment->numel ||
		    !u64_add(segment->start, segment->numel, &at) || at > row->numel ||
		    !u64_mul(segment->numel, element, &bytes) ||
		    !u64_add(segment->address, bytes, &end))
			return false;
	}
	return true;
}

static int get_segments(struct wire_reader *r, struct state_row *row, uint64_t *budget)
{
	uint32_t n = wire_get_u32(r);
	const void *bytes;

	if (n > *budget)
		return -EBADMSG;
	*budget -= n;
	bytes = wire_get_bytes(r, n * sizeof(*row->segments));
	if (!bytes)
		return -EBADMSG;
	row->segments = malloc(n ? n * sizeof(*row->segments) : 1);
	if (!row->segments)
		return -ENOMEM;
	memcpy(row->segments, bytes, n * sizeof(*row->segments));
	row->nsegments = n;
	return segments_ok(row, n) ? 0 : -EBADMSG;
}

static int get_row(struct wire_reader *r, struct states *s, uint64_t *budget)
{
	enum state_kind kind = wire_get_u8(r);
	enum frag_dtype dtype = wire_get_u8(r);
	enum state_tier tier = wire_get_u8(r);
	uint32_t index = wire_get_u32(r), sub = wire_get_u32(r);
	uint64_t numel = wire_get_u64(r), bytes;
	uint8_t length = wire_get_u8(r);
	char key[FRAG_KEY_MAX + 1] = "";
	const void *text = length <= FRAG_KEY_MAX ? wire_get_bytes(r, length) : NULL;
	int row;

	if (!text || memchr(text, '\0', length) || kind >= STATE_KINDS ||
	    (kind != STATE_NONE && !frag_dtype_size(dtype)) || !u64_mul(numel, 8, &bytes) ||
	    bytes > INT64_MAX || tier >= STATE_TIERS ||
	    (tier == STATE_SWAP && kind != STATE_PARTITION && kind != STATE_LP_SHARD))
		return -EBADMSG;
	memcpy(key, text, length);
	if (kind == STATE_NONE) /* keeps the numbers of the others */
		index = s->nrows;
	row = states_add(s, kind, index, sub, key, dtype, numel, (struct state_segment){ 0 });
	if (row < 0)
		return row == -ENOMEM ? row : -EBADMSG;
	s->rows[row].tier = (uint8_t)tier;
	if (kind == STATE_NONE || tier == STATE_SWAP)
		return wire_get_u32(r) ? -EBADMSG : 0;
	return get_segments(r, &s->rows[row], budget);
}

static int get_share(struct wire_reader *r, struct states *s)
{
	struct state_share share = {
		.fd = (int32_t)wire_get_u32(r),
		.address = wire_get_u64(r),
		.size = wire_get_u64(r),
	};
	uint64_t end;

	if (r->bad || share.fd < 0 || !u64_add(share.address, share.size, &end))
		return -EBADMSG;
	return states_add_share(s, share);
}

static int decode_into(struct states *s, struct wire_reader *r)
{
	uint64_t epoch = wire_get_u64(r), budget = STATES_SEGMENTS_MAX;
	uint32_t nshares = wire_get_u32(r), nrows = wire_get_u32(r);
	int rc;

	s->epoch = epoch;
	if (r->bad || nshares > STATES_SHARES_MAX || nrows > STATES_ROWS_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < nshares; i++)
		if ((rc = get_share(r, s)))
			return rc;
	for (uint32_t i = 0; i < nrows; i++)
		if ((rc = get_row(r, s, &budget)))
			return rc;
	return r->bad || r->at != r->end ? -EBADMSG : 0;
}

int states_decode(struct states **out, const void *bytes, size_t size)
{
	struct wire_reader r = { .at = bytes, .end = (const uint8_t *)bytes + size };
	struct states *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = decode_into(s, &r);
	if (rc) {
		states_free(s);
		return rc;
	}
	*out = s;
	return 0;
}

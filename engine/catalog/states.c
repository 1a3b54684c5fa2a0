/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "engine/catalog/states.h"
#include "engine/base/vec.h"

#include <errno.h>
#include <string.h>

const char *const states_tier_names[STATE_TIERS] = {
	[STATE_HOST] = "host", [STATE_SWAP] = "swap", [STATE_DEVICE] = "device"
};

void states_fini(struct states *s)
{
	for (uint32_t i = 0; i < s->nrows; i++)
		free(s->rows[i].extents);
	free(s->rows);
	free(s->group_rows);
	free(s->shares);
	free(s->index);
	memset(s, 0, sizeof(*s));
}

void states_free(struct states *s)
{
	if (s)
		states_fini(s);
	free(s);
}

/* Returns the slot where a search for the row begins. */
static uint32_t home_slot(const struct states *s, enum state_kind kind, uint32_t index,
			  uint32_t sub, const char *key)
{
	uint64_t hash = wire_hash(key, strlen(key)) ^ (index * 0x9e3779b97f4a7c15u) ^
			((uint64_t)sub << 32) ^ (uint64_t)kind;

	return (uint32_t)(hash ^ hash >> 32) & (s->index_room - 1);
}

static uint32_t *index_slot(const struct states *s, enum state_kind kind, uint32_t index,
			    uint32_t sub, const char *key)
{
	uint32_t mask = s->index_room - 1;
	uint32_t at = home_slot(s, kind, index, sub, key);

	for (; s->index[at]; at = (at + 1) & mask) {
		const struct state_row *row = &s->rows[s->index[at] - 1];

		if (row->kind == kind && row->index == index && row->sub == sub &&
		    !strcmp(row->key, key))
			break;
	}
	return &s->index[at];
}

static void fill_index(struct states *s)
{
	for (uint32_t i = 0; i < s->nrows; i++) {
		struct state_row *row = &s->rows[i];

		if (row->kind != STATE_NONE)
			*index_slot(s, row->kind, row->index, row->sub, row->key) = i + 1;
	}
}

/* On failure the old index stays. */
static int grow_index(struct states *s)
{
	uint32_t room = 64, *index;

	while (room < s->nrows * 4)
		room *= 2;
	index = calloc(room, sizeof(*index));
	if (!index)
		return -ENOMEM;
	free(s->index);
	s->index = index;
	s->index_room = room;
	fill_index(s);
	return 0;
}

/* Empties the row's slot.  Of the entries behind it up to the next empty slot, each that a
 * search would no longer reach moves into the slot, and leaves its own for the next.
 */
static void clear_slot(struct states *s, const struct state_row *row)
{
	uint32_t *slot = index_slot(s, row->kind, row->index, row->sub, row->key);
	uint32_t empty = (uint32_t)(slot - s->index), mask = s->index_room - 1;

	assert(*slot && &s->rows[*slot - 1] == row);
	for (uint32_t at = (empty + 1) & mask; s->index[at]; at = (at + 1) & mask) {
		const struct state_row *other = &s->rows[s->index[at] - 1];
		uint32_t home = home_slot(s, other->kind, other->index, other->sub, other->key);

		if (((at - home) & mask) < ((at - empty) & mask))
			continue; /* its search begins behind the empty slot */
		s->index[empty] = s->index[at];
		empty = at;
	}
	s->index[empty] = 0;
}

int states_find(const struct states *s, enum state_kind kind, uint32_t index, uint32_t sub,
		const char *key)
{
	uint32_t found = s->index ? *index_slot(s, kind, index, sub, key) : 0;

	return found ? (int)found - 1 : -ENOENT;
}

static int note_group_row(struct states *s, enum state_kind kind, uint32_t number)
{
	if (kind != STATE_PARTITION && kind != STATE_WHOLE && kind != STATE_HYPER)
		return 0;
	if (!vec_grow(&s->group_rows, s->ngroup_rows, &s->group_room, sizeof(*s->group_rows)))
		return -ENOMEM;
	s->group_rows[s->ngroup_rows++] = number;
	return 0;
}

static void forget_group_row(struct states *s, uint32_t number)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < s->ngroup_rows; i++)
		if (s->group_rows[i] != number)
			s->group_rows[kept++] = s->group_rows[i];
	s->ngroup_rows = kept;
}

static void free_row(struct states *s, uint32_t number)
{
	free(s->rows[number].extents);
	s->rows[number] = (struct state_row){ .kind = STATE_NONE, .next_unused = s->unused };
	s->unused = number + 1;
	forget_group_row(s, number);
}

/* Returns a dropped row, else the next one; for kind NONE, which keeps the place of a row of
 * the sender's table, always the next.
 */
static uint32_t unused_row(const struct states *s, enum state_kind kind)
{
	return s->unused && kind != STATE_NONE ? s->unused - 1 : s->nrows;
}

int states_add(struct states *s, enum state_kind kind, uint32_t index, uint32_t sub,
	       const char *key, enum frag_dtype dtype, uint64_t numel,
	       struct state_segment segment)
{
	uint32_t number = unused_row(s, kind);
	struct state_row *row;

	if (states_find(s, kind, index, sub, key) >= 0)
		return -EEXIST;
	if (number == STATES_ROWS_MAX)
		return -ENOSPC;
	if ((number == s->nrows &&
	     !vec_grow(&s->rows, s->nrows, &s->rows_room, sizeof(*s->rows))) ||
	    note_group_row(s, kind, number))
		return -ENOMEM;
	row = &s->rows[number];
	if (number < s->nrows)
		s->unused = row->next_unused;
	else
		s->nrows++;
	*row = (struct state_row){ .kind = (uint8_t)kind,
				   .dtype = (uint8_t)dtype,
				   .index = index,
				   .sub = sub,
				   .numel = numel,
				   .since = s->epoch + 1 };
	strncpy(row->key, key, FRAG_KEY_MAX);
	if (s->nrows * 2 <= s->index_room) {
		*index_slot(s, kind, index, sub, key) = number + 1;
	} else if (grow_index(s)) {
		free_row(s, number);
		return -ENOMEM;
	}
	if (segment.numel && states_add_segment(s, number, segment)) {
		states_drop(s, number);
		return -ENOMEM;
	}
	return (int)number;
}

/* The first extent that ends after element at. */
static uint32_t extent_at(const struct state_row *row, uint64_t at)
{
	return (uint32_t)LOWER_BOUND(row->nextents, i, row->extents[i].end <= at);
}

/* Puts n extents in the place of `gone`, 0 or 1, extents at `at`. */
static int splice(struct state_row *row, uint32_t at, uint32_t gone,
		  const struct state_extent *extents, uint32_t n)
{
	uint32_t room = row->nextents + row->nextents / 16 + n;
	struct state_extent *all = row->extents;

	if (row->nextents + n - gone > row->extents_room) {
		all = realloc(all, room * sizeof(*all));
		if (!all)
			return -ENOMEM;
		row->extents = all;
		row->extents_room = room;
	}
	memmove(all + at + n, all + at + gone, (row->nextents - at - gone) * sizeof(*all));
	memcpy(all + at, extents, n * sizeof(*all));
	row->nextents += n - gone;
	return 0;
}

int states_add_segment(struct states *s, uint32_t number, struct state_segment segment)
{
	struct state_row *row = &s->rows[number];
	uint32_t at = extent_at(row, segment.start), n = 0;
	bool in_gap = at < row->nextents;
	uint64_t start = states_extent_start(row, at), end = segment.start + segment.numel;
	struct state_extent now[3]; /* in the place of the gap, or behind all */

	if (in_gap && (row->extents[at].address || row->extents[at].end < end))
		return -EEXIST;
	if (start < segment.start)
		now[n++] = (struct state_extent){ .end = segment.start };
	now[n++] = (struct state_extent){ end, segment.address };
	if (in_gap && end < row->extents[at].end)
		now[n++] = row->extents[at];
	return splice(row, at, in_gap, now, n);
}

struct state_extent *states_find_extent(struct state_row *row, uint64_t start, uint64_t numel)
{
	uint32_t at = extent_at(row, start);
	struct state_segment found;

	if (at == row->nextents)
		return NULL;
	found = states_segment(row, at);
	return found.start == start && found.numel == numel ? &row->extents[at] : NULL;
}

int states_add_share(struct states *s, struct state_share share)
{
	if (!vec_grow(&s->shares, s->nshares, &s->shares_room, sizeof(*s->shares)))
		return -ENOMEM;
	s->shares[s->nshares++] = share;
	return 0;
}

void states_drop(struct states *s, uint32_t number)
{
	clear_slot(s, &s->rows[number]);
	free_row(s, number);
}

uint64_t states_row_bytes(const struct state_row *row)
{
	uint64_t numel = 0;

	for (uint32_t i = 0; i < row->nextents; i++)
		numel += row->extents[i].address ? states_segment(row, i).numel : 0;
	return numel * frag_dtype_size(row->dtype);
}

int states_parts(const struct state_row *row, uint64_t offset, uint64_t size,
		 struct iovec *parts, int max)
{
	uint64_t element = frag_dtype_size(row->dtype), end;
	int n = 0;

	if (!u64_add(offset, size, &end) || end > row->numel * element)
		return -EINVAL;
	if (row->tier == STATE_SWAP)
		return -EREMOTE;
	for (uint32_t i = extent_at(row, offset / element); offset < end; i++) {
		struct state_segment segment;
		uint64_t count;

		if (i == row->nextents || !row->extents[i].address)
			return -ENODATA;
		if (n == max)
			return -E2BIG;
		segment = states_segment(row, i);
		count = u64_min(end, row->extents[i].end * element) - offset;
		parts[n++] = (struct iovec){
			.iov_base = (void *)(uintptr_t)(segment.address + offset -
							segment.start * element),
			.iov_len = count,
		};
		offset += count;
	}
	return n;
}

int states_resolve(const struct state_row *row, uint64_t offset, uint64_t size,
		   struct iovec *parts, int max)
{
	int n = states_parts(row, offset, size, parts, max);

	return n > 0 && row->tier != STATE_HOST ? -EREMOTE : n;
}

/* The encoding of a table:
 * u64 epoch, u32 nshares, u32 nrows,
 * shares: u32 fd, u64 address, u64 size
 * rows:   u8 kind, u8 dtype, u8 tier, u32 index, u32 sub, u64 numel, u8 length, key,
 *         u32 nextents,
 *         extents: u64 end, u64 address
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
	uint32_t nextents = row->numel && !row->moves ? row->nextents : 0;

	wire_put_u8(w, row->kind);
	wire_put_u8(w, row->dtype);
	wire_put_u8(w, row->tier);
	wire_put_u32(w, index);
	wire_put_u32(w, row->sub);
	wire_put_u64(w, row->numel);
	wire_put_u8(w, (uint8_t)strlen(row->key));
	wire_put_bytes(w, row->key, strlen(row->key));
	wire_put_u32(w, nextents);
	wire_put_bytes(w, row->extents, nextents * sizeof(*row->extents));
}
static_assert(sizeof(struct state_extent) == 16, "wire");

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

static bool extents_ok(const struct state_row *row)
{
	uint64_t at = 0, element = frag_dtype_size(row->dtype), end;

	for (uint32_t i = 0; i < row->nextents; i++) {
		const struct state_extent *extent = &row->extents[i];

		if (extent->end <= at || extent->end > row->numel ||
		    !u64_add(extent->address, (extent->end - at) * element, &end))
			return false;
		at = extent->end;
	}
	return true;
}

static int get_extents(struct wire_reader *r, struct state_row *row, uint64_t *budget)
{
	uint32_t n = wire_get_u32(r);
	const void *bytes;

	if (n > *budget)
		return -EBADMSG;
	*budget -= n;
	bytes = wire_get_bytes(r, n * sizeof(*row->extents));
	if (!bytes)
		return -EBADMSG;
	row->extents = malloc(n ? n * sizeof(*row->extents) : 1);
	if (!row->extents)
		return -ENOMEM;
	memcpy(row->extents, bytes, n * sizeof(*row->extents));
	row->nextents = row->extents_room = n;
	return extents_ok(row) ? 0 : -EBADMSG;
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
	/* a dropped row keeps its place, and so the others their numbers */
	if (kind == STATE_NONE)
		index = s->nrows;
	row = states_add(s, kind, index, sub, key, dtype, numel, (struct state_segment){ 0 });
	if (row < 0)
		return row == -ENOMEM ? row : -EBADMSG;
	s->rows[row].tier = (uint8_t)tier;
	if (kind == STATE_NONE || tier == STATE_SWAP)
		return wire_get_u32(r) ? -EBADMSG : 0;
	return get_extents(r, &s->rows[row], budget);
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
	uint64_t epoch = wire_get_u64(r), budget = STATES_EXTENTS_MAX;
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

/* Gives back the room for more rows: a mount may have a thousand tables, which do not grow. */
static void trim(struct states *s)
{
	struct state_row *rows = s->nrows ? realloc(s->rows, s->nrows * sizeof(*rows)) : NULL;

	if (!rows)
		return;
	s->rows = rows;
	s->rows_room = s->nrows;
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
	trim(s);
	*out = s;
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_CATALOG_STATES_H
#define ENGINE_CATALOG_STATES_H

/* The table of states of one rank: rows of named tensors, each in one or more segments of the
 * rank's memory.  A rank has its own (engine/rank/registry.h) and sends it to its readers.
 * A row keeps extents: where each of its segments ends, and each gap between them.
 *
 *   row 3: PARTITION group 0 sub 1 "exp_avg" float32, 4096 elements
 *            segment [0, 4096) at 0x7f..
 *   row 4: PARTITION group 0 sub 1 "grad", fragments in memory of their own
 *            segment [0, 15) at 0x7f..   segment [15, 18) at 0x7f..    (gaps: nothing there)
 *   row 5: PARTITION group 1 sub 0 "exp_avg" float32, on NVMe: whole, without addresses
 *   row 6: as row 3, in a device's memory: the addresses are the device's
 *   row 7: LP_SHARD parameter 12, on NVMe too: bytes of a state that others share
 */

#include "engine/base/base.h"
#include "engine/catalog/wire.h"
#include "engine/frag.h"

#include <sys/uio.h>

enum state_kind {
	STATE_NONE,      /* dropped */
	STATE_PARTITION, /* index: group; sub; this rank's flat partition */
	STATE_WHOLE,     /* index: group; the group's unsharded flat tensor */
	STATE_LP,        /* index: parameter; the whole low-precision parameter */
	STATE_LP_SHARD,  /* index: parameter; this rank's piece of it */
	STATE_HYPER,     /* index: group; one float64 */
	STATE_PUBLISHED, /* bytes for other ranks */
	STATE_ARENA,     /* memory of low-precision parameters: engine/rank/arena-memory.h */
	STATE_KINDS,
};

enum state_tier {
	STATE_HOST,   /* memory, at the segments' addresses */
	STATE_SWAP,   /* NVMe; partitions and pieces of parameters; whole, without segments */
	STATE_DEVICE, /* memory of a device: addresses are only for engine/rank/devices.h */
	STATE_TIERS,
};

extern const char *const states_tier_names[STATE_TIERS]; /* "host", "swap", "device" */

struct swapper_state;

struct state_segment {
	uint64_t start; /* elements of the row */
	uint64_t numel;
	uint64_t address; /* 0: there is no memory now */
};

struct state_extent {
	uint64_t end;     /* elements of the row; it begins where the one before it ends */
	uint64_t address; /* 0: a gap, or a segment without memory */
};

struct state_row {
	uint8_t kind;
	uint8_t dtype;
	uint8_t owned; /* memory of the library; not sent */
	uint8_t tier;  /* enum state_tier */
	uint32_t index;
	uint32_t sub;
	uint32_t nextents;
	union {
		uint32_t extents_room;
		uint32_t next_unused; /* STATE_NONE: as states.unused, the one after this */
	};
	uint64_t numel;
	/* the table's epoch with which the row came; not sent */
	uint64_t since;
	struct state_extent *extents;     /* their ends rise */
	struct swapper_state *swap_state; /* STATE_SWAP: a rank's own; not sent */
	uint64_t swap_at;                 /* where in swap_state, in bytes */
	int device;                       /* STATE_DEVICE: the device's number; not sent */
	char key[FRAG_KEY_MAX + 1];
	bool in_arena;  /* the arena's bytes include the row's; not sent */
	bool placeable; /* the trainer has no address of the row's memory; not sent */
	/* registry-place.h: the tier that the row is to move to, + 1; 0: none */
	uint8_t wanted;
	bool stays; /* meant for STATE_SWAP, but too small or told to stay; not sent */
	bool moves; /* its segments get other memory, unseen by readers: they are not sent */
};

struct state_share { /* a sealed memfd that holds [address, address + size) */
	int32_t fd;
	uint64_t address;
	uint64_t size;
};

struct states {
	uint64_t epoch;
	struct state_row *rows;
	uint32_t nrows, rows_room;
	uint32_t unused;      /* a dropped row, which is used again, + 1; 0: none */
	uint32_t *group_rows; /* numbers of the rows of groups: few */
	uint32_t ngroup_rows, group_room;
	struct state_share *shares;
	uint32_t nshares, shares_room;
	uint32_t *index; /* open addressing: row + 1 */
	uint32_t index_room;
};

enum { STATES_ROWS_MAX = 1 << 24, STATES_EXTENTS_MAX = 1 << 24, STATES_SHARES_MAX = 65536 };

void states_fini(struct states *s);

/* Adds a row, with one segment, or none where segment.numel is 0.  Returns its number.
 * -EEXIST: there is a row of that kind, index, sub and key.
 * -ENOSPC: there are STATES_ROWS_MAX rows.
 * -ENOMEM.
 */
int states_add(struct states *s, enum state_kind kind, uint32_t index, uint32_t sub,
	       const char *key, enum frag_dtype dtype, uint64_t numel,
	       struct state_segment segment);
/* Adds a segment.
 * -EEXIST: it overlaps a segment that has memory.
 * -ENOMEM.
 */
int states_add_segment(struct states *s, uint32_t row, struct state_segment segment);
/* Returns the extent with that start and numel; NULL: there is none. */
struct state_extent *states_find_extent(struct state_row *row, uint64_t start, uint64_t numel);
/* Returns where extent i of a row begins; i may be the number of extents. */
static inline uint64_t states_extent_start(const struct state_row *row, uint32_t i)
{
	return i ? row->extents[i - 1].end : 0;
}

/* Returns the segment that extent i of a row is. */
static inline struct state_segment states_segment(const struct state_row *row, uint32_t i)
{
	uint64_t start = states_extent_start(row, i);

	return (struct state_segment){ start, row->extents[i].end - start,
				       row->extents[i].address };
}
int states_add_share(struct states *s, struct state_share share);
void states_drop(struct states *s, uint32_t row);

/* Returns the row's number; -ENOENT: there is no such row. */
int states_find(const struct states *s, enum state_kind kind, uint32_t index, uint32_t sub,
		const char *key);

/* Returns the bytes of all elements of a row, in whichever tier. */
static inline uint64_t states_row_whole(const struct state_row *row)
{
	return row->numel * frag_dtype_size(row->dtype);
}

/* Returns the bytes of all segments of a row that have memory. */
uint64_t states_row_bytes(const struct state_row *row);

/* Finds the memory of bytes [offset, offset + size) of a row: at most max parts.  Returns how
 * many.
 * -EINVAL: past the end.
 * -EREMOTE: the row is in another tier than memory.
 * -ENODATA: there is a gap.
 * -E2BIG: more than max parts.
 */
int states_resolve(const struct state_row *row, uint64_t offset, uint64_t size,
		   struct iovec *parts, int max);
/* states_resolve, also for rows in a device's memory. */
int states_parts(const struct state_row *row, uint64_t offset, uint64_t size,
		 struct iovec *parts, int max);

/* Writes the table to w; map_params and map_groups translate this rank's numbers to the
 * job's.
 */
int states_encode(const struct states *s, const uint32_t *map_params,
		  const uint32_t *map_groups, struct wire_writer *w);
/* Reads a peer's table; every number must be within the limits above, every extent inside its
 * row.
 * -EBADMSG: the table is damaged.
 * -ENOMEM.
 */
int states_decode(struct states **s, const void *bytes, size_t size);
void states_free(struct states *s);

#endif

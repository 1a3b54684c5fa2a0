/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAPPER_INTERNAL_H
#define ENGINE_SWAP_SWAPPER_INTERNAL_H

#include "engine/swap/swapper.h"

#include <pthread.h>

enum {
	SWAPPER_OPEN = 2,     /* slices of a state in which values are collected */
	SWAPPER_PATCHES = 16, /* of a version */
	SWAPPER_AHEAD = 4,    /* slices of a sweep */
};

enum swapper_memory { SWAPPER_PINNED, SWAPPER_SPARE, SWAPPER_SMALL };

/* Bytes of a slice that nobody changes: in memory until they are written, then on the disk.
 * Under the lock.
 */
struct swapper_block {
	unsigned refs;    /* versions, and the request that writes it */
	unsigned readers; /* of it, now */
	unsigned copying; /* of these, from memory */
	struct swapper *swapper;
	struct swapper_state *state;
	uint64_t slice, bytes;
	uint8_t *memory; /* NULL: on the disk alone */
	enum swapper_memory kind;
	struct swap_extent *extent; /* NULL: in memory alone */
	bool writing, written;
	bool unwritten; /* it could not be: in swapper->unwritten */
	bool stuck;     /* so it keeps a pinned buffer */
	int error;      /* why it could not */
	struct swapper_block *prev_unwritten, *next_unwritten;
	uint64_t tried;   /* the last flush that did */
	uint64_t said_ms; /* that it could not be read; 0: never */
	uint64_t since;   /* ns */
	struct swap_io io;
};

struct swapper_patch {
	unsigned refs;
	uint64_t offset, size; /* in the slice */
	uint8_t bytes[];
};

struct swapper_version {
	unsigned refs;
	unsigned slots; /* of these, as a slice's current or next */
	bool evicted;
	struct swapper_block *block; /* NULL: zeros */
	unsigned npatches;
	struct swapper_patch *patches[]; /* the oldest first */
};

struct swapper_slice {
	struct swapper_version *current, *next; /* NULL: zeros */
	bool has_next;
	bool lost; /* current was given up for room */
	struct swapper_lent *lent;
	struct swapper_state *state;
	struct swapper_slice *changed; /* the next with a next */
};

struct swapper_state {
	unsigned refs; /* the swapper's, blocks', pins' */
	char *name;
	enum swapper_kind kind;
	uint32_t element;
	uint64_t bytes, slice_bytes, nslices;
	bool small;
	int said; /* the error of the last line about writing, and when */
	uint64_t said_ms;
	uint64_t reads, writes, errors;
	int error;
	struct swapper_lent
		*open[SWAPPER_OPEN]; /* where values are collected; the last used first */
	struct swapper_state *next;
	struct swapper_slice slices[];
};

struct swapper_lent {
	struct swapper *swapper;
	struct swapper_slice *slice;
	struct swapper_version *version; /* that is brought in */
	struct swapper_block *block;     /* that is read */
	uint8_t *buffer;
	uint64_t index, bytes;
	unsigned use;
	bool there;     /* rc says how */
	bool abandoned; /* it goes when the disk is done */
	int rc;
	struct swapper_failure failure;
	uint64_t since;
	struct swap_io io;
};

struct swapper_pin {
	struct swapper_pin *prev, *next; /* the older, the newer */
	struct swapper_state *state;
	uint64_t offset, size, first, n; /* slices */
	struct swapper_version *versions[];
};

struct swapper {
	const struct disk_ops *disk_ops;
	struct disk *disk;
	struct disk_setup setup;
	struct pinned *pinned;
	struct swap_file *file;
	uint64_t slice, least, spare_limit, capacity, wait_ms;
	uint64_t
		until_ms; /* the trainer's thread's: when its call ends at the latest; 0: none has an end */
	bool no_ahead, no_behind, debug;
	uint32_t chunk;
	void (*name_range)(void *owner, const struct swapper_state *s, uint64_t from,
			   uint64_t to, char *text, size_t size);
	void *owner;

	pthread_mutex_t lock; /* of all below; before those of pinned and swap-file */
	pthread_cond_t changed;
	struct swapper_state *states;
	uint64_t room; /* bytes on the disk of one generation of all states */
	struct swapper_slice *first_changed;
	struct swapper_pin *oldest, *newest;
	struct swapper_block *unwritten;
	uint64_t flushes;
	unsigned writing;     /* blocks */
	unsigned swapping_in; /* slices, by the disk */
	unsigned dying;       /* blocks that only readers have */
	unsigned returning;   /* pinned buffers that come back by themselves */
	unsigned stuck;       /* that do not */
	uint64_t freed;       /* extents, ever */
	uint64_t small, spare, spare_max;
	struct swapper_figures figures; /* what only counts */
	struct {
		unsigned n;
		uint64_t since;
	} busy[SWAPPER_KINDS][SWAPPER_TIMED];

	unsigned
		half; /* sweeps that have changed some slices of all: the trainer's, without the lock */
};

static inline struct swapper_version *swapper_newest(const struct swapper_slice *slice)
{
	return slice->has_next ? slice->next : slice->current;
}

static inline uint64_t swapper_slice_bytes(const struct swapper_state *s, uint64_t slice)
{
	return u64_min(s->slice_bytes, s->bytes - slice * s->slice_bytes);
}

static inline uint64_t swapper_whole_blocks(uint64_t bytes)
{
	return u64_div_ceil(bytes, SWAP_BLOCK) * SWAP_BLOCK;
}

/* ---- swapper-block.c: under the lock, but for _new and what says otherwise ---- */

/* Memory of that kind is taken, if there may be as much; is given back. */
bool swapper_charge(struct swapper *sw, enum swapper_memory kind, uint64_t bytes);
void swapper_uncharge(struct swapper *sw, enum swapper_memory kind, uint64_t bytes);

void swapper_block_unref(struct swapper_block *b);
/* True: from b->memory; false: from b->extent. */
bool swapper_block_read(struct swapper_block *b);
void swapper_block_read_end(struct swapper_block *b, bool from_memory);
/* Counts it; it is to be said once in SAY_MS of each block. */
void swapper_read_failed(struct swapper_block *b, const struct swap_io *io, int rc,
			 struct swapper_failure *failure);
void swapper_state_unref(struct swapper_state *s);

/* The caller's reference; takes that of block. */
struct swapper_version *swapper_version_new(struct swapper_block *block, unsigned npatches);
void swapper_version_ref(struct swapper_version *v); /* NULL: nothing */
void swapper_version_unref(struct swapper *sw, struct swapper_version *v);
/* Patches of [offset, offset + size) of the slice onto memory; no lock. */
void swapper_version_patch(const struct swapper_version *v, uint64_t offset, uint64_t size,
			   uint8_t *memory);
/* Some patch is all of it. */
bool swapper_version_covers(const struct swapper_version *v, uint64_t offset, uint64_t size);
/* Takes the caller's reference. */
void swapper_set_next(struct swapper *sw, struct swapper_slice *slice,
		      struct swapper_version *v);
/* Of s; NULL: of all. */
void swapper_publish_changed(struct swapper *sw, const struct swapper_state *s);
void swapper_drop_current(struct swapper *sw, struct swapper_slice *slice);

/* ---- swapper-block.c: without the lock, by the trainer ---- */

/* All that could not be written: those that still cannot say so. */
void swapper_retry_writes(struct swapper *sw);
/* What is in memory becomes the slice's version, and is written where it can be.  0: memory is
 * taken.
 */
int swapper_version_write(struct swapper *sw, struct swapper_slice *slice, void *memory,
			  enum swapper_memory kind, struct swapper_version **v);

/* ---- swapper.c: under the lock ---- */

/* One more, one less is under way. */
void swapper_timer_begin(struct swapper *sw, enum swapper_kind kind, enum swapper_timed timed);
void swapper_timer_end(struct swapper *sw, enum swapper_kind kind, enum swapper_timed timed);
#define SWAPPER_NO_SLICE UINT64_MAX

void swapper_timer_add(struct swapper *sw, const struct swapper_state *s, uint64_t slice,
		       enum swapper_timed timed, uint64_t bytes, uint64_t since);
/* What the trainer did with a range; also without the lock. */
void swapper_log_debug(struct swapper *sw, const struct swapper_state *s, const char *what,
		       uint64_t offset, uint64_t size);

/* ---- swapper-slice.c ---- */

int swapper_get_buffer(struct swapper *sw, const struct swapper_state *s, uint64_t wait_ms,
		       void **buffer);
/* How long the trainer's thread may wait for the disk. */
uint64_t swapper_time_left_ms(const struct swapper *sw);
/* Under the lock; -ETIMEDOUT. */
int swapper_wait_changed(struct swapper *sw, const struct timespec *end);

/* ---- swapper-read.c: without the lock ---- */

/* ---- swapper-read.c: without the lock ---- */

/* The newest version, in one slice. */
int swapper_read_unlent(struct swapper *sw, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory);

/* ---- swapper-slice.c ---- */

/* Values of s that are collected. */
void swapper_drop_puts(struct swapper *sw, struct swapper_state *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAPPER_INTERNAL_H
#define ENGINE_SWAP_SWAPPER_INTERNAL_H

#include "engine/swap/swapper.h"

#include <pthread.h>

enum {
	SWAPPER_OPEN = 2,     /* slices of a state in which values are collected */
	SWAPPER_PATCHES = 16, /* of a version */
	SWAPPER_AHEAD = 4,    /* slices of a walk */
};

enum swapper_memory { SWAPPER_PINNED, SWAPPER_SPARE, SWAPPER_SMALL };

/* Bytes of a slice that nobody changes: in memory until they are written, then on the disk.
 * Under the lock.
 */
struct swapper_block {
	unsigned refs;    /* versions, and the request that writes it */
	unsigned readers; /* of it, now */
	unsigned copying; /* of these, from memory */
	struct swapper *place;
	struct swapper_state *state;
	uint64_t slice, bytes;
	uint8_t *memory; /* NULL: on the disk alone */
	enum swapper_memory kind;
	struct swap_extent *extent; /* NULL: in memory alone */
	bool writing, written;
	bool unwritten; /* it could not be: in place->unwritten */
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
	bool given_up;
	struct swapper_block *body; /* NULL: zeros */
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
	unsigned refs; /* the place's, bodies', holds' */
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
	struct swapper *place;
	struct swapper_slice *slice;
	struct swapper_version *version; /* that is brought in */
	struct swapper_block *body;      /* that is read */
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
	unsigned writing;   /* bodies */
	unsigned bringing;  /* slices, by the disk */
	unsigned dying;     /* bodies that only readers have */
	unsigned returning; /* pinned buffers that come back by themselves */
	unsigned stuck;     /* that do not */
	uint64_t freed;     /* extents, ever */
	uint64_t small, spare, spare_max;
	struct swapper_figures figures; /* what only counts */
	struct {
		unsigned n;
		uint64_t since;
	} busy[SWAPPER_KINDS][SWAPPER_TIMED];

	unsigned
		half; /* walks that have changed some slices of all: the trainer's, without the lock */
};

static inline struct swapper_version *swapper_newest(const struct swapper_slice *slice)
{
	return slice->has_next ? slice->next : slice->current;
}

static inline uint64_t swapper_slice_bytes(const struct swapper_state *s, uint64_t slice)
{
	return u64_min(s->slice_bytes, s->bytes - slice * s->slice_bytes);
}

static inline uint64_t swapper_whole(uint64_t bytes)
{
	return u64_div_ceil(bytes, SWAP_BLOCK) * SWAP_BLOCK;
}

/* ---- swapper-block.c: under the lock, but for _new and what says otherwise ---- */

/* Memory of that kind is taken, if there may be as much; is given back. */
bool swapper_take(struct swapper *p, enum swapper_memory kind, uint64_t bytes);
void swapper_give(struct swapper *p, enum swapper_memory kind, uint64_t bytes);

/* The caller's reference.  memory: its, from now on, of that kind, which has been counted.
 * Takes the lock.
 */
struct swapper_block *swapper_block_new(struct swapper_slice *slice, struct swapper *p,
					void *memory, enum swapper_memory kind);
void swapper_block_unref(struct swapper_block *b);
/* Without its memory, which stays the caller's. */
void swapper_block_forget(struct swapper_block *b);
/* True: from b->memory; false: from b->extent. */
bool swapper_block_read(struct swapper_block *b);
void swapper_block_read_end(struct swapper_block *b, bool from_memory);
/* When it is neither written nor read from memory: where it belongs.  May let go of the lock.
 */
void swapper_block_settle(struct swapper_block *b);
/* A request of it begins. */
void swapper_block_writes(struct swapper_block *b);
/* There was no room on the disk; says so.  False: nor is there in memory, which stays the
 * caller's.  Takes the lock.
 */
bool swapper_block_keep(struct swapper_block *b, int rc);
/* After a request. */
void swapper_block_fail(struct swapper_block *b, int rc, struct swapper_failure *failure);
void swapper_block_wrote(struct swapper_block *b);
/* A slice was not written.  Counts it; it is to be said once in SAY_MS. */
void swapper_failed(struct swapper_block *b, int rc, const char *what,
		    struct swapper_failure *failure);
/* Counts it; it is to be said once in SAY_MS of each body. */
void swapper_not_read(struct swapper_block *b, const struct swap_io *io, int rc,
		      struct swapper_failure *failure);
void swapper_state_unref(struct swapper_state *s);

/* The caller's reference; takes that of body. */
struct swapper_version *swapper_version_new(struct swapper_block *body, unsigned npatches);
void swapper_version_ref(struct swapper_version *v); /* NULL: nothing */
void swapper_version_unref(struct swapper *p, struct swapper_version *v);
/* Patches of [offset, offset + size) of the slice onto memory; no lock. */
void swapper_version_patch(const struct swapper_version *v, uint64_t offset, uint64_t size,
			   uint8_t *memory);
/* Some patch is all of it. */
bool swapper_version_covers(const struct swapper_version *v, uint64_t offset, uint64_t size);
void swapper_patch_unref(struct swapper *p, struct swapper_patch *patch);
/* Takes the caller's reference. */
void swapper_set_next(struct swapper *p, struct swapper_slice *slice,
		      struct swapper_version *v);
/* Of s; NULL: of all. */
void swapper_publish_changed(struct swapper *p, const struct swapper_state *s);
void swapper_forget_current(struct swapper *p, struct swapper_slice *slice);

/* ---- swapper-out.c: without the lock, by the trainer ---- */

/* To a new extent, by the disk.  -ENOSPC and others: nothing has begun. */
int swapper_block_write(struct swapper_block *b);
/* All that could not be written: those that still cannot say so. */
void swapper_try_again(struct swapper *p);
/* What is in memory becomes the slice's version, and is written where it can be.  0: memory is
 * taken.
 */
int swapper_version_of(struct swapper *p, struct swapper_slice *slice, void *memory,
		       enum swapper_memory kind, struct swapper_version **v);

/* ---- swapper-figures.c: under the lock ---- */

/* One more, one less is under way. */
void swapper_busy(struct swapper *p, enum swapper_kind kind, enum swapper_timed timed);
void swapper_idle(struct swapper *p, enum swapper_kind kind, enum swapper_timed timed);
#define SWAPPER_NO_SLICE UINT64_MAX

void swapper_timed(struct swapper *p, const struct swapper_state *s, uint64_t slice,
		   enum swapper_timed timed, uint64_t bytes, uint64_t since);
/* What the trainer did with a range; also without the lock. */
void swapper_debug(struct swapper *p, const struct swapper_state *s, const char *what,
		   uint64_t offset, uint64_t size);

/* ---- swapper-slice.c ---- */

/* Even if values are collected in it. */
int swapper_swap_in_slice(struct swapper *p, struct swapper_state *s, uint64_t slice,
			  unsigned use, uint64_t wait_ms, struct swapper_lent **lent);
uint16_t swapper_slab_of(struct swapper *p, const void *buffer);
int swapper_buffer(struct swapper *p, const struct swapper_state *s, uint64_t wait_ms,
		   void **buffer);
/* How long the trainer's thread may wait for the disk. */
uint64_t swapper_patience(const struct swapper *p);
/* Under the lock; -ETIMEDOUT. */
int swapper_wait_until(struct swapper *p, const struct timespec *end);

/* ---- swapper-read.c: without the lock ---- */

/* What the trainer would bring in, of one slice. */
int swapper_pin_newest(struct swapper *p, struct swapper_state *s, uint64_t offset,
		       uint64_t size, struct swapper_pin **hold);
/* The same versions, for longer than whole may be. */
int swapper_pin_part(struct swapper *p, const struct swapper_pin *whole, uint64_t offset,
		     uint64_t size, struct swapper_pin **hold);
bool swapper_pin_has(const struct swapper_pin *h, const struct swapper_state *s,
		     uint64_t offset, uint64_t size);
/* All of own, which it releases. */
void swapper_read_part(struct swapper *p, struct swapper_read *r, struct swapper_pin *own);

/* ---- swapper-now.c: without the lock ---- */

/* The newest version, in one slice. */
int swapper_read_newest(struct swapper *p, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory);

/* ---- swapper-put.c ---- */

/* Values of s that are collected. */
void swapper_forget_put(struct swapper *p, struct swapper_state *s);

#endif

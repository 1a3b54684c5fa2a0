/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAPPER_INTERNAL_H
#define ENGINE_SWAP_SWAPPER_INTERNAL_H

#include "engine/swap/swapper.h"

#include <pthread.h>

enum {
	PLACE_OPEN = 2,     /* slices of a state in which values are collected */
	PLACE_PATCHES = 16, /* of a version */
	PLACE_AHEAD = 4,    /* slices of a walk */
};

enum place_memory { PLACE_PINNED, PLACE_SPARE, PLACE_SMALL };

/* Bytes of a slice that nobody changes: in memory until they are written, then on the disk.  Under the lock. */
struct place_body {
	unsigned refs;    /* versions, and the request that writes it */
	unsigned readers; /* of it, now */
	unsigned copying; /* of these, from memory */
	struct place *place;
	struct place_state *state;
	uint64_t slice, bytes;
	uint8_t *memory; /* NULL: on the disk alone */
	enum place_memory kind;
	struct swap_extent *extent; /* NULL: in memory alone */
	bool writing, written;
	bool unwritten; /* it could not be: in place->unwritten */
	bool stuck;     /* so it keeps a pinned buffer */
	int error;      /* why it could not */
	struct place_body *prev_unwritten, *next_unwritten;
	uint64_t tried;   /* the last flush that did */
	uint64_t said_ms; /* that it could not be read; 0: never */
	uint64_t since;   /* ns */
	struct swap_io io;
};

struct place_patch {
	unsigned refs;
	uint64_t offset, size; /* in the slice */
	uint8_t bytes[];
};

struct place_version {
	unsigned refs;
	unsigned slots; /* of these, as a slice's current or next */
	bool given_up;
	struct place_body *body; /* NULL: zeros */
	unsigned npatches;
	struct place_patch *patches[]; /* the oldest first */
};

struct place_slice {
	struct place_version *current, *next; /* NULL: zeros */
	bool has_next;
	bool lost; /* current was given up for room */
	struct place_lent *lent;
	struct place_state *state;
	struct place_slice *changed; /* the next with a next */
};

struct place_state {
	unsigned refs; /* the place's, bodies', holds' */
	char *name;
	enum place_kind kind;
	uint32_t element;
	uint64_t bytes, slice_bytes, nslices;
	bool small;
	int said; /* the error of the last line about writing, and when */
	uint64_t said_ms;
	uint64_t reads, writes, errors;
	int error;
	struct place_lent
		*open[PLACE_OPEN]; /* where values are collected; the last used first */
	struct place_state *next;
	struct place_slice slices[];
};

struct place_lent {
	struct place *place;
	struct place_slice *slice;
	struct place_version *version; /* that is brought in */
	struct place_body *body;       /* that is read */
	uint8_t *buffer;
	uint64_t index, bytes;
	unsigned use;
	bool there;     /* rc says how */
	bool abandoned; /* it goes when the disk is done */
	int rc;
	struct place_failure failure;
	uint64_t since;
	struct swap_io io;
};

struct place_hold {
	struct place_hold *prev, *next; /* the older, the newer */
	struct place_state *state;
	uint64_t offset, size, first, n; /* slices */
	struct place_version *versions[];
};

struct place {
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
	void (*name_range)(void *owner, const struct place_state *s, uint64_t from, uint64_t to,
			   char *text, size_t size);
	void *owner;

	pthread_mutex_t lock; /* of all below; before those of pinned and swap-file */
	pthread_cond_t changed;
	struct place_state *states;
	uint64_t room; /* bytes on the disk of one generation of all states */
	struct place_slice *first_changed;
	struct place_hold *oldest, *newest;
	struct place_body *unwritten;
	uint64_t flushes;
	unsigned writing;   /* bodies */
	unsigned bringing;  /* slices, by the disk */
	unsigned dying;     /* bodies that only readers have */
	unsigned returning; /* pinned buffers that come back by themselves */
	unsigned stuck;     /* that do not */
	uint64_t freed;     /* extents, ever */
	uint64_t small, spare, spare_max;
	struct place_figures figures; /* what only counts */
	struct {
		unsigned n;
		uint64_t since;
	} busy[PLACE_KINDS][PLACE_TIMED];

	unsigned
		half; /* walks that have changed some slices of all: the trainer's, without the lock */
};

static inline struct place_version *place_newest(const struct place_slice *slice)
{
	return slice->has_next ? slice->next : slice->current;
}

static inline uint64_t place_slice_bytes(const struct place_state *s, uint64_t slice)
{
	return u64_min(s->slice_bytes, s->bytes - slice * s->slice_bytes);
}

static inline uint64_t place_whole(uint64_t bytes)
{
	return u64_div_ceil(bytes, SWAP_BLOCK) * SWAP_BLOCK;
}

/* ---- swapper-block.c: under the lock, but for _new and what says otherwise ---- */

/* Memory of that kind is taken, if there may be as much; is given back. */
bool place_take(struct place *p, enum place_memory kind, uint64_t bytes);
void place_give(struct place *p, enum place_memory kind, uint64_t bytes);

/* The caller's reference.  memory: its, from now on, of that kind, which has been counted.  Takes the lock. */
struct place_body *place_body_new(struct place_slice *slice, struct place *p, void *memory,
				  enum place_memory kind);
void place_body_unref(struct place_body *b);
/* Without its memory, which stays the caller's. */
void place_body_forget(struct place_body *b);
/* True: from b->memory; false: from b->extent. */
bool place_body_read(struct place_body *b);
void place_body_read_end(struct place_body *b, bool from_memory);
/* When it is neither written nor read from memory: where it belongs.  May let go of the lock. */
void place_body_settle(struct place_body *b);
/* A request of it begins. */
void place_body_writes(struct place_body *b);
/* There was no room on the disk; says so.  False: nor is there in memory, which stays the caller's.  Takes the lock. */
bool place_body_keep(struct place_body *b, int rc);
/* After a request. */
void place_body_fail(struct place_body *b, int rc, struct place_failure *failure);
void place_body_wrote(struct place_body *b);
/* A slice was not written.  Counts it; it is to be said once in SAY_MS. */
void place_failed(struct place_body *b, int rc, const char *what,
		  struct place_failure *failure);
/* Counts it; it is to be said once in SAY_MS of each body. */
void place_not_read(struct place_body *b, const struct swap_io *io, int rc,
		    struct place_failure *failure);
void place_state_unref(struct place_state *s);

/* The caller's reference; takes that of body. */
struct place_version *place_version_new(struct place_body *body, unsigned npatches);
void place_version_ref(struct place_version *v); /* NULL: nothing */
void place_version_unref(struct place *p, struct place_version *v);
/* Patches of [offset, offset + size) of the slice onto memory; no lock. */
void place_version_patch(const struct place_version *v, uint64_t offset, uint64_t size,
			 uint8_t *memory);
/* Some patch is all of it. */
bool place_version_covers(const struct place_version *v, uint64_t offset, uint64_t size);
void place_patch_unref(struct place *p, struct place_patch *patch);
/* Takes the caller's reference. */
void place_set_next(struct place *p, struct place_slice *slice, struct place_version *v);
/* Of s; NULL: of all. */
void place_publish_changed(struct place *p, const struct place_state *s);
void place_forget_current(struct place *p, struct place_slice *slice);

/* ---- swapper-out.c: without the lock, by the trainer ---- */

/* To a new extent, by the disk.  -ENOSPC and others: nothing has begun. */
int place_body_write(struct place_body *b);
/* All that could not be written: those that still cannot say so. */
void place_try_again(struct place *p);
/* What is in memory becomes the slice's version, and is written where it can be.  0: memory is taken. */
int place_version_of(struct place *p, struct place_slice *slice, void *memory,
		     enum place_memory kind, struct place_version **v);

/* ---- swapper-figures.c: under the lock ---- */

/* One more, one less is under way. */
void place_busy(struct place *p, enum place_kind kind, enum place_timed timed);
void place_idle(struct place *p, enum place_kind kind, enum place_timed timed);
#define PLACE_NO_SLICE UINT64_MAX

void place_timed(struct place *p, const struct place_state *s, uint64_t slice,
		 enum place_timed timed, uint64_t bytes, uint64_t since);
/* What the trainer did with a range; also without the lock. */
void place_debug(struct place *p, const struct place_state *s, const char *what,
		 uint64_t offset, uint64_t size);

/* ---- swapper-slice.c ---- */

/* Even if values are collected in it. */
int place_bring_slice(struct place *p, struct place_state *s, uint64_t slice, unsigned use,
		      uint64_t wait_ms, struct place_lent **lent);
uint16_t place_slab_of(struct place *p, const void *buffer);
int place_buffer(struct place *p, const struct place_state *s, uint64_t wait_ms, void **buffer);
/* How long the trainer's thread may wait for the disk. */
uint64_t place_patience(const struct place *p);
/* Under the lock; -ETIMEDOUT. */
int place_wait_until(struct place *p, const struct timespec *end);

/* ---- swapper-read.c: without the lock ---- */

/* What the trainer would bring in, of one slice. */
int place_hold_newest(struct place *p, struct place_state *s, uint64_t offset, uint64_t size,
		      struct place_hold **hold);
/* The same versions, for longer than whole may be. */
int place_hold_part(struct place *p, const struct place_hold *whole, uint64_t offset,
		    uint64_t size, struct place_hold **hold);
bool place_hold_has(const struct place_hold *h, const struct place_state *s, uint64_t offset,
		    uint64_t size);
/* All of own, which it releases. */
void place_read_part(struct place *p, struct place_read *r, struct place_hold *own);

/* ---- swapper-now.c: without the lock ---- */

/* The newest version, in one slice. */
int place_read_newest(struct place *p, struct place_state *s, uint64_t offset, uint64_t size,
		      void *memory);

/* ---- swapper-put.c ---- */

/* Values of s that are collected. */
void place_forget_put(struct place *p, struct place_state *s);

#endif

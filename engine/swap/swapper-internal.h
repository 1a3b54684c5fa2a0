/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAPPER_INTERNAL_H
#define ENGINE_SWAP_SWAPPER_INTERNAL_H

/* Internals of the swapper.
 *
 *	state -> slice -> version (current, next) -> block -> memory or extent
 *	                     ^    \-> patches
 *	                    pin
 *
 *	swapper.c        opening, states, publishing, figures
 *	swapper-block.c  blocks and versions: memory, writing, room on the disk
 *	swapper-slice.c  slices that are lent to the trainer; puts
 *	swapper-edit.c   edits: patches, or whole slices
 *	swapper-sweep.c  sweeps
 *	swapper-read.c   readers: pins, reads
 */

#include "engine/base/phase.h"
#include "engine/base/queue.h"
#include "engine/swap/swapper.h"

#include <pthread.h>

enum {
	SWAPPER_OPEN = 2,     /* slices of a state in which puts are collected */
	SWAPPER_PATCHES = 16, /* of a version */
	SWAPPER_AHEAD = 4,    /* slices that a sweep prefetches */
};

/* The memory of a block's bytes: a pinned buffer, ordinary memory that counts as spare, or that
 * of a small state, which never leaves memory.
 */
enum swapper_memory { SWAPPER_PINNED, SWAPPER_SPARE, SWAPPER_SMALL };

/* The immutable bytes of a slice: in memory until they are written, then on the disk.  All
 * fields are under the lock.
 */
struct swapper_block {
	unsigned refs;    /* of versions, and of the request that writes it */
	unsigned readers; /* reads under way */
	unsigned copying; /* of the readers: those that copy from memory */
	struct swapper *swapper;
	struct swapper_state *state;
	uint64_t slice, bytes;
	uint8_t *memory; /* NULL: on the disk alone */
	enum swapper_memory kind;
	struct swap_extent *extent; /* NULL: in memory alone */
	bool writing, written;
	bool unwritten; /* the disk refused the block, which is in swapper->unwritten */
	bool stuck;     /* unwritten, and so it keeps a pinned buffer */
	int error;      /* -errno of the disk */
	LIST_ENTRY(swapper_block) in_unwritten;
	uint64_t tried; /* the last flush that tried to write it */
	/* when the log last said that the block cannot be read; 0: never */
	uint64_t said_ms;
	struct phase_span span; /* of the write */
	struct swap_io io;
};

struct swapper_patch {
	unsigned refs;
	uint64_t offset, size; /* in the slice */
	uint8_t bytes[];
};

struct swapper_version {
	unsigned refs;
	unsigned slots; /* of the refs: those of a slice's current and next */
	bool evicted;
	struct swapper_block *block; /* NULL: zeros */
	unsigned npatches;
	struct swapper_patch *patches[]; /* the oldest first */
};

struct swapper_slice {
	struct swapper_version *current, *next; /* NULL: zeros */
	bool has_next;                          /* the slice is in swapper->changed_slices */
	bool lost;                              /* current was evicted */
	struct swapper_lent *lent;              /* NULL: the slice is not lent */
	struct swapper_state *state;
	LIST_ENTRY(swapper_slice) in_changed;
};

struct swapper_state {
	unsigned refs; /* of the swapper, of blocks, of pins */
	char *name;
	enum swapper_kind kind;
	uint32_t element;
	uint64_t bytes, slice_bytes, nslices;
	bool small;       /* the state never leaves memory */
	int said;         /* the error of the last line about writing ... */
	uint64_t said_ms; /* ... and when that was */
	uint64_t reads, writes;
	uint64_t errors, damaged; /* as in swapper_figures */
	int error;
	struct swapper_lent *open[SWAPPER_OPEN]; /* of puts; the last used first */
	LIST_ENTRY(swapper_state) in_states;
	struct swapper_slice slices[];
};

struct swapper_lent { /* a slice that is lent to the trainer */
	struct swapper *swapper;
	struct swapper_slice *slice;
	struct swapper_version
		*version;            /* to be read into buffer; NULL: zeros, or read already */
	struct swapper_block *block; /* of that version, while it is read */
	uint8_t *buffer;
	uint64_t index, bytes; /* of the slice */
	unsigned use;
	bool there;     /* the read is over, with rc */
	bool abandoned; /* returned while it is read: freed when the disk is done */
	int rc;
	struct swapper_failure failure;
	struct phase_span span; /* of the read */
	struct swap_io io;
};

struct swapper_pin {
	TAILQ_ENTRY(swapper_pin) in_pins;
	struct swapper_state *state;
	uint64_t offset, size;
	uint64_t first, n; /* slices */
	struct swapper_version *versions[];
};

struct swapper {
	const struct disk_ops *disk_ops;
	struct disk *disk;
	struct disk_setup setup;
	struct pinned *pinned;
	struct swap_file *file;
	uint64_t slice, least, spare_limit, capacity, wait_ms;
	uint64_t until_ms; /* trainer's thread: the deadline of its call; 0: none */
	bool no_ahead, no_behind, debug, unlocked;
	uint32_t chunk;
	void (*name_range)(void *owner, const struct swapper_state *s, uint64_t from,
			   uint64_t to, char *text, size_t size);
	void *owner;

	pthread_mutex_t lock; /* of all below; taken before those of pinned and swap-file */
	pthread_cond_t changed;
	LIST_HEAD(, swapper_state) states; /* changed by the trainer's thread only */
	uint64_t room; /* bytes on the disk of one generation of all states */
	LIST_HEAD(, swapper_slice) changed_slices; /* slices with a next version */
	TAILQ_HEAD(, swapper_pin) pins;            /* the oldest first */
	LIST_HEAD(, swapper_block) unwritten;      /* blocks that the disk refused */
	uint64_t flushes;
	unsigned writing;     /* blocks that are being written */
	unsigned swapping_in; /* slices that the disk reads for the trainer */
	unsigned dying;       /* blocks that only reads under way still use */
	unsigned returning;   /* pinned buffers that come back when the disk is done */
	unsigned stuck;       /* pinned buffers of blocks that the disk refused */
	uint64_t freed;       /* extents that were ever freed */
	uint64_t small, spare, spare_max;
	struct swapper_figures figures; /* counters only */
	struct swapper_timer step_began[SWAPPER_KINDS]
				       [SWAPPER_TIMED]; /* the timers when the step began */
	struct {
		unsigned n; /* operations under way */
		uint64_t since;
	} busy[SWAPPER_KINDS][SWAPPER_TIMED];

	/* Sweeps that have changed some slices and not yet the others.  The trainer's thread's,
	 * without the lock.
	 */
	unsigned half;
};

/* Returns the version that the trainer works with. */
static inline struct swapper_version *swapper_newest(const struct swapper_slice *slice)
{
	return slice->has_next ? slice->next : slice->current;
}

static inline uint64_t swapper_slice_bytes(const struct swapper_state *s, uint64_t slice)
{
	return u64_min(s->slice_bytes, s->bytes - slice * s->slice_bytes);
}

/* Returns bytes, rounded up to whole blocks of the file. */
static inline uint64_t swapper_whole_blocks(uint64_t bytes)
{
	return u64_div_ceil(bytes, SWAP_BLOCK) * SWAP_BLOCK;
}

/* ---- swapper-block.c: under the lock, but for what says otherwise ---- */

/* Counts bytes of memory of that kind.  False: spare would be exceeded; nothing is counted. */
bool swapper_charge(struct swapper *sw, enum swapper_memory kind, uint64_t bytes);
void swapper_uncharge(struct swapper *sw, enum swapper_memory kind, uint64_t bytes);

/* Begins a read of the block.  True: the caller copies from b->memory; false: it reads
 * b->extent.  Either way the bytes stay until swapper_block_read_end.
 */
bool swapper_block_read_begin(struct swapper_block *b);
/* Ends a read; may free the block, and its state with it.  May let go of the lock. */
void swapper_block_read_end(struct swapper_block *b, bool from_memory);
/* Counts a failed read and fills *failure; a line about the same block comes once in SAY_MS. */
void swapper_read_failed(struct swapper_block *b, const struct swap_io *io, int rc,
			 struct swapper_failure *failure);
void swapper_state_unref(struct swapper_state *s);

/* Makes a version of the block, without patches, with room for npatches; the reference is the
 * caller's.  Takes over the caller's reference of block.  Needs no lock.
 * NULL: no memory.
 */
struct swapper_version *swapper_version_new(struct swapper_block *block, unsigned npatches);
/* v NULL: does nothing. */
void swapper_version_ref(struct swapper_version *v);
void swapper_version_unref(struct swapper *sw, struct swapper_version *v);
/* Applies the patches of [offset, offset + size) of the slice to memory.  Needs no lock. */
void swapper_version_patch(const struct swapper_version *v, uint64_t offset, uint64_t size,
			   uint8_t *memory);
/* Returns true if one patch covers the range, so that the block need not be read. */
bool swapper_version_covers(const struct swapper_version *v, uint64_t offset, uint64_t size);

/* Makes v the slice's next version; takes over the caller's reference. */
void swapper_set_next(struct swapper *sw, struct swapper_slice *slice,
		      struct swapper_version *v);
/* Makes next versions current: those of s; NULL: of all states. */
void swapper_publish_changed(struct swapper *sw, const struct swapper_state *s);
void swapper_drop_current(struct swapper *sw, struct swapper_slice *slice);

/* The trainer's thread, without the lock: writes unwritten blocks once more, and logs a line
 * for each that the disk refuses again.
 */
void swapper_retry_writes(struct swapper *sw);
/* The trainer's thread, without the lock: makes a version of memory, which was charged as that
 * kind, and starts to write it.  0: memory is the swapper's, and keeps the bytes where the disk
 * refuses them.
 */
int swapper_version_write(struct swapper *sw, struct swapper_slice *slice, void *memory,
			  enum swapper_memory kind, struct swapper_version **v);

/* ---- swapper.c, figures: under the lock ---- */

/* Count an operation as begun, or as ended. */
void swapper_timer_begin(struct swapper *sw, enum swapper_kind kind, enum swapper_timed timed);
void swapper_timer_end(struct swapper *sw, enum swapper_kind kind, enum swapper_timed timed);

#define SWAPPER_NO_SLICE UINT64_MAX

/* Counts an operation in its timer.  ns: how long it took; for a phase, phase_end's result. */
void swapper_timer_add(struct swapper *sw, const struct swapper_state *s, uint64_t slice,
		       enum swapper_timed timed, uint64_t bytes, uint64_t ns);
/* Logs a trainer's call on a range, where options.debug is set.  Needs no lock. */
void swapper_log_debug(struct swapper *sw, const struct swapper_state *s, const char *what,
		       uint64_t offset, uint64_t size);

/* ---- swapper-slice.c: the trainer's thread ---- */

/* Lends a pinned buffer.  Errors of swapper_swap_in. */
int swapper_get_buffer(struct swapper *sw, const struct swapper_state *s, uint64_t wait_ms,
		       void **buffer);
/* Returns the time for which the trainer's call may still wait for the disk. */
uint64_t swapper_time_left_ms(const struct swapper *sw);
/* Any thread, under the lock: waits for sw->changed.  -ETIMEDOUT. */
int swapper_wait_changed(struct swapper *sw, const struct timespec *end);
/* Forgets the puts to s that are collected. */
void swapper_drop_puts(struct swapper *sw, struct swapper_state *s);

/* ---- swapper-read.c: without the lock ---- */

/* Reads the newest version of bytes of one slice, even while the slice is lent. */
int swapper_read_unlent(struct swapper *sw, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory);

#endif

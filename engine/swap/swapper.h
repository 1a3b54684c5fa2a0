/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAPPER_H
#define ENGINE_SWAP_SWAPPER_H

/* The swapper: a rank's states that live on NVMe and visit memory slice by slice.
 *
 *   state  |  slice 0  |  slice 1  |  slice 2  |s 3|   slices: equal runs of elements, each at
 *               |           |                          most a pinned buffer
 *            next        current                       versions: immutable, reference-counted
 *               |           |
 *            block       block  + patches              a block is in a buffer until it is
 *                                                      written to an extent; patches stay in
 *                                                      memory
 *
 * The trainer swaps a slice in: its newest version is copied to a pinned buffer, which is lent
 * to the trainer until it swaps the slice out.  Then the buffer's content is the slice's next
 * version, and is written behind (write-back).  An edit is a patch on top of a version; it
 * reaches the disk with the slice's next swap-out, or at once where there are too many patches.
 *
 * Readers see current versions, all of one generation, until swapper_publish makes each next
 * version current.  A reader may pin versions: it goes on seeing them after swapper_publish
 * (copy on write).  Readers neither change states nor use the trainer's buffers.  A slice that
 * was never swapped out is zeros and takes no room on the disk.
 *
 * The disk holds at most three times the bytes of all states: this generation, the next one and
 * pinned versions.  When it is full, versions are evicted: pinned ones first, the oldest pin
 * before the others, then current ones that have a next one.
 *
 * A block that the disk refuses stays in memory, within `spare`; it is counted and logged.
 *
 * Threads: the functions for readers and of figures (the last two sections), but for
 * swapper_step: any thread.  All other functions: the trainer's thread, one call at a time.
 */

#include "engine/memory/pinned.h"
#include "engine/swap/swap-file.h"

struct swapper;
struct swapper_state;

/* ---- opening ---- */

struct swapper_options {
	const char *dir;   /* an existing folder, for the container */
	const char *name;  /* of the container: a plain file name */
	uint64_t capacity; /* bytes on the disk; 0: three times all states, and a slice */
	uint64_t budget;   /* bytes of all pinned buffers */
	uint64_t slice;    /* bytes of one pinned buffer, a multiple of 4096 */
	uint64_t spare;    /* bytes of ordinary memory for patches and blocks not written */
	uint64_t least;    /* smaller states never leave memory; 0: SWAPPER_LEAST */
	uint64_t wait_ms;  /* the disk is silent after so long; 0: SWAPPER_WAIT_MS */
	const struct disk_ops *disk_ops; /* NULL: io_uring, else threads */
	bool no_direct;                  /* the container is written through the page cache */
	uint32_t chunk;          /* most bytes of a request, a multiple of 4096; 0: 2 MiB */
	unsigned depth, threads; /* as in struct disk_setup */
	bool unlocked;           /* buffers may be paged out */
	bool no_ahead;           /* sweeps do not prefetch; swapper_sweep_then has no effect */
	bool no_behind;          /* sweeps go on when what they swapped out is written */
	bool debug;              /* a line in the log for each operation */
	bool on_node;            /* as in struct pinned_options */
	unsigned node;
	/* Writes to text what log lines about reads call bytes [from, to) of a state; NULL:
	 * lines have the state's name.  Called without a lock, in swapper_log_failure.
	 */
	void (*name_range)(void *owner, const struct swapper_state *s, uint64_t from,
			   uint64_t to, char *text, size_t size);
	void *owner;
};

enum { SWAPPER_LEAST = 1 << 20, SWAPPER_WAIT_MS = 120000, SWAPPER_END_MS = 3000 };

/* Makes the container, which has no name and ends with the process.  On error why has a line.
 * -EINVAL: slice is 0, or budget is less than two slices.
 * -ENOMEM.
 * Errors of swap_file_create.
 */
int swapper_open(struct swapper **sw, const struct swapper_options *options, char *why,
		 size_t whysize);
/* Every pin must be released, or belong to a read under way.  Requests under way are canceled;
 * when the disk keeps one for longer than SWAPPER_END_MS, the swapper's memory is left to it.
 */
void swapper_close(struct swapper *sw);

/* Returns how many runs of memory the pinned buffers lie in, and gives these runs, which hold
 * until swapper_close.  0: the buffers may be paged out.
 */
unsigned swapper_slabs(const struct swapper *sw, const struct iovec **slabs);

/* ---- states ---- */

enum swapper_kind { SWAPPER_PARAM, SWAPPER_STATE, SWAPPER_GRADIENT, SWAPPER_KINDS };

/* Adds a state of numel elements of 1, 2, 4 or 8 bytes, all 0.  name: for lines in the log.
 * -EINVAL: another element size.
 * -EOVERFLOW: its bytes do not fit 64 bits.
 * -ENOMEM.
 */
int swapper_add(struct swapper *sw, const char *name, enum swapper_kind kind, uint32_t element,
		uint64_t numel, struct swapper_state **s);
/* No slice of s may be lent.  Pins of s stay readable. */
void swapper_drop(struct swapper *sw, struct swapper_state *s);

/* States of fewer bytes never leave memory. */
uint64_t swapper_least(const struct swapper *sw);
/* Elements in each slice but the last; the same for all states whose elements have at most 4
 * bytes, but for SWAPPER_PARAM of one byte each, whose slices fill a buffer.
 */
uint64_t swapper_slice_numel(const struct swapper_state *s);

/* ---- slices, by the trainer ---- */

enum swapper_use {
	SWAPPER_READ = 1,  /* the buffer gets the slice's content; else it has any */
	SWAPPER_WRITE = 2, /* the trainer will change the slice and swap it out */
};

struct swapper_lent; /* a slice that is lent to the trainer */

/* Starts to swap a slice in; swapper_wait waits for it.  May wait for buffers that are being
 * written.
 * -EBUSY: the slice is lent already.
 * -EINVAL: no such slice.
 * -ENOBUFS: all buffers are lent.
 * -EAGAIN: wait_ms is 0 and no buffer is free now.
 * -ETIMEDOUT: no buffer came back within wait_ms.
 * -ENOMEM.
 * The disk's error, where blocks that it refused have the buffers.
 */
int swapper_swap_in(struct swapper *sw, struct swapper_state *s, uint64_t slice, unsigned use,
		    uint64_t wait_ms, struct swapper_lent **lent);
/* Waits until the slice is there.  On error it is still lent, and must be returned.
 * -EIO: the slice is damaged; the log says where.
 * -ETIMEDOUT: the disk is silent.
 * -ENOMEM.
 */
int swapper_wait(struct swapper *sw, struct swapper_lent *lent, void **memory);
/* Makes the buffer's content the slice's next version, and starts to write it.  The buffer is
 * the swapper's again.  On error the slice is lent as before.
 * -ENOSPC: the disk or the limit has no room.
 * -EFBIG: the file would exceed RLIMIT_FSIZE.
 * -ENOMEM.
 */
int swapper_swap_out(struct swapper *sw, struct swapper_lent *lent);
/* Ends the loan without a new version; a read under way for the slice is canceled. */
void swapper_return(struct swapper *sw, struct swapper_lent *lent);
/* Swaps in all slices of s, in adjacent buffers: lent has one loan for each slice.  On error,
 * one of swapper_swap_in's, nothing is lent and lent has NULLs.
 */
int swapper_swap_in_all(struct swapper *sw, struct swapper_state *s, unsigned use,
			uint64_t wait_ms, struct swapper_lent **lent);
/* Returns the address of elements [first, first + numel), numel > 0, where their slices are
 * lent, read and adjacent; else NULL.
 */
void *swapper_memory(struct swapper *sw, struct swapper_state *s, uint64_t first,
		     uint64_t numel);

/* Makes all next versions current, together.  On error none becomes current:
 * -EBUSY: a sweep has changed some slices and not yet the others.
 * Errors of swapper_swap_out_puts.
 */
int swapper_publish(struct swapper *sw);
/* swapper_publish of one state, which no reader has seen yet. */
int swapper_publish_state(struct swapper *sw, struct swapper_state *s);

/* ---- sweeps: the slices of several states in turn, prefetched and written behind ---- */

struct swapper_sweep;

struct swapper_swept {
	struct swapper_state *state;
	unsigned use; /* enum swapper_use */
};

/* Begins a sweep over states of equally many elements and slices.  Slice number i of all states
 * is lent at once, so there must be as many buffers as states; with three times as many, the
 * next slices are prefetched and the last ones written meanwhile.
 * -EINVAL: the states' slices differ.
 * -ENOBUFS: fewer buffers than states.
 * -ENOMEM.
 */
int swapper_sweep_begin(struct swapper *sw, const struct swapper_swept *states, unsigned n,
			struct swapper_sweep **w);
/* Begins a sweep that will be used after w: while w's last slices are lent, the first slices of
 * *next are prefetched to the buffers that w no longer needs.  The caller ends *next, after
 * w's end or after swapper_sweep_alone(w).
 */
int swapper_sweep_then(struct swapper_sweep *w, const struct swapper_swept *states, unsigned n,
		       struct swapper_sweep **next);
/* Undoes swapper_sweep_then: nothing is prefetched for the sweep after w any more. */
void swapper_sweep_alone(struct swapper_sweep *w);
/* Swaps out the lent slices of SWAPPER_WRITE, returns the others, and swaps in the next ones.
 * May be called again after an error.
 * 1: elements [*first, *first + *numel) are lent.
 * 0: the sweep is over.
 * Errors of swapper_swap_out: those slices that could be swapped out have been; the others are
 * lent as before.
 * Errors of swapper_swap_in and swapper_wait: nothing is lent.
 */
int swapper_sweep_next(struct swapper_sweep *w, uint64_t *first, uint64_t *numel);
/* Returns the lent slice of states[i]; NULL: none is lent, or it has been swapped out. */
void *swapper_sweep_memory(const struct swapper_sweep *w, unsigned i);
/* Ends a sweep, and returns the slices that are lent, unchanged; after swapper_sweep_next said
 * 0, none are.
 */
void swapper_sweep_end(struct swapper_sweep *w);

/* ---- edits and gradients, by the trainer ---- */

/* Writes bytes [offset, offset + size): each slice gets a next version with a patch, and the
 * buffers of lent slices are changed too.  swapper_publish makes it visible.  All or nothing.
 * -EINVAL: past the end.
 * -EIO: the present content is damaged.
 * -ETIMEDOUT: the disk is silent.
 * -ENOMEM.
 * The disk's error, where neither memory nor disk has room.
 */
int swapper_write(struct swapper *sw, struct swapper_state *s, uint64_t offset,
		  const void *data, uint64_t size);
/* Reads bytes [offset, offset + size) as the trainer has them: from buffers that are lent (and
 * those of swapper_put), else from the newest version.  Waits for the disk.
 * -EINVAL: past the end.
 * -EIO: the content is damaged.
 * -ETIMEDOUT: the disk is silent.
 * -ENOMEM.
 */
int swapper_read_newest(struct swapper *sw, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory);
/* Writes numel values from element first on.  They are collected in slices that stay swapped in
 * until the buffer is needed, or until swapper_swap_out_puts.  Errors of swapper_swap_in and
 * swapper_swap_out.
 */
int swapper_put(struct swapper *sw, struct swapper_state *s, uint64_t first, const void *values,
		uint64_t numel);
/* Adds numel values to the elements from `first` on, else as swapper_put.
 * -EINVAL: the elements have not 4 bytes.
 */
int swapper_accumulate(struct swapper *sw, struct swapper_state *s, uint64_t first,
		       const float *values, uint64_t numel);
/* Swaps out the slices in which puts to s are collected; s NULL: to all states.  Returns the
 * first error; a slice that could not be swapped out stays, and takes more puts.
 */
int swapper_swap_out_puts(struct swapper *sw, struct swapper_state *s);
/* Makes s zeros, once published.  Puts that are still collected are dropped.
 * -EBUSY: a slice is lent.
 */
int swapper_clear(struct swapper *sw, struct swapper_state *s);
/* Sets a deadline (of monotonic_ms) for the waits of all following calls of the trainer's
 * thread, where their own time-out is later; 0: no deadline.
 */
void swapper_set_deadline(struct swapper *sw, uint64_t until_ms);
/* Waits until everything is written, and retries once what could not be.  Returns the first
 * error of blocks that still are not written.
 * -ETIMEDOUT: the disk is silent.
 */
int swapper_flush(struct swapper *sw, uint64_t wait_ms);

/* ---- readers: any thread ---- */

struct swapper_pin;

/* Pins the current versions of bytes [offset, offset + size), which are of one generation.
 * -EINVAL: past the end, or size 0.
 * -ENOMEM.
 * -ESTALE: the current versions were evicted; swapper_publish makes new ones.
 */
int swapper_pin(struct swapper *sw, struct swapper_state *s, uint64_t offset, uint64_t size,
		struct swapper_pin **pin);
/* Returns true if both pins have the same range and the same versions. */
bool swapper_pins_same(const struct swapper_pin *a, const struct swapper_pin *b);
/* No read of the pin may be under way. */
void swapper_unpin(struct swapper *sw, struct swapper_pin *pin);

struct swapper_failure { /* bytes [from, to) of a state that were not read, or not written */
	const struct swapper_state *state;
	uint64_t from, to;
	int rc;           /* -errno */
	const char *what; /* "not read", "not written" ... */
	bool is_read, damaged;
	bool unsaid; /* swapper_log_failure has yet to log it */
};

struct swapper_read { /* the caller's memory until done is called */
	struct swapper_state *state;
	struct swapper_pin *pin; /* NULL: read the versions that are current now */
	uint64_t offset, size;   /* bytes of the state, within the pin */
	void *memory;
	/* Called once, by a thread of the disk, or in swapper_read where no disk is needed.
	 * 0.
	 * -EINVAL: the range is not within the pin or the state.
	 * -ESTALE: the versions were evicted.
	 * -EIO: a block is damaged.
	 * -ECANCELED: the read was canceled.
	 * -ENOMEM.
	 */
	void (*done)(struct swapper_read *r, int rc);
	void *owner;
	struct swapper_failure failure; /* out: for swapper_log_failure */
	/* the swapper's: */
	struct swapper *swapper;
	struct swapper_pin *own; /* made by swapper_read where pin is NULL */
	struct swapper_block *block;
	uint64_t gone, part; /* bytes read so far; bytes of the slice that is being read */
	bool submitted, canceled;
	struct swap_io io;
};

void swapper_read(struct swapper *sw, struct swapper_read *r);
/* Any time after swapper_read while r exists.  The read ends as soon as the disk lets it. */
void swapper_read_cancel(struct swapper_read *r);
/* Logs a line about the failure, unless one was logged a short time ago or nothing failed.  The
 * state, or a pin of it, must still exist.
 */
void swapper_log_failure(struct swapper *sw, struct swapper_failure *failure);

/* ---- figures: any thread ----
 *
 * A read, a write or a wait is measured once, as a phase (engine/base/phase.h), and counted
 * twice: as swap_in, swap_out or swap_wait, quantiles beside those of views and commits, also
 * of what failed; and in a timer, which has DeepSpeed's name and meaning: sums, bytes and rates
 * of one kind of states.  The time of the trainer's thread, copies from memory and initial
 * values are in timers alone.
 */

struct swapper_timer {
	uint64_t count, bytes, ns; /* sums over all operations */
	uint64_t busy_ns;          /* time in which at least one was under way */
};

enum swapper_timed {
	SWAPPER_IN,          /* slices, from the request to the disk until they are there */
	SWAPPER_OUT,         /* slices, from swapping out until they are on the disk */
	SWAPPER_WAIT_IN,     /* waits of the trainer for a slice that is read */
	SWAPPER_WAIT_OUT,    /* waits of the trainer for a buffer that is being written */
	SWAPPER_SUBMIT_IN,   /* the time of SWAPPER_IN that the trainer's thread spends */
	SWAPPER_SUBMIT_OUT,  /* the time of SWAPPER_OUT that the trainer's thread spends */
	SWAPPER_FROM_MEMORY, /* slices copied from a block in memory: not written, or small */
	SWAPPER_INIT,        /* initial values of states, until they were swapped out */
	SWAPPER_TIMED
};

/* Returns the name of that timer, DeepSpeed's (swap_in_state, swap_out_gradient ...), or
 * lp_swap_in and the like for low-precision parameters.  pipelined: sweeps prefetch or write
 * behind.
 * NULL: the timer is not shown.
 */
const char *swapper_timer_name(enum swapper_kind kind, enum swapper_timed timed,
			       bool pipelined);

/* Ends a step: the counts of the timers since the last call are the last step's; at level debug
 * the log has them.  The trainer's thread.
 */
void swapper_step(struct swapper *sw);

struct swapper_state_figures {
	uint64_t bytes;           /* of the state; of these, in current versions: */
	uint64_t disk;            /* on the disk */
	uint64_t memory;          /* in memory: being written, not writable, or small */
	uint64_t zeros;           /* never swapped out, or cleared */
	uint64_t lost;            /* evicted */
	uint64_t lent;            /* lent to the trainer, besides the above */
	uint64_t patches;         /* bytes of patches of the current versions */
	uint64_t reads, writes;   /* slices read from the disk, and written there */
	uint64_t errors, damaged; /* as in swapper_figures */
	int error;                /* -errno of the last of both */
};

struct swapper_figures {
	struct swapper_timer timers[SWAPPER_KINDS][SWAPPER_TIMED];
	struct swapper_timer last_step[SWAPPER_KINDS][SWAPPER_TIMED]; /* busy_ns: 0 */
	uint64_t states, bytes;                                       /* of all states */
	uint64_t slice;                                               /* bytes */
	uint64_t small; /* bytes of versions of small states, always in memory */
	uint64_t spare, spare_max, spare_limit; /* bytes of ordinary memory */
	uint64_t writing;                       /* slices that are being written now */
	uint64_t pins;                          /* now */
	uint64_t evicted;                       /* versions, since the swapper was opened */
	uint64_t reads, read_bytes;             /* of readers */
	uint64_t edits, patches, puts, publishes;
	uint64_t errors;  /* reads and writes that the disk has not carried out */
	uint64_t damaged; /* reads of bytes that were not what was written */
	int error;        /* -errno of the last of both */
	/* As opened: */
	const char *disk; /* "uring", "threads" */
	bool registered;
	uint32_t chunk;
	unsigned depth, threads; /* threads 0: the disk needs none */
	uint64_t least;
	bool ahead, behind;
	struct swap_counters file;
	struct pinned_figures pinned;
};

/* Counts one SWAPPER_INIT of bytes, which the caller began at `since` (ns). */
void swapper_count_init(struct swapper *sw, const struct swapper_state *s, uint64_t bytes,
			uint64_t since);
void swapper_figures(struct swapper *sw, struct swapper_figures *figures);
void swapper_state_figures(struct swapper *sw, struct swapper_state *s,
			   struct swapper_state_figures *figures);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_SWAP_SWAPPER_H
#define ENGINE_SWAP_SWAPPER_H

/* Where a rank's swapped states are: on NVMe, visiting memory.
 *
 *	state    |  slice 0  |  slice 1  |  slice 2  |s 3|     equal runs of elements, each at most a pinned buffer
 *	              |           |
 *	           next        current                         versions: bytes that nobody changes any more, counted
 *	              |           |
 *	           a buffer,    an extent of the container,    and patches: edits that the disk never sees when the
 *	         being written  written                        slice is sent back before there are many
 *
 * The trainer *brings in* a slice: its newest version is copied into a pinned buffer, which is
 * the trainer's until it *sends* it back: as a new version, written behind.  Until
 * swapper_publish readers see the versions before, all of one generation; then the new ones.  A
 * reader that *pins* versions goes on seeing them; nothing it does changes or drops anything,
 * or takes one of the trainer's buffers.  What was never sent is zeros, without a byte on the
 * disk.
 *
 * There may be three times the bytes of all states on the disk: this generation's, the next,
 * and what readers pin. Where there is no room, readers lose: held versions first, the oldest
 * before, then this generation's slices of which there are newer.
 *
 * What cannot be written stays in memory, within `spare`, and is counted and said in a line.
 *
 * swapper_pin, _release, _read and _figures: any thread.  All else: the trainer's thread, one
 * at a time.
 */

#include "engine/memory/pinned.h"
#include "engine/swap/swap-file.h"

struct swapper;
struct swapper_state;

/* ---- opening ---- */

struct swapper_options {
	const char *dir;  /* there already */
	const char *name; /* of the container: plain */
	uint64_t
		capacity; /* bytes of what is on the disk; 0: three times all states, and a slice */
	uint64_t budget; /* bytes of pinned buffers */
	uint64_t slice;  /* bytes of one, a multiple of 4096 */
	uint64_t
		spare; /* bytes of ordinary memory for patches, and for what cannot be written */
	uint64_t
		least; /* states of fewer bytes never leave memory (not of `spare`); 0: SWAPPER_LEAST */
	uint64_t wait_ms; /* for the disk, before it is held to be silent; 0: SWAPPER_WAIT_MS */
	const struct disk_ops *disk_ops; /* NULL: io_uring, else threads */
	bool no_direct;
	uint32_t chunk;          /* most bytes of a request, a multiple of 4096; 0: 2 MiB */
	unsigned depth, threads; /* as struct disk_setup's */
	bool unlocked;           /* buffers may be paged out */
	bool no_ahead; /* sweeps read a slice when it is needed; swapper_sweep_then has no effect */
	bool debug;     /* a line in the log for each operation */
	bool no_behind; /* sweeps go on when what they have sent is written */
	bool on_node;   /* as struct pinned_options' */
	unsigned node;
	/* What lines about reads call bytes [from, to) of a state; NULL: by its name.  In the
	 * thread that is told of the error, without a lock.
	 */
	void (*name_range)(void *owner, const struct swapper_state *s, uint64_t from,
			   uint64_t to, char *text, size_t size);
	void *owner;
};

enum { SWAPPER_LEAST = 1 << 20, SWAPPER_WAIT_MS = 120000, SWAPPER_END_MS = 3000 };

/* A container of its own, that ends with the process.  why has one line.  -EINVAL: no slice, or
 * a budget of less than two;  -ENOMEM; swap_file_create's.
 */
int swapper_open(struct swapper **sw, const struct swapper_options *options, char *why,
		 size_t whysize);
/* Every pin is released, or of a read under way.  What is under way is canceled; what the disk
 * keeps all the same for SWAPPER_END_MS is left to it.
 */
void swapper_close(struct swapper *sw);

/* ---- states ---- */

enum swapper_kind { SWAPPER_PARAM, SWAPPER_STATE, SWAPPER_GRADIENT, SWAPPER_KINDS };

/* numel elements of 1, 2, 4 or 8 bytes, all 0.  name: what lines in the log call it.  -EINVAL;
 * -EOVERFLOW; -ENOMEM.
 */
int swapper_add(struct swapper *sw, const char *name, enum swapper_kind kind, uint32_t element,
		uint64_t numel, struct swapper_state **s);
/* Nothing of it is in.  Holds of it stay good. */
void swapper_drop(struct swapper *sw, struct swapper_state *s);

/* States of fewer bytes never leave memory. */
uint64_t swapper_least(const struct swapper *sw);
/* Elements of a slice but the last; equal for all states whose elements have at most 4 bytes.
 * Bytes of SWAPPER_PARAM have slices of a whole buffer.
 */
uint64_t swapper_slice_numel(const struct swapper_state *s);

/* ---- slices, by the trainer ---- */

enum swapper_use {
	SWAPPER_READ = 1,  /* its content is wanted: else the buffer has any */
	SWAPPER_WRITE = 2, /* it will be sent back, changed */
};

struct swapper_lent;

/* Starts to bring it in.  May wait for buffers that are being written.  -EBUSY: it is in;
 * -EINVAL: no such slice; -ENOBUFS: all buffers are lent; -EAGAIN: only wait_ms 0: none right
 * now; -ETIMEDOUT; -ENOMEM; or, where what could not be written has the buffers, why it could
 * not.
 */
int swapper_swap_in(struct swapper *sw, struct swapper_state *s, uint64_t slice, unsigned use,
		    uint64_t wait_ms, struct swapper_lent **lent);
/* Until it is there.  -EIO: damaged (a line says of what); -ETIMEDOUT; -ENOMEM.  It is lent all
 * the same, and still to be returned.
 */
int swapper_wait(struct swapper *sw, struct swapper_lent *lent, void **memory);
/* What is in the buffer is the slice's next version; the buffer is not the trainer's any more,
 * and will be written. Else an errno (-ENOSPC, -ENOMEM, ...): it is lent as before.
 */
int swapper_swap_out(struct swapper *sw, struct swapper_lent *lent);
/* Back unchanged; what is still read for it need not be. */
void swapper_return(struct swapper *sw, struct swapper_lent *lent);
/* All slices of it, in buffers that lie one behind the other: one lent for each slice.
 * swapper_swap_in's errors; all are lent, or none, and lent has NULLs.
 */
int swapper_swap_in_all(struct swapper *sw, struct swapper_state *s, unsigned use,
			uint64_t wait_ms, struct swapper_lent **lent);
/* Memory of elements [first, first + numel), at least one, when they were brought in, and are
 * there, one behind the other; else NULL.
 */
void *swapper_memory(struct swapper *sw, struct swapper_state *s, uint64_t first,
		     uint64_t numel);

/* All that was sent, written, put or cleared since becomes current, together; or
 * swapper_swap_out_puts's errno, and nothing does. -EBUSY: a sweep has changed some slices, and
 * not the others.
 */
int swapper_publish(struct swapper *sw);
/* The same of one state, that nobody has seen yet. */
int swapper_publish_state(struct swapper *sw, struct swapper_state *s);

/* ---- the slices of several states in turn: brought in ahead, written behind ---- */

struct swapper_sweep;

struct swapper_swept {
	struct swapper_state *state;
	unsigned use;
};

/* States of as many elements, in as many slices each.  Slice number i of all of them is in at
 * once, so there must be as many buffers as states; the next are being read meanwhile, and
 * those before written, in three times as many. -EINVAL: states of different slices; -ENOBUFS:
 * fewer buffers than states; -ENOMEM.
 */
int swapper_sweep_begin(struct swapper *sw, const struct swapper_swept *states, unsigned n,
			struct swapper_sweep **w);
/* The same of a sweep that will come next: while the last slices of w are in, its first are
 * being read, in the buffers that would have been for more of w.  It is ended by itself, after
 * w or after swapper_sweep_alone.
 */
int swapper_sweep_then(struct swapper_sweep *w, const struct swapper_swept *states, unsigned n,
		       struct swapper_sweep **next);
/* None comes next. */
void swapper_sweep_alone(struct swapper_sweep *w);
/* Sends what is in (SWAPPER_WRITE), then returns the rest of it, and brings in the next.  1: it
 * is there, elements [*first, *first + *numel); 0: there are no more.  -errno of
 * swapper_swap_out: those states that could be sent have been, and all others are in as before;
 * of swapper_swap_in or swapper_wait: nothing is in.  It may be tried again.
 */
int swapper_sweep_next(struct swapper_sweep *w, uint64_t *first, uint64_t *numel);
/* Of states[i], what is in now; NULL: nothing, or it has been sent. */
void *swapper_sweep_memory(const struct swapper_sweep *w, unsigned i);
/* What is in is returned unchanged, unless swapper_sweep_next said 0. */
void swapper_sweep_end(struct swapper_sweep *w);

/* ---- edits and gradients, by the trainer ---- */

/* New versions of the slices that bytes [offset, offset + size) are in: the same, patched.
 * Also in what is lent of them.  Not published.  -EINVAL: past the end; -ENOMEM; -EIO: what is
 * there is damaged; -ETIMEDOUT; where neither memory nor disk has room, why.
 */
int swapper_write(struct swapper *sw, struct swapper_state *s, uint64_t offset,
		  const void *data, uint64_t size);
/* Bytes [offset, offset + size) as the trainer has them: of the newest version, of what was
 * put, of what is lent. -EINVAL: past the end; -EIO; -ENOMEM; waits for the disk, for what is
 * not in memory.
 */
int swapper_read_newest(struct swapper *sw, struct swapper_state *s, uint64_t offset,
			uint64_t size, void *memory);
/* Elements from first on are numel values, or, of float32, have them added.  They are collected
 * in slices that are kept in, until another state or swapper_swap_out_puts needs the buffer.
 * swapper_swap_in's and swapper_swap_out's errors.
 */
int swapper_put(struct swapper *sw, struct swapper_state *s, uint64_t first, const void *values,
		uint64_t numel);
int swapper_accumulate(struct swapper *sw, struct swapper_state *s, uint64_t first,
		       const float *values, uint64_t numel);
/* What was put is sent back, s: only of that state; NULL: of all.  The first errno; what could
 * not be stays in, and more can be put to it.
 */
int swapper_swap_out_puts(struct swapper *sw, struct swapper_state *s);
/* Zeros, once published.  Nothing of it is in, but for what was put, which is forgotten. */
int swapper_clear(struct swapper *sw, struct swapper_state *s);
/* Calls of this thread wait until then at the latest (of monotonic_ms), and not their own time;
 * 0: until that.
 */
void swapper_set_deadline(struct swapper *sw, uint64_t until_ms);
/* Until all that was sent is on the disk; what could not be written is tried once more.  The
 * first errno of what still is not; -ETIMEDOUT.
 */
int swapper_flush(struct swapper *sw, uint64_t wait_ms);

/* ---- readers: any thread ---- */

struct swapper_pin;

/* The current versions of bytes [offset, offset + size), of one generation.  -EINVAL: past the
 * end; -ENOMEM; -ESTALE: there was no room to keep them: there are some again after
 * swapper_publish.
 */
int swapper_pin(struct swapper *sw, struct swapper_state *s, uint64_t offset, uint64_t size,
		struct swapper_pin **pin);
/* Of the same range, the same bytes. */
bool swapper_pins_same(const struct swapper_pin *a, const struct swapper_pin *b);
/* No read of it is under way. */
void swapper_unpin(struct swapper *sw, struct swapper_pin *pin);

struct swapper_failure { /* why bytes [from, to) of a state could not be read, or written */
	const struct swapper_state *state;
	uint64_t from, to;
	int rc;
	const char *what; /* "not read" ... */
	bool is_read, damaged, unsaid;
};

struct swapper_read { /* the caller's memory until done is called */
	struct swapper_state *state;
	struct swapper_pin *pin; /* NULL: what is current now */
	uint64_t offset, size;   /* bytes of the state; in the pin */
	void *memory;
	/* 0; -EINVAL; -ESTALE: given up, for room; -EIO: damaged; -ENOMEM; -ECANCELED.  From a
	 * thread of the disk's, or in swapper_read when no disk was needed.
	 */
	void (*done)(struct swapper_read *r, int rc);
	void *owner;
	struct swapper_failure failure; /* out: for swapper_log_failure */
	/* swapper's: */
	struct swapper *swapper;
	struct swapper_pin *own;
	struct swapper_block *block;
	uint64_t gone, part;
	bool submitted, canceled;
	struct swap_io io;
};

void swapper_read(struct swapper *sw, struct swapper_read *r);
/* After swapper_read, while r is there: it ends as soon as the disk lets it. */
void swapper_read_cancel(struct swapper_read *r);
/* A line about it, unless there was one already, or nothing failed.  While the state is there,
 * or a pin of it.
 */
void swapper_log_failure(struct swapper *sw, struct swapper_failure *failure);
/* swapper_read, waited for.  -ETIMEDOUT: the disk is silent. */
int swapper_read_now(struct swapper *sw, struct swapper_state *s, struct swapper_pin *pin,
		     uint64_t offset, uint64_t size, void *memory);

/* ---- figures: any thread ---- */

struct swapper_timer {
	uint64_t count, bytes, ns; /* the sum of all */
	uint64_t busy_ns;          /* that there was at least one */
};

enum swapper_timed {
	SWAPPER_IN,        /* slices, from asking the disk until they are there */
	SWAPPER_OUT,       /* slices, from sending until they are on the disk */
	SWAPPER_WAIT_IN,   /* times that the trainer waited for what is read */
	SWAPPER_WAIT_OUT,  /* and for a buffer, which is being written */
	SWAPPER_SUBMIT_IN, /* the trainer's part of these, which others do meanwhile */
	SWAPPER_SUBMIT_OUT,
	SWAPPER_FROM_MEMORY, /* slices that came from memory: not written yet, not writable, small */
	SWAPPER_INIT,        /* what states began as, until it was sent */
	SWAPPER_TIMED
};

/* DeepSpeed's: swap_in_state, swap_out_gradient, async_swap_gradient_wait, ...  NULL: it has
 * none for that, and we show none.
 */
const char *swapper_timer_name(enum swapper_kind kind, enum swapper_timed timed);

struct swapper_state_figures {
	uint64_t bytes;
	uint64_t disk; /* of these, current on the disk; slices being written count as memory */
	uint64_t memory;        /* current in memory: being written, not writable, or small */
	uint64_t zeros;         /* never sent, or cleared */
	uint64_t lost;          /* given up, for room for the next generation, which is there */
	uint64_t lent;          /* in, with the trainer */
	uint64_t patches;       /* bytes of patches of the current versions */
	uint64_t reads, writes; /* slices that came from the disk, that went there */
	uint64_t errors;
	int error; /* -errno of the last */
};

struct swapper_figures {
	struct swapper_timer timers[SWAPPER_KINDS][SWAPPER_TIMED];
	uint64_t states, bytes; /* of all states */
	uint64_t slice;         /* bytes */
	uint64_t small;         /* bytes of versions of small states, in memory for good */
	uint64_t spare, spare_max, spare_limit; /* bytes */
	uint64_t writing;                       /* slices, now */
	uint64_t pins, evicted;     /* now; versions that readers lost, since it was opened */
	uint64_t reads, read_bytes; /* of readers */
	uint64_t edits, patches, puts, publishes;
	uint64_t errors;
	int error;        /* -errno of the last */
	const char *disk; /* "uring", "threads" */
	bool registered;
	uint32_t chunk;          /* as opened, these too */
	unsigned depth, threads; /* threads 0: the disk needs none */
	uint64_t least;
	bool ahead, behind;
	struct swap_counters file;
	struct pinned_figures pinned;
};

/* A SWAPPER_INIT of the caller's, begun at `since` (ns). */
void swapper_count_init(struct swapper *sw, const struct swapper_state *s, uint64_t bytes,
			uint64_t since);
void swapper_figures(struct swapper *sw, struct swapper_figures *figures);
void swapper_state_figures(struct swapper *sw, struct swapper_state *s,
			   struct swapper_state_figures *figures);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_SWAPPED_PARAMS_H
#define ENGINE_RANK_SWAPPED_PARAMS_H

/* This rank's pieces of low-precision parameters that live on NVMe, and visit pinned buffers
 * whole.
 *
 *	pack 0   | piece of 7 | of 8 | of 9 |      |     one buffer: pieces in the order given
 *	pack 1   | piece of 10                     |     larger than a buffer: in adjacent ones
 *	         |                       |
 *
 * A pack is a state of engine/swap/swapper.h, and comes in, and goes back, as a whole.  Pieces
 * that are too small for the disk stay in memory.  Trainer's thread.
 */

#include "engine/rank/registry.h"

struct swapped_params;

enum { SWAPPED_PARAMS_ALIGN = 1024 }; /* bytes: where pieces begin in a pack */

struct swapped_params_options {
	struct registry *registry; /* that has a place */
	uint64_t least;            /* bytes; smaller pieces stay in memory */
	uint64_t stay; /* elements: pieces stay in memory until there are so many of these */
};

/* -ENOMEM. */
int swapped_params_new(struct swapped_params **s, const struct swapped_params_options *options);
/* All goes back as it was on the disk; its memory is not used any more. */
void swapped_params_leave(struct swapped_params *s);
/* No reader is left. */
void swapped_params_free(struct swapped_params *s);

struct swapped_param_given {
	uint32_t param;
	enum frag_dtype dtype;
	uint64_t numel;
	const void *values; /* NULL: those that it has in memory, or zeros */
};

/* Readers see the values at once.  -EEXIST: one is there already, or twice; -EBUSY: it is in an
 * arena; -EFAULT: where it was is no memory; those before it are there then.  -ENOMEM; -ENOSPC
 * and others: the disk, and spare memory, have no room.
 */
int swapped_params_add(struct swapped_params *s, const struct swapped_param_given *given,
		       size_t n);
/* What was put into them since is seen too: of params that are there, one pack's one after the
 * other. swapper_swap_out_puts's errors.
 */
int swapped_params_publish(struct swapped_params *s, const int *params, size_t n);

/* memory[i]: params[i], until it is out as often.  Waits for the disk, and for buffers that are
 * being written. -ENOENT; -ENOBUFS: all are lent, a line says how many more it takes; -EIO:
 * damaged; -EAGAIN: its memory is being moved; others of swapper_swap_in.  Then all is as
 * before.
 */
int swapped_params_in(struct swapped_params *s, const int *params, size_t n, void **memory);
/* Starts to bring them in, in this order, as far as there are buffers.  Returns how many are
 * in, or will be.  -ENOENT.
 */
int swapped_params_ahead(struct swapped_params *s, const int *params, size_t n);
/* changed: as their memory is.  -ENOENT; -EINVAL: one is not in.  Others of swapper_swap_out:
 * they are out, and stay in their buffers, which the next call tries to send back.
 */
int swapped_params_out(struct swapped_params *s, const int *params, size_t n, bool changed);
/* Lets go of what is in ahead.  False: there was none. */
bool swapped_params_make_room(struct swapped_params *s);
/* What could not be sent back is tried once more.  0, or why it still cannot. */
int swapped_params_settle(struct swapped_params *s);

#endif

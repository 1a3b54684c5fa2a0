/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_SWAPPED_PARAMS_H
#define ENGINE_RANK_SWAPPED_PARAMS_H

/* This rank's pieces of low-precision parameters that live on NVMe, and come whole into pinned
 * buffers.
 *
 *	pack 0   | piece of 7 | of 8 | of 9 |      |     one buffer: pieces in the order given
 *	pack 1   | piece of 10                     |     larger than a buffer: in adjacent ones
 *	         |                       |
 *
 * A pack is a state of engine/swap/swapper.h, and comes in, and goes out, as a whole.  Pieces
 * that are too small for the disk stay in memory.  Trainer's thread.
 */

#include "engine/rank/registry.h"

struct swapped_params;

enum { SWAPPED_PARAMS_ALIGN = 1024 }; /* bytes: where pieces begin in a pack */

struct swapped_params_options {
	struct registry *registry; /* with a swapper */
	uint64_t least;            /* bytes; smaller pieces stay in memory */
	uint64_t stay; /* elements: larger pieces stay in memory, too, while they fit in it */
};

/* -ENOMEM. */
int swapped_params_new(struct swapped_params **s, const struct swapped_params_options *options);
/* Returns all buffers: changes of pieces that are in are lost.  The trainer does not use their
 * memory any more.
 */
void swapped_params_leave(struct swapped_params *s);
/* Frees s.  No reader is left. */
void swapped_params_free(struct swapped_params *s);

struct swapped_param_given {
	uint32_t param;
	enum frag_dtype dtype;
	uint64_t numel;
	const void *values; /* NULL: those that the piece has in memory, or zeros */
};

/* Adds n pieces; readers see the values at once.  On error the pieces before the one that
 * failed may have been added.
 * -EEXIST: a piece is there already, or is given twice.
 * -EBUSY: the parameter is in an arena.
 * -EFAULT: the piece's present memory cannot be read.
 * -ENOSPC: disk and spare memory have no room.
 * -ENOMEM
 * Other errors of the swapper.
 */
int swapped_params_add(struct swapped_params *s, const struct swapped_param_given *given,
		       size_t n);
/* Publishes what has been put into the packs of the params, all of which were added; the params
 * of a pack stand together.  Errors of swapper_publish_state.
 */
int swapped_params_publish(struct swapped_params *s, const int *params, size_t n);

/* Brings params in.  memory[i] is params[i]'s, valid until swapped_params_out was called as
 * often as swapped_params_in.  Waits for the disk, and for buffers that are being written.  On
 * error no param is in that was not in before.
 * -ENOENT: there is no such piece.
 * -ENOBUFS: all buffers are lent; a line of the log says how many more it takes.
 * -EIO: the disk's bytes are damaged.
 * -EAGAIN: the piece is in memory that is being moved.
 * Others of swapper_swap_in_all.
 */
int swapped_params_in(struct swapped_params *s, const int *params, size_t n, void **memory);
/* Starts to bring params in, in this order, as far as there are buffers.  Returns how many are
 * in, or coming.
 * -ENOENT: there is no such piece.
 */
int swapped_params_ahead(struct swapped_params *s, const int *params, size_t n);
/* Gives the bytes of a piece to a caller who goes through the pieces in the order in which
 * they were added; they hold until the next call of this module.  The piece's pack comes in,
 * and the packs after it are read ahead, all in half of the buffers at most; the pack that the
 * call before has looked at goes out.  NULL: the bytes are to be read otherwise, as the piece
 * stays in memory, its pack has users or is not written, or there are no buffers.
 */
const void *swapped_params_look(struct swapped_params *s, int param);
/* Returns true if the param's piece was added. */
bool swapped_params_has(const struct swapped_params *s, int param);
/* Lets params out; changed: with the values that their memory has.
 * -ENOENT: there is no such piece.
 * -EINVAL: a piece is not in.
 * Others of swapper_swap_out: the params are out, and their pack stays in its buffers, which
 * the next call tries to write again.
 */
int swapped_params_out(struct swapped_params *s, const int *params, size_t n, bool changed);
/* Returns the buffers of packs that swapped_params_ahead has brought in and that have no users.
 * False: there was none.
 */
bool swapped_params_make_room(struct swapped_params *s);
/* Tries again to write packs that could not be written.  0, or the first error. */
int swapped_params_settle(struct swapped_params *s);

#endif

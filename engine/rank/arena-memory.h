/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ENGINE_RANK_ARENA_MEMORY_H
#define ENGINE_RANK_ARENA_MEMORY_H

/* A rank's arena (engine/memory/arena.h) with its memory, in which low-precision parameters
 * lie: a parameter that moves there moves in the registry too.  The trainer's thread changes
 * it; any thread may ask for figures and the map.  The caller preserves for views what a
 * parameter held that it takes out (view_owner_preserve_row).
 */

#include "engine/memory/arena.h"
#include "engine/rank/registry.h"

#include <stdio.h>

struct arena_memory;

enum { ARENA_MEMORY_ALIGN = 256 }; /* of blocks; no element lies across a border of it */

/* A parameter, whole or this rank's piece of it. */
struct arena_lp {
	uint32_t param;
	bool is_shard;
};

static inline enum state_kind arena_memory_kind(struct arena_lp lp)
{
	return lp.is_shard ? STATE_LP_SHARD : STATE_LP;
}

/* Called without a lock, for each parameter in a block that has moved. */
typedef void (*arena_moved)(void *arg, struct arena_lp lp, void *memory);

/* Makes an arena of memory that is the caller's, of the host or a device, and stays there until
 * arena_memory_close; NULL: of new, zeroed memory, whose bytes are rounded up.
 * -EEXIST: the registry has an arena.
 * -EINVAL: the memory or its size is no multiple of ARENA_MEMORY_ALIGN, or is on a device that
 * is not in use.
 * -ENOMEM.
 */
int arena_memory_open(struct arena_memory **m, struct registry *r, uint64_t bytes, void *memory,
		      arena_moved moved, void *arg);
/* No parameter is assigned any more.  NULL is allowed. */
void arena_memory_close(struct arena_memory *m);

/* As the functions of arena.h. */
int arena_memory_alloc(struct arena_memory *m, uint64_t bytes, uint64_t *block);
int arena_memory_release(struct arena_memory *m, uint64_t block);
/* Returns the error that arena_memory_release would return, or 0. */
int arena_memory_can_go(const struct arena_memory *m, uint64_t block);
int arena_memory_pin(struct arena_memory *m, uint64_t block);
int arena_memory_unpin(struct arena_memory *m, uint64_t block);

/* Finds the memory of a block at offset, and the bytes from there to the block's end.
 * -ENOENT: there is no such block.
 * -EINVAL: offset is past the block's end.
 * -EAGAIN: the block is half moved.
 */
int arena_memory_at(const struct arena_memory *m, uint64_t block, uint64_t offset,
		    void **memory, uint64_t *bytes);

/* Moves numel elements of lp, with their present values, to offset of the block.
 * -EAGAIN: the block is half moved.
 * -EINVAL: offset is not a multiple of an element.
 * Errors of arena_assign and registry_assign.
 */
int arena_memory_assign(struct arena_memory *m, struct arena_lp lp, enum frag_dtype dtype,
			uint64_t numel, uint64_t block, uint64_t offset);
/* Takes lp out of its block, and drops it in the registry.
 * -ENOENT: lp is not assigned.
 */
int arena_memory_unassign(struct arena_memory *m, struct arena_lp lp);
/* Finds the block to which lp is assigned, and the offset there.
 * -ENOENT
 */
int arena_memory_find(const struct arena_memory *m, struct arena_lp lp, uint64_t *block,
		      uint64_t *offset);
/* Gives the next parameter of a block, as arena_param_of. */
bool arena_memory_next(const struct arena_memory *m, uint64_t block, uint32_t *cursor,
		       struct arena_lp *lp);
/* Gives a parameter that is assigned; false: none is.  *cursor is 0 at first; between calls the
 * caller may unassign parameters, and do nothing else.
 */
bool arena_memory_any(const struct arena_memory *m, uint32_t *cursor, struct arena_lp *lp);

/* Continues the present plan, or makes one, for a hole of want bytes, or, if want is 0, for a
 * single hole.  Copies at most `most` bytes (at least ARENA_MEMORY_ALIGN) and returns how many;
 * 0: nothing is to do.  Errors of arena_plan, and of registry_move_begin where the arena is on
 * a device.
 * -EIO: also where the device failed while it moved bytes over each other.  Then the content of
 * the block is undefined, and its parameters are unassigned; a line of the log says so.
 */
int64_t arena_memory_compact(struct arena_memory *m, uint64_t want, uint64_t most);

struct arena_figures {
	uint64_t size, used, used_max, free, largest; /* bytes */
	uint64_t blocks, holes;                       /* how many */
	uint64_t moved;                               /* bytes, ever */
};

void arena_memory_figures(struct arena_memory *m, struct arena_figures *out);

/* Writes a line of figures, then one for each block: start, bytes, "used", "pinned" or
 * "moving", and its parameters, put by name, tabs between.  out is a memstream; after
 * ARENA_MEMORY_TEXT bytes a last line says how many blocks are left out.
 */
enum { ARENA_MEMORY_TEXT = 900 << 10 };
void arena_memory_tell(struct arena_memory *m,
		       void (*name)(void *arg, FILE *out, uint32_t param), void *arg,
		       FILE *out);

#endif
